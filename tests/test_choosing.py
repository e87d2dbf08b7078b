"""The choice of a profile for responses without noise, and the weights of columns."""

import jax
import numpy as np
import pytest

from oracles import central_difference
from vpboost import MLP, ResNet, VPBoostClassifier, VPBoostRegressor, load_model
from vpboost.callbacks import Checkpoint
from vpboost.core.ensemble import mean_squared_slopes
from vpboost.engine import using
from vpboost.estimators import choosing
from vpboost.estimators import noise as noises
from vpboost.estimators.noise import hears_noise
from vpboost.estimators.plan import CHAINS
from vpboost.estimators.portfolio import SMOOTH, Profile, fix, profile_from, profiles, smooth_profiles
from vpboost.estimators.settings import MOST_STAGES
from vpboost.numerics.lengths import Process
from vpboost.tables.encoder import InputEncoder

RNG = np.random.default_rng(0)
X = RNG.uniform(size=(260, 8))
#: Three of eight columns matter.
Y = np.sin(3 * X[:, 0]) * X[:, 1] + X[:, 2] ** 2
X_NEW = RNG.uniform(size=(400, 8))
Y_NEW = np.sin(3 * X_NEW[:, 0]) * X_NEW[:, 1] + X_NEW[:, 2] ** 2


def error(model):
    return float(np.sqrt(np.mean((model.predict(X_NEW) - Y_NEW) ** 2)) / Y_NEW.std())


@pytest.fixture(scope="module")
def smooth():
    return VPBoostRegressor(n_estimators=15, learning_rate=0.3).fit(X, Y)


@pytest.mark.parametrize("network", [MLP, ResNet])
def test_weight_scale_multiplies_all_initial_weights_and_biases(network):
    plain = network(jax.random.key(3), X[:5])
    scaled = network(jax.random.key(3), X[:5], weight_scale=0.25)
    for one, other in zip(jax.tree.leaves(plain), jax.tree.leaves(scaled), strict=True):
        np.testing.assert_array_equal(np.asarray(one) * 0.25, other)


def test_weighed_columns_count_less():
    weights = np.array([1.0, 0.5, 0.25, 1e-3, 1, 1, 1, 1])
    plain = InputEncoder().fit(X, np.ones(260))
    weighed = InputEncoder().fit(X, np.ones(260)).weighed(weights)
    np.testing.assert_allclose(weighed.transform(X), weights * plain.transform(X), rtol=1e-12)
    assert plain.weighed(None) is plain
    assert plain.weights_ is None


def test_a_response_without_noise_gets_a_smooth_profile_with_weighed_columns(smooth):
    assert smooth.profile_._replace(learning_rate=0.1) in SMOOTH
    assert smooth.ensemble_.constant.dtype == np.float64
    weights = smooth.input_encoder_.weights_
    assert weights[:3].min() > 0.2
    assert weights[3:].max() < 0.05
    assert error(smooth) < 0.03
    before = {"dtype": "float32", "reg_lambda": 1e-4, "weight_scale": 1.0, "relevance": False, "max_steps": 30}
    former = VPBoostRegressor(**before, activation="tanh", learning_rate=0.05, n_chains=1).fit(X, Y)
    assert former.profile_.relevance is False
    assert error(smooth) < 0.5 * error(former)


def test_noise_gets_another_profile():
    noisy = Y + Y.std() * np.random.default_rng(1).normal(size=260)
    model = VPBoostRegressor(n_estimators=3).fit(X, noisy)
    assert model.profile_.dtype == "float32"
    assert set(model.race_) >= set(profiles(model, X.shape))


def test_noise_is_seen_before_smooth_profiles_race():
    noisy = Y + Y.std() * np.random.default_rng(1).normal(size=260)
    model = VPBoostRegressor(n_estimators=3).fit(X, noisy)
    assert not any(profile.relevance for profile in model.race_)


def test_a_little_noise_is_not_learnt_by_more_training():
    process = Process(np.ones(3), noise=1e-4, unexplained=2e-4, nugget=0.0)
    assert hears_noise(process)
    assert not hears_noise(process._replace(unexplained=1e-3))  # most of what is left is not noise
    assert not hears_noise(process._replace(noise=1e-5, unexplained=1e-5))
    assert not hears_noise(None)
    rng = np.random.default_rng(0)
    inputs = rng.uniform(-1, 1, size=(200, 2))
    y = np.exp(inputs[:, 0]) * np.sin(2 * inputs[:, 1])
    quiet, noisy = (
        VPBoostRegressor(n_estimators=15, learning_rate=0.3).fit(inputs, y + size * y.std() * rng.normal(size=200))
        for size in (0.0, 0.01)
    )
    assert (quiet.profile_.max_steps, quiet.profile_.refit_full) == (200, True)
    assert (noisy.profile_.max_steps, noisy.profile_.refit_full, noisy.profile_.n_chains) == (50, False, CHAINS)
    fixed = VPBoostRegressor(n_estimators=15, learning_rate=0.3, max_steps=70).fit(
        inputs, y + 0.01 * rng.normal(size=200)
    )
    assert fixed.profile_.max_steps == 70


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(
    "metric", ["rmse", *(pytest.param(metric, marks=[pytest.mark.slow, pytest.mark.long]) for metric in (None, "r2"))]
)
def test_whole_fits_are_compared_by_loss_whatever_the_metric(metric, monkeypatch):
    """A response without noise, but with jumps, is not for smooth profiles."""
    monkeypatch.setattr(choosing, "CLEARLY", 0.0)
    x = np.random.default_rng(0).uniform(-1, 1, size=(200, 3))
    y = np.sign(np.sin(5 * x[:, 0])) * x[:, 1]
    model = VPBoostRegressor(eval_metric=metric, n_chains=1, n_estimators=40).fit(x, y)
    assert model.profile_.dtype == "float32"


@pytest.mark.slow
@pytest.mark.long
def test_whole_fits_decide_where_pilots_are_close(monkeypatch):
    monkeypatch.setattr(choosing, "CLEARLY", 0.0)
    boosted = []

    def watched(self, profile, *others):
        run, interrupted = whole(self, profile, *others)
        boosted.append((profile.relevance, choosing.unexplained(run)))
        return run, interrupted

    whole = choosing.Choosing._boosted_whole
    monkeypatch.setattr(choosing.Choosing, "_boosted_whole", watched)
    for lead, dtype in (((1.0, 1.0), "float64"), ((1e-9, 1e-9), "float32")):
        monkeypatch.setattr(choosing, "SMOOTH_LEAD", lead)
        model = VPBoostRegressor(n_estimators=25, learning_rate=0.3, n_chains=1).fit(X, Y)
        assert model.profile_.dtype == dtype
    assert [relevant for relevant, _ in boosted] == [False, True, False, True]
    assert boosted[3][1] < boosted[1][1] < boosted[0][1] == boosted[2][1]  # the first proof ends when it is enough


@pytest.mark.parametrize(("lead", "dtype"), [(10.0, "float64"), (1e-9, "float32")])
def test_a_whole_fit_that_decides_is_the_first_chain(lead, dtype, monkeypatch):
    """With a callback, that is to see every stage, it is made anew: the same, bit for bit."""
    monkeypatch.setattr(choosing, "CLEARLY", 0.0)
    monkeypatch.setattr(choosing, "SMOOTH_LEAD", (lead, lead))
    begun, fit = [], choosing.Run.boost

    def watched(self, n_learners, seed, watch, resume=None, facts=None):
        if n_learners == given["n_estimators"]:  # pilots go on, too
            begun.append(0 if resume is None else len(resume.history))
        return fit(self, n_learners, seed, watch, resume, facts)

    monkeypatch.setattr(choosing.Run, "boost", watched)
    given = {"n_estimators": 25, "learning_rate": 0.3, "n_chains": 1, "early_stopping_rounds": 3, "max_steps": 20}
    models = [VPBoostRegressor(**given).fit(X, Y)]
    gone_on = list(begun)
    begun.clear()
    models.append(VPBoostRegressor(**given, callbacks=[lambda progress: None]).fit(X, Y))
    assert models[0].profile_ == models[1].profile_
    assert models[0].profile_.dtype == dtype
    np.testing.assert_array_equal(*[model.predict(X_NEW) for model in models])
    assert models[0].evals_result_ == models[1].evals_result_
    assert models[0].boosted_.status == models[1].boosted_.status
    # stages that were known, or no more to come: it had ended early
    assert gone_on[-1] > 0 or len(gone_on) == len(begun) - 1
    assert not any([*gone_on[:-1], *begun[len(gone_on) :]])


@pytest.mark.parametrize(("noise", "dtype"), [(0.0, "float64"), (0.05, "float32")])
def test_where_there_is_noise_smooth_profiles_win_by_a_better_score_only(noise, dtype, monkeypatch):
    """Without noise, more rows make up for a score that is a little worse; a table with text got them by that."""
    monkeypatch.setattr(choosing, "CLEARLY", 0.0)
    process = choosing.process_of
    monkeypatch.setattr(choosing, "process_of", lambda run: process(run)._replace(noise=noise, unexplained=0.0))
    scores = iter([0.10, 0.11])  # of the rough profile, then of the smooth one
    monkeypatch.setattr(choosing.Choosing, "_boosted_whole", lambda self, *args: (next(scores), False))
    left = choosing.unexplained
    monkeypatch.setattr(choosing, "unexplained", lambda run: run if isinstance(run, float) else left(run))
    model = VPBoostRegressor(n_estimators=2, callbacks=[lambda progress: None]).fit(X, Y)  # not gone on from a number
    assert model.profile_.dtype == dtype


@pytest.mark.parametrize(("hopeless", "noise", "fits"), [(1.5, 1e-3, 2), (1e-9, 0.0, 2), (1e-9, 1e-3, 1)])
def test_a_whole_fit_without_hope_is_left_out(hopeless, noise, fits, monkeypatch):
    """There is some noise, and the pilot of the smooth profile is behind the other's whole fit by more than that."""
    process = choosing.process_of
    monkeypatch.setattr(choosing, "process_of", lambda run: process(run)._replace(noise=noise))
    monkeypatch.setattr(choosing, "CLEARLY", 0.0)
    monkeypatch.setattr(noises, "HOPELESS", hopeless)
    monkeypatch.setattr(choosing, "SMOOTH_LEAD", (1e9, 1e9))
    whole, boosted = choosing.Choosing._boosted_whole, []

    def watched(self, profile, *others):
        boosted.append(profile)
        return whole(self, profile, *others)

    monkeypatch.setattr(choosing.Choosing, "_boosted_whole", watched)
    model = VPBoostRegressor(n_estimators=4, n_chains=1, max_steps=20).fit(X, Y)
    assert len(boosted) == fits
    assert model.profile_.dtype == ("float64" if fits == 2 else "float32")


@pytest.mark.parametrize(
    ("noise", "ahead", "many", "dtype"),
    [
        (0.005, 0.8, False, "float64"),
        (0.005, 0.0, False, "float32"),
        (0.5, np.inf, False, "float32"),
        (0.005, np.inf, True, "float32"),
    ],
)
def test_where_it_is_doubtful_smooth_profiles_must_be_well_ahead(noise, ahead, many, dtype, monkeypatch):
    """A process sees noise; if it is nearly all that is left, or much is left of many rows, that is enough."""
    process = choosing.process_of
    monkeypatch.setattr(choosing, "process_of", lambda run: process(run)._replace(noise=noise, unexplained=1.0))
    monkeypatch.setattr(choosing, "WELL_AHEAD", ahead)
    if many:
        monkeypatch.setattr(choosing, "SMALL", 10)
        monkeypatch.setattr(choosing, "WORTH_TRYING", (0.8, 0.0))
    assert VPBoostRegressor(n_estimators=4, n_chains=1, max_steps=20).fit(X, Y).profile_.dtype == dtype


def test_gradients_and_files_of_weighed_columns(smooth, tmp_path):
    found = [central_difference(lambda x: smooth.predict(x[None])[0], row) for row in X[:5]]
    np.testing.assert_allclose(smooth.input_gradient(X[:5]), found, atol=1e-5)
    smooth.save_model(tmp_path / "m.vpboost")
    again = load_model(tmp_path / "m.vpboost")
    assert again.profile_ == smooth.profile_
    assert again.race_ == smooth.race_
    np.testing.assert_array_equal(again.predict(X_NEW), smooth.predict(X_NEW))


@pytest.mark.slow
@pytest.mark.long
def test_a_fit_with_weighed_columns_goes_on_from_a_checkpoint(smooth, tmp_path):
    path = tmp_path / "c.vpboost"
    VPBoostRegressor(n_estimators=5, learning_rate=0.3, callbacks=[Checkpoint(path, every=1)]).fit(X, Y)
    resumed = VPBoostRegressor(n_estimators=15, learning_rate=0.3).fit(X, Y, resume_from=path)
    np.testing.assert_array_equal(resumed.predict(X_NEW), smooth.predict(X_NEW))
    assert resumed.profile_ == smooth.profile_


@pytest.mark.parametrize("engine", ["numpy", "xla"])
def test_mean_squared_slopes_are_those_of_the_gradient(smooth, engine):
    encoded = smooth.input_encoder_.transform(X)
    with jax.enable_x64(True), using(engine):
        found = mean_squared_slopes(smooth.ensemble_, jax.device_put(np.ascontiguousarray(encoded.T)))
    np.testing.assert_allclose(found, (smooth.ensemble_.input_gradient(encoded) ** 2).mean(axis=(0, 1)), rtol=1e-10)


def test_where_a_curve_heads_for():
    stages = np.arange(60)
    ends = list(0.3 + 0.81**stages)
    assert choosing.heads_for(ends[:23]) == -np.inf  # too early to tell
    assert 0.1 < choosing.heads_for(ends[:24]) < 0.3 + 0.81**23  # on the safe side: below what it comes to
    assert choosing.heads_for(ends) == pytest.approx(0.3, abs=1e-3)
    assert choosing.heads_for(list((1.0 + stages) ** -1.5)[:40]) < 0.25 * 40**-1.5  # falls on, if slower and slower
    assert choosing.heads_for(list(1 - 0.01 * stages)) < -1  # as fast as ever
    assert choosing.heads_for([*ends[:30], *(ends[29] + 0.01 * stages[:20])]) == ends[29] + 0.19  # overfits


def test_weights_are_the_rms_derivatives_beside_the_largest():
    linear = VPBoostRegressor(n_estimators=40, encoding="plain", relevance=True, max_steps=20)
    linear.fit(X, 4 * X[:, 0] + X[:, 1] / 2 + X[:, 2])
    weights, spread = linear.input_encoder_.weights_, X.std(axis=0)
    assert linear.profile_.relevance is True
    expected = np.array([4, 0.5, 1]) * spread[:3] / (4 * spread[0])
    np.testing.assert_allclose(weights[:3], expected, atol=0.02)
    assert weights[3:].max() < 0.02


def test_relevance_is_for_plain_tables_and_any_loss():
    for wrong in (VPBoostRegressor(relevance=True, encoding="spline"), VPBoostRegressor(relevance=True)):
        inputs = X if wrong.encoding == "spline" else X.reshape(-1, 2, 4)
        with pytest.raises(ValueError, match="relevance=True is for tables with encoding='plain'"):
            wrong.fit(inputs, Y)
    model = VPBoostClassifier(relevance=True, n_estimators=2, max_steps=10).fit(X, Y.mean() < Y)
    assert all(profile.dtype == "float32" for profile in model.race_)


def test_what_the_user_fixes_is_fixed():
    single = fix(SMOOTH[0], VPBoostRegressor(dtype="float32"))
    assert (single.dtype, single.reg_lambda) == ("float32", 1e-6)
    assert fix(SMOOTH[0], VPBoostRegressor(dtype=np.float32, reg_lambda=1e-9)).reg_lambda == 1e-9
    assert fix(SMOOTH[0], VPBoostRegressor(activation="gelu")).activation is None
    assert fix(SMOOTH[0], VPBoostRegressor(featurizer="rbf")).weight_scale == 1
    assert smooth_profiles(VPBoostRegressor(encoding="spline"), []) == []
    everything = {"dtype": "float32", "reg_lambda": 1e-4, "weight_scale": 1.0, "relevance": False, "max_steps": 30}
    everything |= {"inherit": 0.8, "max_features": 1.0, "learning_rate": 0.1, "activation": "tanh", "reg_theta": 0.0}
    model = VPBoostRegressor(**everything, encoding="plain")
    assert smooth_profiles(model, profiles(model, (300, 8))) == []
    assert {p.encoding for p in profiles(VPBoostRegressor(relevance=True), (500, 8))} == {"plain"}


def test_ctrl_c_while_columns_are_weighed_leaves_a_model(monkeypatch):
    def interrupted(runs, seed, n_stages):
        result = race(runs, seed, n_stages)
        return (result[0], True) if len(runs) == 1 else result

    race = choosing.race
    monkeypatch.setattr(choosing, "race", interrupted)
    with pytest.warns(UserWarning, match="while profiles were compared"):
        model = VPBoostRegressor().fit(X, Y)
    assert np.isfinite(model.predict(X)).all()


def test_n_estimators_auto_ends_by_validation_or_by_the_rate():
    model = VPBoostRegressor()
    assert model._most_stages() == MOST_STAGES
    assert [model._most_stages(rate) for rate in (0.05, 0.1, 1.0, 5e-324)] == [300, 150, 15, MOST_STAGES]
    assert [VPBoostRegressor(n_estimators=7)._most_stages(rate) for rate in (None, 0.1)] == [7, 7]
    small = VPBoostRegressor(max_steps=1, width=2).fit(X[:49], Y[:49])
    assert small.n_iter_ == 300


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weight_scale": 0}, "weight_scale must be 'auto' or a positive number, got 0"),
        ({"relevance": "yes"}, "relevance must be 'auto', True or False, got 'yes'"),
        ({"reg_lambda": "small"}, "reg_lambda must be 'auto' or a number, got 'small'"),
        ({"weight_scale": 0.5, "featurizer": "rbf"}, "weight_scale does not apply to featurizer='rbf'"),
        ({"n_estimators": "all"}, "n_estimators must be a whole number of at least 1, got 'all'"),
        ({"dtype": "float16"}, "dtype"),
    ],
)
def test_bad_choices_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        VPBoostRegressor(**options).fit(X, Y)


@pytest.mark.parametrize(
    "values",
    [
        ("plain", 0.5, 1.0, None, -1.0),
        ("plain", 0.5, 1.0, 3, 1.0),
        ("plain", 0.5, 1.0, "'auto'", 1.0),
        ("plain", 0.5, 1.0, None, 1.0, 2.5),
        ("plain", 0.5, 1.0, None, 1.0, 5, 2.0),
        ("plain", 0.5, 1.0, None, 1.0, 5, 0.1, 1e-4, 0.0, "float16"),
        ("plain", 0.5, 1.0, None, 1.0, 5, 0.1, 1e-4, 0.0, "float32", 1),
        ("plain", 0.5, 1.0, None, 1.0, 5, 0.1, 1e-4, 0.0, "float32", True, 0),
        ("plain", 0.5, 1.0, None, 1.0, 5, 0.1, 1e-4, 0.0, "float32", True, 10, 0),
        ("plain", 0.5, 1.0, None, 1.0, 5, 0.1, 1e-4, 0.0, "float32", True, 10, 4, 10),
    ],
)
def test_profiles_of_files_are_checked(values):
    with pytest.raises(ValueError, match=r"must|at most|make no sense"):
        profile_from(values)


def test_profiles_of_earlier_files_have_three_values():
    assert profile_from(("spline", 0.7, None)) == Profile("spline", 0.7, None)
