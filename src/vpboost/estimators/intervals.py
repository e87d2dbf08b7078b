"""Intervals that hold the truth with a given probability, by conformal prediction."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..core.ensemble import Ensemble
from ..numerics.conformal import Conformity, widened
from ..tables.scaling import TargetScaler
from .calibration import MOST_OF_FIT, Seen
from .parts import Part
from .prediction import evaluated
from .spread import Honest, log_gain, numbered
from .uncertainty import some_of


class Intervals:
    """The regressor's part that says how far off predictions may be."""

    target_scaler_: TargetScaler
    n_outputs_: int
    _raw_of: Callable[[np.ndarray], np.ndarray]
    _encoded_parts: Callable[[Any], Iterator[np.ndarray]]
    _in_order: Callable[[], bool]
    _plain: Callable[[np.ndarray], np.ndarray]
    _from_raw: Callable[[np.ndarray], np.ndarray]
    _mean_and_std: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray | None]]
    _known_conformity: Callable[..., Conformity]
    _conformity: Conformity | None

    def predict_interval(self, X: Any, coverage: float = 0.9, simultaneous: bool = False) -> tuple:
        """Return intervals that hold the true ``y`` of a part ``coverage`` of rows like those of training.

        They are by conformal prediction: predictions plus and minus a quantile of the errors on rows that were not
        trained on. After ``calibrate(X, y)`` with rows that the fit has not seen, coverage is exact, on average over
        such rows, whatever the model. Without, errors are those of the rows that the fit has set aside, for chains that
        have not learnt from them, made smaller as the mean of chains is better than one, by what rows tell that several
        chains have set aside: about right (these rows have also decided when the chains end), and rather too wide where
        ``refit_full`` lets later chains learn from all rows.

        Parameters
        ----------
        X : as in ``predict``
        coverage : float, default=0.9
            In (0, 1). It takes the errors of coverage / (1 - coverage) rows at the least.
        simultaneous : bool, default=False
            Of several outputs: whether a part ``coverage`` of rows has all its outputs within, not a part of the rows
            for each output.

        Returns
        -------
        low, high : arrays of the shape that ``predict`` returns

        Examples
        --------
        >>> import numpy as np
        >>> from vpboost import VPBoostRegressor
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(-1, 1, size=(200, 2))
        >>> y = X[:, 0] + 0.1 * rng.normal(size=200)
        >>> low, high = VPBoostRegressor(n_estimators=5).fit(X, y).predict_interval(X)
        >>> bool(0.8 < np.mean((low <= y) & (y <= high)))
        True
        """
        if not isinstance(simultaneous, bool | np.bool_):
            raise ValueError(f"simultaneous must be True or False, got {simultaneous!r}")
        check_is_fitted(self)
        if self._in_order():
            raise ValueError("this model predicts several quantiles, which are bounds themselves: see predict")
        most = self._known_conformity(coverage, simultaneous).quantiles(coverage, bool(simultaneous))
        found = [self._bounds(encoded, most) for encoded in self._encoded_parts(X)]
        low, high = (np.concatenate(part) for part in zip(*found, strict=True))
        if self.target_scaler_.kind in ("log", "logs"):  # no target is negative
            low = np.maximum(low, 0.0)
        return self._plain(low), self._plain(high)

    def _bounds(self, encoded: np.ndarray, most: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return intervals of encoded rows, where scores are so large at the most."""
        raw = self._raw_of(encoded)
        centre, sigma = self._mean_and_std(encoded, raw)
        with np.errstate(over="ignore"):
            width = most * (1.0 if sigma is None else sigma)
            return centre - width, centre + width

    def _one_each(self, raw: np.ndarray) -> bool:
        return self._from_raw(raw[:1]).size == self.n_outputs_

    def _scores(self, target: np.ndarray, encoded: np.ndarray, raw: np.ndarray) -> np.ndarray:
        """Return the sizes of errors, in units of the predicted spread if there is one."""
        centre, sigma = self._mean_and_std(encoded, raw)
        with np.errstate(over="ignore"):
            error = np.abs(target - centre)
            return np.minimum(error if sigma is None else error / sigma, np.finfo(float).max)

    def _gain(self, seen: Seen, n_chains: int) -> np.ndarray | float:
        """Return how many times smaller errors of the mean of chains are than those of one, of each output.

        Rows that several chains have set aside tell it: see :func:`vpboost.estimators.spread.log_gain`. That goes by
        squared errors; of the largest errors more is what all chains have in common, so half of it is counted on.
        """
        if n_chains == 1 or not np.isfinite(seen.target).all() or not seen.weight.any():
            return 1.0
        centre, _ = self._mean_and_std(seen.encoded, seen.raw)
        target = seen.target.reshape(centre.shape)
        scale = np.abs(target - centre).max(axis=0)
        if not ((scale > 0) & np.isfinite(scale)).all():
            return 1.0
        target, centre = target / scale, centre / scale  # numbers of order one, whose squares are finite
        size = np.sqrt(np.average((target - centre) ** 2, axis=0, weights=seen.weight))
        rows = Honest(seen.encoded, target, centre, seen.weight, numbered(seen.encoded, target))
        return np.exp(0.5 * log_gain(rows, np.log(np.broadcast_to(size, centre.shape)), n_chains))

    def _heed_training(self, train: Part, first: Ensemble) -> None:
        """Make scores larger where the model leaves more of training rows than the first chain, whose scores they are.

        Chains that learn from all rows are judged by none, and may be worse than the first by chance.
        """
        known = self._conformity
        some = some_of(train, MOST_OF_FIT)
        if known is None or not (np.isfinite(some.target).all() and np.isfinite(known.scores).all()):
            return
        encoded = np.asarray(some.inputs[:])
        left = [self._scores(some.target, encoded, raw) for raw in (evaluated(first, encoded), self._raw_of(encoded))]
        self._conformity = known._replace(scores=widened(known.scores, *left))

    def _typical(self) -> np.ndarray:
        """Return the scale of each output's scores where the fit had none to tell it: the spread of the targets."""
        spread = np.asarray(self.target_scaler_.scale_, float)
        return spread if len(spread) == self.n_outputs_ else np.ones(self.n_outputs_)

    def _heed(self, target: np.ndarray, raw: np.ndarray, weight: np.ndarray) -> None:
        """Take from raw predictions what scores do not tell: nothing."""
