"""Losses of real, positive and count targets, any number of outputs."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, ClassVar, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..checks import check_between, plain_number
from .base import (
    Loss,
    Rows,
    Values,
    away_from_zero,
    newton_constant_near,
    observed_columns,
    real_targets,
    weighted_mean,
)
from .curvature import Curvature, Diagonal, ScaledIdentity


class SquaredError(Loss):
    """ℓ = ½‖ŷ − y‖² for any number of outputs; H_i = I.

    >>> loss = SquaredError()
    >>> float(loss.value(jnp.array([3.0]), jnp.array([1.0])))
    2.0
    """

    sums_over_outputs: ClassVar[bool] = True

    def value(self, prediction: Rows, target: Array) -> Values:
        return 0.5 * jnp.sum((prediction - target) ** 2, axis=-1)

    def gradient(self, prediction: Rows, target: Array) -> Rows:
        return prediction - target

    def curvature(self, prediction: Rows, target: Array) -> Curvature:
        return ScaledIdentity(jnp.ones(prediction.shape[:-1], prediction.dtype), prediction.shape[-1])

    def best_constant(self, target: Array, weight: Float[Array, "blocks rows"]) -> Float[Array, " k"]:
        return jax.device_put(weighted_mean(target, weight).astype(weight.dtype))


class PseudoHuber(Loss):
    """ℓ = Σ_k δ²(√(1 + (r_k/δ)²) − 1), r = ŷ − y: quadratic for small residuals, linear for outliers.

    Parameters
    ----------
    delta : float, default=1.0
        The residual δ > 0 at which the loss turns from quadratic to linear.
    """

    robust: ClassVar[bool] = True
    sums_over_outputs: ClassVar[bool] = True
    delta: float = eqx.field(static=True, default=1.0, converter=plain_number)

    def __check_init__(self) -> None:
        check_between("delta", self.delta, 0, np.inf, "positive and finite")

    def value(self, prediction: Rows, target: Array) -> Values:
        ratio = (prediction - target) / self.delta
        # √(1+t²) − 1 written without cancellation
        return self.delta**2 * jnp.sum(ratio**2 / (1 + jnp.sqrt(1 + ratio**2)), axis=-1)

    def gradient(self, prediction: Rows, target: Array) -> Rows:
        residual = prediction - target
        return residual / jnp.sqrt(1 + (residual / self.delta) ** 2)

    def curvature(self, prediction: Rows, target: Array) -> Curvature:
        return Diagonal((1 + ((prediction - target) / self.delta) ** 2) ** -1.5)

    def best_constant(self, target: Array, weight: Float[Array, "blocks rows"]) -> Float[Array, " k"]:
        return newton_constant_near(0.5, self, target, weight)


def levels_of(value: Any) -> Any:
    """Return several levels as a tuple of numbers, one level as it is."""
    several = isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.ndim == 1)
    return tuple(plain_number(level) for level in value) if several else plain_number(value)


class Quantile(Loss):
    """ℓ = Σ_k s·softplus(r_k/s) + (τ − 1) r_k, r = y − ŷ: the pinball loss of level τ, smoothed over a width s.

    Several levels are predicted by one model, whose loss is the sum of theirs. The estimators put the quantiles of a
    row in order, so that they never cross: that can only lower the pinball loss.

    Parameters
    ----------
    level : float or list of float, default=0.5
        The quantile τ in (0, 1) to predict, or several, rising.
    smoothing : float, default=0.05
        The width s > 0, in units of y, over which the kink is rounded off. The estimators take less where targets
        lie close together around the quantile, as low quantiles of skewed targets do: they would be far off.

    Examples
    --------
    >>> loss = Quantile([0.1, 0.5, 0.9])
    >>> slopes = loss.gradient(jnp.zeros(3), jnp.array([2.0]))  # a target above all three
    >>> [round(float(slope), 3) for slope in slopes]
    [-0.1, -0.5, -0.9]
    """

    robust: ClassVar[bool] = True
    sums_over_outputs: ClassVar[bool] = True
    level: float | Sequence[float] = eqx.field(static=True, default=0.5, converter=levels_of)
    smoothing: float = eqx.field(static=True, default=0.05, converter=plain_number)

    def __check_init__(self) -> None:
        for level in self.levels:
            check_between("level", level, 0, 1, "in (0, 1)")
        if not self.levels or any(b <= a for a, b in pairwise(self.levels)):
            raise ValueError(f"level must rise from each quantile to the next, got {list(self.levels)}")
        check_between("smoothing", self.smoothing, 0, np.inf, "positive and finite")

    @property
    def levels(self) -> tuple[float, ...]:
        """All levels."""
        return self.level if isinstance(self.level, tuple) else (cast(float, self.level),)

    @property
    def n_parameters(self) -> int:
        return len(self.levels)

    def n_outputs(self, target: np.ndarray | Array) -> int:
        return self.n_parameters * target.shape[1]

    def adapted(self, target: np.ndarray, weight: np.ndarray) -> "Quantile":
        """Return the loss with a smoothing of at most a fifth of the width of the targets' law around each quantile."""
        widths = []
        for level in self.levels:
            tail = min(level, 1 - level) / 2
            ends = [
                np.quantile(column, [level - tail, level + tail], weights=known, method="inverted_cdf")
                for column, known in observed_columns(target, weight)
            ]
            widths += [high - low for low, high in ends if high > low]
        return Quantile(self.level, min(self.smoothing, float(min(widths)) / 5)) if widths else self

    def _residual(self, prediction: Rows, target: Array) -> tuple[Array, Any]:
        """Return y − ŷ, and the level of each."""
        if not isinstance(self.level, tuple):
            return target - prediction, self.level
        n_targets = target.shape[-1]
        return jnp.repeat(target, self.n_parameters, axis=-1) - prediction, np.tile(
            np.asarray(self.level, prediction.dtype), n_targets
        )

    def value(self, prediction: Rows, target: Array) -> Values:
        residual, level = self._residual(prediction, target)
        return jnp.sum(self.smoothing * jax.nn.softplus(residual / self.smoothing) + (level - 1) * residual, axis=-1)

    def gradient(self, prediction: Rows, target: Array) -> Rows:
        residual, level = self._residual(prediction, target)
        return (1 - level) - jax.nn.sigmoid(residual / self.smoothing)

    def curvature(self, prediction: Rows, target: Array) -> Curvature:
        ratio = self._residual(prediction, target)[0] / self.smoothing
        return Diagonal(jax.nn.sigmoid(ratio) * jax.nn.sigmoid(-ratio) / self.smoothing)

    def best_constant(self, target: Array, weight: Float[Array, "blocks rows"]) -> Float[Array, " k"]:
        if not isinstance(self.level, tuple):
            return newton_constant_near(self.levels[0], self, target, weight)
        single = [Quantile(level, self.smoothing) for level in self.level]
        found = [np.asarray(newton_constant_near(one.levels[0], one, target, weight)) for one in single]
        return jax.device_put(np.stack(found, axis=1).reshape(-1))


class LogLink(Loss):
    """A loss of non-negative targets whose prediction is the log of their mean; c₀ = log of the mean.

    It is half of the deviance: zero where the prediction is right, so that what is left can be told as a part of it.
    """

    sums_over_outputs: ClassVar[bool] = True

    def prepare_targets(self, y: Any) -> np.ndarray:
        target = real_targets(y)
        if target.min() < 0:
            name = type(self).__name__
            raise ValueError(f"y must be non-negative for the {name} loss, got a value of {target.min():g}")
        return target

    def best_constant(self, target: Array, weight: Float[Array, "blocks rows"]) -> Float[Array, " k"]:
        mean = away_from_zero(weighted_mean(target, weight))
        return jax.device_put(np.log(mean).astype(weight.dtype))


def log_ratio(prediction: Rows, target: Array) -> tuple[Rows, Array]:
    """Return u = ŷ − log y, by how much the log of the mean is off; ŷ itself where y is zero, and whether it is not."""
    positive = target > 0
    return prediction - jnp.log(jnp.where(positive, target, 1.0)), positive


class Poisson(LogLink):
    """ℓ = Σ_k y_k (e^{u_k} − 1 − u_k), u = ŷ − log y: counts y ≥ 0 with log link (ŷ is the log of the rate).

    That is e^ŷ − y ŷ less what is left of it where the prediction is right, and e^ŷ where y is zero.
    """

    def value(self, prediction: Rows, target: Array) -> Values:
        u, positive = log_ratio(prediction, target)
        return jnp.sum(jnp.where(positive, target * (jnp.expm1(u) - u), jnp.exp(u)), axis=-1)

    def gradient(self, prediction: Rows, target: Array) -> Rows:
        return jnp.exp(prediction) - target

    def curvature(self, prediction: Rows, target: Array) -> Curvature:
        return Diagonal(jnp.exp(prediction))


class Gamma(LogLink):
    """ℓ = Σ_k e^{−u_k} − 1 + u_k, u = ŷ − log y: positive targets, log link and constant coefficient of variation."""

    def value(self, prediction: Rows, target: Array) -> Values:
        u, _ = log_ratio(prediction, target)
        return jnp.sum(jnp.expm1(-u) + u, axis=-1)

    def gradient(self, prediction: Rows, target: Array) -> Rows:
        return 1 - target * jnp.exp(-prediction)

    def curvature(self, prediction: Rows, target: Array) -> Curvature:
        return Diagonal(target * jnp.exp(-prediction))

    def prepare_targets(self, y: Any) -> np.ndarray:
        target = real_targets(y)
        if target.min() <= 0:
            raise ValueError(f"y must be positive for the Gamma loss, got a value of {target.min():g}")
        return target


class Tweedie(LogLink):
    """ℓ = Σ_k y_k^{2−p} ((e^{(2−p)u_k} − 1)/(2−p) − (e^{(1−p)u_k} − 1)/(1−p)), u = ŷ − log y: exact zeros and a tail.

    That is e^{(2−p)ŷ}/(2−p) − y e^{(1−p)ŷ}/(1−p) less what is left of it where the prediction, the log of the mean, is
    right; e^{(2−p)ŷ}/(2−p) where y is zero.

    Parameters
    ----------
    power : float, default=1.5
        The variance power p in (1, 2): near 1 like counts, near 2 like Gamma.
    """

    power: float = eqx.field(static=True, default=1.5, converter=plain_number)

    def __check_init__(self) -> None:
        check_between("power", self.power, 1, 2, "in (1, 2)", " (use Poisson for 1 and Gamma for 2)")

    def value(self, prediction: Rows, target: Array) -> Values:
        p = self.power
        u, positive = log_ratio(prediction, target)
        size = jnp.exp((2 - p) * (prediction - u))  # y to the power of 2 - p
        off = jnp.expm1((2 - p) * u) / (2 - p) - jnp.expm1((1 - p) * u) / (1 - p)
        return jnp.sum(jnp.where(positive, size * off, jnp.exp((2 - p) * u) / (2 - p)), axis=-1)

    def gradient(self, prediction: Rows, target: Array) -> Rows:
        p = self.power
        return jnp.exp((2 - p) * prediction) - target * jnp.exp((1 - p) * prediction)

    def curvature(self, prediction: Rows, target: Array) -> Curvature:
        p = self.power
        rate, inverse = jnp.exp((2 - p) * prediction), jnp.exp((1 - p) * prediction)
        return Diagonal((2 - p) * rate + (p - 1) * target * inverse)
