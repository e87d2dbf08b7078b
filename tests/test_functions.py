"""A fitted model as a JAX function, and derivatives beyond the first, against predictions and finite differences."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from oracles import central_difference
from vpboost import ConvNet, VPBoostClassifier, VPBoostRegressor

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, size=(90, 3)) * [1, 10, 0.1] + [0, 100, 5]
Y = np.stack([np.sin(2 * X[:, 0]) * (X[:, 1] - 100), np.exp(X[:, 0]) + X[:, 2]], axis=1)
QUICK = {"n_estimators": 6, "max_steps": 20, "learning_rate": 0.5, "n_chains": 1, "engine": "numpy"}


def regressor(**options):
    return VPBoostRegressor(**{**QUICK, "inherit": 0.5, "max_features": 1.0, **options})


@pytest.fixture(
    scope="module",
    params=[
        "spline",
        pytest.param("plain", marks=[pytest.mark.slow, pytest.mark.long]),
        pytest.param("quantile", marks=[pytest.mark.slow, pytest.mark.long]),
    ],
)
def model(request):
    return regressor(encoding=request.param).fit(X, Y)


@pytest.fixture(scope="module")
def with_categories():
    frame = pd.DataFrame({"a": X[:, 0], "kind": np.where(X[:, 2] > 5, "odd", "even"), "b": X[:, 1]})
    frame.loc[::7, "a"] = np.nan
    return regressor(encoding="spline").fit(frame, Y[:, 0]), frame


def test_the_function_is_what_predict_returns(model):
    with jax.enable_x64(True):
        found = jax.jit(jax.vmap(model.as_jax()))(X)
        assert found.dtype == np.float64
        np.testing.assert_allclose(found, model.predict(X), rtol=1e-10, atol=1e-8)
        far = np.array([1e30, -1e30, np.nan])
        np.testing.assert_allclose(model.as_jax()(far), model.predict(far[None])[0], rtol=1e-8)
    single = model.as_jax()(X[0])
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, model.predict(X[:1])[0], rtol=1e-3, atol=1e-3)


@pytest.mark.slow
@pytest.mark.long
def test_derivatives_of_the_function_are_the_estimators(model):
    with jax.enable_x64(True):
        function = model.as_jax()
        found = jax.vmap(jax.jacobian(function))(X)
        np.testing.assert_allclose(found, model.input_gradient(X), rtol=1e-4, atol=1e-4)
        second = jax.vmap(jax.hessian(function))(X[:70])
    np.testing.assert_allclose(second, model.input_hessian(X[:70]), rtol=1e-9, atol=1e-9)


def test_second_derivatives_are_differences_of_the_first():
    model = regressor(encoding="plain", dtype="float64", activation="tanh").fit(X, Y)
    units = np.array([1, 10, 0.1])
    for row in X[:4]:
        expected = central_difference(lambda u: model.input_gradient((u * units)[None])[0], row / units)
        np.testing.assert_allclose(model.input_hessian(row[None])[0] * units, expected, rtol=1e-5, atol=1e-5)


def test_products_are_those_with_the_jacobian(model):
    jacobian = model.input_gradient(X)
    along, weights = RNG.normal(size=X.shape), RNG.normal(size=Y.shape)
    close = {"rtol": 1e-3, "atol": 1e-3}
    np.testing.assert_allclose(model.input_jvp(X, along), np.einsum("rkd,rd->rk", jacobian, along), **close)
    np.testing.assert_allclose(model.input_jvp(X, along[0]), jacobian @ along[0], **close)
    np.testing.assert_allclose(model.input_vjp(X, weights), np.einsum("rkd,rk->rd", jacobian, weights), **close)


@pytest.mark.slow
@pytest.mark.long
def test_categories_and_missing_values(with_categories):
    model, frame = with_categories
    even = frame.assign(kind="even")
    with jax.enable_x64(True):
        function = model.as_jax({"kind": "even"})
        found = jax.vmap(function)(frame[["a", "b"]].to_numpy())
    np.testing.assert_allclose(found, model.predict(even), rtol=1e-9, atol=1e-8)
    jacobian, second = model.input_gradient(frame), model.input_hessian(frame)
    assert second.shape == (90, 3, 3)
    np.testing.assert_array_equal(second[:, 1], 0)
    np.testing.assert_array_equal(second[::7, 0], 0)
    assert np.abs(second[1, 0, 0]) > 0
    np.testing.assert_allclose(model.input_jvp(frame, [1.0, 5.0, 2.0]), jacobian @ [1, 0, 2], rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(model.input_vjp(frame, [3.0]), 3 * jacobian, rtol=1e-3, atol=1e-3)
    for levels in (None, {"kind": "odd", "a": 1}, {"colour": "red"}, "odd", frame.iloc[0]):
        with pytest.raises(ValueError, match=r"levels must map each categorical column, \['kind'\], and no other"):
            model.as_jax(levels)
    with pytest.raises(ValueError, match=r"levels\['kind'\] must be one of \['even', 'odd'\], got 'odder'"):
        model.as_jax({"kind": "odder"})


@pytest.mark.parametrize("n_classes", [2, 3])
def test_classifiers_return_probabilities_and_derivatives_of_logits(n_classes):
    labels = np.digitize(X[:, 0], [0, 0.5][: n_classes - 1])
    model = VPBoostClassifier(**QUICK, encoding="plain", inherit=0.5, max_features=1.0).fit(X, labels)
    with jax.enable_x64(True):
        np.testing.assert_allclose(jax.vmap(model.as_jax())(X), model.predict_proba(X), atol=1e-9)
    jacobian, along = model.input_gradient(X), np.array([1.0, 2.0, 0.5])
    np.testing.assert_allclose(model.input_jvp(X, along), jacobian @ along, rtol=1e-3, atol=1e-3)
    weights = RNG.normal(size=(90, 1 if n_classes == 2 else 3))
    expected = np.einsum("rkd,rk->rd", jacobian.reshape(90, -1, 3), weights)
    np.testing.assert_allclose(model.input_vjp(X, weights), expected, rtol=1e-3, atol=1e-3)
    assert model.input_hessian(X).shape == ((90, 3, 3) if n_classes == 2 else (90, 3, 3, 3))


@pytest.mark.slow
@pytest.mark.long
def test_log_links_and_single_outputs():
    model = regressor(loss="poisson", encoding="plain").fit(X, np.round(np.exp(X[:, 0] + 1)))
    with jax.enable_x64(True):
        function = model.as_jax()
        assert function(X[0]).shape == ()
        np.testing.assert_allclose(jax.vmap(function)(X), model.predict(X), rtol=1e-10)
        np.testing.assert_allclose(jax.vmap(jax.grad(function))(X), model.input_gradient(X), rtol=1e-4, atol=1e-5)


def test_images():
    images = RNG.normal(size=(40, 6, 6))
    small = partial(ConvNet, channels=(1,), kernels=(3,), pools=(2,), strides=(2,))
    options = {"n_estimators": 2, "max_steps": 5, "featurizer": small, "early_stopping_rounds": None}
    model = VPBoostRegressor(**options).fit(images, images[:, 2, 3])
    with jax.enable_x64(True):
        np.testing.assert_allclose(jax.vmap(model.as_jax())(images), model.predict(images), rtol=1e-6, atol=1e-7)
    with pytest.raises(ValueError, match="X holds images: differentiate as_jax"):
        model.input_hessian(images)


@pytest.mark.slow
@pytest.mark.long
def test_what_was_learnt_are_leaves(model):
    """A gradient step on all parameters lowers the loss on some rows: the function can be trained further."""
    with jax.enable_x64(True):
        params, static = eqx.partition(model.as_jax(), eqx.is_inexact_array)

        def loss(params):
            return jnp.mean((jax.vmap(eqx.combine(params, static))(X) - Y) ** 2)

        slopes = jax.grad(loss)(params)
        moved = jax.tree.map(lambda p, g: p - 1e-9 * g, params, slopes)
        assert loss(moved) < loss(params)


def test_wrong_vectors_are_named(model):
    for directions in ([1.0, 2.0], np.ones((3, 3))):
        with pytest.raises(ValueError, match=r"directions must have shape \(90, 3\) or \(3,\), got"):
            model.input_jvp(X, directions)
    with pytest.raises(ValueError, match="directions must be finite, got NaN"):
        model.input_jvp(X, [1.0, np.nan, 0.0])
    with pytest.raises(ValueError, match="weights must be numbers, got"):
        model.input_vjp(X, ["a", "b"])
    with pytest.raises(ValueError, match=r"weights must have shape \(90, 2\) or \(2,\), got \(3,\)"):
        model.input_vjp(X, [1.0, 2.0, 3.0])


def test_the_function_takes_one_input(model):
    function = model.as_jax()
    for wrong in (X[:1], X, 0.3, X[0, :1]):
        with pytest.raises(ValueError, match=r"x must be one input of shape \(3,\), got shape"):
            function(wrong)
    np.testing.assert_allclose(jax.jit(function)(X[0]), function(X[0]), rtol=1e-5)
    np.testing.assert_allclose(jax.checkpoint(function)(X[0]), function(X[0]), rtol=1e-5)


def test_a_function_in_double_precision_is_called_in_it(model):
    with jax.enable_x64(True):
        function = model.as_jax()
    with pytest.raises(ValueError, match="made in double precision; call it within"):
        function(np.zeros(3))


def test_units_too_coarse_for_single_precision_are_told():
    for x, y in ((X + 1e9, Y), (X * 1e-50, Y), (X, 1e50 * Y)):
        model = regressor(encoding="plain").fit(x, y)
        with pytest.warns(UserWarning, match="single precision is too coarse"):
            model.as_jax()
        with jax.enable_x64(True):
            np.testing.assert_allclose(jax.vmap(model.as_jax())(x), model.predict(x), rtol=1e-6)


def test_tables_of_categories_alone_and_products_of_one_output():
    frame = pd.DataFrame({"a": list("xyz") * 30, "b": list("uv") * 45})
    model = regressor().fit(frame, np.arange(90.0) % 3)
    np.testing.assert_array_equal(model.input_hessian(frame[:3]), np.zeros((3, 2, 2)))
    assert model.as_jax({"a": "x", "b": "u"})(np.zeros(0)) == pytest.approx(model.predict(frame[:1])[0], abs=1e-4)
    single = regressor(encoding="plain").fit(X, Y[:, 0])
    products = single.input_jvp(X, [1.0, 0.0, 0.0])
    expected = single.input_gradient(X) * products[:, None]
    np.testing.assert_allclose(single.input_vjp(X, products), expected, rtol=1e-3, atol=1e-3)


def test_many_outputs_need_no_jacobian():
    wide = np.sin(X[:, :1] * np.linspace(1, 2, 600))
    model = regressor(encoding="plain", n_estimators=2).fit(X, wide)
    step = 1e-5 * np.array([1.0, 10.0, 0.1])
    difference = (model.predict(X[:5] + step) - model.predict(X[:5] - step)) / 2
    np.testing.assert_allclose(model.input_jvp(X[:5], step), difference, rtol=1e-4, atol=1e-9)
