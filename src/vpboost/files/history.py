"""The history of a fit in files."""

from typing import Any

import numpy as np

from ..core.records import Record
from .reader import Reader

#: How the entries of the history are stored.
KINDS = {"stage": "i", "solves": "i", "accepted": "b"}
DTYPES = {"i": np.int64, "b": np.bool_, "f": np.float64}


def history_arrays(history: list[Record]) -> dict[str, np.ndarray]:
    """Return the history of a fit as arrays, one per entry of its records."""
    columns = zip(*history, strict=True) if history else [()] * len(Record._fields)
    return {
        f"history.{name}": np.array(column, DTYPES[KINDS.get(name, "f")])
        for name, column in zip(Record._fields, columns, strict=True)
    }


def history_from(reader: Reader) -> dict[str, list]:
    """Return the history of a fit, a list per entry of its records."""
    n_stages = reader.arrays.get("history.stage", np.zeros(0)).size
    arrays = {
        name: reader.array(f"history.{name}", (n_stages,), KINDS.get(name, "f"), finite=False)
        for name in Record._fields
    }
    wide = all(array.dtype == DTYPES[array.dtype.kind] for array in arrays.values())
    reader.require(wide, "has a history in types other than int64, float64 and bool")  # lists take more than arrays
    reader.require(bool((arrays["stage"] == np.arange(n_stages)).all()), "has a history whose stages are not 0, 1, ...")
    return {name: array.tolist() for name, array in arrays.items()}


def profile_values(reader: Reader, value: Any) -> tuple:
    """Return the values of a profile that a JSON value stands for; whether they make sense is left to estimators.

    Files of earlier versions have the first three only.
    """
    sound = isinstance(value, list) and 3 <= len(value) <= 32 and all(map(is_plain, value))
    reader.require(sound and type(value[0]) is str and "auto" not in value, "has a profile that makes no sense")
    return tuple(value)


def is_plain(value: Any) -> bool:
    """Say whether a value of JSON is a finite number, a text, true, false or null."""
    return value is None or type(value) in (bool, str) or (type(value) in (int, float) and abs(value) < 1e308)
