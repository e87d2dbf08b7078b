"""The state of a fit on disk, in the same kind of file as a model (see :mod:`vpboost.files.container`).

A checkpoint holds no code and no structure: to go on from it, the fit builds the same learners again from its settings
and fills in their numbers, after checking that data and settings are those the checkpoint was written with.
"""

import hashlib
from collections.abc import Iterable
from typing import Any

import jax.numpy as jnp
import numpy as np

from .boosting import Boosted, Record
from .ensemble import Ensemble
from .files.container import ModelFileError, pack, read_file, unpack, write_file
from .files.describe import fill, named_arrays
from .files.model import check_version, history_arrays, history_from
from .files.reader import Reader

FORMAT, VERSION = "vpboost checkpoint", 1


class CheckpointError(ModelFileError):
    """A checkpoint that cannot be read, or belongs to another fit."""


def write_checkpoint(path: Any, boosted: Boosted, facts: dict[str, Any]) -> None:
    """Write the state of a fit and facts about it (JSON values, and ``scores``, a list of numbers).

    An old file stays until the new one is complete.
    """
    ensemble, plain = boosted.ensemble, {name: value for name, value in facts.items() if name != "scores"}
    content = {"format": FORMAT, "version": VERSION, "status": boosted.status, "facts": plain}
    arrays = {
        **{"constant": ensemble.constant, "weights": ensemble.weights, "reg_lambda": np.array(boosted.reg_lambda)},
        **{f"theta.{name}": leaf for name, leaf in named_arrays(ensemble.featurizers).items()},
        **history_arrays(boosted.history),
        "scores": np.array(facts["scores"], float),
    }
    write_file(path, pack(content, {name: np.asarray(array) for name, array in arrays.items()}))


def read_facts(path: Any) -> dict[str, Any]:
    """Return what :func:`write_checkpoint` was told about the fit."""
    reader = _read(path)
    return {**reader.entry("facts", dict), "scores": reader.array("scores", (None,), finite=False).tolist()}


def read_checkpoint(path: Any, learner: Any) -> Boosted:
    """Return the state of a fit whose learners have the structure of ``learner``, a featurizer like theirs."""
    reader = _read(path)
    constant, weights = reader.array("constant", (None,)), reader.array("weights", (None, None, None))
    ensemble, theta = Ensemble.stack(jnp.asarray(constant), []), reader.prefixed("theta.")
    if len(weights):
        try:
            ensemble = Ensemble(jnp.asarray(constant), fill(learner, theta), jnp.asarray(weights))
        except ModelFileError as error:
            message = f"{path} holds learners of another shape; use the settings it was written with"
            raise CheckpointError(message) from error
    history = [Record(*entry) for entry in zip(*history_from(reader).values(), strict=True)]
    return Boosted(ensemble, history, reader.entry("status", str), float(reader.array("reg_lambda", ())))


def digest(arrays: Iterable[np.ndarray]) -> str:
    """Return a fingerprint of some arrays."""
    total = hashlib.sha256()
    for array in arrays:
        total.update(str((array.shape, array.dtype)).encode())
        total.update(np.ascontiguousarray(array).tobytes())
    return total.hexdigest()


def _read(path: Any) -> Reader:
    """Return a checkpoint's content, or raise :class:`CheckpointError`."""
    try:
        content, arrays = unpack(read_file(path), str(path))
        check_version(content, str(path), FORMAT, VERSION)
    except ModelFileError as error:
        raise CheckpointError(str(error)) from error
    return Reader(content, arrays, str(path))
