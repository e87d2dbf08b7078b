"""The search for the cuts of a tree by C: see ``tree.c``."""

from typing import NamedTuple

import numpy as np

from .library import call, expect


class Questions(NamedTuple):
    """What a level of a tree is grown by: rows in bins of each column, in leaves, and the quadratic model at each."""

    bins: np.ndarray  #: (columns, rows), uint8
    leaf: np.ndarray  #: (rows,), uint8
    gradient: np.ndarray  #: (rows, outputs), float64
    curvature: np.ndarray  #: (rows,), float64
    seen: np.ndarray  #: (columns,), bool: which columns may be asked about
    common: np.ndarray  #: (columns,), int16: the bin that most rows are in, −1 if there is none


class Cut(NamedTuple):
    """Where to cut all leaves, and what is gained by it."""

    column: int  #: −1 if there is nothing to cut
    place: int  #: the bin after which
    gain: float


NOTHING = Cut(-1, -1, -1.0)


def best_cuts(asked: Questions, n_bins: int, n_leaves: int, depth: int, penalty: float) -> list[Cut]:
    """Return so many cuts, each the best for all leaves that those before have made; none follow one of nothing."""
    n_columns, n = asked.bins.shape
    n_outputs = asked.gradient.shape[-1]
    leaf = expect(asked.leaf, np.uint8, (n,)).copy()
    arrays = [
        expect(asked.bins, np.uint8, (n_columns, n)),
        leaf,
        expect(asked.gradient, np.float64, (n, n_outputs)),
        expect(asked.curvature, np.float64, (n,)),
        expect(asked.seen, np.bool_, (n_columns,)),
        expect(asked.common, np.int16, (n_columns,)),
    ]
    # C writes where these say
    most = max(asked.bins.max(initial=0), asked.common.max(initial=-1))
    if most >= n_bins or leaf.max(initial=0) >= n_leaves or not 0 < n_leaves << depth <= 256 or n_bins > 256:
        raise ValueError(f"rows must be in {n_bins} bins and {n_leaves} leaves, 256 in the end")
    found, gains = np.full((depth, 2), -1, np.int64), np.full(depth, -1.0)
    where = [array.ctypes.data for array in (*arrays, found, gains)]
    call("best_cuts", n, n_columns, n_bins, n_leaves, n_outputs, depth, penalty, *where)
    return [Cut(column, place, gain) for (column, place), gain in zip(found.tolist(), gains.tolist(), strict=True)]
