"""Operations that arrange numbers: reshaping, cutting, joining, indexing. Random keys have a last axis of two words."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.lax import GatherScatterMode

from .elementwise import UnknownOperationError


def is_key(array: Any) -> bool:
    """Say whether an array, or its description, is of random keys."""
    return not isinstance(array.dtype, np.dtype)


def as_plain(array: Any) -> np.ndarray:
    """Return an array for NumPy, random keys of JAX's default kind as their words."""
    if not is_key(array):
        return np.asarray(array)
    if str(array.dtype) != "key<fry>":
        raise UnknownOperationError(f"random keys of type {array.dtype}")
    return np.asarray(jax.random.key_data(array))


def key_axis(eqn: Any) -> tuple[int, ...]:
    """Return the shape of one element of the equation's first input."""
    return (2,) if is_key(eqn.invars[0].aval) else ()


def reshape(eqn: Any) -> Callable:
    """Give an array the shape of the result."""
    if eqn.primitive.name == "reshape" and eqn.params["dimensions"] is not None:
        raise UnknownOperationError("reshape with dimensions")
    shape = eqn.outvars[0].aval.shape + key_axis(eqn)
    return lambda x: x.reshape(shape)


def inserted(eqn: Any) -> tuple[int, ...]:
    """Return the shape of the input of a ``broadcast_in_dim`` with axes of length one where it will be repeated."""
    shape = [1] * len(eqn.params["shape"])
    for axis, size in zip(eqn.params["broadcast_dimensions"], eqn.invars[0].aval.shape, strict=True):
        shape[axis] = size
    return tuple(shape)


def broadcast(eqn: Any) -> Callable:
    """Repeat an array along new axes or axes of length one."""
    between, shape = inserted(eqn) + key_axis(eqn), eqn.params["shape"] + key_axis(eqn)
    return lambda x: np.broadcast_to(x.reshape(between), shape)


def transpose(eqn: Any) -> Callable:
    """Change the order of the axes."""
    order = eqn.params["permutation"]
    order = (*order, len(order)) if key_axis(eqn) else order
    return lambda x: x.transpose(order)


def cut(eqn: Any) -> Callable:
    """Take a part whose place belongs to the program."""
    p = eqn.params
    where = tuple(map(slice, p["start_indices"], p["limit_indices"], p["strides"] or [1] * len(p["start_indices"])))
    return lambda x: x[where]


def window(shape: tuple[int, ...], sizes: tuple[int, ...], starts: Any) -> tuple[slice, ...]:
    """Return the part of an array of these sizes that starts there, moved inside if need be."""
    begins = [min(max(int(s), 0), whole - size) for s, whole, size in zip(starts, shape, sizes, strict=True)]
    return tuple(slice(begin, begin + size) for begin, size in zip(begins, sizes, strict=True))


def dynamic_cut(eqn: Any) -> Callable:
    """Take a part whose place is an input."""
    shape, sizes = eqn.invars[0].aval.shape, eqn.params["slice_sizes"]
    if is_key(eqn.invars[0].aval):
        raise UnknownOperationError("dynamic_slice of random keys")
    return lambda x, *starts: x[window(shape, sizes, starts)]


def dynamic_update(eqn: Any) -> Callable:
    """Write over a part whose place is an input."""
    shape, sizes = eqn.invars[0].aval.shape, eqn.invars[1].aval.shape

    def update(x: Any, part: Any, *starts: Any) -> Any:
        result = np.array(x)
        result[window(shape, sizes, starts)] = part
        return result

    return update


def pad(eqn: Any) -> Callable:
    """Surround an array by a value."""
    config, shape = eqn.params["padding_config"], eqn.outvars[0].aval.shape
    if any(before < 0 or after < 0 or between for before, after, between in config):
        raise UnknownOperationError("pad by less than nothing or in between")
    inside = tuple(
        slice(before, before + size) for (before, _, _), size in zip(config, eqn.invars[0].aval.shape, strict=True)
    )

    def surround(x: Any, value: Any) -> Any:
        result = np.full(shape, value)
        result[inside] = x
        return result

    return surround


def tile(eqn: Any) -> Callable:
    """Repeat an array as a whole along its axes."""
    times = eqn.params["reps"]
    return lambda x: np.tile(x, times)


def concatenate(eqn: Any) -> Callable:
    """Join arrays along an axis."""
    axis = eqn.params["dimension"]
    return lambda *parts: np.concatenate(parts, axis)


def stack(eqn: Any) -> Callable:
    """Join arrays along a new axis."""
    axis = eqn.params["axis"]
    return lambda *parts: np.stack(parts, axis)


def split(eqn: Any) -> Callable:
    """Cut an array into parts along an axis."""
    ends, before = np.cumsum(eqn.params["sizes"]).tolist(), (slice(None),) * eqn.params["axis"]
    parts = [(*before, slice(begin, end)) for begin, end in zip([0, *ends[:-1]], ends, strict=True)]
    return lambda x: [x[part] for part in parts]


def count(eqn: Any) -> Callable:
    """Number the places along an axis."""
    p = eqn.params
    shape = [1] * len(p["shape"])
    shape[p["dimension"]] = -1
    numbers = np.arange(p["shape"][p["dimension"]], dtype=p["dtype"]).reshape(shape)
    return lambda: np.broadcast_to(numbers, p["shape"])


def reverse(eqn: Any) -> Callable:
    """Reverse the order along some axes."""
    axes = eqn.params["dimensions"]
    return lambda x: np.flip(x, axes)


def whole_axes(eqn: Any) -> int:
    """Return how many last axes a gather takes as they are: what it takes are then rows, not single numbers."""
    numbers, sizes, shape = eqn.params["dimension_numbers"], eqn.params["slice_sizes"], eqn.invars[0].aval.shape
    moved = {*numbers.start_index_map, *numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    n_whole, n_axes = 0, eqn.outvars[0].aval.ndim
    for axis, place in zip(range(len(shape))[::-1], numbers.offset_dims[::-1], strict=False):
        if axis in moved or sizes[axis] != shape[axis] or place != n_axes - 1 - n_whole:
            break
        n_whole += 1
    return n_whole


def gathered_places(eqn: Any) -> Callable:
    """Turn the indices of a gather into those of rows in the operand, and say which lie in it (None: all do)."""
    numbers, sizes, operand = eqn.params["dimension_numbers"], eqn.params["slice_sizes"], eqn.invars[0].aval
    if is_key(operand) or not operand.size or not operand.shape:
        raise UnknownOperationError("gather of random keys, from nothing or from a single number")
    n_whole, result = whole_axes(eqn), eqn.outvars[0].aval.shape
    n_axes, shape = len(result) - n_whole, operand.shape[: operand.ndim - n_whole]
    batch = [axis for axis in range(n_axes) if axis not in numbers.offset_dims]
    moved = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}

    def along(values: np.ndarray, axes: list[int]) -> np.ndarray:
        spread = [1] * n_axes
        for axis, length in zip(axes, values.shape, strict=True):
            spread[axis] = length
        return values.reshape(spread)

    kept = [axis for axis in range(len(shape)) if axis not in moved]
    steps = {axis: along(np.arange(sizes[axis]), [numbers.offset_dims[i]]) for i, axis in enumerate(kept)}
    for axis, place in zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True):
        steps[axis] = along(np.arange(shape[axis]), [batch[place]])

    def places(indices: Any) -> tuple[np.ndarray, np.ndarray | None]:
        row, inside = np.zeros([1] * n_axes, int), np.ones([1] * n_axes, bool)
        for axis, length in enumerate(shape):
            row = length * row + steps.get(axis, 0)
            if axis in numbers.start_index_map:
                start = along(indices[..., numbers.start_index_map.index(axis)].astype(int), batch)
                last = length - sizes[axis]
                inside = inside & (start >= 0) & (start <= last)
                row = row + np.clip(start, 0, last)
        inside = inside.reshape((*inside.shape, *[1] * n_whole))
        return np.broadcast_to(row, result[:n_axes]), None if inside.all() else inside

    return places


def gather(eqn: Any) -> Callable:
    """Take rows of the operand, given what :func:`gathered_places` made of the indices."""
    shape, n_whole = eqn.invars[0].aval.shape, whole_axes(eqn)
    rows = -1, *shape[len(shape) - n_whole :]
    marks, mark = eqn.params["mode"] == GatherScatterMode.FILL_OR_DROP, out_of_bounds(eqn)

    def take(x: Any, places: tuple[np.ndarray, np.ndarray | None]) -> Any:
        row, inside = places
        taken = x.reshape(rows).take(row, 0)
        return np.where(inside, taken, mark) if marks and inside is not None else taken

    return take


def out_of_bounds(eqn: Any) -> Any:
    """Return what JAX puts where an index is out of bounds."""
    dtype, value = eqn.outvars[0].aval.dtype, eqn.params["fill_value"]
    if value is None:
        limits = {"f": lambda: np.nan, "b": lambda: True, "i": lambda: np.iinfo(dtype).min}
        value = limits.get(dtype.kind, lambda: np.iinfo(dtype).max)()
    return np.asarray(value, dtype)


SHAPES: dict[str, Callable] = {
    **{"reshape": reshape, "squeeze": reshape, "expand_dims": reshape, "broadcast_in_dim": broadcast},
    **{"transpose": transpose, "slice": cut, "dynamic_slice": dynamic_cut, "dynamic_update_slice": dynamic_update},
    **{"pad": pad, "tile": tile, "concatenate": concatenate, "stack": stack, "split": split},
    **{"iota": count, "rev": reverse},
    **{"gather": gather, "gathered places": gathered_places, "device_put": lambda eqn: lambda *arrays: list(arrays)},
}
