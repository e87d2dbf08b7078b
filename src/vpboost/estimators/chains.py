"""Several chains: fits by one plan that differ in their seed and in the rows that validate; the model is their mean.

The first chain is what a fit shows: its history, scores, callbacks, checkpoints and warm starts. The others follow from
the same data, plan and seed alone, so that a fit that goes on makes them anew.
"""

import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..callbacks import EarlyStopping, Progress, TimeBudget, ends_fit
from ..core.ensemble import Ensemble
from ..core.records import Boosted, Record
from ..engine import program, using
from ..losses import Loss
from .choosing import Choosing
from .parts import Part, hold_out
from .plan import FitPlan
from .portfolio import is_auto
from .race import side_by_side
from .run import NoScoreError, Run

#: Seconds after which a chain that waits for the first one looks where that is.
A_MOMENT = 0.002


class Chain(NamedTuple):
    """One of the chains beside the first, cut at its best."""

    ensemble: Ensemble
    score: float
    full: bool  #: whether it has learnt from all rows, so that none was left to score by
    held_out: Part | None = None  #: the rows that it has not learnt from, encoded


def seed_of(seed: int, chain: int) -> int:
    """Return the seed of a chain; that of no other fit, but by chance."""
    return seed if chain == 0 else int(np.random.default_rng([seed, chain]).integers(1 << 31))


def best_of(history: Sequence[Record], scores: Sequence[float], cut_at_best: bool) -> tuple[int, float]:
    """Return how many learners of a chain are kept, and its score."""
    accepted = [record.accepted for record in history]
    if not scores:
        return sum(accepted), history[-1].loss if history else float("nan")
    best = int(np.nanargmin(scores)) if cut_at_best else len(scores) - 1
    return sum(accepted[: best + 1]), scores[best]


def score_of(plan: FitPlan, part: Part, raw: np.ndarray) -> float:
    """Return the score of raw predictions for a part, as that of a stage."""
    if plan.metric is not None:
        return plan.metric(part, raw)
    with jax.enable_x64(True), using("numpy"):  # once only: compilation would take longer
        values = values_of(plan.loss, raw, plan.loss.prepare_targets(part.scaled))
    return float(np.average(np.asarray(values), weights=part.weight))


@program
def values_of(loss: Loss, raw: np.ndarray, target: np.ndarray) -> jax.Array:
    """Return the loss of each row."""
    return loss.value(jnp.asarray(raw), jnp.asarray(target))


class Chains(Choosing):
    """How an estimator boosts chains beside the first."""

    def _boost_chains(
        self,
        first: Run,
        whole: Part | None,
        groups: np.ndarray,
        seed: int,
        stopping: EarlyStopping | None,
        boost_first: Callable[[], tuple[Boosted, bool]],
    ) -> tuple[Boosted, list[Chain]]:
        """Boost the first chain and those beside it; return it, and those that came to their end in time.

        ``boost_first`` also says whether it was cut short; the others then count for nothing. Unless validation data
        are given, ``whole`` is what each learns from, or sets other rows aside of.
        """
        n_chains, full = self._count_chains(first, whole)
        mine, found = [stopping, *(self.callbacks or [])], {}
        seconds = min((one.seconds for one in mine if isinstance(one, TimeBudget)), default=np.inf)
        deadline, ended, leader = time.monotonic() + seconds, threading.Event(), []

        def lead() -> bool:
            try:
                leader.append(boost_first())
            finally:
                ended.set()  # or those that wait for it would wait for ever
            return is_whole(*leader[0])

        def boost(chain: int, stopped: Callable[[], bool]) -> None:
            known = [] if full else [one for one in mine if isinstance(one, EarlyStopping)]
            callbacks = [EarlyStopping(one.rounds, one.min_delta, one.min_gain) for one in known]

            def late() -> bool:
                return stopped() or time.monotonic() >= deadline

            def watch(progress: Progress) -> bool:
                # without rows to score by, it has as many stages as the first one keeps, and does not run ahead of it
                while full and len(run.scores) >= len(first.scores) and not late() and not ended.wait(A_MOMENT):
                    pass
                enough = full and ended.is_set() and len(run.scores) >= n_kept(first)
                return late() or enough or any([ends_fit(callback, progress) for callback in callbacks])

            if late():
                return
            run = Run(first.plan, *self._parts_of_chain(first, whole, groups, seed_of(seed, chain), full))
            run.devices = first.devices
            try:
                boosted = run.boost(self._stages_of(first, stopping), seed_of(seed, chain), watch)
            except NoScoreError:  # by the chance of the rows set aside
                return
            if full:
                ended.wait()
            if late() or (full and not leader):
                return
            kept = chain_of(run, boosted, stopping is not None, n_kept(first) if full else None)
            if kept.ensemble.n_learners or not full:
                found[chain] = kept

        if self.verbose and n_chains > 1:
            print(f"boosting {n_chains} chains", file=sys.stderr)
        alone = first.devices is not None
        interrupted = side_by_side(range(1, n_chains), first.plan.engine, boost, lead, alone)
        boosted, others = leader[0][0], [found[chain] for chain in sorted(found) if is_whole(*leader[0])]
        if interrupted:
            boosted = boosted._replace(status=f"interrupted after {1 + len(others)} of {n_chains} chains")
        return boosted, others

    def _count_chains(self, first: Run, whole: Part | None) -> tuple[int, bool]:
        """Return the number of chains, and whether those after the first learn from all rows."""
        full = first.plan.profile.refit_full
        if full and whole is None and is_auto(self.n_chains):
            return 1, False  # without more rows there is nothing to gain
        return first.plan.n_chains, full and whole is not None

    def _stages_of(self, run: Run, stopping: EarlyStopping | None) -> int:
        """Return the number of stages of a run at the most."""
        return self._most_stages(None if stopping is not None else float(run.plan.trust_region.rate))

    def _parts_of_chain(
        self, first: Run, whole: Part | None, groups: np.ndarray, seed: int, full: bool
    ) -> tuple[Part, Part | None]:
        """Return the rows that a chain learns from and those that validate, encoded."""

        def encoded(part: Part) -> Part:
            return self._scaled(part).encoded(first.plan.encoder, first.plan.dtype)

        if whole is None:
            return first.train, first.held_out
        if full:
            return encoded(whole), None
        rows = hold_out(whole.target, groups, self.validation_fraction, seed, self._is_classifier)
        if rows is None:
            return first.train, first.held_out
        return encoded(whole.take(rows[0])), encoded(whole.take(rows[1]).values)


def is_whole(boosted: Boosted, cut_short: bool) -> bool:
    """Say whether a first chain is one to add others to."""
    return bool(boosted.ensemble.n_learners) and not cut_short


def n_kept(first: Run) -> int:
    """Return the number of stages up to the best of a run that has ended."""
    return int(np.nanargmin(first.scores)) + 1


def chain_of(run: Run, boosted: Boosted, at_best: bool, n_stages: int | None) -> Chain:
    """Return what is kept of a run that came to its end; no more than so many stages."""
    scores = run.scores if run.held_out is not None else []
    n_learners, score = best_of(boosted.history[:n_stages], scores[:n_stages], at_best)
    return Chain(boosted.ensemble.truncate(n_learners), score, run.held_out is None, run.held_out)
