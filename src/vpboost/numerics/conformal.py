"""Conformal quantiles: how large scores of new rows are at the most, told by scores of rows like them.

Of n + 1 rows in random order, the last one's score is among the k smallest with probability at least k / (n + 1),
whatever the law of the rows. So the ⌈(n + 1) c⌉-th smallest of n scores bounds that of a new row with probability c at
least, and, unless scores are equal, c + 1 / (n + 1) at the most.
"""

from typing import NamedTuple

import numpy as np

from ..predictor import conformal_quantile, rows_needed, score_quantiles

__all__ = ["Conformity", "conformal_quantile", "rows_needed"]


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
