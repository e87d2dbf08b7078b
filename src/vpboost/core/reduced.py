"""The reduced problem: every variable-projection equation, by structure of the loss's Hessian.

A weak learner is h(x) = Wᵀ z(x) with features z(x) ∈ Rⁿ and linear weights W ∈ Rⁿˣᴷ; the paper's w is W read row by
row, and its featurizer matrix A_θ(x) = z(x)ᵀ ⊗ I_K is never formed. The features of a block of rows are columns side by
side, n × rows. With ω_i the sample weights (they sum to one):

=====================  ==========================================  =============================
reduced gradient       ḡ = Σ ω_i z_i g_iᵀ                           ``eq:gbar_formula``
reduced Hessian        H̄ = Σ ω_i (z_i z_iᵀ) ⊗ H_i                    ``eq:hbar_formula``
optimal weights        w* = −(H̄ + λ_w I)⁻¹ ḡ                         ``eq:w_opt_form``
quadratic model        Q(w, θ) − L = ḡ·w + ½ w·H̄ w                   ``eq:quadratic_function``
=====================  ==========================================  =============================

H̄ is held as ``(G, m, m)``: G independent groups of m unknowns. A multiple of the identity H_i = s_i I gives one n×n
group whose factorisation serves all K outputs, a diagonal H_i gives K groups of n×n, and a coupled H_i one group of
nK × nK. Coupled systems that are too large for that are solved by conjugate gradients from products H̄v alone.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..losses.curvature import Curvature, Diagonal, ScaledIdentity
from ..numerics import lapack
from ..numerics.blocks import block_sum

#: Coupled systems with at most this many unknowns are assembled and factored; larger ones go to conjugate gradients.
MAX_DENSE_UNKNOWNS = 256
#: Numbers that a diagonal Hessian's products may need at once.
MAX_AT_ONCE = 1 << 24
#: Rows that one sum goes over: the first of these of which a block is a multiple, else the first, and the rest.
ROWS_PER_SUM = 256, 128

FeatureBlocks = Float[Array, "blocks n rows"]
Weights = Float[Array, "n k"]


class Derivatives(NamedTuple):
    """Derivatives of the loss at the current ensemble, per sample: ω_i, g_i and H_i."""

    weight: Float[Array, "*rows"]
    gradient: Float[Array, "*rows k"]
    curvature: Curvature


class Reduced(NamedTuple):
    """The reduced gradient ḡ (n × K) and the reduced Hessian H̄ in groups (G × m × m)."""

    gradient: Float[Any, "n k"]
    hessian: Float[Any, "groups m m"]

    def group(self, weights: Weights) -> Float[Array, "groups m r"]:
        """Arrange an n × K array as the right-hand sides of the groups."""
        n, k = weights.shape
        groups, m, _ = self.hessian.shape
        if groups == k and m == n:
            return weights.T[:, :, None]
        return weights[None] if m == n else weights.reshape(1, n * k, 1)

    def ungroup(self, grouped: Float[Array, "groups m r"]) -> Weights:
        """Undo :meth:`group`."""
        n, k = self.gradient.shape
        groups, m, _ = self.hessian.shape
        if groups == k and m == n:
            return grouped[:, :, 0].T
        return grouped.reshape(n, k)

    def hessian_product(self, weights: Weights) -> Weights:
        """Return H̄ w."""
        return self.ungroup(self.hessian @ self.group(weights))


class Solution(NamedTuple):
    """Optimal linear weights, and how well the system was solved.

    ``error`` is the jitter that the factorisation needed (relative to the diagonal; 0 when none) or the relative
    residual of conjugate gradients. When ``finite`` is false the data overflowed and ``weights`` are zero.
    """

    weights: Weights
    error: Float[Array, ""]
    finite: Array


def sum_over_rows(left: Float[Array, "*groups p rows"], right: Float[Array, "rows q"]) -> Float[Array, "*groups p q"]:
    """Return the product of two matrices, summed over the rows in parts.

    Single precision loses digits in long sums, and H̄ + λ_w I needs them all when λ_w is small.
    """
    size = next((size for size in ROWS_PER_SUM if left.shape[-1] % size == 0), ROWS_PER_SUM[0])
    n_parts, rest = divmod(left.shape[-1], size)
    if n_parts < 2:
        return left @ right
    whole = n_parts * size
    parts = left[..., :whole].reshape(*left.shape[:-1], n_parts, size)
    sums = jnp.einsum("...pcr,crq->...cpq", parts, right[:whole].reshape(n_parts, size, -1))
    total = jnp.sum(sums, axis=-3)
    return total + left[..., whole:] @ right[whole:] if rest else total


def reduced_gradient(features: Float[Array, "n rows"], derivatives: Derivatives) -> Weights:
    """Return the part of ḡ (``eq:gbar_formula``) due to these rows."""
    return sum_over_rows(features, derivatives.weight[:, None] * derivatives.gradient)


def reduced_hessian(features: Float[Array, "n rows"], derivatives: Derivatives) -> Float[Array, "groups m m"]:
    """Return the part of H̄ (``eq:hbar_formula``) due to these rows, in groups by the structure of H_i."""
    curvature, weight = derivatives.curvature, derivatives.weight
    if isinstance(curvature, ScaledIdentity):
        return sum_over_rows(features * (weight * curvature.scale), features.T)[None]
    if isinstance(curvature, Diagonal):
        # K independent products z diag(ω d_k) zᵀ, one after the other where all at once would take much memory
        per_output = (weight[:, None] * curvature.entries).T
        if per_output.size * len(features) > MAX_AT_ONCE:
            return jax.lax.map(lambda d: sum_over_rows(features * d, features.T), per_output)
        return sum_over_rows(features[None] * per_output[:, None, :], features.T)
    return _coupled_hessian(features, features * weight, curvature.matrix())[None]


def _coupled_hessian(z: Array, weighted: Array, matrix: Array) -> Float[Array, "m m"]:
    """Return Σ ω_i (z_i z_iᵀ) ⊗ H_i as one product of the distinct entries of z_i z_iᵀ with those of H_i."""
    n, k = z.shape[0], matrix.shape[-1]
    (a, b), (c, d) = np.triu_indices(n), np.triu_indices(k)
    distinct = sum_over_rows(weighted[a] * z[b], matrix[:, c, d])
    place_z, place_h = _symmetric_places(n), _symmetric_places(k)
    return distinct[place_z[:, None, :, None], place_h[None, :, None, :]].reshape(n * k, n * k)


def _symmetric_places(n: int) -> np.ndarray:
    """Return where entry (i, j) of a symmetric n × n matrix stands among its distinct entries."""
    places = np.zeros((n, n), dtype=int)
    upper = np.triu_indices(n)
    places[upper] = np.arange(len(upper[0]))
    return np.maximum(places, places.T)


def reduce_block(features: Float[Array, "n rows"], derivatives: Derivatives) -> Reduced:
    """Return the parts of ḡ and H̄ due to these rows."""
    return Reduced(reduced_gradient(features, derivatives), reduced_hessian(features, derivatives))


def reduce(features: FeatureBlocks, derivatives: Derivatives) -> Reduced:
    """Accumulate ḡ and H̄ over all blocks."""
    return block_sum(reduce_block, features, derivatives)


def optimal_weights(reduced: Reduced, reg: Float[Array, ""]) -> Solution:
    """Return w* = −(H̄ + λ_w I)⁻¹ ḡ (``eq:w_opt_form``) by one Cholesky factorisation per group."""
    factor, scale, jitter = _factorise(reduced.hessian, reg)
    return _solution(reduced.ungroup(_solve(factor, scale, -reduced.group(reduced.gradient))), jnp.max(jitter))


def optimal_weights_cg(
    features: FeatureBlocks,
    derivatives: Derivatives,
    reg: Float[Array, ""],
    start: Weights,
    tolerance: Float[Array, ""] | float,
    max_steps: int,
    extra_gradient: Weights | float = 0.0,
) -> Solution:
    """Return w* by preconditioned conjugate gradients from ``start``, using products with H̄ only.

    ``extra_gradient`` is added to ḡ.

    The preconditioner treats H_i as c_k s_i on output k, with s_i the mean diagonal of H_i and c_k the mean curvature
    of output k relative to the others: one eigendecomposition of an n × n Gram matrix serves all outputs.
    """
    gradient = block_sum(reduced_gradient, features, derivatives) + extra_gradient

    def matvec(weights: Weights) -> Weights:
        return hessian_product(weights, features, derivatives) + reg * weights

    def curvature_sums(z: Array, d: Derivatives) -> tuple[Array, Array]:
        diagonal = d.weight[:, None] * d.curvature.diagonal()
        return (z * diagonal.mean(axis=1)) @ z.T, diagonal.sum(axis=0)

    base, per_output = block_sum(curvature_sums, features, derivatives)
    info = jnp.finfo(base.dtype)
    relative = per_output / jnp.maximum(jnp.mean(per_output), info.tiny)
    values, vectors = lapack.eigh(base)
    values = jnp.maximum(values, len(base) * info.eps * values[-1])  # what is smaller is rounding
    spectrum = jnp.maximum(values[:, None] * relative + reg, info.tiny)

    def precondition(residual: Weights) -> Weights:
        return vectors @ ((vectors.T @ residual) / spectrum)

    weights, _ = jax.scipy.sparse.linalg.cg(
        matvec, -gradient, x0=start, tol=tolerance, maxiter=max_steps, M=precondition
    )
    norm = jnp.maximum(jnp.linalg.norm(gradient), jnp.finfo(gradient.dtype).tiny)
    return _solution(weights, jnp.linalg.norm(matvec(weights) + gradient) / norm)


def hessian_product(weights: Weights, features: FeatureBlocks, derivatives: Derivatives) -> Weights:
    """Return H̄ w without forming H̄."""

    def one_block(z: Array, d: Derivatives) -> Array:
        return z @ (d.weight[:, None] * d.curvature.apply(z.T @ weights))

    return block_sum(one_block, features, derivatives)


def block_slopes(
    weights: Weights, features: Float[Array, "n rows"], derivatives: Derivatives
) -> tuple[Float[Array, ""], Weights, Float[Array, "n rows"]]:
    """Return the part of Q(w, θ) − Q(0, θ) (``eq:quadratic_function``) due to these rows, and its slopes by w and z."""
    step, weight = features.T @ weights, derivatives.weight[:, None]
    slope = weight * (derivatives.gradient + derivatives.curvature.apply(step))
    value = 0.5 * jnp.sum(step * (weight * derivatives.gradient + slope))
    return value, features @ slope, weights @ slope.T


def uses_cg(curvature: Curvature, n_unknowns: int, solver: str) -> bool:
    """Say whether conjugate gradients solve for w*: on request, or for large systems that couple the outputs."""
    if solver != "auto":
        return solver == "cg"
    coupled = not isinstance(curvature, ScaledIdentity | Diagonal)
    return coupled and n_unknowns > MAX_DENSE_UNKNOWNS


def _solution(weights: Weights, error: Array) -> Solution:
    finite = jnp.all(jnp.isfinite(weights))
    return Solution(jnp.where(finite, weights, jnp.zeros_like(weights)), error, finite)


def _factorise(matrix: Float[Array, "groups m m"], reg: Array) -> tuple[Array, Array, Array]:
    """Factor ``matrix + reg I`` per group after scaling its diagonal to one.

    Rounding can make a group indefinite when features are collinear and λ_w is tiny; such a group is factored again
    with ever more jitter on its unit diagonal. Returns factors, scales and the jitter of each group.
    """
    eye = jnp.eye(matrix.shape[-1], dtype=matrix.dtype)
    info = jnp.finfo(matrix.dtype)
    diagonal = jnp.sum(matrix * eye, axis=2) + reg
    scale = jax.lax.rsqrt(jnp.maximum(diagonal, info.tiny))
    unit = scale[:, :, None] * (matrix + reg * eye) * scale[:, None, :]

    def factor(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        _, jitter, _ = state
        factors = lapack.cholesky(unit + jitter[:, None, None] * eye)
        again = ~jnp.isfinite(factors[:, -1, -1]) & (jitter < 1)  # one bad pivot spoils all that follow
        more = jnp.maximum(10 * jitter, matrix.shape[-1] * info.eps)
        return factors, jnp.where(again, more, jitter), jnp.any(again)

    # the loop starts without factors, so that factoring is compiled once only
    none = unit, jnp.zeros(matrix.shape[0], matrix.dtype), jnp.asarray(True)
    factors, jitter, _ = jax.lax.while_loop(lambda state: state[2], factor, none)
    return factors, scale, jitter


def _solve(factor: Array, scale: Array, right: Float[Array, "groups m r"]) -> Float[Array, "groups m r"]:
    """Solve with the factors of :func:`_factorise`."""
    return scale[:, :, None] * lapack.solve_factored(factor, scale[:, :, None] * right)
