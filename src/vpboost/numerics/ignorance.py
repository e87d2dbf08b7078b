"""What data leave open: the posterior variance of a Gaussian process, scaled by errors that were made.

The correlation is that of :mod:`vpboost.numerics.lengths`, with the likeliest lengths. Given n rows, the process at x
has the mean m(x) = kᵀ (C + τ I)⁻¹ y and keeps the part v(x) = 1 − kᵀ (C + τ I)⁻¹ k of its variance σ²: next to nothing
among the rows, all of it far away. If the truth is of this process, the mean square of its distance from a prediction f
is σ² v + (f − m)². A model that is not this process may know more, or less, than it does. So ignorance is the root of
σ² vᵖ + c (f − m)²: the power p leaves the order of places, and what is unknown far away, as they are. Errors of
predictions for rows that were not trained on, whose variance is taken to be that and the noise, tell p, c and the noise
by their likelihood. Few errors tell little, so there is a prior: the logarithm of their variance, on average over rows,
has a normal law around what the process itself expects, with p and c one and its own noise. Without any errors, this is
all there is.
"""

from itertools import product
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, solve_triangular

from .lengths import START, Prior, likeliest_process

#: What is thought of lengths and noise before rows are seen: few rows tell little of either, and the likeliest process
#: of theirs alone is far too sure.
PRIOR = Prior(0.75, 1e-2, (0.7, 3.0))
#: The powers p, factors c, and parts of the errors' mean square that are noise, of which the likeliest are chosen. A
#: power of one is the likeliest beforehand, one of 2 or 1/2 a spread away.
POWERS = np.exp2(np.linspace(-2, 4, 25))
FACTORS = np.array([1.0, 0.3, 0.1, 0.0])
SHARES = np.array([0.0, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0])
#: The spread of the logarithm of the errors' variance around what the process expects.
DOUBT = 0.6
#: No part v is smaller; no row is farther away, in spreads.
LEAST, FARTHEST = 1e-12, 1e6
#: Outputs whose errors tell p and c, at the most.
MOST_OUTPUTS = 32
#: Rows whose variances are computed side by side.
ROWS_AT_ONCE = 4096
#: Outputs observed in the same rows have processes of their own, those with fewest targets first: so many at the most.
#: Where there are more such groups, what the others miss counts as the mean of what was observed, in one process.
MOST_APART = 32


class Evidence(NamedTuple):
    """What is kept of a fit to tell what it leaves open."""

    rows: np.ndarray  #: (rows, columns): training rows, then rows that were set aside
    targets: np.ndarray  #: (rows, outputs)
    errors: np.ndarray  #: (rows set aside, outputs): of predictions by learners that have not seen them
    all_seen: bool  #: whether the model itself has seen them

    def of(self, outputs: list[int], rows: np.ndarray) -> "Evidence":
        """Return what some of the rows tell of some outputs; where all but one were set aside, as training rows."""
        n_trained = len(self.rows) - len(self.errors)
        aside = rows[n_trained:] & (rows[:n_trained].sum() > 1)
        return Evidence(self.rows[rows], self.targets[rows][:, outputs], self.errors[aside][:, outputs], self.all_seen)


class Ignorance:
    """Noise and ignorance of a model, in the units of its targets."""

    def __init__(self, evidence: Evidence):
        n_trained = len(evidence.rows) - len(evidence.errors)
        trained = evidence.rows[:n_trained]
        self.middle, self.spread = trained.mean(axis=0), positive(trained.std(axis=0))
        x = self._scaled(evidence.rows)
        y, self.shift, self.unit = standardised(evidence.targets, n_trained)
        process = likeliest_process(x[:n_trained], y[:n_trained], PRIOR)
        self.inverse_lengths = np.full(x.shape[1], START[0]) if process is None else process.inverse_lengths
        self.nugget = START[1] if process is None else process.nugget
        self._learn(x[:n_trained], y[:n_trained])
        #: σ², of each output
        self.variance = np.mean(self.half**2, axis=0)
        self.noise, self.power, self.factor = np.sqrt(self.nugget * self.variance), 1.0, 1.0
        errors = evidence.errors / self.unit
        if np.isfinite(errors).any():
            parts, mean = self._posterior(x[n_trained:])
            gaps = y[n_trained:] - errors - mean
            self.noise, self.power, self.factor = likeliest_noise(errors, parts, gaps, self.variance, self.noise)
        if evidence.all_seen and len(errors):
            self._learn(x, y)

    def _scaled(self, rows: np.ndarray) -> np.ndarray:
        """Return rows in units of the spread of each column."""
        return np.clip((rows - self.middle) / self.spread, -FARTHEST, FARTHEST)

    def _learn(self, x: np.ndarray, y: np.ndarray) -> None:
        """Take scaled rows and targets as known."""
        self.known = x * self.inverse_lengths
        correlations = matern(self.known, self.known) + self.nugget * np.eye(len(x))
        self.root = cho_factor(correlations, lower=True)[0]
        self.half = solve_triangular(self.root, y, lower=True)

    def _posterior(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return v and the mean for scaled rows."""
        half = solve_triangular(self.root, matern(self.known, x * self.inverse_lengths), lower=True)
        return np.clip(1 - np.sum(half**2, axis=0), LEAST, 1.0), half.T @ self.half

    def __call__(self, rows: np.ndarray, predictions: np.ndarray) -> np.ndarray:
        """Return the spread of what is not known beside predictions, (rows, outputs)."""
        starts = range(0, max(len(rows), 1), ROWS_AT_ONCE)
        found = [self._posterior(self._scaled(rows[i : i + ROWS_AT_ONCE])) for i in starts]
        parts, mean = (np.concatenate(part) for part in zip(*found, strict=True))
        gaps = predictions / self.unit - self.shift / self.unit - mean
        return self.unit * np.sqrt(unknown(parts, gaps, self.variance, self.power, self.factor))

    @property
    def noise_of_outputs(self) -> np.ndarray:
        """The spread of noise, (outputs,)."""
        return self.unit * self.noise


class Apart:
    """The same where targets are missing: outputs that were observed in other rows have processes of their own."""

    def __init__(self, evidence: Evidence):
        observed = np.isfinite(evidence.targets)
        groups: dict[bytes, list[int]] = {}
        for output, column in enumerate(observed.T):
            if column.sum() > 1:
                groups.setdefault(column.tobytes(), []).append(output)
        of_few = sorted(groups.values(), key=lambda outputs: observed[:, outputs[0]].sum())
        rest = [output for outputs in of_few[MOST_APART:] for output in outputs]
        self.parts: list[tuple[list[int], Ignorance]] = []
        #: NaN where a single target, or none, tells nothing
        self.noise_of_outputs = np.full(observed.shape[1], np.nan)
        for outputs in [*of_few[:MOST_APART], *([rest] if rest else [])]:
            ignorance = Ignorance(evidence.of(outputs, observed[:, outputs].any(axis=1)))
            self.parts.append((outputs, ignorance))
            self.noise_of_outputs[outputs] = ignorance.noise_of_outputs

    def __call__(self, rows: np.ndarray, predictions: np.ndarray) -> np.ndarray:
        """Return the spread of what is not known beside predictions, (rows, outputs)."""
        found = np.full(predictions.shape, np.nan)
        for outputs, ignorance in self.parts:
            found[:, outputs] = ignorance(rows, predictions[:, outputs])
        return found


def ignorance_of(evidence: Evidence) -> Ignorance | Apart:
    """Return noise and ignorance by what is known."""
    return Ignorance(evidence) if np.isfinite(evidence.targets).all() else Apart(evidence)


def matern(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the correlations of rows with others, both divided by their lengths."""
    squares = np.sum(a**2, axis=1)[:, None] + np.sum(b**2, axis=1) - 2 * a @ b.T
    r = np.sqrt(5 * np.maximum(squares, 0.0))
    return (1 + r + r**2 / 3) * np.exp(-r)


def unknown(parts: np.ndarray, gaps: np.ndarray, variance: np.ndarray, power: float, factor: float) -> np.ndarray:
    """Return σ² vᵖ + c (f − m)²."""
    return variance * parts[:, None] ** power + factor * gaps**2


def likeliest_noise(
    errors: np.ndarray, parts: np.ndarray, gaps: np.ndarray, variance: np.ndarray, noise: np.ndarray
) -> tuple[np.ndarray, float, float]:
    """Return the noise of each output, and p and c of all, by the likelihood of errors; NaN are left out.

    ``noise`` is what the process takes it to be.

    >>> rng = np.random.default_rng(0)
    >>> parts, gaps = rng.uniform(size=(4000, 1)), rng.normal(size=(4000, 1))
    >>> spread = np.sqrt(0.5**2 + parts**2 + 0.3 * gaps**2)
    >>> errors = spread * rng.normal(size=(4000, 1))
    >>> noise, power, factor = likeliest_noise(errors, parts[:, 0], gaps, np.ones(1), np.zeros(1))
    >>> noise.round(1).tolist(), round(power), factor
    ([0.5], 2, 0.3)
    """
    known = np.isfinite(errors)
    count = np.maximum(known.sum(axis=0), 1)
    squares = np.where(known, errors, 0.0) ** 2
    mean = squares.sum(axis=0) / count
    gaps = np.where(known, gaps, 0.0)

    def mean_log(variances: np.ndarray, of: slice) -> np.ndarray:
        logs = np.log(np.maximum(variances, np.finfo(float).tiny))
        return np.where(known[:, of], logs, 0.0).sum(axis=0) / count[of]

    def improbability(variances: np.ndarray, of: slice) -> np.ndarray:
        away = (mean_log(variances, of) - expected[of]) / DOUBT
        return unlikelihood(squares[:, of], known[:, of], variances) + away**2 / 2

    def by_share(power: float, factor: float, of: slice) -> np.ndarray:
        left = unknown(parts, gaps[:, of], variance[of], power, factor)
        return np.array([improbability(share * mean[of] + left, of) for share in SHARES])

    def total(pair: tuple[float, float]) -> float:
        return by_share(*pair, slice(None, None, every)).min(axis=0).sum() + np.log2(pair[0]) ** 2 / 2

    expected = mean_log(unknown(parts, gaps, variance, 1.0, 1.0) + noise**2, slice(None))
    every = -(-errors.shape[1] // MOST_OUTPUTS)
    power, factor = min(product(POWERS.tolist(), FACTORS.tolist()), key=total)
    return np.sqrt(SHARES[by_share(power, factor, slice(None)).argmin(axis=0)] * mean), power, factor


def unlikelihood(squares: np.ndarray, known: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Return −log likelihood of each output's errors, up to a constant."""
    variance = np.maximum(variance, np.finfo(float).tiny)
    return np.sum(np.where(known, np.log(variance) + squares / variance, 0.0), axis=0) / 2


def standardised(targets: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return targets less the mean of the first n over their spread, and both; NaN, not known, become the mean."""
    known = np.isfinite(targets)
    count = np.maximum(known[:n].sum(axis=0), 1)
    values = np.where(known, targets, 0.0)
    unit = positive(np.abs(values).max(axis=0))  # squares of huge numbers are none
    mean = (values[:n] / unit).sum(axis=0) / count
    values = np.where(known, values / unit - mean, 0.0)
    spread = np.sqrt((values[:n] ** 2).sum(axis=0) / count)
    spread = np.where(spread > 1e-15, spread, 1.0)  # what remains after rounding of equal numbers
    return values / spread, unit * mean, unit * spread


def positive(spread: np.ndarray) -> np.ndarray:
    """Return spreads to divide by: one in place of nothing."""
    return np.where(spread > 0, spread, 1.0)
