import logging

import numpy as np
import pytest

from vpboost import VPBoostRegressor
from vpboost.callbacks import EarlyStopping, Logger, OptunaPruning, ProgressDisplay, TimeBudget

X = np.random.default_rng(0).uniform(-1, 1, size=(80, 2))
Y = np.sin(3 * X[:, 0]) * X[:, 1]
QUICK = {"n_estimators": 8, "max_steps": 5, "width": 3, "encoding": "plain", "inherit": 0.0, "max_features": 1.0}


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
    model = VPBoostRegressor(**QUICK, callbacks=[recorder]).fit(X, Y, X_val=X[:20], y_val=Y[:20])
    assert [p.record.stage for p in recorder.seen] == [0, 1, 2, 3]
    assert [p.score for p in recorder.seen] == model.evals_result_["validation"]
    assert recorder.seen[0].n_estimators == 8
    assert model.n_iter_ == 4


def test_ctrl_c_leaves_a_usable_model_and_a_warning():
    model = VPBoostRegressor(**QUICK, callbacks=[Recorder(raise_at=2)])
    with pytest.warns(UserWarning, match="fit interrupted after 3 stages"):
        model.fit(X, Y)
    assert model.n_iter_ == 3
    assert np.all(np.isfinite(model.predict(X)))


def test_early_stopping_counts_stages_without_improvement():
    scores = [5.0, 4.0, 4.5, 4.2, 3.9, 4.0, 4.1, 4.2]
    stopping = EarlyStopping(rounds=3)

    class Fake:
        def __init__(self, stage, score):
            self.record = type("R", (), {"stage": stage})
            self.score = score

    answers = [stopping.after_stage(Fake(k, score)) for k, score in enumerate(scores)]
    assert answers == [False] * 7 + [True]
    assert (stopping.best_stage_, stopping.best_score_) == (4, 3.9)


def test_time_budget_ends_the_fit():
    model = VPBoostRegressor(**{**QUICK, "n_estimators": 500}, callbacks=[TimeBudget(seconds=0.5)]).fit(X, Y)
    assert 1 <= model.n_iter_ < 500


def test_logger_writes_a_line_a_stage(caplog):
    with caplog.at_level(logging.INFO, logger="vpboost"):
        VPBoostRegressor(**QUICK, callbacks=[Logger()]).fit(X, Y)
    assert len(caplog.records) == 8
    assert caplog.records[0].message.startswith("stage 1 of 8: loss ")


def test_optuna_pruning():
    optuna = pytest.importorskip("optuna", reason="the tuning extra is not installed")
    trial = optuna.create_study().ask()
    trial.should_prune = lambda: True
    with pytest.raises(optuna.TrialPruned):
        VPBoostRegressor(**QUICK, callbacks=[OptunaPruning(trial)]).fit(X, Y, X_val=X, y_val=Y)


def test_progress_is_a_few_plain_lines_in_a_pipe(capsys):
    VPBoostRegressor(**{**QUICK, "n_estimators": 30}, verbose=1).fit(X, Y)
    printed = capsys.readouterr()
    assert printed.out == ""
    lines = printed.err.strip().splitlines()
    assert len(lines) == 10
    assert "of 30: loss" in lines[0]


def test_progress_is_a_bar_in_a_terminal(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    VPBoostRegressor(**QUICK, verbose=1).fit(X, Y)
    assert "stage 8 of 8" in capsys.readouterr().err
    ProgressDisplay().close()  # closing what never began is fine


def test_callbacks_must_have_the_method():
    with pytest.raises(TypeError, match="callbacks must have a method after_stage, got int"):
        VPBoostRegressor(callbacks=[3]).fit(X, Y)
