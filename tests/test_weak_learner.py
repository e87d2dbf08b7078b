from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from problems import STRUCTURES, featurize, quadratic_model, random_problem
from vpboost.core import reduced as reduced_module
from vpboost.core.objective import MAX_BLOCKS_KEPT, summarise, value_and_slopes
from vpboost.core.weak_learner import METHODS, Training, batches, descend, solve_at_end, train
from vpboost.featurizers import MLP, with_bias
from vpboost.numerics.blocks import Layout

reduce, optimal_weights = (jax.jit(f) for f in (reduced_module.reduce, reduced_module.optimal_weights))


def problem(structure="identity", n_rows=60, seed=0, block_rows=32):
    """Inputs in blocks, loss derivatives, and one small featurizer (with bias)."""
    _, derivatives, *_ = random_problem(structure, n_rows, 2, 3, seed, block_rows)
    x = np.random.default_rng(seed + 1).normal(size=(n_rows, 2))
    blocks = jnp.asarray(Layout.for_rows(n_rows, block_rows).split_inputs(x, float))
    module = with_bias(partial(MLP, width=3, depth=1))(jax.random.key(seed), jnp.asarray(x))
    return blocks, derivatives, module


def stack(*modules):
    arrays = [eqx.filter(m, eqx.is_array) for m in modules]
    structure = eqx.filter(modules[0], eqx.is_array, inverse=True)
    return eqx.combine(jax.tree.map(lambda *leaves: jnp.stack(leaves), *arrays), structure)


@eqx.filter_jit
def learn(key, population, x, derivatives, reg, training):
    """Algorithm 1 from end to end: training, then the last solve."""
    learner = train(key, population, x, derivatives, reg, training)
    summary = summarise(learner.featurizer, x, derivatives, training.solver)
    weights = solve_at_end(learner.weights, summary, derivatives, reg, training).weights
    return learner._replace(weights=weights)


def solve_in_the_graph(features, derivatives, reg):
    """w*(θ) by a plain dense solve that automatic differentiation can go through."""
    reduced = reduce(features, derivatives)
    right = reduced.group(reduced.gradient)
    return reduced.ungroup(-jnp.linalg.solve(reduced.hessian + reg * jnp.eye(right.shape[1]), right))


@eqx.filter_jit
def regularised(module, x, derivatives, reg, reg_theta, weights=None):
    """The objective, with w*(θ) inside the graph when no weights are given."""
    features = featurize(module, x)
    if weights is None:
        weights = solve_in_the_graph(features, derivatives, reg)
    theta = sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(eqx.filter(module, eqx.is_inexact_array)))
    value = quadratic_model(weights, features, derivatives)
    return value + 0.5 * reg * jnp.sum(weights**2) + 0.5 * reg_theta * theta


@pytest.mark.parametrize("block_rows", [60, 32, 2])
@pytest.mark.parametrize("structure", STRUCTURES)
def test_gradient_with_the_graph_cut_equals_autodiff_through_the_solve(structure, block_rows, x64):
    """lem:reduced_gradient_equality, for every structure of the Hessian, with one, few and many blocks."""
    x, derivatives, module = problem(structure, block_rows=block_rows)
    assert (len(x) > MAX_BLOCKS_KEPT) == (block_rows == 2)
    theta, structure = eqx.partition(module, eqx.is_inexact_array)
    reg, start = jnp.asarray(1e-2), jnp.zeros((4, 3))

    def through(m):
        return regularised(m, x, derivatives, reg, 1e-3)

    value, (slopes, _), _ = eqx.filter_jit(value_and_slopes)(
        theta, start, lambda t: eqx.combine(t, structure), x, derivatives, reg, 1e-3, "direct"
    )
    expected, expected_slopes = eqx.filter_jit(eqx.filter_value_and_grad(through))(module)
    np.testing.assert_allclose(value, expected, rtol=1e-12)
    for one, other in zip(jax.tree.leaves(slopes), jax.tree.leaves(expected_slopes), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-8 * max(1, np.abs(other).max()))


def test_gd_takes_the_steps_of_algorithm_1(x64):
    """With plain SGD: w ← w − η(r + λ_w w), r = ḡ + H̄w, and θ ← θ − η∇_θ Q(w, θ), both at the current point."""
    x, derivatives, module = problem("softmax")
    reg, eta = jnp.asarray(0.1), 0.05
    training = Training(method="gd", max_steps=3, optimizer=optax.sgd(eta))
    key = jax.random.key(3)
    trained, weights, trace = descend(key, module, x, derivatives, reg, training)

    theta = module
    _, start, _ = descend(key, module, x, derivatives, reg, Training(method="gd", max_steps=0))
    w = start
    for k in range(3):
        reduced = reduce(featurize(theta, x), derivatives)
        np.testing.assert_allclose(trace[k], regularised(theta, x, derivatives, reg, 0.0, w), rtol=1e-12)
        slopes = eqx.filter_grad(lambda m, w=w: quadratic_model(w, featurize(m, x), derivatives))(theta)
        w = w - eta * (reduced.gradient + reduced.hessian_product(w) + reg * w)
        theta = eqx.apply_updates(theta, jax.tree.map(lambda s: -eta * s, slopes))
    np.testing.assert_allclose(weights, w, atol=1e-12)
    for one, other in zip(
        jax.tree.leaves(eqx.filter(trained, eqx.is_array)),
        jax.tree.leaves(eqx.filter(theta, eqx.is_array)),
        strict=True,
    ):
        np.testing.assert_allclose(one, other, atol=1e-12)


def test_vp_takes_the_steps_of_algorithm_1(x64):
    """With plain SGD: θ ← θ − η∇_θ Q(w*(θ), θ), and the final weights are optimal for the final θ."""
    x, derivatives, module = problem("diagonal")
    reg, eta = jnp.asarray(0.1), 0.05
    learner = learn(
        jax.random.key(0), stack(module), x, derivatives, reg, Training(max_steps=3, optimizer=optax.sgd(eta))
    )
    theta = module
    for _ in range(3):
        slopes = eqx.filter_grad(lambda m: regularised(m, x, derivatives, reg, 0.0))(theta)
        theta = eqx.apply_updates(theta, jax.tree.map(lambda s: -eta * s, slopes))
    expected = optimal_weights(reduce(featurize(theta, x), derivatives), reg).weights
    np.testing.assert_allclose(learner.weights, expected, atol=1e-10)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_methods_solve_when_they_say(method, x64):
    x, derivatives, module = problem("softmax")
    reg = jnp.asarray(0.05)

    def optimal(m):
        return optimal_weights(reduce(featurize(m, x), derivatives), reg).weights

    still = learn(jax.random.key(0), stack(module), x, derivatives, reg, Training(method=method, max_steps=0))
    moved = learn(jax.random.key(0), stack(module), x, derivatives, reg, Training(method=method, max_steps=5))
    solved_at_start = np.allclose(still.weights, optimal(module), atol=1e-12)
    solved_at_end = np.allclose(moved.weights, optimal(moved.featurizer), atol=1e-12)
    assert solved_at_start == (method != "gd")
    assert solved_at_end == (method in ("vp", "vp_end", "vp_start_end"))


def test_training_lowers_the_objective_and_vp_beats_gd(x64):
    x, derivatives, module = problem(n_rows=200)
    final = {
        method: float(regularised(learner.featurizer, x, derivatives, jnp.asarray(1e-3), 0.0, learner.weights))
        for method in ("vp", "gd")
        for learner in [
            learn(jax.random.key(0), stack(module), x, derivatives, jnp.asarray(1e-3), Training(method, max_steps=200))
        ]
    }
    start = float(regularised(module, x, derivatives, jnp.asarray(1e-3), 0.0))
    assert final["vp"] < start
    assert final["vp"] < final["gd"]


@pytest.mark.long
@pytest.mark.slow
def test_the_best_candidate_is_kept(x64):
    x, derivatives, _ = problem()
    rows = x.reshape(-1, 2)
    modules = [with_bias(partial(MLP, width=3))(jax.random.key(k), rows) for k in range(5)]
    reg = jnp.asarray(0.01)
    best = learn(jax.random.key(0), stack(*modules), x, derivatives, reg, Training(max_steps=20, candidates=5))
    values = [
        float(regularised(learner.featurizer, x, derivatives, reg, 0.0))
        for m in modules
        for learner in [learn(jax.random.key(0), stack(m), x, derivatives, reg, Training(max_steps=20))]
    ]
    np.testing.assert_allclose(regularised(best.featurizer, x, derivatives, reg, 0.0), min(values), rtol=1e-9)


@pytest.mark.slow
def test_batches_have_normalised_weights_and_an_exact_finish(x64):
    x, derivatives, module = problem(n_rows=100)
    training = Training(max_steps=10, batch_size=30)
    batch, d = batches(jax.random.key(0), x, derivatives, training)(3)
    assert batch.shape == (1, 2, 32), "rounded to a whole block"
    joined, _ = batches(jax.random.key(0), x, derivatives, Training(batch_size=70))(3)
    assert joined.shape == (1, 2, 64), "two blocks, joined"
    np.testing.assert_allclose(jnp.sum(d.weight), 1, rtol=1e-12)
    learner = learn(jax.random.key(0), stack(module), x, derivatives, jnp.asarray(0.01), training)
    exact = optimal_weights(reduce(featurize(learner.featurizer, x), derivatives), jnp.asarray(0.01)).weights
    np.testing.assert_allclose(learner.weights, exact, atol=1e-10)
    # batches as large as the data are the data
    assert batches(jax.random.key(0), x, derivatives, Training(batch_size=10_000))(0)[0] is x


def test_batches_keep_inputs_and_derivatives_together(x64):
    x, derivatives, _ = problem(n_rows=150)
    flat_x, flat_g = jnp.moveaxis(x, 1, 2).reshape(-1, 2), derivatives.gradient.reshape(-1, 3)
    batch, d = batches(jax.random.key(1), x, derivatives, Training(batch_size=90))(0)
    assert batch.shape == (1, 2, 96)
    for row, g in zip(batch[0].T, d.gradient.reshape(-1, 3), strict=True):
        where = np.flatnonzero(np.all(flat_x == row, axis=1))
        assert where.size
        np.testing.assert_array_equal(flat_g[where[0]], g)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("candidates", [1, 3])
def test_training_ends_when_the_objective_stalls(candidates, x64):
    x, derivatives, module = problem()
    reg, population = jnp.asarray(0.01), stack(*[module] * candidates)

    def trace(**options):
        training = Training(max_steps=100, schedule="constant", step_size=1e-5, candidates=candidates, **options)
        return np.asarray(learn(jax.random.key(0), population, x, derivatives, reg, training).objective)

    whole = trace()
    fall = (whole[40:50].mean() - whole[30:40].mean()) / abs(whole[40:50].mean())
    assert fall < 0
    early, patient = trace(tol=-1.01 * fall), trace(tol=-0.5 * fall)
    assert np.isfinite(early).sum() == 50, "half of the steps are taken at least"
    np.testing.assert_allclose(early[:50], whole[:50], rtol=1e-12)
    np.testing.assert_allclose(patient, whole, rtol=1e-12)
    np.testing.assert_array_equal(
        learn(jax.random.key(0), stack(module), x, derivatives, reg, Training(max_steps=20, tol=0.9)).objective,
        learn(jax.random.key(0), stack(module), x, derivatives, reg, Training(max_steps=20)).objective,
        "too few steps to speak of a stall",
    )


def test_reg_theta_shrinks_theta(x64):
    x, derivatives, module = problem()

    def size(reg_theta):
        training = Training(max_steps=300, reg_theta=reg_theta)
        learner = learn(jax.random.key(0), stack(module), x, derivatives, jnp.asarray(0.01), training)
        return sum(float(jnp.sum(leaf**2)) for leaf in jax.tree.leaves(eqx.filter(learner.featurizer, eqx.is_array)))

    assert size(1.0) < 0.1 * size(0.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    "optimizer", ["adam", "nadam", "radam", "lion", "rmsprop", "momentum", "sgd", optax.adabelief(0.01)]
)
def test_every_optimizer_lowers_the_objective(optimizer, x64):
    x, derivatives, module = problem(n_rows=80)
    options = {} if not isinstance(optimizer, str) else {"step_size": 0.01, "schedule": "cosine"}
    learner = learn(
        jax.random.key(0),
        stack(module),
        x,
        derivatives,
        jnp.asarray(0.01),
        Training(optimizer=optimizer, max_steps=50, **options),
    )
    assert learner.objective[-1] < learner.objective[0]


@pytest.mark.parametrize("optimizer", ["adam", "nadam", "lion"])
def test_training_does_not_depend_on_the_size_of_the_gradient(optimizer, x64):
    """Late in boosting residuals are small; θ must move as before, and w in proportion."""
    x, derivatives, module = problem()
    small = eqx.tree_at(lambda d: d.gradient, derivatives, 1e-5 * derivatives.gradient)
    training = Training(max_steps=30, optimizer=optimizer)
    one, other = (
        learn(jax.random.key(1), stack(module), x, d, jnp.asarray(1e-6), training) for d in (derivatives, small)
    )
    for mine, yours in zip(*map(jax.tree.leaves, (one.featurizer, other.featurizer)), strict=True):
        np.testing.assert_allclose(mine, yours, rtol=1e-4)
    np.testing.assert_allclose(1e-5 * one.weights, other.weights, rtol=1e-3)


@pytest.mark.long
@pytest.mark.slow
def test_large_softmax_training_by_conjugate_gradients_agrees_with_the_direct_solver(x64):
    x, derivatives, module = problem("softmax", n_rows=100)
    direct, iterative = (
        learn(
            jax.random.key(0), stack(module), x, derivatives, jnp.asarray(0.01), Training(max_steps=20, solver=solver)
        )
        for solver in ("direct", "cg")
    )
    np.testing.assert_allclose(direct.objective, iterative.objective, rtol=1e-3)
    exact = solve_in_the_graph(featurize(iterative.featurizer, x), derivatives, 0.01)
    np.testing.assert_allclose(iterative.weights, exact, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"method": "newton"}, ValueError, "method must be one of 'vp'.*got 'newton'"),
        ({"optimizer": "adamant"}, ValueError, "optimizer must be one of.*got 'adamant'"),
        ({"optimizer": 3}, TypeError, "optimizer must be a name or an optax"),
        ({"optimizer": optax.adam(0.1), "step_size": 0.1}, ValueError, "step_size and schedule go with a named"),
        ({"schedule": "sawtooth"}, ValueError, "schedule must be one of"),
        ({"solver": "lu"}, ValueError, "solver must be one of"),
        ({"max_steps": -1}, ValueError, "max_steps must be a whole number of at least 0, got -1"),
        ({"max_steps": 1.5}, ValueError, "max_steps must be"),
        ({"batch_size": 0}, ValueError, "batch_size must be"),
        ({"candidates": 0}, ValueError, "candidates must be"),
        ({"step_size": 0.0}, ValueError, "step_size must be positive"),
        ({"step_size": float("nan")}, ValueError, "step_size must be positive"),
        ({"tol": 1.0}, ValueError, r"tol must be in \[0, 1\) or None, got 1.0"),
        ({"reg_theta": -1.0}, ValueError, "reg_theta must be non-negative"),
    ],
)
def test_bad_settings(options, error, message):
    with pytest.raises(error, match=message):
        Training(**options)
