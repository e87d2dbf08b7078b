import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles import explicit_reduced
from problems import STRUCTURES, quadratic_model, random_problem
from vpboost.core import reduced
from vpboost.core.reduced import MAX_DENSE_UNKNOWNS, Derivatives, Reduced, uses_cg
from vpboost.losses.curvature import Diagonal, ScaledIdentity, Softmax

reduce, hessian_product, optimal_weights = (
    jax.jit(f) for f in (reduced.reduce, reduced.hessian_product, reduced.optimal_weights)
)
optimal_weights_cg = jax.jit(reduced.optimal_weights_cg, static_argnums=(4, 5))

each_structure = pytest.mark.parametrize("structure", STRUCTURES)


def dense_hessian(system, n_features, n_outputs):
    """The full nK × nK matrix, column by column from products with H̄."""
    size = n_features * n_outputs
    basis = jnp.eye(size).reshape(size, n_features, n_outputs)
    return np.asarray(jax.vmap(system.hessian_product)(basis)).reshape(size, size).T


@each_structure
@settings(max_examples=8)
@given(
    sizes=st.sampled_from([(23, 4, 3), (5, 6, 2), (40, 3, 1), (1, 2, 2), (12, 1, 4), (9, 3, 3)]),
    seed=st.integers(0, 1000),
    reg=st.sampled_from([1e-3, 0.1, 10.0]),
)
def test_reduced_derivatives_and_weights_match_the_explicit_featurizer_matrix(structure, sizes, seed, reg):
    n_rows, n, k = sizes
    with jax.enable_x64(True):
        features, derivatives, z, plain = random_problem(structure, n_rows, n, k, seed)
        g_bar, h_bar = explicit_reduced(z, *plain)
        system = reduce(features, derivatives)
        np.testing.assert_allclose(np.asarray(system.gradient).ravel(), g_bar, atol=1e-12)
        np.testing.assert_allclose(dense_hessian(system, n, k), h_bar, atol=1e-12)
        expected = -np.linalg.solve(h_bar + reg * np.eye(n * k), g_bar)
        solution = optimal_weights(system, jnp.asarray(reg))
        np.testing.assert_allclose(np.asarray(solution.weights).ravel(), expected, rtol=1e-10, atol=1e-10)
        assert solution.error == 0
        assert bool(solution.finite)
        w = np.random.default_rng(seed).normal(size=n * k)
        value = quadratic_model(jnp.asarray(w.reshape(n, k)), features, derivatives)
        np.testing.assert_allclose(value, g_bar @ w + 0.5 * w @ h_bar @ w, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(
            np.asarray(hessian_product(jnp.asarray(w.reshape(n, k)), features, derivatives)).ravel(),
            h_bar @ w,
            atol=1e-11,
        )


@each_structure
def test_structured_solve_equals_conjugate_gradients(structure, x64):
    features, derivatives, *_ = random_problem(structure, 200, 6, 5, seed=3, block_rows=64)
    reg = jnp.asarray(1e-3)
    direct = optimal_weights(reduce(features, derivatives), reg).weights
    start = jnp.zeros_like(direct)
    iterative = optimal_weights_cg(features, derivatives, reg, start, 1e-12, 500)
    np.testing.assert_allclose(iterative.weights, direct, atol=1e-10)
    assert iterative.error < 1e-11


def test_conjugate_gradients_start_where_they_are_told(x64):
    features, derivatives, *_ = random_problem("dense", 200, 6, 5, seed=3, block_rows=64)
    reg = jnp.asarray(1e-3)
    direct = optimal_weights(reduce(features, derivatives), reg).weights
    warm, cold = (
        optimal_weights_cg(features, derivatives, reg, start, 1e-7, 2).weights for start in (direct + 1e-6, 0 * direct)
    )
    assert np.abs(warm - direct).max() < 1e-4 * np.abs(cold - direct).max()


@each_structure
@pytest.mark.parametrize("block_rows", [1, 10, 64, 300])
def test_blocks_do_not_change_the_result(structure, block_rows, x64):
    features, derivatives, *_ = random_problem(structure, 300, 4, 3, seed=5, block_rows=300)
    blocked = random_problem(structure, 300, 4, 3, seed=5, block_rows=block_rows)
    one, many = reduce(features, derivatives), reduce(*blocked[:2])
    np.testing.assert_allclose(many.gradient, one.gradient, atol=1e-13)
    np.testing.assert_allclose(many.hessian, one.hessian, atol=1e-13)


def test_one_factorisation_serves_all_outputs_of_squared_error(x64):
    features, derivatives, *_ = random_problem("identity", 50, 4, 100)
    assert reduce(features, derivatives).hessian.shape == (1, 4, 4)
    features, derivatives, *_ = random_problem("diagonal", 50, 4, 10)
    assert reduce(features, derivatives).hessian.shape == (10, 4, 4)


def test_solver_is_chosen_by_structure_and_size():
    ones = jnp.ones((2, 3, 4))
    coupled, diagonal, identity = Softmax(ones), Diagonal(ones), ScaledIdentity(ones[..., 0], 4)
    assert not uses_cg(coupled, MAX_DENSE_UNKNOWNS, "auto")
    assert uses_cg(coupled, MAX_DENSE_UNKNOWNS + 1, "auto")
    assert not uses_cg(diagonal, 10**6, "auto")
    assert not uses_cg(identity, 10**6, "auto")
    assert not uses_cg(coupled, 10**6, "direct")
    assert uses_cg(identity, 4, "cg")


@pytest.mark.slow
@each_structure
@pytest.mark.parametrize("solver", ["direct", "cg"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("trouble", ["collinear", "constant", "zero", "huge", "tiny"])
def test_troublesome_features_give_a_finite_answer(structure, trouble, dtype, solver):
    """With a tiny λ_w: finite weights, and a model value no worse than doing nothing."""
    with jax.enable_x64(dtype == "float64"):
        features, derivatives, *_ = random_problem(structure, 60, 5, 3, seed=2, block_rows=32)
        features, derivatives = jax.tree.map(lambda leaf: leaf.astype(dtype), (features, derivatives))
        features = {
            "collinear": lambda z: jnp.concatenate([z, z[:, :2], z[:, :1] + z[:, 1:2]], axis=1),
            "constant": lambda z: jnp.ones_like(z),
            "zero": lambda z: z.at[:, 0].set(0.0),
            "huge": lambda z: z * jnp.array([1e12, 1, 1, 1e6, 1e-6], dtype)[:, None],
            "tiny": lambda z: z * jnp.asarray(1e-15, dtype),
        }[trouble](features)
        reg = jnp.asarray(1e-12, dtype)
        if solver == "direct":
            solution = optimal_weights(reduce(features, derivatives), reg)
        else:
            start = jnp.zeros((features.shape[1], 3), dtype)
            solution = optimal_weights_cg(features, derivatives, reg, start, 1e-6, 100)
        assert np.all(np.isfinite(solution.weights))
        assert bool(solution.finite)
        tolerance = 1e-3 if dtype == "float32" else 1e-6
        assert quadratic_model(solution.weights, features, derivatives) <= tolerance


def test_overflowing_features_are_reported_not_hidden():
    features, derivatives, *_ = random_problem("identity")
    solution = optimal_weights(reduce(features * 1e30, derivatives), jnp.asarray(1e-3))
    assert not bool(solution.finite)
    np.testing.assert_array_equal(solution.weights, 0)


def test_collinear_features_report_their_jitter():
    ones = jnp.ones((1, 3, 8))
    derivatives = Derivatives(jnp.full((1, 8), 1 / 8), jnp.ones((1, 8, 1)), ScaledIdentity(jnp.ones((1, 8)), 1))
    solution = optimal_weights(reduce(ones, derivatives), jnp.asarray(1e-20))
    assert 0 < solution.error < 1e-4
    np.testing.assert_allclose(jnp.sum(solution.weights), -1, atol=1e-3)


def test_group_and_ungroup_are_inverse():
    gradient = jnp.arange(12.0).reshape(4, 3)
    for shape in ((1, 4, 4), (3, 4, 4), (1, 12, 12)):
        system = Reduced(gradient, jnp.zeros(shape))
        np.testing.assert_array_equal(system.ungroup(system.group(gradient)), gradient)


@each_structure
@pytest.mark.parametrize("n_rows", [1000, 640, 512])  # no whole number of parts; five of 128; two of 256
def test_long_blocks_are_summed_in_parts(n_rows, structure, x64):
    """One block against the explicit sum over samples."""
    features, derivatives, plain_features, plain = random_problem(structure, n_rows=n_rows, block_rows=n_rows)
    gradient, hessian = explicit_reduced(plain_features, *plain)
    system = reduce(features, derivatives)
    weights = jnp.asarray(np.random.default_rng(1).normal(size=(4, 3)))
    np.testing.assert_allclose(system.gradient, gradient.reshape(4, 3), rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(
        system.hessian_product(weights), (hessian @ weights.reshape(-1)).reshape(4, 3), rtol=1e-10
    )


def test_sums_in_parts_lose_fewer_digits():
    rng = np.random.default_rng(0)
    left, right = rng.uniform(size=(40, 8192)).astype("float32"), rng.uniform(size=(8192, 40)).astype("float32")
    exact = left.astype(float) @ right.astype(float)
    error = np.abs(np.asarray(jax.jit(reduced.sum_over_rows)(left, right)) / exact - 1).max()
    assert error < 1e-6
