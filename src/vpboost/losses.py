"""Losses ℓ(ŷ, y): value, gradient, curvature with its structure, and best constant.

A loss works on rows with any leading sample axes: predictions are ``(*rows, K)`` for K outputs; targets are whatever
:meth:`Loss.prepare_targets` returns. Means over samples are taken elsewhere (see :mod:`vpboost.blocks`).
"""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .blocks import block_sum
from .curvature import Curvature, Dense, Diagonal, ScaledIdentity, Softmax

Rows = Float[Array, "*rows k"]
Values = Float[Array, "*rows"]


class Loss(eqx.Module):
    """A convex, twice differentiable loss per sample. Subclass it, or wrap a function in :class:`CustomLoss`."""

    @abc.abstractmethod
    def value(self, prediction: Rows, target: Array) -> Values:
        """Return ℓ(ŷ_i, y_i)."""

    @abc.abstractmethod
    def gradient(self, prediction: Rows, target: Array) -> Rows:
        """Return g_i = ∇_ŷ ℓ(ŷ_i, y_i)."""

    @abc.abstractmethod
    def curvature(self, prediction: Rows, target: Array) -> Curvature:
        """Return H_i = ∇²_ŷ ℓ(ŷ_i, y_i)."""

    def prepare_targets(self, y: Any) -> np.ndarray:
        """Check the targets ``y`` and return them as the array this loss works on, one row a sample."""
        return _real_targets(y)

    def n_outputs(self, target: np.ndarray | Array) -> int:
        """Return K, the number of values predicted per sample, for prepared targets."""
        return target.shape[1]

    def check(self, target: Array, constant: Float[Array, " k"]) -> None:
        """Raise ``ValueError`` if this loss cannot be trained on these prepared targets near a constant prediction."""

    def best_constant(self, target: Array, weight: Float[Array, "blocks rows"]) -> Float[Array, " k"]:
        """Return c₀ = argmin_c mean ℓ(c, y_i) for targets in blocks; by Newton steps unless known in closed form."""
        n_outputs = self.n_outputs(target.reshape(-1, *target.shape[2:]))
        return newton_constant(self, target, weight, jnp.zeros(n_outputs, weight.dtype))


class SquaredError(Loss):
    """ℓ = ½‖ŷ − y‖² for any number of outputs; H_i = I.

    >>> loss = SquaredError()
    >>> float(loss.value(jnp.array([3.0]), jnp.array([1.0])))
    2.0
    """

    def value(self, prediction: Rows, target: Array) -> Values:
        return 0.5 * jnp.sum((prediction - target) ** 2, axis=-1)

    def gradient(self, prediction: Rows, target: Array) -> Rows:
        return prediction - target

    def curvature(self, prediction: Rows, target: Array) -> Curvature:
        return ScaledIdentity(jnp.ones(prediction.shape[:-1], prediction.dtype), prediction.shape[-1])

    def best_constant(self, target: Array, weight: Float[Array, "blocks rows"]) -> Float[Array, " k"]:
        return weighted_mean(target, weight)


class BinaryCrossEntropy(Loss):
    """ℓ = log(1 + e^ŷ) − y ŷ for one logit ŷ and a label, or probability, y in [0, 1]; H_i = p(1 − p)."""

    def value(self, prediction: Rows, target: Array) -> Values:
        return jnp.sum(jax.nn.softplus(prediction) - target * prediction, axis=-1)

    def gradient(self, prediction: Rows, target: Array) -> Rows:
        return jax.nn.sigmoid(prediction) - target

    def curvature(self, prediction: Rows, target: Array) -> Curvature:
        return Diagonal(jax.nn.sigmoid(prediction) * jax.nn.sigmoid(-prediction))

    def prepare_targets(self, y: Any) -> np.ndarray:
        target = _real_targets(y)
        if target.shape[1] != 1:
            raise ValueError(f"y must have one column for binary cross-entropy, got shape {np.shape(y)}")
        if target.min() < 0 or target.max() > 1:
            raise ValueError(
                f"y must lie in [0, 1] for binary cross-entropy (labels 0 and 1), got values from {target.min():g} to "
                f"{target.max():g}"
            )
        return target

    def best_constant(self, target: Array, weight: Float[Array, "blocks rows"]) -> Float[Array, " k"]:
        mean = _away_from_zero(weighted_mean(target, weight))
        return jnp.log(mean) - jnp.log(_away_from_zero(1 - mean))


class MulticlassCrossEntropy(Loss):
    """ℓ = log Σ_k e^{ŷ_k} − ŷ_y for K logits and a label y in {0, ..., K−1}; H_i = diag(p) − p pᵀ.

    Parameters
    ----------
    n_classes : int, optional
        K. By default the largest label plus one.
    """

    n_classes: int | None = eqx.field(static=True, default=None)

    def value(self, prediction: Rows, target: Int[Array, "*rows"]) -> Values:
        chosen = jnp.take_along_axis(prediction, target[..., None], axis=-1)[..., 0]
        return jax.nn.logsumexp(prediction, axis=-1) - chosen

    def gradient(self, prediction: Rows, target: Int[Array, "*rows"]) -> Rows:
        n_classes = prediction.shape[-1]
        return jax.nn.softmax(prediction, axis=-1) - jax.nn.one_hot(target, n_classes, dtype=prediction.dtype)

    def curvature(self, prediction: Rows, target: Int[Array, "*rows"]) -> Curvature:
        return Softmax(jax.nn.softmax(prediction, axis=-1))

    def prepare_targets(self, y: Any) -> np.ndarray:
        labels = np.asarray(y)
        if labels.ndim == 2 and labels.shape[1] == 1:
            labels = labels[:, 0]
        if labels.ndim != 1 or labels.dtype.kind not in "biuf":
            raise ValueError(f"y must be a 1-D array of class labels, got shape {labels.shape}, dtype {labels.dtype}")
        if not np.all(np.isfinite(labels)) or np.any(labels != np.floor(labels)):
            raise ValueError("y must hold whole class labels 0, 1, ..., got NaN, infinite or fractional values")
        n_classes = self.n_classes if self.n_classes is not None else int(labels.max()) + 1
        if n_classes < 2:
            raise ValueError("y must hold at least two classes for multiclass cross-entropy, got one")
        if labels.min() < 0 or labels.max() >= n_classes:
            raise ValueError(
                f"y must hold labels from 0 to n_classes - 1 = {n_classes - 1}, got labels from {labels.min():g} to "
                f"{labels.max():g}"
            )
        return labels.astype(np.int32)

    def n_outputs(self, target: np.ndarray | Array) -> int:
        return self.n_classes if self.n_classes is not None else int(target.max()) + 1

    def best_constant(self, target: Array, weight: Float[Array, "blocks rows"]) -> Float[Array, " k"]:
        n_classes = self.n_outputs(target)
        frequency = block_sum(lambda t, w: jnp.bincount(t, w, length=n_classes), target, weight)
        return jnp.log(_away_from_zero(frequency))


class PseudoHuber(Loss):
    """ℓ = Σ_k δ²(√(1 + (r_k/δ)²) − 1), r = ŷ − y: quadratic for small residuals, linear for outliers.

    Parameters
    ----------
    delta : float, default=1.0
        The residual δ > 0 at which the loss turns from quadratic to linear.
    """

    delta: float = eqx.field(static=True, default=1.0)

    def __check_init__(self) -> None:
        if not self.delta > 0:
            raise ValueError(f"delta must be positive, got {self.delta!r}")

    def value(self, prediction: Rows, target: Array) -> Values:
        ratio = (prediction - target) / self.delta
        # √(1+t²) − 1 written without cancellation
        return self.delta**2 * jnp.sum(ratio**2 / (1 + jnp.sqrt(1 + ratio**2)), axis=-1)

    def gradient(self, prediction: Rows, target: Array) -> Rows:
        residual = prediction - target
        return residual / jnp.sqrt(1 + (residual / self.delta) ** 2)

    def curvature(self, prediction: Rows, target: Array) -> Curvature:
        return Diagonal((1 + ((prediction - target) / self.delta) ** 2) ** -1.5)


class Poisson(Loss):
    """ℓ = Σ_k e^{ŷ_k} − y_k ŷ_k: counts y ≥ 0 with log link (the prediction is the log of the rate)."""

    def value(self, prediction: Rows, target: Array) -> Values:
        return jnp.sum(jnp.exp(prediction) - target * prediction, axis=-1)

    def gradient(self, prediction: Rows, target: Array) -> Rows:
        return jnp.exp(prediction) - target

    def curvature(self, prediction: Rows, target: Array) -> Curvature:
        return Diagonal(jnp.exp(prediction))

    def prepare_targets(self, y: Any) -> np.ndarray:
        target = _real_targets(y)
        if target.min() < 0:
            raise ValueError(f"y must be non-negative for the Poisson loss, got a value of {target.min():g}")
        return target

    def best_constant(self, target: Array, weight: Float[Array, "blocks rows"]) -> Float[Array, " k"]:
        return jnp.log(_away_from_zero(weighted_mean(target, weight)))


class CustomLoss(Loss):
    """Any convex JAX function ℓ(ŷ, y) of one sample as a loss; derivatives by automatic differentiation.

    Parameters
    ----------
    function : callable
        ``function(prediction, target) -> scalar`` for one sample: ``prediction`` has shape ``(K,)``, ``target`` is the
        sample's row of ``y`` (shape ``(1,)`` when ``y`` is 1-D). It must be convex in ``prediction``.
    structure : {"dense", "diagonal", "identity"}, default="dense"
        What the Hessian in the prediction looks like: dense K×K, diagonal (the loss is a sum over the outputs), or a
        multiple of the identity. The claim is checked on some samples; a true one saves much work.
    outputs : int, optional
        K; by default the number of columns of ``y``.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> log_cosh = CustomLoss(lambda prediction, target: jnp.sum(jnp.log(jnp.cosh(prediction - target))),
    ...                       structure="diagonal")
    >>> float(log_cosh.gradient(jnp.array([[1.0]]), jnp.array([[1.0]]))[0, 0])
    0.0
    """

    function: Callable[[Array, Array], Array] = eqx.field(static=True)
    structure: str = eqx.field(static=True, default="dense")
    outputs: int | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        if not callable(self.function):
            raise TypeError(f"function must be callable, got {type(self.function).__name__}")
        if self.structure not in ("dense", "diagonal", "identity"):
            raise ValueError(f"structure must be 'dense', 'diagonal' or 'identity', got {self.structure!r}")

    def _one(self, prediction: Array, target: Array) -> Array:
        return jnp.reshape(self.function(prediction, target), ())

    def value(self, prediction: Rows, target: Array) -> Values:
        return _over_rows(self._one, prediction, target)

    def gradient(self, prediction: Rows, target: Array) -> Rows:
        return _over_rows(jax.grad(self._one), prediction, target)

    def curvature(self, prediction: Rows, target: Array) -> Curvature:
        if self.structure == "dense" and prediction.shape[-1] > 1:
            return Dense(_over_rows(jax.hessian(self._one), prediction, target))

        def diagonal(p: Array, t: Array) -> Array:  # H·1 is the diagonal of a diagonal H
            return jax.jvp(lambda q: jax.grad(self._one)(q, t), (p,), (jnp.ones_like(p),))[1]

        entries = _over_rows(diagonal, prediction, target)
        if self.structure == "identity":
            return ScaledIdentity(entries[..., 0], prediction.shape[-1])
        return Diagonal(entries)

    def n_outputs(self, target: np.ndarray | Array) -> int:
        return self.outputs if self.outputs is not None else target.shape[1]

    def check(self, target: Array, constant: Float[Array, " k"]) -> None:
        """Try the function on some rows around ``constant``: scalar, finite, convex, of the structure claimed."""
        target = target.reshape(-1, *target.shape[2:])[:256]
        shape = jax.eval_shape(self.function, constant, target[0]).shape
        if np.prod(shape, dtype=int) != 1:
            raise ValueError(f"loss function must return a scalar for one sample, got an array of shape {shape}")
        noise = jax.random.normal(jax.random.key(0), (target.shape[0], constant.shape[0]), constant.dtype)
        for spread in (0.0, 0.1, 1.0, 3.0):
            prediction = constant + spread * noise
            if not jnp.all(jnp.isfinite(self.value(prediction, target))):
                raise ValueError("loss function returns NaN or infinity near a constant prediction")
            hessian = _over_rows(jax.hessian(self._one), prediction, target)
            if not jnp.all(jnp.isfinite(hessian)):
                raise ValueError("loss function has NaN or infinite second derivatives near a constant prediction")
            scale = jnp.max(jnp.abs(hessian)) * float(jnp.sqrt(jnp.finfo(hessian.dtype).eps))
            if jnp.min(jnp.linalg.eigvalsh(hessian)) < -scale:
                raise ValueError("loss function is not convex in the prediction: its Hessian has negative eigenvalues")
            if jnp.max(jnp.abs(hessian - self.curvature(prediction, target).matrix())) > scale:
                raise ValueError(f"loss function's Hessian does not have the structure {self.structure!r} claimed")


def newton_constant(
    loss: Loss, target: Array, weight: Float[Array, "blocks rows"], start: Float[Array, " k"], steps: int = 50
) -> Float[Array, " k"]:
    """Minimise the mean loss over constant predictions by damped Newton steps."""

    def predictions(c: Array, w: Array) -> Array:
        return jnp.broadcast_to(c, (*w.shape, c.shape[0]))

    def mean_value(c: Array) -> Array:
        return block_sum(lambda t, w: jnp.sum(w * loss.value(predictions(c, w), t)), target, weight)

    def mean_derivatives(c: Array) -> tuple[Array, Array]:
        def one_block(t: Array, w: Array) -> tuple[Array, Array]:
            gradient = loss.gradient(predictions(c, w), t)
            hessian = loss.curvature(predictions(c, w), t).matrix()
            return jnp.einsum("i,ik->k", w, gradient), jnp.einsum("i,ijk->jk", w, hessian)

        return block_sum(one_block, target, weight)

    @jax.jit
    def newton_step(c: Array) -> Array:
        gradient, hessian = mean_derivatives(c)
        ridge = 1e-6 * jnp.trace(hessian) / c.shape[0] + jnp.finfo(c.dtype).tiny
        direction = -jnp.linalg.solve(hessian + ridge * jnp.eye(c.shape[0], dtype=c.dtype), gradient)
        before = mean_value(c)

        def too_long(state: tuple[Array, Array]) -> Array:
            size, halvings = state
            after = mean_value(c + size * direction)
            return ~(after <= before) & (halvings < 60)

        halve = (jnp.ones((), c.dtype), jnp.zeros((), jnp.int32))
        size, halvings = jax.lax.while_loop(too_long, lambda s: (s[0] / 2, s[1] + 1), halve)
        return jnp.where(halvings < 60, c + size * direction, c)

    constant = start
    for _ in range(steps):
        following = newton_step(constant)
        if jnp.max(jnp.abs(following - constant)) <= 4 * jnp.finfo(constant.dtype).eps * jnp.max(jnp.abs(following)):
            break
        constant = following
    return constant


def weighted_mean(target: Array, weight: Float[Array, "blocks rows"]) -> Array:
    """Return the mean over samples of targets in blocks; weights sum to one."""
    return block_sum(lambda t, w: jnp.einsum("i,ik->k", w, t), target, weight)


def _over_rows(function: Callable, prediction: Array, target: Array) -> Array:
    for _ in range(prediction.ndim - 1):
        function = jax.vmap(function)
    return function(prediction, target)


def _away_from_zero(frequency: Array) -> Array:
    """Keep a frequency off zero, so that its logarithm is finite when a class never occurs."""
    return jnp.maximum(frequency, 1e-7)


def _real_targets(y: Any) -> np.ndarray:
    target = np.asarray(y)
    if target.dtype.kind not in "biuf":
        raise TypeError(f"y must be numeric, got dtype {target.dtype}")
    if target.ndim not in (1, 2):
        raise ValueError(f"y must be 1-D or 2-D (rows × outputs), got shape {target.shape}")
    if not np.all(np.isfinite(target)):
        raise ValueError("y must be finite, got NaN or infinity")
    return target.reshape(len(target), -1).astype(np.float64)
