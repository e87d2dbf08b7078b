from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from problems import random_problem
from vpboost import MLP, MulticlassCrossEntropy, SquaredError, Training, TrustRegion, boost
from vpboost.core.objective import value_and_slopes
from vpboost.core.reduced import Derivatives
from vpboost.core.sketch import compress, majorised, sketch
from vpboost.core.weak_learner import sketch_key
from vpboost.featurizers import with_bias
from vpboost.losses.curvature import ScaledIdentity, Softmax


def many_outputs(rank=None, n_rows=90, n_outputs=40, seed=0):
    """Derivatives of squared error with many outputs, the gradient of a given rank; and inputs."""
    rng = np.random.default_rng(seed)
    gradient = rng.normal(size=(n_rows, n_outputs))
    if rank is not None:
        gradient = rng.normal(size=(n_rows, rank)) @ rng.normal(size=(rank, n_outputs))
    weight, scale = rng.uniform(0.5, 2, n_rows), rng.uniform(0.5, 2, n_rows)
    parts = (weight / weight.sum(), gradient, scale)
    w, g, s = (jnp.asarray(part.reshape(3, n_rows // 3, *part.shape[1:])) for part in parts)
    x = jnp.asarray(rng.normal(size=(3, 2, n_rows // 3)))
    return x, Derivatives(w, g, ScaledIdentity(s, n_outputs))


def slopes(x, derivatives, reg=1e-2):
    module = with_bias(partial(MLP, width=4))(jax.random.key(0), jnp.zeros((5, 2)))
    theta, structure = eqx.partition(module, eqx.is_inexact_array)
    start = jnp.zeros((5, derivatives.gradient.shape[-1]))
    value, (by_theta, _), _ = value_and_slopes(
        theta, start, lambda t: eqx.combine(t, structure), x, derivatives, jnp.asarray(reg), 0.0, "direct"
    )
    return value, jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(by_theta)])


@pytest.mark.slow
@pytest.mark.long
def test_training_on_compressed_outputs_is_exact_at_low_rank(x64):
    x, derivatives = many_outputs(rank=5)
    compressed = compress(jax.random.key(1), derivatives, 12)
    assert compressed.gradient.shape[-1] == 12
    (value, slope), (expected, expected_slope) = slopes(x, compressed), slopes(x, derivatives)
    np.testing.assert_allclose(value, expected, rtol=1e-10)
    np.testing.assert_allclose(slope, expected_slope, atol=1e-10 * np.abs(expected_slope).max())


def test_the_sketch_is_right_on_average_and_close_each_time(x64):
    x, derivatives = many_outputs()
    of_key = jax.jit(lambda key: slopes(x, compress(key, derivatives, 20)))
    found = [of_key(jax.random.key(k)) for k in range(400)]
    value, slope = slopes(x, derivatives)
    values, each = np.array([v for v, _ in found]), np.array([s for _, s in found])
    assert abs(values.mean() - value) < 0.02 * abs(value), "bias"
    assert values.std() < 0.2 * abs(value)
    assert np.linalg.norm(each.mean(axis=0) - slope) < 0.05 * np.linalg.norm(slope)
    draw = jax.jit(lambda key: sketch(key, derivatives, 20))
    gram = np.mean([(s := np.asarray(draw(jax.random.key(k)))) @ s.T for k in range(400)], axis=0)
    np.testing.assert_allclose(gram, np.eye(40), atol=0.3)
    assert abs(np.trace(gram) - 40) < 1.5


def test_only_multiples_of_the_identity_are_compressed(x64):
    for structure in ("identity", "diagonal", "softmax", "dense"):
        _, derivatives, *_ = random_problem(structure, 20, 3, 6)
        compressed = compress(jax.random.key(0), derivatives, 4)
        assert (compressed is not derivatives) == (structure == "identity")
        assert compress(jax.random.key(0), derivatives, 6) is derivatives
        assert compress(jax.random.key(0), derivatives, None) is derivatives


@settings(max_examples=50)
@given(logits=arrays(float, (3, 7), elements=st.floats(-30, 30)))
def test_the_majorant_of_softmax_is_nowhere_below_it(logits):
    with jax.enable_x64(True):
        curvature = Softmax(jax.nn.softmax(jnp.asarray(logits), axis=-1))
        above = np.asarray(curvature.majorant().matrix() - curvature.matrix())
        assert np.linalg.eigvalsh(above).min() > -1e-12
        largest = np.linalg.eigvalsh(np.asarray(curvature.matrix())).max(axis=-1)
        assert (np.asarray(curvature.majorant().scale) <= 2 * largest + 1e-12).all(), "and no more than twice as large"


def test_training_on_the_majorant_solves_with_one_small_matrix(x64):
    _, derivatives, *_ = random_problem("softmax", 40, 3, 5)
    above = majorised(derivatives)
    p = np.asarray(derivatives.curvature.probabilities)
    np.testing.assert_allclose(above.curvature.scale, 2 * (p * (1 - p)).max(axis=-1))
    assert above.gradient is derivatives.gradient
    for structure in ("identity", "diagonal", "dense"):
        _, other, *_ = random_problem(structure, 20, 3, 6)
        assert majorised(other) is other


def test_boosting_of_classes_on_the_majorant_reaches_the_loss_of_the_hessian():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 2))
    y = np.digitize(np.arctan2(x[:, 1], x[:, 0]), np.linspace(-3, 3, 6))
    losses = {}
    for options in ({}, {"majorant": True, "cg_tol": 1e-3}, {"majorant": True, "sketch": 3}):
        fit = boost(
            x, y, loss=MulticlassCrossEntropy(), featurizer=partial(MLP, width=8), n_learners=8,
            training=Training(max_steps=60, **options), trust_region=TrustRegion(rate=0.5),
        )  # fmt: skip
        losses[str(options)] = fit.history[-1].loss
        assert fit.ensemble.weights.shape == (8, 9, 7)
    exact, *others = losses.values()
    assert exact < 0.5
    assert max(others) < 2 * exact, losses  # each stage gains a little less


@pytest.mark.long
@pytest.mark.slow
def test_boosting_on_few_directions_reaches_the_loss_of_all_outputs():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, size=(400, 2))
    y = np.sin(3 * x @ rng.normal(size=(2, 6))) @ rng.normal(size=(6, 200))
    losses = {}
    for directions in (None, 16):
        fit = boost(
            x, y, loss=SquaredError(), featurizer=partial(MLP, width=8), n_learners=3,
            training=Training(max_steps=100, sketch=directions),
        )  # fmt: skip
        losses[directions] = fit.history[-1].loss
        assert fit.ensemble.weights.shape == (3, 9, 200)
    assert losses[16] < 1.1 * losses[None]


@pytest.mark.parametrize(("options", "message"), [
    ({"sketch": 1}, "sketch must be a whole number of at least 2, got 1"),
    ({"sketch": 8, "method": "gd"}, "sketch goes with method='vp', got sketch=8 and method='gd'"),
    ({"majorant": True, "method": "vp_end"}, "majorant=True goes with method='vp', got method='vp_end'"),
    ({"cg_tol": 0.0}, r"cg_tol must be in \(0, 1\), got 0.0"),
])  # fmt: skip
def test_bad_settings_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Training(**options)


def test_sketch_and_candidates_have_keys_of_their_own():
    key = jax.random.key(3)
    words = [jax.random.key_data(k).tolist() for k in (sketch_key(key), *jax.random.split(key, 64), key)]
    assert len({tuple(w) for w in words}) == len(words)
