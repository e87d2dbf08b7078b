"""Observed derivatives of targets by inputs: what a fit is given of them, and what they weigh."""

from typing import Any

import numpy as np

from ..checks import is_number
from ..losses import Loss, SquaredError
from ..numerics.rows import MANY_ROWS
from ..tables.frames import Table, column_names, in_order, is_frame
from ..tables.streams import is_stream
from .checks import unmasked
from .parts import Part, Slopes
from .portfolio import is_auto

#: What slope_weight="auto" means, over the number of inputs.
SLOPE_WEIGHT = 1.0
#: A larger one would leave nothing of the values.
MOST_WEIGHT = 1e9


def check_slope_weight(value: Any) -> None:
    """Raise ``ValueError`` if this is no weight of slopes."""
    if not is_auto(value) and not (is_number(value) and 0 < value <= MOST_WEIGHT):
        raise ValueError(f"slope_weight must be 'auto' or a positive number up to {MOST_WEIGHT:g}, got {value!r}")


def slope_weight_of(value: Any, n_inputs: int) -> float:
    """Return the weight of an observed slope beside that of a value."""
    return SLOPE_WEIGHT / max(n_inputs, 1) if is_auto(value) else float(value)


def check_slopes(dy: Any, X: Any, data: Part, loss: Loss | None, distribution: Any = None) -> np.ndarray | None:
    """Return observed slopes, (rows, outputs, columns of X), checked; None if there are none.

    ``X`` are the inputs as the user gave them, ``data`` what was made of them; of classifiers, ``loss`` is None.
    """
    if not isinstance(loss, SquaredError):
        got = f"loss={type(loss).__name__}" if distribution is None else f"distribution={distribution!r}"
        what = "classifiers do not take it" if loss is None else f"got {got}"
        raise ValueError(f"dy is for regression with loss='squared_error'; {what}")
    if is_stream(X):
        raise ValueError(f"dy goes with arrays and data frames, got X of type {type(X).__name__}; read it first")
    n, shape = data.n_rows, data.inputs.shape
    if len(shape) > 2 or n > MANY_ROWS:
        what = "holds images" if len(shape) > 2 else f"has {n:,} rows"
        raise ValueError(f"dy is for tables of up to {MANY_ROWS:,} rows; X {what}")
    if is_frame(dy):
        names = [str(name) for name in column_names(X)] if is_frame(X) else None
        if names is not None and sorted(map(str, column_names(dy))) != sorted(names):
            raise ValueError(f"dy must have the columns of X, {names}, got {column_names(dy)}")
        dy = in_order(dy, names) if names is not None else dy
    if np.iscomplexobj(dy):
        raise ValueError("dy must be real, got complex numbers")
    try:
        slopes = np.array(unmasked(dy, "dy"), dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"dy must be numeric, with NaN for what was not observed: {error}") from None
    n_outputs = data.target.shape[1]
    wanted = [(n, n_outputs, shape[1]), *([(n, shape[1])] if n_outputs == 1 else [])]
    if slopes.shape not in wanted:
        raise ValueError(f"dy must have shape {wanted[-1]}, one derivative by each column of X, got {slopes.shape}")
    slopes = slopes.reshape(wanted[0])
    if np.isinf(slopes).any():
        raise ValueError("dy must not be infinite; use NaN for what was not observed")
    missing = np.isnan(slopes)
    if (missing.any(axis=1) != missing.all(axis=1)).any():
        raise ValueError(
            "dy must have the derivatives of all outputs by a column of X in a row, or NaN for all of them; "
            "fit outputs whose derivatives were observed elsewhere by themselves"
        )
    texts = data.inputs.texts if isinstance(data.inputs, Table) else {}
    given = [j for j in texts if not missing[:, :, j].all()]
    if given:
        name = column_names(X)[given[0]] if is_frame(X) else given[0]
        raise ValueError(f"dy must be NaN in column {name!r}, whose values are categories: it has no derivative")
    return None if missing.all() else slopes


def strengths(observed: Slopes, n_columns: int) -> np.ndarray | None:
    """Return how strongly targets depend on each numeric column, by slopes observed (see ``slope_rows``).

    None if no slope by one of them is among them.
    """
    along = observed.inputs[:, observed.inputs.shape[1] // 2 :]
    column = np.argmax(along[:, :n_columns] != 0, axis=1)
    counts = np.bincount(column, minlength=n_columns)
    squares = np.bincount(column, weights=np.nanmean(observed.scaled**2, axis=1), minlength=n_columns)
    return np.sqrt(squares / counts) if counts.all() else None
