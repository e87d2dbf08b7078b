"""How sure predictions of a regressor are: noise, which more data would not reduce, and ignorance, which they would."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..core.data import evenly_spaced
from ..core.ensemble import Ensemble
from ..losses import Loss, Quantile
from ..numerics.ignorance import Apart, Evidence, Ignorance, ignorance_of
from ..tables.encoder import InputEncoder
from .parts import Part
from .prediction import evaluated

#: Rows, of training and set aside, and columns that are kept of a fit at the most; and numbers of targets.
MOST_TRAINED, MOST_ASIDE, MOST_COLUMNS, MOST_TARGETS = 400, 200, 128, 1 << 19

#: No error is larger in size.
LARGEST = 1e300


class Uncertainty(NamedTuple):
    """Predictions of a regressor, and the spreads of what makes the truth differ from them; all of one shape."""

    mean: np.ndarray  #: what ``predict`` returns
    noise: np.ndarray  #: of targets around the best prediction that there is
    ignorance: np.ndarray  #: of the best prediction around this one: small among training data, large far away


class Uncertain:
    """The regressor's part that says how sure it is."""

    loss_: Loss
    input_encoder_: InputEncoder
    _raw_of: Callable[[np.ndarray], np.ndarray]
    _plain: Callable[[np.ndarray], np.ndarray]
    _mean_and_std: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray | None]]
    _one_each: Callable[[np.ndarray], bool]
    _from_raw: Callable[[np.ndarray], np.ndarray]
    _encoded_parts: Callable[[Any], Iterator[np.ndarray]]
    _in_order: Callable[[], bool]
    _evidence: Evidence | None = None  #: None where there are too many columns, or in files of earlier versions
    _ignorance: Ignorance | Apart | None = None  #: None until it is asked for

    def predict_uncertainty(self, X: Any) -> Uncertainty:
        """Return predictions with the spreads of noise and of ignorance, each of the shape that ``predict`` returns.

        *Noise* is what more data would not reduce, *ignorance* what they would: it is small among training data and
        grows away from them. It is what a Gaussian process through 600 rows of the fit at the most leaves open, and how
        far its mean is from the prediction, scaled by the errors for rows that were set aside, of which noise is the
        other part. The variance of ``y`` around the prediction is the sum of both squares.

        Parameters
        ----------
        X : as in ``predict``; a table of 128 encoded columns at the most

        Returns
        -------
        Uncertainty
            A named tuple ``(mean, noise, ignorance)``. Of an output of which a single target was observed, nothing can
            be told: NaN.

        Examples
        --------
        >>> import numpy as np
        >>> from vpboost import VPBoostRegressor
        >>> X = np.linspace(-1, 1, 40)[:, None]
        >>> model = VPBoostRegressor(n_estimators=20).fit(X, np.sin(3 * X[:, 0]))
        >>> near, far = model.predict_uncertainty([[0.1], [3.0]]).ignorance
        >>> bool(far > 10 * near)
        True
        """
        check_is_fitted(self)
        if isinstance(self.loss_, Quantile):
            hint = "its predictions are bounds" if self._in_order() else "use predict_interval"
            raise ValueError(f"a model of quantiles has no standard deviation; {hint}")
        if self._evidence is None:
            if self.loss_.n_parameters > 1:
                raise ValueError("of several numbers for each target there is no standard deviation; see predict_dist")
            if len(self.input_encoder_.shape_) > 1 or self.input_encoder_.n_plain > MOST_COLUMNS:
                known = f"how sure a model is can be told of tables with {MOST_COLUMNS} encoded columns at the most"
            else:
                known = "how sure the model is cannot be told: it was saved with training_rows=False, or earlier"
            raise ValueError(f"{known}; use predict_interval")
        if len(self._evidence.rows) == 1:
            raise ValueError("one row tells nothing of how far off predictions may be; fit two or more")
        if self._ignorance is None:
            self._ignorance = ignorance_of(self._evidence)
        found = [self._uncertainty_of(encoded, self._ignorance) for encoded in self._encoded_parts(X)]
        return Uncertainty(*(self._plain(np.concatenate(parts)) for parts in zip(*found, strict=True)))

    def _uncertainty_of(self, encoded: np.ndarray, ignorance: Ignorance | Apart) -> tuple[np.ndarray, ...]:
        """Return predictions, noise and ignorance of encoded rows, each (rows, outputs)."""
        raw = self._raw_of(encoded)
        mean, predicted = self._mean_and_std(encoded, raw)
        noise = np.broadcast_to(ignorance.noise_of_outputs, mean.shape) if predicted is None else predicted
        return mean, noise, ignorance(encoded[:, : self.input_encoder_.n_plain], mean)

    def _note(self, train: Part, held_out: Part | None, unseen: Ensemble, given: bool) -> None:
        """Keep some rows of a fit, and the errors of learners that have not seen those set aside."""
        self._evidence = self._ignorance = None
        if len(np.shape(train.inputs)) > 2 or self.input_encoder_.n_plain > MOST_COLUMNS:
            return
        n_outputs = train.target.shape[1]
        aside, errors = None, np.zeros((0, n_outputs))
        if held_out is not None:
            aside = some_of(held_out, min(MOST_ASIDE, fewer(n_outputs)))
            raw = evaluated(unseen, np.asarray(aside.inputs[:]))
            if not self._one_each(raw):
                return
            errors = np.clip(aside.target - self._from_raw(raw).reshape(aside.target.shape), -LARGEST, LARGEST)
        kept = [some_of(train, min(MOST_TRAINED, fewer(n_outputs))), *([] if aside is None else [aside])]
        rows = np.concatenate([np.asarray(part.inputs[:], float)[:, : self.input_encoder_.n_plain] for part in kept])
        self._evidence = Evidence(rows, np.concatenate([part.target for part in kept]), errors, not given)


def fewer(n_outputs: int) -> int:
    """Return the rows whose targets are kept of so many outputs."""
    return max(MOST_TARGETS // n_outputs, 1)


def some_of(part: Part, most: int) -> Part:
    """Return a part, or so many rows of it."""
    return part.take(kept_rows(part.target, most)) if part.n_rows > most else part


def kept_rows(target: np.ndarray, most: int) -> np.ndarray:
    """Return so many rows, evenly spaced; where targets are missing, half of them at the most for one output each.

    >>> target = np.array([[1.0, np.nan]] * 8 + [[1.0, 2.0]] * 2 + [[1.0, np.nan]] * 10)
    >>> kept_rows(target, 4).tolist(), kept_rows(target[:, :1], 4).tolist()
    ([0, 8, 9, 11], [0, 5, 10, 15])
    """
    every, known = np.arange(len(target)), ~np.isnan(target)
    if known.all() or most < 4:
        return evenly_spaced(every, most)
    each = max(most // (2 * target.shape[1]), 2)
    few = known[:, known.sum(axis=0) * most < 2 * each * len(target)]  # of which evenly spaced rows would have too few
    of_few = [evenly_spaced(np.flatnonzero(column), each) for column in few.T]
    chosen = evenly_spaced(np.unique(np.concatenate([np.zeros(0, int), *of_few])), most // 2)
    rest = evenly_spaced(np.setdiff1d(every, chosen), most - len(chosen))
    return np.union1d(chosen, rest)
