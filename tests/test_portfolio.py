from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles import central_difference
from vpboost import BinaryCrossEntropy, MulticlassCrossEntropy, SquaredError, VPBoostClassifier, VPBoostRegressor
from vpboost.estimators import choosing, race
from vpboost.estimators.parts import hold_out
from vpboost.estimators.portfolio import FALLBACK, PORTFOLIO, SMOOTH, Profile, fix, profiles
from vpboost.estimators.run import Run

QUICK = {"n_estimators": 4, "max_steps": 10, "width": 4}


@pytest.fixture
def short_race(monkeypatch):
    monkeypatch.setattr(choosing, "PILOT_STAGES", 3)
    monkeypatch.setattr(choosing, "SMOOTH_STAGES", 1)


def staircase(n=400, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, 2))
    return X, np.floor(4 * X[:, 0]) + rng.normal(scale=0.1, size=n)


def plain(found):
    """Profiles without those that have trees, and that rows decide on."""
    return [p for p in found if not p.tree_depth]


def test_profiles_respect_what_is_fixed_and_the_shape():
    def of(encoding, inherit, max_features, shape):
        return profiles(VPBoostRegressor(encoding=encoding, inherit=inherit, max_features=max_features), shape)

    coarse = [p for p in PORTFOLIO if p.encoding != "fine"]
    assert (
        plain(of("auto", "auto", "auto", (4000, 8)))
        == plain(of("auto", "auto", "auto", (60_000, 32)))
        == plain(PORTFOLIO)
    )
    assert of("auto", "auto", "auto", (500, 8)) == coarse
    for shape in ((3999, 8), (4000, 33)):
        assert plain(of("auto", "auto", "auto", shape)) == plain(coarse)
    without_trees = plain(coarse)
    assert len(without_trees) == len(coarse) - 1
    assert of("auto", "auto", "auto", (60_001, 8)) == without_trees
    for fixed in ({"tree_depth": 0}, {"featurizer": "rbf"}, {"method": "gd"}, {"devices": 1}):
        assert not any(p.tree_depth for p in profiles(VPBoostRegressor(**fixed), (500, 8)))
    assert all(p.tree_depth == 3 for p in profiles(VPBoostRegressor(tree_depth=3), (500, 8)))
    assert profiles(VPBoostClassifier(), (500, 7)) == coarse
    narrow = [p for p in coarse if p.encoding != "spline"]  # those of half the columns have a start with more columns
    assert profiles(VPBoostClassifier(), (500, 8)) == narrow
    assert profiles(VPBoostClassifier(eval_metric="auc"), (500, 8)) == coarse
    assert "spline" in {p.encoding for p in profiles(VPBoostClassifier(max_features=None), (500, 8))}
    assert {p.encoding for p in profiles(VPBoostClassifier(), (20_000, 15))} == {"plain", "quantile", "spline"}
    assert {p.encoding for p in profiles(VPBoostClassifier(), (20_000, 16))} == {"plain", "quantile"}
    assert "spline" in {p.encoding for p in profiles(VPBoostClassifier(), (20_000, 108), 6)}
    for classifier, n, half in ((True, 19_999, True), (True, 20_000, False), (False, 20_000, True)):
        found = profiles((VPBoostClassifier if classifier else VPBoostRegressor)(), (n, 5))
        assert any(p.max_features == 0.5 and not p.tree_depth for p in found) is half
        assert any(p.tree_depth for p in found)
    assert of("fine", "auto", "auto", (500, 80)) == [Profile("fine", 0.3, 1.0)]
    assert of("auto", "auto", "auto", (49, 8)) == [FALLBACK]
    assert profiles(VPBoostClassifier(), (19, 8)) == [FALLBACK] != profiles(VPBoostClassifier(), (20, 8))
    assert {p.encoding for p in of("auto", "auto", "auto", (500, 65))} == {"plain", "quantile"}
    assert profiles(VPBoostRegressor(), (500, 65), 64) == coarse  # one of them has two values
    assert of("plain", 0.5, "auto", (500, 8)) == [Profile("plain", 0.5, 1.0), Profile("plain", 0.5, 0.5)]
    assert of("spline", "auto", 0.5, (500, 80)) == [Profile("spline", 0.7, 0.5), Profile("spline", 0.0, 0.5)]
    assert of("auto", 0.0, 1.0, (500, 8)) == [Profile(e, 0.0, 1.0) for e in ("plain", "quantile", "spline")]
    assert of("auto", "auto", "auto", (500, 28, 28)) == [Profile("plain", 0.0, None)]
    assert of("plain", 0.0, None, (500, 28, 28)) == [Profile("plain", 0.0, None)]
    with pytest.raises(ValueError, match="encoding='spline' and max_features='auto' are for tables; X holds images"):
        of("spline", "auto", "auto", (500, 28, 28))


def test_profiles_with_trees_suit_the_number_of_rows():
    def trees(kind, n, **options):
        (found,) = [p for p in profiles(kind(**options), (n, 8)) if p.tree_depth]
        assert found.tree_depth == (8 if kind is VPBoostRegressor and 800 <= n < 2000 else 6)
        return found.rounds, found.reg_lambda, found.width, found.depth, found.n_chains

    regressor, classifier = VPBoostRegressor, VPBoostClassifier
    assert trees(regressor, 799) == trees(classifier, 1999) == (12, 1e-2, None, None, None)
    assert trees(regressor, 800) == trees(regressor, 1999) == (12, 3e-2, None, None, 3)
    assert trees(regressor, 800, reg_lambda=0.5, n_chains=1) == (12, 0.5, None, None, 1)
    assert trees(regressor, 2000) == trees(regressor, 4999) == trees(classifier, 7999) == (20, 1e-2, None, None, None)
    assert trees(regressor, 5000) == trees(regressor, 9999) == (20, 1e-2, 8, None, 2)
    assert trees(regressor, 10_000) == trees(regressor, 60_000) == (20, 1e-2, 16, None, 2)
    assert trees(regressor, 5000, width=3)[2] is None
    assert trees(classifier, 8000) == trees(classifier, 19_999) == (20, 1e-4, None, None, None)
    assert trees(classifier, 20_000) == (20, 1e-4, 16, None, None)
    assert trees(classifier, 8000, reg_lambda=0.5)[1] == 0.5
    rates = [[p.learning_rate for p in profiles(classifier(), (n, 8)) if p.tree_depth] for n in (19_999, 20_000)]
    assert rates == [[None], [0.3]]
    model = regressor(width=3, tree_depth=2, n_estimators=2, n_chains=1, encoding="plain").fit(*staircase())
    assert model.ensemble_.featurizers.featurizer.featurizer.featurizer.layers[0].weight.shape[-2] == 3


def test_profiles_may_set_the_size_of_networks():
    small = Profile("plain", 0.8, 1.0, width=3, depth=1)
    assert fix(small, VPBoostRegressor())[-2:] == (3, 1)
    for mine in ({"width": 5}, {"depth": 2}, {"featurizer": "rbf"}):  # the user's, which are no part of a profile
        assert fix(small, VPBoostRegressor(**mine))[-2:] == (None, None)
    model = VPBoostRegressor(n_estimators=2, **small._replace(n_chains=1).parameters()).fit(*staircase())
    layers = model.ensemble_.featurizers.featurizer.featurizer.layers
    assert [layer.weight.shape[-2] for layer in layers] == [3, 3]


def test_the_race_keeps_the_profile_that_validates_best(short_race):
    X, y = staircase()
    options = {**QUICK, "relevance": False}
    model = VPBoostRegressor(**options).fit(X[:300], y[:300], X_val=X[300:], y_val=y[300:])
    rough = {p for p in model.race_ if p.dtype == "float32"}
    assert rough == {p._replace(max_steps=10, relevance=False) for p in profiles(model, X.shape)}
    assert {p.activation for p in model.race_ if p not in rough} == {p.activation for p in SMOOTH}
    known = [score for profile, score in model.race_.items() if profile.dtype == "float32"]
    assert model.profile_.dtype == "float32"
    assert model.race_[model.profile_] <= 1.05 * min(known)
    fixed = VPBoostRegressor(**{**options, **model.profile_.parameters()})
    fixed.fit(X[:300], y[:300], X_val=X[300:], y_val=y[300:])
    assert fixed.race_ == {}
    np.testing.assert_array_equal(fixed.predict(X), model.predict(X))


class Runner:
    """A run whose scores are known beforehand; they do not change after the last."""

    boosted = None
    best_score = Run.best_score

    def __init__(self, n_columns, *scores, n_rows=100):
        self.known, self.scores = scores, []
        self.train = SimpleNamespace(n_rows=n_rows)
        encoder = SimpleNamespace(sources_=np.zeros(n_columns))
        self.plan = SimpleNamespace(encoder=encoder, engine="xla", profile=PORTFOLIO[0], loss=SquaredError())

    def boost(self, n_stages, seed, watch, resume):
        assert resume is self.boosted
        self.boosted = [*self.known, *[self.known[-1]] * n_stages][:n_stages]
        self.scores = list(self.boosted)


def test_runs_far_behind_after_a_few_stages_go_no_further():
    def rivals(n_rows):
        late = Runner(1, 2.0, 1.6, 1.25, 0.5, n_rows=n_rows)
        return [Runner(1, 2.0, 1.5, 1.0, 0.9, n_rows=n_rows), late, Runner(1, 2.0, 1.6, 1.35, 0.1, n_rows=n_rows)]

    few = rivals(1000)
    assert race.race(few, 0, 8)[0] is few[1]
    assert [len(run.scores) for run in few] == [8, 8, 3]
    many = rivals(30_000)  # by which stages tell more
    assert race.race(many, 0, 8)[0] is many[0]
    assert [len(run.scores) for run in many] == [8, 3, 3]


def test_runs_without_scores_all_go_on():
    """As of a constant response, which has nothing to learn."""
    runs = [Runner(1, 1.0), Runner(1, 1.0)]
    runs[1].plan.profile = Profile("fine", 0.3, 1.0)
    assert race.within_reach(runs) == runs


def test_fewer_columns_win_a_tie():
    def runner(score, n_columns):  # a gain of 2.5, so a margin of 0.01
        return Runner(n_columns, score + 2.5, score)

    runners = [runner(1.0, 30), runner(1.009, 3), runner(1.005, 3), runner(1.011, 1)]
    assert race.race(runners, 0, 7) == (runners[2], False)
    below_zero = [runner(-1.0, 30), runner(-0.98, 3)]
    assert race.race(below_zero, 0, 7)[0] is below_zero[0]


def test_without_validation_data_some_rows_decide(short_race):
    X, y = staircase()
    aside = VPBoostRegressor(**QUICK).fit(X, y)
    assert len(aside.evals_result_["validation"]) == aside.n_iter_
    everything = VPBoostRegressor(**QUICK, early_stopping_rounds=None).fit(X, y)
    assert everything.evals_result_["validation"] == []
    assert len(everything.race_) >= len(PORTFOLIO)
    small = VPBoostRegressor(**QUICK).fit(X[:49], y[:49])
    assert small.profile_ == FALLBACK._replace(max_steps=10)
    assert small.evals_result_["validation"] == []


def test_the_race_is_run_at_a_high_rate(monkeypatch):
    rates = []
    monkeypatch.setattr(Run, "boost", lambda self, *args: rates.append(self.plan.trust_region.rate) or 1 / 0)
    for rate in ("auto", 0.4):
        with pytest.raises(ZeroDivisionError):
            VPBoostRegressor(**QUICK, learning_rate=rate).fit(*staircase())
    assert {0.3, 0.4} == set(rates)


def test_the_race_is_announced(short_race, capsys):
    VPBoostRegressor(**QUICK, verbose=1).fit(*staircase())
    printed = capsys.readouterr().err
    assert "comparing 7 profiles" in printed
    assert "chosen: Profile(encoding=" in printed


def test_ctrl_c_during_the_race_leaves_a_model(monkeypatch):
    X, y = staircase()
    run = Run.boost

    def interrupted_run(self, *args, **kwargs):
        run(self, *args, **kwargs)
        raise KeyboardInterrupt

    monkeypatch.setattr(Run, "boost", interrupted_run)
    with pytest.warns(UserWarning, match="interrupted after .* stages, while profiles were compared"):
        model = VPBoostRegressor(**QUICK).fit(X, y)
    assert model.n_iter_ > 0
    assert np.all(np.isfinite(model.predict(X)))


def test_an_error_in_the_race_is_raised(monkeypatch):
    def failing_run(self, *args, **kwargs):
        raise RuntimeError("no luck")

    monkeypatch.setattr(Run, "boost", failing_run)
    with pytest.raises(RuntimeError, match="no luck"):
        VPBoostRegressor(**QUICK).fit(*staircase())


@pytest.mark.parametrize("profile", PORTFOLIO)
def test_input_gradients_of_every_profile(profile):
    X, y = staircase()
    X = X * [100.0, 1e-3]
    X[:20, 1] = np.nan
    model = VPBoostRegressor(**{**profile.parameters(), **QUICK, "dtype": "float64"}).fit(X, y)
    found, unit = model.input_gradient(X[30:33]), np.array([100.0, 1e-3])
    for row, gradient in zip(X[30:33], found, strict=True):
        numeric = central_difference(lambda v, unit=unit: model.predict((v * unit)[None])[0], row / unit, step=1e-6)
        np.testing.assert_allclose(gradient * unit, numeric, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(model.input_gradient(X[:3])[:, 1], 0)  # nothing there to change
    assert model.feature_importances_.shape == (2,)


def test_rows_set_aside_leave_every_class():
    target, groups = np.repeat([0, 1, 2], [2, 5, 93]), np.arange(100)
    for seed in range(20):
        train, aside = hold_out(target, groups, 0.9, seed, keep_classes=True)
        assert set(target[train]) == {0, 1, 2}
        assert len(aside) == 90
        np.testing.assert_array_equal(np.sort([*train, *aside]), np.arange(100))
        together = groups // 4
        train, aside = hold_out(target, together, 0.5, seed, keep_classes=False)
        assert not set(together[train]) & set(together[aside])
        assert len(aside) == 48  # twelve whole groups of four
    assert len(hold_out(target, groups, 0.001, 0, keep_classes=False)[1]) == 1
    assert hold_out(np.arange(5), np.arange(5), 0.5, 0, keep_classes=True) is None
    assert hold_out(np.zeros(1), np.zeros(1, int), 0.5, 0, keep_classes=False) is None


@given(st.lists(st.integers(0, 4), min_size=4, max_size=60), st.floats(0.01, 0.99), st.booleans())
def test_rows_set_aside_are_about_as_many_as_wanted(groups, fraction, keep_classes):
    groups = np.unique(groups, return_inverse=True)[1]
    target = np.arange(len(groups)) % 2
    train, aside = hold_out(target, groups, fraction, 0, keep_classes)
    wanted = max(round(fraction * len(groups)), 1)
    assert wanted / 2 - 2 <= len(aside) <= wanted
    assert len(train) + len(aside) == len(groups)
    assert set(target[train]) == {0, 1} or not keep_classes


def test_large_groups_are_split_evenly():
    groups = np.concatenate([np.zeros(600, int), 1 + np.arange(400)])
    _, aside = hold_out(np.arange(1000.0), groups, 0.15, 0, keep_classes=False)
    assert len(aside) == 150
    assert 60 < np.sum(aside < 600) < 120


@pytest.mark.slow
@pytest.mark.long
def test_few_distinct_inputs_make_a_model():
    """Five inputs, two hundred rows each: no whole group fits into the validation part."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 5, (1000, 1))
    y = X[:, 0] + rng.normal(size=1000)
    for options in ({}, {"early_stopping_rounds": 3}, {"validation_fraction": 0.3}):
        model = VPBoostRegressor(
            n_estimators=20, learning_rate=0.5, encoding="plain", inherit=0.0, max_features=1.0, **options
        )
        model.fit(X, y)
        assert model.score(X, y) > 0.6
        assert len(model.evals_result_["validation"]) == model.n_iter_
    assert VPBoostRegressor(n_estimators=5, n_chains=1).fit(np.ones((1000, 1)), y).predict([[1]])[0] == pytest.approx(
        y.mean(), abs=0.1
    )


@pytest.mark.filterwarnings("ignore:The number of unique classes")
def test_classes_of_one_row_each_make_a_model(short_race):
    X = np.random.default_rng(0).normal(size=(220, 2))
    model = VPBoostClassifier(n_estimators=1, max_steps=2).fit(X, np.arange(220))
    assert model.evals_result_["validation"] == []
    assert model.predict_proba(X).shape == (220, 220)
    with pytest.raises(ValueError, match="early_stopping_rounds=5 needs validation data, and of 220 different rows"):
        VPBoostClassifier(early_stopping_rounds=5).fit(X, np.arange(220))


def test_rare_classes_survive_the_split(short_race):
    X = np.random.default_rng(0).normal(size=(220, 2))
    y = np.where(X[:, 0] > 0, "yes", "no")
    y[0] = "rare"
    model = VPBoostClassifier(**QUICK).fit(X, y)
    assert model.predict_proba(X).shape == (220, 3)
    assert np.all(np.isfinite(model.predict_proba(X)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"encoding": "bins"}, "encoding must be 'auto' or one of .*, got 'bins'"),
        ({"inherit": 1.0}, r"inherit must be 'auto' or in \[0, 1\), got 1.0"),
        ({"inherit": True}, r"inherit must be 'auto' or in \[0, 1\), got True"),
        ({"max_features": 0}, r"max_features must be 'auto', None or in \(0, 1\], got 0"),
        ({"learning_rate": "fast"}, r"learning_rate must be 'auto' or in \(0, 1\], got 'fast'"),
    ],
)
def test_bad_choices_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        VPBoostRegressor(**options).fit(*staircase())


@pytest.mark.parametrize(
    ("loss", "n_columns", "start", "with_trees"),
    [
        (SquaredError(), 20, 0.1, 0.25),
        (BinaryCrossEntropy(), 7, 0.1, 0.15),
        (MulticlassCrossEntropy(3), 7, 0.1, 0.25),
        (MulticlassCrossEntropy(3), 8, 0.6, 0.6),
    ],
)
def test_learners_of_half_the_columns_have_a_start(loss, n_columns, start, with_trees):
    def runner(score, profile, metric=None, n_rows=race.MANY_TO_RACE - 1):
        columns = SimpleNamespace(sources_=np.arange(n_columns))
        plan = SimpleNamespace(encoder=columns, profile=profile, loss=loss, metric=metric)
        return SimpleNamespace(plan=plan, best_score=score, train=SimpleNamespace(n_rows=n_rows))

    whole, half = Profile("plain", 0.8, 1.0), Profile("plain", 0.7, 0.5)
    assert race.standing(runner(2.0, whole)) == race.standing(runner(2.0, whole._replace(max_features=None))) == 2.0
    np.testing.assert_allclose(race.standing(runner(2.0, half)), 2.0 - 2 * start)
    np.testing.assert_allclose(race.standing(runner(2.0, half._replace(tree_depth=6))), 2.0 - 2 * with_trees)
    assert race.standing(runner(2.0, half, n_rows=race.MANY_TO_RACE)) == 2.0
    assert race.standing(runner(2.0, half._replace(tree_depth=6), n_rows=race.MANY_TO_RACE)) == 1.94
    np.testing.assert_allclose(race.standing(runner(2.0, whole._replace(encoding="fine"))), 1.9)
    # a tenth of a metric, which may be below zero: the lower, the better
    np.testing.assert_allclose(race.standing(runner(-2.0, half, metric=np.mean)), -2.2)
    assert race.standing(runner(-2.0, half._replace(tree_depth=6), metric=np.mean)) == -2.0
