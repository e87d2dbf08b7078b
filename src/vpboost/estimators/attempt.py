"""Boosting with one profile, and the race that chooses between profiles."""

import copy
import hashlib
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import FunctionType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..boosting import Boosted, Stage, boost
from ..callbacks import Checkpoint, Progress
from ..checkpoint import CheckpointError, digest, read_checkpoint, read_facts
from ..data import SAMPLE_ROWS, evenly_spaced
from ..frames import Table
from ..initial import example
from ..losses import CustomLoss, MulticlassCrossEntropy
from ..metrics import score_function
from ..preprocessing import InputEncoder, n_rows, take
from ..sources import MANY_ROWS, Rows, chunks
from .portfolio import PILOT_RATE, PILOT_STAGES, TIE, Profile

Part = tuple[Any, np.ndarray, np.ndarray]  #: inputs, targets and weights


#: Parameters that may differ when a fit goes on from a checkpoint (the profile and the seed are stored in it).
FREE_TO_CHANGE = (
    *("n_estimators", "callbacks", "verbose", "warm_start"),
    *("random_state", "encoding", "inherit", "max_features"),
)


class Attempt:
    """A profile at work: it encodes the data, boosts, and keeps the validation score of every stage."""

    def __init__(
        self, model: Any, profile: Profile, train: Part, held_out: Part | None, encoder: InputEncoder | None = None
    ):
        self.model, self.profile, self.held_out = model, profile, held_out
        self.encoder = encoder or InputEncoder(profile.encoding).fit(train[0], train[2])
        self.train = self._prepare(train)
        self.validation = None if held_out is None else self._prepare(held_out)
        self.scores: list[float] = []
        self.boosted: Boosted | None = None

    def with_profile(self, profile: Profile) -> "Attempt":
        """Return a fresh attempt on the same encoded data, with another profile of the same encoding."""
        other = copy.copy(self)
        other.profile, other.scores, other.boosted = profile, [], None
        return other

    def _prepare(self, part: Part) -> Part:
        loss = self.model.loss_
        target = self.model.target_scaler_.transform(loss.prepare_targets(part[1]), loss.robust)
        if n_rows(part[0]) > MANY_ROWS and not isinstance(part[0], Table):
            target = target if target.dtype.kind == "i" else target.astype(self.model.dtype)
            return Rows(part[0], encode=self.encoder.transform), target, part[2]
        return self.encoder.transform(part[0]), target, part[2]

    def run(
        self,
        n_learners: int,
        rate: float,
        seed: int,
        watch: Callable[[Progress], bool],
        resume: Boosted | None = None,
    ) -> Boosted:
        """Boost; ``watch`` sees every stage and may end it."""
        model, (x, y, weight) = self.model, self.train
        metric = score_function(model.eval_metric, model._is_classifier)
        saves = any(isinstance(callback, Checkpoint) for callback in model.callbacks or ())
        facts = self.facts(seed) if saves else {}
        began = time.monotonic()

        def after_stage(stage: Stage) -> bool:
            score = stage.record.validation_loss
            if self.held_out is not None and metric is not None:
                prediction = model._from_raw(stage.validation_prediction)
                score = metric(model._plain(self.held_out[1]), prediction, self.held_out[2])
            if np.isnan(score) and self.held_out is not None and not self.scores:
                raise ValueError(
                    f"eval_metric={model.eval_metric!r} is NaN on the validation data (a single class? a single row?); "
                    "give other validation data as X_val and y_val, or another eval_metric"
                )
            self.scores.append(score)
            seconds = time.monotonic() - began
            return watch(Progress(stage, n_learners, score, {**facts, "scores": self.scores}, seconds))

        self.boosted = boost(
            x,
            y,
            loss=model.loss_,
            featurizer=self.factory(),
            n_learners=n_learners,
            training=model._training(len(x), self.profile.inherit, 1 if y.ndim == 1 else y.shape[1]),
            trust_region=model._trust_region(rate),
            sample_weight=weight,
            validation=self.validation,
            seed=seed,
            dtype=model.dtype,
            engine=self.engine(),
            callback=after_stage,
            resume=resume,
        )
        return self.boosted

    def factory(self) -> Callable:
        """Return the factory of the profile's learners."""
        return self.model._learner_factory(len(self.train[0]), self.profile, self.encoder.sources_)

    def engine(self) -> str:
        """Return who carries out the programs."""
        loss = self.model.loss_
        dense = isinstance(loss, MulticlassCrossEntropy) or getattr(loss, "structure", None) == "dense"
        return self.model._engine(np.shape(self.train[0]), coupled=dense and loss.n_outputs(self.train[1]) > 1)

    def facts(self, seed: int) -> dict[str, Any]:
        """Return what must be the same for a checkpoint to be of use."""
        data = str(mark_of(self.train)) + (mark_of(self.validation) or "")
        settings = {
            name: describe_setting(value)
            for name, value in self.model.get_params(deep=False).items()
            if name not in FREE_TO_CHANGE
        }
        race = [[list(profile), score if np.isfinite(score) else None] for profile, score in self.model.race_.items()]
        return {"profile": list(self.profile), "race": race, "seed": seed, "data": data, "settings": settings}

    def restore(self, path: Any, seed: int) -> Boosted:
        """Return the state that a checkpoint of this very fit holds."""
        found, wanted = read_facts(path), self.facts(seed)
        names = sorted({*found.settings, *wanted["settings"]})
        changed = [name for name in names if found.settings.get(name) != wanted["settings"].get(name)]
        for name in ("seed", "settings", "data"):
            if getattr(found, name) != wanted[name]:
                which = f" ({', '.join(changed[:5])})" if name == "settings" else ""
                raise CheckpointError(
                    f"{path} was written by a fit with other {name}{which}; it cannot be resumed here"
                )
        if len(found.scores) > self.model.n_estimators:
            raise CheckpointError(
                f"{path} holds {len(found.scores)} stages, more than n_estimators={self.model.n_estimators}"
            )
        with jax.enable_x64(np.dtype(self.model.dtype) == np.float64):
            rows = jnp.asarray(evenly_spaced(self.train[0], SAMPLE_ROWS), self.model.dtype)
            n_outputs = self.model.loss_.n_outputs(self.train[1])
            boosted = read_checkpoint(path, example(self.factory(), True, rows), rows[0], n_outputs)
        self.scores = found.scores
        return boosted

    @property
    def best_score(self) -> float:
        """The best validation score; infinite before the first stage."""
        return float(np.nanmin([*self.scores, np.inf]))


def race(attempts: list[Attempt], rate: float, seed: int) -> tuple[Attempt, bool]:
    """Boost a few stages with each profile; return the one that validates best.

    The second value says whether Ctrl-C ended the race early.
    """
    stop = threading.Event()

    def pilot(attempt: Attempt) -> None:
        attempt.run(PILOT_STAGES, max(rate, PILOT_RATE), seed, lambda progress: stop.is_set())

    # many small calls of NumPy would only wait for each other: one after the other they are done sooner
    workers = 1 if attempts[0].engine() == "numpy" else min(len(attempts), os.cpu_count() or 1)
    with ThreadPoolExecutor(workers) as pool:
        running = [pool.submit(pilot, attempt) for attempt in attempts]
        try:
            for future in running:
                future.result()
        except BaseException as error:
            stop.set()
            for future in running:
                future.cancel()
            if not isinstance(error, KeyboardInterrupt):
                raise
    best = min(attempts, key=lambda attempt: attempt.best_score)
    gain = best.scores[0] - best.best_score if best.scores else 0.0
    margin = min(TIE[0] * gain, TIE[1] * abs(best.best_score))
    level = [attempt for attempt in attempts if attempt is best or attempt.best_score <= best.best_score + margin]
    return min(level, key=lambda attempt: (len(attempt.encoder.sources_), attempt.best_score)), stop.is_set()


def describe_setting(value: Any) -> str:
    """Return a setting as text that is the same in another process; functions by their names and what they do."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, CustomLoss):
        return f"CustomLoss({describe_setting(value.function)}, {value.structure}, {value.outputs})"
    if isinstance(value, partial):
        options = ", ".join(f"{name}={describe_setting(option)}" for name, option in sorted(value.keywords.items()))
        return f"partial({describe_setting(value.func)}, {', '.join(map(describe_setting, value.args))}, {options})"
    if isinstance(value, FunctionType):
        code = value.__code__
        held = [cell.cell_contents for cell in value.__closure__ or ()] + list(value.__defaults__ or ())
        held += [c for c in code.co_consts if isinstance(c, int | float | str)]
        plain = [v for v in held if isinstance(v, int | float | str | np.generic)]
        facts = code.co_code, code.co_names, plain
        return f"{value.__qualname__} {hashlib.sha256(repr(facts).encode()).hexdigest()[:12]}"
    text = repr(value)
    return f"{type(value).__name__} {getattr(value, '__qualname__', '')}".rstrip() if " at 0x" in text else text


def mark_of(part: Part | None) -> str | None:
    """Return a mark of validation data by which others can be told from them; None for none."""
    return None if part is None else digest(rows for array in part for rows in chunks(array))


def hold_out(
    target: np.ndarray, groups: np.ndarray, fraction: float, seed: int, keep_classes: bool
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the rows to train on and about this fraction set aside; with ``keep_classes`` the former have every class.

    Rows of equal inputs are one group and stay together: were they torn apart, training would see the same inputs with
    other targets. But a group of more than a twentieth of the rows is split, for without it a whole part of the inputs
    would be unknown. None if no row can be spared.
    """
    rng, n_rows = np.random.default_rng(seed), len(target)
    wanted = max(round(fraction * n_rows), 1)
    large = np.bincount(groups)[groups] > max(n_rows // 20, 2)
    if large.any():  # each row of them by itself
        groups = np.unique(np.where(large, n_rows + np.arange(n_rows), groups), return_inverse=True)[1]
    order, sizes = rng.permutation(int(groups.max()) + 1), np.bincount(groups)
    needed = np.unique(target, return_index=True)[1] if keep_classes else np.flatnonzero(groups == order[-1])[:1]
    whole = order[~np.isin(order, groups[needed])]
    ends = np.cumsum(sizes[whole])
    n_first = int(np.searchsorted(ends, wanted, side="right"))
    chosen, room = whole[:n_first].tolist(), wanted - (int(ends[n_first - 1]) if n_first else 0)
    for group in whole[n_first:] if room else ():
        if sizes[group] <= room:
            chosen.append(group)
            room -= int(sizes[group])
    aside = np.isin(groups, chosen)
    if room > wanted // 2:
        left = np.setdiff1d(np.flatnonzero(~aside), needed)
        aside[rng.permutation(left)[:room]] = True
    if not aside.any():
        return None
    return np.flatnonzero(~aside), np.flatnonzero(aside)


def sample_part(part: Part, most: int, seed: int) -> Part:
    """Return the part, or so many random rows of it."""
    if len(part[1]) <= most:
        return part
    return take_part(part, np.random.default_rng(seed).permutation(len(part[1]))[:most])


def take_part(part: Part, rows: np.ndarray) -> Part:
    """Return some rows of inputs, targets and weights."""
    return take(part[0], rows), part[1][rows], part[2][rows]
