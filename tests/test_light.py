import pickle
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vpboost import MLP, RBF, BSpline, ConvNet, Ensemble, Fourier, ResNet, VPBoostClassifier, VPBoostRegressor
from vpboost.estimators.prediction import LightEnsemble
from vpboost.featurizers import SomeColumns, with_bias
from vpboost.predictor import ACTIVATIONS

FACTORIES = {
    **{f"MLP {name}": partial(MLP, width=4, activation=name) for name in ACTIVATIONS},
    "ResNet": partial(ResNet, width=5, depth=2),
    "RBF": partial(RBF, n_features=6),
    "Fourier": Fourier,
    "BSpline": partial(BSpline, n_directions=2),
    "some columns": partial(SomeColumns, factory=partial(MLP, width=4), fraction=0.5),
    "ConvNet": partial(ConvNet, kernels=(3, 2), pools=(2, 2), channels=(2, 3), strides=(2, 1)),
}


def random_ensemble(factory, rows, n_learners=3, n_outputs=2):
    keys = jax.random.split(jax.random.key(0), n_learners)
    modules = [factory(key, rows) for key in keys]
    n = modules[0](rows[0]).shape[0]
    weights = jax.random.normal(jax.random.key(1), (n_learners, n, n_outputs), rows.dtype)
    return Ensemble.stack(jnp.arange(n_outputs, dtype=rows.dtype), list(zip(modules, weights, strict=True)))


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", FACTORIES)
def test_numpy_gives_the_same_predictions(name, bias, x64):
    shape = (2, 9, 8) if name == "ConvNet" else (6,)
    rows = jax.random.normal(jax.random.key(2), (7, *shape))
    ensemble = random_ensemble(with_bias(FACTORIES[name]) if bias else FACTORIES[name], rows)
    light = LightEnsemble.of(ensemble)
    np.testing.assert_allclose(light.predict(rows), ensemble.predict(rows), atol=1e-12)


@pytest.mark.slow
@pytest.mark.long
def test_networks_take_images_and_an_ensemble_may_be_empty(x64):
    images = jax.random.normal(jax.random.key(2), (4, 5, 5))
    ensemble = random_ensemble(MLP, images)
    np.testing.assert_allclose(LightEnsemble.of(ensemble).predict(images), ensemble.predict(images), atol=1e-12)
    one_channel = random_ensemble(partial(ConvNet, kernels=(2,), pools=(2,), channels=(1,)), images)
    np.testing.assert_allclose(LightEnsemble.of(one_channel).predict(images), one_channel.predict(images), atol=1e-12)
    empty = Ensemble.stack(jnp.array([3.0, 4.0]), [])
    np.testing.assert_array_equal(LightEnsemble.of(empty).predict(np.zeros((2, 5))), [[3, 4], [3, 4]])


def test_what_is_not_ours_is_left_to_jax():
    class Own(eqx.Module):
        scale: jax.Array

        def __call__(self, x):
            return self.scale * x

    rows = jnp.ones((3, 2))
    assert LightEnsemble.of(random_ensemble(lambda key, rows: Own(jnp.ones(2)), rows)) is None
    assert LightEnsemble.of(random_ensemble(partial(MLP, activation=jnp.tanh), rows)) is None


@pytest.mark.parametrize("estimator", [VPBoostRegressor, VPBoostClassifier])
def test_few_rows_are_predicted_like_many(estimator):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3)) * [1, 100, 0.01]
    y = X[:, 0] + 0.01 * X[:, 1] ** 2 / 100
    model = estimator(n_estimators=5, max_steps=20, encoding="plain", inherit=0.5).fit(
        X, y if estimator is VPBoostRegressor else y > 0
    )
    predict = model.predict if estimator is VPBoostRegressor else model.predict_proba
    assert model._light.most_rows == 1000
    model._light.most_rows = 32
    many = predict(X)
    few = np.concatenate([predict(X[i : i + 7]) for i in range(0, 300, 7)])
    np.testing.assert_allclose(few, many, rtol=1e-4, atol=1e-5)
    restored = pickle.loads(pickle.dumps(model))
    assert "_light" not in model.__getstate__()
    assert restored._light is not None
    np.testing.assert_array_equal(restored.predict(X[:3]), model.predict(X[:3]))
    model.fit(X[:, ::-1], y if estimator is VPBoostRegressor else y > 0)
    refitted = model.predict if estimator is VPBoostRegressor else model.predict_proba
    np.testing.assert_allclose(refitted(X[:5, ::-1]), refitted(X[:, ::-1])[:5], rtol=1e-4, atol=1e-5)
