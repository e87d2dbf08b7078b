"""Quantiles of columns, by which encodings and trees cut them into bins."""

import numpy as np


def distribution(values: np.ndarray, weight: np.ndarray, most: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct values in order and the weighted distribution function at their middle, inside (0, 1).

    No value counts for more than the part ``most`` of all, if there are more than 1 / ``most`` of them.
    """
    # values that differ by rounding alone are one
    points, place = distinct(np.round(values, 9))
    mass = np.bincount(place.reshape(-1), weights=weight)
    points, mass = points[mass > 0], mass[mass > 0]
    if len(points) > 1 / most:
        mass = np.minimum(mass, largest_part(mass, round(1 / most)))
    middle = (np.cumsum(mass) - mass / 2) / mass.sum()
    return points, np.clip(middle, 1e-12, 1 - 1e-12)  # weights may be so uneven that rounding makes it 0 or 1


def distinct(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct values in order, and the place of each value among them.

    >>> [part.tolist() for part in distinct(np.array([3.0, 1.0, 3.0]))]
    [[1.0, 3.0], [1, 0, 1]]
    """
    ends = np.array([values.min(), values.max()]) if values.size else values
    if len(ends) and ends[0] < ends[1]:
        low, high = (values == end for end in ends)
        if (low | high).all():  # one-hot columns need no sorting
            return ends, high.astype(np.intp)
    return np.unique(values, return_inverse=True)


def largest_part(mass: np.ndarray, n: int) -> float:
    """Return the bound that is the n-th part of the sum of all masses, of which none is above it.

    >>> float(largest_part(np.array([100.0, 1, 2, 1, 2, 2]), 5))  # of 2 + 8
    2.0
    """
    falling = np.sort(mass)[::-1]
    beyond = np.cumsum(falling[::-1])[::-1]  # the sums of what is left when the largest are at the bound
    bounds = beyond[:n] / (n - np.arange(n))
    return bounds[np.argmax(falling[:n] <= bounds * (1 + 1e-12))]


def evenly_filled(values: np.ndarray, weight: np.ndarray, n_bins: int) -> np.ndarray:
    """Return the ends of at most so many bins of a column that hold about as many values each.

    A value that is met very often (a zero that stands for nothing, say) counts as one bin, so that the others get
    theirs. Few distinct values are ends themselves.

    >>> evenly_filled(np.arange(101.0), np.ones(101), 4).round().tolist()
    [0.0, 25.0, 50.0, 75.0, 100.0]
    """
    points, probability = distribution(values, weight, most=1 / n_bins)
    if len(points) > n_bins + 1:
        points = np.unique(np.interp(np.linspace(0, 1, n_bins + 1), probability, points))
    return points
