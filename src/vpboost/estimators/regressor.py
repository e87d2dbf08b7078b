"""Regression with any number of outputs."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_array

from .. import losses
from ..suggest import did_you_mean
from ..tables.frames import column_values, in_order, is_frame
from .base import BaseVPBoost
from .checks import unmasked
from .intervals import Intervals
from .parameters import PARAMETERS
from .uncertainty import Uncertain

#: Targets may not be larger: predictions, and differences of them, must be numbers.
LARGEST = 1e300

REGRESSION_LOSSES = {
    "squared_error": losses.SquaredError,
    "pseudo_huber": losses.PseudoHuber,
    "quantile": losses.Quantile,
    "poisson": losses.Poisson,
    "gamma": losses.Gamma,
    "tweedie": losses.Tweedie,
}


class VPBoostRegressor(RegressorMixin, Intervals, Uncertain, BaseVPBoost):
    """Gradient boosting of smooth learners for regression with any number of outputs.

    {parameters}

    Examples
    --------
    >>> import numpy as np
    >>> from vpboost import VPBoostRegressor
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(150, 2))
    >>> y = np.sin(3 * X[:, 0]) * X[:, 1]
    >>> model = VPBoostRegressor().fit(X, y)
    >>> bool(model.score(X, y) > 0.99)
    True
    """

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Return predictions in the units of ``y``, shape (n_samples,) or (n_samples, n_outputs).

        With ``return_std``, also the standard deviation of ``y`` around them: that of noise and of ignorance together
        (see ``predict_uncertainty``).
        """
        if return_std:
            mean, noise, ignorance = self.predict_uncertainty(X)
            return mean, np.hypot(noise, ignorance)
        return self._from_raw(self._raw(X))

    def staged_predict(self, X: Any) -> Iterator[np.ndarray]:
        """Yield the predictions of the first 1, 2, ... learners."""
        yield from (self._from_raw(raw) for raw in self._staged_raw(X))

    def input_gradient(self, X: Any) -> np.ndarray:
        """Return ∂prediction/∂x in the user's units, exact: (n_samples, n_features), or (n, n_outputs, n_features)."""
        raw, slopes = self._raw_gradient(X)
        scale = self.target_scaler_.slope(raw)
        gradient = slopes * scale.reshape(*scale.shape, *[1] * (slopes.ndim - 2))
        return gradient[:, 0] if self.single_output_ else gradient

    def _plain(self, target: np.ndarray) -> np.ndarray:
        return target[:, 0] if self.single_output_ else target

    def _from_raw(self, raw: np.ndarray) -> np.ndarray:
        values = self.target_scaler_.inverse(np.asarray(raw, dtype=np.float64))
        return self._plain(values)

    def _check_target(self, y: Any, reset: bool) -> np.ndarray:
        if y is None:
            raise ValueError("requires y to be passed, but the target y is None")
        if not reset and is_frame(y) and self.target_names_ is not None:
            y = in_order(y, self.target_names_)
        if hasattr(y, "to_numpy") and not is_frame(y):  # a column of a data frame, of decimals, say
            y = column_values(y)
        target = check_array(unmasked(y, "y"), ensure_2d=False, dtype="numeric", input_name="y")
        if target.dtype.kind not in "biuf":
            raise ValueError(f"y must be numeric, got dtype {target.dtype}")
        if target.size and np.abs(target.astype(np.float64)).max() > LARGEST:
            raise ValueError(f"y must be smaller than {LARGEST:g} in size, got {np.abs(target).max():g}; rescale it")
        if reset:
            self.single_output_ = target.ndim == 1
            self.n_outputs_ = 1 if target.ndim == 1 else target.shape[1]
        elif (1 if target.ndim == 1 else target.shape[1]) != self.n_outputs_:
            raise ValueError(f"y must have {self.n_outputs_} output(s) as in training, got shape {target.shape}")
        return target.astype(np.float64).reshape(len(target), -1)

    def _named_loss(self) -> Any:
        loss = "squared_error" if self.loss is None else self.loss
        if isinstance(loss, str):
            if loss not in REGRESSION_LOSSES:
                hint = did_you_mean(loss, REGRESSION_LOSSES)
                known = sorted(REGRESSION_LOSSES)
                raise ValueError(f"loss must be one of {known}, a loss or a function, got {loss!r}{hint}")
            return REGRESSION_LOSSES[loss]()
        if isinstance(loss, losses.BinaryCrossEntropy | losses.MulticlassCrossEntropy):
            raise ValueError(f"loss must be one of regression, got {type(loss).__name__}; use VPBoostClassifier")
        if isinstance(loss, losses.Loss):
            return loss
        if isinstance(loss, type) and issubclass(loss, losses.Loss):
            raise TypeError(f"loss must be an object, not the class {loss.__name__}: give {loss.__name__}()")
        if callable(loss):
            return losses.CustomLoss(loss)
        raise TypeError(f"loss must be a name, a loss or a JAX function, got {type(loss).__name__}")

    def _resolve_loss(self, loss: losses.Loss) -> tuple[losses.Loss, str]:
        outputs = getattr(loss, "outputs", None)
        if outputs is not None and outputs != self.n_outputs_:
            raise ValueError(
                f"loss predicts outputs={outputs} numbers a row, y has {self.n_outputs_}; use vpboost.boost for a loss "
                "with other numbers of predictions and targets"
            )
        if isinstance(loss, losses.LogLink):
            return loss, "log"
        scaled = isinstance(loss, losses.SquaredError) or loss.robust
        return loss, "standard" if scaled else "none"


LOSSES = """"squared_error" (default), "pseudo_huber", "quantile" (the median; ``losses.Quantile(0.9)`` for others),
        "poisson", "gamma", "tweedie", a loss object, or a convex JAX function ``f(prediction, target)``. Targets are
        scaled to order one inside, so widths such as ``PseudoHuber(delta)`` are in units of y's spread (by its
        quartiles); a function sees them as they are."""
VPBoostRegressor.__doc__ = (VPBoostRegressor.__doc__ or "").replace(
    "{parameters}", PARAMETERS.format(losses=LOSSES, metrics='"rmse", "mae", "r2"', class_weight="")
)
