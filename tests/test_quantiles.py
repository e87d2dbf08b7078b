"""Several quantiles by one model: what is learnt, that they never cross, and everything that predicts them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from sklearn.base import clone
from sklearn.metrics import mean_pinball_loss

from vpboost import VPBoostRegressor, load_model, losses, plotting
from vpboost.estimators.metrics import evaluate
from vpboost.predictor import Predictor

LEVELS = [0.05, 0.5, 0.95]
QUICK = {
    "engine": "numpy", "n_estimators": 25, "learning_rate": 0.2, "encoding": "plain", "inherit": 0.8,
    "max_features": None, "n_chains": 1, "max_steps": 10,
}  # fmt: skip


def made(n, seed):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 2))
    law = stats.norm(10 + 5 * X[:, 0], np.exp(X[:, 1]))
    return X, law.rvs(random_state=rng), law


@pytest.fixture(scope="module")
def one():
    X, y, _ = made(300, 0)
    return X, y, VPBoostRegressor(**QUICK, loss=losses.Quantile(LEVELS)).fit(X, y)


@pytest.fixture(scope="module")
def two():
    X, y, _ = made(200, 1)
    Y = np.stack([y, -3 * y], axis=1)
    return X, Y, VPBoostRegressor(**QUICK, loss=losses.Quantile(LEVELS)).fit(X, Y)


def test_the_loss_is_the_sum_of_those_of_its_levels():
    rng = np.random.default_rng(2)
    f, y = rng.normal(size=(2, 5, 6)), rng.normal(size=(2, 5, 2))
    with jax.enable_x64(True):
        f, y, loss = jnp.asarray(f), jnp.asarray(y), losses.Quantile(LEVELS, 0.1)
        single = [losses.Quantile(level, 0.1) for level in LEVELS]
        values = [one.value(f[..., q::3], y) for q, one in enumerate(single)]  # a target's quantiles are neighbours
        np.testing.assert_allclose(loss.value(f, y), sum(values), rtol=1e-13)
        np.testing.assert_allclose(loss.gradient(f, y), jax.grad(lambda f: loss.value(f, y).sum())(f), rtol=1e-10)
        for q, one in enumerate(single):
            np.testing.assert_allclose(loss.gradient(f, y)[..., q::3], one.gradient(f[..., q::3], y), rtol=1e-14)
            found = loss.curvature(f, y).entries[..., q::3]
            np.testing.assert_allclose(found, one.curvature(f[..., q::3], y).entries, rtol=1e-14)
        weight = jnp.full((2, 5), 0.1)
        constants = [one.best_constant(y, weight) for one in single]
        np.testing.assert_allclose(loss.best_constant(y, weight), np.stack(constants, axis=1).ravel(), rtol=1e-9)
    assert loss.n_outputs(np.zeros((4, 2))) == 6


def test_each_quantile_is_that_of_the_law(one):
    X, y, law = made(3000, 3)
    found = one[2].predict(X)
    assert found.shape == (3000, 3)
    for q, level in enumerate(LEVELS):
        assert np.mean(y <= found[:, q]) == pytest.approx(level, abs=0.06)
        worse = mean_pinball_loss(y, np.quantile(one[1], level) * np.ones(3000), alpha=level)
        best = mean_pinball_loss(y, law.ppf(level), alpha=level)
        assert mean_pinball_loss(y, found[:, q], alpha=level) < best + 0.3 * (worse - best)


def test_quantiles_never_cross_anywhere(one, two):
    rng = np.random.default_rng(4)
    X = np.concatenate([rng.uniform(-1, 1, (500, 2)), rng.normal(scale=100, size=(500, 2))])
    for model in (one[2], two[2]):
        assert (np.diff(model.predict(X), axis=-1) >= 0).all()
        assert all((np.diff(stage, axis=-1) >= 0).all() for stage in model.staged_predict(X[::50]))


def test_order_never_raises_the_pinball_loss(one):
    X, y, model = one
    raw = model.target_scaler_.inverse(model._raw(X) + np.random.default_rng(5).normal(size=(300, 3)))
    pinball = [sum(mean_pinball_loss(y, q[:, k], alpha=a) for k, a in enumerate(LEVELS)) for q in (raw, np.sort(raw))]
    assert pinball[1] < pinball[0]


def test_shapes_of_several_targets(two):
    X, Y, model = two
    found = model.predict(X)
    assert found.shape == (200, 2, 3)
    np.testing.assert_allclose(np.mean(Y[:, 1] <= found[:, 1, 1]), 0.5, atol=0.15)
    np.testing.assert_allclose(found[:, 1, 1], -3 * found[:, 0, 1], atol=6)
    assert model.input_gradient(X[:4]).shape == (4, 2, 3, 2)


def test_derivatives_follow_the_order(one, two):
    rng = np.random.default_rng(6)
    for X, _, model in (one, two):
        X = np.concatenate([X[:10], rng.normal(scale=5, size=(10, 2))])
        step = 1e-5 * np.array([1.0, 0.0])
        slope = (model.predict(X + step) - model.predict(X - step)) / 2e-5
        gradient = model.input_gradient(X)
        np.testing.assert_allclose(gradient[..., 0], slope, rtol=2e-2, atol=2e-2)
        with jax.enable_x64(True):
            function = model.as_jax()
            np.testing.assert_allclose(jax.vmap(function)(X), model.predict(X), rtol=1e-4, atol=1e-4)
            np.testing.assert_allclose(jax.vmap(jax.jacrev(function))(X), gradient, rtol=1e-3, atol=1e-3)
        along = model.input_jvp(X, np.array([1.0, 0.0]))
        np.testing.assert_allclose(along, gradient[..., 0], rtol=1e-3, atol=1e-3)
        weights = rng.normal(size=(len(X), gradient[0, ..., 0].size))
        back = model.input_vjp(X, weights)
        by_hand = np.einsum("io,iod->id", weights, gradient.reshape(len(X), -1, 2))
        np.testing.assert_allclose(back, by_hand, rtol=1e-3, atol=1e-3)
        assert model.input_hessian(X[:2]).shape == (*gradient[:2].shape, 2)


def test_files_and_the_exported_predictor(one, two, tmp_path):
    for X, _, model in (one, two):
        model.save_model(tmp_path / "m.vpboost")
        loaded = load_model(tmp_path / "m.vpboost")
        np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
        np.testing.assert_allclose(Predictor(tmp_path / "m.vpboost").predict(X), model.predict(X), rtol=1e-5, atol=1e-5)
        assert loaded.loss_ == model.loss_
        assert loaded.loss.level == tuple(LEVELS)


def test_holes():
    X, y, _ = made(150, 7)
    Y = np.stack([y, 2 * y], axis=1)
    Y[::3, 0] = np.nan
    model = VPBoostRegressor(**QUICK, loss=losses.Quantile(LEVELS)).fit(X, Y)
    below = [np.mean(y[rows] <= model.predict(X)[rows, 0, 1]) for rows in (np.arange(150) % 3 > 0,)]
    assert below[0] == pytest.approx(0.5, abs=0.15)


def test_what_they_are_worth(one, tmp_path):
    X, y, model = one
    found, error = evaluate(model, X, y), y[:, None] - model.predict(X)
    assert found["pinball_loss"] == pytest.approx(
        np.mean(np.maximum(np.array(LEVELS) * error, (np.array(LEVELS) - 1) * error))
    )
    assert [found[f"below {level:g}"] for level in LEVELS] == pytest.approx((error < 0).mean(axis=0).tolist())
    text = plotting.report(model, X, y, tmp_path / "page.html").read_text()
    assert "pinball_loss" in text
    assert f"{found['pinball_loss']:.4g}" in text
    with pytest.raises(ValueError, match="as many rows, got 300 and 299"):
        evaluate(model, X, y[1:])


def test_what_needs_one_prediction_says_so(one):
    X, y, model = one
    with pytest.raises(ValueError, match="several quantiles"):
        model.score(X, y)
    for plot in (
        plotting.plot_predictions,
        plotting.plot_input_gradients,
        lambda *given: plotting.plot_partial_dependence(*given, 0),
    ):
        with pytest.raises(ValueError, match="several quantiles"):
            plot(model, X, *([y] if plot is plotting.plot_predictions else []))
    with pytest.raises(ValueError, match="eval_metric='rmse' is of one prediction"):
        clone(model).set_params(eval_metric="rmse").fit(X, y)
    for level, message in [([0.5, 0.5], "must rise"), ([], "must rise"), ([0.1, 1.0], r"in \(0, 1\)")]:
        with pytest.raises(ValueError, match=message):
            losses.Quantile(level)
    assert losses.Quantile(np.array([0.1, 0.9])) == losses.Quantile((0.1, 0.9))
    assert VPBoostRegressor(**QUICK, loss=losses.Quantile([0.5])).fit(X, y).predict(X).shape == (300, 1)
