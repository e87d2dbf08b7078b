"""Sums over samples, in fixed-size blocks of rows.

Every mean over the training set in this library is a sum over blocks taken in a fixed order. Memory is then bounded
by the block, the work stays in cache, and the result does not depend on how many cores the machine has.

Arrays "in blocks" have two leading axes, ``(n_blocks, block_rows)``, where a plain array has one.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

#: Above this many blocks, a backward pass recomputes the features of a block instead of keeping them.
MAX_BLOCKS_KEPT = 16


def rows_per_block(dtype: Any) -> int:
    """Return the number of rows in a full block: 256 in single precision, 128 in double.

    XLA on CPUs splits a longer matrix product differently on one core and on several, which changes the last bits;
    products over this many rows gave the same bits for all sizes tried.
    """
    return 1024 // np.dtype(dtype).itemsize


class Layout(NamedTuple):
    """How many blocks of how many rows hold ``n_rows`` rows (the last ones are padding)."""

    n_rows: int
    n_blocks: int
    block_rows: int

    @classmethod
    def for_rows(cls, n_rows: int, block_rows: int) -> "Layout":
        """Return a layout with little padding whose blocks have at most ``block_rows`` rows.

        Blocks are rounded up to a multiple of 32 rows, so that one compiled program serves data of similar sizes.
        """
        n_blocks = -(-n_rows // block_rows)
        rows = -(-n_rows // n_blocks)
        return cls(n_rows, n_blocks, min(-(-rows // 32) * 32, block_rows))

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

    def merge(self, blocks: Any) -> Any:
        """Undo :meth:`split`: one leading axis again, padding dropped."""
        return blocks.reshape(-1, *blocks.shape[2:])[: self.n_rows]


def block_map(function: Callable, *blocks: Any) -> Any:
    """Apply ``function`` to each block and stack the results; differentiable with bounded memory."""
    n_blocks = jax.tree.leaves(blocks)[0].shape[0]
    if n_blocks == 1:
        only = jax.tree.map(lambda leaf: leaf[0], blocks)
        return jax.tree.map(lambda leaf: leaf[None], function(*only))
    if n_blocks > MAX_BLOCKS_KEPT:
        function = jax.checkpoint(function)
    return jax.lax.map(lambda block: function(*block), blocks)


def block_sum(function: Callable, *blocks: Any) -> Any:
    """Sum ``function(block)`` over the blocks, in order; ``function`` may return any pytree of arrays."""
    first = jax.tree.map(lambda leaf: leaf[0], blocks)
    if jax.tree.leaves(blocks)[0].shape[0] == 1:
        return function(*first)
    zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), jax.eval_shape(function, *first))

    def add(total: Any, block: Any) -> tuple[Any, None]:
        return jax.tree.map(jnp.add, total, function(*block)), None

    if jax.tree.leaves(blocks)[0].shape[0] > MAX_BLOCKS_KEPT:
        add = jax.checkpoint(add)
    return jax.lax.scan(add, zeros, blocks)[0]
