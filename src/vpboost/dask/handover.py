"""Rows on their way from a worker to the process that it starts.

They are written once, into a file without a name that the process maps into its memory: nothing is left of it when both
are gone, however they end. Columns of plain numbers and times lie there as they are in memory; all others (text,
categories, nullable types) as pickles of each piece, which are joined on the other side.
"""

import os
import pickle
import tempfile
import threading
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

#: Kinds of NumPy's types that may be copied byte by byte, and those of them that are numbers.
PLAIN, NUMBERS = "biufSUMm", "biuf"
#: Each region of the file begins at a multiple of this many bytes.
ALIGNED = 64
#: Bytes written at once; Linux writes no more than 2 GiB.
AT_ONCE = 1 << 30


class Described(NamedTuple):
    """What a partition holds."""

    kind: str  #: "array", "series" or "frame"
    n_rows: int
    shape: tuple[int, ...]  #: of a row, for an array
    dtypes: tuple[str | None, ...]  #: of the array, or of each column; None for what is not plain
    names: tuple[Any, ...]  #: of the columns


class Region(NamedTuple):
    """Plain values of some columns, side by side in each row."""

    columns: tuple[int, ...]
    dtype: str


class Layout(NamedTuple):
    """How the rows of X, or of y and so on, lie in the file."""

    kind: str
    shape: tuple[int, ...]
    names: tuple[Any, ...]
    regions: tuple[Region, ...]
    pickled: tuple[int, ...]  #: columns that are pickled


class Placed(NamedTuple):
    """Where the rows of one process lie in its file."""

    layout: Layout
    n_rows: int
    offsets: tuple[int, ...]  #: of each region


def describe(part: Any) -> Described:
    """Return what a partition holds."""
    if isinstance(part, np.ndarray):
        plain = part.dtype.kind in PLAIN and not isinstance(part, np.ma.MaskedArray)
        return Described("array", len(part), part.shape[1:], (part.dtype.str if plain else None,), (None,))
    if not hasattr(part, "iloc"):
        raise TypeError(f"partitions must be NumPy arrays or pandas data frames, got {type(part).__name__}")
    kind = "frame" if part.ndim == 2 else "series"
    columns = list(part.dtypes) if kind == "frame" else [part.dtype]
    dtypes = tuple(d.str if isinstance(d, np.dtype) and d.kind in PLAIN else None for d in columns)
    return Described(kind, len(part), (), dtypes, tuple(part.columns) if kind == "frame" else (part.name,))


def layout_of(parts: list[Described], name: str, inputs: bool) -> Layout:
    """Return the layout that holds the rows of all partitions of ``name``; numbers of ``inputs`` become floats."""
    first = parts[0]
    for part in parts[1:]:
        if (part.kind, part.shape, part.names) != (first.kind, first.shape, first.names):
            was, now = ((p.kind, p.shape, p.names) for p in (first, part))
            raise ValueError(f"{name} must have partitions of the same columns, got {was} and {now}")
    # an empty partition may have any type
    filled = [part for part in parts if part.n_rows] or parts
    dtypes = [common_type([part.dtypes[j] for part in filled]) for j in range(len(first.dtypes))]
    pickled = tuple(j for j, dtype in enumerate(dtypes) if dtype is None)
    numbers = tuple(j for j, dtype in enumerate(dtypes) if dtype is not None and dtype.kind in NUMBERS)
    regions = [Region((j,), d.str) for j, d in enumerate(dtypes) if d is not None and d.kind not in NUMBERS]
    if numbers:
        # as scikit-learn does with a table of several types; so the process need not convert them once more
        together = np.result_type(*(dtypes[j] for j in numbers))
        if inputs and together not in (np.dtype(np.float32), np.dtype(np.float64)):
            together = np.dtype(np.float64)
        regions.insert(0, Region(numbers, together.str))
    return Layout(first.kind, first.shape, first.names, tuple(regions), pickled)


def common_type(dtypes: list[str | None]) -> np.dtype | None:
    """Return a type that holds the values of all; None if there is no plain one."""
    if None in dtypes:
        return None
    try:
        return np.result_type(*(np.dtype(dtype) for dtype in set(dtypes)))
    except TypeError:  # numbers and dates
        return None


def row_bytes(layout: Layout, region: Region) -> int:
    """Return how many bytes a row of a region takes."""
    return np.dtype(region.dtype).itemsize * len(region.columns) * int(np.prod(layout.shape, dtype=int))


def placed(layouts: dict[str, Layout], n_rows: dict[str, int]) -> tuple[dict[str, Placed], int]:
    """Return where each field lies in the file of a process, and the bytes that it takes."""
    fields, end = {}, 0
    for name, layout in layouts.items():
        offsets = []
        for region in layout.regions:
            offsets.append(end)
            end += -(-row_bytes(layout, region) * n_rows[name] // ALIGNED) * ALIGNED
        fields[name] = Placed(layout, n_rows[name], tuple(offsets))
    return fields, end


def nameless_file(directory: str | None) -> int:
    """Return the descriptor of a file in memory, or in a directory where there are none in memory."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("vpboost")
    with tempfile.TemporaryFile(dir=directory) as file:
        return os.dup(file.fileno())


@dataclass
class RowFile:
    """The file of one process, and what lies where in it."""

    fields: dict[str, Placed]
    n_bytes: int
    directory: str | None = None
    pieces: dict[str, list[tuple[int, int, int]]] = field(default_factory=dict)  #: first row, offset and length

    def __post_init__(self) -> None:
        self.descriptor, self._lock = nameless_file(self.directory), threading.Lock()
        os.ftruncate(self.descriptor, self.n_bytes)
        self._end = self.n_bytes

    def write(self, name: str, at: int, part: Any) -> None:
        """Write rows of a field, the first of which is row ``at`` of the process."""
        where = self.fields[name]
        with self._lock:  # the descriptor of a closed file may be another file's
            if self.descriptor < 0 or not len(part):
                return
            for region, offset in zip(where.layout.regions, where.offsets, strict=True):
                values = np.ascontiguousarray(columns_of(part, region), dtype=region.dtype)
                write_at(self.descriptor, values, offset + at * row_bytes(where.layout, region))
            if where.layout.pickled:
                rest = part.iloc[:, list(where.layout.pickled)] if where.layout.kind == "frame" else part
                data = pickle.dumps(rest, protocol=5)
                self.pieces.setdefault(name, []).append((at, self._end, len(data)))
                write_at(self.descriptor, np.frombuffer(data, np.uint8), self._end)
                self._end += len(data)

    def close(self) -> None:
        """Let the memory go; the process may still have it."""
        with self._lock:
            if self.descriptor >= 0:
                os.close(self.descriptor)
            self.descriptor = -1


def columns_of(part: Any, region: Region) -> np.ndarray:
    """Return the columns of a partition that lie in a region."""
    if isinstance(part, np.ndarray):
        return part
    if part.ndim == 1:
        return part.to_numpy()
    return part.iloc[:, list(region.columns)].to_numpy(dtype=region.dtype)


def write_at(descriptor: int, values: np.ndarray, offset: int) -> None:
    """Write an array's bytes to a place in a file."""
    data = values.reshape(-1).view(np.uint8).data
    while data:
        written = os.pwrite(descriptor, data[:AT_ONCE], offset)
        data, offset = data[written:], offset + written
