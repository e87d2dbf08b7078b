"""A new featurizer is one file: a class and what it declares of itself. Here that file is this test."""

import importlib.util

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from vpboost import VPBoostRegressor, load_model, predictor
from vpboost.export import to_numpy, to_onnx
from vpboost.featurizers import KINDS, Kind, activations, register
from vpboost.featurizers.base import ByColumns

X = np.random.default_rng(0).uniform(-1, 1, (300, 2))
Y = np.sin(3 * X[:, 0]) + X[:, 1] ** 2


class Ridges(ByColumns):
    """Bell curves 1 / (1 + t²) along trainable directions, t = a·x + b."""

    directions: Array
    offsets: Array

    def __init__(self, key, rows, *, n_ridges=5):
        a, b = jax.random.split(key)
        self.directions = 2 * jax.random.normal(a, (n_ridges, rows.shape[1]), rows.dtype)
        self.offsets = jax.random.normal(b, (n_ridges,), rows.dtype)

    def columns(self, x):
        return 1 / (1 + (self.directions @ x + self.offsets[:, None]) ** 2)


def ridges(options, theta, x):
    """Return bell curves along directions."""
    t = theta["directions"] @ x + theta["offsets"][..., None]
    return 1 / (1 + t**2)


def onnx_ridges(graph, x, options, theta):
    t = graph("MatMul", graph.constant(theta["directions"]), x)
    t = graph("Add", t, graph.constant(theta["offsets"][..., None]))
    return graph("Reciprocal", graph("Add", graph.constant(1.0), graph("Mul", t, t)))


@pytest.fixture
def registered():
    def options(module):
        return {"n_ridges": module.directions.shape[-2]}

    register(Kind(Ridges, "ridges", {"width": "n_ridges"}, options, ridges, onnx_ridges))
    yield
    del KINDS["Ridges"], predictor.FEATURES["Ridges"]


@pytest.mark.slow
@pytest.mark.long
def test_a_featurizer_that_is_registered_is_known_everywhere(registered, tmp_path):
    model = VPBoostRegressor(featurizer="ridges", width=7, n_estimators=30, learning_rate=0.3).fit(X, Y)
    assert model.score(X, Y) > 0.95
    assert model.ensemble_.featurizers.featurizer.featurizer.directions.shape[1:] == (7, 2)  # of a bias, some columns
    model.save_model(tmp_path / "model")
    np.testing.assert_array_equal(load_model(tmp_path / "model").predict(X), model.predict(X))
    np.testing.assert_allclose(model.predict(np.tile(X, (9, 1)))[:300], model.predict(X), rtol=1e-5, atol=1e-5)

    saved, script = to_numpy(model, tmp_path / "plain")
    spec = importlib.util.spec_from_file_location("exported", script)
    exported = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(exported)
    np.testing.assert_allclose(exported.Predictor(saved).predict(X), model.predict(X), rtol=1e-9, atol=1e-9)

    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(to_onnx(model, tmp_path / "model.onnx", dtype="float64"))
    np.testing.assert_allclose(session.run(None, {"X": X})[0], model.predict(X), rtol=1e-9, atol=1e-9)

    with pytest.raises(ValueError, match="depth does not apply to featurizer='ridges'"):
        VPBoostRegressor(featurizer="ridges", depth=2).fit(X, Y)


@pytest.mark.slow
@pytest.mark.long
def test_without_being_registered_it_is_the_users_own(tmp_path):
    with pytest.raises(ValueError, match=r"featurizer must be one of .*, got 'ridges'"):
        VPBoostRegressor(featurizer="ridges").fit(X, Y)
    model = VPBoostRegressor(featurizer=Ridges, n_estimators=2).fit(X, Y)
    model.save_model(tmp_path / "model")
    np.testing.assert_array_equal(load_model(tmp_path / "model", featurizer=Ridges).predict(X), model.predict(X))
    with pytest.raises(TypeError, match="cannot be exported"):
        to_numpy(model, tmp_path / "plain")


def test_every_kind_and_activation_has_all_its_forms():
    assert {name: kind.plain for name, kind in KINDS.items()} == predictor.FEATURES
    assert activations.ACTIVATIONS.keys() == predictor.ACTIVATIONS.keys()
    x = np.linspace(-3, 3, 50)
    for name, forms in activations.ACTIVATIONS.items():
        with jax.enable_x64(True):
            np.testing.assert_allclose(forms.jax(jnp.asarray(x)), predictor.ACTIVATIONS[name](x), rtol=1e-12)
