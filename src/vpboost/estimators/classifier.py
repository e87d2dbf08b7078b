"""Classification with two or more classes."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.special import log_softmax
from sklearn.base import ClassifierMixin
from sklearn.utils import assert_all_finite, compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from .. import losses
from ..predictor import logits, probabilities
from .base import BaseVPBoost
from .checks import of_order_one, unmasked
from .label_sets import LabelSets
from .parameters import PARAMETERS
from .settings import with_parameters


class VPBoostClassifier(ClassifierMixin, LabelSets, BaseVPBoost):
    """Gradient boosting of smooth learners for two or more classes.

    {parameters}

    Examples
    --------
    >>> import numpy as np
    >>> from vpboost import VPBoostClassifier
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(300, 2))
    >>> y = np.where((X**2).sum(axis=1) < 0.5, "in", "out")
    >>> model = VPBoostClassifier(n_estimators=10).fit(X, y)
    >>> bool(model.score(X, y) > 0.97)
    True
    """

    def __init__(self, *, class_weight: Any = None, **parameters: Any):
        super().__init__(**parameters)
        self.class_weight = class_weight

    # what scikit-learn and notebooks read
    __init__.__signature__ = with_parameters(BaseVPBoost, class_weight=None)  # type: ignore[attr-defined]

    _is_classifier = True

    def predict(self, X: Any) -> np.ndarray:
        """Return the most probable class of each row."""
        best = self.predict_proba(X).argmax(axis=1)
        return self.classes_[best]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return class probabilities, shape (n_samples, n_classes)."""
        return self._from_raw(self._raw(X))

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Return the logarithms of class probabilities, accurate for small ones, shape (n_samples, n_classes)."""
        return log_softmax(logits(np.asarray(self._raw(X), dtype=np.float64)), axis=1)

    def decision_function(self, X: Any) -> np.ndarray:
        """Return logits: (n_samples,) for two classes, else (n_samples, n_classes)."""
        raw = self._raw(X)
        return raw[:, 0] if raw.shape[1] == 1 else raw

    def staged_predict_proba(self, X: Any) -> Iterator[np.ndarray]:
        """Yield the probabilities after the first 1, 2, ... learners."""
        yield from (self._from_raw(raw) for raw in self._staged_raw(X))

    def staged_predict(self, X: Any) -> Iterator[np.ndarray]:
        """Yield the classes predicted by the first 1, 2, ... learners."""
        yield from (self.classes_[p.argmax(axis=1)] for p in self.staged_predict_proba(X))

    def input_gradient(self, X: Any) -> np.ndarray:
        """Return ∂logit/∂x, exact: (n_samples, n_features) for two classes, else (n_samples, n_classes, n_features)."""
        _, slopes = self._raw_gradient(X)
        return slopes[:, 0] if slopes.shape[1] == 1 else slopes

    def _from_raw(self, raw: np.ndarray) -> np.ndarray:
        return probabilities(np.asarray(raw, dtype=np.float64))

    def _check_target(self, y: Any, reset: bool) -> np.ndarray:
        if y is None:
            raise ValueError("requires y to be passed, but the target y is None")
        kind = str(getattr(y, "dtype", ""))
        if kind.startswith(("Int", "UInt")) and hasattr(y, "isna") and not y.isna().any():
            y = y.to_numpy(dtype=kind.lower())  # pandas would make floats of them, which have fewer digits
        labels = column_or_1d(unmasked(y, "y"), warn=True)
        if labels.dtype == object:
            require_one_type(labels)
        assert_all_finite(labels, input_name="y")
        check_classification_targets(labels)
        if reset:
            self.classes_ = np.unique(labels)
        as_text = labels.dtype.kind in "US", self.classes_.dtype.kind in "US"
        comparable = "O" in (labels.dtype.kind, self.classes_.dtype.kind) or as_text[0] == as_text[1]
        unknown = ~np.isin(labels, self.classes_) if comparable else np.ones(len(labels), bool)  # 10 is not "10"
        if unknown.any():
            raise ValueError(f"y and y_val must hold only classes of the (first) fit, got {str(labels[unknown][0])!r}")
        return np.searchsorted(self.classes_, labels).astype(np.int32)

    def _check_weight(self, sample_weight: Any, y: Any, n: int, name: str) -> np.ndarray:
        weight = super()._check_weight(sample_weight, y, n, name)
        if self.class_weight is None:
            return weight
        labels = np.asarray(y).reshape(-1)
        if name == "sample_weight":
            by_class = compute_sample_weight(self.class_weight, labels)
            self._weights_of_classes = np.ones(len(self.classes_))
            self._weights_of_classes[np.searchsorted(self.classes_, labels)] = by_class
        else:  # "balanced" is so in the training data
            by_class = self._weights_of_classes[np.searchsorted(self.classes_, labels)]
        bad = ~(np.isfinite(by_class) & (by_class >= 0))
        if bad.any():
            raise ValueError(f"class_weight must have finite weights that are not negative, got {by_class[bad][0]:g}")
        combined = weight * by_class
        if not combined.any():
            raise ValueError("class_weight and sample_weight leave no row with a positive weight")
        return of_order_one(combined)

    def _check_trimmed(self, target: np.ndarray) -> None:
        n_classes = len(np.unique(target))
        if n_classes < 2:
            raise ValueError(f"y must hold at least two classes with positive sample weight, got {n_classes} class")

    def _named_loss(self) -> Any:
        if self.loss not in (None, "log_loss"):
            raise ValueError(f"loss must be 'log_loss', got {self.loss!r}")

    def _resolve_loss(self, loss: Any) -> tuple[losses.Loss, str]:
        n_classes = len(self.classes_)
        return (losses.BinaryCrossEntropy() if n_classes == 2 else losses.MulticlassCrossEntropy(n_classes)), "none"


def require_one_type(labels: np.ndarray) -> None:
    """Raise ``ValueError`` if labels are missing, or cannot be put in order because they are of several types."""
    types = {type(label) for label in labels}
    if any(kind.__name__ in ("NoneType", "NAType", "NaTType") for kind in types):
        raise ValueError("y has missing labels; leave these rows out")
    if len({str if issubclass(kind, str) else kind for kind in types}) > 1:
        names = ", ".join(sorted(kind.__name__ for kind in types))
        raise ValueError(f"y must have labels of one type, got {names}; make text of them all")


CLASS_WEIGHT = """
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, multiplied into the sample weights."""
VPBoostClassifier.__doc__ = (VPBoostClassifier.__doc__ or "").replace(
    "{parameters}",
    PARAMETERS.format(
        losses='"log_loss" (default): binary or multiclass cross-entropy.',
        metrics='"log_loss", "error", "auc" (two classes)',
        more=CLASS_WEIGHT,
    ),
)
