"""Sets of classes that hold the true one with a given probability, and probabilities as sure as they may be."""

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from ..numerics.conformal import Conformity
from ..predictor import logits, probabilities

#: Between these temperatures the best one is looked for.
COLDEST, HOTTEST = 0.05, 20.0


class LabelSets:
    """The classifier's part that says how sure it is of classes."""

    best_iteration_: int
    best_score_: float
    _others: Any
    _with_first: bool
    _raw: Callable[[Any], np.ndarray]
    _keep: Callable[..., None]
    _known_conformity: Callable[..., Conformity]
    _temperature: float  #: what logits are divided by

    def predict_set(self, X: Any, coverage: float = 0.9) -> np.ndarray:
        """Return sets of classes that hold the true one of a part ``coverage`` of rows like those of training.

        They are by conformal prediction: all classes that are at least as probable as the true class of most rows that
        were not trained on. After ``calibrate(X, y)`` with rows that the fit has not seen, coverage is exact, on
        average over such rows, whatever the model; without, it goes by the rows that the fit has set aside (see
        ``VPBoostRegressor.predict_interval``). The set of a row may be empty: it is then like none of the classes.

        Parameters
        ----------
        X : as in ``predict``
        coverage : float, default=0.9
            In (0, 1). It takes coverage / (1 - coverage) rows that were not trained on at the least.

        Returns
        -------
        array of bool of shape (n_samples, n_classes)
            Whether each class, in the order of ``classes_``, is in the row's set.

        Examples
        --------
        >>> import numpy as np
        >>> from vpboost import VPBoostClassifier
        >>> X = np.random.default_rng(0).uniform(-1, 1, size=(300, 2))
        >>> y = X[:, 0] > X[:, 1]
        >>> VPBoostClassifier(n_estimators=5).fit(X, y).predict_set(X[:4]).shape
        (4, 2)
        """
        most = self._known_conformity(coverage).quantiles(coverage)[0]
        # before the temperature, which has seen the rows that the scores are of
        return 1 - probabilities(self._raw(X) * self._temperature) <= most

    def _scores(self, target: np.ndarray, encoded: np.ndarray, raw: np.ndarray) -> np.ndarray:
        """Return how improbable the true class was."""
        return 1 - np.take_along_axis(probabilities(raw), target[:, None].astype(int), axis=1)

    def _heed(self, target: np.ndarray, raw: np.ndarray, weight: np.ndarray) -> None:
        """Set the temperature."""
        self._temperature = best_temperature(logits(raw), target.astype(int), weight)
        self._keep(self.best_iteration_, self.best_score_, self._others, self._with_first)


def best_temperature(by_class: np.ndarray, target: np.ndarray, weight: np.ndarray) -> float:
    """Return the number that logits are to be divided by for the smallest log-loss.

    >>> sure = np.tile([[0.0, 4.0]], (4, 1))
    >>> round(best_temperature(sure, np.array([1, 1, 1, 0]), np.ones(4)), 2)  # 4 / log 3
    3.64
    """

    def log_loss(log_temperature: float) -> float:
        logs = log_softmax(by_class / np.exp(log_temperature), axis=1)
        return -float(np.average(np.take_along_axis(logs, target[:, None], axis=1)[:, 0], weights=weight))

    found = minimize_scalar(log_loss, bounds=tuple(np.log([COLDEST, HOTTEST])), method="bounded")
    return float(np.exp(found.x)) if found.fun < log_loss(0.0) else 1.0
