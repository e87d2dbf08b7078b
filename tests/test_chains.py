"""Several chains, whose mean is the model: against fits of their own, in files, with callbacks and warm starts."""

import contextlib
import os
import signal
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.metrics import log_loss

from vpboost import MLP, Ensemble, VPBoostClassifier, VPBoostRegressor, load_model
from vpboost.callbacks import Checkpoint, EarlyStopping, TimeBudget
from vpboost.cli.errors import CommandError
from vpboost.cli.summary import summary_of
from vpboost.core.ensemble import averaged
from vpboost.estimators import base, parts
from vpboost.estimators.chains import seed_of
from vpboost.estimators.plan import CHAINS, MANY_FOR_CHAINS, chains_of, rate_of
from vpboost.estimators.portfolio import Profile
from vpboost.files.container import ModelFileError, pack, unpack
from vpboost.predictor import Predictor
from vpboost.tables import encoder
from vpboost.tables import rows as table_rows

RNG = np.random.default_rng(0)
X = RNG.normal(size=(260, 3))
Y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * RNG.normal(size=len(X))
#: No race, and quick.
FIXED = {"encoding": "plain", "inherit": 0.7, "max_features": 0.7, "max_steps": 8, "learning_rate": 0.3, "width": 4}
FIXED |= {"n_estimators": 12, "early_stopping_rounds": 4}


def ensemble(seed, n_learners, dtype=jnp.float32):
    keys = jax.random.split(jax.random.key(seed), max(n_learners, 1))
    rows = jnp.zeros((1, 2), dtype)
    learners = [(MLP(key, rows, width=3), jax.random.normal(key, (3, 2), dtype)) for key in keys[:n_learners]]
    return Ensemble.stack(jnp.array([seed, 0.5], dtype), learners)


@pytest.mark.parametrize("lengths", [(3, 1, 4), (2, 0), (0, 0), (2,)])
def test_the_mean_of_ensembles_is_one_ensemble(lengths):
    parts = [ensemble(seed, n) for seed, n in enumerate(lengths)]
    x = RNG.normal(size=(7, 2))
    mean = averaged(parts)
    assert mean.n_learners == sum(lengths)
    np.testing.assert_allclose(mean.predict(x), np.mean([part.predict(x) for part in parts], axis=0), atol=1e-6)
    halfway = averaged([part.truncate(min(part.n_learners, 1)) for part in parts])
    first = sum(length > 0 for length in lengths)
    np.testing.assert_allclose(mean.staged_predict(x)[first], halfway.predict(x), atol=1e-6)  # learners are in turn


def test_the_mean_stays_in_double_precision(x64):
    mean = averaged([ensemble(seed, 2, jnp.float64) for seed in range(3)])
    assert {mean.constant.dtype, mean.weights.dtype} == {np.dtype(np.float64)}


@pytest.mark.parametrize(("dtype", "engine"), [("float32", "numpy"), ("float64", "numpy"), ("float32", "xla")])
def test_chains_are_fits_with_other_seeds(dtype, engine):
    fit, options = {"X_val": X[:60], "y_val": Y[:60]}, {**FIXED, "dtype": dtype, "engine": engine}
    model = VPBoostRegressor(**options, n_chains=3, random_state=5).fit(X[60:], Y[60:], **fit)
    assert model.n_chains_ == 3
    alone = [
        VPBoostRegressor(**options, n_chains=1, random_state=seed_of(5, k)).fit(X[60:], Y[60:], **fit) for k in range(3)
    ]
    assert model.ensemble_.n_learners == sum(one.best_iteration_ for one in alone)
    assert model.best_iteration_ == alone[0].best_iteration_
    mean = np.mean([one.predict(X) for one in alone], axis=0)
    np.testing.assert_allclose(model.predict(X), mean, atol=1e-5)
    error = 0.5 * np.mean((mean[:60] - Y[:60]) ** 2) / np.var(Y[60:])
    np.testing.assert_allclose(model.best_score_, error, rtol=1e-3)
    gradient = np.mean([one.input_gradient(X[:9]) for one in alone], axis=0)
    np.testing.assert_allclose(model.input_gradient(X[:9]), gradient, atol=1e-4)
    np.testing.assert_allclose(list(model.staged_predict(X[:9]))[-1], model.predict(X[:9]), atol=1e-5)


def test_chains_of_one_fit_are_those_of_no_other():
    seeds = {seed_of(seed, chain) for seed in range(50) for chain in range(8)}
    assert len(seeds) == 400


def test_without_validation_data_every_chain_sets_other_rows_aside():
    seen = []

    def note(y_true, y_pred):
        seen.append(frozenset(np.round(y_true, 9).tolist()))
        return float(np.mean((y_true - y_pred) ** 2))

    model = VPBoostRegressor(**FIXED, n_chains=4, eval_metric=note).fit(X, Y)
    assert model.best_score_ != min(model.evals_result_["validation"])  # but the mean of four such
    assert len(set(seen)) == 4
    assert len(frozenset.union(*seen)) > 100  # of 260 rows, 39 at a time


def test_a_classifier_averages_logits():
    y = np.digitize(Y, [-0.5, 0.7])
    fit = {"X_val": X[:60], "y_val": y[:60]}
    several = VPBoostClassifier(**FIXED, n_chains=2).fit(X[60:], y[60:], **fit)
    seeds = [seed_of(0, k) for k in (0, 1)]
    alone = [VPBoostClassifier(**FIXED, n_chains=1, random_state=seed).fit(X[60:], y[60:], **fit) for seed in seeds]
    np.testing.assert_allclose(several.best_score_, log_loss(y[:60], several.predict_proba(X[:60])), rtol=1e-4)
    logits = np.mean([one.decision_function(X) for one in alone], axis=0)
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    np.testing.assert_allclose(several.predict_proba(X), odds / odds.sum(axis=1, keepdims=True), atol=1e-5)


def test_automatic_chains():
    small = VPBoostRegressor(max_steps=1, n_estimators=2, width=2, encoding="plain", inherit=0.0, max_features=1.0)
    assert small.fit(X, Y).n_chains_ == CHAINS
    assert small.set_params(early_stopping_rounds=None).fit(X, Y).n_chains_ == 1
    assert small.set_params(early_stopping_rounds="auto").fit(X[:49], Y[:49]).n_chains_ == 1  # no validation data
    profile = small.profile_
    assert [chains_of(profile, (n, 3), True) for n in (MANY_FOR_CHAINS - 1, MANY_FOR_CHAINS)] == [CHAINS, 1]
    assert chains_of(profile._replace(tree_depth=6), (MANY_FOR_CHAINS, 3), True) == CHAINS // 2  # quick stages
    assert chains_of(profile._replace(tree_depth=6), (60_001, 3), True) == 1
    assert chains_of(profile, (500, 8, 8), True) == 1  # images
    assert [chains_of(profile, (n, 3), True, n_classes=2) for n in (500, 5000, 60_000, 60_001)] == [CHAINS, 2, 2, 1]
    assert [chains_of(profile, (n, 3), True, n_classes=3) for n in (500, 5000, 60_000)] == [CHAINS, CHAINS // 2, 1]
    assert chains_of(profile._replace(n_chains=7), (10**6, 3), False) == 7


def test_automatic_rates():
    profile = Profile("plain", 0.8, 1.0)
    assert [rate_of(profile, n, k) for n in (500, 5000) for k in (1, 4)] == [0.05, 0.1, 0.1, 0.2]
    assert [rate_of(profile, n, 4, classes=True) for n in (500, 5000)] == [0.05, 0.1]
    assert rate_of(profile._replace(learning_rate=0.3), 500, 4) == 0.3
    grown = profile._replace(tree_depth=6)
    assert [rate_of(grown, n, k) for n in (500, 5000) for k in (1, 2)] == pytest.approx([0.05, 0.1, 0.15, 0.3])
    assert rate_of(grown, 5000, 2, classes=True) == pytest.approx(0.15)


@pytest.mark.parametrize("value", [0, -1, 1.5, "many", True, 1001])
def test_other_numbers_of_chains_are_refused(value):
    with pytest.raises(ValueError, match="n_chains"):
        VPBoostRegressor(n_chains=value).fit(X, Y)


def test_files_hold_all_chains(tmp_path):
    model = VPBoostRegressor(**FIXED, n_chains=3).fit(X, Y)
    path = tmp_path / "model.vpboost"
    model.save_model(path)
    loaded = load_model(path)
    assert (loaded.n_chains_, loaded.best_iteration_) == (3, model.best_iteration_)
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    np.testing.assert_allclose(Predictor(path).predict(X), model.predict(X), atol=1e-5)
    again = tmp_path / "again.vpboost"
    loaded.save_model(again)
    assert again.read_bytes() == path.read_bytes()


def test_onnx_files_hold_all_chains(tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    from vpboost.export import to_onnx

    model = VPBoostRegressor(**FIXED, n_chains=2).fit(X, Y)
    to_onnx(model, tmp_path / "model.onnx")
    session = runtime.InferenceSession(str(tmp_path / "model.onnx"))
    (found,) = session.run(None, {session.get_inputs()[0].name: X.astype(np.float32)})
    np.testing.assert_allclose(np.ravel(found), model.predict(X), atol=1e-4)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda content, arrays: content.update(others=[3, 10**6]), "others"),
        (lambda content, arrays: content.update(others=[-1, 2]), "chains of"),
        (lambda content, arrays: content.update(others=[]), "chains of"),
        (lambda content, arrays: content.update(others="two"), "others"),
        (lambda content, arrays: arrays.pop("others.constant"), "others.constant"),
        (lambda content, arrays: arrays["others.weights"].fill(np.nan), "others.weights"),
        (lambda content, arrays: content.pop("others"), "do not belong"),
    ],
)
def test_files_with_chains_that_make_no_sense_are_refused(tmp_path, change, fault):
    path = tmp_path / "model.vpboost"
    VPBoostRegressor(**FIXED, n_chains=3).fit(X, Y).save_model(path)
    content, arrays = unpack(path.read_bytes(), "a file")
    change(content, arrays)
    path.write_bytes(pack(content, arrays))
    with pytest.raises(ModelFileError, match=fault):
        load_model(path)


def test_a_fit_that_goes_on_makes_the_other_chains_anew(tmp_path):
    whole = VPBoostRegressor(**FIXED, n_chains=3).fit(X, Y)
    warm = VPBoostRegressor(**{**FIXED, "n_estimators": 5}, n_chains=3, warm_start=True).fit(X, Y)
    np.testing.assert_array_equal(warm.set_params(n_estimators=12).fit(X, Y).predict(X), whole.predict(X))
    path = tmp_path / "checkpoint"
    kept = [Checkpoint(path, every=1), lambda progress: progress.stage == 4]
    VPBoostRegressor(**FIXED, n_chains=3, callbacks=kept).fit(X, Y)
    resumed = VPBoostRegressor(**FIXED, n_chains=3).fit(X, Y, resume_from=path)
    np.testing.assert_array_equal(resumed.predict(X), whole.predict(X))
    with pytest.raises(ValueError, match="n_chains cannot change while resume_from"):
        VPBoostRegressor(**FIXED, n_chains=2).fit(X, Y, resume_from=path)  # it might mean another boosting rate


def test_callbacks_watch_the_first_chain_and_may_end_the_fit():
    stages = []
    note = [lambda progress: stages.append(progress.stage)]
    watched = VPBoostRegressor(**FIXED, n_chains=3, callbacks=note).fit(X, Y)
    assert stages == list(range(watched.n_iter_))
    assert watched.n_chains_ == 3
    ended = VPBoostRegressor(**FIXED, n_chains=3, callbacks=[lambda progress: progress.stage == 2]).fit(X, Y)
    assert (ended.n_iter_, ended.n_chains_) == (3, 1)
    assert VPBoostRegressor(**FIXED, n_chains=3, callbacks=[TimeBudget(1e-6)]).fit(X, Y).n_chains_ == 1
    own = {**FIXED, "early_stopping_rounds": None}
    stopping = VPBoostRegressor(**own, n_chains=3, callbacks=[EarlyStopping(2)])
    assert stopping.fit(X[60:], Y[60:], X_val=X[:60], y_val=Y[:60]).n_chains_ == 3


def test_a_time_budget_ends_the_chains():
    class Late(TimeBudget):
        def after_stage(self, progress):
            return False  # the first chain may end

    model = VPBoostRegressor(**FIXED, n_chains=50, callbacks=[Late(1e-3)]).fit(X, Y)
    assert model.n_chains_ == 1
    assert np.isfinite(model.predict(X)).all()


def test_ctrl_c_keeps_the_chains_that_are_done():
    main, calls = threading.main_thread(), []

    def interrupting(y_true, y_pred):
        if threading.current_thread() is not main:
            calls.append(1)
            if len(calls) == 30:  # chains have 12 stages at the most
                os.kill(os.getpid(), signal.SIGINT)
        return float(np.mean((y_true - y_pred) ** 2))

    # NumPy boosts one chain after the other, so that the first is done by then
    options = {**FIXED, "early_stopping_rounds": 12, "engine": "numpy"}
    model = VPBoostRegressor(**options, n_chains=9, eval_metric=interrupting)
    with pytest.warns(UserWarning, match=r"interrupted after \d of 9 chains; the model of those"):
        model.fit(X, Y)
    assert 2 <= model.n_chains_ <= 4
    assert np.isfinite(model.predict(X)).all()


def test_a_second_chain_learns_from_all_rows(tmp_path):
    model = VPBoostRegressor(**FIXED, n_chains=2, refit_full=True).fit(X, Y)
    stages = int(np.argmin(model.evals_result_["validation"])) + 1
    encoded = model.input_encoder_.transform(X)
    assert model.n_chains_ == 1
    assert model.best_score_ == min(model.evals_result_["validation"])
    first = model.boosted_.ensemble.truncate(model.best_iteration_).predict(encoded)
    assert np.abs(first - model.ensemble_.predict(encoded)).max() > 1e-3  # the first is not part of it
    # c0 is the mean of all targets, in the scale of the rows that the first learnt from
    np.testing.assert_allclose(model.ensemble_.constant, model.target_scaler_.transform(Y[:, None]).mean(), atol=1e-6)
    assert model.ensemble_.n_learners <= stages
    model.save_model(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    np.testing.assert_allclose(Predictor(tmp_path / "model").predict(X), model.predict(X), atol=1e-5)
    assert loaded.n_chains_ == 1


@pytest.mark.slow
@pytest.mark.long
def test_the_second_chain_does_not_depend_on_how_far_it_came_before_the_first_ended():
    options = {**FIXED, "engine": "xla", "n_chains": 2, "refit_full": True}
    quick = VPBoostRegressor(**options).fit(X, Y)
    slow = VPBoostRegressor(**options, callbacks=[lambda progress: time.sleep(0.2)]).fit(X, Y)
    np.testing.assert_array_equal(slow.predict(X), quick.predict(X))
    kept = int(np.argmin(slow.evals_result_["validation"])) + 1
    assert kept < slow.n_iter_  # it could have gone farther
    by_numpy = VPBoostRegressor(**{**options, "engine": "numpy"}).fit(X, Y)  # which takes one after the other
    assert by_numpy.ensemble_.n_learners == quick.ensemble_.n_learners == kept


@pytest.mark.parametrize("refit_full", [False, True])
def test_an_error_in_the_first_chain_ends_the_others(refit_full):
    def fail(progress):
        if progress.stage == 2:
            raise ZeroDivisionError("on purpose")

    before = threading.active_count()
    options = {**FIXED, "n_estimators": 500, "early_stopping_rounds": 500, "engine": "xla"}
    with pytest.raises(ZeroDivisionError, match="on purpose"):
        VPBoostRegressor(**options, n_chains=3, refit_full=refit_full, callbacks=[fail]).fit(X, Y)
    assert threading.active_count() == before


def test_chains_that_are_done_before_the_first_is_cut_short_do_not_count(tmp_path):
    def end_late(progress):
        time.sleep(1)
        return progress.stage == 1

    options = {**FIXED, "n_estimators": 3, "engine": "xla", "n_chains": 3}
    model = VPBoostRegressor(**options, callbacks=[end_late]).fit(X, Y)
    assert (model.n_iter_, model.n_chains_) == (2, 1)
    nothing = VPBoostRegressor(**options).fit(X, np.zeros(len(X)))  # to be learnt
    assert (nothing.ensemble_.n_learners, nothing.n_chains_) == (0, 1)
    nothing.save_model(tmp_path / "model")
    assert load_model(tmp_path / "model").predict(X).tolist() == [0.0] * len(X)


def test_ctrl_c_in_the_first_chain_ends_the_others():
    def interrupt(progress):
        if progress.stage == 3:
            os.kill(os.getpid(), signal.SIGINT)

    options = {**FIXED, "n_estimators": 500, "early_stopping_rounds": 500, "engine": "xla"}
    with pytest.warns(UserWarning, match="interrupted after 4 stages; the model of those"):
        model = VPBoostRegressor(**options, n_chains=3, callbacks=[interrupt]).fit(X, Y)
    assert model.n_chains_ == 1


def test_validation_data_that_are_given_are_not_trained_on():
    fit = {"X_val": X[:60], "y_val": Y[:60]}
    model = VPBoostRegressor(**FIXED, refit_full=True).fit(X[60:], Y[60:], **fit)
    plain = VPBoostRegressor(**FIXED, n_chains=1).fit(X[60:], Y[60:], **fit)
    np.testing.assert_array_equal(model.predict(X), plain.predict(X))
    with pytest.raises(ValueError, match="refit_full must be 'auto', True or False, got 'no'"):
        VPBoostRegressor(refit_full="no").fit(X, Y)


def test_large_validation_data(monkeypatch):
    whole = VPBoostRegressor(**FIXED, n_chains=2).fit(X[:100], Y[:100], X_val=X[100:], y_val=Y[100:])
    for module in (encoder, table_rows, parts, base):
        monkeypatch.setattr(module, "MANY_ROWS", 120)
    in_parts = VPBoostRegressor(**FIXED, n_chains=2).fit(X[:100], Y[:100], X_val=X[100:], y_val=Y[100:])
    np.testing.assert_allclose(in_parts.best_score_, whole.best_score_, rtol=1e-3)


def test_a_chain_whose_rows_have_no_score_is_left_out():
    y = np.zeros(len(X), int)
    y[:8] = 1
    for seed in range(4):
        options = {**FIXED, "n_estimators": 2, "eval_metric": "auc", "random_state": seed}
        try:
            VPBoostClassifier(**options, n_chains=1).fit(X, y)
        except ValueError:
            continue  # the first has none either
        assert 1 <= VPBoostClassifier(**options, n_chains=4).fit(X, y).n_chains_ <= 4


@pytest.mark.parametrize(
    "change",
    [
        lambda content, arrays: content.update(with_first=10**400),
        lambda content, arrays: content.update(others=10**30),
        lambda content, arrays: content.update(others=[], with_first=False),
        lambda content, arrays: arrays.update({"others.constant": np.zeros((1, 10**6), np.float32)}),
    ],
)
def test_the_summary_of_a_hostile_file(tmp_path, change):
    path = tmp_path / "model.vpboost"
    VPBoostRegressor(**FIXED, n_chains=2).fit(X, Y).save_model(path)
    content, arrays = unpack(path.read_bytes(), "a file")
    assert "chains:        2," in summary_of(content, arrays)
    change(content, arrays)
    with contextlib.suppress(CommandError):
        assert len(summary_of(content, arrays)) < 3000
    path.write_bytes(pack(content, arrays))
    with pytest.raises(ModelFileError):
        load_model(path)
