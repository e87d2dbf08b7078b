"""Sums over samples, in fixed-size blocks of rows.

Every mean over the training set in this library is a sum over blocks taken in a fixed order. Memory is then bounded
by the block, the work stays in cache, and the result does not depend on how many cores the machine has.

Arrays "in blocks" have two leading axes, ``(n_blocks, block_rows)``, where a plain array has one. Inputs and features
have the rows of a block last, ``(n_blocks, ..., block_rows)``: products with them are then about half as expensive.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

#: Above this many blocks, a backward pass recomputes the features of a block instead of keeping them.
MAX_BLOCKS_KEPT = 16


def rows_per_block(dtype: Any) -> int:
    """Return the number of rows in a full block: 8,192 in single precision, 1,024 in double.

    XLA on CPUs may split a longer matrix product differently on one core and on several, which changes the last bits;
    products over this many rows gave the same bits for all sizes tried.
    """
    return 8192 if np.dtype(dtype).itemsize == 4 else 1024


def aligned_empty(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Return an empty array at an address that JAX can use without copying it."""
    n_bytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
    buffer = np.empty(n_bytes + 64, np.uint8)
    offset = -buffer.ctypes.data % 64
    return buffer[offset : offset + n_bytes].view(dtype).reshape(shape)


class Layout(NamedTuple):
    """How many blocks of how many rows hold ``n_rows`` rows (the last ones are padding)."""

    n_rows: int
    n_blocks: int
    block_rows: int

    @classmethod
    def for_rows(cls, n_rows: int, block_rows: int, unit: int | None = None) -> "Layout":
        """Return a layout with little padding whose blocks have at most ``block_rows`` rows.

        Blocks are rounded up to a multiple of ``unit`` rows, so that one compiled program serves data of similar sizes;
        by default of 32, and of 128 for large blocks: sums over parts of those then leave no rest.
        """
        n_blocks = -(-n_rows // block_rows)
        rows = -(-n_rows // n_blocks)
        unit = unit or (32 if rows <= 512 else 128)
        return cls(n_rows, n_blocks, min(-(-rows // unit) * unit, block_rows))

    def split(self, rows: Any) -> np.ndarray:
        """Arrange rows in blocks; padding repeats the first row, so that it is always valid data.

        >>> Layout.for_rows(3, 2).split(np.array([5, 6, 7])).tolist()
        [[5, 6], [7, 5]]
        """
        rows = np.asarray(rows)
        padding = self.n_blocks * self.block_rows - self.n_rows
        if padding:
            rows = np.concatenate([rows, np.broadcast_to(rows[:1], (padding, *rows.shape[1:]))])
        return rows.reshape(self.n_blocks, self.block_rows, *rows.shape[1:])

    def split_weights(self, weight: np.ndarray) -> np.ndarray:
        """Arrange sample weights in blocks, scaled to sum to one; padding weighs nothing."""
        weight = np.asarray(weight, dtype=np.float64)
        blocks = self.split(weight / weight.sum()).reshape(-1)
        blocks[self.n_rows :] = 0.0
        return blocks.reshape(self.n_blocks, self.block_rows)

    def split_inputs(self, rows: Any, dtype: Any, order: np.ndarray | None = None) -> np.ndarray:
        """Arrange inputs in blocks with the rows last, ``(n_blocks, ..., block_rows)``; ``order`` shuffles them.

        Works block by block, so that data on disk need not fit in memory twice.

        >>> Layout.for_rows(3, 2).split_inputs(np.array([[5, 1], [6, 2], [7, 3]]), "float32").tolist()
        [[[5.0, 6.0], [1.0, 2.0]], [[7.0, 5.0], [3.0, 1.0]]]
        """
        blocks = aligned_empty((self.n_blocks, *rows.shape[1:], self.block_rows), dtype)
        for b in range(self.n_blocks):
            begin, end = b * self.block_rows, min((b + 1) * self.block_rows, self.n_rows)
            part = rows[begin:end] if order is None else rows[order[begin:end]]
            blocks[b, ..., : len(part)] = np.moveaxis(part, 0, -1)
            blocks[b, ..., len(part) :] = blocks[0, ..., :1]
        return blocks

    def merge(self, blocks: Any) -> Any:
        """Undo :meth:`split`: one leading axis again, padding dropped."""
        return blocks.reshape(-1, *blocks.shape[2:])[: self.n_rows]


def block_scan(function: Callable, *blocks: Any) -> tuple[Any, Any]:
    """Apply ``function``, which returns a pair, to each block: stack what comes first, sum what comes second, in order.

    Differentiable; either of the two may be None or any pytree of arrays.
    """
    n_blocks, first = jax.tree.leaves(blocks)[0].shape[0], jax.tree.map(lambda leaf: leaf[0], blocks)
    if n_blocks == 1:
        each, total = function(*first)
        return jax.tree.map(lambda leaf: leaf[None], each), total
    zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), jax.eval_shape(function, *first)[1])

    def add(total: Any, block: Any) -> tuple[Any, Any]:
        each, part = function(*block)
        return jax.tree.map(jnp.add, total, part), each

    if n_blocks > MAX_BLOCKS_KEPT:
        add = jax.checkpoint(add)
    total, each = jax.lax.scan(add, zeros, blocks)
    return each, total


def block_map(function: Callable, *blocks: Any) -> Any:
    """Apply ``function`` to each block and stack the results; differentiable with bounded memory."""
    return block_scan(lambda *block: (function(*block), None), *blocks)[0]


def block_sum(function: Callable, *blocks: Any) -> Any:
    """Sum ``function(block)`` over the blocks, in order; ``function`` may return any pytree of arrays."""
    return block_scan(lambda *block: (None, function(*block)), *blocks)[1]
