"""The reduced problem against NumPy, without compilation: quick enough for mutate.py."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from oracles import explicit_reduced
from problems import STRUCTURES, random_problem
from vpboost.core import reduced
from vpboost.losses.curvature import Diagonal, ScaledIdentity, Softmax


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


def test_long_sums_are_taken_in_parts():
    """In as many parts as there are of the first size that divides the rows, and else of the first size and a rest."""
    for rows, parts, products in [
        *((100, 0, 1), (256, 0, 1), (384, 3, 1), (512, 2, 1), (640, 5, 1), (1024, 4, 1), (300, 0, 1), (700, 2, 2)),
    ]:
        for shape in ((3, rows), (2, 3, rows)):
            made = str(jax.make_jaxpr(reduced.sum_over_rows)(jnp.ones(shape), jnp.ones((rows, 5))))
            assert made.count("dot_general[") == products
            assert ("reduce_sum[" in made) is (parts > 0)
            assert parts == 0 or f"f32[{parts},{next(s for s in (256, 128) if rows // s == parts)},5]" in made


@pytest.mark.parametrize(("n_outputs", "one_by_one"), [(2, False), (3, False), (4, True)])
def test_products_that_take_much_memory_are_made_one_by_one(n_outputs, one_by_one, monkeypatch):
    monkeypatch.setattr(reduced, "MAX_AT_ONCE", 2 * 3 * 8)
    derivatives = reduced.Derivatives(jnp.ones(8), jnp.ones((8, n_outputs)), Diagonal(jnp.ones((8, n_outputs))))
    made = str(jax.make_jaxpr(reduced.reduced_hessian)(jnp.ones((2, 8)), derivatives))
    assert ("scan[" in made) is one_by_one


@pytest.mark.parametrize("rank", [1, 2])
@pytest.mark.parametrize("structure", STRUCTURES)
def test_conjugate_gradients_with_collinear_features(structure, rank, x64):
    """The preconditioner takes no eigenvalue for more than rounding: λ_w is far below it here."""
    features, derivatives, z, plain = random_problem(structure, n_rows=40, n_features=rank, n_outputs=2, block_rows=16)
    copies = jnp.concatenate([features, 2 * features, -3 * features], axis=1)
    found = reduced.optimal_weights_cg(copies, derivatives, jnp.asarray(1e-250), jnp.zeros((3 * rank, 2)), 1e-10, 100)
    assert bool(found.finite)
    g_bar, h_bar = explicit_reduced(z, *plain)
    exact = -(np.linalg.pinv(h_bar) @ g_bar).reshape(rank, 2)
    first, second, third = np.split(np.asarray(found.weights), 3)
    np.testing.assert_allclose(z @ (first + 2 * second - 3 * third), z @ exact, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("size", [1.0, 1e-6, 1e6])
def test_one_step_where_the_preconditioner_is_the_inverse(size, x64):
    """H_i = s_i diag(c): what the preconditioner takes every H_i for, features of whatever size."""
    features, derivatives, *_ = random_problem("identity", n_rows=40, n_features=3, n_outputs=2, block_rows=40)
    entries = derivatives.curvature.scale[..., None] * jnp.array([0.5, 3.0])
    derivatives = reduced.Derivatives(derivatives.weight, derivatives.gradient, Diagonal(entries))
    reg = jnp.asarray(0.01 * size**2)
    one = reduced.optimal_weights_cg(size * features, derivatives, reg, jnp.zeros((3, 2)), 1e-12, 1)
    assert one.error < 1e-10
    direct = reduced.optimal_weights(reduced.reduce(size * features, derivatives), reg)
    np.testing.assert_allclose(one.weights, direct.weights, rtol=1e-8)


def test_the_error_without_a_gradient(x64):
    features, derivatives, *_ = random_problem("dense", n_rows=9, n_features=2, n_outputs=2, block_rows=9)
    derivatives = reduced.Derivatives(derivatives.weight, 0 * derivatives.gradient, derivatives.curvature)
    found = reduced.optimal_weights_cg(features, derivatives, jnp.asarray(0.1), jnp.zeros((2, 2)), 1e-12, 5)
    assert (float(found.error), bool(found.finite)) == (0.0, True)
    np.testing.assert_array_equal(found.weights, 0)


def test_systems_without_curvature(x64):
    """H̄ = 0: w* = −ḡ/λ_w, by either way; and two outputs of which one has no curvature."""
    features, derivatives, z, plain = random_problem("diagonal", n_rows=9, n_features=2, n_outputs=2, block_rows=9)
    for share in ([0.0, 0.0], [1.0, 0.0]):
        curvature = Diagonal(derivatives.curvature.entries * jnp.array(share))
        problem = features, reduced.Derivatives(derivatives.weight, derivatives.gradient, curvature)
        g_bar, h_bar = explicit_reduced(z, *plain[:2], np.asarray(curvature.matrix())[0, :9])
        exact = -np.linalg.solve(h_bar + 0.1 * np.eye(4), g_bar).reshape(2, 2)
        direct = reduced.optimal_weights(reduced.reduce(*problem), jnp.asarray(0.1))
        np.testing.assert_allclose(direct.weights, exact, rtol=1e-10)
        iterated = reduced.optimal_weights_cg(*problem, jnp.asarray(0.1), jnp.zeros((2, 2)), 1e-12, 50)
        np.testing.assert_allclose(iterated.weights, exact, rtol=1e-8)


def test_scales_and_jitter(x64):
    eps = float(np.finfo(float).eps)
    factor, scale, jitter = reduced._factorise(4.0 * jnp.eye(2)[None], jnp.asarray(5.0))
    np.testing.assert_allclose(scale, 1 / 3)
    np.testing.assert_allclose(factor[0], np.eye(2), atol=1e-15)
    assert float(jitter[0]) == 0.0
    # only the last pivot is bad, by 2e-9: jitter grows tenfold from a rounding for each unknown until it is enough
    corner = jnp.array([[1.0, 0.0, 1 + 1e-9], [0.0, 1.0, 0.0], [1 + 1e-9, 0.0, 1.0]])
    factor, _, jitter = reduced._factorise(jnp.stack([corner, jnp.eye(3)]), jnp.asarray(0.0))
    np.testing.assert_allclose(jitter, [3 * eps * 1e7, 0.0], rtol=1e-9)
    np.testing.assert_allclose(factor[0] @ factor[0].T, corner, atol=1e-7)
    np.testing.assert_allclose(factor[1], np.eye(3))
    hopeless = reduced._factorise(-jnp.ones((1, 5, 5)), jnp.asarray(1e-20))[2]
    np.testing.assert_allclose(hopeless, 5 * eps * 1e15)  # 1.1, the first that is not less than the diagonal


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


def test_which_systems_are_solved_by_conjugate_gradients():
    ones = jnp.ones((2, 3, 4))
    most = reduced.MAX_DENSE_UNKNOWNS
    for curvature, unknowns, solver, expected in [
        *((Softmax(ones), most, "auto", False), (Softmax(ones), most + 1, "auto", True)),
        *((Diagonal(ones), 10**6, "auto", False), (ScaledIdentity(ones[..., 0], 4), 10**6, "auto", False)),
        *((Softmax(ones), 10**6, "direct", False), (Diagonal(ones), 4, "cg", True)),
    ]:
        assert reduced.uses_cg(curvature, unknowns, solver) is expected
