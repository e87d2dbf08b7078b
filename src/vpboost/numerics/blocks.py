"""Sums over samples, in fixed-size blocks of rows.

Every mean over the training set in this library is a sum over blocks taken in a fixed order. Memory is then bounded
by the block, the work stays in cache, and the result does not depend on how many cores the machine has.

Arrays "in blocks" have two leading axes, ``(n_blocks, block_rows)``, where a plain array has one. Inputs and features
have the rows of a block last, ``(n_blocks, ..., block_rows)``: products with them are then about half as expensive.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from .devices import EVERYWHERE, IN_SHARES, ROWS, added_in_pairs, merged, n_devices, n_shares

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


class SharedLayout:
    """How the rows of one process lie in its shares, all of as many blocks; used as :class:`Layout` is.

    ``places`` says which row stands where, in blocks, and ``real`` where that is not padding.
    """

    def __init__(self, ends: list[int], blocks_each: int, block_rows: int, order: np.ndarray | None = None):
        self.block_rows = block_rows
        self.places = np.zeros((len(ends), blocks_each * block_rows), np.int32 if ends[-1] < 2**31 else np.int64)
        self.real = np.zeros(self.places.shape, bool)
        for i, (begin, end) in enumerate(pairwise([0, *ends])):
            self.places[i, : end - begin] = np.arange(begin, end) if order is None else order[begin:end]
            self.places[i, end - begin :] = self.places[i, 0]
            self.real[i, : end - begin] = True
        self.places, self.real = (table.reshape(-1, block_rows) for table in (self.places, self.real))

    def split(self, rows: Any) -> np.ndarray:
        """Arrange rows in blocks; padding repeats a row."""
        return np.asarray(rows)[self.places]

    def split_inputs(self, rows: Any, dtype: Any) -> np.ndarray:
        """Arrange inputs in blocks with the rows last, block by block."""
        blocks = aligned_empty((len(self.places), *rows.shape[1:], self.block_rows), dtype)
        for block, places in zip(blocks, self.places, strict=True):
            block[...] = np.moveaxis(rows[places], 0, -1)
        return blocks

    def merge(self, blocks: np.ndarray) -> np.ndarray:
        """Return the rows of blocks in the order that they had before they were arranged."""
        merged = np.empty((int(self.real.sum()), *blocks.shape[2:]), blocks.dtype)
        merged[self.places[self.real]] = blocks[self.real]
        return merged


def block_scan(function: Callable, *blocks: Any) -> tuple[Any, Any]:
    """Apply ``function``, which returns a pair, to each block: stack what comes first, sum what comes second, in order.

    Either of the two may be None or any pytree of arrays. Differentiable on one device; where rows are shared out over
    several (see :mod:`vpboost.numerics.devices`), each works on its own.
    """
    n = n_devices()
    return _on_devices(function, n, blocks) if n else _in_order(function, blocks)


def _on_devices(function: Callable, n: int, blocks: tuple) -> tuple[Any, Any]:
    """Do what :func:`block_scan` does share by share, each device its own, and add up the shares' sums in pairs."""

    def on_one(*blocks: Any) -> tuple[Any, Any]:
        shares = jax.tree.map(lambda leaf: leaf.reshape(n_shares(n) // n, -1, *leaf.shape[1:]), blocks)
        each, sums = jax.lax.map(lambda share: _in_order(function, share), shares)
        each = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), each)
        if not jax.tree.leaves(sums):
            return each, sums
        total, unravel = ravel_pytree(jax.tree.map(added_in_pairs, sums))
        return each, unravel(merged(total, jnp.add))  # one message for all of them

    everything = jax.shard_map(on_one, in_specs=IN_SHARES, out_specs=(IN_SHARES, EVERYWHERE), check_vma=False)
    return everything(*blocks)


def _in_order(function: Callable, blocks: tuple) -> tuple[Any, Any]:
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


def largest(function: Callable, *blocks: Any) -> Any:
    """Return ``function(*blocks)``, maxima over all rows in one vector, where these may be shared out over devices."""
    if not n_devices():
        return function(*blocks)

    def on_one(*blocks: Any) -> Any:
        return merged(function(*blocks), jnp.maximum)

    return jax.shard_map(on_one, in_specs=IN_SHARES, out_specs=EVERYWHERE, check_vma=False)(*blocks)


def draw_blocks(key: Any, n: int, n_blocks: int) -> Any:
    """Return the numbers of ``n`` random blocks, drawn with replacement; where there are shares, as many from each."""
    devices = n_devices()
    if not devices:
        return jax.random.randint(key, (n,), 0, n_blocks)
    shares = n_shares(devices)
    blocks_each = n_blocks // shares
    chosen = jax.random.randint(key, (shares, max(n // shares, 1)), 0, blocks_each)
    return (chosen + blocks_each * jnp.arange(shares)[:, None]).reshape(-1)


def take_blocks(blocks: Any, chosen: Any) -> Any:
    """Return the blocks that :func:`draw_blocks` has drawn, each on the device where it lies."""
    devices = n_devices()
    if not devices:
        return jax.tree.map(lambda leaf: leaf[chosen], blocks)

    def on_one(blocks: Any, chosen: Any) -> Any:  # all know what is drawn: else its sums would go from one to the other
        device, each = jax.lax.axis_index(ROWS), len(chosen) // devices
        mine = jax.lax.dynamic_slice_in_dim(chosen, device * each, each)
        return jax.tree.map(lambda leaf: leaf[mine - device * leaf.shape[0]], blocks)

    return jax.shard_map(on_one, in_specs=(IN_SHARES, EVERYWHERE), out_specs=IN_SHARES, check_vma=False)(blocks, chosen)


def known_everywhere(blocks: Any) -> Any:
    """Return an array in blocks, a small one, as every device needs it."""
    if not n_devices():
        return blocks

    def on_one(blocks: Any) -> Any:
        return merged(blocks, lambda lower, higher: jnp.concatenate([lower, higher]))

    return jax.shard_map(on_one, in_specs=(IN_SHARES,), out_specs=EVERYWHERE, check_vma=False)(blocks)
