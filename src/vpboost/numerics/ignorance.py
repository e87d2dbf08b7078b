"""What data leave open: the posterior variance of a Gaussian process, scaled by errors that were made.

The correlation is that of :mod:`vpboost.numerics.lengths`, with the likeliest lengths. Given n rows, the process at x
keeps the part v(x) = 1 − kᵀ (C + τ I)⁻¹ k of its variance σ²: next to nothing among the rows, all of it far away. A
model that is not this process may know more, or less, than it does. So ignorance is σ² vᵖ: the power p leaves the order
of places, and what is unknown far away, as they are. Errors of predictions for rows that were not trained on, whose
variance is taken to be noise² + σ² vᵖ, tell p and the noise by their likelihood.
"""

from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, solve_triangular

from .lengths import START, likeliest_process

#: The powers, and parts of the errors' mean square that are noise, of which the likeliest are chosen. A power of one
#: is the likeliest beforehand, one of 2 or 1/2 a spread away.
POWERS = np.exp2(np.linspace(-2, 4, 25))
SHARES = np.array([0.0, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0])
#: No part v is smaller; no row is farther away, in spreads.
LEAST, FARTHEST = 1e-12, 1e6
#: Rows whose variances are computed side by side.
ROWS_AT_ONCE = 4096


class Evidence(NamedTuple):
    """What is kept of a fit to tell what it leaves open."""

    rows: np.ndarray  #: (rows, columns): training rows, then rows that were set aside
    targets: np.ndarray  #: (rows, outputs)
    errors: np.ndarray  #: (rows set aside, outputs): of predictions by learners that have not seen them
    all_seen: bool  #: whether the model itself has seen them


class Ignorance:
    """Noise and ignorance of a model, in the units of its targets."""

    def __init__(self, evidence: Evidence):
        n_trained = len(evidence.rows) - len(evidence.errors)
        trained = evidence.rows[:n_trained]
        self.middle, self.spread = trained.mean(axis=0), positive(trained.std(axis=0))
        x = self._scaled(evidence.rows)
        y, self.unit = standardised(evidence.targets[:n_trained])
        process = likeliest_process(x[:n_trained], y)
        self.inverse_lengths = np.full(x.shape[1], START[0]) if process is None else process.inverse_lengths
        self.nugget = START[1] if process is None else process.nugget
        self._learn(x[:n_trained])
        #: σ², of each output
        self.variance = np.mean(solve_triangular(self.factor, y, lower=True) ** 2, axis=0)
        self.noise, self.power = np.sqrt(self.nugget * self.variance), 1.0
        errors = evidence.errors / self.unit
        if np.isfinite(errors).any():
            self.noise, self.power = likeliest_noise(errors, self._parts(x[n_trained:]), self.variance)
        if evidence.all_seen and len(errors):
            self._learn(x)

    def _scaled(self, rows: np.ndarray) -> np.ndarray:
        """Return rows in units of the spread of each column."""
        return np.clip((rows - self.middle) / self.spread, -FARTHEST, FARTHEST)

    def _learn(self, x: np.ndarray) -> None:
        """Take scaled rows as known."""
        self.known = x * self.inverse_lengths
        correlations = matern(self.known, self.known) + self.nugget * np.eye(len(x))
        self.factor = cho_factor(correlations, lower=True)[0]

    def _parts(self, x: np.ndarray) -> np.ndarray:
        """Return v for scaled rows."""
        across = matern(self.known, x * self.inverse_lengths)
        return np.clip(1 - np.sum(solve_triangular(self.factor, across, lower=True) ** 2, axis=0), LEAST, 1.0)

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """Return the spread of what is not known, (rows, outputs)."""
        starts = range(0, max(len(rows), 1), ROWS_AT_ONCE)
        parts = [self._parts(self._scaled(rows[i : i + ROWS_AT_ONCE])) for i in starts]
        left = np.concatenate(parts)[:, None] ** self.power
        return self.unit * np.sqrt(left * self.variance)

    @property
    def noise_of_outputs(self) -> np.ndarray:
        """The spread of noise, (outputs,)."""
        return self.unit * self.noise


def matern(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the correlations of rows with others, both divided by their lengths."""
    squares = np.sum(a**2, axis=1)[:, None] + np.sum(b**2, axis=1) - 2 * a @ b.T
    r = np.sqrt(5 * np.maximum(squares, 0.0))
    return (1 + r + r**2 / 3) * np.exp(-r)


def likeliest_noise(errors: np.ndarray, parts: np.ndarray, variance: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the noise of each output and the power of all, by the likelihood of errors; NaN are left out.

    >>> rng = np.random.default_rng(0)
    >>> parts = rng.uniform(size=(2000, 1))
    >>> noise, power = likeliest_noise(rng.normal(size=(2000, 1)) * np.hypot(0.5, parts), parts[:, 0], np.ones(1))
    >>> noise.round(1).tolist(), round(power)
    ([0.5], 2)
    """
    known = np.isfinite(errors)
    squares = np.where(known, errors, 0.0) ** 2
    mean = squares.sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    best, chosen = np.inf, (np.sqrt(mean), 1.0)
    for power in POWERS:
        open_part = variance * parts[:, None] ** power
        value = np.array([unlikelihood(squares, known, share * mean + open_part) for share in SHARES])
        total = value.min(axis=0).sum() + np.log2(power) ** 2 / 2
        if total < best:
            best, chosen = total, (np.sqrt(SHARES[value.argmin(axis=0)] * mean), float(power))
    return chosen


def unlikelihood(squares: np.ndarray, known: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Return −log likelihood of each output's errors, up to a constant."""
    variance = np.maximum(variance, np.finfo(float).tiny)
    return np.sum(np.where(known, np.log(variance) + squares / variance, 0.0), axis=0) / 2


def standardised(targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return targets less their mean over their spread, and the spread; NaN, not known, become the mean."""
    known = np.isfinite(targets)
    count = np.maximum(known.sum(axis=0), 1)
    values = np.where(known, targets, 0.0)
    unit = positive(np.abs(values).max(axis=0))  # squares of huge numbers are none
    values = np.where(known, values / unit - (values / unit).sum(axis=0) / count, 0.0)
    spread = np.sqrt((values**2).sum(axis=0) / count)
    spread = np.where(spread > 1e-15, spread, 1.0)  # what remains after rounding of equal numbers
    return values / spread, unit * spread


def positive(spread: np.ndarray) -> np.ndarray:
    """Return spreads to divide by: one in place of nothing."""
    return np.where(spread > 0, spread, 1.0)
