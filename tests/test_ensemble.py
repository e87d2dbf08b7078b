import copy
import pickle
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from oracles import central_difference
from vpboost import Ensemble, SquaredError, VPBoostRegressor, boost
from vpboost.featurizers import MLP, RBF, ConvNet, with_bias

SMALL = partial(MLP, width=5)


def random_ensemble(n_learners=3, n_outputs=2, shape=(4,), factory=SMALL):
    rows = jax.random.normal(jax.random.key(9), (20, *shape))
    learners = []
    for key in jax.random.split(jax.random.key(0), n_learners):
        module = with_bias(factory)(key, rows)
        learners.append((module, jax.random.normal(key, (module(rows[0]).size, n_outputs))))
    return Ensemble.stack(jnp.arange(1.0, n_outputs + 1), learners), learners, np.asarray(rows)


def test_stacked_evaluation_equals_a_loop_over_learners(x64):
    ensemble, learners, rows = random_ensemble()
    expected = np.array([1.0, 2.0]) + sum(np.asarray(jax.vmap(module)(rows) @ w) for module, w in learners)
    np.testing.assert_allclose(ensemble.predict(rows), expected, atol=1e-12)
    np.testing.assert_allclose(ensemble(jnp.asarray(rows[3])), expected[3], atol=1e-12)
    staged = ensemble.staged_predict(rows)
    assert staged.shape == (4, 20, 2)
    np.testing.assert_allclose(staged[0], np.tile([1.0, 2.0], (20, 1)))
    np.testing.assert_allclose(staged[-1], expected, atol=1e-12)
    for m in range(4):
        np.testing.assert_allclose(ensemble.truncate(m).predict(rows), staged[m], atol=1e-12)


@pytest.mark.slow
@pytest.mark.long
def test_pickles_keep_double_precision():
    x = np.linspace(-1, 1, 60)[:, None]
    fit = boost(x, np.sin(9 * x), loss=SquaredError(), featurizer=SMALL, n_learners=2, dtype="float64")
    model = VPBoostRegressor(n_estimators=3, dtype="float64", featurizer="fourier").fit(x, x[:, 0])
    assert not jax.config.jax_enable_x64
    for copied in (lambda one: pickle.loads(pickle.dumps(one)), copy.deepcopy):
        again = copied(fit)
        assert {leaf.dtype for leaf in jax.tree.leaves(again.ensemble)} == {np.dtype("float64")}
        np.testing.assert_array_equal(again.ensemble.predict(x), fit.ensemble.predict(x))
        np.testing.assert_array_equal(copied(model).predict(1e6 * x), model.predict(1e6 * x))
        later = copied(model.set_params(warm_start=True, n_estimators=4)).fit(x, x[:, 0])
        assert later.n_iter_ == 4


@pytest.mark.slow
@pytest.mark.parametrize("factory", [partial(MLP, width=5), partial(RBF, n_features=4)])
@pytest.mark.parametrize("n_outputs", [1, 6])
def test_input_gradients_match_finite_differences(factory, n_outputs, x64):
    """More outputs than inputs and fewer: forward and reverse mode."""
    ensemble, _, rows = random_ensemble(n_outputs=n_outputs, factory=factory)
    gradient = ensemble.input_gradient(rows)
    assert gradient.shape == (20, n_outputs, 4)
    for row, found in zip(rows[:4], gradient, strict=False):
        numeric = central_difference(lambda v: ensemble.predict(v[None])[0], row)
        np.testing.assert_allclose(found, numeric, atol=1e-7)


def test_images(x64):
    factory = partial(ConvNet, kernels=(3,), pools=(2,), channels=(2,))
    ensemble, _, rows = random_ensemble(shape=(7, 7), factory=factory)
    assert ensemble.predict(rows).shape == (20, 2)
    assert ensemble.input_gradient(rows).shape == (20, 2, 7, 7)


def test_cut_inside_a_compiled_function():
    ensemble, _, rows = random_ensemble()
    value = jax.jit(lambda model, row: model.truncate(2)(row))(ensemble, jnp.asarray(rows[0]))
    np.testing.assert_allclose(value, ensemble.truncate(2).predict(rows[:1])[0], atol=1e-6)


@pytest.mark.parametrize("n_rows", [0, 1, 3, 256, 1000])
def test_any_number_of_rows(n_rows):
    ensemble, _, _ = random_ensemble()
    rows = np.random.default_rng(0).normal(size=(n_rows, 4))
    predictions = ensemble.predict(rows)
    assert predictions.shape == (n_rows, 2)
    for i in range(0, n_rows, 997):
        np.testing.assert_allclose(
            predictions[i], ensemble(jnp.asarray(rows[i], dtype=jnp.float32)), rtol=1e-4, atol=1e-4
        )


def test_a_rows_prediction_does_not_depend_on_its_company():
    ensemble, _, _ = random_ensemble()
    rows = np.random.default_rng(0).normal(size=(700, 4))
    whole = ensemble.predict(rows)
    np.testing.assert_array_equal(np.concatenate([ensemble.predict(row[None]) for row in rows[:20]]), whole[:20])
    np.testing.assert_array_equal(ensemble.predict(rows[::-1])[::-1], whole)


def test_ensemble_of_no_learners_is_the_constant():
    ensemble = Ensemble.stack(jnp.array([3.0, 4.0]), [])
    rows = np.zeros((5, 2))
    np.testing.assert_array_equal(ensemble.predict(rows), np.tile([3.0, 4.0], (5, 1)))
    np.testing.assert_array_equal(ensemble.input_gradient(rows), np.zeros((5, 2, 2)))
    assert ensemble.staged_predict(rows).shape == (1, 5, 2)
    assert ensemble.n_parameters == 0


def test_capacity_is_the_papers():
    """Ten learners of task 1: 10 (52 + 5) = 570 parameters."""
    ensemble, _, _ = random_ensemble(10, 1, (2,), partial(MLP, width=4, depth=2))
    assert ensemble.n_parameters == 570
    assert (ensemble.n_learners, ensemble.n_outputs) == (10, 1)


def test_bad_arguments():
    ensemble, _, _ = random_ensemble()
    with pytest.raises(ValueError, match="n_learners must be between 0 and 3, got 4"):
        ensemble.truncate(4)
    with pytest.raises(ValueError, match="x must have one row per sample"):
        ensemble.predict(np.zeros(4))
