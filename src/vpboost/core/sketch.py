"""Fewer outputs to train θ on, for losses with many.

With H_i = s_i I (squared error) the reduced objective is −½ tr ḡᵀ(H̄ + λ_w I)⁻¹ḡ, and ḡ = Σ ω_i z_i g_iᵀ: the gradients,
as rows of a matrix G (N × K), enter through G Gᵀ alone. So G may be replaced by G S with S Sᵀ ≈ I on G's row space,
and θ be trained at a cost that hardly depends on K; w* is then solved for on all outputs. Half of the columns of S are
the leading directions of G, which makes this exact when G has low rank; the other half are random combinations of what
is left, whose expectation is right.

There is no such thing where the Hessian differs between outputs (diagonal) or couples them (softmax): H̄ then differs
with the output too, and the objective is not a function of G Gᵀ. But softmax has a majorant, H_i ≼ s_i I. Training θ on
the quadratic model with s_i I in place of H_i, which is nowhere below the true one, needs one n × n factorisation for
all classes instead of one of nK × nK, and admits sketches.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ..losses.curvature import ScaledIdentity, Softmax
from ..numerics.blocks import block_map, block_sum
from .reduced import Derivatives


def majorised(derivatives: Derivatives) -> Derivatives:
    """Return derivatives with s_i I in place of the H_i of softmax; others as they are."""
    if not isinstance(derivatives.curvature, Softmax):
        return derivatives
    return Derivatives(derivatives.weight, derivatives.gradient, derivatives.curvature.majorant())


def compress(key: PRNGKeyArray, derivatives: Derivatives, n_directions: int | None) -> Derivatives:
    """Return derivatives with G S, of ``n_directions`` columns, in place of G, where that is possible and saves."""
    curvature, n_outputs = derivatives.curvature, derivatives.gradient.shape[-1]
    if n_directions is None or n_directions >= n_outputs or not isinstance(curvature, ScaledIdentity):
        return derivatives
    directions = sketch(key, derivatives, n_directions)
    gradient = block_map(lambda g: g @ directions, derivatives.gradient)
    return Derivatives(derivatives.weight, gradient, ScaledIdentity(curvature.scale, n_directions))


def sketch(key: PRNGKeyArray, derivatives: Derivatives, n_directions: int) -> Float[Array, "k r"]:
    """Return S: leading directions of G by two steps of subspace iteration, then random ones orthogonal to them."""
    n_outputs, dtype = derivatives.gradient.shape[-1], derivatives.gradient.dtype
    n_leading = (n_directions + 1) // 2
    lead_key, rest_key = jax.random.split(key)
    leading = jax.random.normal(lead_key, (n_outputs, n_leading), dtype)
    for _ in range(2):

        def one_block(g: Array, w: Array, leading: Array = leading) -> Array:
            return g.T @ (w[:, None] * (g @ leading))

        leading = jnp.linalg.qr(block_sum(one_block, derivatives.gradient, derivatives.weight))[0]
    rest = jax.random.normal(rest_key, (n_outputs, n_directions - n_leading), dtype)
    rest = (rest - leading @ (leading.T @ rest)) / max(n_directions - n_leading, 1) ** 0.5
    return jnp.concatenate([leading, rest], axis=1)
