"""Any convex JAX function as a loss."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .base import Loss, Rows, Values
from .curvature import Curvature, Dense, Diagonal, ScaledIdentity


class CustomLoss(Loss):
    """Any convex JAX function ℓ(ŷ, y) of one sample as a loss; derivatives by automatic differentiation.

    Parameters
    ----------
    function : callable
        ``function(prediction, target) -> scalar`` for one sample: ``prediction`` has shape ``(K,)``, ``target`` is the
        sample's row of ``y`` (shape ``(1,)`` when ``y`` is 1-D), in its own units. It must be convex in
        ``prediction``, with second derivatives of order one: divide ``y`` by its spread if that is far from one.
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

    @property
    def couples_outputs(self) -> bool:
        return self.structure == "dense"

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
            if np.linalg.eigvalsh(np.asarray(hessian)).min() < -scale:  # XLA must not work on stacks: see lapack
                raise ValueError("loss function is not convex in the prediction: its Hessian has negative eigenvalues")
            if jnp.max(jnp.abs(hessian - self.curvature(prediction, target).matrix())) > scale:
                raise ValueError(f"loss function's Hessian does not have the structure {self.structure!r} claimed")


def _over_rows(function: Callable, prediction: Array, target: Array) -> Array:
    for _ in range(prediction.ndim - 1):
        function = jax.vmap(function)
    return function(prediction, target)
