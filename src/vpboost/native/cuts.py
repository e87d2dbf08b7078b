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


def best_cut(asked: Questions, n_bins: int, n_leaves: int, penalty: float) -> tuple[int, int, float]:
    """Return the column and the bin after which to cut all leaves, −1 if there is none, and what is gained by it."""
    n_columns, n = asked.bins.shape
    n_outputs = asked.gradient.shape[-1]
    arrays = [
        expect(asked.bins, np.uint8, (n_columns, n)),
        expect(asked.leaf, np.uint8, (n,)),
        expect(asked.gradient, np.float64, (n, n_outputs)),
        expect(asked.curvature, np.float64, (n,)),
        expect(asked.seen, np.bool_, (n_columns,)),
        expect(asked.common, np.int16, (n_columns,)),
    ]
    # C writes where these say
    most = max(asked.bins.max(initial=0), asked.common.max(initial=-1))
    if most >= n_bins or asked.leaf.max(initial=0) >= n_leaves:
        raise ValueError(f"rows must be in {n_bins} bins and {n_leaves} leaves")
    found, gain = np.zeros(2, np.int64), np.zeros(1)
    where = [array.ctypes.data for array in (*arrays, found, gain)]
    call("best_cut", n, n_columns, n_bins, n_leaves, n_outputs, penalty, *where)
    return int(found[0]), int(found[1]), float(gain[0])
