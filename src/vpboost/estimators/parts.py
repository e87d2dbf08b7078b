"""The rows of a fit: named parts, and how some of them are set aside."""

from typing import Any, NamedTuple

import numpy as np

from ..numerics.rows import MANY_ROWS, Rows
from ..tables.encoder import InputEncoder
from ..tables.frames import Table
from ..tables.rows import take

#: Larger tables are not sorted, which would cost more than it is worth.
MOST_SORTED = 20_000
#: Encoded inputs and targets are rounded to multiples of one part in so many.
PRECISION = 2.0**34


class Slopes(NamedTuple):
    """Observed slopes of encoded rows (see :func:`slope_rows`)."""

    inputs: np.ndarray  #: rows [x, v]
    scaled: np.ndarray  #: (slopes, outputs), of scaled targets
    weight: np.ndarray
    row: np.ndarray  #: of the part, that each is of

    @property
    def learnt(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Inputs, targets and weights as the learners see them."""
        return self.inputs, self.scaled, self.weight

    def take(self, rows: np.ndarray) -> "Slopes":
        """Return the slopes of some of the rows."""
        place = np.full(max(self.row.max(initial=-1), rows.max(initial=-1)) + 1, -1)
        place[rows] = np.arange(len(rows))
        kept = np.flatnonzero(place[self.row] >= 0)
        return Slopes(self.inputs[kept], self.scaled[kept], self.weight[kept], place[self.row[kept]])


class Part(NamedTuple):
    """Some rows of the data."""

    inputs: Any  #: a table, an array or a source of rows; encoded or not
    target: np.ndarray  #: in the user's units, or numbers of classes
    weight: np.ndarray
    scaled: Any = None  #: targets as the loss sees them
    slopes: Any = None  #: observed ∂y/∂x, (rows, outputs, columns), or None; of encoded parts :class:`Slopes`

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return len(self.target)

    @property
    def n_learnt(self) -> int:
        """The number of rows, and of slopes beside them once they are encoded."""
        return self.n_rows + (0 if self.slopes is None else len(self.slopes.row))

    @property
    def values(self) -> "Part":
        """The part without slopes."""
        return self._replace(slopes=None)

    def take(self, rows: np.ndarray) -> "Part":
        """Return some of the rows."""
        scaled, slopes = None if self.scaled is None else self.scaled[rows], self.slopes
        if slopes is not None:
            slopes = slopes.take(rows) if isinstance(slopes, Slopes) else slopes[rows]
        return Part(take(self.inputs, rows), self.target[rows], self.weight[rows], scaled, slopes)

    def sample(self, most: int, seed: int) -> "Part":
        """Return the part, or so many random rows of it."""
        if self.n_rows <= most:
            return self
        return self.take(np.random.default_rng(seed).permutation(self.n_rows)[:most])

    def encoded(self, encoder: InputEncoder, dtype: Any) -> "Part":
        """Return the part with inputs as the learners see them; very large ones are encoded when asked for."""
        if self.inputs.shape[0] > MANY_ROWS and not isinstance(self.inputs, Table):
            scaled = self.scaled if self.scaled.dtype.kind == "i" else self.scaled.astype(dtype)
            return self._replace(inputs=Rows(self.inputs, encode=encoder.transform), scaled=scaled)
        part = self._replace(inputs=encoder.transform(self.inputs))
        if np.dtype(dtype) != np.float32:
            part = part._replace(inputs=rounded(part.inputs), scaled=rounded(self.scaled))
        return part if self.slopes is None else part._replace(slopes=slope_rows(self, encoder, part.inputs))

    @property
    def learnt(self) -> tuple[Any, Any, np.ndarray]:
        """Inputs, targets and weights as the learners see them."""
        return self.inputs, self.scaled, self.weight


def slope_rows(part: Part, encoder: InputEncoder, encoded: np.ndarray) -> Slopes:
    """Return observed slopes of scaled targets as rows [x, v]: of encoded inputs x, along v as one column moves.

    It moves by its spread, so that slopes are of order one. Those not observed are left out, and those by a column that
    cannot move: constant, or missing in that row.
    """
    along = encoder.directions(part.inputs)
    with np.errstate(over="ignore"):
        slopes = rounded(part.slopes[:, :, encoder.numeric_] * encoder.spreads)
    row, column = np.nonzero(~np.isnan(slopes).all(axis=1) & along.any(axis=2))
    observed = slopes[row, :, column]
    if np.isinf(observed).any():
        raise ValueError("dy has values too large beside the spreads of X and y; rescale them")
    return Slopes(np.concatenate([encoded[row], along[row, column]], axis=1), observed, part.weight[row], row)


def rounded(values: Any) -> Any:
    """Return numbers of order one without their last digits, which depend on the units that they had.

    Long training in double precision would make differences that can be seen of those.
    """
    return values if values.dtype.kind == "i" else np.round(values * PRECISION) / PRECISION


def merged(part: Part) -> tuple[Part, np.ndarray]:
    """Return the rows in an order of their own, equal ones merged, and groups of equal inputs."""
    told = part.target
    if part.slopes is not None:  # rows that differ in these alone are not equal
        slopes = part.slopes.reshape(part.n_rows, -1)
        told = np.concatenate([told, np.isnan(slopes), np.nan_to_num(slopes)], axis=1)
    rows, weight, groups = canonical_rows(part.inputs, told, part.weight)
    if len(rows) == part.inputs.shape[0] > MOST_SORTED:
        return part._replace(weight=weight), groups  # as it is: a copy would take memory
    return part.take(rows)._replace(weight=weight), groups


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
    encoded = InputEncoder(rare=0.0).fit(part, weight[kept]).transform(part)  # all levels are told apart
    inputs, outputs = encoded.reshape(len(kept), -1), target[kept].reshape(len(kept), -1)
    missing = np.isnan(outputs)
    if missing.any():  # NaN does not equal itself
        outputs = np.concatenate([np.where(missing, 0.0, outputs), missing], axis=1)
    table = np.concatenate([inputs, outputs], axis=1)
    _, first, inverse = np.unique(table, axis=0, return_index=True, return_inverse=True)
    _, group = np.unique(inputs[first], axis=0, return_inverse=True)
    return kept[first], np.bincount(inverse.reshape(-1), weights=weight[kept]), group.reshape(-1)


def hold_out(
    target: np.ndarray, groups: np.ndarray, fraction: float, seed: int, keep_classes: bool
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the rows to train on and about this fraction set aside; with ``keep_classes`` the former have every class.

    They have a target of every output, too. Rows of equal inputs are one group and stay together: were they torn
    apart, training would see the same inputs with other targets. But a group of more than a twentieth of the rows
    is split, for without it a whole part of the inputs would be unknown. None if no row can be spared.
    """
    rng, n_rows = np.random.default_rng(seed), len(target)
    wanted = max(round(fraction * n_rows), 1)
    large = np.bincount(groups)[groups] > max(n_rows // 20, 2)
    if large.any():  # each row of them by itself
        groups = np.unique(np.where(large, n_rows + np.arange(n_rows), groups), return_inverse=True)[1]
    order, sizes = rng.permutation(int(groups.max()) + 1), np.bincount(groups)
    needed = np.unique(target, return_index=True)[1] if keep_classes else one_of_each(target, np.argsort(order)[groups])
    whole = order[~np.isin(order, groups[needed])]
    ends = np.cumsum(sizes[whole])
    n_first = int(np.searchsorted(ends, wanted, side="right"))
    chosen, room = whole[:n_first].tolist(), wanted - (int(ends[n_first - 1]) if n_first else 0)
    for group in whole[n_first:] if room else ():
        if sizes[group] <= room:
            chosen.append(group)
            room -= int(sizes[group])
    aside = np.isin(groups, chosen)
    if room > wanted // 2:
        left = np.setdiff1d(np.flatnonzero(~aside), needed)
        aside[rng.permutation(left)[:room]] = True
    if not aside.any():
        return None
    return np.flatnonzero(~aside), np.flatnonzero(aside)


def one_of_each(target: np.ndarray, place: np.ndarray) -> np.ndarray:
    """Return rows that together have a target of every output: of each, the one that comes last.

    >>> one_of_each(np.array([[1.0, np.nan], [2.0, 3.0], [4.0, np.nan]]), np.array([0, 1, 2])).tolist()
    [1, 2]
    """
    holes = np.isnan(target.reshape(len(target), -1)) if target.dtype.kind == "f" else np.zeros((1, 1), bool)
    last = [np.where(column, -1, place).argmax() for column in holes.T if column.any()]
    return np.unique([place.argmax(), *last])
