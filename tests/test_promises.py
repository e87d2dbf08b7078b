"""What docs/guarantees.md promises of fits and predictions: finite, row by row, robust, and never silently wrong."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from vpboost import PseudoHuber, Quantile, VPBoostClassifier, VPBoostRegressor, load_model
from vpboost.estimators.prediction import AccurateEnsemble
from vpboost.predictor import FARTHEST, standardise
from vpboost.tables.scaling import TargetScaler, robust_statistics, statistics

PLAIN = {"n_estimators": 8, "learning_rate": 0.5, "encoding": "plain", "inherit": 0.0, "max_features": None}
RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 2))
Y = np.sin(X[:, 0]) + X[:, 1]
FAR = [1e7, -1e20, 1e39, -1e300, 1.7e308, -1.7e308, 5e-324]


# --- finite predictions ---------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["plain", "quantile", "spline", "fine"])
@pytest.mark.parametrize("options", [{}, {"activation": "relu"}, {"activation": "gelu"}, {"featurizer": "resnet"},
                                     {"featurizer": "rbf"}, {"featurizer": "fourier"}, {"featurizer": "bspline"},
                                     {"loss": "poisson", "activation": "softplus"}])  # fmt: skip
def test_predictions_are_finite_however_far_the_inputs(encoding, options):
    y = RNG.poisson(2, 300) if "loss" in options else Y
    model = VPBoostRegressor(**{**PLAIN, "encoding": encoding, "n_estimators": 3}, **options).fit(X, y)
    rows = np.array([[a, b] for a in FAR for b in (0.0, *FAR)])
    few, many = model.predict(rows), model.predict(np.tile(rows, (30, 1)))
    assert np.isfinite(few).all()
    assert np.isfinite(many).all()
    assert np.isfinite(model.input_gradient(rows)).all()
    spread = max(np.ptp(few), 1.0) if "loss" not in options else np.abs(few).max()
    np.testing.assert_allclose(many[: len(rows)], few, rtol=2e-6, atol=2e-6 * spread)


def test_derivatives_are_zero_where_inputs_are_cut_off():
    model = VPBoostRegressor(**PLAIN, activation="relu").fit(X, Y)
    np.testing.assert_array_equal(model.input_gradient([[1e30, 0.0]])[:, 0], 0)
    assert model.input_gradient([[3.0, 0.0]])[0, 1] != 0


def test_probabilities_far_away():
    model = VPBoostClassifier(**PLAIN, activation="relu").fit(X, np.digitize(Y, [-1, 1]))
    rows = np.full((1500, 2), 1.7e308)
    for part in (rows, rows[:3]):
        probability = model.predict_proba(part)
        np.testing.assert_allclose(probability.sum(axis=1), 1)
        assert np.isfinite(model.predict_log_proba(part)).all()
        np.testing.assert_allclose(np.exp(model.predict_log_proba(part)), probability, atol=1e-12)


def test_columns_of_any_size_and_place_are_standardised():
    base = np.random.default_rng(1).normal(size=(400, 1))
    for scale, shift in [(1e308 / 5, 0), (1e-300, 0), (1.0, 1e12), (1e-3, 1e9), (1e300, -1e300), (1e5, 0)]:
        column = scale * base + shift
        mean, spread, constant = statistics(column, np.ones(400))
        assert not constant.any()
        scaled = standardise(column, mean, spread, constant)
        np.testing.assert_allclose(scaled.mean(), 0, atol=1e-3)  # 1e12 is known to 1e-4
        np.testing.assert_allclose(scaled.std(), 1, rtol=1e-6)
    for value in (0.1, 1e12, 1.7e308, -1e-310, 0.0):
        mean, spread, constant = statistics(np.full((400, 1), value), RNG.uniform(size=400))
        assert constant.all()
        np.testing.assert_allclose(mean, value, rtol=1e-14)
    both = np.array([[1.7e308], [-1.7e308], [1.7e308]])
    assert np.abs(standardise(both, *statistics(both, np.ones(3)))).max() < 2
    assert standardise(np.array([[np.inf]]), np.zeros(1), np.ones(1), np.zeros(1, bool))[0, 0] == FARTHEST


def test_a_column_far_from_zero_is_learnt():
    table = X + np.array([1e12, 0.0])
    model = VPBoostRegressor(**PLAIN).fit(table, Y)
    assert model.score(table, Y) > 0.98


# --- a row's prediction is its own ------------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [2**50, 2**52, -(2**51)])
def test_whole_numbers_far_from_zero_are_learnt(offset, tmp_path):
    column = np.arange(300) % 8
    table = np.stack([X[:, 0], (offset + column).astype(float)], axis=1)
    model = VPBoostRegressor(**PLAIN).fit(table, X[:, 0] + 3 * column)
    assert model.score(table, X[:, 0] + 3 * column) > 0.99
    model.save_model(tmp_path / "model")
    np.testing.assert_array_equal(load_model(tmp_path / "model").predict(table), model.predict(table))
    equal = 0.1 + np.array([[0.0], [1.4e-17], [-1.4e-17]] * 3)  # but for rounding
    assert len(np.unique(equal)) > 1
    assert statistics(equal, np.ones(9))[2].all()


def test_labels_of_another_type_are_no_classes():
    k = np.r_[np.arange(1, 100), RNG.integers(1, 100, 201)]
    options = {**PLAIN, "n_estimators": 1, "max_steps": 1}
    for labels in (k.astype(str), k.astype(str).tolist(), k.astype(str).astype(object)):
        with pytest.raises(ValueError, match=r"y_val must hold only classes of the .*fit, got '1'"):
            VPBoostClassifier(**options).fit(X, k, X_val=X, y_val=labels)
    text = VPBoostClassifier(**options, warm_start=True).fit(X, k.astype(str))
    with pytest.raises(ValueError, match=r"y_val must hold only classes of the .*fit, got '1'"):
        text.set_params(n_estimators=2).fit(X, k)
    assert VPBoostClassifier(**options).fit(X, k, X_val=X, y_val=k.astype(float)).n_iter_ == 1


@pytest.mark.parametrize("options", [{}, {"reg_lambda": 1e-10, "learning_rate": 1.0}, {"dtype": "float64"}])
def test_a_row_is_predicted_alone_as_among_many(options):
    model = VPBoostRegressor(**{**PLAIN, **options}).fit(X, Y)
    table = np.tile(X, (8, 1))
    many, few = model.predict(table), model.predict(table[:300])
    one = np.concatenate([model.predict(table[i : i + 1]) for i in range(40)])
    np.testing.assert_allclose(few, many[:300], rtol=0, atol=2e-6 * Y.std())
    np.testing.assert_allclose(one, few[:40], rtol=0, atol=1e-12)
    np.testing.assert_array_equal(model.predict(table[:1700]), many[:1700])
    *_, last = model.staged_predict(table[:300])
    np.testing.assert_allclose(last, few, rtol=0, atol=2e-6 * Y.std())


def test_single_precision_is_used_only_where_it_is_enough():
    small = VPBoostRegressor(**{**PLAIN, "learning_rate": 0.05}).fit(X, Y)
    assert AccurateEnsemble(small.ensemble_).largest == 30
    large = VPBoostRegressor(**{**PLAIN, "reg_lambda": 1e-12, "learning_rate": 1.0, "dtype": "float32"}).fit(X, Y)
    assert large.ensemble_.constant.dtype == np.float32
    assert AccurateEnsemble(large.ensemble_).largest < 0
    assert AccurateEnsemble(large.ensemble_).double.constant.dtype == np.float64


@pytest.mark.parametrize("featurizer", ["mlp", "resnet", "bspline"])
@pytest.mark.parametrize("loss", ["squared_error", "pseudo_huber", "gamma"])
def test_rows_far_away_are_predicted_alone_as_among_many(featurizer, loss):
    y = np.exp(Y / 2) if loss == "gamma" else Y
    model = VPBoostRegressor(**{**PLAIN, "n_estimators": 4}, loss=loss, featurizer=featurizer).fit(X, y)
    rng = np.random.default_rng(0)
    table = rng.normal(size=(1200, 2)) * rng.choice([1, 10, 100, 1e4, 1e6], size=(1200, 1))
    alone = np.concatenate([model.predict(table[i : i + 30]) for i in range(0, 1200, 30)])
    error = np.abs(model.predict(table) - alone) / np.maximum(np.abs(alone), y.std())
    assert error.max() < 2e-6


# --- robust losses ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["quantile", "pseudo_huber"])
@pytest.mark.parametrize("wild", [1e6, -1e12])
def test_one_wild_target_changes_little(loss, wild):
    """The errors of the other rows were 15.9 and 159 where the constant median's were 0.9."""
    rng = np.random.default_rng(0)
    table = rng.normal(size=(400, 3))
    y = np.sin(2 * table[:, 0]) + table[:, 1] + 0.3 * rng.normal(size=400)
    given = y.copy()
    given[100] = wild
    model = VPBoostRegressor(loss=loss, **PLAIN).fit(table, given)
    error = np.abs(model.predict(table) - y)[np.arange(400) != 100].mean()
    assert error < 0.45 * np.abs(y - np.median(y)).mean()


def test_robust_scale():
    values = np.random.default_rng(0).normal(3.0, 2.0, size=20_001)
    np.testing.assert_allclose(robust_statistics(values, np.ones(20_001)), [3.0, 2.0, 2.0], atol=0.1)
    twice = robust_statistics(np.repeat(values, 2), np.ones(40_002))
    np.testing.assert_allclose(robust_statistics(values, np.full(20_001, 2.0)), twice)
    zeros = np.where(np.arange(1000) % 20, 0.0, 5.0)  # quartiles and deciles are equal
    assert robust_statistics(zeros, np.ones(1000))[1] > 0
    scaler = TargetScaler("standard").fit(np.where(np.arange(1000) == 7, 5.0, 0.0)[:, None], np.ones(1000), robust=True)
    assert scaler.scale_[0] > 0
    assert scaler.shift_[0] == 0


def test_widths_of_robust_losses_are_in_units_of_the_robust_spread():
    model = VPBoostRegressor(loss=PseudoHuber(0.5), **PLAIN).fit(X, Y)
    np.testing.assert_allclose(
        model.target_scaler_.scale_[0], np.subtract(*np.quantile(Y, [0.75, 0.25])) / 1.349, rtol=0.1
    )
    assert VPBoostRegressor(loss=Quantile(0.9), **PLAIN).fit(X, Y + 100).predict(X).mean() > 100


# --- weights, warm starts, warnings -----------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["plain", "quantile", "spline", "fine"])
def test_very_uneven_weights(encoding):
    weight = np.where(np.arange(300) % 2, 1e-20, 1.0)
    model = VPBoostRegressor(**{**PLAIN, "encoding": encoding}).fit(X, Y, weight)
    assert model.score(X[::2], Y[::2]) > 0.9
    assert np.isfinite(VPBoostRegressor(**PLAIN).fit(X, Y, np.full(300, 1e307)).predict(X)).all()
    single = np.where(np.arange(300) == 5, 1.0, 1e-20)
    assert np.isfinite(VPBoostRegressor(**{**PLAIN, "encoding": encoding}).fit(X, Y, single).predict(X)).all()


@pytest.mark.parametrize("weight", [{0: -1, 1: 1}, {0: np.nan, 1: 1}, {0: np.inf, 1: 1}])
def test_class_weights_that_make_no_sense(weight):
    with pytest.raises(ValueError, match="class_weight must have finite weights that are not negative, got"):
        VPBoostClassifier(class_weight=weight).fit(X, (Y > 0).astype(int))
    with pytest.raises(ValueError, match="class_weight and sample_weight leave no row"):
        VPBoostClassifier(class_weight={0: 0, 1: 0}).fit(X, (Y > 0).astype(int))


@pytest.mark.parametrize(
    ("name", "value"),
    [("loss", "pseudo_huber"), ("width", 5), ("depth", 1), ("activation", "relu"), ("featurizer", "resnet"),
     ("eval_metric", "mae"), ("dtype", "float64"), ("validation_fraction", 0.4)],
)  # fmt: skip
def test_a_warm_start_refuses_what_it_would_ignore(name, value, tmp_path):
    model = VPBoostRegressor(**PLAIN, warm_start=True).fit(X, Y)
    model.save_model(tmp_path / "m")
    for one in (model, load_model(tmp_path / "m")):
        one.set_params(n_estimators=10, **{name: value})
        with pytest.raises(ValueError, match=f"{name} cannot change while warm_start=True goes on with a model"):
            one.fit(X, Y)


def test_a_warm_start_keeps_its_profile_and_its_validation_rows():
    model = VPBoostRegressor(**PLAIN, warm_start=True).fit(X, Y)
    for options in ({"encoding": "spline"}, {"inherit": 0.5}, {"max_features": 0.5}):
        with pytest.raises(ValueError, match=f"{next(iter(options))} cannot change while warm_start=True"):
            model.set_params(**{**PLAIN, **options, "n_estimators": 10}).fit(X, Y)
    model.set_params(**{**PLAIN, "n_estimators": 10, "encoding": "auto"})
    before = model.evals_result_["validation"]
    # the loss on the same validation rows goes on from where it was, whatever the seed of the new stages
    model.set_params(random_state=5).fit(X, Y)
    assert model.evals_result_["validation"][:8] == before
    assert model.n_iter_ == 10
    again = VPBoostRegressor(**{**PLAIN, "n_estimators": 10}).fit(X, Y)
    np.testing.assert_allclose(model.evals_result_["validation"][8], again.evals_result_["validation"][8], rtol=0.5)


def test_a_fit_that_was_still_improving_says_so():
    with pytest.warns(ConvergenceWarning, match="all n_estimators=3 stages are done and the validation score was"):
        VPBoostRegressor(**{**PLAIN, "n_estimators": 3, "learning_rate": 0.05}).fit(X, Y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        VPBoostRegressor(**{**PLAIN, "n_estimators": 200}).fit(X, Y)  # stops early
        VPBoostRegressor(**{**PLAIN, "n_estimators": 3}, early_stopping_rounds=None).fit(X, Y)  # nothing to judge by


@pytest.mark.parametrize("seed", [2**70, 2**32, -1])
def test_seeds_out_of_range(seed):
    with pytest.raises(ValueError, match=r"random_state must be from 0 to 2\*\*32 - 1, got"):
        VPBoostRegressor(random_state=seed).fit(X, Y)


@pytest.mark.parametrize(
    ("name", "value", "meant"),
    [("loss", "sqared_error", "squared_error"), ("featurizer", "rezznet", "resnet"),
     ("encoding", "quantiles", "quantile"), ("optimizer", "adamm", "adam"), ("method", "vp_strat", "vp_start"),
     ("eval_metric", "rsme", "rmse")],
)  # fmt: skip
def test_misspelt_settings(name, value, meant):
    with pytest.raises(ValueError, match=rf"{name} must be .* got {value!r}; did you mean {meant!r}\?"):
        VPBoostRegressor(**{name: value}).fit(X, Y)


@pytest.mark.filterwarnings("ignore:.*does not hold the parameter")
def test_what_a_file_does_not_hold_may_be_set_again(tmp_path):
    def metric(truth, prediction):
        return float(np.abs(truth - prediction).max())

    model = VPBoostRegressor(**PLAIN, eval_metric=metric, dtype=np.float32, warm_start=True).fit(X, Y)
    model.set_params(dtype="float32").fit(X, Y)  # the same, in another spelling
    model.save_model(tmp_path / "m")
    again = load_model(tmp_path / "m").set_params(eval_metric=metric, n_estimators=10)
    assert again.fit(X, Y).n_iter_ == 10


@pytest.mark.parametrize("options", [{"featurizer": "fourier"}, {"activation": "sin"}])
def test_waves_are_predicted_alike_far_away(options):
    model = VPBoostRegressor(**PLAIN, **options).fit(X, Y)
    rows = 1e5 * np.tile(X, (5, 1))
    np.testing.assert_allclose(model.predict(rows)[:300], model.predict(rows[:300]), atol=2e-6 * Y.std())


def test_targets_near_the_limit():
    for loss, scale in (("gamma", 1e250), ("poisson", 1e250), ("squared_error", 1e297)):
        y = np.exp(X[:, 0]) * scale
        model = VPBoostRegressor(**PLAIN, loss=loss, activation="relu").fit(X, y)
        assert np.isfinite(model.predict([[1e7, 0.0], [-1e7, 0.0], [0.0, 0.0]])).all()
    with pytest.raises(ValueError, match=r"y must be smaller than 1e\+300 in size, got 1e\+308; rescale it"):
        VPBoostRegressor().fit(X, np.where(Y > 0, 1e308, 0.0))


def test_predictions_under_strict_floating_point():
    model = VPBoostRegressor(**PLAIN, activation="silu").fit(X, Y)
    with np.errstate(all="raise"):
        assert np.isfinite(model.predict([[1e9, -1e9]])).all()


def test_low_quantiles_of_skewed_targets():
    """Rounded off over a twentieth of the spread, the loss put the lowest tenth below zero: none were covered."""
    rng = np.random.default_rng(0)
    table, fresh = rng.normal(size=(1500, 1)), np.exp(2 * rng.normal(size=20_000))
    y = np.exp(2 * rng.normal(size=1500))
    for level in (0.05, 0.1):
        model = VPBoostRegressor(loss=Quantile(level), **PLAIN).fit(table, y)
        assert model.loss_.smoothing < 0.01
        assert 0.6 * level < np.mean(fresh <= np.median(model.predict(table))) < 1.6 * level
    assert VPBoostRegressor(loss=Quantile(0.9), **PLAIN).fit(X, Y).loss_ == Quantile(0.9)
    assert VPBoostRegressor(loss=Quantile(0.9), **PLAIN).fit(X, np.round(Y) * 0).loss_ == Quantile(0.9)


@pytest.mark.parametrize("wild", [1e16, -1e30, 1.7e308])
@pytest.mark.parametrize("encoding", ["plain", "quantile"])
def test_a_wild_input_does_not_hide_the_others(wild, encoding):
    table = np.random.default_rng(0).uniform(-1, 1, size=(300, 2))
    y = np.sin(3 * table[:, 0]) + table[:, 1]
    table[7, 0] = wild
    model = VPBoostRegressor(**{**PLAIN, "encoding": encoding, "n_estimators": 20}).fit(table, y)
    others = np.arange(300) != 7
    assert model.score(table[others], y[others]) > 0.97
    table[:20, 0] = wild
    model.fit(table, y)
    assert model.score(table[20:], y[20:]) > 0.97


@pytest.mark.parametrize("loss", ["pseudo_huber", "quantile"])
def test_a_fifth_of_the_targets_is_no_outlier(loss):
    rng = np.random.default_rng(0)
    table = rng.uniform(-1, 1, (300, 1))
    y = np.where(table[:, 0] > 0.6, 1 + table[:, 0], 0) + 1e-3 * rng.normal(size=300)
    model = VPBoostRegressor(**{**PLAIN, "n_estimators": 40}, loss=loss).fit(table, y)
    assert model.predict([[0.8]])[0] > 1.5


def test_many_outliers():
    rng = np.random.default_rng(7)
    table = rng.uniform(-1, 1, (800, 2))
    truth = np.sin(3 * table[:, 0])
    wild, noise = rng.random(800) < 0.15, 0.1 * rng.normal(size=800)
    for loss, far in (("pseudo_huber", 1000), ("quantile", 1000), ("pseudo_huber", 1e9)):
        y = np.where(wild, truth + far, truth) + noise
        model = VPBoostRegressor(**{**PLAIN, "n_estimators": 40, "learning_rate": 0.3}, loss=loss).fit(table, y)
        assert np.abs(model.predict(table) - truth).mean() < 0.5


@pytest.mark.parametrize("loss", ["gamma", "poisson", "tweedie"])
def test_weights_and_targets_of_any_size(loss):
    y = np.exp(X[:, 0])
    expected = VPBoostRegressor(**PLAIN, loss=loss).fit(X, y).predict(X)
    for size, weight in ((1e250, 1e99), (1e-250, 1e-99)):
        found = VPBoostRegressor(**PLAIN, loss=loss).fit(X, size * y, np.full(300, weight)).predict(X)
        np.testing.assert_allclose(found / size, expected, rtol=1e-3)
