"""An ensemble in plain NumPy, double precision: for a few rows, where JAX would spend its time on calling itself."""

from typing import Any

import numpy as np

from . import predictor
from .ensemble import Ensemble
from .files.describe import describe_featurizer, is_custom, named_arrays

#: Rows that are evaluated side by side: few enough for a processor's cache.
ROWS_AT_ONCE = 64
#: Where this serves: up to so many rows, or, of networks, more, as far as rows times parameters go. Beyond, a compiled
#: program is worth its time.
FEW_ROWS, MORE_ROWS, MOST_WORK = 32, 1000, 30_000_000


class LightEnsemble:
    """The same function as an :class:`vpboost.Ensemble`, evaluated by :mod:`vpboost.predictor`."""

    def __init__(self, ensemble: Ensemble):
        self.constant, self.weights = np.asarray(ensemble.constant, float), np.asarray(ensemble.weights, float)
        self.description = describe_featurizer(ensemble.featurizers)
        self.theta = {name: as_plain(leaf) for name, leaf in named_arrays(ensemble.featurizers).items()}
        self.most_rows = FEW_ROWS
        if "MLP" in str(self.description) or "ResNet" in str(self.description):
            self.most_rows = int(np.clip(MOST_WORK // max(ensemble.n_parameters, 1), FEW_ROWS, MORE_ROWS))

    @classmethod
    def of(cls, ensemble: Ensemble) -> "LightEnsemble | None":
        """Return the light version of an ensemble; None if it has parts of the user's own."""
        if ensemble.n_learners and is_custom(describe_featurizer(ensemble.featurizers)):
            return None
        return cls(ensemble)

    def predict(self, x: np.ndarray) -> np.ndarray:
        """Return f(x_i) for each row, shape ``(n_rows, K)``."""
        parts = [np.asarray(x[i : i + ROWS_AT_ONCE], float) for i in range(0, max(len(x), 1), ROWS_AT_ONCE)]
        return np.concatenate(
            [predictor.ensemble(self.constant, self.weights, self.description, self.theta, part) for part in parts]
        )


def as_plain(array: Any) -> np.ndarray:
    """Return an array for NumPy, numbers in double precision."""
    return np.asarray(array, float if np.issubdtype(array.dtype, np.floating) else None)
