"""The state of a fit on disk: arrays as safetensors, the rest as JSON beside them in the same file. No pickle.

A checkpoint holds no code and no structure: to go on from it, the fit builds the same learners again from its settings
and fills in their numbers, after checking that data and settings are those the checkpoint was written with.
"""

import hashlib
import json
import os
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from .boosting import Boosted, Record
from .ensemble import Ensemble

FORMAT = "vpboost checkpoint 1"


class CheckpointError(ValueError):
    """A checkpoint that cannot be read, or belongs to another fit."""


def write_checkpoint(path: Any, boosted: Boosted, facts: dict[str, Any]) -> None:
    """Write the state of a fit and facts about it (JSON values); an old file stays until the new one is complete."""
    theta = jax.tree.leaves(eqx.filter(boosted.ensemble.featurizers, eqx.is_array))
    arrays = {"constant": boosted.ensemble.constant, "weights": boosted.ensemble.weights}
    arrays.update({f"theta.{i}": leaf for i, leaf in enumerate(theta)})
    state = {"history": boosted.history, "status": boosted.status, "reg_lambda": boosted.reg_lambda, "facts": facts}
    metadata = {"format": FORMAT, "state": json.dumps(state)}
    content = save({name: np.ascontiguousarray(array) for name, array in arrays.items()}, metadata)
    path = Path(path)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.part")
    with open(temporary, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def read_facts(path: Any) -> dict[str, Any]:
    """Return what :func:`write_checkpoint` was told about the fit."""
    return _read(path)[0]["facts"]


def read_checkpoint(path: Any, learner: Any) -> Boosted:
    """Return the state of a fit whose learners have the structure of ``learner``, a featurizer like theirs."""
    state, arrays = _read(path)
    leaves, structure = jax.tree.flatten(eqx.filter(learner, eqx.is_array))
    constant, weights = jnp.asarray(arrays.pop("constant")), jnp.asarray(arrays.pop("weights"))
    ensemble = Ensemble.stack(constant, [])
    if len(weights):
        expected = {f"theta.{i}": ((len(weights), *leaf.shape), leaf.dtype) for i, leaf in enumerate(leaves)}
        if {name: (array.shape, array.dtype) for name, array in arrays.items()} != expected:
            raise CheckpointError(f"{path} holds learners of another shape; use the settings it was written with")
        theta = jax.tree.unflatten(structure, [jnp.asarray(arrays[name]) for name in expected])
        ensemble = Ensemble(constant, eqx.combine(theta, eqx.filter(learner, eqx.is_array, inverse=True)), weights)
    history = [Record(*entry) for entry in state["history"]]
    return Boosted(ensemble, history, str(state["status"]), float(state["reg_lambda"]))


def digest(arrays: Iterable[np.ndarray]) -> str:
    """Return a fingerprint of some arrays."""
    total = hashlib.sha256()
    for array in arrays:
        total.update(str((array.shape, array.dtype)).encode())
        total.update(np.ascontiguousarray(array).tobytes())
    return total.hexdigest()


def _read(path: Any) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return a checkpoint's JSON part and its arrays, or raise :class:`CheckpointError`."""
    try:
        content = Path(path).read_bytes()
        (length,) = struct.unpack("<Q", content[:8])
        metadata = json.loads(content[8 : 8 + length])["__metadata__"]
        if metadata["format"] != FORMAT:
            raise CheckpointError(f"{path} is in format {metadata['format']!r}; this version reads {FORMAT!r}")
        state, arrays = json.loads(metadata["state"]), load(content)
        if not {"history", "status", "reg_lambda", "facts"} <= set(state) or not {"constant", "weights"} <= set(arrays):
            raise KeyError("state")
        if any(len(entry) != len(Record._fields) for entry in state["history"]):
            raise KeyError("history")
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error}") from error
    except (SafetensorError, KeyError, TypeError, struct.error, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise CheckpointError(f"{path} is not a whole vpboost checkpoint") from error
    return state, arrays
