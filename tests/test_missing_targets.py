"""Targets with holes: what was not observed has no influence, and everything else is as with complete targets."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import mean_absolute_error, r2_score, root_mean_squared_error

from vpboost import MLP, Training, TrustRegion, VPBoostRegressor, boost, load_model, losses, plotting, refit
from vpboost.cli.measures import measures
from vpboost.estimators.metrics import REGRESSION, evaluate
from vpboost.estimators.parts import canonical_rows
from vpboost.losses.curvature import Diagonal
from vpboost.tables.scaling import TargetScaler

SUMS = [
    losses.SquaredError(), losses.PseudoHuber(0.5), losses.Quantile(0.3), losses.Poisson(), losses.Gamma(),
    losses.Tweedie(1.4),
]  # fmt: skip
QUICK = {"engine": "numpy", "n_estimators": 5, "encoding": "plain", "inherit": 0.8, "max_features": None, "n_chains": 1}


def named(loss):
    return type(loss).__name__


@pytest.fixture(scope="module")
def table():
    """Return inputs, complete targets, and the same with holes."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (160, 3))
    Y = np.stack([np.sin(3 * X[:, 0]) * X[:, 1], 5 + X[:, 2] ** 2 + X[:, 0], 100 * np.exp(X[:, 1])], axis=1)
    holes = rng.random(Y.shape) < 0.4
    holes[holes.all(axis=1), 0] = False
    return X, Y, np.where(holes, np.nan, Y)


@pytest.mark.parametrize("loss", SUMS, ids=named)
def test_a_hole_adds_nothing(loss):
    rng = np.random.default_rng(1)
    f, y = rng.normal(size=(2, 7, 3)), rng.gamma(2.0, size=(2, 7, 3))
    known = rng.random(y.shape) < 0.6
    with jax.enable_x64(True):
        f, y, holed = jnp.asarray(f), jnp.asarray(y), jnp.asarray(np.where(known, y, np.nan))
        observed = losses.Observed(loss)
        each = np.stack([loss.value(f[..., k : k + 1], y[..., k : k + 1]) for k in range(3)], axis=-1)
        np.testing.assert_allclose(observed.value(f, holed), np.where(known, each, 0).sum(axis=-1), rtol=1e-14)
        whole, found = loss.gradient(f, y), observed.gradient(f, holed)
        np.testing.assert_allclose(found, np.where(known, whole, 0), rtol=1e-14)
        np.testing.assert_allclose(found, jax.grad(lambda f: observed.value(f, holed).sum())(f), rtol=1e-10, atol=1e-14)
        curvature = observed.curvature(f, holed)
        assert isinstance(curvature, Diagonal)
        np.testing.assert_allclose(curvature.entries, np.where(known, loss.curvature(f, y).diagonal(), 0), rtol=1e-14)


@pytest.mark.parametrize("loss", SUMS, ids=named)
def test_the_best_constant_is_that_of_each_output_alone(loss):
    rng = np.random.default_rng(2)
    y, weight = rng.gamma(2.0, size=(1, 60, 2)), rng.uniform(0.5, 2, (1, 60))
    known = rng.random(y.shape) < 0.5
    with jax.enable_x64(True):
        found = losses.Observed(loss).best_constant(jnp.asarray(np.where(known, y, np.nan)), jnp.asarray(weight))
        for k in range(2):
            rows = known[0, :, k]
            share = weight[:, rows] / weight[:, rows].sum()
            alone = loss.best_constant(jnp.asarray(y[:, rows, k : k + 1]), jnp.asarray(share))
            np.testing.assert_allclose(found[k], alone[0], rtol=1e-7, atol=1e-9)


def test_a_learner_solves_for_each_output_on_its_observed_rows(table):
    X, _, Z = table
    Z, reg = (Z - np.nanmean(Z, axis=0)) / np.nanstd(Z, axis=0), 1e-3
    fit = boost(
        X, Z, loss=losses.Observed(losses.SquaredError()), featurizer=partial(MLP, width=5, depth=1), n_learners=1,
        training=Training(max_steps=3), trust_region=TrustRegion(reg_lambda=reg, rate=1.0), dtype="float64",
    )  # fmt: skip
    again = refit(fit.ensemble, X, Z, loss=losses.Observed(losses.SquaredError()), reg_lambda=reg)
    with jax.enable_x64(True):
        featurizer = fit.ensemble.unstack()[0][0]
        features = np.asarray(jax.vmap(featurizer)(jnp.asarray(X)))
    for k in range(3):
        rows = ~np.isnan(Z[:, k])
        z, y = features[rows], Z[rows, k]
        # the mean over all rows of a sum over observed ones: λ_w stands beside n_observed / n
        system = z.T @ z / len(X) + reg * np.eye(z.shape[1])
        by_hand = np.linalg.solve(system, z.T @ (y - y.mean()) / len(X))
        np.testing.assert_allclose(fit.ensemble.constant[k], y.mean(), atol=1e-12)
        np.testing.assert_allclose(fit.ensemble.weights[0, :, k], by_hand, rtol=1e-7, atol=1e-10)
        np.testing.assert_allclose(again.weights[0, :, k], by_hand, rtol=1e-6, atol=1e-9)


def test_boosting_of_complete_targets_is_the_same_with_and_without_the_wrapper(table):
    X, Y, _ = table
    Y = (Y - Y.mean(axis=0)) / Y.std(axis=0)
    options = {"featurizer": partial(MLP, width=4, depth=1), "n_learners": 3, "training": Training(max_steps=10)}
    plain, wrapped = (
        boost(X, Y, loss=loss, dtype="float64", engine="numpy", **options).ensemble.predict(X)
        for loss in (losses.SquaredError(), losses.Observed(losses.SquaredError()))
    )
    np.testing.assert_allclose(wrapped, plain, atol=1e-9)


@pytest.mark.parametrize("loss", ["squared_error", "pseudo_huber", "quantile", "poisson", "gamma", "tweedie"])
def test_every_sum_over_outputs_learns_from_targets_with_holes(table, loss):
    X, Y, Z = table
    model = VPBoostRegressor(**QUICK, loss=loss).fit(X, np.abs(Z) + 1)
    assert np.isfinite(model.predict(X)).all()
    assert model.evals_result_["validation"][-1] == model.best_score_
    assert np.isnan(np.abs(Z) + 1).any()
    assert model.score(X, np.abs(Y) + 1) > 0.3


@pytest.mark.slow
@pytest.mark.long
def test_an_output_is_learnt_from_what_is_known_of_it(table):
    X, Y, Z = table
    model = VPBoostRegressor(engine="numpy", n_estimators=40, encoding="plain", n_chains=2).fit(X, Z)
    assert model.score(X, Y) > 0.98
    assert model.score(X, Z) == pytest.approx(
        np.mean([r2_score(Z[k, j], model.predict(X)[k, j]) for j, k in enumerate((~np.isnan(Z)).T)])
    )
    r = ~np.isnan(Z[:, 0])
    np.testing.assert_allclose(model.target_scaler_.shift_[0], Z[r, 0].mean(), atol=0.2)


def test_holes_do_not_depend_on_the_order_or_repetition_of_rows(table):
    X, _, Z = table
    given = {**QUICK, "early_stopping_rounds": None}
    weight = np.where(np.arange(len(X)) < 20, 2.0, 1.0)
    one = VPBoostRegressor(**given).fit(X, Z, weight).predict(X)
    twice = np.random.default_rng(3).permutation(np.r_[np.arange(len(X)), np.arange(20)])
    other = VPBoostRegressor(**given).fit(X[twice], Z[twice]).predict(X)
    np.testing.assert_allclose(one, other, rtol=1e-5)
    rows, merged, _ = canonical_rows(X[twice], Z[twice], np.ones(len(twice)))
    assert len(rows) == len(X)
    assert sorted(merged)[-20:] == [2.0] * 20


def test_holes_in_validation_data_alone(table):
    X, Y, Z = table
    model = VPBoostRegressor(**QUICK).fit(X[:100], Y[:100], X_val=X[100:], y_val=Z[100:])
    raw = (Z[100:] - model.target_scaler_.shift_) / model.target_scaler_.scale_
    scaled = (model.predict(X[100:]) - model.target_scaler_.shift_) / model.target_scaler_.scale_
    assert model.best_score_ == pytest.approx(np.nansum(0.5 * (scaled - raw) ** 2) / len(raw), rel=1e-4)


def test_scale_ignores_holes(table):
    _, Y, Z = table
    for robust in (False, True):
        scaler = TargetScaler("standard").fit(Z, np.ones(len(Z)), robust)
        for k in range(3):
            rows = ~np.isnan(Z[:, k])
            alone = TargetScaler("standard").fit(Y[rows, k : k + 1], np.ones(rows.sum()), robust)
            np.testing.assert_allclose([scaler.shift_[k], scaler.scale_[k]], [alone.shift_[0], alone.scale_[0]])
        assert (np.isnan(scaler.transform(Z, robust)) == np.isnan(Z)).all()


@pytest.mark.parametrize(
    ("name", "of_one"), [("rmse", root_mean_squared_error), ("mae", mean_absolute_error), ("r2", r2_score)]
)
def test_metrics_ignore_holes(table, name, of_one):
    _, Y, Z = table
    rng = np.random.default_rng(4)
    prediction, weight = Y + rng.normal(size=Y.shape), rng.uniform(1, 2, len(Y))
    known = (~np.isnan(Z)).T
    each = [of_one(Z[k, j], prediction[k, j], sample_weight=weight[k]) for j, k in enumerate(known)]
    sign = -1 if name == "r2" else 1
    assert REGRESSION[name](Z, prediction, weight) == pytest.approx(sign * np.mean(each), rel=1e-12)
    model = VPBoostRegressor(**QUICK, eval_metric=name).fit(*table[::2])
    assert np.isfinite(model.best_score_)


def test_frames_files_and_going_on(table, tmp_path):
    X, _, Z = table
    frame = pd.DataFrame(Z, columns=list("abc"))
    model = VPBoostRegressor(**QUICK).fit(X, frame)
    model.save_model(tmp_path / "m.vpboost")
    loaded = load_model(tmp_path / "m.vpboost")
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    longer = loaded.set_params(n_estimators=8, warm_start=True).fit(X, frame)
    whole = VPBoostRegressor(**{**QUICK, "n_estimators": 8}).fit(X, frame)
    np.testing.assert_allclose(longer.predict(X), whole.predict(X), rtol=1e-6)


@pytest.mark.slow
@pytest.mark.long
def test_smooth_profiles_race_on_holes_too():
    rng = np.random.default_rng(5)
    X = rng.uniform(-1, 1, (150, 2))
    Y = np.stack([np.sin(2 * X[:, 0]), X[:, 0] * X[:, 1]], axis=1)
    Y[:20, 0] = np.nan
    model = VPBoostRegressor(n_estimators=3, n_chains=1).fit(X, Y)
    assert any(profile.dtype == "float64" for profile in model.race_)


@pytest.mark.slow
@pytest.mark.parametrize("distribution", [None, "normal"])
def test_what_predictions_are_worth_leaves_holes_out(table, distribution, tmp_path):
    X, _, holed = table
    model = VPBoostRegressor(**QUICK, distribution=distribution).fit(X, holed)
    found, predicted, known = evaluate(model, X, holed), model.predict(X), ~np.isnan(holed)
    for k, rows in enumerate(known.T):
        truth, prediction = holed[rows, k], predicted[rows, k]
        assert found[f"r2 of {k}"] == pytest.approx(r2_score(truth, prediction))
        assert found[f"rmse of {k}"] == pytest.approx(root_mean_squared_error(truth, prediction))
    assert found["r2"] == pytest.approx(model.score(X, holed))
    assert f"{found['r2']:.4g}" in plotting.report(model, X, holed, tmp_path / "page.html").read_text()

    low, high = model.predict_interval(X, 0.9)
    within = (low <= holed) & (holed <= high)
    nominal, observed = plotting.plot_calibration(model, X, holed, output=1).get_lines()[1].get_data()
    assert observed[list(nominal).index(0.9)] == pytest.approx(within[known[:, 1], 1].mean())
    legend = plotting.plot_interval_widths(model, X, holed, output=1).get_legend().get_texts()
    assert f"part within, {within[known[:, 1], 1].mean():.1%} of all" in [text.get_text() for text in legend]
    plotting.plot_bands(model, X, 0, holed)
    apart = np.where((np.arange(len(X)) % 3)[:, None] == np.arange(3), holed, np.nan)  # no row has two
    apart[np.isnan(apart).all(axis=1), 0] = 1.0
    plotting.plot_interval_widths(model, X, apart, output=1)

    measured = measures(model, X, holed)
    assert measured["coverage_90"] == pytest.approx(within[known].mean())
    if distribution is not None:
        assert measured["nll"] == pytest.approx(-model.predict_dist(X).logpdf(holed)[known].mean())
    with pytest.raises(ValueError, match=r"no target at all for output\(s\) \[1\]"):
        evaluate(model, X, np.where(np.arange(3) == 1, np.nan, 1.0) + 0 * X[:, :1])


def test_errors_name_what_is_missing(table):
    X, _, Z = table
    row, column = Z.copy(), Z.copy()
    row[7], column[:, 1], column[:, 0] = np.nan, np.nan, 1.0
    for target, message in [
        (row, r"no target at all in 1 row\(s\), \[7\]; leave"),
        (column, r"no target at all for output\(s\) \[1\]"),
        (Z[:, 0], "NaN"),
        (Z[:, :1], "NaN"),
        (np.where(np.isnan(Z), np.inf, Z), "infinity"),
    ]:
        with pytest.raises(ValueError, match=message):
            VPBoostRegressor(**QUICK).fit(X, target)
    with pytest.raises(ValueError, match="the loss CustomLoss cannot skip"):
        VPBoostRegressor(**QUICK, loss=lambda p, t: jnp.sum((p - t) ** 2)).fit(X, Z)
    with pytest.raises(ValueError, match="must be positive"):
        VPBoostRegressor(**QUICK, loss="gamma").fit(X, Z - 10)
    with pytest.raises(ValueError, match="y must be finite"):
        boost(X, Z, loss=losses.SquaredError(), featurizer=MLP)


def test_holes_in_rows_that_calibrate_are_not_those_of_a_fit():
    """A loss that cannot skip missing targets goes on with whole ones."""
    X = np.random.default_rng(0).uniform(-1, 1, size=(60, 2))
    model = VPBoostRegressor(**QUICK, loss=lambda p, t: jnp.sum((p - t) ** 2), warm_start=True).fit(X, X)
    holes = X.copy()
    holes[::2, 0] = np.nan
    model.calibrate(X, holes)
    assert model.set_params(n_estimators=model.n_estimators + 1).fit(X, X).n_iter_ > 0
