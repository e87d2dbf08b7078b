"""Rows shared out over devices, of one process or of several.

The rows of a data set are cut into *shares*, runs of blocks, and every device of a mesh holds as many of them. A sum
over rows is then a sum of the shares' sums, added up pairwise in a fixed order: 16 shares give the same bits on 1, 2,
4, 8 and 16 devices, in one process or in many. (Other numbers of devices have other shares, and agree to rounding.)

Programs run on several devices inside ``jax.set_mesh(mesh)``; :mod:`vpboost.numerics.blocks` asks :func:`n_devices`.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

#: The axis of a mesh along which rows are shared out.
ROWS = "rows"
#: Shares at the least.
SHARES = 16
#: How arrays in blocks lie on the devices, and everything else.
IN_SHARES, EVERYWHERE = PartitionSpec(ROWS), PartitionSpec()


def mesh_of(devices: Any) -> Mesh | None:
    """Return the mesh of some devices: "all", a number of those of this process, or a list; None stays None."""
    if devices is None or isinstance(devices, Mesh):
        return devices
    if isinstance(devices, str) and devices == "all":
        chosen = jax.devices()
    elif isinstance(devices, int | np.integer) and not isinstance(devices, bool):
        here = jax.local_devices()
        if not 1 <= devices <= len(here):
            raise ValueError(f"devices must be from 1 to {len(here)}, the devices that JAX sees here, got {devices}")
        chosen = here[: int(devices)]
    elif isinstance(devices, list | tuple) and devices and all(isinstance(one, jax.Device) for one in devices):
        chosen = list(devices)
    else:
        raise ValueError(f"devices must be None, 'all', a number or a list of JAX's devices, got {devices!r}")
    others = {one.process_index for one in jax.devices()} - {one.process_index for one in chosen}
    if len({one.process_index for one in chosen}) > 1 and others:
        raise ValueError(f"devices must be of this process alone or of all processes; none is of process {min(others)}")
    return jax.make_mesh((len(chosen),), (ROWS,), devices=chosen, axis_types=(AxisType.Auto,))


def here_of(devices: Any) -> list[Any]:
    """Return those of some devices that this process has, fewer if there are not as many; none for None."""
    if devices is None:
        return []
    here = jax.local_devices()
    if isinstance(devices, list | tuple):
        return [one for one in devices if one in here]
    return here if isinstance(devices, str) else here[: int(devices)]


def n_devices() -> int:
    """Return over how many devices rows are shared out where this is called; 0 outside of a mesh."""
    mesh = jax.sharding.get_abstract_mesh()
    return mesh.shape[ROWS] if ROWS in mesh.axis_names else 0


def n_shares(devices: int) -> int:
    """Return the number of shares on so many devices.

    >>> [n_shares(devices) for devices in (1, 2, 16, 3, 64)]
    [16, 16, 16, 24, 64]
    """
    each = 1
    while devices * each < SHARES:
        each *= 2
    return devices * each


def halved(n_rows: int, n_parts: int) -> list[int]:
    """Return the ends of so many runs of rows of nearly equal length, halved again and again where that is possible.

    Who holds one of the halves then has the same runs in it as one who holds everything.

    >>> halved(13, 4), halved(7, 2), halved(6, 2)
    ([4, 7, 10, 13], [4, 7], [3, 6])
    """
    if n_parts % 2:
        return [(i + 1) * n_rows // n_parts for i in range(n_parts)]
    left = (n_rows + 1) // 2
    ends = halved(left, n_parts // 2)
    return ends + [left + end for end in halved(n_rows - left, n_parts // 2)]


def added_in_pairs(parts: jax.Array) -> jax.Array:
    """Return the sum along the first axis: neighbours are added, then neighbouring sums, and so on."""
    while len(parts) > 1:
        rest = parts[len(parts) - len(parts) % 2 :]
        parts = jnp.concatenate([parts[: len(parts) - len(rest) : 2] + parts[1::2], rest])
    return parts[0]


def merged(mine: jax.Array, combine: Callable[[jax.Array, jax.Array], jax.Array]) -> jax.Array:
    """Return what the devices of a mesh have, combined in pairs: neighbours first, then neighbouring pairs, and so on.

    Called on every device, within ``jax.shard_map``; ``combine(lower, higher)`` is given them in the devices' order. Of
    2, 4, 8, ... devices, each talks to one at a time, which has what it lacks of the next larger pair: 6 short
    messages one after the other for 64, where gathering takes 63. Each puts lower and higher in order by itself, so
    that all of them combine the same numbers in the same way and find the same bits.
    """
    n = n_devices()
    if n & (n - 1):  # no pairs of pairs
        parts = list(jax.lax.all_gather(mine, ROWS))
        while len(parts) > 1:
            pairs = zip(parts[::2], parts[1::2], strict=False)
            parts = [combine(*pair) for pair in pairs] + parts[len(parts) - len(parts) % 2 :]
        return parts[0]
    distance = 1
    while distance < n:
        theirs = jax.lax.ppermute(mine, ROWS, [(i, i ^ distance) for i in range(n)])
        is_lower = jax.lax.axis_index(ROWS) & distance == 0
        mine = combine(jnp.where(is_lower, mine, theirs), jnp.where(is_lower, theirs, mine))
        distance *= 2
    return mine


def put(mesh: Mesh, local: np.ndarray) -> jax.Array:
    """Return an array in blocks, of which this process has these, as one that is shared out over the mesh."""
    here = [one for one in mesh.devices.reshape(-1) if one.process_index == jax.process_index()]
    each = len(local) // len(here)
    parts = [jax.device_put(local[i * each : (i + 1) * each], device, may_alias=True) for i, device in enumerate(here)]
    shape = (each * mesh.size, *local.shape[1:])
    return jax.make_array_from_single_device_arrays(shape, NamedSharding(mesh, IN_SHARES), parts)


def own_rows(values: Any) -> Any:
    """Return what this process has of an array that JAX has spread along its first axis; anything else as it is."""
    if not isinstance(values, jax.Array) or values.is_fully_replicated:
        return values
    parts = {shard.index[0].start or 0: shard.data for shard in values.addressable_shards}
    return np.concatenate([np.asarray(parts[begin]) for begin in sorted(parts)])


def devices_of(values: Any) -> list[Any] | None:
    """Return the devices that JAX has spread an array over, along its first axis; None of anything else."""
    if not isinstance(values, jax.Array) or values.is_fully_replicated:
        return None
    shards = sorted(values.global_shards, key=lambda shard: shard.index[0].start or 0)
    return list(dict.fromkeys(shard.device for shard in shards))
