"""Tables as people have them (pandas, polars, Arrow) read into numbers and names of categories, column by column.

What a column becomes depends on what it holds:

===========  ==========================================================================================
kind         columns
===========  ==========================================================================================
number       numbers, true and false; objects that are numbers (``Decimal``, ``None`` for missing)
datetime     dates and times: seconds since 1970; those with a time zone in UTC
timedelta    spans of time, times of day: seconds
category     text, and whatever the table itself calls categorical
===========  ==========================================================================================
"""

import datetime
import decimal
import numbers
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..predictor import level_name, seconds

#: A text column with more levels than this, and than half of the rows, is taken for an identifier.
MOST_LEVELS = 100
#: No column may have more levels: each is a column of its own to the learners.
MOST_LEVELS_AT_ALL = 10_000

NUMBERS = numbers.Real, np.bool_, decimal.Decimal
DATES = datetime.date, np.datetime64  # a datetime is a date
SPANS = datetime.timedelta, np.timedelta64, datetime.time
TEXTS = str, bytes


@dataclass(frozen=True, eq=False)
class Table:
    """A data frame read in: numbers (times among them) as one array, missing ones NaN, and categories by name."""

    kinds: list[str]  #: of each column
    numbers: np.ndarray  #: (n_rows, columns that are not categories)
    texts: dict[int, np.ndarray]  #: names of the values of each categorical column, by its place

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return len(self.numbers), len(self.kinds)

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, rows: Any) -> Any:
        return Table(self.kinds, self.numbers[rows], {j: names[rows] for j, names in self.texts.items()})


def is_frame(X: Any) -> bool:
    """Say whether ``X`` is a pandas or polars data frame, an Arrow table (or behaves like one)."""
    return hasattr(X, "columns") and hasattr(X, "__getitem__") and hasattr(X, "shape")


def is_times(X: Any) -> bool:
    """Say whether ``X`` is a NumPy array of rows and columns of dates, or of spans of time."""
    return isinstance(X, np.ndarray) and X.ndim == 2 and X.dtype.kind in "mM"


def is_arrow(X: Any) -> bool:
    """Say whether ``X`` is an Arrow table, or a column of one."""
    return type(X).__module__.split(".")[0] == "pyarrow"


def table_of_batch(batch: Any) -> Any:
    """Return an Arrow record batch as a table."""
    import pyarrow

    return pyarrow.Table.from_batches([batch])


def column_names(X: Any) -> list:
    """Return the names of a data frame's columns; raise ``ValueError`` if one occurs twice."""
    names = list(X.column_names if is_arrow(X) else X.columns)
    if len(set(names)) < len(names):
        twice = next(name for j, name in enumerate(names) if name in names[:j])
        raise ValueError(f"X has more than one column {twice!r}; rename them")
    return names


def frame_columns(X: Any) -> list[tuple[Any, Any]]:
    """Return the names and columns of a data frame, or the numbers and columns of an array."""
    return list(enumerate(X.T)) if isinstance(X, np.ndarray) else [(name, X[name]) for name in column_names(X)]


def names_of(y: Any) -> list[str] | None:
    """Return the names of a data frame's columns, or of a single column; None for what has none."""
    names: list[Any] = [None]
    if is_frame(y):
        names = list(y.column_names if is_arrow(y) else y.columns)
    elif hasattr(y, "name") and hasattr(y, "dtype"):
        names = [y.name]
    return names if all(type(name) is str for name in names) else None


def in_order(y: Any, names: list[str]) -> Any:
    """Return a data frame with its columns in this order, if it has just these."""
    found = column_names(y)
    if found == names or sorted(map(str, found)) != sorted(names):
        return y
    return y.select(names) if hasattr(y, "select") else y[names]


def is_all_numbers(X: Any) -> bool:
    """Say whether every column of a data frame has a type of numbers."""

    def is_plain(column: Any) -> bool:
        sparse = str(getattr(column, "dtype", "")).startswith("Sparse")
        values = None if sparse or is_declared(column) else column_values(column)
        return values is not None and values.ndim == 1 and values.dtype.kind in "biuf"

    columns = frame_columns(X)
    return bool(columns) and all(is_plain(column) for _, column in columns)


def read_table(X: Any, kinds: list[str] | None = None) -> Table:
    """Read a data frame, or an array of dates; ``kinds`` are those of the training data, by default found out.

    Raises
    ------
    ValueError
        Naming the column, if it cannot be a feature, is not of its kind in training, or looks like an identifier.
    """
    found, columns, texts = [], [], {}
    for j, (name, column) in enumerate(frame_columns(X)):
        values, declared = column_values(column), is_declared(column)
        kind = find_kind(values, declared or is_text(column), name) if kinds is None else kinds[j]
        if kind == "category":
            texts[j] = as_levels(column_objects(column))
            if kinds is None:
                check_levels(texts[j], declared, name)
        else:
            columns.append(as_numbers(values, kind, name))
        found.append(kind)
    matrix = np.stack(columns, axis=1) if columns else np.zeros((X.shape[0], 0))
    return Table(found, matrix, texts)


def is_declared(column: Any) -> bool:
    """Say whether a table itself calls a column categorical."""
    kind = str(getattr(column, "dtype", getattr(column, "type", ""))).lower()
    return kind.startswith(("category", "categorical", "enum", "dictionary"))


def is_text(column: Any) -> bool:
    """Say whether a table itself calls a column one of text; it may have no value to show that."""
    kind = str(getattr(column, "dtype", getattr(column, "type", ""))).lower()
    return kind.startswith(("str", "utf8", "large_string"))


def column_values(column: Any) -> np.ndarray:
    """Return one data-frame column as a NumPy array; nullable numbers become floats with NaN."""
    dtype = getattr(column, "dtype", None)
    name = str(dtype)
    if is_arrow(column):
        decoded = column.dictionary_decode() if is_declared(column) and hasattr(column, "dictionary_decode") else column
        values = decoded.cast(decoded.type.value_type) if str(decoded.type).startswith("dictionary") else decoded
        return np.asarray(values)
    if name == "category":  # pandas; as objects at once: whole numbers beside missing values would turn into floats
        return np.asarray(column.astype(object), dtype=object)
    if name.startswith("period"):
        return np.asarray(column.dt.to_timestamp())
    if getattr(dtype, "kind", "") == "M" and getattr(dtype, "tz", None) is not None:
        return np.asarray(column.dt.tz_convert("UTC").dt.tz_localize(None))
    nullable = name in ("boolean", "Float32", "Float64") or name.startswith(("Int", "UInt"))
    if nullable or (name.endswith("[pyarrow]") and getattr(dtype, "kind", "") in "biuf"):
        try:
            return column.to_numpy(dtype=np.float64, na_value=np.nan)  # pandas
        except TypeError:
            return np.asarray(column.to_numpy(), dtype=np.float64)  # polars
    values = np.asarray(column)
    return values.astype(object) if is_declared(column) else values


def column_objects(column: Any) -> list:
    """Return the values of a column as Python's objects: numbers would lose their digits, and true become 1."""
    if is_arrow(column):
        return column.to_pylist()
    if hasattr(column, "astype"):  # pandas, NumPy
        return list(column.astype(object))
    return column.to_list()


def find_kind(values: np.ndarray, declared: bool, name: Any) -> str:
    """Return the kind of a training column; raise ``ValueError`` naming it if it cannot be a feature."""
    if declared:
        return "category"
    known = {"M": "datetime", "m": "timedelta", "U": "category", "S": "category", "T": "category"}
    known |= dict.fromkeys("biuf", "number")
    if values.ndim == 1 and values.dtype.kind in known:
        return known[values.dtype.kind]
    types = types_of(values) if values.dtype.kind == "O" else {values.dtype.type}
    types = types if values.ndim == 1 else {np.ndarray}  # several values in a row
    for kind, members in (("number", NUMBERS), ("datetime", DATES), ("timedelta", SPANS)):
        if all(issubclass(one, members) for one in types):
            return kind
    other = [one for one in types if not issubclass(one, (*NUMBERS, *DATES, *SPANS, *TEXTS))]
    if other:
        raise ValueError(
            f"column {name!r} of X holds values of type {other[0].__name__}, which cannot be a feature; make numbers "
            "or text of them, or leave the column out"
        )
    return "category"


def types_of(values: np.ndarray) -> set[type]:
    """Return the types of the objects in a column that are not missing."""
    types = {type(value) for value in values if not (isinstance(value, float) and value != value)}
    return {one for one in types if one is not type(None) and one.__name__ not in ("NAType", "NaTType")}


def as_levels(values: list) -> np.ndarray:
    """Return the names of categories."""
    names = np.empty(len(values), dtype=object)
    names[:] = [level_name(value) for value in values]
    return names


def as_numbers(values: np.ndarray, kind: str, name: Any) -> np.ndarray:
    """Return values as float64, times in seconds; raise ``ValueError`` if they are of another kind, or infinite."""
    if not (len(types_of(values)) if values.dtype.kind == "O" else (values == values).any()):  # all are missing
        return np.full(len(values), np.nan)
    found = find_kind(values, False, name)
    if found != kind:
        was = {"number": "was numeric", "datetime": "held dates", "timedelta": "held spans of time"}[kind]
        raise ValueError(f"column {name!r} {was} in training, got values of type {values.dtype} ({found})")
    if values.dtype.kind in "mM":
        return in_seconds(values)
    try:
        if kind != "number":
            return np.array([seconds(value) for value in values], dtype=np.float64)
        if values.dtype.kind == "O":
            values = np.array([np.nan if str(value) in ("None", "<NA>", "NaT") else value for value in values])
        numbers = values.astype(np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"column {name!r} has a value that is not a number in double precision: {error}") from error
    if np.isinf(numbers).any():
        raise ValueError(f"column {name!r} has infinite values; use NaN for missing ones")
    return numbers


def in_seconds(times: np.ndarray) -> np.ndarray:
    """Return NumPy's dates, or spans of time, as seconds."""
    spans = times - np.datetime64(0, "s") if times.dtype.kind == "M" else times
    return spans / np.timedelta64(1, "s")


def check_levels(names: np.ndarray, declared: bool, column: Any) -> None:
    """Raise ``ValueError`` if a column has far too many levels, as identifiers and free text have."""
    n_levels = len(set(names))
    if n_levels > MOST_LEVELS_AT_ALL:
        raise ValueError(
            f"column {column!r} of X has {n_levels} different values; at most {MOST_LEVELS_AT_ALL} can be told apart: "
            "leave it out, or join rare ones"
        )
    if not declared and n_levels > max(MOST_LEVELS, len(names) / 2):
        raise ValueError(
            f"column {column!r} of X has {n_levels} different texts in {len(names)} rows, like an identifier; leave it "
            "out, make numbers or dates of it, or keep it as categories by giving it a categorical type "
            "(in pandas: .astype('category'))"
        )
