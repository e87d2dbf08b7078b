"""Checks of the arguments of :func:`vpboost.boost`: errors name the argument, the value got and what is allowed."""

from typing import Any

import jax
import numpy as np

from .. import native
from ..checks import check_count, check_one_of, is_whole
from ..engine import ENGINES, at_hand
from ..losses import Loss


def check_seed(seed: Any) -> jax.Array:
    """Return the random key of a whole-number seed."""
    if not is_whole(seed):
        raise TypeError(f"seed must be a whole number, got {seed!r}")
    if not 0 <= seed < 1 << 32:
        raise ValueError(f"seed must be from 0 to 2**32 - 1, got {seed!r}")
    # what jax.random.key makes of it, without a compiled program
    return jax.random.wrap_key_data(jax.device_put(np.array([0, seed], np.uint32)), impl="threefry2x32")


def check_dtype(dtype: Any) -> np.dtype:
    """Return float32 or float64 as a NumPy dtype."""
    try:
        found = None if dtype is None else np.dtype(dtype)  # None would be float64
    except TypeError:
        found = None
    if found is None or found not in (np.dtype("float32"), np.dtype("float64")):
        raise ValueError(f"dtype must be 'float32' or 'float64', got {dtype!r}")
    return found


def check_loss(loss: Any) -> None:
    """Raise ``TypeError`` if this is no loss."""
    if not isinstance(loss, Loss):
        raise TypeError(f"loss must be a vpboost loss (wrap a function in CustomLoss), got {type(loss).__name__}")


def check_arguments(loss: Any, featurizer: Any, n_learners: Any, engine: Any, callback: Any, bias: Any) -> None:
    """Raise an error that names the argument if one of these cannot be used."""
    check_loss(loss)
    if not callable(featurizer):
        raise TypeError(f"featurizer must be callable as featurizer(key, rows), got {type(featurizer).__name__}")
    check_count("n_learners", n_learners, least=0)
    check_one_of("engine", engine, ENGINES)
    if callback is not None and not callable(callback):
        raise TypeError(f"callback must be callable, got {type(callback).__name__}")
    if not isinstance(bias, bool):
        raise TypeError(f"bias must be True or False, got {bias!r}")


def check_engine(engine: str, mesh: Any) -> None:
    """Raise ``ValueError`` if several devices are asked for where there is only one, or C where there is none."""
    if engine == "native" and not native.is_available():
        raise ValueError(
            "engine='native' needs vpboost's C part, which was not built here; use 'auto', 'xla' or 'numpy'"
        )
    if mesh is not None and engine != "xla":
        raise ValueError(f"devices go with engine='xla', got engine={engine!r}")


def check_kinds(given: dict[str, tuple[Any, type]]) -> None:
    """Raise ``TypeError`` naming the argument if a value is neither None nor of its class."""
    for name, (value, kind) in given.items():
        if value is not None and not isinstance(value, kind):
            raise TypeError(f"{name} must be a vpboost.{kind.__name__} or None, got {type(value).__name__}")


def check_resumed(constant: jax.Array, n_outputs: int, dtype: np.dtype) -> None:
    """Raise ``ValueError`` if an earlier result of this constant cannot be of data with these outputs and precision."""
    if len(constant) != n_outputs or constant.dtype != dtype:
        raise ValueError(
            f"resume must be a result on the same data and dtype: it has {len(constant)} outputs in {constant.dtype}, "
            f"the data {n_outputs} in {dtype}"
        )


def traced(settings: Any, dtype: np.dtype) -> Any:
    """Turn the numbers of a settings object into arrays, so that changing them does not recompile anything."""

    def as_array(leaf: Any) -> Any:
        return at_hand(np.asarray(leaf, dtype)) if isinstance(leaf, float | int) else leaf

    return jax.tree.map(as_array, settings)
