"""A fit by several processes, each with its own rows: what they tell each other, and the order in which things happen.

Encodings, the scale of the targets and the profile follow from a sample of the rows of all processes, which each of
them has; what must be exact (levels of categories, classes, which columns have missing values) is told by all. Boosting
then goes over all rows, where they are (see :mod:`vpboost.numerics.devices`).
"""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ..checks import plain_number
from ..core.records import Boosted
from ..estimators.base import BaseVPBoost
from ..estimators.parts import Part
from ..estimators.portfolio import LEAST_ROWS, MOST_ENCODED_ROWS, Profile, fix, is_auto, profile_from
from ..estimators.resuming import profile_of, restore
from ..files.checkpoint import CheckpointError, read_facts
from ..numerics.processes import (
    ProcessError,
    begin_work,
    by_first,
    exchange,
    exchange_facts,
    failing_together,
    is_loss,
    together,
)
from .agreeing import Given, agree
from .alike import check_settings_alike
from .running import SharedRun, boost, mark, plan_of
from .sampling import Held, in_shares, sample, set_aside, spare_one

#: Rows that all processes see, to train on and to validate with.
ROWS_SEEN, ROWS_JUDGED = 65_536, 20_000
#: Rows set aside for validation, at the most.
MOST_ASIDE = 200_000


def fit(
    estimator: Any,
    X: Any,
    y: Any,
    sample_weight: Any = None,
    *,
    X_val: Any = None,
    y_val: Any = None,
    sample_weight_val: Any = None,
    resume_from: Any = None,
) -> Any:
    """Fit an estimator to the rows of all processes; each calls this with its own, and gets the same model.

    Parameters
    ----------
    estimator : VPBoostRegressor or VPBoostClassifier
        The same in every process. Its callbacks are called in process 0.
    X, y, sample_weight
        The rows of this process, as for the estimator's ``fit``. Those of process 0 come first; see :func:`rows_of`.
    X_val, y_val, sample_weight_val
        Validation rows of this process. By default some of the rows of each are set aside.
    resume_from : str or Path, optional
        A checkpoint, which process 0 reads; the number of processes need not be the one that it was written with.

    Returns
    -------
    estimator
        Fitted, as by ``estimator.fit``. What it tells about its errors (``predict_interval``, ``return_std``) comes
        from a sample of the rows.

    Examples
    --------
    One process alone:

    >>> import numpy as np
    >>> from vpboost import VPBoostRegressor, distributed
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(200, 2))
    >>> settled = {"encoding": "plain", "inherit": 0.8, "max_features": 1.0}  # no race between settings
    >>> model = distributed.fit(VPBoostRegressor(n_estimators=5, **settled), X, X[:, 0] * X[:, 1])
    >>> model.n_iter_
    5
    """
    before = dict(getattr(estimator, "__dict__", {}))
    try:
        with errors_of_lost_processes():
            begin_work()
            with failing_together():
                check_supported(estimator)
                given, validating = Given(X, y, sample_weight), Given(X_val, y_val, sample_weight_val)
                run, seed, start = prepare(estimator, given, validating, resume_from)
            return boost(estimator, run, seed, start)
    except BaseException:
        if isinstance(estimator, BaseVPBoost):
            estimator.__dict__.clear()
            estimator.__dict__.update(before)
        raise


def check_supported(estimator: Any) -> None:
    """Raise ``ValueError`` if a setting cannot be had with several processes, and ``TypeError`` if there is none."""
    if not isinstance(estimator, BaseVPBoost):
        raise TypeError(f"estimator must be a VPBoostRegressor or VPBoostClassifier, got {type(estimator).__name__}")
    if estimator.warm_start:
        raise ValueError("warm_start=True is not for fits by several processes; use Checkpoint and resume_from")
    if estimator.engine in ("numpy", "native"):
        raise ValueError(f"engine={estimator.engine!r} is for one process; leave engine 'auto'")
    if estimator.tree_depth not in ("auto", 0):
        raise ValueError(f"tree_depth={estimator.tree_depth!r} is not for fits by several processes; leave it 'auto'")
    if estimator.refit_full is True:
        raise ValueError("refit_full=True is not for fits by several processes; leave it 'auto'")


def prepare(estimator: Any, given: Given, validating: Given, resume_from: Any) -> tuple[SharedRun, int, Boosted | None]:
    """Check, agree, split, sample and choose; return a run, its seed and where it begins."""
    loss = together(estimator._check_settings)
    check_settings_alike(estimator, resume_from is not None)
    data, aside, exact = agree(estimator, given, validating)
    checkpoint = None if resume_from is None else read_by_first(resume_from)
    facts = None if checkpoint is None else together(lambda: in_file(checkpoint, resume_from, read_facts))
    seed = by_first(lambda: estimator._seed(None if facts is None else facts.seed))
    train, held_out = split(estimator, data, aside, seed)
    seen, judges = sample(train, ROWS_SEEN, seed), None if held_out is None else sample(held_out, ROWS_JUDGED, seed)
    estimator._check_trimmed(seen.target)
    estimator._learn_targets(loss, seen)
    estimator.race_, estimator.seed_ = {}, seed
    if facts is None:
        profile, weights = choose(estimator, seen, judges, seed, data.n_rows)
    else:
        profile, weights = profile_of(facts.profile, resume_from), facts.weights
        estimator._check_profile(profile, f"resume_from={str(resume_from)!r}", CheckpointError)
        estimator.race_ = {profile_of(values, resume_from): score for values, score in facts.race.items()}
    run, start = plan_of(estimator, fix(profile, estimator), weights, (seen, judges), (train, held_out), exact), None
    mark(estimator, run, checkpoint is not None)
    if checkpoint is not None and facts is not None:
        wanted = estimator._facts(run, seed)
        found, most = facts, estimator._most_stages()
        start = together(lambda: in_file(checkpoint, resume_from, lambda path: restore(run, path, found, wanted, most)))
    return run, seed, start


def split(estimator: Any, data: Part, aside: Part | None, seed: int) -> tuple[Held, Held | None]:
    """Return the rows of this process to train on and those that validate, if any do."""
    held, rounds = in_shares(data), estimator.early_stopping_rounds
    sizes = exchange_facts([data.n_rows, len(held.ends), None if aside is None else aside.n_rows])
    for i, (n, least, validating) in enumerate(sizes):
        if n < least or validating == 0:
            what = f"{n} rows, {least} at least are needed" if n < least else "no validation rows"
            raise ValueError(f"process {i} has {what}; share rows out evenly (vpboost.distributed.rows_of)")
    if aside is not None:
        return held, in_shares(aside)
    total = sum(n for n, _, _ in sizes)
    if rounds is None or (rounds == "auto" and total < LEAST_ROWS[estimator._is_classifier]):
        return held, None
    fraction = min(estimator.validation_fraction, MOST_ASIDE / total)
    train, held_out = together(lambda: set_aside(held, fraction, seed, estimator._is_classifier))
    counts = exchange_facts([train.part.n_rows, held_out.part.n_rows])
    if any(aside for _, aside in counts) and held_out.part.n_rows == 0 and train.part.n_rows > 1:
        train, held_out = spare_one(held)  # few rows here, and many elsewhere: all must have some
    if all(aside or n > 1 for n, aside in counts) and any(aside for _, aside in counts):
        return train, held_out
    if rounds != "auto":
        i = next(i for i, (_, aside) in enumerate(counts) if not aside)
        raise ValueError(
            f"early_stopping_rounds={rounds} needs validation data, and process {i} can spare none of its "
            f"{counts[i][0]} rows; give X_val and y_val, or set early_stopping_rounds=None"
        )
    return held, None


def choose(
    estimator: Any, seen: Part, judges: Part | None, seed: int, n_here: int
) -> tuple[Profile, np.ndarray | None]:
    """Return the profile that validates best on a sample, and the weights of its columns; the first process decides."""
    wide = max(exchange_facts(n_here)) > MOST_ENCODED_ROWS and is_auto(estimator.encoding)

    def race() -> dict[str, Any]:
        train = estimator._scaled(seen)
        held_out = None if judges is None else estimator._scaled(judges)
        run, interrupted = estimator._choose_profile(train, np.arange(train.n_rows), held_out, seed, False)
        if interrupted:
            raise KeyboardInterrupt("while profiles were compared")
        weights = run.plan.encoder.weights_
        raced = [[list(p), score if np.isfinite(score) else None] for p, score in estimator.race_.items()]
        profile = [plain_number(value) for value in run.plan.profile]
        return {"profile": profile, "weights": None if weights is None else weights.tolist(), "race": raced}

    encoding = "plain" if wide else estimator.encoding  # others would take much memory
    with setting(estimator, "encoding", encoding), setting(estimator, "tree_depth", 0):
        found = by_first(race)
    estimator.race_ = {profile_from(tuple(p)): np.inf if s is None else s for p, s in found["race"]}
    weights = None if found["weights"] is None else np.array(found["weights"])
    return profile_from(tuple(found["profile"])), weights


@contextmanager
def setting(estimator: Any, name: str, value: Any) -> Iterator[None]:
    """Give a parameter another value for a while."""
    before = getattr(estimator, name)
    setattr(estimator, name, value)
    try:
        yield
    finally:
        setattr(estimator, name, before)


def read_by_first(path: Any) -> bytes:
    """Return the content of a file that the first process can read."""
    told: list[bytes] = []

    def read() -> None:
        told.append(Path(path).read_bytes())

    by_first(read)
    return exchange(told[0] if told else b"")[0]


def in_file(content: bytes, name: Any, read: Callable[[str], Any]) -> Any:
    """Return what ``read`` returns, given a file with this content; errors speak of the file of this name."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "checkpoint"
        path.write_bytes(content)
        try:
            return read(str(path))
        except CheckpointError as error:
            raise CheckpointError(str(error).replace(str(path), str(name))) from None


@contextmanager
def errors_of_lost_processes() -> Iterator[None]:
    """Say in plain words what it means when messages do not go through any more."""
    try:
        yield
    except (ValueError, RuntimeError) as error:
        if jax.process_count() > 1 and is_loss(error) and not isinstance(error, ProcessError):
            raise ProcessError(
                f"process {jax.process_index()} of {jax.process_count()} cannot reach another one, which has ended or "
                f"is cut off; begin again, from a checkpoint if there is one ({error})"
            ) from error
        raise
