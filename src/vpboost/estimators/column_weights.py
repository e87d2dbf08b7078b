"""Weights of columns: how strongly a response depends on each, by which scaled columns count more or less."""

import jax
import numpy as np

from ..core.data import evenly_spaced
from ..core.ensemble import mean_squared_slopes
from ..engine import using
from ..numerics.lengths import Process
from ..tables.encoder import InputEncoder
from .run import Run
from .slopes import strengths

#: The fewest columns that are weighed, rows that tell their weights by derivatives, and the least weight.
LEAST_COLUMNS, WEIGHING_ROWS, LEAST_WEIGHT = 4, 512, 1e-3


def process_weights(process: Process | None, run: Run) -> np.ndarray | None:
    """Return the weights of numeric columns by a process (see ``weights_of``), if the run's profile wants some."""
    encoder = run.plan.encoder
    if process is None or not run.plan.profile.relevance or not may_weigh(encoder):
        return None
    return beside_largest(process.inverse_lengths[: len(encoder.numeric_)])


def slope_weights(run: Run) -> np.ndarray | None:
    """Return the weights of numeric columns by slopes observed."""
    encoder = run.plan.encoder
    strength = strengths(run.train.slopes, len(encoder.numeric_)) if may_weigh(encoder) else None
    return None if strength is None else beside_largest(strength)


def weights_of(run: Run) -> np.ndarray | None:
    """Return the weights of numeric columns: how strongly predictions depend on each, beside the strongest.

    None where weights are of no use: few columns, or columns that enter in other ways, too.
    """
    encoder, boosted = run.plan.encoder, run.boosted
    if boosted is None or not boosted.ensemble.n_learners or not may_weigh(encoder):
        return None
    rows = np.asarray(evenly_spaced(run.train.inputs, WEIGHING_ROWS), run.plan.dtype)
    with jax.enable_x64(rows.dtype == np.float64), using(run.plan.engine):
        squares = mean_squared_slopes(boosted.ensemble, jax.device_put(np.ascontiguousarray(rows.T)))
        strength = np.sqrt(np.asarray(squares)) * rows.std(axis=0)
    return beside_largest(strength[: len(encoder.numeric_)]) if np.isfinite(strength).all() else None


def may_weigh(encoder: InputEncoder) -> bool:
    """Say whether weights of columns are of use: not for few columns, nor where columns enter in other ways, too."""
    return not encoder.extras_ and len(encoder.numeric_) >= LEAST_COLUMNS


def beside_largest(strength: np.ndarray) -> np.ndarray | None:
    """Return weights of columns; None where none depends on any."""
    return np.maximum(strength / strength.max(), LEAST_WEIGHT) if strength.max() > 0 else None
