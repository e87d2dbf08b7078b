"""LAPACK's factorisations, always of one matrix at a time.

Given a stack of matrices, jaxlib (0.10 at least) hands parts of it to XLA's thread pool and waits for them, from within
that same pool: as many programs at once as the pool has threads then wait for each other for ever. Here a stack, from
an axis of its own or from ``jax.vmap``, becomes a loop over its matrices, which waits for nobody.
(``tests/stress_threads.py`` has the minimal program that shows the fault.)
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.custom_batching import sequential_vmap
from jaxtyping import Array, Float


def cholesky(matrices: Float[Array, "groups m m"]) -> Float[Array, "groups m m"]:
    """Return the lower factors of positive definite matrices; NaN where one is not."""
    return _over_groups(_cholesky, matrices)


def solve_factored(
    factors: Float[Array, "groups m m"], right: Float[Array, "groups m r"]
) -> Float[Array, "groups m r"]:
    """Solve L Lᵀ x = b for each group, L being factors of :func:`cholesky`."""
    return _over_groups(_solve_factored, factors, right)


@sequential_vmap
def eigh(matrix: Float[Array, "m m"]) -> tuple[Float[Array, " m"], Float[Array, "m m"]]:
    """Return eigenvalues, in ascending order, and eigenvectors of a symmetric matrix."""
    values, vectors = jnp.linalg.eigh(matrix, symmetrize_input=False)
    return values, vectors


@sequential_vmap
def _cholesky(matrix: Array) -> Array:
    return jnp.linalg.cholesky(matrix, symmetrize_input=False)


@sequential_vmap
def _solve_factored(factor: Array, right: Array) -> Array:
    half = jax.lax.linalg.triangular_solve(factor, right, left_side=True, lower=True)
    return jax.lax.linalg.triangular_solve(factor, half, left_side=True, lower=True, transpose_a=True)


def _over_groups(function: Callable, *groups: Array) -> Array:
    """Apply a function of matrices to each group; a single one needs no loop."""
    if len(groups[0]) == 1:
        return function(*[group[0] for group in groups])[None]
    return jax.vmap(function)(*groups)
