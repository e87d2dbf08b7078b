"""Several chains: fits by one plan that differ in their seed and in the rows that validate; the model is their mean.

The first chain is what a fit shows: its history, scores, callbacks, checkpoints and warm starts. The others follow from
the same data, plan and seed alone, so that a fit that goes on makes them anew.
"""

import time
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from ..callbacks import EarlyStopping, Progress, ends_fit
from ..core.ensemble import Ensemble
from ..core.records import Record
from .parts import Part
from .plan import FitPlan
from .race import side_by_side
from .run import Run


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
    with jax.enable_x64(True):
        values = plan.loss.value(jnp.asarray(raw), jnp.asarray(plan.loss.prepare_targets(part.scaled)))
    return float(np.average(np.asarray(values), weights=part.weight))


def boost_chains(
    runs: list[Run],
    seeds: list[int],
    n_stages: int,
    watching: Callable[[], list[EarlyStopping]],
    deadline: float,
) -> tuple[list[Run], bool]:
    """Return the chains that came to their end before Ctrl-C and the deadline, and whether Ctrl-C came.

    ``watching`` makes early stopping for a chain.
    """
    ended: dict[int, bool] = {}

    def boost(run: Run, stopped: Callable[[], bool]) -> None:
        number, callbacks = runs.index(run), watching()

        def watch(progress: Progress) -> bool:
            ended[number] = not stopped() and time.monotonic() < deadline
            return not ended[number] or any([ends_fit(callback, progress) for callback in callbacks])

        if time.monotonic() < deadline and not stopped():
            run.boost(n_stages, seeds[number], watch)

    interrupted = side_by_side(runs, boost)
    return [run for i, run in enumerate(runs) if ended.get(i)], interrupted


def cut(run: Run, at_best: bool) -> tuple[Ensemble, float]:
    """Return the learners of a finished run that are kept, and their score."""
    if run.boosted is None:
        raise ValueError("the run has not begun")
    n_learners, score = best_of(run.boosted.history, run.scores if run.held_out is not None else [], at_best)
    return run.boosted.ensemble.truncate(n_learners), score
