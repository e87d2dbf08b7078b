"""Operations that combine many numbers: sums, products of matrices, factorisations, random bits."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from scipy.linalg import blas, lapack

from . import threefry
from .elementwise import UnknownOperationError, identity
from .shapes import is_key


def reduction(ufunc: np.ufunc) -> Callable:
    """Return the builder of a reduction by this ufunc."""

    def build(eqn: Any) -> Callable:
        axes, (before,), (after,) = tuple(eqn.params["axes"]), eqn.invars, eqn.outvars
        if not before.aval.size or (ufunc in (np.logical_and, np.logical_or) and before.aval.dtype != bool):
            raise UnknownOperationError(f"{eqn.primitive.name} of nothing or of bits")
        return lambda x: ufunc.reduce(x, axes, after.aval.dtype)

    return build


def accumulation(ufunc: np.ufunc) -> Callable:
    """Return the builder of a running reduction by this ufunc."""

    def build(eqn: Any) -> Callable:
        axis, dtype = eqn.params["axis"], eqn.outvars[0].aval.dtype
        if eqn.params["reverse"]:
            return lambda x: np.flip(ufunc.accumulate(np.flip(x, axis), axis, dtype), axis)
        return lambda x: ufunc.accumulate(x, axis, dtype)

    return build


def place_of(function: Callable) -> Callable:
    """Return the builder of ``argmax`` or ``argmin``."""

    def build(eqn: Any) -> Callable:
        (axis,), dtype = eqn.params["axes"], eqn.params["index_dtype"]
        return lambda x: function(x, axis).astype(dtype)

    return build


def is_plain_product(eqn: Any) -> bool:
    """Say whether a ``dot_general`` multiplies two matrices."""
    (summed, _), (batch, _) = eqn.params["dimension_numbers"]
    return not batch and len(summed) == 1 and all(variable.aval.ndim == 2 for variable in eqn.invars)


def product(eqn: Any, turned: bool = False) -> Callable:
    """Multiply matrices, or stacks of them, along any axes; ``turned`` returns the transpose, of matrices only."""
    (left_sum, right_sum), (left_batch, right_batch) = eqn.params["dimension_numbers"]
    left, right = eqn.invars[0].aval, eqn.invars[1].aval
    dtype = eqn.outvars[0].aval.dtype
    if dtype not in (left.dtype, right.dtype) or not {left.dtype, right.dtype} <= {np.dtype(bool), dtype}:
        raise UnknownOperationError(f"dot_general of {left.dtype} and {right.dtype}")
    if is_plain_product(eqn):
        by_left, by_right = left_sum[0] == 0, right_sum[0] == 1
        multiply = np.multiply if left.shape[left_sum[0]] == 1 else np.matmul
        if turned:
            return lambda a, b: multiply(b if by_right else b.T, a if by_left else a.T)
        return lambda a, b: multiply(a.T if by_left else a, b.T if by_right else b)
    left_free = [axis for axis in range(left.ndim) if axis not in (*left_sum, *left_batch)]
    right_free = [axis for axis in range(right.ndim) if axis not in (*right_sum, *right_batch)]
    order_left, order_right = (*left_batch, *left_free, *left_sum), (*right_batch, *right_sum, *right_free)
    batch = tuple(left.shape[axis] for axis in left_batch)
    length = int(np.prod([left.shape[axis] for axis in left_sum]))
    as_left = (*batch, int(np.prod([left.shape[axis] for axis in left_free])), length)
    as_right = (*batch, length, int(np.prod([right.shape[axis] for axis in right_free])))
    shape = eqn.outvars[0].aval.shape

    def multiply_stacks(a: Any, b: Any) -> Any:
        a, b = a.transpose(order_left).reshape(as_left), b.transpose(order_right).reshape(as_right)
        return np.matmul(a, b).reshape(shape)

    return multiply_stacks


def by_matrix(function: Callable, *stacks: np.ndarray) -> np.ndarray:
    """Apply a function of matrices to stacks of them."""
    if stacks[0].ndim == 2:
        return function(*stacks)
    if stacks[0].ndim == 3 and len(stacks[0]) == 1:
        return function(*[stack[0] for stack in stacks])[None]
    matrices = [stack.reshape(-1, *stack.shape[-2:]) for stack in stacks]
    results = np.stack([function(*one) for one in zip(*matrices, strict=True)])
    return results.reshape(*stacks[0].shape[:-2], *results.shape[1:])


def cholesky(eqn: Any) -> Callable:
    """Factor positive definite matrices; NaN where one is not."""
    if not eqn.outvars[0].aval.size:
        raise UnknownOperationError("cholesky of nothing")
    (factor,) = lapack.get_lapack_funcs(("potrf",), dtype=eqn.invars[0].aval.dtype)

    def one(matrix: np.ndarray) -> np.ndarray:
        lower, failed = factor(matrix, lower=1, clean=1)
        return np.full_like(matrix, np.nan) if failed else lower

    return lambda x: by_matrix(one, x)


def triangular_solve(eqn: Any) -> Callable:
    """Solve with triangular matrices from the left."""
    p = eqn.params
    if not p["left_side"] or p["unit_diagonal"] or not eqn.outvars[0].aval.size:
        raise UnknownOperationError("triangular_solve from the right, with a unit diagonal or of nothing")
    (solve,) = blas.get_blas_funcs(("trsm",), dtype=eqn.invars[0].aval.dtype)
    lower, turned = int(p["lower"]), int(p["transpose_a"])

    def one(matrix: np.ndarray, right: np.ndarray) -> np.ndarray:
        return solve(1.0, matrix, right, lower=lower, trans_a=turned)

    return lambda a, b: by_matrix(one, a, b)


def eigenvalues(eqn: Any, alone: bool = False) -> Callable:
    """Return eigenvectors and eigenvalues of symmetric matrices; NaN where they cannot be found.

    Vectors take as long again; of eigenvalues that are wanted ``alone``, the matrices are returned in their place.
    """
    triangle: Any = "L" if eqn.params["lower"] else "U"

    def one(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        try:
            if alone:
                return matrix, np.linalg.eigvalsh(matrix, triangle)
            values, vectors = np.linalg.eigh(matrix, triangle)
        except np.linalg.LinAlgError:
            return np.full_like(matrix, np.nan), np.full_like(matrix[0], np.nan)
        return vectors, values

    def decompose(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        pairs = [one(matrix) for matrix in x.reshape(-1, *x.shape[-2:])]
        vectors, values = (np.stack(parts) for parts in zip(*pairs, strict=True))
        return vectors.reshape(x.shape), values.reshape(x.shape[:-1])

    return decompose


def orthogonal(eqn: Any) -> Callable:
    """Return the factors Q and R of matrices."""
    if eqn.params["pivoting"] or not eqn.invars[0].aval.size:
        raise UnknownOperationError("qr with pivots or of nothing")
    mode: Any = "complete" if eqn.params["full_matrices"] else "reduced"
    return lambda x: np.linalg.qr(x, mode)


def random(build: Callable) -> Callable:
    """Return the builder of an operation on random keys, if they are of JAX's default kind."""

    def checked(eqn: Any) -> Callable:
        kinds = {str(variable.aval.dtype) for variable in (*eqn.invars, *eqn.outvars) if is_key(variable.aval)}
        if kinds != {"key<fry>"} or not jax.config.jax_threefry_partitionable:  # type: ignore[attr-defined]
            raise UnknownOperationError(f"random keys of another kind: {', '.join(kinds)}")
        return build(eqn.params)

    return checked


ALGEBRA: dict[str, Callable] = {
    **{"reduce_sum": reduction(np.add), "reduce_max": reduction(np.maximum), "reduce_min": reduction(np.minimum)},
    **{"reduce_and": reduction(np.logical_and), "reduce_or": reduction(np.logical_or)},
    **{"reduce_prod": reduction(np.multiply), "cumsum": accumulation(np.add), "cumprod": accumulation(np.multiply)},
    **{"argmax": place_of(np.argmax), "argmin": place_of(np.argmin), "dot_general": product},
    **{"cholesky": cholesky, "triangular_solve": triangular_solve, "eigh": eigenvalues},
    "qr": orthogonal,
    "random_split": random(lambda p: lambda keys: threefry.split(keys, p["shape"])),
    "random_wrap": random(lambda p: identity),
    "random_unwrap": random(lambda p: identity),
    "random_fold_in": random(lambda p: threefry.fold_in),
    "random_bits": random(lambda p: lambda keys: threefry.bits(keys, p["bit_width"], p["shape"])),
}
