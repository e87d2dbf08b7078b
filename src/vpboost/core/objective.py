"""What a weak learner is trained on, Q(w, θ) + ½λ_w‖w‖² + λ_θ R(θ), and its slopes: passes over blocks of rows.

A θ step of variable projection makes two passes. The first featurizes each block and adds up ḡ and H̄, which give w*;
the second adds up the slopes of Q at w*. Few blocks keep what the first pass computed for the second; many blocks
compute their features again, which is cheaper than fetching them from memory.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..featurizers import columns
from ..numerics.blocks import MAX_BLOCKS_KEPT, block_scan, block_sum
from ..numerics.devices import n_devices
from .reduced import (
    Derivatives,
    FeatureBlocks,
    Reduced,
    Solution,
    Weights,
    block_slopes,
    hessian_product,
    optimal_weights,
    optimal_weights_cg,
    reduce_block,
    reduced_gradient,
    uses_cg,
)

Scalar = Float[Array, ""]

#: Tolerance and iterations of conjugate gradients: loose while θ moves (each solve starts from the last), tight at the
#: end of training unless told otherwise. (Single precision does not reach 1e-7, but the residual that they update does,
#: and w* is then as accurate as by factorisation.)
CG_WHILE_TRAINING = (1e-3, 30)
CG_AT_END = (1e-7, 500)


class Summary(NamedTuple):
    """What one pass over the data leaves of a featurizer: all that w*, Q and the diagnostics need, at any λ_w."""

    gradient: Float[Any, "n k"]  #: ḡ
    covariance: Float[Any, "n n"]  #: Σ ω_i z_i z_iᵀ
    system: Reduced | FeatureBlocks  #: ḡ and H̄, or the features where w* is left to conjugate gradients

    def solve(
        self, derivatives: Derivatives, reg: Scalar, start: Weights, tolerance: Scalar | float = CG_AT_END[0]
    ) -> Solution:
        """Return w*; ``start`` and ``tolerance`` serve conjugate gradients."""
        if isinstance(self.system, Reduced):
            return optimal_weights(self.system, reg)
        return optimal_weights_cg(self.system, derivatives, reg, start, tolerance, CG_AT_END[1])

    def curvature_along(self, weights: Weights, derivatives: Derivatives) -> Scalar:
        """Return w·H̄w."""
        if isinstance(self.system, Reduced):
            return jnp.sum(weights * self.system.hessian_product(weights))
        return jnp.sum(weights * hessian_product(weights, self.system, derivatives))


def summarise(featurizer: Any, x: Array, derivatives: Derivatives, solver: str) -> Summary:
    """Return the summary of a featurizer on this data."""
    n_features, n_outputs = feature_count(featurizer, x), derivatives.gradient.shape[-1]
    by_cg = uses_cg(derivatives.curvature, n_features * n_outputs, solver)

    def one_block(x: Array, d: Derivatives) -> tuple:
        z = columns(featurizer, x)
        covariance = (z * d.weight) @ z.T
        if by_cg:
            return z, (reduced_gradient(z, d), covariance)
        return None, (reduce_block(z, d), covariance)

    features, (sums, covariance) = block_scan(one_block, x, derivatives)
    if by_cg:
        return Summary(sums, covariance, features)
    return Summary(sums.gradient, covariance, sums)


def feature_count(featurizer: Any, x: Array) -> int:
    """Return the number of features."""
    return jax.eval_shape(partial(columns, featurizer), x[0]).shape[0]


def penalty(theta: Any, weights: Weights, reg: Scalar, reg_theta: Scalar | float) -> Scalar:
    """Return ½λ_w‖w‖² + ½λ_θ‖θ‖²."""
    size = sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(theta))
    return 0.5 * reg * jnp.sum(weights**2) + 0.5 * reg_theta * size


def value_and_slopes(
    theta: Any,
    weights: Weights,
    build: Callable[[Any], Any],
    x: Array,
    derivatives: Derivatives,
    reg: Scalar,
    reg_theta: Scalar | float,
    solver: str | None,
) -> tuple[Scalar, tuple[Any, Weights], Weights]:
    """Return the objective, its slopes by θ and by w, and w; ``build(theta)`` is the featurizer.

    With a ``solver``, w is w*(θ) instead of ``weights``. Its dependence on θ does not count: by optimality, the slope
    by θ is the same with the graph cut there (``lem:reduced_gradient_equality``).
    """

    def features_of(theta: Any, x: Array) -> Array:
        return columns(build(theta), x)

    by_cg = solver is not None and uses_cg(derivatives.curvature, weights.size, solver)
    few, direct = x.shape[0] <= MAX_BLOCKS_KEPT, solver is not None and not by_cg
    shared = n_devices() > 0  # each device then adds up its own slopes by θ, block by block

    def forward(theta: Any) -> tuple[Any, Any]:
        def one_block(x: Array, d: Derivatives) -> tuple:
            z = features_of(theta, x)
            kept = z if few or by_cg else None
            return kept, reduce_block(jax.lax.stop_gradient(z), d) if direct else None

        return block_scan(one_block, x, derivatives)

    def forward_and_back(theta: Any) -> tuple[Any, Any]:
        def one_block(x: Array, d: Derivatives) -> tuple:
            z, pull_back = jax.vjp(lambda t: features_of(t, x), theta)
            return (z, pull_back), reduce_block(z, d) if direct else None

        return block_scan(one_block, x, derivatives)

    if few and shared:
        (features, pulls_back), reduced = forward_and_back(theta)
    elif few:
        features, pull_back, reduced = jax.vjp(forward, theta, has_aux=True)
    elif solver is not None:
        features, reduced = forward(theta)
    if direct:
        weights = optimal_weights(reduced, reg).weights
    elif by_cg:
        weights = optimal_weights_cg(features, derivatives, reg, weights, *CG_WHILE_TRAINING).weights

    if few and shared:

        def sums_of_features(z: Array, pull_back: Callable, d: Derivatives) -> tuple:
            value, by_w, by_z = block_slopes(weights, z, d)
            return value, pull_back(by_z)[0], by_w

        value, by_theta, by_weights = block_sum(sums_of_features, features, pulls_back, derivatives)
    elif few:

        def slopes_of_block(z: Array, d: Derivatives) -> tuple:
            value, by_w, by_z = block_slopes(weights, z, d)
            return by_z, (value, by_w)

        by_features, (value, by_weights) = block_scan(slopes_of_block, features, derivatives)
        (by_theta,) = pull_back(by_features)
    else:

        def sums_of_block(x: Array, d: Derivatives) -> tuple:
            z, pull_back = jax.vjp(lambda t: features_of(t, x), theta)
            value, by_w, by_z = block_slopes(weights, z, d)
            return value, pull_back(by_z)[0], by_w

        value, by_theta, by_weights = block_sum(sums_of_block, x, derivatives)
    by_theta = jax.tree.map(lambda slope, leaf: (slope + reg_theta * leaf).astype(leaf.dtype), by_theta, theta)
    value = value + penalty(theta, weights, reg, reg_theta)
    return value, (by_theta, by_weights + reg * weights), weights
