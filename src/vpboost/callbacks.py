"""Callbacks: functions and objects called after every stage of a fit, which may end it.

A callback is a function of one argument, or an object with such a method ``after_stage``. It returns True to end the
fit, and False or None to go on. What it is given is a :class:`Progress`:

=================  =====================================================================================================
``stage``          number of the stage, from 0
``n_estimators``   how many stages the fit may have
``score``          the validation score that early stopping watches, lower is better; NaN without validation data
``record``         the stage's entry of the history: ``record.loss``, ``record.accepted``, ``record.seconds`` and more
``seconds``        time since the stages of this fit began
``ensemble``       the learners that there are now, for inputs as the learners see them
``state``          where the boosting loop stands, for what the others do not tell; it may change between versions
``facts``          what a checkpoint has to know about the fit; it may change between versions
=================  =====================================================================================================

A function that prints, and one that ends the fit:

>>> import numpy as np
>>> from vpboost import VPBoostRegressor
>>> def tell(progress):
...     print(f"stage {progress.stage} of {progress.n_estimators}")
>>> X = np.linspace(-1, 1, 50)[:, None]
>>> model = VPBoostRegressor(n_estimators=9, max_steps=2, callbacks=[tell, lambda progress: progress.stage == 1])
>>> model.fit(X, X[:, 0]).n_iter_
stage 0 of 9
stage 1 of 9
2
"""

import contextlib
import logging
import math
import sys
import threading
import time
import warnings
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.errors import LiveError
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress

from .checks import check_count, is_number
from .core.ensemble import Ensemble
from .core.records import Record, Stage
from .files.atomic import file_name
from .files.checkpoint import write_checkpoint


class Progress(NamedTuple):
    """What a callback sees."""

    state: Stage  #: where the boosting loop stands, for what the others do not tell; it may change between versions
    n_estimators: int  #: how many stages the fit may have
    score: float  #: the validation score that early stopping watches, lower is better; NaN without validation data
    facts: dict[str, Any]  #: what a checkpoint has to know about the fit; it may change between versions
    seconds: float  #: time since the stages of this fit began

    @property
    def stage(self) -> int:
        """Number of the stage, from 0."""
        return self.state.record.stage

    @property
    def record(self) -> Record:
        """The stage's entry of the history."""
        return self.state.record

    @property
    def ensemble(self) -> Ensemble:
        """The learners that there are now."""
        return self.state.ensemble

    def __repr__(self) -> str:
        return f"Progress({describe(self)})"  # all its content would be pages of numbers


def check_callbacks(callbacks: Any) -> None:
    """Raise ``TypeError`` if a parameter ``callbacks`` is not None or a list of functions and objects to call."""
    if callbacks is None:
        return
    if not isinstance(callbacks, list | tuple):
        raise TypeError(f"callbacks must be a list, got {name_of(callbacks)}; put a single callback in brackets: [...]")
    for callback in callbacks:
        if isinstance(callback, type):
            name = callback.__name__
            raise TypeError(f"callbacks must hold objects, got the class {name}; make one of it: {name}(...)")
        if not callable(getattr(callback, "after_stage", callback)):
            raise TypeError(f"callbacks must be functions or have a method after_stage, got {name_of(callback)}")


def ends_fit(callback: Any, progress: Progress) -> bool:
    """Call a callback and return whether it wants the fit to end."""
    answer = getattr(callback, "after_stage", callback)(progress)
    if answer is None:
        return False
    # a number is more likely what a function happened to return than a wish to end the fit
    if np.ndim(answer) or np.asarray(answer).dtype != bool:
        raise TypeError(
            f"a callback must return True to end the fit, else False or None; {name_of(callback)} returned {answer!r}"
        )
    return bool(answer)


def name_of(callback: Any) -> str:
    """Return what to call a callback in a message: a function's name, or an object's class."""
    return str(getattr(callback, "__qualname__", type(callback).__name__))


class EarlyStopping:
    """Stop when the validation score has not improved for ``rounds`` stages.

    Parameters
    ----------
    rounds : int
        Stages to wait for an improvement.
    min_delta : float, default=0.0
        How much lower a score must be to count as an improvement.
    min_gain : float, default=0.0
        The same as a part of the best score so far, in [0, 1).

    Attributes
    ----------
    best_score_, best_stage_ : float, int
        The best score of the last fit, and the number of its stage.
    """

    def __init__(self, rounds: int, min_delta: float = 0.0, min_gain: float = 0.0):
        check_count("rounds", rounds)
        if not is_number(min_gain) or not 0 <= min_gain < 1:
            raise ValueError(f"min_gain must be in [0, 1), got {min_gain!r}")
        if not is_number(min_delta) or not 0 <= min_delta < math.inf:
            raise ValueError(f"min_delta must be a finite number of at least 0, got {min_delta!r}")
        self.rounds = rounds
        self.min_delta = min_delta
        self.min_gain = min_gain
        self.best_score_ = math.inf
        self.best_stage_ = -1
        self._last = -1

    def after_stage(self, progress: Progress) -> bool:
        """Watch the score."""
        return self.see(progress.stage, progress.score)

    def see(self, stage: int, score: float) -> bool:
        """Take note of a stage's score; return True when it is time to stop."""
        if stage == 0 or stage != self._last + 1:  # another fit than the one before, or than one that goes on
            if math.isnan(score):
                raise ValueError("early stopping needs a validation score, got NaN: give X_val and y_val to fit")
            self.best_score_, self.best_stage_ = math.inf, stage - 1
        self._last = stage
        gain = self.min_gain * abs(self.best_score_) if math.isfinite(self.best_score_) else 0.0
        if score < self.best_score_ - max(self.min_delta, gain):
            self.best_score_, self.best_stage_ = score, stage
        return stage - self.best_stage_ >= self.rounds


class TimeBudget:
    """Stop after the first stage that ends more than ``seconds`` after the stages of the fit began."""

    def __init__(self, seconds: float):
        if not is_number(seconds) or not seconds > 0:
            raise ValueError(f"seconds must be a positive number, got {seconds!r}")
        self.seconds = seconds

    def after_stage(self, progress: Progress) -> bool:
        """Watch the clock."""
        return progress.seconds >= self.seconds


class Logger:
    """Write one line per stage to Python's ``logging``, logger "vpboost".

    Parameters
    ----------
    level : int or str, default=logging.INFO
        Level of the lines, or its name, such as "DEBUG".
    """

    def __init__(self, level: int | str = logging.INFO):
        names = logging.getLevelNamesMapping()
        known = level in names if isinstance(level, str) else is_number(level) and level == int(level) >= 0
        if not known:
            raise ValueError(f"level must be one of {', '.join(map(repr, names))} or a number from 0, got {level!r}")
        self.level = level

    def after_stage(self, progress: Progress) -> None:
        """Log the stage."""
        level = logging.getLevelNamesMapping()[self.level] if isinstance(self.level, str) else int(self.level)
        logging.getLogger("vpboost").log(level, describe(progress))


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
        check_count("every", every)
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
                write_checkpoint(self.path, progress.state.boosted, progress.facts)
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
    """Report the validation score to an Optuna trial and prune it when Optuna says so, which ignores NaN."""

    def __init__(self, trial: Any):
        self.trial = trial

    def after_stage(self, progress: Progress) -> None:
        """Report, and raise ``optuna.TrialPruned`` if the trial is hopeless."""
        try:
            import optuna
        except ImportError as error:
            raise ImportError("pruning needs optuna: pip install 'vpboost[tuning]'") from error
        if progress.state.validation_prediction is None:
            raise ValueError("pruning needs a validation score: give X_val and y_val to fit")
        self.trial.report(float(progress.score), progress.stage)
        if self.trial.should_prune():
            raise optuna.TrialPruned(f"pruned after stage {progress.stage}")


#: Held by the display that shows a bar: a terminal has room for one, others print lines.
_bar_shown = threading.Lock()


class ProgressDisplay:
    """A progress bar in a terminal or notebook; plain lines, ten at the most, when the output is a pipe or a file.

    While another fit of the process shows its bar, or the program a display of its own, there are plain lines, too.
    """

    def __init__(self) -> None:
        self._bar: RichProgress | None = None
        self._lines = False

    def after_stage(self, progress: Progress) -> None:
        """Show the stage."""
        if self._bar is None and not self._lines:
            self._begin(progress.n_estimators)
        if self._bar is not None:
            self._bar.update(self._task, completed=progress.stage + 1, description=describe(progress))
        elif progress.stage % -(-progress.n_estimators // 10) == 0:
            with contextlib.suppress(OSError):  # a display that cannot be seen must not end the fit
                print(describe(progress), file=sys.stderr)

    def _begin(self, n_estimators: int) -> None:
        """Start a bar, if this is the place for one."""
        console = Console(file=sys.stderr)
        self._lines = not (console.is_terminal or console.is_jupyter) or not _bar_shown.acquire(blocking=False)
        if self._lines:
            return
        columns = BarColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), TimeRemainingColumn()
        bar = RichProgress(*columns, console=console)
        try:
            bar.start()
        except Exception as error:
            _bar_shown.release()
            if not isinstance(error, LiveError):
                raise
            self._lines = True
            return
        self._bar, self._task = bar, bar.add_task("", total=n_estimators)

    def close(self) -> None:
        """End the display; the estimator calls this when the fit ends, however it ends."""
        bar, self._bar, self._lines = self._bar, None, False
        if bar is not None:
            try:
                bar.stop()
            finally:
                _bar_shown.release()


def describe(progress: Progress) -> str:
    """Return one line about a stage."""
    record = progress.record
    score = "" if math.isnan(progress.score) else f", validation {progress.score:.4g}"
    verdict = "" if record.accepted else ", rejected"
    return (
        f"stage {progress.stage + 1} of {progress.n_estimators}: loss {record.loss:.4g}{score}, ρ {record.ratio:.2f}, "
        f"λ {record.reg_lambda:.1e}{verdict}"
    )
