"""Training data shared out over several devices, of one process or of many; see :mod:`vpboost.numerics.devices`."""

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array

from ..losses import Loss
from ..numerics.blocks import Layout, SharedLayout, rows_per_block
from ..numerics.devices import halved, n_shares, own_rows, put
from ..numerics.processes import exchange_arrays, exchange_facts, together
from .data import ROWS_PER_DRAW, SAMPLE_ROWS, Data, check_size, checked, evenly_spaced, prepare

#: Targets that c₀ is first sought by, at the most; all of them have the last word.
TARGETS_SEEN = 65_536
#: Rows of a block at the least, where mini-batches are drawn.
LEAST_DRAWN = 32


class InShares:
    """Inputs of this process with the ends of its shares, where these are not to be of equal length."""

    def __init__(self, rows: Any, ends: list[int]):
        self.rows, self.ends = rows, ends


class About:
    """What programs need not know of shared data; they are the same for all."""

    def __init__(self, layout: SharedLayout, seen: tuple[np.ndarray, np.ndarray, np.ndarray]):
        self.layout = layout  #: of this process
        self.seen = seen  #: inputs of a few rows of all processes; targets and weights of more

    def __eq__(self, other: object) -> bool:
        return isinstance(other, About)

    def __hash__(self) -> int:
        return hash(About)


class SharedData(Data):
    """Data in blocks of which each device has some."""

    about: About = eqx.field(static=True)

    def rows_of(self, blocks: Array) -> np.ndarray:
        """Return what this process has in blocks, one row per sample."""
        here = sorted(blocks.addressable_shards, key=lambda shard: shard.index[0].start or 0)
        return self.about.layout.merge(np.concatenate([np.asarray(shard.data) for shard in here]))

    def sample(self, n_rows: int = SAMPLE_ROWS) -> Array:
        return jax.device_put(evenly_spaced(self.about.seen[0], n_rows))

    def filled(self, values: Array) -> Array:
        shape = *self.about.layout.places.shape, *values.shape
        local = np.ascontiguousarray(np.broadcast_to(np.asarray(values), shape))
        return put(self.weight.sharding.mesh, local)  # type: ignore[attr-defined]

    def sample_of_targets(self) -> tuple[Array, Array]:
        _, target, weight = self.about.seen
        share = weight.astype(float) / weight.sum(dtype=float)
        return jax.device_put(target[None]), jax.device_put(share.astype(weight.dtype)[None])


def arrange_on(mesh: Mesh | None) -> Callable[..., Data]:
    """Return what arranges data in blocks on the devices of a mesh, or on one device where there is none."""
    return prepare if mesh is None else partial(prepare_shared, mesh=mesh)


def over(mesh: Any) -> Any:
    """Return the context in which programs run on the devices of a mesh, if there is one."""
    return nullcontext() if mesh is None else jax.set_mesh(mesh)


def here(result: Any, mesh: Any) -> Any:
    """Return what all devices of a mesh have as arrays of one device of this process, for work outside of the mesh."""
    if mesh is None:
        return result
    return jax.tree.map(lambda leaf: jax.device_put(np.asarray(leaf)) if eqx.is_array(leaf) else leaf, result)


def prepare_shared(
    x: Any,
    y: Any,
    loss: Loss,
    sample_weight: Any = None,
    dtype: Any = np.float32,
    names: tuple[str, str] = ("x", "y"),
    batch_size: int | None = None,
    seed: int = 0,
    unit: int | None = None,
    *,
    mesh: Mesh,
) -> SharedData:
    """Do what :func:`vpboost.core.data.prepare` does with the rows of this process, on the devices of a mesh.

    All processes call it, each with its own rows: what one finds wrong, all of them report.
    """
    ends = x.ends if isinstance(x, InShares) else None
    x, y, sample_weight = (own_rows(part) for part in (x.rows if ends else x, y, sample_weight))
    inputs, target, weight, n_outputs = together(partial(checked, x, y, loss, sample_weight, names))
    largest = 1.0 if sample_weight is None else float(np.max(sample_weight))
    shares = [n_shares(mesh.size) // mesh.size * n for n in devices_by_process(mesh)]
    here = jax.process_index() if len(shares) > 1 else 0
    ends = ends or halved(len(inputs), shares[here])
    longest = max(np.diff([0, *ends]).tolist())
    facts = [len(inputs), longest, n_outputs, list(inputs.shape[1:]), str(target.dtype), largest]
    sizes, longests, outputs, shapes, dtypes, largests = zip(*exchange_facts(facts), strict=True)
    check_alike(names, shapes, dtypes)
    layout, order = Layout.for_rows(max(longests), rows_per_block(dtype), unit), None
    if batch_size is not None and batch_size < sum(sizes):
        each = max(batch_size // sum(shares), LEAST_DRAWN)
        layout = Layout.for_rows(max(longests), min(each, ROWS_PER_DRAW), unit=LEAST_DRAWN)
        order = shuffled(ends, seed, sum(shares[:here]))
    mine = SharedLayout(ends, layout.n_blocks, layout.block_rows, order)
    if sample_weight is not None:  # they were divided by the largest of this process
        weight = np.asarray(sample_weight, float) / max(largests)
    weight_blocks = np.where(mine.real, mine.split(weight), 0.0)
    sums = weight_blocks.reshape(shares[here], -1).sum(axis=1)
    weight_blocks = (weight_blocks / np.concatenate(exchange_arrays(sums)).sum()).astype(dtype)
    with np.errstate(over="ignore"):
        target_blocks = mine.split(target.astype(target.dtype if target.dtype.kind in "iu" else dtype))
        x_blocks = mine.split_inputs(inputs, dtype)
    together(partial(check_size, x_blocks, target_blocks, names, dtype))
    return SharedData(
        x=put(mesh, x_blocks),
        target=put(mesh, target_blocks),
        weight=put(mesh, weight_blocks),
        n_rows=np.asarray(sum(sizes)),
        n_outputs=max(outputs),
        about=About(mine, seen_by_all(x_blocks, target_blocks, weight_blocks, mine, ends, sum(shares))),
    )


def devices_by_process(mesh: Mesh) -> list[int]:
    """Return how many devices of a mesh each process has; they must have as many."""
    owners = [device.process_index for device in mesh.devices.reshape(-1)]
    counts = np.unique(owners, return_counts=True)[1].tolist()
    if len(set(counts)) > 1:
        raise ValueError(f"every process must have as many devices, got {counts}")
    return counts


def check_alike(names: tuple[str, str], shapes: tuple, dtypes: tuple) -> None:
    """Raise ``ValueError`` if the rows of processes do not go together."""
    for what, found in ((f"rows of {names[0]}", shapes), (f"values of {names[1]}", dtypes)):
        if any(one != found[0] for one in found):
            raise ValueError(f"{what} must be alike in all processes, got {list(found)}")


def shuffled(ends: list[int], seed: int, first: int) -> np.ndarray:
    """Return the rows in a random order in each share; that of a share depends on nothing but its number."""
    order = np.arange(ends[-1], dtype=np.int32 if ends[-1] < 2**31 else np.int64)
    for i, (begin, end) in enumerate(zip([0, *ends], ends, strict=False)):
        np.random.default_rng([seed, first + i]).shuffle(order[begin:end])
    return order


def seen_by_all(
    x: np.ndarray, target: np.ndarray, weight: np.ndarray, mine: SharedLayout, ends: list[int], shares: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return inputs of a few rows, targets and weights of more, evenly spaced over the shares of all processes."""
    found = []
    real = mine.real.reshape(len(ends), -1)
    for blocks, most, moved in ((x, SAMPLE_ROWS, True), (target, TARGETS_SEEN, False), (weight, TARGETS_SEEN, False)):
        parts = []
        for i in range(len(ends)):
            chosen = i * real.shape[1] + evenly_spaced(np.flatnonzero(real[i]), max(most // shares, 1))
            block, place = np.divmod(chosen, mine.block_rows)
            parts.append(blocks[block, ..., place] if moved else blocks[block, place])
        found.append(np.concatenate(exchange_arrays(np.concatenate(parts))))
    return found[0], found[1], found[2]
