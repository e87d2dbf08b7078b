"""The contract of a loss, and the best constant prediction."""

import abc
from collections.abc import Iterator
from functools import partial
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..engine import ONCE_A_STAGE, program
from ..numerics.blocks import block_sum
from .curvature import Curvature, Diagonal, ScaledIdentity

Rows = Float[Array, "*rows k"]
Values = Float[Array, "*rows"]


class Loss(eqx.Module):
    """A convex, twice differentiable loss per sample. Subclass it, or wrap a function in :class:`CustomLoss`."""

    #: Whether single targets have little influence, however far they lie.
    robust: ClassVar[bool] = False
    #: Whether the loss of several targets is the sum of the losses of each: targets may then be missing (NaN).
    sums_over_outputs: ClassVar[bool] = False

    @property
    def n_parameters(self) -> int:
        """How many numbers are predicted for each target: those of the first target, then of the second, and so on."""
        return 1

    @property
    def couples_outputs(self) -> bool:
        """Whether the Hessian of several outputs is neither diagonal nor a multiple of the identity."""
        return False

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
        return real_targets(y)

    def n_outputs(self, target: np.ndarray | Array) -> int:
        """Return K, the number of values predicted per sample, for prepared targets."""
        return target.shape[1]

    def adapted(self, target: np.ndarray, weight: np.ndarray) -> "Loss":
        """Return the loss as it suits these targets, scaled to order one; the estimators ask for it."""
        return self

    def check(self, target: Array, constant: Float[Array, " k"]) -> None:
        """Raise ``ValueError`` if this loss cannot be trained on these prepared targets near a constant prediction."""

    def best_constant(self, target: Array, weight: Float[Array, "blocks rows"]) -> Float[Array, " k"]:
        """Return c₀ = argmin_c mean ℓ(c, y_i) for targets in blocks; by Newton steps unless known in closed form."""
        n_outputs = self.n_outputs(np.asarray(target).reshape(-1, *target.shape[2:]))
        return newton_constant(self, target, weight, jax.device_put(np.zeros(n_outputs, weight.dtype)))


def newton_constant(
    loss: Loss, target: Array, weight: Float[Array, "blocks rows"], start: Float[Array, " k"], steps: int = 50
) -> Float[Array, " k"]:
    """Minimise the mean loss over constant predictions by damped Newton steps."""
    constant, precision = start, np.finfo(start.dtype).eps
    for _ in range(steps):
        following = newton_step(loss, target, weight, constant)
        change = np.max(np.abs(np.asarray(following) - np.asarray(constant)))
        if change <= 4 * precision * np.max(np.abs(following)):
            break
        constant = following
    return constant


@partial(program, quick=ONCE_A_STAGE)
def newton_step(
    loss: Loss, target: Array, weight: Float[Array, "blocks rows"], constant: Float[Array, " k"]
) -> Float[Array, " k"]:
    """Return a better constant prediction, or the same when no step in Newton's direction improves it."""
    n_outputs, dtype = constant.shape[0], constant.dtype

    def predictions(c: Array, w: Array) -> Array:
        return jnp.broadcast_to(c, (*w.shape, n_outputs))

    def mean_value(c: Array) -> Array:
        return block_sum(lambda t, w: jnp.sum(w * loss.value(predictions(c, w), t)), target, weight)

    def sums(t: Array, w: Array) -> tuple[Array, Array]:
        gradient = loss.gradient(predictions(constant, w), t)
        curvature = loss.curvature(predictions(constant, w), t)
        if isinstance(curvature, ScaledIdentity | Diagonal):
            return w @ gradient, w @ curvature.diagonal()
        return w @ gradient, jnp.einsum("i,ijk->jk", w, curvature.matrix())

    def bounded(step: Array, size: Array) -> Array:  # where the loss is straight, Newton's step would be endless
        longest = 10 * (1 + size)
        return jnp.clip(step, -longest, longest)

    gradient, hessian = block_sum(sums, target, weight)
    if hessian.ndim == 1:
        direction = -gradient / (hessian + 1e-6 * jnp.mean(hessian) + jnp.finfo(dtype).tiny)
        direction = bounded(direction, jnp.abs(constant))
    else:  # may be singular, as of softmax
        values, vectors = jnp.linalg.eigh(hessian)
        values = jnp.maximum(values, 1e-6 * jnp.mean(values) + jnp.finfo(dtype).tiny)
        direction = vectors @ bounded(-(vectors.T @ gradient) / values, jnp.max(jnp.abs(constant)))
    before = mean_value(constant)

    def too_long(state: tuple[Array, Array]) -> Array:
        size, halvings = state
        after = mean_value(constant + size * direction)
        return ~(after <= before) & (halvings < 60)

    halve = (jnp.ones((), dtype), jnp.zeros((), jnp.int32))
    size, halvings = jax.lax.while_loop(too_long, lambda s: (s[0] / 2, s[1] + 1), halve)
    return jnp.where(halvings < 60, constant + size * direction, constant)


# c₀ in closed form is left to NumPy: so little work is not worth a compiled program.


def weighted_mean(target: Array, weight: Float[Array, "blocks rows"]) -> np.ndarray:
    """Return the mean over samples of targets in blocks, in double precision; weights sum to one."""
    return np.einsum("bi,bik->k", np.asarray(weight), np.asarray(target), dtype=float)


def newton_constant_near(
    level: float, loss: Loss, target: Array, weight: Float[Array, "blocks rows"]
) -> Float[Array, " k"]:
    """Return c₀ by Newton steps from a quantile of the targets, for losses that are nearly flat elsewhere.

    Such a loss is a sum over the outputs; each is treated by itself, since their scales may differ.
    """
    found, weights = [], np.asarray(weight).reshape(-1)
    for column in np.moveaxis(np.asarray(target), -1, 0):
        start = np.quantile(column.reshape(-1), level, weights=weights, method="inverted_cdf")
        start = jax.device_put(start.astype(weight.dtype)[None])
        alone = jax.device_put(np.ascontiguousarray(column)[..., None])
        found.append(newton_constant(loss, alone, weight, start))
    return jax.device_put(np.concatenate(found))


def observed_columns(target: np.ndarray, weight: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the numbers of each output that are not missing, and their weights."""
    for column in target.T:
        known = ~np.isnan(column)
        yield column[known], weight[known]


def away_from_zero(frequency: np.ndarray) -> np.ndarray:
    """Keep a frequency off zero, so that its logarithm is finite when a class never occurs."""
    return np.maximum(frequency, 1e-7)


def real_targets(y: Any) -> np.ndarray:
    """Return numeric, finite targets as a 2-D array; raise an error that names ``y`` otherwise."""
    target = np.asarray(y)
    if target.dtype.kind not in "biuf":
        raise TypeError(f"y must be numeric, got dtype {target.dtype}")
    if target.ndim not in (1, 2):
        raise ValueError(f"y must be 1-D or 2-D (rows × outputs), got shape {target.shape}")
    if not np.all(np.isfinite(target)):
        raise ValueError("y must be finite, got NaN or infinity")
    return target.reshape(len(target), -1).astype(np.float64)
