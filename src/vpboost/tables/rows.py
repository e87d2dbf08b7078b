"""Rows of arrays and tables: which to keep, and how to take them."""

from typing import Any

import numpy as np

from ..numerics.rows import MANY_ROWS, Rows
from .frames import Table


def take(X: Any, rows: np.ndarray) -> Any:
    """Return some rows of an array or table."""
    if isinstance(X, Rows):
        return Rows(X.source, rows if X.index is None else X.index[rows], X.encode)
    return Rows(X, rows) if X.shape[0] > MANY_ROWS and not isinstance(X, Table) else X[rows]


def random_rows(n: int, about: int) -> np.ndarray:
    """Return the numbers of about so many rows out of ``n``, in order; always the same ones."""
    return np.unique(np.random.default_rng(0).integers(0, n, about))


def parts_of(X: Any) -> tuple[np.ndarray, dict[int, np.ndarray]]:
    """Return the numbers of inputs as float64 (missing as NaN) and the names in categorical columns, by their place."""
    if isinstance(X, Table):
        return X.numbers, X.texts
    return np.asarray(X if isinstance(X, np.ndarray) else X[:], dtype=np.float64), {}
