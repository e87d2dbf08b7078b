"""The reduced problem against NumPy, without compilation: quick enough for mutate.py."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from oracles import explicit_reduced
from problems import STRUCTURES, random_problem
from vpboost.core import reduced


@pytest.mark.parametrize("structure", STRUCTURES)
def test_the_reduced_problem_of_one_block(structure, x64):
    features, derivatives, z, plain = random_problem(structure, n_rows=9, block_rows=9)
    one = jax.tree.map(lambda leaf: leaf[0], (features, derivatives))
    g_bar, h_bar = explicit_reduced(z, *plain)
    system = reduced.reduce_block(*one)
    np.testing.assert_allclose(np.asarray(system.gradient).ravel(), g_bar, atol=1e-12)
    groups = {"identity": 1, "diagonal": 3}.get(structure, 1)
    assert system.hessian.shape == ((groups, 4, 4) if structure in ("identity", "diagonal") else (1, 12, 12))
    w = np.random.default_rng(0).normal(size=(4, 3))
    np.testing.assert_allclose(
        np.asarray(system.hessian_product(jnp.asarray(w))).ravel(), h_bar @ w.ravel(), atol=1e-12
    )
    solution = reduced.optimal_weights(system, jnp.asarray(0.1))
    exact = -np.linalg.solve(h_bar + 0.1 * np.eye(12), g_bar)
    np.testing.assert_allclose(np.asarray(solution.weights).ravel(), exact, rtol=1e-9, atol=1e-11)
    assert (float(solution.error), bool(solution.finite)) == (0.0, True)
    value, by_weights, by_features = reduced.block_slopes(jnp.asarray(w), *one)
    np.testing.assert_allclose(value, g_bar @ w.ravel() + 0.5 * w.ravel() @ h_bar @ w.ravel(), rtol=1e-10)
    np.testing.assert_allclose(np.asarray(by_weights).ravel(), g_bar + h_bar @ w.ravel(), atol=1e-11)
    turned = jax.grad(lambda z: reduced.block_slopes(jnp.asarray(w), z, one[1])[0])(one[0])
    np.testing.assert_allclose(by_features, turned, atol=1e-11)


@pytest.mark.parametrize("structure", STRUCTURES)
def test_conjugate_gradients_at_once(structure, x64):
    features, derivatives, z, plain = random_problem(structure, n_rows=40, n_features=3, n_outputs=2, block_rows=16)
    g_bar, h_bar = explicit_reduced(z, *plain)
    extra = np.arange(6.0).reshape(3, 2) / 10
    exact = -np.linalg.solve(h_bar + 0.01 * np.eye(6), g_bar + extra.ravel())
    start = jnp.zeros((3, 2))
    found = reduced.optimal_weights_cg(features, derivatives, jnp.asarray(0.01), start, 1e-12, 100, jnp.asarray(extra))
    np.testing.assert_allclose(np.asarray(found.weights).ravel(), exact, rtol=1e-8)
    assert found.error < 1e-10
    rough = reduced.optimal_weights_cg(features, derivatives, jnp.asarray(0.01), start, 1e-12, 1)
    residual = (h_bar + 0.01 * np.eye(6)) @ np.asarray(rough.weights).ravel() + g_bar
    np.testing.assert_allclose(rough.error, np.linalg.norm(residual) / np.linalg.norm(g_bar), rtol=1e-8, atol=1e-12)
    if structure == "identity":  # of which the preconditioner is the inverse
        assert rough.error < 1e-10
    else:
        assert rough.error < 0.5


def test_sums_over_rows(x64, monkeypatch):
    rng = np.random.default_rng(0)
    for n in (1, 127, 128, 256, 300, 384, 512, 640, 700, 1024):
        left, right = rng.normal(size=(2, 3, n)), rng.normal(size=(n, 2))
        np.testing.assert_allclose(
            reduced.sum_over_rows(jnp.asarray(left), jnp.asarray(right)), left @ right, atol=1e-10
        )
    assert reduced.ROWS_PER_SUM == (256, 128)
    assert (reduced.MAX_DENSE_UNKNOWNS, reduced.MAX_AT_ONCE) == (256, 2**24)
    np.testing.assert_array_equal(reduced._symmetric_places(3), [[0, 1, 2], [1, 3, 4], [2, 4, 5]])
    features, derivatives, _z, _plain = random_problem("diagonal", n_rows=9, block_rows=9)
    one = jax.tree.map(lambda leaf: leaf[0], (features, derivatives))
    at_once = reduced.reduced_hessian(*one)
    monkeypatch.setattr(reduced, "MAX_AT_ONCE", 5)
    np.testing.assert_allclose(reduced.reduced_hessian(*one), at_once, atol=1e-14)


def test_factors_of_singular_systems(x64):
    ones = jnp.ones((1, 3, 3))
    factor, scale, jitter = reduced._factorise(ones, jnp.asarray(1e-20))
    eps = np.finfo(float).eps
    assert 3 * eps <= float(jitter[0]) < 1e-12
    np.testing.assert_allclose(scale, 1.0)
    np.testing.assert_allclose(factor[0] @ factor[0].T, np.ones((3, 3)), atol=1e-9)
    two = jnp.stack([ones[0], 4.0 * jnp.eye(3)])
    _, scale, jitter = reduced._factorise(two, jnp.asarray(1e-20))
    assert (float(jitter[1]), float(scale[1, 0])) == (0.0, 0.5)
    system = reduced.Reduced(jnp.ones((3, 2)), two)
    assert float(reduced.optimal_weights(system, jnp.asarray(1e-20)).error) == float(jnp.max(jitter)) > 0
    bad = reduced._factorise(-ones, jnp.asarray(1e-20))
    assert float(bad[2][0]) >= 1, "given up when the jitter is as large as the diagonal"
    assert float(bad[2][0]) < 100
    nothing = reduced._solution(jnp.array([[jnp.nan, 1.0]]), jnp.asarray(0.5))
    assert (nothing.weights.tolist(), float(nothing.error), bool(nothing.finite)) == ([[0.0, 0.0]], 0.5, False)
