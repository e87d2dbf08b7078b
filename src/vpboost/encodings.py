"""Smooth one-dimensional encodings that give a network more of a column than its standardised value.

Each is fitted on one standardised column and turns it into one or more columns with continuous derivatives, which input
gradients need (but for the ends of the training range, where a normal score stops rising).
"""

from typing import Any

import numpy as np
from scipy.interpolate import PchipInterpolator
from scipy.special import ndtr, ndtri


class NormalScore:
    """The column mapped to a standard normal law: Φ⁻¹ of its distribution function, through at most 33 knots.

    Tames heavy tails and spreads out crowded values. Between the knots the map is a monotone cubic spline; beyond the
    training range it is constant.
    """

    def __init__(self, values: np.ndarray, weight: np.ndarray, n_knots: int = 33):
        points, probability = distribution(values, weight)
        scores = ndtri(probability)
        if len(points) > n_knots:  # knots evenly spaced in the score, so that the tails get their share
            wanted = np.linspace(scores[0], scores[-1], n_knots)
            points, kept = np.unique(np.interp(ndtr(wanted), probability, points), return_index=True)
            scores = wanted[kept]
        self.range_ = points[0], points[-1]
        self.curve_ = PchipInterpolator(points, scores)

    def __call__(self, values: np.ndarray) -> np.ndarray:
        """Return the encoded column, shape ``(n, 1)``."""
        return self.curve_(np.clip(values, *self.range_))[:, None]

    def slope(self, values: np.ndarray) -> np.ndarray:
        """Return the derivative of the encoded column, shape ``(n, 1)``."""
        low, high = self.range_
        inside = (values >= low) & (values <= high)
        return np.where(inside, self.curve_.derivative()(np.clip(values, low, high)), 0.0)[:, None]


class Steps:
    """The column as smooth steps: one rises from 0 to 1 across each bin between quantiles of the training values.

    A network that weighs them can bend at every quantile, which is what rough functions of single columns ask for.
    """

    def __init__(self, values: np.ndarray, weight: np.ndarray, n_bins: int = 16):
        points, probability = distribution(values, weight)
        self.knots_ = points
        if len(points) > n_bins + 1:
            self.knots_ = np.unique(np.interp(np.linspace(0, 1, n_bins + 1), probability, points))

    def __call__(self, values: np.ndarray) -> np.ndarray:
        """Return the steps, shape ``(n, n_bins)``."""
        t = self._place(values)
        return t**2 * (3 - 2 * t)

    def slope(self, values: np.ndarray) -> np.ndarray:
        """Return their derivatives, shape ``(n, n_bins)``."""
        t = self._place(values)
        return 6 * t * (1 - t) / np.diff(self.knots_)

    def _place(self, values: np.ndarray) -> np.ndarray:
        """Return how far each value has crossed each bin, from 0 to 1."""
        return np.clip((values[:, None] - self.knots_[:-1]) / np.diff(self.knots_), 0, 1)


def distribution(values: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct values in order and the weighted distribution function at their middle, inside (0, 1)."""
    # values that differ by rounding alone are one
    points, place = np.unique(np.round(values, 9), return_inverse=True)
    mass = np.bincount(place.reshape(-1), weights=weight)
    points, mass = points[mass > 0], mass[mass > 0]
    return points, (np.cumsum(mass) - mass / 2) / mass.sum()


#: Encodings by name: what is added to every numeric column that has more than two values.
ENCODINGS: dict[str, Any] = {"plain": None, "quantile": NormalScore, "spline": Steps}
