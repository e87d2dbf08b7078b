"""Conformal quantiles: how large scores of new rows are at the most, told by scores of rows like them.

Of n + 1 rows in random order, the last one's score is among the k smallest with probability at least k / (n + 1),
whatever the law of the rows. So the ⌈(n + 1) c⌉-th smallest of n scores bounds that of a new row with probability c at
least, and, unless scores are equal, c + 1 / (n + 1) at the most.
"""

import math
from typing import Any, NamedTuple

import numpy as np

#: Products such as 100 × 0.07 are a little more than the whole numbers that they stand for.
ROUNDING = 1e-12


class Conformity(NamedTuple):
    """How far predictions for rows that were not trained on are from the truth."""

    scores: np.ndarray  #: (rows, outputs), none negative; NaN where the target is not known
    weight: np.ndarray  #: of the rows
    scale: np.ndarray  #: of each output's scores, known before them

    def quantiles(self, coverage: float) -> np.ndarray:
        """Return the conformal quantile of each output's scores."""
        return np.array([conformal_quantile(scores, coverage, self.weight) for scores in self.scores.T])

    def common_quantiles(self, coverage: float) -> np.ndarray:
        """Return what bounds the scores of all outputs of a row at once: multiples of their scales."""
        with np.errstate(over="ignore"):
            largest = np.max(self.scores / self.scale, axis=1)
        return conformal_quantile(largest, coverage, self.weight) * self.scale

    def fewest(self, simultaneous: bool = False) -> int:
        """Return the number of scores of the output that has the fewest, or of rows that have all of them."""
        known = ~np.isnan(self.scores) & (self.weight > 0)[:, None]
        return int(known.all(axis=1).sum() if simultaneous else known.sum(axis=0).min())


def conformal_quantile(scores: Any, coverage: float, weight: Any = None) -> float:
    """Return the ⌈(n + 1) · coverage⌉-th smallest of n scores, NaN left out; infinite if there are too few.

    With weights it is the smallest score such that it and those below it have the part ``coverage`` of all weight, that
    of a new row included, which is taken to have the mean weight.

    >>> conformal_quantile([3.0, 1.0, 2.0, 4.0], 0.6)
    3.0
    >>> conformal_quantile([3.0, 1.0, 2.0, 4.0], 0.9)
    inf
    """
    values = np.asarray(scores, float)
    weights = np.ones(len(values)) if weight is None else np.asarray(weight, float)
    kept = ~np.isnan(values) & (weights > 0)
    values, weights = values[kept], weights[kept]
    if len(values) < rows_needed(coverage):
        return math.inf
    order = np.argsort(values, kind="stable")
    below = np.cumsum(weights[order])
    wanted = coverage * (below[-1] + below[-1] / len(values)) * (1 - ROUNDING)
    return float(values[order[min(int(np.searchsorted(below, wanted)), len(values) - 1)]])


def rows_needed(coverage: float) -> int:
    """Return the fewest scores whose conformal quantile is finite.

    >>> [rows_needed(coverage) for coverage in (0.5, 0.9, 0.95, 0.99)]
    [1, 9, 19, 99]
    """
    return math.ceil(coverage / (1 - coverage) * (1 - ROUNDING))
