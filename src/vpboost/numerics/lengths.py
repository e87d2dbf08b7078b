"""How far responses are alike along each input: the correlation lengths of a Gaussian process, by likelihood.

Among many inputs, a few runs of a simulation rarely show by slopes alone which ones matter; the likelihood of a process
with a length for each input does. With s_d = 1 / length and Δ the difference of two rows, the correlation is that of
Matérn of order 5/2, (1 + r + r²/3) e⁻ʳ with r² = 5 Σ s_d² Δ_d²; τ on the diagonal stands for noise. The variance of the
process has a closed form.
"""

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotri
from scipy.optimize import minimize

#: Rows at the most, of which each evaluation needs the cube, and combinations of outputs.
MOST_ROWS, MOST_OUTPUTS = 400, 8
MOST_STEPS = 60
#: Where the search for s and τ begins, for inputs of unit spread, and its bounds.
START, LEAST, MOST = (0.3, 1e-3), (1e-3, 1e-8), (1e2, 1.0)


def inverse_lengths(x: np.ndarray, y: np.ndarray) -> np.ndarray | None:
    """Return s of each column of standardised inputs; None if nothing was found.

    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(50, 3))
    >>> inverse_lengths(x, np.sin(2 * x[:, 1])).round(2).argmax()
    np.int64(1)
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
    found = minimize(unlikelihood, start, (x, y), "L-BFGS-B", jac=True, bounds=bounds, options=options)
    return np.exp(found.x[:-1]) if np.isfinite(found.fun) and found.nit > 0 else None


def unlikelihood(logs: np.ndarray, x: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray]:
    """Return −log likelihood per number of y, up to a constant, and its slopes by log s and log τ."""
    n, m = y.shape
    s, tau = np.exp(logs[:-1]), np.exp(logs[-1])
    scaled = x * s
    squares = np.sum(scaled**2, axis=1)
    r = np.sqrt(5 * np.maximum(squares[:, None] + squares - 2 * scaled @ scaled.T, 0.0))
    np.fill_diagonal(r, 0.0)
    decay = np.exp(-r)
    factor, failed = dpotrf((1 + r + r**2 / 3) * decay + tau * np.eye(n), lower=1)
    if failed:
        return np.inf, np.zeros_like(logs)
    inverse = np.tril(dpotri(factor, lower=1)[0])
    inverse += np.tril(inverse, -1).T
    solved = inverse @ y
    variance = max(np.sum(solved * y) / (n * m), 1e-300)
    value = np.log(variance) / 2 + np.sum(np.log(np.diag(factor))) / n
    by_entry = (m * inverse - solved @ solved.T / variance) / (2 * n * m)
    # ∂/∂log s_d of an entry is −(5/3)(1 + r) e⁻ʳ s_d² Δ_d²
    by_square = by_entry * (1 + r) * decay * (-5 / 3)
    by_s = 2 * s**2 * (by_square.sum(axis=1) @ x**2 - np.sum(x * (by_square @ x), axis=0))
    return float(value), np.append(by_s, tau * np.trace(by_entry))
