"""The state of a fit on disk, in the same kind of file as a model (see :mod:`vpboost.files.container`).

A checkpoint holds no code and no structure: to go on from it, the fit builds the same learners again from its settings
and fills in their numbers, after checking that data and settings are those the checkpoint was written with.
"""

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..core.ensemble import Ensemble
from ..core.records import Boosted, Record
from ..core.trust_region import bounds
from .atomic import file_name, write_file
from .container import ModelFileError, check_version, pack, read_file, unpack
from .describe import fill_stacked, named_arrays
from .history import history_arrays, history_from, profile_values
from .reader import Reader

FORMAT, VERSION = "vpboost checkpoint", 1


class CheckpointError(ModelFileError):
    """A checkpoint that cannot be read, or belongs to another fit."""


class Facts(NamedTuple):
    """What a checkpoint knows about its fit."""

    profile: tuple  #: values of a :class:`vpboost.estimators.portfolio.Profile`
    race: dict[tuple, float]  #: validation scores of the profiles that raced
    seed: int
    data: str  #: fingerprint of the data
    settings: dict[str, str]
    scores: list[float]  #: validation scores of the stages
    weights: np.ndarray | None  #: of the columns


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
        facts = Reader(reader.entry("facts", dict), {}, reader.name)
        profile, race = profile_values(facts, facts.entry("profile", list)), {}
        for entry in facts.entry("race", list):
            sound = isinstance(entry, list) and len(entry) == 2
            sound = sound and (entry[1] is None or (type(entry[1]) in (int, float) and abs(entry[1]) < 1e308))
            facts.require(sound, "tells of a race that makes no sense")
            race[profile_values(facts, entry[0])] = float("inf") if entry[1] is None else float(entry[1])
        seed, data, settings = (
            facts.count("seed", (1 << 63) - 1),
            facts.entry("data", str),
            facts.entry("settings", dict),
        )
        facts.require(all(type(value) is str for value in settings.values()), "has settings that are no texts")
        weights = facts.entry("weights", list, None) if "weights" in facts.content else None
        sound = weights is None or all(type(weight) is float and 1e-6 < weight <= 1 for weight in weights)
        facts.require(sound, "has weights of columns that make no sense")
        facts.finish()
        scores = reader.array("scores", (None,), finite=False)
        facts.require(len(scores) == len(history_from(reader)["stage"]), "has scores for another number of stages")
        unknown = np.isnan(scores)  # all of them without validation data
        facts.require(bool(unknown.all() or not unknown[:1].any()), "has no score for its first stage")
        return Facts(
            profile, race, seed, data, settings, scores.tolist(), None if weights is None else np.array(weights)
        )


def read_checkpoint(path: Any, learner: Any, row: Any = None, n_outputs: int | None = None) -> Boosted:
    """Return the state of a fit whose learners have the structure of ``learner``, a featurizer like theirs.

    Its numbers must be of JAX's present precision. Where ``row``, an input of the learners, and the number of outputs
    are given, the shapes of the linear weights are checked, too.
    """
    with errors_of_checkpoints():
        reader = _read(path)
        reader.entry("facts", dict)
        constant = reader.array("constant", (n_outputs,))
        weights, theta = reader.array("weights", (None, None, len(constant))), reader.prefixed("theta.")
        dtype = np.dtype(jnp.result_type(float))
        reader.require({constant.dtype, weights.dtype} == {dtype} and len(constant) > 0, f"is not of a fit in {dtype}")
        history = [Record(*entry) for entry in zip(*history_from(reader).values(), strict=True)]
        reader.array("scores", (len(history),), finite=False)
        reg_lambda = float(reader.array("reg_lambda", ()))
        reader.require(0 <= reg_lambda <= bounds(dtype)[1], f"says λ_w = {reg_lambda}")
        largest = max(float(np.abs(array).max(initial=0)) for array in (constant, weights))
        reader.require(largest <= 1e30, "has weights that no fit finds")
        n_learners = sum(record.accepted for record in history)
        reader.require(len(weights) == n_learners, "does not hold the learners that it accepted")
        ensemble = Ensemble.stack(jnp.asarray(constant), [])
        if n_learners:
            featurizers = fill_stacked(reader, learner, theta, n_learners)
            ensemble = Ensemble(jnp.asarray(constant), featurizers, jnp.asarray(weights))
            n_features = weights.shape[1] if row is None else jax.eval_shape(learner, row).shape[0]
            reader.require(weights.shape[1] == n_features > 0, "has weights that do not fit its learners")
        reader.require(bool(n_learners) or not (theta or weights.shape[1]), "has arrays of learners but no learners")
        boosted = Boosted(ensemble, history, reader.entry("status", str), reg_lambda)
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
    data = read_file(path, "resume_from")
    name = file_name(path)
    content, arrays = unpack(data, name)
    check_version(content, name, FORMAT, VERSION)
    return Reader(content, arrays, name)
