"""What an estimator learns from rows that it was not trained on: how large its errors are, and how sure it may be."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import check_is_fitted

from ..checks import check_between, check_count
from ..core.data import evenly_spaced
from ..core.ensemble import Ensemble
from ..featurizers import takes
from ..numerics.conformal import Conformity, rows_needed
from ..tables.encoder import InputEncoder
from ..tables.rows import take
from .checks import Checks
from .parts import Part
from .portfolio import OF_NETWORK, Profile, is_auto
from .prediction import evaluated

#: Rows whose scores are kept, and numbers of them, at the most; and rows that a fit itself has scores of.
MOST_ROWS, MOST_NUMBERS, MOST_OF_FIT = 10_000, 1 << 21, 2000


class Seen(NamedTuple):
    """Rows, and raw predictions by chains that have not learnt from them; of one row perhaps several."""

    target: np.ndarray
    encoded: np.ndarray
    raw: np.ndarray
    weight: np.ndarray


class Calibrating:
    """The estimators' part that looks at rows that were not trained on."""

    _is_classifier: bool
    profile_: Profile
    seed_: int
    featurizer: Any
    classes_: np.ndarray
    evals_result_: dict[str, list[float]]
    _known_inputs: Callable[[Any], Any]
    _check_target: Callable[..., np.ndarray]
    _scores: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
    _heed: Callable[[np.ndarray, np.ndarray, np.ndarray], None]
    _raw_of: Callable[[np.ndarray], np.ndarray]
    _plain: Callable[[np.ndarray], np.ndarray]
    input_encoder_: InputEncoder
    _conformity: Conformity | None = None  #: None if no row was set aside
    _temperature: float = 1.0  #: what raw predictions have been divided by, of a classifier

    def calibrate(self, X: Any, y: Any, sample_weight: Any = None, *, cv: int | None = None) -> Any:
        """Learn from rows that the model was not trained on how far its predictions are from the truth.

        Of a regressor, ``predict_interval`` then goes by these rows; of a classifier, ``predict_set`` does, and
        probabilities are corrected by a *temperature*: logits are divided by the number that makes the log-loss on
        these rows smallest (the order of the classes stays).

        Parameters
        ----------
        X, y : as in ``fit``
            Rows that the fit has not seen: if they come from the same law as later ones, coverage is exact however
            wrong the model is. Or, with ``cv``, the rows of the fit.
        sample_weight : array of shape (n_samples,), optional
            Non-negative weights: how much each row counts in the law that later rows come from.
        cv : int, optional
            Fit so many models with the same settings, each without one part of the rows, and go by their predictions
            for these parts: for data so few that none can be spared. Coverage is then about right, not exact (the
            model itself has learnt from more rows).

        Returns
        -------
        self

        Examples
        --------
        >>> import numpy as np
        >>> from vpboost import VPBoostRegressor
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(-1, 1, size=(300, 2))
        >>> y = X[:, 0] + 0.1 * rng.normal(size=300)
        >>> model = VPBoostRegressor(n_estimators=5).fit(X[:200], y[:200]).calibrate(X[200:], y[200:])
        >>> low, high = model.predict_interval(X[:5], coverage=0.8)
        >>> low.shape, bool((low < high).all())
        ((5,), True)
        """
        inputs, target = self._known_inputs(X), self._check_target(y, reset=False)
        if len(target) != inputs.shape[0]:
            raise ValueError(f"X and y must have as many rows, got {inputs.shape[0]} and {len(target)}")
        # those of classes are not the law of later rows
        weight = Checks._check_weight(self, sample_weight, y, len(target), "sample_weight")  # type: ignore[arg-type]
        rows = evenly_spaced(np.flatnonzero(weight > 0), MOST_ROWS)
        if cv is None:
            encoded = self.input_encoder_.transform(take(inputs, rows))
            raw = self._raw_of(encoded) * self._temperature
            self._require_one_each(raw)
            self._calibrate_by(target[rows], self._scores(target[rows], encoded, raw), raw, weight[rows])
            return self
        check_count("cv", cv, 2)
        self._require_one_each(self._raw_of(self.input_encoder_.transform(take(inputs, rows[:1]))))
        found = []
        for test, model in self._by_others(X, target, sample_weight, cv):
            encoded = model.input_encoder_.transform(model._known_inputs(_safe_indexing(X, test)))
            raw = model._raw_of(encoded)
            found.append((test, model._scores(target[test], encoded, raw), raw))
        test, scores, raw = (np.concatenate(part) for part in zip(*found, strict=True))
        kept = evenly_spaced(np.flatnonzero(weight[test] > 0), MOST_ROWS)
        self._calibrate_by(target[test[kept]], scores[kept], raw[kept], weight[test[kept]])
        return self

    def _by_others(self, X: Any, target: np.ndarray, sample_weight: Any, cv: int) -> Iterator[tuple[np.ndarray, Any]]:
        """Yield parts of the rows, and models with these settings that have not seen them."""
        if cv > len(target):
            raise ValueError(f"cv must be at most the number of rows, {len(target)}, got {cv}")
        if self._is_classifier and np.bincount(target, minlength=len(self.classes_)).min() < 2:
            raise ValueError("cv needs two rows of every class at least, so that no part of the rows has all of one")
        folds = (StratifiedKFold if self._is_classifier else KFold)(cv, shuffle=True, random_state=self.seed_ % 2**32)
        y = self.classes_[target] if self._is_classifier else self._plain(target)  # outputs in the order of the fit
        for train, test in folds.split(np.zeros(len(target)), target if self._is_classifier else None):
            weight = None if sample_weight is None else np.asarray(sample_weight)[train]
            model = clone(self).set_params(**self._settled(), callbacks=None, verbose=0, warm_start=False)
            yield test, model.fit(_safe_indexing(X, train), y[train], weight)

    def _settled(self) -> dict[str, Any]:
        """Return what the race has decided, as parameters of another fit."""
        known = self.profile_.parameters()
        if not isinstance(self.featurizer, str) or not takes(self.featurizer, "weight_scale"):
            known.pop("weight_scale", None)
        if not self.evals_result_["validation"]:
            known.pop("early_stopping_rounds")  # so few rows that none were set aside
        return {name: value for name, value in known.items() if name in OF_NETWORK or is_auto(getattr(self, name))}

    def _calibrate_by(self, target: np.ndarray, scores: np.ndarray, raw: np.ndarray, weight: np.ndarray) -> None:
        """Keep the scores of rows that were not trained on, and heed their raw predictions."""
        before = self._conformity
        self._conformity = Conformity(*few_enough(scores, weight), self._typical() if before is None else before.scale)
        self._heed(target, raw, weight)

    def _typical(self) -> np.ndarray:
        """Return the scale of each output's scores where the fit had none to tell it."""
        return np.ones(1)

    def _remember(self, parts: Sequence[tuple[Part | None, Ensemble]]) -> None:
        """Keep the scores of rows set aside by a fit; each part comes with learners that have not seen it."""
        self._conformity = None
        known = [(part, ensemble) for part, ensemble in parts if part is not None]
        most, found = -(-MOST_OF_FIT // max(len(known), 1)), []
        for part, ensemble in known:
            some = part.take(evenly_spaced(np.arange(part.n_rows), most)) if part.n_rows > most else part
            encoded = np.asarray(some.inputs[:])
            raw = evaluated(ensemble, encoded)
            if not self._one_each(raw):
                return
            found.append((some.target, encoded, raw, some.weight))
        if known:
            seen = Seen(*(np.concatenate(arrays) for arrays in zip(*found, strict=True)))
            scores = self._scores(seen.target, seen.encoded, seen.raw) * self._gain(seen, len(known))
            self._keep_scores(scores, seen.weight)

    def _gain(self, seen: Seen, n_chains: int) -> np.ndarray | float:
        """Return how many times smaller scores of the mean of chains are than those of one, of each output."""
        return 1.0

    def _heed_training(self, train: Part, first: Ensemble) -> None:
        """Heed what the model leaves of training rows, where scores are those of the first chain alone: nothing."""

    def _keep_scores(self, scores: np.ndarray, weight: np.ndarray) -> None:
        """Keep scores of rows by models that have not learnt from them; they tell the scale of each output's, too."""
        found, weight = few_enough(scores, weight)
        self._conformity = Conformity(found, weight, spread_of(found, self._typical()))

    def _note(self, train: Part, held_out: Part | None, unseen: Ensemble, given: bool) -> None:
        """Keep what else a fit tells about its errors: nothing."""

    def _one_each(self, raw: np.ndarray) -> bool:
        """Say whether there is one prediction for each target."""
        return True

    def _require_one_each(self, raw: np.ndarray) -> None:
        if not self._one_each(raw):
            raise ValueError("calibrate needs one prediction for each target; this model makes several")

    def _known_conformity(self, coverage: Any, simultaneous: bool = False) -> Conformity:
        """Return the scores, of which there are enough for this coverage."""
        check_is_fitted(self)
        check_between("coverage", coverage, 0, 1, "in (0, 1)")
        needed, found = rows_needed(coverage), self._conformity
        if found is None:
            raise ValueError(
                f"the fit has set no rows aside to know its errors by; call calibrate(X, y) with {needed} rows or more "
                "that it has not seen, or calibrate(X, y, cv=5) with those that it has"
            )
        n, whole = found.fewest(simultaneous), " with all their targets" if simultaneous else ""
        if n < needed:
            raise ValueError(
                f"coverage={coverage:g} needs the errors of {needed} rows{whole} that were not trained on, known are "
                f"those of {n}; call calibrate(X, y) with {needed} rows or more, or calibrate(X, y, cv=5) with "
                "those of the fit"
            )
        return found


def few_enough(scores: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return scores and weights of as many rows as are kept."""
    most = max(min(MOST_ROWS, MOST_NUMBERS // max(scores.shape[1], 1)), 1)
    return evenly_spaced(scores, most), np.array(evenly_spaced(weight, most))


def spread_of(scores: np.ndarray, otherwise: np.ndarray) -> np.ndarray:
    """Return the root mean square of each output's scores, where they tell it."""
    with np.errstate(over="ignore", invalid="ignore"):
        largest = np.nanmax(np.where(np.isnan(scores), 0.0, scores), axis=0, initial=0.0)
        unit = np.where(largest > 0, largest, 1.0)
        known = np.maximum(np.sum(~np.isnan(scores), axis=0), 1)
        found = unit * np.sqrt(np.nansum((scores / unit) ** 2, axis=0) / known)
    return np.where(np.isfinite(found) & (found >= np.finfo(float).tiny), found, otherwise)
