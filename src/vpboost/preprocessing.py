"""From tables as people have them to arrays of order one, and back to the user's units."""

from typing import Any, NamedTuple

import numpy as np

from .encodings import ENCODINGS
from .predictor import level_name
from .sources import MANY_ROWS, Rows


class Categories(NamedTuple):
    """A categorical column of a data frame: its place and the levels seen in training, in sorted order."""

    column: int
    levels: tuple[str, ...]


class Extra(NamedTuple):
    """Columns that an encoding adds for one numeric column, and the mean and spread that standardise them."""

    column: int  #: among the numeric ones
    encoding: Any
    mean: np.ndarray
    scale: np.ndarray


class InputEncoder:
    """Standardises numeric columns, one-hot encodes categorical ones and marks missing values.

    ``encoding`` adds columns to every numeric one of more than two values: none ("plain"), its normal score
    ("quantile") or smooth steps between its quantiles ("spline"); see :mod:`vpboost.encodings`.

    Every encoded column belongs to one input column (``sources_``). A missing number becomes the column's mean (zero
    after scaling) and, when the training data has any in that column, one in an indicator column. A missing category is
    a level of its own; a level not seen in training is encoded as all zeros. Images (more than two axes) are
    standardised as a whole.
    """

    def __init__(self, encoding: str = "plain"):
        self.encoding = encoding

    def fit(self, X: Any, weight: np.ndarray) -> "InputEncoder":
        """Learn scales, levels, indicators and encodings from training inputs and their weights.

        Of a very large table, a random sample of rows is enough.
        """
        if n_rows(X) > MANY_ROWS and not is_frame(X):
            chosen = random_rows(n_rows(X), MANY_ROWS)
            X, weight = X[chosen], weight[chosen]
        numbers, texts = split_columns(X)
        self.shape_ = numbers.shape[1:]
        self.numeric_ = [j for j in range(n_columns(X)) if j not in texts]
        present = np.isfinite(numbers)
        axes = (0,) if numbers.ndim == 2 else None
        weights = np.broadcast_to(weight.reshape(-1, *[1] * (numbers.ndim - 1)), numbers.shape) * present
        total = np.maximum(weights.sum(axis=axes), np.finfo(float).tiny)
        filled = np.where(present, numbers, 0.0)
        self.mean_ = (weights * filled).sum(axis=axes) / total
        centred = np.where(present, filled - self.mean_, 0.0)
        # divided by the largest first: squares of huge or tiny numbers must not over- or underflow
        largest = np.maximum(np.abs(centred).max(axis=axes), np.finfo(float).tiny)
        spread = largest * np.sqrt((weights * (centred / largest) ** 2).sum(axis=axes) / total)
        negligible = spread <= 1e-12 * np.maximum(np.abs(self.mean_), np.finfo(float).tiny)
        self.scale_ = np.where(negligible, 1.0, spread)
        self.constant_ = negligible
        self.missing_ = np.flatnonzero(~present.all(axis=0)) if numbers.ndim == 2 else np.zeros(0, dtype=int)
        self.categories_ = [Categories(j, tuple(sorted(set(column)))) for j, column in texts.items()]
        self.extras_ = self._fit_extras(numbers, weight)
        self.sources_ = self.find_sources()
        return self

    def find_sources(self) -> np.ndarray:
        """Return the input column that each encoded column belongs to."""
        return np.array(
            [
                *self.numeric_,
                *(self.numeric_[j] for j in self.missing_),
                *(c.column for c in self.categories_ for _ in c.levels),
                *(self.numeric_[extra.column] for extra in self.extras_ for _ in extra.mean),
            ],
            dtype=int,
        )

    def _fit_extras(self, numbers: np.ndarray, weight: np.ndarray) -> list[Extra]:
        if self.encoding == "plain" or numbers.ndim > 2:
            return []
        scaled, extras = self._scaled(numbers), []
        for j in range(numbers.shape[1]):
            present = np.isfinite(numbers[:, j]) & (weight > 0)
            values, weights = scaled[present, j], weight[present]
            if len(np.unique(values)) <= 2:
                continue
            options = {"n_bins": spline_bins(numbers.shape[1])} if self.encoding == "spline" else {}
            encoding = ENCODINGS[self.encoding].fit(values, weights, **options)
            columns = encoding(values)
            mean = np.average(columns, axis=0, weights=weights)
            spread = np.sqrt(np.average((columns - mean) ** 2, axis=0, weights=weights))
            extras.append(Extra(j, encoding, mean, np.where(spread > 0, spread, 1.0)))
        return extras

    def _scaled(self, numbers: np.ndarray) -> np.ndarray:
        """Return standardised numbers; constant columns and missing values are zero."""
        with np.errstate(over="ignore"):
            scaled = np.where(self.constant_, 0.0, (numbers - self.mean_) / self.scale_)
        return np.where(np.isfinite(numbers), scaled, 0.0)

    def transform(self, X: Any) -> np.ndarray:
        """Return encoded inputs, float64, of order one."""
        numbers, texts = split_columns(X, [c.column for c in self.categories_])
        scaled = self._scaled(numbers)
        if numbers.ndim > 2:
            return scaled
        parts = [scaled, ~np.isfinite(numbers[:, self.missing_])]
        for column, levels in self.categories_:
            parts.append(np.asarray(texts[column], dtype=object)[:, None] == np.array(levels, dtype=object)[None])
        for extra in self.extras_:
            columns = (extra.encoding(scaled[:, extra.column]) - extra.mean) / extra.scale
            parts.append(np.where(np.isfinite(numbers[:, extra.column])[:, None], columns, 0.0))
        return np.concatenate([np.asarray(part, dtype=np.float64) for part in parts], axis=1)

    def gradient(self, encoded: np.ndarray, X: Any, n_inputs: int) -> np.ndarray:
        """Turn derivatives by encoded columns at ``X``, ``(rows, K, D)``, into derivatives by the user's columns.

        A categorical column has no derivative: its entries are zero. So are those of missing values.
        """
        slope = np.where(self.constant_, 0.0, 1 / self.scale_)
        if encoded.ndim > 3:
            return encoded * slope
        numbers, _ = split_columns(X, [c.column for c in self.categories_])
        scaled, end = self._scaled(numbers), encoded.shape[2]
        by_scaled = encoded[:, :, : len(self.numeric_)].copy()
        for extra in reversed(self.extras_):
            steepness = extra.encoding.slope(scaled[:, extra.column]) / extra.scale
            begin = end - steepness.shape[1]
            by_scaled[:, :, extra.column] += np.einsum("rkd,rd->rk", encoded[:, :, begin:end], steepness)
            end = begin
        gradient = np.zeros((*encoded.shape[:2], n_inputs))
        gradient[:, :, self.numeric_] = np.where(np.isfinite(numbers)[:, None], by_scaled * slope, 0.0)
        return gradient


def spline_bins(n_columns: int) -> int:
    """Return the number of bins per column: 16, fewer when many columns would make too wide an input."""
    return int(np.clip(512 // max(n_columns, 1), 4, 16))


class TargetScaler:
    """Scales targets to order one, and predictions back: shift and spread, or (for a log link) the mean alone."""

    def __init__(self, kind: str):
        self.kind = kind

    def fit(self, target: np.ndarray, weight: np.ndarray) -> "TargetScaler":
        """Learn the scale from training targets and their weights."""
        n_outputs = target.shape[1] if target.ndim == 2 else 1
        self.shift_, self.scale_ = np.zeros(n_outputs), np.ones(n_outputs)
        if self.kind == "none":
            return self
        mean = np.average(target, axis=0, weights=weight)
        if self.kind == "log":
            self.scale_ = np.where(mean > 0, mean, 1.0)
            return self
        centred = target - mean
        largest = np.maximum(np.abs(centred).max(axis=0), np.finfo(float).tiny)
        spread = largest * np.sqrt(np.average((centred / largest) ** 2, axis=0, weights=weight))
        self.shift_, self.scale_ = mean, np.where(spread > 1e-12 * np.abs(mean), spread, 1.0)
        return self

    def transform(self, target: np.ndarray) -> np.ndarray:
        """Return scaled targets."""
        return target if self.kind == "none" else (target - self.shift_) / self.scale_

    def inverse(self, raw: np.ndarray) -> np.ndarray:
        """Return predictions in the user's units from raw ones."""
        return self.scale_ * (np.exp(raw) if self.kind == "log" else raw) + self.shift_

    def slope(self, raw: np.ndarray) -> np.ndarray:
        """Return the derivative of :meth:`inverse`."""
        return self.scale_ * (np.exp(raw) if self.kind == "log" else np.ones_like(raw))


def is_frame(X: Any) -> bool:
    """Say whether ``X`` is a pandas or polars data frame (or behaves like one)."""
    return hasattr(X, "columns") and hasattr(X, "__getitem__") and hasattr(X, "shape")


def names_of(y: Any) -> list[str] | None:
    """Return the names of a data frame's columns, or of a single column; None for what has none."""
    names: list[Any] = (
        list(y.columns) if is_frame(y) else [y.name] if hasattr(y, "name") and hasattr(y, "dtype") else [None]
    )
    return names if all(type(name) is str for name in names) else None


def n_rows(X: Any) -> int:
    """Return the number of rows of an array or data frame."""
    return X.shape[0]


def take(X: Any, rows: np.ndarray) -> Any:
    """Return some rows of an array or data frame."""
    if hasattr(X, "iloc"):
        return X.iloc[rows]
    if isinstance(X, Rows):
        return Rows(X.source, rows if X.index is None else X.index[rows], X.encode)
    return Rows(X, rows) if n_rows(X) > MANY_ROWS and not is_frame(X) else X[rows]


def random_rows(n: int, about: int) -> np.ndarray:
    """Return the numbers of about so many rows out of ``n``, in order; always the same ones."""
    return np.unique(np.random.default_rng(0).integers(0, n, about))


def has_text(X: Any) -> bool:
    """Say whether a data frame has columns that are not numbers."""
    return any(column_values(X[name]).dtype.kind not in "biuf" for name in X.columns)


def n_columns(X: Any) -> int:
    """Return the number of input columns."""
    return X.shape[1]


def split_columns(X: Any, categorical: list[int] | None = None) -> tuple[np.ndarray, dict[int, list[str]]]:
    """Return the numeric columns as float64 (missing as NaN) and the categorical ones as lists of text.

    ``categorical`` names the columns to read as text; by default all columns of a data frame that are not numeric.
    """
    if not is_frame(X):
        return np.asarray(X if isinstance(X, np.ndarray) else X[:], dtype=np.float64), {}
    texts, numbers = {}, []
    for j, name in enumerate(X.columns):
        values = column_values(X[name])
        as_text = values.dtype.kind not in "biuf" if categorical is None else j in categorical
        if as_text:
            texts[j] = [level_name(value) for value in values]
        else:
            numbers.append(as_numbers(values, name))
    matrix = np.stack(numbers, axis=1) if numbers else np.zeros((X.shape[0], 0))
    return matrix, texts


def column_values(column: Any) -> np.ndarray:
    """Return one data-frame column as a NumPy array; nullable numbers become floats with NaN."""
    dtype = str(getattr(column, "dtype", ""))
    if dtype in ("boolean", "Float32", "Float64") or dtype.startswith(("Int", "UInt")):
        try:
            return column.to_numpy(dtype=np.float64, na_value=np.nan)  # pandas
        except TypeError:
            return np.asarray(column.to_numpy(), dtype=np.float64)  # polars
    if dtype == "category":  # pandas; as objects at once: whole numbers beside missing values would turn into floats
        return np.asarray(column.astype(object), dtype=object)
    values = np.asarray(column)
    return values.astype(object) if dtype.lower().startswith(("categorical", "enum")) else values


def as_numbers(values: np.ndarray, name: Any) -> np.ndarray:
    """Return values as float64; raise ``ValueError`` naming the column if they are not numbers, or infinite."""
    try:
        numbers = values.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"column {name!r} was numeric in training, got values of type {values.dtype}") from error
    if np.isinf(numbers).any():
        raise ValueError(f"column {name!r} has infinite values; use NaN for missing ones")
    return numbers


#: Larger tables are not sorted, which would cost more than it is worth.
MOST_SORTED = 20_000


def canonical_rows(X: Any, target: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return which rows to keep, none of weight zero, equal ones merged, in sorted order; their weights; their groups.

    Rows of one group have equal inputs (and different targets): a split into parts should keep them together.

    A model then depends neither on the order of the rows nor on whether a row is repeated or given more weight. Above
    ``MOST_SORTED`` rows only those of weight zero are dropped.
    """
    kept = np.flatnonzero(weight > 0)
    if len(kept) > MOST_SORTED:
        return kept, weight if len(kept) == len(weight) else weight[kept], np.arange(len(kept), dtype=np.int32)
    part = take(X, kept)
    encoded = InputEncoder().fit(part, weight[kept]).transform(part)
    inputs, outputs = encoded.reshape(len(kept), -1), target[kept].reshape(len(kept), -1)
    table = np.concatenate([inputs, outputs], axis=1)
    _, first, inverse = np.unique(table, axis=0, return_index=True, return_inverse=True)
    _, group = np.unique(inputs[first], axis=0, return_inverse=True)
    return kept[first], np.bincount(inverse.reshape(-1), weights=weight[kept]), group.reshape(-1)
