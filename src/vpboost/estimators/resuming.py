"""Fits that go on: from a checkpoint, or by ``warm_start``; how they know that nothing else has changed."""

import hashlib
from functools import partial
from types import CodeType, FunctionType, MethodType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..checks import plain_number
from ..core.data import SAMPLE_ROWS, evenly_spaced
from ..core.initial import example
from ..core.records import Boosted
from ..featurizers.trees import untrained_tree
from ..files.checkpoint import CheckpointError, Facts, digest, read_checkpoint
from ..losses import Loss
from ..numerics.rows import chunks
from .parts import Part
from .portfolio import Profile, profile_from
from .run import Run

#: Parameters that may differ when a fit goes on from a checkpoint (the profile and the seed are stored in it).
FREE_TO_CHANGE = (
    *("n_estimators", "callbacks", "verbose", "warm_start", "devices"),
    *("random_state", "encoding", "inherit", "max_features", "weight_scale", "relevance"),
    *("n_chains", "refit_full", "tree_depth"),
)


#: Objects given for these may change while they are used, as one that counts its calls does.
MAY_HAVE_STATE = ("eval_metric", "optimizer")


def facts_of(run: Run, parameters: dict[str, Any], race: dict[Profile, float], seed: int) -> dict[str, Any]:
    """Return what must be the same for a checkpoint to be of use."""
    data = run.mark or "".join(mark_of(part) or "" for part in (run.train, run.train.slopes, run.held_out))
    settings = {
        name: describe_setting(value, name not in MAY_HAVE_STATE)
        for name, value in parameters.items()
        if name not in FREE_TO_CHANGE
    }
    raced = [[list(profile), score if np.isfinite(score) else None] for profile, score in race.items()]
    weights = run.plan.encoder.weights_
    facts = {"profile": list(run.plan.profile), "race": raced, "seed": seed, "data": data, "settings": settings}
    return facts | {"weights": None if weights is None else weights.tolist()}


def profile_of(values: tuple, name: Any) -> Profile:
    """Return the profile of these values, found in a checkpoint."""
    try:
        return profile_from(values)
    except ValueError as error:
        raise CheckpointError(f"{name} has a profile that makes no sense: {error}; it cannot be resumed") from error


def restore(run: Run, path: Any, found: Facts, wanted: dict[str, Any], n_estimators: int) -> Boosted:
    """Return the state that a checkpoint of this very fit holds; ``wanted`` are the facts of the fit."""
    names = sorted({*found.settings, *wanted["settings"]})
    changed = [name for name in names if found.settings.get(name) != wanted["settings"].get(name)]
    for name in ("seed", "settings", "data"):
        if getattr(found, name) != wanted[name]:
            which = f" ({', '.join(changed[:5])})" if name == "settings" else ""
            raise CheckpointError(f"{path} was written by a fit with other {name}{which}; it cannot be resumed here")
    if len(found.scores) > n_estimators:
        raise CheckpointError(f"{path} holds {len(found.scores)} stages, more than n_estimators={n_estimators}")
    plan, (x, y, _) = run.plan, run.train.learnt
    with jax.enable_x64(np.dtype(plan.dtype) == np.float64):
        rows = jnp.asarray(evenly_spaced(x, SAMPLE_ROWS), plan.dtype)
        factory = plan.factory
        if plan.trees is not None:
            factory = partial(untrained_tree, factory=factory, depth=plan.trees.depth)
        boosted = read_checkpoint(path, example(factory, True, rows), rows[0], plan.loss.n_outputs(y))
    run.scores = found.scores
    return boosted


def describe_setting(value: Any, objects: bool = True, seen: tuple[int, ...] = ()) -> str:
    """Return a setting as text that is the same in another process; functions by their names and what they do.

    With ``objects``, so are the users' own objects: by all that they hold.
    """
    if id(value) in seen:  # a function that knows itself
        return "..."
    describe = partial(describe_setting, objects=objects, seen=(*seen, id(value)))
    value = plain_number(value)
    if isinstance(value, np.ndarray | jax.Array):
        return f"array {value.shape} {value.dtype} {digest([np.asarray(value)])[:12]}"
    if isinstance(value, list | tuple):
        return f"{type(value).__name__}({', '.join(map(describe, value))})"
    if isinstance(value, Loss):
        return f"{type(value).__name__}({', '.join(f'{k}={describe(v)}' for k, v in sorted(vars(value).items()))})"
    if isinstance(value, partial):
        options = ", ".join(f"{name}={describe(option)}" for name, option in sorted(value.keywords.items()))
        return f"partial({describe(value.func)}, {', '.join(map(describe, value.args))}, {options})"
    if isinstance(value, MethodType):
        return f"{describe(value.__func__)} of {describe(value.__self__)}"
    if isinstance(value, FunctionType):
        held = [cell.cell_contents for cell in value.__closure__ or ()] + list(value.__defaults__ or ())
        held += sorted((value.__kwdefaults__ or {}).items())
        facts = facts_of_code(value.__code__), [describe(one) for one in held]
        return f"{value.__qualname__} {hashlib.sha256(repr(facts).encode()).hexdigest()[:12]}"
    text = repr(value)
    if " at 0x" not in text:
        return text
    name = f"{type(value).__name__} {getattr(value, '__qualname__', '')}".rstrip()
    inside = sorted(vars(value).items()) if objects and hasattr(value, "__dict__") else ()
    return f"{name} {describe(list(inside))}" if inside else name


def facts_of_code(code: CodeType) -> tuple:
    """Return what a function does: its instructions, names and constants, and those of functions inside it."""
    held = [facts_of_code(c) if isinstance(c, CodeType) else c for c in code.co_consts]
    return code.co_code, code.co_names, [sorted(map(repr, c)) if isinstance(c, frozenset) else repr(c) for c in held]


def mark_of(part: Part | None) -> str | None:
    """Return a mark of validation data by which others can be told from them; None for none."""
    return None if part is None else digest(rows for array in part.learnt for rows in chunks(array))
