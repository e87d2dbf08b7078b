"""The library of C functions, which hatch_build.py compiles, and how they are called."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from joblib import cpu_count

LIBRARY = Path(__file__).with_name("_learner.so")
#: Activations that the library knows, and their numbers there.
ACTIVATIONS = {"tanh": 0, "silu": 1, "relu": 2}
#: Blocks of rows are a multiple of this.
ROWS = 32
#: Functions that there are for each precision and size of vectors.
IN_VARIANTS = "train", "features", "predictions", "sums"


@cache
def functions(size: int | None = None) -> dict[str, Any] | None:
    """Return the functions of the library, by name and precision, for vectors of so many bytes or of this processor's.

    None if there is no library.
    """
    try:
        library = ctypes.CDLL(str(LIBRARY))
        library.vpboost_vector_bytes.restype = ctypes.c_int64
        size = size or library.vpboost_vector_bytes()
        names = {f"{name}_float{bits}": f"{name}_{bits}_{size}" for name in IN_VARIANTS for bits in (32, 64)}
        found = {name: getattr(library, f"vpboost_{variant}") for name, variant in names.items()}
        found["best_cuts"] = library.vpboost_best_cuts
    except (OSError, AttributeError):
        return None
    for name, function in found.items():
        of_cut = [*[ctypes.c_int64] * 6, ctypes.c_double, *[ctypes.c_void_p] * 8]
        function.restype = ctypes.c_int64
        function.argtypes = of_cut if name == "best_cuts" else [ctypes.c_void_p]
    return found


def vector_bytes() -> int:
    """Return the bytes of this processor's vectors that the library makes use of."""
    return int(ctypes.CDLL(str(LIBRARY)).vpboost_vector_bytes())


def is_available() -> bool:
    """Say whether the library is there."""
    return functions() is not None


def call(name: str, *args: Any, vector_bytes: int | None = None) -> None:
    """Call a function; raise ``MemoryError`` if it had no memory."""
    known = functions(vector_bytes)
    if known is None:
        raise RuntimeError("vpboost was installed without its C part; use engine='xla'")
    if known[name](*args):
        raise MemoryError(f"no memory for {name} of a learner")


@cache
def _flushing() -> tuple[Any, Any]:
    """Return the C functions that make this thread take tiny numbers for zero, and that undo it."""
    if not is_available():
        return int, lambda before: None
    library = ctypes.CDLL(str(LIBRARY))
    flush, restore = library.vpboost_flush_tiny, library.vpboost_restore_tiny
    flush.restype, restore.restype, restore.argtypes = ctypes.c_uint64, None, [ctypes.c_uint64]
    return flush, restore


def with_tiny_flushed(function: Any, *args: Any) -> Any:
    """Call a function, taking numbers too small for full precision for zero (see ``flush.h``) if C is there."""
    flush, restore = _flushing()
    before = flush()
    try:
        return function(*args)
    finally:
        restore(before)


@cache
def n_cores() -> int:
    """Return how many cores this process may use: fewer than the machine has in a container or a job of a cluster."""
    return cpu_count()


#: Multiplications that are worth a thread: between two meetings of threads, and where threads have to be started.
WORTH_MEETING, WORTH_STARTING = 500_000, 4_000_000


def threads_for(n_running: int, work: int, worth: int = WORTH_STARTING) -> int:
    """Return how many threads one of so many at work may have, for so many multiplications."""
    return max(min(n_cores() // n_running, work // worth), 1)


def places(arrays: dict[str, np.ndarray]) -> dict[str, int]:
    """Return where arrays begin."""
    return {name: array.ctypes.data for name, array in arrays.items()}


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
