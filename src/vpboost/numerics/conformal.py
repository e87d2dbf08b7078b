"""Conformal quantiles: how large scores of new rows are at the most, told by scores of rows like them.

Of n + 1 rows in random order, the last one's score is among the k smallest with probability at least k / (n + 1),
whatever the law of the rows. So the ⌈(n + 1) c⌉-th smallest of n scores bounds that of a new row with probability c at
least, and, unless scores are equal, c + 1 / (n + 1) at the most.
"""

from typing import NamedTuple

import numpy as np

from ..predictor import conformal_quantile, rows_needed, score_quantiles

__all__ = ["Conformity", "conformal_quantile", "rows_needed", "widened"]


class Conformity(NamedTuple):
    """How far predictions for rows that were not trained on are from the truth."""

    scores: np.ndarray  #: (rows, outputs), none negative; NaN where the target is not known
    weight: np.ndarray  #: of the rows
    scale: np.ndarray  #: of each output's scores, known before them

    def quantiles(self, coverage: float, simultaneous: bool = False) -> np.ndarray:
        """Return the conformal quantile of each output's scores, or what bounds all of a row at once."""
        return score_quantiles(self.scores, coverage, self.weight, self.scale if simultaneous else None)

    def fewest(self, simultaneous: bool = False) -> int:
        """Return the number of scores of the output that has the fewest, or of rows that have all of them."""
        known = ~np.isnan(self.scores) & (self.weight > 0)[:, None]
        return int(known.all(axis=1).sum() if simultaneous else known.sum(axis=0).min())


def widened(scores: np.ndarray, before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Return scores of one model, larger where another leaves more of the same training rows, level by level.

    What squares of errors of training rows are larger by, is added to squares of scores; all of shape (rows, outputs).

    >>> widened(np.array([[3.0], [6.0]]), np.array([[3.0], [3.0]]), np.array([[5.0], [5.0]])).round(2).ravel().tolist()
    [5.0, 7.21]
    """
    unit = np.maximum(np.maximum(scores.max(axis=0), before.max(axis=0)), after.max(axis=0))
    unit = np.where(unit > 0, unit, 1.0)
    found = np.empty_like(scores)
    levels = (np.arange(len(scores)) + 0.5) / len(scores)
    for k, order in enumerate(np.argsort(scores, axis=0).T):
        more, less = (np.quantile(part[:, k] / unit[k], levels) ** 2 for part in (after, before))
        found[order, k] = unit[k] * np.sqrt((scores[order, k] / unit[k]) ** 2 + np.maximum(more - less, 0.0))
    return found
