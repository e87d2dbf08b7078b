"""Tables read a part at a time: Parquet and Arrow files, iterators of batches."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ..suggest import did_you_mean
from .frames import column_names, is_frame


def is_stream(X: Any) -> bool:
    """Say whether ``X`` is a table to be read by :func:`read_stream`: a file's path or an iterator of batches."""
    return isinstance(X, str | Path | Iterator)


def read_stream(X: Any, y: Any, columns: list[str] | None = None) -> tuple[np.ndarray, np.ndarray, list[str] | None]:
    """Return inputs (float32), targets and input columns' names of a Parquet or Arrow file, or an iterator of batches.

    Parameters
    ----------
    X : str, Path or iterator
        A Parquet (``.parquet``) or Arrow (``.arrow``, ``.feather``) file of numeric columns, or an iterator of pairs
        ``(X, y)`` of arrays.
    y : str or list of str; None for an iterator
        The file's target column or columns; the others are inputs.
    columns : list of str, optional
        The inputs that the file must have, in this order; by default all but the targets, as they come.
    """
    if isinstance(X, Iterator):
        if y is not None:
            raise ValueError("y must be None when X is an iterator, which yields pairs (X, y) of arrays")
        return *_gather(X), None
    if y is None or not isinstance(y, str | list | tuple):
        raise ValueError(f"y must name the target column or columns of the file {str(X)!r}, got {type(y).__name__}")
    targets = [y] if isinstance(y, str) else list(y)
    names, batches = _open(Path(X))
    for what, name in [*(("y=", name) for name in targets), *(("input ", name) for name in columns or [])]:
        if name not in names:
            have = ", ".join(map(repr, names[:12])) + (", ..." if len(names) > 12 else "")
            raise ValueError(f"{what}{name!r} is not a column of {str(X)!r}; it has {have}{did_you_mean(name, names)}")
    # pandas keeps the index of a frame beside its columns
    inputs = columns or [name for name in names if name not in targets and not name.startswith("__index_level_")]
    if not inputs:
        raise ValueError(f"{str(X)!r} has no columns besides the target")

    def pairs() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        parts = (batch.slice(i, 65_536) for batch in batches for i in range(0, batch.num_rows, 65_536))
        for batch in parts:
            yield _matrix(batch, inputs, X).astype(np.float32), _matrix(batch, targets, X)

    table, target = _gather(pairs())
    return table, target[:, 0] if isinstance(y, str) else target, inputs


def _gather(pairs: Iterable[tuple[Any, Any]]) -> tuple[np.ndarray, np.ndarray]:
    """Join batches; inputs in single precision, in an array that grows by half when it is full."""
    table, used, targets, first = np.empty((0, 0), np.float32), 0, [], None
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise ValueError(f"the iterator X must yield pairs (X, y) of arrays, got {type(pair).__name__}")
        names, kind = [column_names(one) if is_frame(one) else None for one in pair], np.asarray(pair[1]).dtype.kind
        facts = *names, "number" if kind in "biuf" else "text" if kind in "OUST" else kind
        first = facts if first is None else first
        if facts != first:
            raise ValueError(f"batches must have columns and targets alike, got {facts} after {first}")
        part, target = np.ma.asanyarray(pair[0]), np.ma.asanyarray(pair[1])
        if np.ma.is_masked(target):
            raise ValueError("each y of the iterator must have no masked values; leave these rows out")
        part, target = np.ma.filled(part.astype(float), np.nan) if np.ma.is_masked(part) else part.data, target.data
        if part.dtype.kind not in "biuf":
            raise ValueError(f"each batch of X must hold numbers, got values of type {part.dtype}")
        if target.ndim == 0 or part.ndim < 2 or len(part) != len(target):
            raise ValueError(
                "each batch of X must have one row per sample and as many rows as its y, got shapes "
                f"{part.shape} and {target.shape}"
            )
        if used and part.shape[1:] != table.shape[1:]:
            raise ValueError(f"batches of X must have rows of one shape, got {table.shape[1:]} and {part.shape[1:]}")
        if used == 0:
            table = np.empty((len(part), *part.shape[1:]), np.float32)
        if used + len(part) > len(table):
            table.resize((max(used + len(part), 3 * len(table) // 2), *part.shape[1:]), refcheck=False)
        table[used : used + len(part)] = part
        used += len(part)
        targets.append(target.copy())  # the iterator may use its memory again
    if not used:
        raise ValueError("X has no rows: the file or iterator is empty")
    table.resize((used, *table.shape[1:]), refcheck=False)
    return table, np.concatenate(targets)


def _open(path: Path) -> tuple[list[str], Iterator[Any]]:
    """Return the column names of a Parquet or Arrow file and its record batches."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError(f"reading {str(path)!r} needs pyarrow: pip install 'vpboost[parquet]'") from error
    if not path.exists():
        raise FileNotFoundError(f"X={str(path)!r}: there is no such file")
    try:
        if path.suffix in (".arrow", ".feather"):
            reader = pyarrow.ipc.open_file(pyarrow.memory_map(str(path)))
            return reader.schema.names, (reader.get_batch(i) for i in range(reader.num_record_batches))
        file = pyarrow.parquet.ParquetFile(path)
        return file.schema_arrow.names, file.iter_batches(65_536)
    except pyarrow.ArrowInvalid as error:
        raise ValueError(f"X={str(path)!r} is not a Parquet or Arrow file: {error}") from error


def _matrix(batch: Any, names: list[str], path: Any) -> np.ndarray:
    columns = []
    for name in names:
        values = batch.column(name).to_numpy(zero_copy_only=False)
        if values.dtype.kind not in "biuf":
            raise ValueError(
                f"column {name!r} of {str(path)!r} is not numeric; read the file into a data frame and give that as X"
            )
        columns.append(values)
    return np.stack(columns, axis=1)
