"""The contract of a loss, and the best constant prediction."""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..blocks import block_sum
from ..curvature import Curvature, Diagonal, ScaledIdentity

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
        return real_targets(y)

    def n_outputs(self, target: np.ndarray | Array) -> int:
        """Return K, the number of values predicted per sample, for prepared targets."""
        return target.shape[1]

    def check(self, target: Array, constant: Float[Array, " k"]) -> None:
        """Raise ``ValueError`` if this loss cannot be trained on these prepared targets near a constant prediction."""

    def best_constant(self, target: Array, weight: Float[Array, "blocks rows"]) -> Float[Array, " k"]:
        """Return c₀ = argmin_c mean ℓ(c, y_i) for targets in blocks; by Newton steps unless known in closed form."""
        n_outputs = self.n_outputs(target.reshape(-1, *target.shape[2:]))
        return newton_constant(self, target, weight, jnp.zeros(n_outputs, weight.dtype))


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
            curvature = loss.curvature(predictions(c, w), t)
            if isinstance(curvature, ScaledIdentity | Diagonal):
                hessian = jnp.diag(w @ curvature.diagonal())
            else:
                hessian = jnp.einsum("i,ijk->jk", w, curvature.matrix())
            return w @ gradient, hessian

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


def away_from_zero(frequency: Array) -> Array:
    """Keep a frequency off zero, so that its logarithm is finite when a class never occurs."""
    return jnp.maximum(frequency, 1e-7)


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
