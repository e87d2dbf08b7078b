"""From tables as people have them to arrays of order one, and back to the user's units."""

from typing import Any, NamedTuple

import numpy as np

from .encodings import ENCODINGS, Cycles
from .frames import Table
from .predictor import FARTHEST, MOST_LOG, scaled_back, standardise, to_rates
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
    ("quantile") or smooth steps between its quantiles ("spline"); see :mod:`vpboost.encodings`. Dates are numbers, and
    their place in the day, the week and the year is added in any case.

    Every encoded column belongs to one input column (``sources_``). A missing number becomes the column's mean (zero
    after scaling) and, when the training data has any in that column, one in an indicator column. A missing category is
    a level of its own; a level not seen in training is encoded as all zeros. Images (more than two axes) are
    standardised as a whole.
    """

    def __init__(self, encoding: str = "plain"):
        self.encoding = encoding

    def fit(self, X: Any, weight: np.ndarray) -> "InputEncoder":
        """Learn scales, levels, indicators and encodings from training inputs and their weights.

        Of a very large array, a random sample of rows is enough; tables may have rare levels, and are read in full.
        """
        if n_rows(X) > MANY_ROWS and not isinstance(X, Table):
            chosen = random_rows(n_rows(X), MANY_ROWS)
            X, weight = X[chosen], weight[chosen]
        numbers, texts = parts_of(X)
        self.shape_ = numbers.shape[1:]
        self.numeric_ = [j for j in range(n_columns(X)) if j not in texts]
        kinds = enumerate(X.kinds) if isinstance(X, Table) else ()
        self.times_ = {j: kind for j, kind in kinds if kind in ("datetime", "timedelta")}
        self.mean_, self.scale_, self.constant_ = statistics(numbers, weight)
        if numbers.ndim == 2:
            self._heed_the_many(numbers, weight)
        present = np.isfinite(numbers)
        self.missing_ = np.flatnonzero(~present.all(axis=0)) if numbers.ndim == 2 else np.zeros(0, dtype=int)
        self.categories_ = [Categories(j, tuple(sorted(set(names)))) for j, names in texts.items()]
        self.extras_ = self._fit_extras(numbers, weight)
        self.sources_ = self.find_sources()
        return self

    def _heed_the_many(self, numbers: np.ndarray, weight: np.ndarray) -> None:
        """Scale columns with a few wild numbers (marks for missing ones, say) by the others; wild ones are cut off."""
        with np.errstate(invalid="ignore", over="ignore"):
            # where a few numbers make up the spread, most are close to the mean
            close = np.abs(self._scaled(numbers)).mean(axis=0) < 0.6
            for j in np.flatnonzero(close & ~self.constant_):
                column = numbers[:, [j]]
                low, median, high = np.nanquantile(column, [0.25, 0.5, 0.75])
                wild = np.abs(column / 2 - median / 2) > FARTHEST * (high / 2 - low / 2)
                if high > low and wild.any():
                    found = statistics(np.where(wild, np.nan, column), weight)
                    self.mean_[j], self.scale_[j], self.constant_[j] = (part[0] for part in found)

    def kinds(self) -> list[str]:
        """Return the kind of each column of a data frame; see :mod:`vpboost.frames`."""
        categorical, n_columns = {c.column for c in self.categories_}, len(self.numeric_) + len(self.categories_)
        return ["category" if j in categorical else self.times_.get(j, "number") for j in range(n_columns)]

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
        if numbers.ndim > 2:
            return []
        scaled, extras = self._scaled(numbers), []
        options = {"n_bins": spline_bins(numbers.shape[1])} if self.encoding == "spline" else {}
        for j in range(numbers.shape[1]):
            if self.encoding == "plain" and self.numeric_[j] not in self.times_:
                continue
            present = np.isfinite(numbers[:, j]) & (weight > 0)
            values, weights = scaled[present, j], weight[present]
            if len(np.unique(values)) <= 2:
                continue
            if self.encoding != "plain":
                extras.append(extra_of(j, ENCODINGS[self.encoding].fit(values, weights, **options), values, weights))
            if self.times_.get(self.numeric_[j]) == "datetime":
                cycles = Cycles.fit(numbers[present, j], self.mean_[j], self.scale_[j])
                if len(cycles.frequencies):
                    extras.append(extra_of(j, cycles, values, weights))
        return extras

    def _scaled(self, numbers: np.ndarray) -> np.ndarray:
        """Return standardised numbers; constant columns and missing values are zero."""
        return standardise(numbers, self.mean_, self.scale_, self.constant_)

    def transform(self, X: Any) -> np.ndarray:
        """Return encoded inputs, float64, of order one."""
        numbers, texts = parts_of(X)
        scaled = self._scaled(numbers)
        if numbers.ndim > 2:
            return scaled
        parts = [scaled, ~np.isfinite(numbers[:, self.missing_])]
        for column, levels in self.categories_:
            parts.append(texts[column][:, None] == np.array(levels, dtype=object)[None])
        for extra in self.extras_:
            columns = (extra.encoding(scaled[:, extra.column]) - extra.mean) / extra.scale
            parts.append(np.where(np.isfinite(numbers[:, extra.column])[:, None], columns, 0.0))
        return np.concatenate([np.asarray(part, dtype=np.float64) for part in parts], axis=1)

    def gradient(self, encoded: np.ndarray, X: Any, n_inputs: int) -> np.ndarray:
        """Turn derivatives by encoded columns at ``X``, ``(rows, K, D)``, into derivatives by the user's columns.

        A categorical column has no derivative: its entries are zero. So are those of missing values, and beyond
        ``FARTHEST`` spreads. Derivatives by times are per second.
        """
        slope = np.where(self.constant_, 0.0, 1 / self.scale_)
        numbers, _ = parts_of(X)
        scaled, end = self._scaled(numbers), encoded.shape[2]
        moves = np.isfinite(numbers) & (np.abs(scaled) < FARTHEST)
        if encoded.ndim > 3:
            return np.where(moves[:, None], encoded * slope, 0.0)
        by_scaled = encoded[:, :, : len(self.numeric_)].copy()
        for extra in reversed(self.extras_):
            steepness = extra.encoding.slope(scaled[:, extra.column]) / extra.scale
            begin = end - steepness.shape[1]
            by_scaled[:, :, extra.column] += np.einsum("rkd,rd->rk", encoded[:, :, begin:end], steepness)
            end = begin
        gradient = np.zeros((*encoded.shape[:2], n_inputs))
        gradient[:, :, self.numeric_] = np.where(moves[:, None], by_scaled * slope, 0.0)
        return gradient


def statistics(numbers: np.ndarray, weight: np.ndarray) -> tuple[Any, Any, Any]:
    """Return mean, spread and "is constant" of each column, of images as a whole; missing numbers do not count.

    Numbers may be huge, tiny or far from zero: they are divided by a power of two and moved near zero before anything
    is squared or added up.
    """
    axes = (0,) if numbers.ndim == 2 else None
    present = np.isfinite(numbers)
    weights = np.broadcast_to(weight.reshape(-1, *[1] * (numbers.ndim - 1)), numbers.shape) * present
    total = np.maximum(weights.sum(axis=axes), np.finfo(float).tiny)
    largest = np.abs(np.where(present, numbers, 0.0)).max(axis=axes)
    unit = np.exp2(np.ceil(np.log2(np.maximum(largest, np.finfo(float).tiny))) - 1)
    small = np.where(present, numbers, 0.0) / unit
    first = small[np.argmax(present, axis=0), np.arange(small.shape[1])] if numbers.ndim == 2 else small.flat[0]
    moved = np.where(present, small - first, 0.0)
    shift = (weights * moved).sum(axis=axes) / total
    centred = np.where(present, moved - shift, 0.0)
    farthest = np.maximum(np.abs(centred).max(axis=axes), np.finfo(float).tiny)
    spread = farthest * np.sqrt((weights * (centred / farthest) ** 2).sum(axis=axes) / total)
    # what remains after rounding of equal numbers, and what is too small to divide by
    constant = (spread <= 16 * np.finfo(float).eps * np.abs(first + shift)) | (spread * unit < np.finfo(float).tiny)
    return unit * (first + shift), np.where(constant, 1.0, spread * unit), constant


def extra_of(column: int, encoding: Any, values: np.ndarray, weights: np.ndarray) -> Extra:
    """Return an encoding of a column with the mean and spread of what it adds."""
    columns = encoding(values)
    mean = np.average(columns, axis=0, weights=weights)
    spread = np.sqrt(np.average((columns - mean) ** 2, axis=0, weights=weights))
    return Extra(column, encoding, mean, np.where(spread > 1e-9, spread, 1.0))


def spline_bins(n_columns: int) -> int:
    """Return the number of bins per column: 16, fewer when many columns would make too wide an input."""
    return int(np.clip(512 // max(n_columns, 1), 4, 16))


#: Targets of robust losses are cut off at so many spreads, those of the deciles if they are larger.
ROBUST_LIMIT = 1e4


class TargetScaler:
    """Scales targets to order one, and predictions back: shift and spread, or (for a log link) the mean alone."""

    limit_: Any = ROBUST_LIMIT  # a file does not say

    def __init__(self, kind: str):
        self.kind = kind

    def fit(self, target: np.ndarray, weight: np.ndarray, robust: bool = False) -> "TargetScaler":
        """Learn the scale from training targets and their weights.

        A ``robust`` scale is by quantiles: a few targets, however large, do not change it.
        """
        n_outputs = target.shape[1] if target.ndim == 2 else 1
        self.shift_, self.scale_ = np.zeros(n_outputs), np.ones(n_outputs)
        if self.kind == "none":
            return self
        if self.kind == "log":
            mean = statistics(target, weight)[0]
            self.scale_ = np.where(mean > 0, mean, 1.0)
            return self
        self.shift_, self.scale_, _ = statistics(target, weight)
        if robust:
            found = np.array([robust_statistics(column, weight) for column in target.T])
            self.shift_, self.scale_ = found[:, 0], np.where(found[:, 1] > 0, found[:, 1], self.scale_)
            self.limit_ = ROBUST_LIMIT * np.maximum(found[:, 2] / self.scale_, 1.0)
        return self

    def transform(self, target: np.ndarray, robust: bool = False) -> np.ndarray:
        """Return scaled targets, cut off where a wild one would drown the sums over all rows.

        That is at a million spreads, of a robust loss, to which it makes no difference, earlier.
        """
        if self.kind == "none":
            return target
        if self.kind == "log":
            return target / self.scale_
        scaled = standardise(target, self.shift_, self.scale_, False)
        return np.clip(scaled, -self.limit_, self.limit_) if robust else scaled

    def inverse(self, raw: np.ndarray) -> np.ndarray:
        """Return predictions in the user's units from raw ones."""
        return scaled_back(raw, self.kind, self.scale_, self.shift_)

    def slope(self, raw: np.ndarray) -> np.ndarray:
        """Return the derivative of :meth:`inverse`."""
        moves = np.where(np.abs(raw) < MOST_LOG, to_rates(raw), 0.0) if self.kind == "log" else np.ones_like(raw)
        return self.scale_ * moves


def robust_statistics(values: np.ndarray, weight: np.ndarray) -> tuple[float, float, float]:
    """Return the weighted median, the spread of a normal law with the same quartiles, and with the same deciles.

    Where most values are equal, or next to it, quantiles farther out take the place of the quartiles; the spread is
    zero if no such pair differs.
    """
    levels = [0.5, 0.25, 0.75, 0.1, 0.9, 0.02, 0.98]
    median, *ends = np.quantile(values, levels, weights=weight, method="inverted_cdf").tolist()
    widths = 1.349, 2.563, 4.107  # of a standard normal law
    spreads = [high / width - low / width for low, high, width in zip(ends[::2], ends[1::2], widths, strict=True)]
    least = max(16 * np.finfo(float).eps * abs(median), np.finfo(float).tiny, 1e-9 * spreads[1])
    return median, next((spread for spread in spreads if spread >= least), 0.0), spreads[1]


def n_rows(X: Any) -> int:
    """Return the number of rows of an array or table."""
    return X.shape[0]


def take(X: Any, rows: np.ndarray) -> Any:
    """Return some rows of an array or table."""
    if isinstance(X, Rows):
        return Rows(X.source, rows if X.index is None else X.index[rows], X.encode)
    return Rows(X, rows) if n_rows(X) > MANY_ROWS and not isinstance(X, Table) else X[rows]


def random_rows(n: int, about: int) -> np.ndarray:
    """Return the numbers of about so many rows out of ``n``, in order; always the same ones."""
    return np.unique(np.random.default_rng(0).integers(0, n, about))


def n_columns(X: Any) -> int:
    """Return the number of input columns."""
    return X.shape[1]


def parts_of(X: Any) -> tuple[np.ndarray, dict[int, np.ndarray]]:
    """Return the numbers of inputs as float64 (missing as NaN) and the names in categorical columns, by their place."""
    if isinstance(X, Table):
        return X.numbers, X.texts
    return np.asarray(X if isinstance(X, np.ndarray) else X[:], dtype=np.float64), {}


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
