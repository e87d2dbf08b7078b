"""The state of a fit on disk, in the same kind of file as a model (see :mod:`vpboost.files.container`).

A checkpoint holds no code and no structure: to go on from it, the fit builds the same learners again from its settings
and fills in their numbers, after checking that data and settings are those the checkpoint was written with.
"""

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from .boosting import Boosted, Record
from .ensemble import Ensemble
from .files.atomic import write_file
from .files.container import ModelFileError, check_version, pack, read_file, unpack
from .files.describe import fill, named_arrays
from .files.model import history_arrays, history_from, profile_from
from .files.reader import Reader

FORMAT, VERSION = "vpboost checkpoint", 1


class CheckpointError(ModelFileError):
    """A checkpoint that cannot be read, or belongs to another fit."""


class Facts(NamedTuple):
    """What a checkpoint knows about its fit."""

    profile: Any  #: see :class:`vpboost.estimators.portfolio.Profile`
    race: dict[Any, float]  #: validation scores of the profiles that raced
    seed: int
    data: str  #: fingerprint of the data
    settings: dict[str, str]
    scores: list[float]  #: validation scores of the stages


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


def read_facts(path: Any) -> Facts:
    """Return what :func:`write_checkpoint` was told about the fit."""
    with errors_of_checkpoints():
        reader = _read(path)
        facts = Reader(reader.entry("facts", dict), {}, str(path))
        profile, race = profile_from(facts, facts.entry("profile", list)), {}
        for entry in facts.entry("race", list):
            sound = isinstance(entry, list) and len(entry) == 2 and (entry[1] is None or type(entry[1]) in (int, float))
            facts.require(sound, "tells of a race that makes no sense")
            race[profile_from(facts, entry[0])] = float("inf") if entry[1] is None else float(entry[1])
        seed, data, settings = (
            facts.count("seed", (1 << 63) - 1),
            facts.entry("data", str),
            facts.entry("settings", dict),
        )
        facts.finish()
        return Facts(profile, race, seed, data, settings, reader.array("scores", (None,), finite=False).tolist())


def read_checkpoint(path: Any, learner: Any) -> Boosted:
    """Return the state of a fit whose learners have the structure of ``learner``, a featurizer like theirs."""
    with errors_of_checkpoints():
        reader = _read(path)
        reader.entry("facts", dict)
        constant = reader.array("constant", (None,))
        weights, theta = reader.array("weights", (None, None, len(constant))), reader.prefixed("theta.")
        history = [Record(*entry) for entry in zip(*history_from(reader).values(), strict=True)]
        reader.array("scores", (len(history),), finite=False)
        n_learners = sum(record.accepted for record in history)
        reader.require(len(weights) == n_learners, "does not hold the learners that it accepted")
        ensemble = Ensemble.stack(jnp.asarray(constant), [])
        if n_learners:
            for name, array in theta.items():
                reader.require(array.shape[:1] == (n_learners,), f"has array {name!r} for other learners")
                reader.require(bool(np.isfinite(array).all()), f"has NaN or infinite numbers in array {name!r}")
            ensemble = Ensemble(jnp.asarray(constant), fill(learner, theta), jnp.asarray(weights))
        boosted = Boosted(ensemble, history, reader.entry("status", str), float(reader.array("reg_lambda", ())))
        reader.finish()
        return boosted


@contextmanager
def errors_of_checkpoints() -> Iterator[None]:
    """Turn errors about files into errors about checkpoints."""
    try:
        yield
    except ModelFileError as error:
        raise CheckpointError(f"{error}; it cannot be resumed") from error


def digest(arrays: Iterable[np.ndarray]) -> str:
    """Return a fingerprint of some arrays."""
    total = hashlib.sha256()
    for array in arrays:
        total.update(str((array.shape, array.dtype)).encode())
        total.update(np.ascontiguousarray(array).tobytes())
    return total.hexdigest()


def _read(path: Any) -> Reader:
    """Return a checkpoint's content."""
    content, arrays = unpack(read_file(path), str(path))
    check_version(content, str(path), FORMAT, VERSION)
    return Reader(content, arrays, str(path))
