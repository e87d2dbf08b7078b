"""Conformal intervals and label sets hold what they promise; temperatures are the best ones."""

import math
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import log_softmax
from scipy.stats import beta
from sklearn.metrics import log_loss

from models import PLAIN, QUICK, refuse_changed
from vpboost import ModelFileError, Quantile, VPBoostClassifier, VPBoostRegressor, load_model
from vpboost.estimators import base
from vpboost.estimators.calibration import MOST_NUMBERS, Seen, few_enough, spread_of
from vpboost.estimators.label_sets import best_temperature
from vpboost.estimators.loading import from_bytes
from vpboost.export import to_onnx
from vpboost.files.container import pack, unpack
from vpboost.numerics.conformal import Conformity, conformal_quantile, rows_needed, widened
from vpboost.predictor import Predictor

COVERAGES = ["0.07", "0.33", "0.5", "0.6", "0.7", "0.8", "0.9", "0.95", "0.99", "0.999"]


def law(n, rng, noise=0.3):
    """Rows whose noise grows with an input, which the models here do not know."""
    X = rng.uniform(-1, 1, size=(n, 2))
    return X, np.sin(3 * X[:, 0]) + noise * (1 + X[:, 1]) * rng.normal(size=n)


@pytest.fixture(scope="module")
def regressor():
    return VPBoostRegressor(**QUICK).fit(*law(150, np.random.default_rng(0)))


@pytest.fixture(scope="module")
def two_outputs():
    X, y = law(150, np.random.default_rng(0))
    return VPBoostRegressor(**QUICK).fit(X, np.stack([y, 100 * X[:, 1] + 3 * y**2], axis=1))


@pytest.fixture(scope="module")
def classifier():
    X, y = law(150, np.random.default_rng(0))
    return VPBoostClassifier(**QUICK).fit(X, np.digitize(y, [-0.4, 0.4]))


# --- the quantile -----------------------------------------------------------------------------------------------------


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=130), st.sampled_from(COVERAGES), st.floats(0.01, 100))
def test_quantiles_are_those_of_the_definition(scores, coverage, weight):
    k = math.ceil((len(scores) + 1) * Fraction(coverage))
    expected = sorted(scores)[k - 1] if k <= len(scores) else math.inf
    assert conformal_quantile(scores, float(coverage)) == expected
    assert conformal_quantile(scores, float(coverage), np.full(len(scores), weight)) == expected
    assert math.isinf(expected) == (len(scores) < rows_needed(float(coverage)))


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 5)), min_size=1, max_size=30), st.sampled_from(COVERAGES))
def test_weighted_quantiles_by_brute_force(rows, coverage):
    kept = [(score, weight) for score, weight in rows if weight]
    total = sum(weight for _, weight in kept)
    mean = Fraction(total, len(kept)) if kept else 0
    enough = [
        score
        for score, _ in kept
        if sum(weight for other, weight in kept if other <= score) >= Fraction(coverage) * (total + mean)
    ]
    scores, weights = np.array(rows, float).T
    assert conformal_quantile(scores, float(coverage), weights) == min(enough, default=math.inf)


def test_scores_that_are_not_known_do_not_count():
    known = Conformity(np.array([[1.0, 2.0], [3.0, np.nan], [2.0, 1.0], [5.0, 4.0]]), np.ones(4), np.ones(2))
    np.testing.assert_array_equal(known.quantiles(0.5), [3.0, 2.0])
    assert known.fewest() == 3
    assert known.fewest(simultaneous=True) == 3
    assert known.quantiles(0.5, simultaneous=True).tolist() == [2.0, 2.0]  # of 2, 2 and 5
    np.testing.assert_allclose(spread_of(known.scores, np.ones(2)), [np.sqrt(39 / 4), np.sqrt(21 / 3)])


# --- coverage ---------------------------------------------------------------------------------------------------------


def coverages(n_repetitions, once):
    return np.array([once(np.random.default_rng([1, i])) for i in range(n_repetitions)])


def assert_mean_of_beta(found, k, n, n_test):
    """The coverages are those of Beta(k, n + 1 − k), seen by so many rows each: their mean within four errors."""
    mean, variance = beta.stats(k, n + 1 - k, moments="mv")
    seen = variance + mean * (1 - mean) / n_test
    assert abs(found.mean() - mean) < 4 * np.sqrt(seen / len(found))
    assert 0.6 * seen < found.var() < 1.6 * seen


@pytest.mark.parametrize(("n", "coverage"), [(9, 0.9), (30, 0.8), (100, 0.95)])
def test_coverage_of_calibrated_intervals_is_exact(regressor, n, coverage):
    def once(rng):
        X, y = law(n, rng)
        low, high = regressor.calibrate(X, y).predict_interval(*law_inputs(rng), coverage=coverage)
        return np.mean((low <= once.y) & (once.y <= high))

    def law_inputs(rng):
        X, once.y = law(200, rng)
        return (X,)

    assert_mean_of_beta(coverages(150, once), math.ceil((n + 1) * Fraction(str(coverage))), n, 200)


def test_simultaneous_and_marginal_coverage_of_several_outputs(two_outputs):
    def outputs(n, rng):
        X, y = law(n, rng)
        return X, np.stack([y, 100 * X[:, 1] + 3 * y**2], axis=1)

    def once(rng):
        X, y = outputs(200, rng)
        two_outputs.calibrate(*outputs(40, rng))
        low, high = two_outputs.predict_interval(X, 0.8, simultaneous=True)
        assert low.shape == high.shape == (200, 2)
        single = two_outputs.predict_interval(X, 0.8)
        return np.mean(((low <= y) & (y <= high)).all(axis=1)), *np.mean((single[0] <= y) & (y <= single[1]), axis=0)

    found = coverages(150, once).T
    for one in found:
        assert_mean_of_beta(one, 33, 40, 200)


def test_coverage_of_label_sets_is_exact(classifier):
    def once(rng):
        X, y = law(40, rng)
        classifier.calibrate(X, np.digitize(y, [-0.4, 0.4]))
        X, y = law(200, rng)
        sets = classifier.predict_set(X, 0.8)
        assert sets.shape == (200, 3)
        return np.mean(sets[np.arange(200), np.digitize(y, [-0.4, 0.4])])

    assert_mean_of_beta(coverages(60, once), 33, 40, 200)


def test_a_fit_knows_the_errors_of_rows_that_it_has_set_aside():
    rng = np.random.default_rng(0)
    X, y = law(400, rng)
    test, truth = law(4000, rng)
    for settings in ({"n_chains": 3}, {"n_chains": 1}, {"n_chains": 2, "refit_full": True}):
        model = VPBoostRegressor(**PLAIN, n_estimators=20, learning_rate=0.3, max_steps=10, engine="numpy", **settings)
        model.fit(X, y)
        assert len(model._conformity.scores) == {3: 180}.get(settings["n_chains"], 60)
        low, high = model.predict_interval(test, 0.8)
        assert abs(np.mean((low <= truth) & (truth <= high)) - 0.8) < 0.15
        np.testing.assert_allclose((low + high) / 2, model.predict(test), atol=1e-9)
    given = VPBoostRegressor(**QUICK, n_chains=2).fit(X, y, X_val=test[:30], y_val=truth[:30])
    np.testing.assert_allclose(
        given._conformity.scores[:, 0].sum(), np.abs(given.predict(test[:30]) - truth[:30]).sum()
    )


def test_errors_of_the_mean_of_chains_are_told_by_rows_that_several_have_set_aside():
    # errors of a chain: 3 that all share, 4 of its own, which four chains make (3² + 4²/4)^½ of 5; half of it counts
    rng = np.random.default_rng(0)
    n, n_chains = 20_000, 4
    shared = 3 * rng.normal(size=n)
    model = VPBoostRegressor()
    seen = Seen(
        target=np.zeros(2 * n),
        encoded=np.tile(np.arange(float(n)), 2)[:, None],
        raw=(np.tile(shared, 2) + 4 * rng.normal(size=2 * n))[:, None],
        weight=np.ones(2 * n),
    )
    model._mean_and_std = lambda encoded, raw: (raw, None)
    np.testing.assert_allclose(model._gain(seen, n_chains), np.sqrt(np.sqrt(13) / 5), rtol=0.01)
    assert model._gain(seen, 1) == 1
    once = Seen(*(array[:n] for array in seen))
    np.testing.assert_allclose(model._gain(once, n_chains), 1)
    nothing = seen._replace(raw=np.zeros((2 * n, 1)))
    assert model._gain(nothing, n_chains) == 1
    huge = seen._replace(raw=1e200 * seen.raw)
    np.testing.assert_allclose(model._gain(huge, n_chains), model._gain(seen, n_chains))


def test_scores_are_larger_where_the_model_leaves_more_of_training_rows_than_the_chain_they_are_of():
    scores, before = np.abs(np.random.default_rng(0).normal(size=(2, 4000, 2)))
    for unit in (1.0, 1e200):
        found = widened(unit * scores, unit * before, unit * before * [2.0, 0.5]) / unit
        np.testing.assert_allclose(found[:, 1], scores[:, 1], rtol=1e-12)
        doubled = [np.quantile(part[:, 0], [0.5, 0.9, 0.95]) for part in (found, 2 * scores)]
        np.testing.assert_allclose(*doubled, rtol=0.05)
    assert not widened(0 * scores, 0 * before, 0 * before).any()


def test_calibration_by_folds():
    X, y = law(60, np.random.default_rng(3))
    model = VPBoostRegressor(**QUICK).fit(X[:40], y[:40])
    model.calibrate(X, y, np.ones(60), cv=3)
    assert len(model._conformity.scores) == 60
    assert "early_stopping_rounds" not in model._settled()  # of 40 rows, none were set aside
    test, truth = law(2000, np.random.default_rng(4))
    low, high = model.predict_interval(test, 0.8)
    assert abs(np.mean((low <= truth) & (truth <= high)) - 0.8) < 0.15
    labels = np.where(y > 0, "up", "down")
    sure = VPBoostClassifier(**QUICK).fit(X, labels).calibrate(X, labels, cv=2)
    assert len(sure._conformity.scores) == 60
    assert sure._temperature > 0


def test_folds_heed_the_names_of_outputs():
    X = np.random.default_rng(0).uniform(-1, 1, size=(60, 2))
    Y = pd.DataFrame({"a": X[:, 0], "b": 100 + 10 * X[:, 1]})
    model = VPBoostRegressor(n_estimators=3, encoding="plain", engine="numpy", random_state=0).fit(X, Y)
    found = [np.ptp(model.calibrate(X, y, cv=3).predict_interval(X[:1]), axis=0) for y in (Y, Y[["b", "a"]])]
    np.testing.assert_allclose(*found)


def test_folds_are_fitted_with_what_the_race_decided():
    X, y = law(60, np.random.default_rng(3))
    model = VPBoostRegressor(n_estimators=2, max_steps=2, engine="numpy", featurizer="rbf", warm_start=True).fit(X, y)
    assert model.race_
    (test, other), *_ = model._by_others(X, y[:, None], None, 2)
    assert not other.race_
    assert other.profile_._replace(rounds=0) == model.profile_._replace(rounds=0)
    assert len(test) == 30


def test_weights_of_rows_count():
    X, y = law(300, np.random.default_rng(5))
    model = VPBoostRegressor(**QUICK).fit(X, y)
    some = X[:, 1] > 0  # of more noise
    many = model.calibrate(X, y, some.astype(float)).predict_interval(X[:1])
    few = model.calibrate(X[some], y[some]).predict_interval(X[:1])
    np.testing.assert_array_equal(many, few)
    twice = model.calibrate(X, y, np.full(300, 2.0)).predict_interval(X[:1])
    np.testing.assert_array_equal(twice, model.calibrate(X, y).predict_interval(X[:1]))


def test_no_interval_of_counts_is_negative():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(200, 1))
    model = VPBoostRegressor(**QUICK, loss="poisson").fit(X, rng.poisson(np.exp(X[:, 0])))
    low, high = model.predict_interval(X)
    assert (low >= 0).all()
    assert (high > low).all()


def test_many_scores_are_thinned_out():
    scores, weight = few_enough(np.ones((12_000, 1)), np.ones(12_000))
    assert len(scores) == len(weight) == 6000
    assert few_enough(np.ones((3000, 1000)), np.ones(3000))[0].size <= MOST_NUMBERS


# --- errors -----------------------------------------------------------------------------------------------------------


def test_errors_say_what_to_do(regressor, classifier):
    X, y = law(40, np.random.default_rng(1))
    unknown = VPBoostRegressor(**QUICK, early_stopping_rounds=None).fit(X, y)
    with pytest.raises(ValueError, match=r"call calibrate\(X, y\) with 9 rows or more"):
        unknown.predict_interval(X)
    with pytest.raises(ValueError, match=r"coverage=0.99 needs the errors of 99 rows .* known are those of 40"):
        unknown.calibrate(X, y).predict_interval(X, 0.99)
    for bad in (0, 1, 1.5, "0.9", True, None):
        with pytest.raises(ValueError, match="coverage must be in"):
            regressor.predict_interval(X, bad)
        with pytest.raises(ValueError, match="coverage must be in"):
            classifier.predict_set(X, bad)
    with pytest.raises(ValueError, match="simultaneous must be True or False, got 1"):
        regressor.predict_interval(X, simultaneous=1)
    with pytest.raises(ValueError, match="X and y must have as many rows, got 40 and 39"):
        regressor.calibrate(X, y[:-1])
    for bad in (1, 2.5, "5", True):
        with pytest.raises(ValueError, match="cv must be a whole number of at least 2"):
            regressor.calibrate(X, y, cv=bad)
    with pytest.raises(ValueError, match="cv must be at most the number of rows, 40, got 41"):
        regressor.calibrate(X, y, cv=41)
    for labels in (np.r_[0, 1, [2] * 38], np.arange(40) % 2):
        with pytest.raises(ValueError, match="two rows of every class"):
            classifier.calibrate(X, labels, cv=2)
    with pytest.raises(ValueError, match="sample_weight must be non-negative"):
        regressor.calibrate(X, y, -np.ones(40))


def test_a_fit_that_fails_leaves_the_calibration(regressor):
    before = regressor._conformity
    with pytest.raises(ValueError, match="y"):
        regressor.fit(np.ones((10, 2)), None)
    assert regressor._conformity is before


# --- temperature ------------------------------------------------------------------------------------------------------


def test_temperatures_are_the_best_of_a_grid():
    rng = np.random.default_rng(0)
    logits, weight = 3 * rng.normal(size=(300, 3)), rng.uniform(size=300)
    target = np.array([rng.choice(3, p=p) for p in np.exp(log_softmax(logits / 2.5, axis=1))])
    grid = np.exp(np.linspace(-1, 3, 4001))
    losses = [log_loss(target, np.exp(log_softmax(logits / t, axis=1)), sample_weight=weight) for t in grid[::40]]
    coarse = grid[::40][np.argmin(losses)]
    near = [t for t in grid if abs(np.log(t / coarse)) < 0.05]
    losses = [log_loss(target, np.exp(log_softmax(logits / t, axis=1)), sample_weight=weight) for t in near]
    found = best_temperature(logits, target, weight)
    np.testing.assert_allclose(found, near[np.argmin(losses)], rtol=2e-3)
    assert 2 < found < 3


def test_temperatures_make_probabilities_better_and_nothing_else(tmp_path):
    X, y = law(150, np.random.default_rng(0))
    labels = np.digitize(y, [-0.4, 0.4])
    model = VPBoostClassifier(**{**QUICK, "n_estimators": 30, "max_steps": 30}, early_stopping_rounds=None)
    model.fit(X, labels)
    test, truth = law(1000, np.random.default_rng(1))
    truth, before, classes = np.digitize(truth, [-0.4, 0.4]), model.predict_proba(test), model.predict(test)
    logits = model.decision_function(test)
    model.calibrate(test[:500], truth[:500])
    assert abs(np.log(model._temperature)) > 0.2
    np.testing.assert_allclose(model.decision_function(test), logits / model._temperature, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(model.predict(test), classes)
    assert log_loss(truth[500:], model.predict_proba(test[500:])) < log_loss(truth[500:], before[500:])
    temperature = model._temperature
    np.testing.assert_allclose(model.calibrate(test[:500], truth[:500])._temperature, temperature, rtol=1e-4)

    model.save_model(tmp_path / "model")
    again = load_model(tmp_path / "model")
    np.testing.assert_array_equal(again.predict_proba(test), model.predict_proba(test))
    np.testing.assert_array_equal(again.predict_set(test), model.predict_set(test))
    np.testing.assert_allclose(Predictor(tmp_path / "model").predict_proba(test), again.predict_proba(test), atol=1e-6)
    assert model.fit(X, labels)._temperature == 1
    np.testing.assert_array_equal(model.predict_proba(test), before)


def test_temperatures_are_exported(classifier, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    X, y = law(100, np.random.default_rng(1))
    classifier.calibrate(X, np.digitize(y, [-0.4, 0.4]))
    to_onnx(classifier, tmp_path / "model.onnx")
    session = runtime.InferenceSession(tmp_path / "model.onnx")
    found = session.run(["probabilities"], {"X": X.astype(np.float32)})[0]
    np.testing.assert_allclose(found, classifier.predict_proba(X), atol=1e-5)


# --- files ------------------------------------------------------------------------------------------------------------


def test_intervals_of_a_model_from_a_file(two_outputs, tmp_path):
    X, _ = law(20, np.random.default_rng(1))
    two_outputs.save_model(tmp_path / "model")
    again = load_model(tmp_path / "model")
    for simultaneous in (False, True):
        found, expected = (m.predict_interval(X, 0.8, simultaneous) for m in (again, two_outputs))
        np.testing.assert_array_equal(found, expected)


def put(name, value):
    return lambda content, arrays: arrays[name].reshape(-1).__setitem__(0, value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put("conformity.scores", -1.0), "scores that are negative"),
        (put("conformity.scores", np.inf), "scores that are infinite"),
        (put("conformity.weight", -1.0), "weights of scores"),
        (put("conformity.weight", np.nan), "NaN or infinite"),
        (put("conformity.scale", 0.0), "scales of scores"),
        (lambda _, arrays: arrays.update({"conformity.scores": arrays["conformity.scores"][:, 1:]}), "of shape"),
        (lambda _, arrays: arrays.update({"conformity.scores": np.zeros((0, 2))}), "or none"),
        (lambda _, arrays: arrays.pop("conformity.weight"), "no array 'conformity.weight'"),
        (lambda _, arrays: arrays.pop("conformity.scores"), "entries that do not belong"),
        (lambda content, _: content.update(temperature=2.0), "entries that do not belong"),
    ],
)
def test_scores_in_hostile_files(two_outputs, tmp_path, change, message):
    refuse_changed(two_outputs, tmp_path / "model", change, message)


@pytest.mark.parametrize("temperature", [0.0, -1.0, 1e9, 1, "2"])
def test_temperatures_in_hostile_files(classifier, tmp_path, temperature):
    classifier.save_model(tmp_path / "model")
    content, arrays = unpack((tmp_path / "model").read_bytes(), "model")
    with pytest.raises(ModelFileError, match="temperature"):
        from_bytes(pack({**content, "temperature": temperature}, arrays), "model")


def test_quantiles_have_intervals_too():
    X, y = law(100, np.random.default_rng(1))
    low, high = VPBoostRegressor(**QUICK, loss=Quantile(0.9)).fit(X, y).predict_interval(X)
    assert (low < high).all()


def test_several_quantiles_are_bounds_themselves():
    X, y = law(60, np.random.default_rng(1))
    model = VPBoostRegressor(**QUICK, loss=Quantile([0.1, 0.9])).fit(X, y)
    with pytest.raises(ValueError, match="several quantiles, which are bounds themselves"):
        model.predict_interval(X)
    with pytest.raises(ValueError, match="no standard deviation; its predictions are bounds"):
        model.predict(X, return_std=True)


@pytest.mark.parametrize("distribution", [None, "normal"])
def test_many_rows_are_told_in_parts(monkeypatch, distribution):
    X, y = law(60, np.random.default_rng(1))
    model = VPBoostRegressor(**QUICK, distribution=distribution).fit(X, y)

    def told():
        dist = model.predict_dist(X)
        return [*model.predict_interval(X), *model.predict_uncertainty(X), dist.loc, dist.scale, model.predict(X)]

    whole = told()
    monkeypatch.setattr(base, "MANY_ROWS", 16)
    for one, other in zip(whole, told(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)
