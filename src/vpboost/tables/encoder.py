"""From tables as people have them to arrays of order one."""

import copy
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from ..numerics.rows import MANY_ROWS
from ..predictor import FARTHEST, encoded, standardise
from .encodings import ENCODINGS, MOST_BINS, Cycles, bins_of
from .frames import Table
from .rows import parts_of, random_rows, take
from .scaling import statistics

#: Levels of less than this part of the rows are as if they had not been seen: they would cost a column each.
RARE = 1e-3
#: Rows that are looked at to count columns of more than two values.
LOOKED_AT = 2000


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
    ("quantile") or smooth steps between its quantiles ("spline", and "fine" with more of them); see
    :mod:`vpboost.tables.encodings`. Dates are numbers, and their place in the day, the week and the year is added in
    any case.

    Every encoded column belongs to one input column (``sources_``). A missing number becomes the column's mean (zero
    after scaling) and, when the training data has any in that column, one in an indicator column. A missing category is
    a level of its own; a level not seen in training, or hardly ever, is encoded as all zeros. Images (more than two
    axes) are standardised as a whole.
    """

    def __init__(self, encoding: str = "plain", rare: float = RARE):
        self.encoding, self.rare = encoding, rare
        self.weights_: np.ndarray | None = None  #: of the numeric columns, once :meth:`weighed`

    def fit(self, X: Any, weight: np.ndarray) -> "InputEncoder":
        """Learn scales, levels, indicators and encodings from training inputs and their weights.

        Of a very large array, a random sample of rows is enough; tables may have rare levels, and are read in full.
        """
        X, weight = enough_of(X, weight)
        numbers, texts = parts_of(X)
        self.shape_ = numbers.shape[1:]
        self.numeric_ = [j for j in range(X.shape[1]) if j not in texts]
        kinds = enumerate(X.kinds) if isinstance(X, Table) else ()
        self.times_ = {j: kind for j, kind in kinds if kind in ("datetime", "timedelta")}
        self.mean_, self.scale_, self.constant_ = statistics(numbers, weight)
        if numbers.ndim == 2:
            self._heed_the_many(numbers, weight)
        present = np.isfinite(numbers)
        self.missing_ = np.flatnonzero(~present.all(axis=0)) if numbers.ndim == 2 else np.zeros(0, dtype=int)
        self.categories_ = [Categories(j, levels_of(names, weight, self.rare)) for j, names in texts.items()]
        return self._with_extras(numbers, weight)

    def having(self, encoding: str, X: Any, weight: np.ndarray) -> "InputEncoder":
        """Return what another encoding would learn from the inputs that this one, not weighed yet, has learnt from."""
        X, weight = enough_of(X, weight)
        other = copy.copy(self)
        other.encoding = encoding
        return other._with_extras(parts_of(X)[0], weight)

    def weighed(self, weights: np.ndarray | None) -> "InputEncoder":
        """Let scaled columns count less by these factors, one for each numeric column; None changes nothing."""
        if weights is not None:
            self.weights_, self.scale_ = weights, self.scale_ / weights
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
        """Return the kind of each column of a data frame; see :mod:`vpboost.tables.frames`."""
        categorical, n_columns = {c.column for c in self.categories_}, len(self.numeric_) + len(self.categories_)
        return ["category" if j in categorical else self.times_.get(j, "number") for j in range(n_columns)]

    @property
    def n_plain(self) -> int:
        """The number of encoded columns of a table but for those that the encoding adds, which come last."""
        return len(self.sources_) - sum(len(extra.mean) for extra in self.extras_)

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

    def _with_extras(self, numbers: np.ndarray, weight: np.ndarray) -> "InputEncoder":
        """Learn what the encoding adds, once all else is known."""
        self.extras_ = self._fit_extras(numbers, weight)
        self.sources_ = self.find_sources()
        return self

    def _fit_extras(self, numbers: np.ndarray, weight: np.ndarray) -> list[Extra]:
        if numbers.ndim > 2:
            return []
        scaled, extras = self._scaled(numbers), []
        known = np.isfinite(numbers) & (weight > 0)[:, None]
        wanted = [j for j in range(numbers.shape[1]) if self.encoding != "plain" or self.numeric_[j] in self.times_]
        wanted = [j for j in wanted if has_many(scaled[known[:, j], j])]
        distinct = {j: len(np.unique(scaled[known[:, j], j])) for j in wanted}
        options = {"n_bins": bins_of(self.encoding, [*distinct.values()])} if self.encoding in MOST_BINS else {}
        for j in distinct:
            present = known[:, j]
            values, weights = scaled[present, j], weight[present]
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
        categories = [(texts[column], levels) for column, levels in self.categories_]
        return encoded(numbers, self._scaled(numbers), self.missing_, categories, self.extras_)

    def gradient(self, encoded: np.ndarray, X: Any, n_inputs: int) -> np.ndarray:
        """Turn derivatives by encoded columns at ``X``, ``(rows, K, D)``, into derivatives by the user's columns.

        A categorical column has no derivative: its entries are zero. So are those of missing values, and beyond
        ``FARTHEST`` spreads. Derivatives by times are per second.
        """
        slope = np.where(self.constant_, 0.0, 1 / self.scale_)
        numbers, _ = parts_of(X)
        scaled = self._scaled(numbers)
        moves = np.isfinite(numbers) & (np.abs(scaled) < FARTHEST)
        if encoded.ndim > 3:
            return np.where(moves[:, None], encoded * slope, 0.0)
        by_scaled = encoded[:, :, : len(self.numeric_)].copy()
        for column, places, steepness in self._steepness(scaled):
            by_scaled[:, :, column] += np.einsum("rkd,rd->rk", encoded[:, :, places], steepness)
        gradient = np.zeros((*encoded.shape[:2], n_inputs))
        gradient[:, :, self.numeric_] = np.where(moves[:, None], by_scaled * slope, 0.0)
        return gradient

    def _steepness(self, scaled: np.ndarray) -> Iterator[tuple[int, slice, np.ndarray]]:
        """Yield, for what encodings add: the numeric column, the places of what is added, its slopes by that column."""
        end = len(self.sources_)
        for extra in reversed(self.extras_):
            steepness = extra.encoding.slope(scaled[:, extra.column]) / extra.scale
            yield extra.column, slice(end - steepness.shape[1], end), steepness
            end -= steepness.shape[1]

    @property
    def spreads(self) -> np.ndarray:
        """The spread of each numeric column, in the user's units."""
        return self.scale_ if self.weights_ is None else self.scale_ * self.weights_

    def directions(self, X: Any) -> np.ndarray:
        """Return where encoded rows go as each numeric column moves by its spread: (rows, numeric columns, D).

        Zero where they stay: at missing values, in constant columns, and beyond ``FARTHEST`` spreads.
        """
        numbers, _ = parts_of(X)
        scaled = self._scaled(numbers)
        pace = np.where(np.isfinite(numbers) & (np.abs(scaled) < FARTHEST) & ~self.constant_, 1.0, 0.0)
        if self.weights_ is not None:
            pace = pace * self.weights_
        along = np.zeros((*scaled.shape, len(self.sources_)))
        along[:, np.arange(scaled.shape[1]), np.arange(scaled.shape[1])] = pace
        for column, places, steepness in self._steepness(scaled):
            along[:, column, places] = steepness * pace[:, [column]]
        return along


def levels_of(names: np.ndarray, weight: np.ndarray, rare: float = RARE) -> tuple[str, ...]:
    """Return the levels that get a column of their own, in sorted order: all but those that are rare by weight.

    If all are, they are what there is to learn from.

    >>> names = np.array([*["often"] * 3999, "once"])
    >>> levels_of(names, np.ones(4000)), levels_of(names, np.append(np.ones(3999), 100.0))
    (('often',), ('often', 'once'))
    """
    levels, place = np.unique(names.astype(object), return_inverse=True)
    share = np.bincount(place, weights=weight, minlength=len(levels))
    kept = levels[share >= rare * share.sum()]
    return tuple(map(str, kept if len(kept) else levels))


def enough_of(X: Any, weight: np.ndarray) -> tuple[Any, np.ndarray]:
    """Return inputs and weights to learn from: of a very large array a random sample, else all."""
    if X.shape[0] <= MANY_ROWS or isinstance(X, Table):
        return X, weight
    chosen = random_rows(X.shape[0], MANY_ROWS)
    return X[chosen], weight[chosen]


def has_many(values: np.ndarray) -> bool:
    """Say whether there are more than two different values.

    >>> has_many(np.array([1.0, 0.0, 1.0])), has_many(np.array([1.0, 0.0, 0.5])), has_many(np.array([]))
    (False, True, False)
    """
    return bool(len(values)) and bool(((values != values.min()) & (values != values.max())).any())


def count_encodable(X: Any) -> int:
    """Return how many columns encodings add to: those of numbers with more than two values, by some of the rows."""
    rows = np.unique(np.linspace(0, X.shape[0] - 1, min(X.shape[0], LOOKED_AT)).astype(int))
    numbers, _ = parts_of(take(X, rows))
    return sum(has_many(column[np.isfinite(column)]) for column in numbers.T)


def extra_of(column: int, encoding: Any, values: np.ndarray, weights: np.ndarray) -> Extra:
    """Return an encoding of a column with the mean and spread of what it adds."""
    columns = encoding(values)
    mean = np.average(columns, axis=0, weights=weights)
    spread = np.sqrt(np.average((columns - mean) ** 2, axis=0, weights=weights))
    return Extra(column, encoding, mean, np.where(spread > 1e-9, spread, 1.0))
