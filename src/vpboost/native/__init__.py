"""Learners trained by C: see ``learner.c``, which hatch_build.py compiles. Without it, other backends do the same."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import numpy as np

LIBRARY = Path(__file__).with_name("_learner.so")
#: Activations that the library knows, and their numbers there.
ACTIVATIONS = {"tanh": 0, "silu": 1, "relu": 2}
#: Blocks of rows are a multiple of this.
ROWS = 32


class Dense(NamedTuple):
    """A network of dense layers and what it is trained on; arrays of one precision, rows in blocks and last."""

    sizes: tuple[int, ...]  #: of the inputs, then of each layer
    activation: str
    theta: np.ndarray  #: weights and biases, layer by layer; changed in place
    x: np.ndarray  #: (blocks, inputs, rows)
    gradient: np.ndarray  #: (blocks, outputs, rows): ω g
    curvature: np.ndarray  #: (blocks, rows): ω s


class Descent(NamedTuple):
    """How it is trained."""

    step_sizes: np.ndarray  #: (steps,), with their sign
    factors: np.ndarray  #: (steps,): one over the weight of the rows of each step
    chosen: np.ndarray | None  #: (steps, blocks of a batch); None for all rows at every step
    reg: float
    reg_theta: float
    damping: float


class _Task(ctypes.Structure):
    """``Task`` of learner.c."""

    _fields_ = (
        [(name, ctypes.c_int64) for name in ("n_blocks", "block_rows", "n_layers", "n_outputs", "n_steps")]
        + [(name, ctypes.c_int64) for name in ("n_batch", "activation", "n_threads")]
        + [(name, ctypes.c_double) for name in ("reg", "reg_theta", "damping")]
        + [(name, ctypes.c_void_p) for name in ("sizes", "chosen", "factors", "step_sizes", "x")]
        + [(name, ctypes.c_void_p) for name in ("gradient", "curvature", "theta", "trace")]
    )


@cache
def functions(size: int | None = None) -> dict[str, Any] | None:
    """Return the functions of the library: by precision, for vectors of so many bytes or of this processor's, and cuts.

    None if there is no library.
    """
    try:
        library = ctypes.CDLL(str(LIBRARY))
        library.vpboost_vector_bytes.restype = ctypes.c_int64
        size = size or library.vpboost_vector_bytes()
        found = {f"float{bits}": getattr(library, f"vpboost_train_{bits}_{size}") for bits in (32, 64)}
        found["best_cut"] = library.vpboost_best_cut
    except (OSError, AttributeError):
        return None
    for name, function in found.items():
        of_cut = [*[ctypes.c_int64] * 5, ctypes.c_double, *[ctypes.c_void_p] * 7]
        function.restype = ctypes.c_int64
        function.argtypes = of_cut if name == "best_cut" else [ctypes.POINTER(_Task)]
    return found


def vector_bytes() -> int:
    """Return the bytes of this processor's vectors that the library makes use of."""
    return int(ctypes.CDLL(str(LIBRARY)).vpboost_vector_bytes())


def is_available() -> bool:
    """Say whether the library is there."""
    return functions() is not None


def train(dense: Dense, descent: Descent, n_threads: int | None = None, vector_bytes: int | None = None) -> np.ndarray:
    """Take the steps of a descent, which changes ``dense.theta``; return the objective at each.

    The result does not depend on the number of threads, by default as many as there are cores for.
    """
    dtype, n_steps = dense.theta.dtype, len(descent.step_sizes)
    n_blocks, n_outputs, block_rows = dense.gradient.shape
    n_theta = sum(m * (n + 1) for n, m in zip(dense.sizes[:-1], dense.sizes[1:], strict=True))
    arrays = {
        "sizes": expect(np.array(dense.sizes, np.int64), np.int64, (len(dense.sizes),)),
        "factors": expect(descent.factors, np.float64, (n_steps,)),
        "step_sizes": expect(descent.step_sizes, np.float64, (n_steps,)),
        "x": expect(dense.x, dtype, (n_blocks, dense.sizes[0], block_rows)),
        "gradient": expect(dense.gradient, dtype, (n_blocks, n_outputs, block_rows)),
        "curvature": expect(dense.curvature, dtype, (n_blocks, block_rows)),
        "theta": expect(dense.theta, dtype, (n_theta,)),
        "trace": np.zeros(n_steps, dtype),
    }
    n_batch = 0
    if descent.chosen is not None:
        n_batch = descent.chosen.shape[1]
        arrays["chosen"] = expect(descent.chosen, np.int64, (n_steps, n_batch))
        if arrays["chosen"].size and not 0 <= arrays["chosen"].min() <= arrays["chosen"].max() < n_blocks:
            raise ValueError(f"chosen must be numbers of {n_blocks} blocks")
    if block_rows % ROWS or not dense.theta.flags.writeable:
        raise ValueError(f"blocks must have a multiple of {ROWS} rows, got {block_rows}, and theta be writeable")
    known = functions(vector_bytes)
    if known is None:
        raise RuntimeError("vpboost was installed without its C part; use engine='xla'")
    with counted() as n_running:
        task = _Task(
            *(n_blocks, block_rows, len(dense.sizes) - 1, n_outputs, n_steps, n_batch),
            *(ACTIVATIONS[dense.activation], n_threads or max((os.cpu_count() or 1) // n_running, 1)),
            *(descent.reg, descent.reg_theta, descent.damping),
            **{name: array.ctypes.data for name, array in arrays.items()},
        )
        failed = known[dtype.name](ctypes.byref(task))
    if failed:
        raise MemoryError("no memory to train a learner")
    return arrays["trace"]


class Questions(NamedTuple):
    """What a level of a tree is grown by: rows in bins of each column, in leaves, and the quadratic model at each."""

    bins: np.ndarray  #: (columns, rows), uint8
    leaf: np.ndarray  #: (rows,), uint8
    gradient: np.ndarray  #: (rows, outputs), float64
    curvature: np.ndarray  #: (rows,), float64
    seen: np.ndarray  #: (columns,), bool: which columns may be asked about


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
    ]
    # C writes where these say
    if n and (asked.bins.max(initial=0) >= n_bins or asked.leaf.max(initial=0) >= n_leaves):
        raise ValueError(f"rows must be in {n_bins} bins and {n_leaves} leaves")
    known = functions()
    if known is None:
        raise RuntimeError("vpboost was installed without its C part")
    found, gain = np.zeros(2, np.int64), np.zeros(1)
    places = [array.ctypes.data for array in (*arrays, found, gain)]
    if known["best_cut"](n, n_columns, n_bins, n_leaves, n_outputs, penalty, *places):
        raise MemoryError("no memory to grow a tree")
    return int(found[0]), int(found[1]), float(gain[0])


def expect(array: np.ndarray, dtype: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Return an array that C can read; raise an error if it is not what is expected."""
    if array.dtype != dtype or array.shape != shape or not array.flags.c_contiguous:
        raise ValueError(f"expected a contiguous array {shape} of {np.dtype(dtype)}, got {array.shape}, {array.dtype}")
    return array


_lock = Lock()
_n_running = 0


@contextmanager
def counted() -> Iterator[int]:
    """Return how many are at work, this one included: they share the cores."""
    global _n_running
    with _lock:
        _n_running += 1
        n_running = _n_running
    try:
        yield n_running
    finally:
        with _lock:
            _n_running -= 1
