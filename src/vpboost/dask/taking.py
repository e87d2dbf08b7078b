"""Rows taken over by the process that fits them: mapped, not copied, where they are plain."""

import mmap
import os
import pickle
from typing import Any

import numpy as np

from .handover import Layout, Placed


def take_over(descriptor: int, fields: dict[str, Placed], pieces: dict[str, list]) -> dict[str, Any]:
    """Return each field as an array, a series or a data frame, and close the file."""
    size = os.fstat(descriptor).st_size
    memory = mmap.mmap(descriptor, size, access=mmap.ACCESS_READ) if size else b""
    os.close(descriptor)
    return {name: field_of(memory, where, sorted(pieces.get(name, []))) for name, where in fields.items()}


def field_of(memory: Any, where: Placed, pieces: list[tuple[int, int, int]]) -> Any:
    """Return the rows of one field."""
    layout, n = where.layout, where.n_rows
    sizes = [n * len(region.columns) * int(np.prod(layout.shape, dtype=int)) for region in layout.regions]
    plain = [
        np.frombuffer(memory, region.dtype, size, offset) if size else np.empty(0, region.dtype)
        for region, size, offset in zip(layout.regions, sizes, where.offsets, strict=True)
    ]
    others = [pickle.loads(memoryview(memory)[offset : offset + length]) for _, offset, length in pieces]
    if layout.kind == "array":
        if plain:
            return plain[0].reshape(n, *layout.shape)
        return joined_arrays(others) if others else np.empty((0, *layout.shape), object)
    import pandas as pd

    if layout.kind == "series":
        values = plain[0] if plain else joined_column(others) if others else np.empty(0, object)
        return pd.Series(values, name=layout.names[0], copy=False)
    if not layout.pickled and len(layout.regions) == 1:
        return pd.DataFrame(plain[0].reshape(n, -1), columns=list(layout.names), copy=False)
    columns: dict[int, Any] = {}
    for region, values in zip(layout.regions, plain, strict=True):
        columns |= dict(zip(region.columns, values.reshape(n, -1).T, strict=True))
    for place, j in enumerate(layout.pickled):
        parts = [other.iloc[:, place] for other in others]
        columns[j] = joined_column(parts) if parts else np.empty(0, object)
    return frame_of(layout, columns, n)


def frame_of(layout: Layout, columns: dict[int, Any], n: int) -> Any:
    """Return a data frame of columns by their places, in order."""
    import pandas as pd

    frame = pd.DataFrame({j: columns[j] for j in range(len(layout.names))}, index=pd.RangeIndex(n), copy=False)
    frame.columns = list(layout.names)
    return frame


def joined_arrays(parts: list[np.ndarray]) -> np.ndarray:
    """Return arrays one after the other; masks are kept."""
    masked = any(isinstance(part, np.ma.MaskedArray) for part in parts)
    return np.ma.concatenate(parts) if masked else np.concatenate(parts)


def joined_column(parts: list[Any]) -> Any:
    """Return the pieces of a column one after the other; categories stay categories, whichever each piece has."""
    import pandas as pd
    from pandas.api.types import union_categoricals

    if all(isinstance(part.dtype, pd.CategoricalDtype) for part in parts):
        same = all(part.dtype == parts[0].dtype for part in parts)
        return pd.concat(parts, ignore_index=True).array if same else union_categoricals(parts, ignore_order=True)
    return pd.concat(parts, ignore_index=True).array
