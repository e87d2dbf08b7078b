"""Whether a response has noise, as a Gaussian process of some of the rows sees it, and what runs leave unexplained."""

import numpy as np

from ..core.data import evenly_spaced
from ..engine import using
from ..losses import Observed, SquaredError
from ..numerics.lengths import MOST_ROWS, Process, likeliest_process
from ..tables.rows import take
from .parts import Part
from .portfolio import HOPELESS
from .run import Run

#: A response is taken for noisy where the process finds more noise than the first of these parts, and leaves more
#: unexplained than the second part of what the best profile of a race does.
LITTLE_NOISE, MUCH_BETTER = 3e-3, 0.6
#: Where it finds more noise than this part of what that profile leaves, there is hardly anything else to learn.
NEARLY_ALL = 0.7
#: With more noise than this, a smooth profile that is behind stays behind.
HINT_OF_NOISE = 3e-4
#: Noise is heard where it is more than the first part of the variance, and than the second of what the process leaves.
SOME_NOISE = 5e-5, 0.2
#: With fewer training rows, validation data are too few to tell a response without noise.
LEAST_SMOOTH_ROWS = 80


def unexplained(run: Run) -> float:
    """Return the part of the validation targets' variance that a run of squared error has not explained."""
    losses = [record.validation_loss for record in run.boosted.history] if run.boosted is not None else []
    return 2 * min(losses, default=np.inf) / (1.0 if run.held_out is None else variance_of(run.held_out))


def variance_of(part: Part) -> float:
    """Return the mean square of targets, added up over outputs."""
    target = np.asarray(part.scaled)
    if np.isnan(target).any():  # the loss, too, is a mean over rows of the observed ones
        return max(float(np.nansum(target**2)) / len(target), 1e-300)
    return max(float(np.mean(target**2)) * (target.size / len(target)), 1e-300)


def is_noisy(process: Process | None, others: float) -> bool:
    """Say whether a process shows noise, and does not explain much more than others, which leave this part."""
    return process is not None and sees_noise(process) and process.unexplained > MUCH_BETTER * others


def is_nearly_all(process: Process | None, others: float) -> bool:
    """Say whether what others leave is nearly all noise, as a process sees it."""
    return process is not None and process.noise > NEARLY_ALL * others


def is_hopeless(process: Process | None, pilot: float, others: float) -> bool:
    """Say whether the whole fit of a smooth profile would be in vain, by what its pilot and others' whole fit leave.

    Where there is no noise at all, it may still be far better: its learners go on to learn what pilots leave.
    """
    return process is not None and process.noise > HINT_OF_NOISE and pilot > HOPELESS * others


def hears_noise(process: Process | None) -> bool:
    """Say whether noise is a good part of what a process leaves unexplained: more training would only learn it."""
    return process is not None and process.noise > max(SOME_NOISE[0], SOME_NOISE[1] * process.unexplained)


def sees_noise(process: Process | None) -> bool:
    """Say whether a process shows noise."""
    return process is not None and process.noise > LITTLE_NOISE


def process_of(run: Run) -> Process | None:
    """Return the likeliest Gaussian process of the targets of a run of squared error; None for other losses.

    Of targets with holes, it is that of the rows without; None if those are few.
    """
    loss, (inputs, target, _) = run.plan.loss, run.train.learnt
    if isinstance(loss, Observed):
        whole = np.flatnonzero(~np.isnan(target).any(axis=1))
        if len(whole) < LEAST_SMOOTH_ROWS:
            return None
        loss, inputs, target = loss.loss, take(inputs, whole), target[whole]
    if not isinstance(loss, SquaredError):
        return None
    x, y = (np.asarray(evenly_spaced(part, MOST_ROWS)) for part in (inputs, target))
    with using("numpy"):
        return likeliest_process(x, y)
