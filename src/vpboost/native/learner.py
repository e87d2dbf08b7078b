"""Training of a learner by C: see ``learner.c``."""

import ctypes
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from .library import ACTIVATIONS, ROWS, WORTH_MEETING, call, counted, expect, places, threads_for


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


def train(dense: Dense, descent: Descent, n_threads: int | None = None, vector_bytes: int | None = None) -> np.ndarray:
    """Take the steps of a descent, which changes ``dense.theta``; return the objective at each.

    The result does not depend on the number of threads, by default as many as there are cores for.
    """
    dtype, n_steps = dense.theta.dtype, len(descent.step_sizes)
    n_blocks, n_outputs, block_rows = dense.gradient.shape
    arrays = {
        "sizes": expect(np.array(dense.sizes, np.int64), np.int64, (len(dense.sizes),)),
        "factors": expect(descent.factors, np.float64, (n_steps,)),
        "step_sizes": expect(descent.step_sizes, np.float64, (n_steps,)),
        "x": expect(dense.x, dtype, (n_blocks, dense.sizes[0], block_rows)),
        "gradient": expect(dense.gradient, dtype, (n_blocks, n_outputs, block_rows)),
        "curvature": expect(dense.curvature, dtype, (n_blocks, block_rows)),
        "theta": expect(dense.theta, dtype, (n_theta(dense.sizes),)),
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
    work = (n_batch or n_blocks) * block_rows * len(dense.theta)
    with counted() as n_running:
        task = _Task(
            *(n_blocks, block_rows, len(dense.sizes) - 1, n_outputs, n_steps, n_batch),
            *(ACTIVATIONS[dense.activation], n_threads or threads_for(n_running, work, WORTH_MEETING)),
            *(descent.reg, descent.reg_theta, descent.damping),
            **places(arrays),
        )
        call(f"train_{dtype.name}", ctypes.byref(task), vector_bytes=vector_bytes)
    return arrays["trace"]


def n_theta(sizes: tuple[int, ...]) -> int:
    """Return how many weights and biases layers have."""
    return sum(m * (n + 1) for n, m in pairwise(sizes))
