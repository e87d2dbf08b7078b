import logging
import re
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from rich.errors import LiveError

from models import QUICK
from vpboost import VPBoostRegressor, callbacks
from vpboost.callbacks import EarlyStopping, Logger, OptunaPruning, ProgressDisplay, TimeBudget

X = np.random.default_rng(0).uniform(-1, 1, size=(80, 2))
Y = np.sin(3 * X[:, 0]) * X[:, 1]
EIGHT = {**QUICK, "n_estimators": 8}


class Recorder:
    def __init__(self, stop_at=None, raise_at=None):
        self.seen, self.stop_at, self.raise_at = [], stop_at, raise_at

    def after_stage(self, progress):
        self.seen.append(progress)
        if progress.record.stage == self.raise_at:
            raise KeyboardInterrupt
        return progress.record.stage == self.stop_at


def test_callbacks_see_every_stage_and_can_stop():
    recorder = Recorder(stop_at=3)
    model = VPBoostRegressor(**EIGHT, callbacks=[recorder]).fit(X, Y, X_val=X[:20], y_val=Y[:20])
    assert [p.record.stage for p in recorder.seen] == [0, 1, 2, 3]
    assert [p.score for p in recorder.seen] == model.evals_result_["validation"]
    assert recorder.seen[0].n_estimators == 8
    assert model.n_iter_ == 4


def test_ctrl_c_leaves_a_usable_model_and_a_warning():
    model = VPBoostRegressor(**EIGHT, callbacks=[Recorder(raise_at=2)])
    with pytest.warns(UserWarning, match="fit interrupted after 3 stages"):
        model.fit(X, Y)
    assert model.n_iter_ == 3
    assert np.all(np.isfinite(model.predict(X)))


def test_early_stopping_counts_stages_without_improvement():
    scores = [5.0, 4.0, 4.5, 4.2, 3.9, 4.0, 4.1, 4.2]
    stopping = EarlyStopping(rounds=3)

    class Fake:
        def __init__(self, stage, score):
            self.stage, self.score = stage, score

    answers = [stopping.after_stage(Fake(k, score)) for k, score in enumerate(scores)]
    assert answers == [False] * 7 + [True]
    assert (stopping.best_stage_, stopping.best_score_) == (4, 3.9)


def test_time_budget_ends_the_fit():
    model = VPBoostRegressor(**{**EIGHT, "n_estimators": 500}, callbacks=[TimeBudget(seconds=0.5)]).fit(X, Y)
    assert 1 <= model.n_iter_ < 500


def test_logger_writes_a_line_a_stage(caplog):
    with caplog.at_level(logging.INFO, logger="vpboost"):
        VPBoostRegressor(**EIGHT, callbacks=[Logger()]).fit(X, Y)
    assert len(caplog.records) == 8
    assert caplog.records[0].message.startswith("stage 1 of 8: loss ")


def test_optuna_pruning():
    optuna = pytest.importorskip("optuna", reason="the tuning extra is not installed")
    trial = optuna.create_study().ask()
    trial.should_prune = lambda: True
    with pytest.raises(optuna.TrialPruned):
        VPBoostRegressor(**EIGHT, callbacks=[OptunaPruning(trial)]).fit(X, Y, X_val=X, y_val=Y)


def test_progress_is_a_few_plain_lines_in_a_pipe(capsys):
    VPBoostRegressor(**{**EIGHT, "n_estimators": 30}, n_chains=1, verbose=1).fit(X, Y)
    printed = capsys.readouterr()
    assert printed.out == ""
    lines = printed.err.strip().splitlines()
    assert len(lines) == 10
    assert "of 30: loss" in lines[0]


def test_progress_is_a_bar_in_a_terminal(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    VPBoostRegressor(**EIGHT, verbose=1).fit(X, Y)
    assert "stage 8 of 8" in capsys.readouterr().err
    ProgressDisplay().close()  # closing what never began is fine


def test_callbacks_may_be_plain_functions():
    seen, sizes = [], []

    def measure(progress):
        sizes.append(progress.ensemble.n_learners)
        return np.bool_(progress.stage == 2)

    model = VPBoostRegressor(**EIGHT, callbacks=[seen.append, measure]).fit(X, Y)
    assert model.n_iter_ == 3
    assert [progress.stage for progress in seen] == [0, 1, 2]
    assert sizes == np.cumsum(model.history_["accepted"]).tolist()
    assert 0 < seen[0].seconds < seen[2].seconds
    assert seen[0].record.loss == model.history_["loss"][0]


def test_progress_is_printed_in_a_line(capsys):
    VPBoostRegressor(**EIGHT, callbacks=[print]).fit(X, Y)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 8
    assert lines[0].startswith("Progress(stage 1 of 8: loss ")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (EarlyStopping(3), r"callbacks must be a list, got EarlyStopping; put a single callback in brackets"),
        (lambda progress: None, r"callbacks must be a list, got .*<lambda>; put"),
        ((callback for callback in [print]), "callbacks must be a list, got .*; put"),
        ([EarlyStopping], r"got the class EarlyStopping; make one of it: EarlyStopping\(...\)"),
        ([3], "callbacks must be functions or have a method after_stage, got int"),
        ([lambda progress: 0.5], r"must return True to end the fit, else False or None; .*<lambda> returned 0.5"),
    ],
)
def test_what_is_no_callback_is_refused(given, message):
    with pytest.raises(TypeError, match=message):
        VPBoostRegressor(**EIGHT, callbacks=given).fit(X, Y)


def test_errors_of_callbacks_pass_unchanged_and_the_display_is_closed(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    error, stderr = RuntimeError("disk full"), sys.stderr

    def fail(progress):
        raise error

    with pytest.raises(RuntimeError) as caught:
        VPBoostRegressor(**EIGHT, verbose=1, callbacks=[fail]).fit(X, Y)
    assert caught.value is error
    assert sys.stderr is stderr
    assert not callbacks._bar_shown.locked()


def test_a_display_among_the_callbacks_is_closed_too(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    stderr = sys.stderr
    VPBoostRegressor(**EIGHT, callbacks=[ProgressDisplay()]).fit(X, Y)
    assert sys.stderr is stderr
    assert not callbacks._bar_shown.locked()


def test_of_fits_at_once_one_shows_a_bar_and_the_others_lines(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "150")
    both, stderr = threading.Barrier(2), sys.stderr

    def fit(_):  # each stage of one goes with a stage of the other
        return VPBoostRegressor(**EIGHT, verbose=1, callbacks=[lambda progress: both.wait() < 0]).fit(X, Y).n_iter_

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(fit, range(2))) == [8, 8]
    printed = capsys.readouterr().err
    lines = [line for line in printed.splitlines() if re.fullmatch(r"(\x1b\[2K|\r)*stage \d of 8: .*", line)]
    assert len(lines) == 8
    assert "━" in printed
    assert sys.stderr is stderr


def test_there_are_lines_beside_a_display_that_rich_does_not_share(monkeypatch, capsys):
    def refuse(self):
        raise LiveError("Only one live display may be active at once")

    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr(callbacks.RichProgress, "start", refuse)
    VPBoostRegressor(**EIGHT, n_chains=1, verbose=1).fit(X, Y)
    assert len(capsys.readouterr().err.splitlines()) == 8
    assert not callbacks._bar_shown.locked()


@pytest.mark.parametrize("rounds", [0, -1, 2.5, 2.0, True, "3", None, float("nan")])
def test_rounds_are_checked(rounds):
    with pytest.raises(ValueError, match="rounds must be a whole number of at least 1, got"):
        EarlyStopping(rounds)


def test_improvements_may_have_to_be_a_part_of_the_score():
    stopping = EarlyStopping(2, min_gain=0.1)
    assert [stopping.see(k, score) for k, score in enumerate([1.0, 0.95, 0.89, 0.85, 0.81])] == [False] * 3 + [
        False,
        True,
    ]
    assert (stopping.best_score_, stopping.best_stage_) == (0.89, 2)
    below_zero = EarlyStopping(1, min_gain=0.1)
    assert [below_zero.see(k, score) for k, score in enumerate([-1.0, -1.2, -1.25])] == [False, False, True]
    with pytest.raises(ValueError, match=r"min_gain must be in \[0, 1\), got 1"):
        EarlyStopping(2, min_gain=1)


@pytest.mark.parametrize("delta", [-0.1, float("nan"), float("inf"), "0", None, True])
def test_min_delta_is_checked(delta):
    with pytest.raises(ValueError, match="min_delta must be a finite number of at least 0, got"):
        EarlyStopping(3, delta)


@pytest.mark.parametrize("seconds", ["3", 0, -1.0, float("nan"), None, True])
def test_seconds_are_checked(seconds):
    with pytest.raises(ValueError, match="seconds must be a positive number, got"):
        TimeBudget(seconds)


@pytest.mark.parametrize("level", ["LOUD", "info", None, -1, 1.5, True, [20]])
def test_levels_are_checked(level):
    with pytest.raises(ValueError, match=r"level must be one of 'CRITICAL', .* or a number from 0, got"):
        Logger(level)


def test_levels_may_be_names(caplog):
    with caplog.at_level("DEBUG", logger="vpboost"):
        VPBoostRegressor(**EIGHT, callbacks=[Logger("DEBUG")]).fit(X, Y)
    assert {record.levelno for record in caplog.records} == {logging.DEBUG}


def test_early_stopping_serves_one_fit_after_the_other():
    stopping = EarlyStopping(rounds=2)
    found = []
    for _ in range(2):
        VPBoostRegressor(**EIGHT, callbacks=[stopping]).fit(X, Y, X_val=X, y_val=Y)
        found.append((stopping.best_stage_, stopping.best_score_))
    assert found[0] == found[1]
    stopping = EarlyStopping(rounds=2)
    assert not stopping.see(50, 3.0)  # a fit that goes on from an earlier one
    assert not stopping.see(51, 3.5)
    assert stopping.see(52, 3.1)
    assert not stopping.see(7, 9.0)  # and another one
    with pytest.raises(ValueError, match="early stopping needs a validation score"):
        EarlyStopping(rounds=2).see(50, float("nan"))


def test_early_stopping_needs_validation_data():
    with pytest.raises(ValueError, match="early stopping needs a validation score, got NaN: give X_val and y_val"):
        VPBoostRegressor(**EIGHT, callbacks=[EarlyStopping(2)]).fit(X[:40], Y[:40])


def test_a_time_budget_is_for_each_fit():
    budget = TimeBudget(seconds=60)
    model = VPBoostRegressor(**EIGHT, warm_start=True, callbacks=[budget, lambda progress: progress.stage == 1])
    model.fit(X, Y)
    budget.seconds = 1e-9
    assert model.fit(X, Y).n_iter_ == 3
    budget.seconds = 60
    assert model.set_params(callbacks=[budget]).fit(X, Y).n_iter_ == 8


def test_pruning_needs_validation_data_and_leaves_nan_to_optuna():
    optuna = pytest.importorskip("optuna", reason="the tuning extra is not installed")
    with pytest.raises(ValueError, match="pruning needs a validation score: give X_val and y_val"):
        VPBoostRegressor(**EIGHT, callbacks=[OptunaPruning(optuna.create_study().ask())]).fit(X[:40], Y[:40])
    study = optuna.create_study()
    scores = [0.5, 0.4, float("nan"), *[0.3] * 5]
    trial, coming = study.ask(), iter(scores)
    metric = {"eval_metric": lambda y, prediction: next(coming), "early_stopping_rounds": None}
    VPBoostRegressor(**EIGHT, **metric, callbacks=[OptunaPruning(trial)]).fit(X, Y, X_val=X, y_val=Y)
    np.testing.assert_array_equal(list(study.trials[0].intermediate_values.values()), scores)
