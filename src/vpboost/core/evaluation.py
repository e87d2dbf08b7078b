"""Ensembles of networks of dense layers, evaluated by C: nothing is compiled first."""

from typing import Any

import numpy as np

from .. import native
from .dense import is_dense, network_for_c
from .ensemble import Ensemble

#: Rows that are evaluated by one call.
ROWS_AT_ONCE = 1 << 16


class DenseEnsemble:
    """The same function as an ensemble whose learners C knows."""

    def __init__(self, ensemble: Ensemble):
        self.constant = np.asarray(ensemble.constant)
        self.network = network_for_c(ensemble.featurizers, self.constant.dtype)
        self.weights = np.ascontiguousarray(np.moveaxis(np.asarray(ensemble.weights), 1, 2))

    @classmethod
    def of(cls, ensemble: Ensemble) -> "DenseEnsemble | None":
        """Return the ensemble for C, if it is there and knows such learners."""
        known = native.is_available() and ensemble.n_learners > 0 and is_dense(ensemble.featurizers)
        return cls(ensemble) if known else None

    def predict(self, x: Any) -> np.ndarray:
        """Return f(x_i) for each row, shape ``(n_rows, K)``."""
        starts, dtype = range(0, max(len(x), 1), ROWS_AT_ONCE), self.constant.dtype
        flat = np.reshape(x, (len(x), self.network.sizes[0]))  # of images, as networks see them
        parts = (np.ascontiguousarray(flat[start : start + ROWS_AT_ONCE], dtype) for start in starts)
        return np.concatenate([native.predictions(self.network, self.weights, self.constant, part) for part in parts])
