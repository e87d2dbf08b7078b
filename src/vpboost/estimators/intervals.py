"""Intervals that hold the truth with a given probability, by conformal prediction."""

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..core.ensemble import Ensemble
from ..numerics.conformal import Conformity
from ..tables.scaling import TargetScaler
from .parts import Part
from .prediction import evaluated

#: Rows that two chains have set aside, at the least and at the most, that tell what averaging does to errors.
LEAST_PAIRS, MOST_PAIRS = 40, 1000


class Intervals:
    """The regressor's part that says how far off predictions may be."""

    target_scaler_: TargetScaler
    n_outputs_: int
    _raw_of: Callable[[np.ndarray], np.ndarray]
    _encoded_parts: Callable[[Any], Iterator[np.ndarray]]
    _in_order: Callable[[], bool]
    _plain: Callable[[np.ndarray], np.ndarray]
    _from_raw: Callable[[np.ndarray], np.ndarray]
    _centre: Callable[[np.ndarray, np.ndarray], np.ndarray]
    _sigma: Callable[[np.ndarray, np.ndarray], np.ndarray | None]
    _known_conformity: Callable[..., Conformity]

    def predict_interval(self, X: Any, coverage: float = 0.9, simultaneous: bool = False) -> tuple:
        """Return intervals that hold the true ``y`` of a part ``coverage`` of rows like those of training.

        They are by conformal prediction: predictions plus and minus a quantile of the errors on rows that were not
        trained on. After ``calibrate(X, y)`` with rows that the fit has not seen, coverage is exact, on average over
        such rows, whatever the model. Without, errors are those of the rows that the fit has set aside, for chains that
        have not learnt from them: nearly exact (these rows have also decided when the chains end; those that two chains
        have set aside tell how much smaller the errors of their mean are), and rather too wide than too narrow where
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
        known = self._known_conformity(coverage, simultaneous)
        most = known.common_quantiles(coverage) if simultaneous else known.quantiles(coverage)
        found = [self._bounds(encoded, most) for encoded in self._encoded_parts(X)]
        low, high = (np.concatenate(part) for part in zip(*found, strict=True))
        if self.target_scaler_.kind in ("log", "logs"):  # no target is negative
            low = np.maximum(low, 0.0)
        return self._plain(low), self._plain(high)

    def _bounds(self, encoded: np.ndarray, most: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return intervals of encoded rows, where scores are so large at the most."""
        raw = self._raw_of(encoded)
        centre, sigma = self._centre(encoded, raw), self._sigma(encoded, raw)
        with np.errstate(over="ignore"):
            width = most * (1.0 if sigma is None else sigma)
            return centre - width, centre + width

    def _one_each(self, raw: np.ndarray) -> bool:
        return self._from_raw(raw[:1]).size == self.n_outputs_

    def _scores(self, target: np.ndarray, encoded: np.ndarray, raw: np.ndarray) -> np.ndarray:
        """Return the sizes of errors, in units of the predicted spread if there is one."""
        with np.errstate(over="ignore"):
            error = np.abs(target - self._centre(encoded, raw))
            sigma = self._sigma(encoded, raw)
            return np.minimum(error if sigma is None else error / sigma, np.finfo(float).max)

    def _left_by_averaging(self, parts: Sequence[tuple[Part, Ensemble]]) -> Any:
        """Return what part of the errors of single chains, in size, is left in those of their mean.

        Rows that two chains have set aside tell it: what their errors do not have in common vanishes with the number
        of chains.
        """
        pairs = shared_rows([part for part, _ in parts])
        if len(pairs) < LEAST_PAIRS:
            return 1.0
        errors = np.zeros((2, len(pairs), self.n_outputs_))
        for side, place in product((0, 1), range(len(parts))):
            rows = np.flatnonzero(pairs[:, side, 0] == place)
            if len(rows):
                part, ensemble = parts[place]
                some = part.take(pairs[rows, side, 1])
                encoded = np.asarray(some.inputs[:])
                errors[side, rows] = some.target - self._centre(encoded, evaluated(ensemble, encoded))
        return left_in_mean(errors, len(parts))

    def _typical(self) -> np.ndarray:
        """Return the scale of each output's scores where the fit had none to tell it: the spread of the targets."""
        spread = np.asarray(self.target_scaler_.scale_, float)
        return spread if len(spread) == self.n_outputs_ else np.ones(self.n_outputs_)

    def _heed(self, target: np.ndarray, raw: np.ndarray, weight: np.ndarray) -> None:
        """Take from raw predictions what scores do not tell: nothing."""


def left_in_mean(errors: np.ndarray, n_chains: int) -> np.ndarray:
    """Return what part of errors, in size and by output, is left in the mean of so many chains, from those of two.

    >>> rng = np.random.default_rng(0)
    >>> common, own = rng.normal(size=(1, 40_000, 1)), rng.normal(size=(2, 40_000, 1))
    >>> left_in_mean(common + own, 4).round(2).tolist()  # √((1 + 1/4) / (1 + 1))
    [0.79]
    """
    with np.errstate(all="ignore"):
        apart = np.nanmean((errors[0] - errors[1]) ** 2, axis=0) / 2
        ratio = apart / np.nanmean(errors**2, axis=(0, 1))
        left = np.sqrt(np.clip(1 - (1 - 1 / n_chains) * ratio, 1 / n_chains, 1.0))
    return np.where(np.isfinite(left), left, 1.0)


def shared_rows(parts: Sequence[Part]) -> np.ndarray:
    """Return rows that two parts have in common, (pairs, 2, 2): the place of a part, and the row's number in it."""
    known: dict[bytes, tuple[int, int]] = {}
    pairs = []
    for place, part in enumerate(parts):
        rows = np.concatenate([np.asarray(part.inputs[:], float).reshape(part.n_rows, -1), part.target], axis=1)
        for i, row in enumerate(rows):
            before = known.setdefault(row.tobytes(), (place, i))
            if before[0] != place:
                pairs.append((before, (place, i)))
    return np.array(pairs[:: -(-len(pairs) // MOST_PAIRS) or 1], int).reshape(-1, 2, 2)
