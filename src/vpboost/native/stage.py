"""What is done once a stage with a trained learner, by C: see ``stage.c``."""

import ctypes
from typing import Any, NamedTuple

import numpy as np

from .learner import n_theta
from .library import ACTIVATIONS, ROWS, call, counted, expect, places, threads_for


class Network(NamedTuple):
    """A network of dense layers, perhaps with a soft tree beside it, and a constant feature; of one precision.

    Arrays may have a leading axis of learners (for :func:`predictions`).
    """

    sizes: tuple[int, ...]  #: of the inputs, then of each layer
    activation: str
    theta: np.ndarray  #: weights and biases, layer by layer
    questions: np.ndarray  #: v of each level of a tree, (depth, inputs), and b of each; empty without a tree
    size: np.ndarray  #: of its leaves

    @property
    def depth(self) -> int:
        """Levels of the tree."""
        return self.questions.shape[-1] // (self.sizes[0] + 1)

    @property
    def n_features(self) -> int:
        """Features: those of the last layer, leaves, and the constant one."""
        return self.sizes[-1] + (1 << self.depth if self.depth else 0) + 1

    @property
    def work(self) -> int:
        """Multiplications for a row."""
        return n_theta(self.sizes) + self.depth * self.sizes[0] + (1 << self.depth)

    def arrays(self, *leading: int) -> dict[str, np.ndarray]:
        """Return parameters as C expects them, for so many learners."""
        dtype, n_asked = self.theta.dtype, self.depth * (self.sizes[0] + 1)
        return {
            "sizes": np.array(self.sizes, np.int64),
            "theta": expect(self.theta, dtype, (*leading, n_theta(self.sizes))),
            "questions": expect(self.questions, dtype, (*leading, n_asked)),
        }

    def numbers(self) -> tuple[int, int, int]:
        """Return what else C has to know of the shape."""
        return len(self.sizes) - 1, self.depth, ACTIVATIONS[self.activation]


def fields(*groups: tuple[Any, str]) -> list[tuple[str, Any]]:
    """Return the fields of a structure, in groups of one type each."""
    return [(name, kind) for kind, names in groups for name in names.split()]


class _Features(ctypes.Structure):
    """``Features`` of stage.c."""

    _fields_ = fields(
        (ctypes.c_int64, "n_layers depth activation"),
        (ctypes.c_void_p, "sizes"),
        (ctypes.c_int64, "n_blocks block_rows n_threads"),
        (ctypes.c_double, "size"),
        (ctypes.c_void_p, "x theta questions known features"),
    )


class _Ensemble(ctypes.Structure):
    """``Ensemble`` of stage.c."""

    _fields_ = fields(
        (ctypes.c_int64, "n_layers depth activation"),
        (ctypes.c_void_p, "sizes"),
        (ctypes.c_int64, "rows n_learners n_outputs n_threads"),
        (ctypes.c_void_p, "x theta questions leaf_size weights predictions"),
    )


class _Sums(ctypes.Structure):
    """``Sums`` of stage.c."""

    _fields_ = fields(
        (ctypes.c_int64, "rows n n_outputs n_threads"), (ctypes.c_void_p, "features gradient curvature parts sums")
    )


def features(
    network: Network,
    x: np.ndarray,
    known: np.ndarray | None = None,
    n_threads: int | None = None,
    vector_bytes: int | None = None,
) -> np.ndarray:
    """Return the features of inputs in blocks, ``(blocks, inputs, rows)``, as one: ``(features, blocks × rows)``.

    Those without the leaves of a tree may be known already, and only these be computed. The result does not depend on
    the number of threads, by default as many as there are cores for.
    """
    dtype, (n_blocks, _, block_rows) = network.theta.dtype, x.shape
    found = np.empty((network.n_features, n_blocks * block_rows), dtype)
    arrays = network.arrays() | {"x": expect(x, dtype, (n_blocks, network.sizes[0], block_rows)), "features": found}
    if known is not None:
        arrays["known"] = expect(known, dtype, (network.sizes[-1] + 1, n_blocks * block_rows))
    if block_rows % ROWS:
        raise ValueError(f"blocks must have a multiple of {ROWS} rows, got {block_rows}")
    with counted() as n_running:
        n_threads = n_threads or threads_for(n_running, n_blocks * block_rows * network.work)
        given = {"n_blocks": n_blocks, "block_rows": block_rows, "n_threads": n_threads}
        task = _Features(*network.numbers(), **given, size=float(network.size), **places(arrays))
        call(f"features_{dtype.name}", ctypes.byref(task), vector_bytes=vector_bytes)
    return found


def predictions(
    networks: Network,
    weights: np.ndarray,
    constant: np.ndarray,
    x: np.ndarray,
    n_threads: int | None = None,
    vector_bytes: int | None = None,
) -> np.ndarray:
    """Return c₀ + Σ W_mᵀ z_m(x), (rows, outputs), of several networks with weights, (learners, outputs, features).

    Learners are added up in double precision. A row's prediction depends neither on the number of threads nor on the
    other rows.
    """
    dtype, n_learners, n_outputs = networks.theta.dtype, len(networks.theta), len(constant)
    found = np.array(np.broadcast_to(np.asarray(constant, float), (len(x), n_outputs)), order="C")
    arrays = networks.arrays(n_learners) | {
        "x": expect(x, dtype, (len(x), networks.sizes[0])),
        "leaf_size": expect(networks.size, dtype, (n_learners,)),
        "weights": expect(weights, dtype, (n_learners, n_outputs, networks.n_features)),
        "predictions": found,
    }
    with counted() as n_running:
        given = {"rows": len(x), "n_learners": n_learners, "n_outputs": n_outputs}
        given["n_threads"] = n_threads or threads_for(n_running, len(x) * n_learners * networks.work)
        task = _Ensemble(*networks.numbers(), **given, **places(arrays))
        call(f"predictions_{dtype.name}", ctypes.byref(task), vector_bytes=vector_bytes)
    return found


def sums(
    features: np.ndarray,
    gradient: np.ndarray,
    curvature: np.ndarray,
    n_threads: int | None = None,
    vector_bytes: int | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return Σ ω s z zᵀ and Σ ω z gᵀ in double precision, of z (features × rows), ω g (outputs × rows) and ω s.

    The result does not depend on the number of threads, by default as many as there are cores for.
    """
    dtype, (n, rows), n_outputs = features.dtype, features.shape, len(gradient)
    found = np.empty(n * (n + n_outputs))
    arrays = {
        "features": expect(features, dtype, (n, rows)),
        "gradient": expect(gradient, dtype, (n_outputs, rows)),
        "curvature": expect(curvature, dtype, (rows,)),
        "sums": found,
    }
    if rows % ROWS:
        raise ValueError(f"there must be a multiple of {ROWS} rows, got {rows}")
    with counted() as n_running:
        n_threads = n_threads or threads_for(n_running, rows * n * n // 2)
        task = _Sums(rows, n, n_outputs, n_threads, **places(arrays))
        call(f"sums_{dtype.name}", ctypes.byref(task), vector_bytes=vector_bytes)
    return found[: n * n].reshape(n, n), found[n * n :].reshape(n, n_outputs)
