"""Negative log-likelihoods: losses that predict all parameters of a distribution, several numbers for each target.

For K targets and P parameters the prediction of a row is the P parameters of the first target, then those of the
second, and so on. H is not the Hessian, which may be indefinite, but the Fisher information, which is diagonal in the
parameters chosen here: a step with it is one of Fisher scoring, or of the natural gradient. The trust region compares
its model with the true loss.
"""

import abc
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import digamma, gammaln, polygamma
from jaxtyping import Array, Float
from scipy.special import gammaln as log_gamma

from ..checks import check_between, check_count, plain_number
from .base import Loss, Rows, Values, newton_constant, real_targets
from .curvature import Curvature, Diagonal

#: Logarithms of scales and shapes are cut off at this size: e^{±15}.
MOST_LOG = 15.0
#: From here on, a series is more accurate than the difference of nearly equal numbers.
LARGE_SHAPE = 10.0


class Likelihood(Loss):
    """−log of a density of each target; subclasses say what it is for one target and its parameters."""

    sums_over_outputs: ClassVar[bool] = True

    @abc.abstractmethod
    def of_target(self, parameters: Float[Array, "*rows p"], y: Array) -> Array:
        """Return −log p(y)."""

    @abc.abstractmethod
    def slopes(self, parameters: Float[Array, "*rows p"], y: Array) -> Float[Array, "*rows p"]:
        """Return its derivatives by the parameters."""

    @abc.abstractmethod
    def information(self, parameters: Float[Array, "*rows p"], y: Array) -> Float[Array, "*rows p"]:
        """Return the diagonal of the Fisher information."""

    def start(self, column: np.ndarray, weight: np.ndarray) -> list[float]:
        """Return parameters near the best for the numbers of one target; weights sum to one."""
        return [0.0] * self.n_parameters

    def value(self, prediction: Rows, target: Array) -> Values:
        return jnp.sum(self.of_target(self._parameters(prediction), target), axis=-1)

    def gradient(self, prediction: Rows, target: Array) -> Rows:
        return self.slopes(self._parameters(prediction), target).reshape(prediction.shape)

    def curvature(self, prediction: Rows, target: Array) -> Curvature:
        return Diagonal(self.information(self._parameters(prediction), target).reshape(prediction.shape))

    def _parameters(self, prediction: Rows) -> Float[Array, "*rows k p"]:
        return prediction.reshape(*prediction.shape[:-1], -1, self.n_parameters)

    def n_outputs(self, target: np.ndarray | Array) -> int:
        return self.n_parameters * target.shape[1]

    def best_constant(self, target: Array, weight: Float[Array, "blocks rows"]) -> Float[Array, " k"]:
        found, share = [], np.asarray(weight, float).reshape(-1)
        for column in np.moveaxis(np.asarray(target), -1, 0):
            start = np.array(self.start(column.reshape(-1).astype(float), share), weight.dtype)
            alone = jax.device_put(np.ascontiguousarray(column)[..., None])
            found.append(np.asarray(newton_constant(self, alone, weight, jax.device_put(start))))
        return jax.device_put(np.concatenate(found))


def cut(log: Array) -> tuple[Array, Array]:
    """Return a logarithm within bounds, and the derivative of that: 1, and 0 outside."""
    return jnp.clip(log, -MOST_LOG, MOST_LOG), (jnp.abs(log) <= MOST_LOG).astype(log.dtype)


class NormalLikelihood(Likelihood):
    """−log density of a normal law with mean μ and standard deviation σ; predicts μ and log σ.

    Its Fisher information is diag(1/σ², 2).

    >>> loss = NormalLikelihood()
    >>> float(loss.value(jnp.array([1.0, 0.0]), jnp.array([1.0])))  # ½ log 2π
    0.9189...
    """

    @property
    def n_parameters(self) -> int:
        return 2

    def of_target(self, parameters: Array, y: Array) -> Array:
        log, _ = cut(parameters[..., 1])
        return 0.5 * np.log(2 * np.pi) + log + 0.5 * ((y - parameters[..., 0]) * jnp.exp(-log)) ** 2

    def slopes(self, parameters: Array, y: Array) -> Array:
        log, inside = cut(parameters[..., 1])
        ratio = (y - parameters[..., 0]) * jnp.exp(-log)
        return jnp.stack([-ratio * jnp.exp(-log), inside * (1 - ratio**2)], axis=-1)

    def information(self, parameters: Array, y: Array) -> Array:
        log, inside = cut(parameters[..., 1])
        return jnp.stack([jnp.exp(-2 * log), 2 * inside], axis=-1)

    def start(self, column: np.ndarray, weight: np.ndarray) -> list[float]:
        mean = weight @ column
        return [mean, log_of(np.sqrt(weight @ (column - mean) ** 2))]


class StudentTLikelihood(Likelihood):
    """−log density of Student's t with location μ, scale σ and ν degrees of freedom; predicts μ and log σ.

    Its Fisher information is diag((ν+1)/(ν+3)/σ², 2ν/(ν+3)).

    Parameters
    ----------
    df : float, default=5.0
        ν > 2, the same for all rows and targets: the fewer, the heavier the tails.
    """

    robust: ClassVar[bool] = True
    df: float = eqx.field(static=True, default=5.0, converter=plain_number)

    def __check_init__(self) -> None:
        check_between("df", self.df, 2, np.inf, "more than 2 and finite")

    @property
    def n_parameters(self) -> int:
        return 2

    def of_target(self, parameters: Array, y: Array) -> Array:
        log, _ = cut(parameters[..., 1])
        ratio, constant = (y - parameters[..., 0]) * jnp.exp(-log), log_normaliser(self.df)
        return constant + log + (self.df + 1) / 2 * jnp.log1p(ratio**2 / self.df)

    def slopes(self, parameters: Array, y: Array) -> Array:
        log, inside = cut(parameters[..., 1])
        ratio = (y - parameters[..., 0]) * jnp.exp(-log)
        pull = (self.df + 1) * ratio / (self.df + ratio**2)
        return jnp.stack([-pull * jnp.exp(-log), inside * (1 - pull * ratio)], axis=-1)

    def information(self, parameters: Array, y: Array) -> Array:
        log, inside = cut(parameters[..., 1])
        of_location, of_log = (self.df + 1) / (self.df + 3), 2 * self.df / (self.df + 3)
        return jnp.stack([of_location * jnp.exp(-2 * log), of_log * inside], axis=-1)

    def start(self, column: np.ndarray, weight: np.ndarray) -> list[float]:
        middle, low, high = np.quantile(column, [0.5, 0.25, 0.75], weights=weight, method="inverted_cdf")
        return [middle, log_of((high - low) / 1.4 or np.sqrt(weight @ (column - middle) ** 2))]


def log_normaliser(df: float) -> float:
    """Return −log of the factor in front of Student's t of scale one."""
    return float(log_gamma(df / 2) - log_gamma((df + 1) / 2) + 0.5 * np.log(df * np.pi))


def log_of(scale: Any) -> float:
    """Return the logarithm of a scale, or the least one that counts."""
    return float(np.clip(np.log(max(float(scale), np.finfo(float).tiny)), 1 - MOST_LOG, MOST_LOG - 1))


class GammaLikelihood(Likelihood):
    """−log density of a gamma law with mean μ and shape a (variance μ²/a); predicts log μ and log a.

    Its Fisher information is diag(a, a²ψ'(a) − a).
    """

    @property
    def n_parameters(self) -> int:
        return 2

    def of_target(self, parameters: Array, y: Array) -> Array:
        log_shape, _ = cut(parameters[..., 1])
        shape, log_ratio = jnp.exp(log_shape), jnp.log(y) - parameters[..., 0]
        # log Γ(a) − a log a + a, of order log a, and what is zero where y is the mean
        return shape * (jnp.expm1(log_ratio) - log_ratio) + jnp.log(y) + below_stirling(shape)

    def slopes(self, parameters: Array, y: Array) -> Array:
        log_shape, inside = cut(parameters[..., 1])
        shape, log_ratio = jnp.exp(log_shape), jnp.log(y) - parameters[..., 0]
        excess = jnp.expm1(log_ratio)
        by_shape = excess - log_ratio + digamma_less_log(shape)
        return jnp.stack([-shape * excess, inside * shape * by_shape], axis=-1)

    def information(self, parameters: Array, y: Array) -> Array:
        log_shape, inside = cut(parameters[..., 1])
        shape = jnp.exp(log_shape)
        return jnp.stack([shape, inside * shape_information(shape)], axis=-1)

    def prepare_targets(self, y: Any) -> np.ndarray:
        target = real_targets(y)
        if target.min() <= 0:
            raise ValueError(f"y must be positive for a gamma distribution, got a value of {target.min():g}")
        return target

    def start(self, column: np.ndarray, weight: np.ndarray) -> list[float]:
        mean = weight @ column
        return [float(np.log(mean)), log_of(mean**2 / max(weight @ (column - mean) ** 2, 1e-6 * mean**2))]


def below_stirling(shape: Array) -> Array:
    """Return log Γ(a) − a log a + a, without cancellation for large a."""
    large = jnp.maximum(shape, LARGE_SHAPE)
    series = 0.5 * jnp.log(2 * np.pi / large) + 1 / (12 * large) - 1 / (360 * large**3) + 1 / (1260 * large**5)
    small = jnp.minimum(shape, LARGE_SHAPE)
    return jnp.where(shape > LARGE_SHAPE, series, gammaln(small) - small * jnp.log(small) + small)


def digamma_less_log(shape: Array) -> Array:
    """Return ψ(a) − log a, without cancellation for large a."""
    large, small = jnp.maximum(shape, LARGE_SHAPE), jnp.minimum(shape, LARGE_SHAPE)
    series = -1 / (2 * large) - 1 / (12 * large**2) + 1 / (120 * large**4) - 1 / (252 * large**6)
    return jnp.where(shape > LARGE_SHAPE, series, digamma(small) - jnp.log(small))


def shape_information(shape: Array) -> Array:
    """Return a²ψ'(a) − a, without cancellation for large a."""
    large, small = jnp.maximum(shape, LARGE_SHAPE), jnp.minimum(shape, LARGE_SHAPE)
    series = 0.5 + 1 / (6 * large) - 1 / (30 * large**3) + 1 / (42 * large**5)
    return jnp.where(shape > LARGE_SHAPE, series, small**2 * polygamma(1, small) - small)


class NegativeBinomialLikelihood(Likelihood):
    """−log probability of counts with mean μ and size r (variance μ + μ²/r); predicts log μ and log r.

    Its Fisher information is diagonal, μr/(μ+r) for log μ. That of log r has no closed form: the square of the
    derivative stands for it, whose expectation it is.
    """

    @property
    def n_parameters(self) -> int:
        return 2

    def of_target(self, parameters: Array, y: Array) -> Array:
        log_mean, (log_size, _) = parameters[..., 0], cut(parameters[..., 1])
        size = jnp.exp(log_size)
        log_sum = jnp.logaddexp(log_mean, log_size)  # log(μ + r)
        ways = gammaln(y + 1) + gammaln(size) - gammaln(y + size)
        return ways + size * (log_sum - log_size) + y * (log_sum - log_mean)

    def slopes(self, parameters: Array, y: Array) -> Array:
        log_mean, (log_size, inside) = parameters[..., 0], cut(parameters[..., 1])
        size, share = jnp.exp(log_size), jax.nn.sigmoid(log_mean - log_size)  # μ/(μ + r)
        by_mean = size * share - y * (1 - share)
        by_size = digamma(size) - digamma(y + size) + jax.nn.softplus(log_mean - log_size) - share
        return jnp.stack([by_mean, inside * (size * by_size + y * (1 - share))], axis=-1)

    def information(self, parameters: Array, y: Array) -> Array:
        log_mean, (log_size, _) = parameters[..., 0], cut(parameters[..., 1])
        of_mean = jnp.exp(log_size) * jax.nn.sigmoid(log_mean - log_size)
        return jnp.stack([of_mean, self.slopes(parameters, y)[..., 1] ** 2], axis=-1)

    def prepare_targets(self, y: Any) -> np.ndarray:
        target = real_targets(y)
        if target.min() < 0 or np.any(target != np.floor(target)):
            raise ValueError("y must hold counts 0, 1, 2, ... for a negative binomial distribution")
        return target

    def start(self, column: np.ndarray, weight: np.ndarray) -> list[float]:
        mean = max(weight @ column, 1e-7)
        return [float(np.log(mean)), log_of(mean**2 / max(weight @ (column - mean) ** 2 - mean, 0.01 * mean**2))]


class CustomLikelihood(Likelihood):
    """Any JAX function −log p(y) of the parameters of one target as a loss; derivatives by automatic differentiation.

    H is diagonal: of the Fisher information, or of the Hessian without one, the sums of the absolute values of each
    row. That is positive and never less than the matrix itself, so that steps are rather too short than too long.

    Parameters
    ----------
    function : callable
        ``function(parameters, target) -> scalar`` for one target, a number; ``parameters`` has shape ``(P,)``. It need
        not be convex, but must be finite and twice differentiable for all parameters: predict logarithms of what must
        be positive. The first parameter should be the location: it is what ``predict`` returns.
    parameters : int
        P.
    fisher : callable, optional
        ``fisher(parameters)``: the P×P Fisher information, or its diagonal.
    law : callable, optional
        ``law(parameters)`` for an array whose last axis has length P: the distribution that ``predict_dist`` returns,
        such as one of :mod:`scipy.stats`.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> def laplace(parameters, target):
    ...     location, log_scale = parameters
    ...     distance = jnp.sqrt((target - location) ** 2 + 1e-6)
    ...     return log_scale + distance * jnp.exp(-log_scale) + jnp.log(2.0)
    >>> loss = CustomLikelihood(laplace, 2)
    >>> loss.gradient(jnp.array([[0.0, 0.0]]), jnp.array([[2.0]])).round(3).tolist()
    [[-1.0, -1.0]]
    """

    function: Callable[[Array, Array], Array] = eqx.field(static=True)
    parameters: int = eqx.field(static=True)
    fisher: Callable[[Array], Array] | None = eqx.field(static=True, default=None)
    law: Callable[[np.ndarray], Any] | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        for name in ("function", "fisher", "law"):
            given = getattr(self, name)
            if not callable(given) and (given is not None or name == "function"):
                raise TypeError(f"{name} must be callable, got {type(given).__name__}")
        check_count("parameters", self.parameters)

    @property
    def n_parameters(self) -> int:
        return self.parameters

    def of_target(self, parameters: Array, y: Array) -> Array:
        return over_targets(self.function, parameters, y)

    def slopes(self, parameters: Array, y: Array) -> Array:
        return over_targets(jax.grad(self.function), parameters, y)

    def information(self, parameters: Array, y: Array) -> Array:
        def matrix(p: Array, t: Array) -> Array:
            found = jax.hessian(self.function)(p, t) if self.fisher is None else jnp.asarray(self.fisher(p))
            return jnp.abs(found) if found.ndim == 1 else jnp.sum(jnp.abs(found), axis=1)

        return over_targets(matrix, parameters, y)

    def check(self, target: Array, constant: Float[Array, " k"]) -> None:
        """Try the function on some rows around ``constant``: scalar and finite, as its derivatives must be."""
        target = target.reshape(-1, target.shape[-1])[:256]
        one = jax.ShapeDtypeStruct((self.parameters,), constant.dtype), jax.ShapeDtypeStruct((), constant.dtype)
        shape = jax.eval_shape(self.function, *one).shape
        if shape != ():
            raise ValueError(f"the likelihood's function must return a scalar for one target, got shape {shape}")
        prediction = jnp.broadcast_to(constant, (target.shape[0], constant.shape[0]))
        found = self.value(prediction, target), self.gradient(prediction, target)
        diagonal = self.curvature(prediction, target).diagonal()
        known = ~jnp.isnan(target).any(axis=1)
        if not all(bool(jnp.isfinite(part[known]).all()) for part in (*found, diagonal)):
            raise ValueError("the likelihood's function, or a derivative of it, is NaN or infinite near a constant")


def over_targets(function: Callable, parameters: Array, y: Array) -> Array:
    """Return a function of one target's parameters and the target for each of them."""
    for _ in range(y.ndim):
        function = jax.vmap(function)
    return function(parameters, y)


class GivenLocation(Loss):
    """A likelihood whose first parameter is known for every row: what is left to predict are the others.

    Targets hold the K numbers of a row, then the K first parameters.
    """

    likelihood: Loss  #: a :class:`Likelihood`, or one of observed targets

    def _whole(self, prediction: Rows, target: Array) -> tuple[Rows, Array]:
        y, location = jnp.split(target, 2, axis=-1)
        others = prediction.reshape(*y.shape, -1)
        return jnp.concatenate([location[..., None], others], axis=-1).reshape(*y.shape[:-1], -1), y

    def _others(self, of_all: Rows, prediction: Rows) -> Rows:
        return of_all.reshape(*of_all.shape[:-1], -1, self.likelihood.n_parameters)[..., 1:].reshape(prediction.shape)

    def value(self, prediction: Rows, target: Array) -> Values:
        return self.likelihood.value(*self._whole(prediction, target))

    def gradient(self, prediction: Rows, target: Array) -> Rows:
        return self._others(self.likelihood.gradient(*self._whole(prediction, target)), prediction)

    def curvature(self, prediction: Rows, target: Array) -> Curvature:
        whole = self.likelihood.curvature(*self._whole(prediction, target)).diagonal()
        return Diagonal(self._others(whole, prediction))

    def prepare_targets(self, y: Any) -> np.ndarray:
        return np.asarray(y, dtype=np.float64)

    def n_outputs(self, target: np.ndarray | Array) -> int:
        return target.shape[1] // 2 * (self.likelihood.n_parameters - 1)
