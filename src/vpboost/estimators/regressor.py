"""Regression with any number of outputs."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils import assert_all_finite
from sklearn.utils.validation import check_array, check_is_fitted

from .. import losses
from ..predictor import predicted
from ..suggest import did_you_mean
from ..tables.frames import column_values, in_order, is_frame
from .checks import unmasked
from .distributional import Distributional, check_distribution
from .intervals import Intervals
from .metrics import REGRESSION
from .parameters import PARAMETERS
from .settings import with_parameters
from .slopes import check_slope_weight
from .spread import FAMILIES
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


class VPBoostRegressor(RegressorMixin, Intervals, Uncertain, Distributional):
    """Gradient boosting of smooth learners for regression with any number of outputs.

    {parameters}

    Examples
    --------
    >>> import numpy as np
    >>> from vpboost import VPBoostRegressor
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(48, 2))
    >>> y = np.sin(3 * X[:, 0]) * X[:, 1]
    >>> model = VPBoostRegressor().fit(X, y)
    >>> bool(model.score(X, y) > 0.99)
    True
    """

    def __init__(self, *, distribution: Any = None, slope_weight: Any = "auto", **parameters: Any):
        super().__init__(**parameters)
        self.distribution, self.slope_weight = distribution, slope_weight

    # what scikit-learn and notebooks read
    __init__.__signature__ = with_parameters(  # type: ignore[attr-defined]
        Distributional, distribution=None, slope_weight="auto"
    )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Return predictions in the units of ``y``, shape (n_samples,) or (n_samples, n_outputs).

        With a ``distribution``, these are its means. Several quantiles are along a last axis, and never cross. With
        ``return_std``, also the standard deviation of ``y`` around them: that of noise and of ignorance together (see
        ``predict_uncertainty``).
        """
        if return_std:
            mean, noise, ignorance = self.predict_uncertainty(X)
            return mean, np.hypot(noise, ignorance)
        if self.distribution == "lognormal":
            return self.predict_dist(X).mean()
        return self._from_raw(self._raw(X))

    def staged_predict(self, X: Any) -> Iterator[np.ndarray]:
        """Yield the predictions of the first 1, 2, ... learners."""
        self._link()
        yield from (self._from_raw(raw) for raw in self._staged_raw(X))

    def input_gradient(self, X: Any) -> np.ndarray:
        """Return ∂prediction/∂x in the user's units, exact: (n_samples, n_features), or (n, n_outputs, n_features)."""
        self._link()
        raw, slopes = self._raw_gradient(X)
        each = raw.reshape(len(raw), self.n_outputs_, -1)
        slopes = slopes.reshape(*each.shape, *slopes.shape[2:])
        if self._in_order():
            places = np.argsort(each, axis=2, kind="stable")
            slopes = np.take_along_axis(slopes, places.reshape(*places.shape, *[1] * (slopes.ndim - 3)), axis=2)
            gradient = slopes * self.target_scaler_.scale_.reshape(-1, *[1] * (slopes.ndim - 2))
        else:
            scale = self.target_scaler_.slope(each[:, :, 0])
            gradient = slopes[:, :, 0] * scale.reshape(*scale.shape, *[1] * (slopes.ndim - 3))
        return gradient[:, 0] if self.single_output_ else gradient

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return R², the mean of those of the outputs; missing targets do not count."""
        check_is_fitted(self)
        if self._in_order():
            raise ValueError("score is R², of one prediction for each target; this model predicts several quantiles")
        target = np.asarray(y)
        if target.ndim != 2 or target.dtype.kind != "f" or not np.isnan(target).any():
            return super().score(X, y, sample_weight)
        weight = np.ones(len(target)) if sample_weight is None else np.asarray(sample_weight, float)
        return -REGRESSION["r2"](target, self.predict(X), weight)

    def _check_trimmed(self, target: np.ndarray) -> None:
        check_holes(np.isnan(target), columns=True)
        if self.distribution == "negative_binomial":
            losses.Observed(losses.NegativeBinomialLikelihood()).prepare_targets(target)

    def _plain(self, target: np.ndarray) -> np.ndarray:
        return target[:, 0] if self.single_output_ else target

    def _from_raw(self, raw: np.ndarray) -> np.ndarray:
        each = np.asarray(raw, dtype=np.float64).reshape(len(raw), self.n_outputs_, -1)
        return self._plain(predicted(each, self.target_scaler_.inverse, self._in_order()))

    def _link(self) -> str:
        check_is_fitted(self)
        if self.target_scaler_.kind == "logs":
            raise ValueError(
                "this is not known for distribution='lognormal', whose mean depends on its spread, too; fit "
                "distribution='normal' to the logarithms of y"
            )
        return super()._link()

    def _check_target(self, y: Any, reset: bool) -> np.ndarray:
        if y is None:
            raise ValueError("requires y to be passed, but the target y is None")
        if not reset and is_frame(y) and self.target_names_ is not None:
            y = in_order(y, self.target_names_)
        if hasattr(y, "to_numpy") and not is_frame(y):  # a column of a data frame, of decimals, say
            y = column_values(y)
        target = check_array(
            unmasked(y, "y"), ensure_2d=False, dtype="numeric", input_name="y", ensure_all_finite="allow-nan"
        )
        if target.ndim != 2 or target.shape[1] < 2:  # of several outputs, NaN is a target that was not observed
            assert_all_finite(target, input_name="y")
        if target.dtype.kind not in "biuf":
            raise ValueError(f"y must be numeric, got dtype {target.dtype}")
        holes = np.isnan(target)
        check_holes(holes, columns=reset)
        lonely = np.flatnonzero((~holes).sum(axis=0) == 1)
        if reset and holes.any() and len(lonely) and self.distribution is not None:
            raise ValueError(
                f"y has a single target for output(s) {lonely.tolist()}, which tells no spread: distribution="
                f"{self.distribution!r} needs two or more; leave these columns out"
            )
        if target.size and np.nanmax(np.abs(target.astype(np.float64))) > LARGEST:
            raise ValueError(
                f"y must be smaller than {LARGEST:g} in size, got {np.nanmax(np.abs(target)):g}; rescale it"
            )
        if reset:
            self.single_output_ = target.ndim == 1
            self.n_outputs_ = 1 if target.ndim == 1 else target.shape[1]
        elif (1 if target.ndim == 1 else target.shape[1]) != self.n_outputs_:
            raise ValueError(f"y must have {self.n_outputs_} output(s) as in training, got shape {target.shape}")
        return target.astype(np.float64).reshape(len(target), -1)

    def _named_loss(self) -> Any:
        check_slope_weight(self.slope_weight)
        check_distribution(self.distribution, self.loss)
        if self.distribution is not None:
            own = isinstance(self.distribution, losses.Likelihood)
            return self.distribution if own else FAMILIES[self.distribution].location()
        loss = "squared_error" if self.loss is None else self.loss
        if isinstance(loss, str):
            if loss not in REGRESSION_LOSSES:
                hint = did_you_mean(loss, REGRESSION_LOSSES)
                known = sorted(REGRESSION_LOSSES)
                raise ValueError(f"loss must be one of {known}, a loss or a function, got {loss!r}{hint}")
            return REGRESSION_LOSSES[loss]()
        if isinstance(loss, losses.BinaryCrossEntropy | losses.MulticlassCrossEntropy):
            raise ValueError(f"loss must be one of regression, got {type(loss).__name__}; use VPBoostClassifier")
        if isinstance(loss, losses.Likelihood):
            raise ValueError(
                f"loss must predict one number for each target; give {type(loss).__name__} as distribution"
            )
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
        if isinstance(self.distribution, str):
            return loss, FAMILIES[self.distribution].kind
        if isinstance(loss, losses.LogLink):
            return loss, "log"
        scaled = isinstance(loss, losses.SquaredError) or (loss.robust and not isinstance(loss, losses.Likelihood))
        return loss, "standard" if scaled else "none"


def check_holes(holes: np.ndarray, columns: bool) -> None:
    """Raise ``ValueError`` if a row has no target at all or, with ``columns``, an output none in any row."""
    if not holes.any():
        return
    rows = np.flatnonzero(holes.all(axis=1))
    if len(rows):
        shown = f"{rows[:10].tolist()}{' and more' if len(rows) > 10 else ''}"
        raise ValueError(f"y has no target at all in {len(rows)} row(s), {shown}; leave these rows out")
    empty = np.flatnonzero(holes.all(axis=0))
    if columns and len(empty):
        raise ValueError(f"y has no target at all for output(s) {empty.tolist()}; leave these columns out")


LOSSES = """"squared_error" (default), "pseudo_huber", "quantile" (the median; ``losses.Quantile(0.9)`` for others,
        ``losses.Quantile([0.05, 0.95])`` for several at once),
        "poisson", "gamma", "tweedie", a loss object, or a convex JAX function ``f(prediction, target)``. Targets are
        scaled to order one inside, so widths such as ``PseudoHuber(delta)`` are in units of y's spread (by its
        quartiles); a function sees them as they are: divide y if its spread is far from one."""
SLOPE_WEIGHT = """
    slope_weight : float or "auto", default="auto"
        What the squared error of a derivative given as ``dy`` weighs beside that of a value, both in units of the
        spreads of y and of the column of X. "auto" is 1 over the number of numeric columns."""
DISTRIBUTION = """
    distribution : str, Likelihood or None, default=None
        What ``predict_dist`` returns: "normal", "lognormal", "student_t", "gamma", "negative_binomial", or a
        ``losses.CustomLikelihood``; ``predict`` then returns its mean. It brings its own loss: leave ``loss`` None. The
        location is learnt as without it; the spread from predictions of rows by models that have not seen them."""
VPBoostRegressor.__doc__ = (VPBoostRegressor.__doc__ or "").replace(
    "{parameters}", PARAMETERS.format(losses=LOSSES, metrics='"rmse", "mae", "r2"', more=DISTRIBUTION + SLOPE_WEIGHT)
)
