"""The functional trust region: accept or reject a learner, and adapt λ_w (``alg:trust_region_skeleton_vpboost``)."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..engine import at_hand

Scalar = Float[Array, ""]


class TrustRegion(eqx.Module):
    """Settings of the trust region. All numbers may change without recompilation.

    Parameters
    ----------
    reg_lambda : float, default=1e-4
        Initial λ_w > 0, the Tikhonov weight on the linear weights: large values mean a small trust region.
    rho_accept : float, default=0.0
        A learner enters the ensemble when its reduction ratio ρ exceeds this, 0 ≤ ρ_accept < ρ_small.
    rho_small : float, default=0.1
        λ_w is raised when ρ falls below this, ρ_small < 1.
    gamma_up : float, default=4.0
        Factor > 1 by which λ_w is raised.
    rho_large : float, default=0.9
        λ_w is lowered when ρ exceeds this.
    gamma_down : float, default=1.0
        Factor in (0, 1] by which λ_w is lowered; 1 never lowers it, as in the paper.
    lambda_low : float, default=1e-12
        λ_w never falls below this, 0 < λ_low ≤ ``reg_lambda``.
    rate : float, default=1.0
        Boosting rate in (0, 1]: the fraction of each learner that is added.
    resolves : int, default=12
        How often a rejected learner keeps its featurizer and has its linear weights solved again with λ_w raised,
        before it is given up. 0 gives it up at once, as in the paper.
    """

    reg_lambda: float | Array = 1e-4
    rho_accept: float | Array = 0.0
    rho_small: float | Array = 0.1
    gamma_up: float | Array = 4.0
    rho_large: float | Array = 0.9
    gamma_down: float | Array = 1.0
    lambda_low: float | Array = 1e-12
    rate: float | Array = 1.0
    resolves: int = eqx.field(static=True, default=12)

    def __check_init__(self) -> None:
        def require(holds: Any, name: str, allowed: str) -> None:
            if not holds:
                raise ValueError(f"{name} must be {allowed}, got {getattr(self, name)!r}")

        require(0 < self.reg_lambda < float("inf"), "reg_lambda", "positive and finite")
        require(0 <= self.rho_accept < 1, "rho_accept", "in [0, 1)")
        require(self.rho_accept < self.rho_small < 1, "rho_small", f"between rho_accept = {self.rho_accept!r} and 1")
        require(1 < self.gamma_up < float("inf"), "gamma_up", "greater than 1 and finite")
        require(0 < self.gamma_down <= 1, "gamma_down", "in (0, 1]")
        sensible = self.gamma_down == 1 or self.rho_large >= self.rho_small
        require(sensible, "rho_large", f"at least rho_small = {self.rho_small!r}")
        require(
            0 < self.lambda_low <= self.reg_lambda, "lambda_low", f"in (0, reg_lambda], reg_lambda = {self.reg_lambda}"
        )
        require(0 < self.rate <= 1, "rate", "in (0, 1]")
        require(isinstance(self.resolves, int) and self.resolves >= 0, "resolves", "a whole number of at least 0")

    @classmethod
    def paper(
        cls, reg_lambda: float = 1e-4, rho_accept: float = 0.0, rho_small: float = 1e-3, gamma_up: float = 2.0
    ) -> "TrustRegion":
        """Return exactly Algorithm 2: plain rejection, λ_w only ever raised, boosting rate 1.

        >>> preset = TrustRegion.paper()
        >>> preset.resolves, preset.gamma_down, preset.rate
        (0, 1.0, 1.0)
        """
        return cls(
            reg_lambda=reg_lambda,
            rho_accept=rho_accept,
            rho_small=rho_small,
            gamma_up=gamma_up,
            gamma_down=1.0,
            rate=1.0,
            resolves=0,
        )


def reduction_ratio(actual: Scalar, predicted: Scalar) -> Scalar:
    """Return ρ, actual over predicted reduction (``eq:reduction_ratio``); −∞ where the model predicts no reduction."""
    sound = (predicted > 0) & jnp.isfinite(actual)
    return jnp.where(sound, actual / jnp.where(sound, predicted, 1), -jnp.inf)


def accepts(ratio: Scalar, settings: TrustRegion) -> Array:
    """Say whether a learner of this ρ enters the ensemble."""
    return ratio > settings.rho_accept


def bounds(dtype: Any) -> tuple[float, float]:
    """Return the least and the largest λ_w: beyond, its products would under- or overflow in this precision."""
    info = np.finfo(dtype)
    return float(info.tiny), float(np.sqrt(info.max))


def first_lambda(reg_lambda: Any, dtype: np.dtype) -> Array:
    """Return λ_w for the first stage, after checking that this precision can hold it."""
    least, largest = bounds(dtype)
    if not float(reg_lambda) <= largest:
        raise ValueError(f"reg_lambda must be at most {largest:.1e} in {dtype}, got {float(reg_lambda)!r}")
    return at_hand(np.asarray(max(float(reg_lambda), least), dtype))


def raised(reg: Scalar, settings: TrustRegion) -> Scalar:
    """Return a larger λ_w, up to the largest."""
    return jnp.minimum(settings.gamma_up * reg, bounds(reg.dtype)[1])


def next_lambda(reg: Scalar, ratio: Scalar, settings: TrustRegion) -> Scalar:
    """Return λ_w for the next stage: raised when ρ < ρ_small, lowered (optionally) when ρ > ρ_large."""
    low = jnp.maximum(settings.lambda_low, bounds(reg.dtype)[0])
    lowered = jnp.maximum(settings.gamma_down * reg, jnp.minimum(low, reg))
    higher = raised(reg, settings)
    return jnp.where(ratio < settings.rho_small, higher, jnp.where(ratio > settings.rho_large, lowered, reg))


def search(attempt: Callable[[Scalar], Any], reg: Scalar, settings: TrustRegion) -> tuple[Any, Scalar, Array]:
    """Return the first acceptable ``attempt(λ_w)``, its λ_w and the number of attempts.

    ``attempt`` returns anything with a field ``ratio``. λ_w is raised after each rejection, ``settings.resolves``
    times at the most; a descent direction is accepted in the end, for the model is right to first order.
    """
    if settings.resolves == 0:
        return attempt(reg), reg, jnp.ones((), jnp.int32)

    def goes_on(state: tuple[Any, Scalar, Array]) -> Array:
        trial, _, attempts = state
        return (attempts == 0) | (~accepts(trial.ratio, settings) & (attempts <= settings.resolves))

    def again(state: tuple[Any, Scalar, Array]) -> tuple[Any, Scalar, Array]:
        _, reg, attempts = state
        reg = jnp.where(attempts == 0, reg, raised(reg, settings))
        return attempt(reg), reg, attempts + 1

    # the loop starts from an empty trial, so that an attempt is compiled once only
    empty = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(attempt, reg))
    return jax.lax.while_loop(goes_on, again, (empty, reg, jnp.zeros((), jnp.int32)))
