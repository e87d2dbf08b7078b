"""The theory's quantities at one stage: every condition of the convergence proof that software can check.

Norms and inner products of functions are those of L²(μ_N): means over the training set with the sample weights.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..numerics import lapack
from ..numerics.blocks import block_sum
from .objective import Summary
from .reduced import Derivatives

Scalar = Float[Array, ""]
Weights = Float[Array, "n k"]


class Diagnostics(NamedTuple):
    """What the theory asks of one weak learner h = A_θ w.

    Attributes
    ----------
    gradient_norm : ‖∇L‖, zero at a stationary point.
    operator_norm : ‖A_θ‖ (``eq:empirical_operator_norm``), bounded above and below by (VP3).
    radius : Δ = ‖A_θ‖‖w‖ (``eq:trust_region_radius_formula``).
    step_norm : ‖h‖ ≤ Δ, the constraint of ``eq:trust_region_for_weak_learner``.
    slope : ⟨∇L, h⟩, negative for a descent direction (``lem:vpboost_descent``).
    alignment : ‖ḡ‖ / (‖A_θ‖‖∇L‖) in [0, 1], the cosine of gradient alignment (VP1).
    curvature_capture : ⟨h, ∇²L h⟩ / ⟨∇L, ∇²L ∇L⟩ (VP2).
    model_reduction : Q[0] − Q[h] (``eq:vapro_model_reduction``).
    cauchy_reduction : Q[0] − Q[h_C] at the Cauchy point (``def:cauchy_point``).
    """

    gradient_norm: Scalar
    operator_norm: Scalar
    radius: Scalar
    step_norm: Scalar
    slope: Scalar
    alignment: Scalar
    curvature_capture: Scalar
    model_reduction: Scalar
    cauchy_reduction: Scalar


def diagnose(weights: Weights, summary: Summary, derivatives: Derivatives) -> Diagnostics:
    """Compute all diagnostics of the learner with this summary and these linear weights."""
    slope, along = jnp.sum(summary.gradient * weights), summary.curvature_along(weights, derivatives)
    norm, along_gradient = gradient_norm(derivatives), gradient_curvature(derivatives)
    size = operator_norm(summary.covariance)
    radius = size * jnp.linalg.norm(weights)
    return Diagnostics(
        gradient_norm=norm,
        operator_norm=size,
        radius=radius,
        step_norm=jnp.sqrt(jnp.maximum(jnp.sum(weights * (summary.covariance @ weights)), 0)),
        slope=slope,
        alignment=jnp.linalg.norm(summary.gradient) / (size * norm),
        curvature_capture=along / along_gradient,
        model_reduction=-slope - 0.5 * along,
        cauchy_reduction=cauchy_reduction(norm, along_gradient, radius),
    )


def gradient_norm(derivatives: Derivatives) -> Scalar:
    """Return ‖∇L‖ = √(Σ ω_i ‖g_i‖²)."""
    return jnp.sqrt(block_sum(lambda d: jnp.sum(d.weight[:, None] * d.gradient**2), derivatives))


def gradient_curvature(derivatives: Derivatives) -> Scalar:
    """Return ⟨∇L, ∇²L ∇L⟩ = Σ ω_i g_iᵀ H_i g_i."""

    def one_block(d: Derivatives) -> Array:
        return jnp.sum(d.weight[:, None] * d.gradient * d.curvature.apply(d.gradient))

    return block_sum(one_block, derivatives)


def operator_norm(covariance: Float[Any, "n n"]) -> Scalar:
    """Return ‖A_θ‖ = σ_max of the stacked features over √N (``eq:empirical_operator_norm``), from Σ ω_i z_i z_iᵀ.

    A_θ = zᵀ ⊗ I has the singular values of the stacked z, each K times.
    """
    return jnp.sqrt(jnp.maximum(lapack.eigh(covariance)[0][-1], 0))


def cauchy_reduction(norm: Scalar, along_gradient: Scalar, radius: Scalar) -> Scalar:
    """Return r_C = γ‖∇L‖² − ½γ²⟨∇L, ∇²L ∇L⟩ (``eq:reduction_cauchy``) with the step γ of ``def:cauchy_point``."""
    to_boundary = radius / norm
    step = jnp.where(along_gradient > 0, jnp.minimum(to_boundary, norm**2 / along_gradient), to_boundary)
    return step * norm**2 - 0.5 * step**2 * along_gradient
