"""Callbacks: objects called after every stage of a fit, which may end it.

A callback is any object with ``after_stage(progress) -> bool | None``; returning True ends the fit. ``progress`` is a
:class:`Progress`. To write your own:

>>> class Quiet:
...     def after_stage(self, progress):
...         return progress.record.loss < 1e-6
"""

import logging
import math
import sys
import time
import warnings
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress

from .boosting import Record, Stage
from .checkpoint import write_checkpoint
from .files.atomic import file_name


class Progress(NamedTuple):
    """What a callback sees."""

    stage: Stage
    n_estimators: int
    score: float  #: the validation score that early stopping watches (lower is better); NaN without validation data
    facts: dict[str, Any]  #: what a checkpoint has to know about the fit

    @property
    def record(self) -> Record:
        """The stage's entry of the history."""
        return self.stage.record


class EarlyStopping:
    """Stop when the validation score has not improved for ``rounds`` stages.

    Parameters
    ----------
    rounds : int
        Stages to wait for an improvement.
    min_delta : float, default=0.0
        How much lower a score must be to count as an improvement.
    """

    def __init__(self, rounds: int, min_delta: float = 0.0):
        self.rounds = rounds
        self.min_delta = min_delta
        self.best_score_ = math.inf
        self.best_stage_ = -1

    def after_stage(self, progress: Progress) -> bool:
        """Watch the score."""
        return self.see(progress.record.stage, progress.score)

    def see(self, stage: int, score: float) -> bool:
        """Take note of a stage's score; return True when it is time to stop."""
        if math.isnan(score) and stage == 0:
            raise ValueError("early stopping needs a validation score, got NaN: give X_val and y_val to fit")
        if stage == 0:  # a new fit
            self.best_score_, self.best_stage_ = math.inf, -1
        if score < self.best_score_ - self.min_delta:
            self.best_score_, self.best_stage_ = score, stage
        return stage - self.best_stage_ >= self.rounds


class TimeBudget:
    """Stop after the first stage that ends more than ``seconds`` after the fit's first stage began."""

    def __init__(self, seconds: float):
        if not seconds > 0:
            raise ValueError(f"seconds must be positive, got {seconds!r}")
        self.seconds = seconds

    def after_stage(self, progress: Progress) -> bool:
        """Watch the clock."""
        if progress.record.stage == 0 or not hasattr(self, "deadline_"):
            self.deadline_ = time.monotonic() - progress.record.seconds + self.seconds
        return time.monotonic() >= self.deadline_


class Logger:
    """Write one line per stage to Python's ``logging``, logger "vpboost"."""

    def __init__(self, level: int = logging.INFO):
        self.level = level

    def after_stage(self, progress: Progress) -> None:
        """Log the stage."""
        logging.getLogger("vpboost").log(self.level, describe(progress))


class Checkpoint:
    """Write the state of the fit to a file now and then; ``fit(..., resume_from=path)`` goes on from it.

    A fit that was killed and resumed with the same data and settings ends in the same model, bit for bit. A file that
    cannot be written (the disk is full, the folder is gone) does not end the fit: a warning says so, once for each
    reason, and the next one that is due is tried again.

    Parameters
    ----------
    path : str or Path
        The file, replaced at every write; a crash while writing leaves the previous one.
    every : int, default=10
        Write after so many stages.
    seconds : float, optional
        Write also when so much time has passed since the last write.
    """

    def __init__(self, path: Any, every: int = 10, seconds: float | None = None):
        if isinstance(every, bool) or not isinstance(every, int | np.integer) or every < 1:
            raise ValueError(f"every must be a whole number of at least 1, got {every!r}")
        if seconds is not None and not seconds > 0:
            raise ValueError(f"seconds must be positive, got {seconds!r}")
        file_name(path)  # raises an error for what is none
        self.path = path
        self.every = every
        self.seconds = seconds
        self._tried = time.monotonic()
        self._failures: set[Any] = set()

    def after_stage(self, progress: Progress) -> None:
        """Write, if it is time to."""
        waited = self.seconds is not None and time.monotonic() - self._tried >= self.seconds
        if waited or (progress.record.stage + 1) % self.every == 0:
            try:
                write_checkpoint(self.path, progress.stage.boosted, progress.facts)
            except (OSError, TypeError, ValueError) as error:
                self._warn(error, progress.record.stage)
            self._tried = time.monotonic()

    def _warn(self, error: Exception, stage: int) -> None:
        """Say why a checkpoint cannot be written, unless that was said before."""
        reason = type(error), getattr(error, "errno", None)
        if reason not in self._failures:
            self._failures.add(reason)
            what = f"no checkpoint after stage {stage}, the fit goes on without: {error}"
            warnings.warn(what, UserWarning, stacklevel=3)


class OptunaPruning:
    """Report the validation score to an Optuna trial and prune it when Optuna says so."""

    def __init__(self, trial: Any):
        self.trial = trial

    def after_stage(self, progress: Progress) -> None:
        """Report, and raise ``optuna.TrialPruned`` if the trial is hopeless."""
        import optuna

        self.trial.report(progress.score, progress.record.stage)
        if self.trial.should_prune():
            raise optuna.TrialPruned(f"pruned after stage {progress.record.stage}")


class ProgressDisplay:
    """A progress bar in a terminal or notebook; plain lines, ten at the most, when the output is a pipe or a file."""

    def __init__(self) -> None:
        self._bar: RichProgress | None = None

    def after_stage(self, progress: Progress) -> None:
        """Show the stage."""
        console = Console(file=sys.stderr)
        if not (console.is_terminal or console.is_jupyter):
            every = max(progress.n_estimators // 10, 1)
            if progress.record.stage % every == 0:
                print(describe(progress), file=sys.stderr)
            return
        if self._bar is None:
            columns = BarColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), TimeRemainingColumn()
            self._bar = RichProgress(*columns, console=console)
            self._bar.start()
            self._task = self._bar.add_task("", total=progress.n_estimators)
        self._bar.update(self._task, completed=progress.record.stage + 1, description=describe(progress))

    def close(self) -> None:
        """End the display; the estimator calls this when the fit ends, however it ends."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def describe(progress: Progress) -> str:
    """Return one line about a stage."""
    record = progress.record
    score = "" if math.isnan(progress.score) else f", validation {progress.score:.4g}"
    verdict = "" if record.accepted else ", rejected"
    return (
        f"stage {record.stage + 1} of {progress.n_estimators}: loss {record.loss:.4g}{score}, ρ {record.ratio:.2f}, "
        f"λ {record.reg_lambda:.1e}{verdict}"
    )
