"""How far responses are alike along each input: the correlation lengths of a Gaussian process, by likelihood.

Among many inputs, a few runs of a simulation rarely show by slopes alone which ones matter; the likelihood of a process
with a length for each input does. With s_d = 1 / length and Δ the difference of two rows, the correlation is that of
Matérn of order 5/2, (1 + r + r²/3) e⁻ʳ with r² = 5 Σ s_d² Δ_d²; τ on the diagonal stands for noise. The variance of the
process has a closed form. What the process predicts of each row from the others has one, too: it tells how much of
the response such a smooth function explains, and τ whether there is noise.
"""

from typing import NamedTuple

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotri
from scipy.optimize import minimize

#: Rows at the most, of which each evaluation needs the cube, and combinations of outputs.
MOST_ROWS, MOST_OUTPUTS = 400, 8
MOST_STEPS = 60
#: Where the search for s and τ begins, for inputs of unit spread, and its bounds.
START, LEAST, MOST = (0.3, 1e-3), (1e-3, 1e-8), (1e2, 1.0)


class Prior(NamedTuple):
    """What is thought of s and τ before rows are seen: normal laws of their logarithms."""

    inverse_length: float  #: the middle of s times the root of the number of inputs, for inputs of unit spread
    nugget: float  #: the middle of τ
    widths: tuple[float, float]  #: the spreads of log s and log τ

    def standardised(self, logs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return how far log s and log τ are from the middle, in spreads, and the spreads."""
        n = len(logs) - 1
        middle = np.log([*[self.inverse_length / np.sqrt(n)] * n, self.nugget])
        widths = np.array([*[self.widths[0]] * n, self.widths[1]])
        return (logs - middle) / widths, widths


class Process(NamedTuple):
    """The likeliest Gaussian process."""

    inverse_lengths: np.ndarray  #: s, one for each input
    noise: float  #: the part of the variance of y that is noise
    unexplained: float  #: the squared errors of predictions of each row by the others, over the variance of y
    nugget: float  #: τ


def likeliest_process(x: np.ndarray, y: np.ndarray, prior: Prior | None = None) -> Process | None:
    """Return the process of standardised inputs and their responses; None if none was found.

    With a prior it is the likeliest one after the rows are seen, not that which makes them likeliest.

    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(50, 3))
    >>> process = likeliest_process(x, np.sin(2 * x[:, 1]))
    >>> process.inverse_lengths.argmax(), process.unexplained < 1e-3
    (np.int64(1), True)
    """
    every = -(-len(x) // MOST_ROWS)
    x, y = np.asarray(x[::every], float), np.asarray(y[::every], float).reshape(-1, y.size // len(y))
    y = y - y.mean(axis=0)
    if not (np.isfinite(x).all() and np.isfinite(y).all() and np.any(y)):
        return None
    if y.shape[1] > MOST_OUTPUTS:
        left, sizes, _ = np.linalg.svd(y, full_matrices=False)
        y = left[:, :MOST_OUTPUTS] * sizes[:MOST_OUTPUTS]
    places = [0] * x.shape[1] + [1]
    start, least, most = (np.log([ends[place] for place in places]) for ends in (START, LEAST, MOST))
    bounds = list(zip(least, most, strict=True))
    options = {"maxiter": MOST_STEPS, "maxfun": 2 * MOST_STEPS}
    found = minimize(improbability, start, (x, y, prior), "L-BFGS-B", jac=True, bounds=bounds, options=options)
    inverse = inverse_correlation(found.x, x)[0] if np.isfinite(found.fun) and found.nit > 0 else None
    if inverse is None:
        return None
    solved, total = inverse @ y, np.sum(y**2)
    noise = np.exp(found.x[-1]) * np.sum(solved * y) / total
    unexplained = np.sum((solved / np.diag(inverse)[:, None]) ** 2) / total
    return Process(np.exp(found.x[:-1]), float(noise), float(unexplained), float(np.exp(found.x[-1])))


def improbability(
    logs: np.ndarray, x: np.ndarray, y: np.ndarray, prior: Prior | None = None
) -> tuple[float, np.ndarray]:
    """Return −log of the likelihood times the prior, as ``unlikelihood`` does."""
    value, slopes = unlikelihood(logs, x, y)
    if prior is None or not np.isfinite(value):
        return value, slopes
    away, widths = prior.standardised(logs)
    return value + float(away @ away) / (2 * y.size), slopes + away / (widths * y.size)


def unlikelihood(logs: np.ndarray, x: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray]:
    """Return −log likelihood per number of y, up to a constant, and its slopes by log s and log τ."""
    (n, m), s, tau = y.shape, np.exp(logs[:-1]), np.exp(logs[-1])
    inverse, log_root, r, decay = inverse_correlation(logs, x)
    if inverse is None:
        return np.inf, np.zeros_like(logs)
    solved = inverse @ y
    variance = max(np.sum(solved * y) / (n * m), 1e-300)
    value = np.log(variance) / 2 + log_root / n
    by_entry = inverse
    by_entry *= m
    by_entry -= solved @ (solved.T / variance)
    by_entry /= 2 * n * m
    # ∂/∂log s_d of an entry is −(5/3)(1 + r) e⁻ʳ s_d² Δ_d²
    by_square = r + 1
    by_square *= by_entry
    by_square *= decay
    by_square *= -5 / 3
    by_s = 2 * s**2 * (by_square.sum(axis=1) @ x**2 - np.sum(x * (by_square @ x), axis=0))
    return float(value), np.append(by_s, tau * np.trace(by_entry))


def inverse_correlation(logs: np.ndarray, x: np.ndarray) -> tuple[np.ndarray | None, float, np.ndarray, np.ndarray]:
    """Return the inverse of the correlations of rows, half the logarithm of their determinant, r and e⁻ʳ.

    The inverse is None if there is none in double precision.
    """
    scaled = x * np.exp(logs[:-1])
    squares = np.sum(scaled**2, axis=1)
    r = scaled @ (-2 * scaled.T)  # in place from here on: new arrays of this size take as long as what fills them
    r += squares[:, None]
    r += squares
    np.sqrt(np.maximum(r, 0.0, out=r), out=r)
    r *= np.sqrt(5)
    np.fill_diagonal(r, 0.0)
    decay = np.exp(-r)
    correlation = r * r
    correlation /= 3
    correlation += r
    correlation += 1
    correlation *= decay
    correlation.flat[:: len(x) + 1] += np.exp(logs[-1])
    factor, failed = dpotrf(correlation.T, lower=1, overwrite_a=1)
    if failed:
        return None, np.inf, r, decay
    root = float(np.sum(np.log(np.diag(factor))))
    lower = dpotri(factor, lower=1, overwrite_c=1)[0]  # zeros above
    inverse = lower + lower.T
    inverse.flat[:: len(x) + 1] /= 2
    return inverse, root, r, decay
