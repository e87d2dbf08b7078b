"""Rows in an order of their own: equal tables give equal models, however their rows are arranged."""

from typing import Any

import numpy as np

from .encoder import InputEncoder
from .rows import take

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
