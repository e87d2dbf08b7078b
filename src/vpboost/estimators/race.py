"""Runs side by side, and the race between those of several profiles."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from ..engine import using
from ..losses import BinaryCrossEntropy, MulticlassCrossEntropy, SquaredError
from ..native import n_cores
from .portfolio import FAR_BEHIND, FINE_START, FIRST_HEAT, MANY_COLUMNS, MANY_TO_RACE, SLOW_START, TIE, TREE_START
from .run import Run


def side_by_side(
    items: Sequence[Any],
    engine: str,
    boost: Callable[[Any, Callable[[], bool]], Any],
    lead: Callable[[], bool] = lambda: True,
    alone: bool = False,
) -> bool:
    """Call ``boost`` for each item, several at once where that is sooner; return whether Ctrl-C ended them early.

    It is given an item and a function that says whether it is to stop. ``lead`` is called in this thread, at the same
    time or before; the others are in vain if it returns False or raises an error. ``alone`` says that one item needs
    all that there is: programs on several devices wait for each other, and two of them might do so for ever.
    """
    # many small calls of NumPy would only wait for each other: one after the other they are done sooner
    at_once = engine != "numpy" and len(items) > 0 and not alone
    if not at_once and (not lead() or not items):
        return False
    stop, leading = threading.Event(), at_once
    # the engine limits the threads of linear algebra until all are done
    with using(engine), ThreadPoolExecutor(min(len(items), n_cores()) if at_once else 1) as pool:
        running = [pool.submit(boost, item, stop.is_set) for item in items]
        try:
            wanted, leading = not at_once or lead(), False
            for future in running if wanted else ():
                future.result()
        except BaseException as error:
            wanted = False
            if leading or not isinstance(error, KeyboardInterrupt):
                raise
            return True
        finally:
            if not wanted:
                stop.set()
                for future in running:
                    future.cancel()
    return False


def race(runs: list[Run], seed: int, n_stages: int) -> tuple[Run, bool]:
    """Boost a few stages of each run, of those far behind only the first; return the one that validates best.

    The second value says whether Ctrl-C ended the race early.
    """
    going, interrupted = runs, False
    for n in sorted({min(FIRST_HEAT, n_stages), n_stages}):

        def boost(run: Run, stopped: Callable[[], bool], n: int = n) -> None:
            run.boost(n, seed, lambda progress: stopped(), run.boosted)

        interrupted = interrupted or side_by_side(going, runs[0].plan.engine, boost)
        going = within_reach(going)
    best = min(runs, key=standing)
    gain = best.scores[0] - best.best_score if best.scores else 0.0
    margin = min(TIE[0] * gain, TIE[1] * abs(best.best_score))
    level = [run for run in runs if run is best or standing(run) <= standing(best) + margin]
    return min(level, key=lambda run: (len(run.plan.encoder.sources_), standing(run))), interrupted


def within_reach(runs: list[Run]) -> list[Run]:
    """Return the runs that are not far behind the best one."""
    best = min(standing(run) for run in runs)
    margin = FAR_BEHIND[runs[0].train.n_rows >= MANY_TO_RACE] * abs(best)
    return [run for run in runs if not standing(run) > best + margin]  # without scores, all


def standing(run: Run) -> float:
    """Return the score of a run in the race, lower is better; learners that are slow to begin with have a start."""
    if (run.plan.profile.max_features or 1.0) == 1:
        return run.best_score - (FINE_START if run.plan.profile.encoding == "fine" else 0.0) * abs(run.best_score)
    trees = bool(run.plan.profile.tree_depth)
    if run.train.n_rows >= MANY_TO_RACE:
        return run.best_score - (TREE_START[1] if trees else 0.0) * abs(run.best_score)
    return run.best_score - head_start(run) * abs(run.best_score)


def head_start(run: Run) -> float:
    """Return which part of its score is made a present to a run whose learners see some columns only."""
    loss, trees = run.plan.loss, bool(run.plan.profile.tree_depth)
    if run.plan.metric is not None:  # of which a part may mean nothing
        return 0.0 if trees else SLOW_START[0]
    classes = isinstance(loss, BinaryCrossEntropy | MulticlassCrossEntropy)
    if classes and len(np.unique(run.plan.encoder.sources_)) >= MANY_COLUMNS:
        return SLOW_START[1]
    of_trees = {SquaredError: TREE_START[0], MulticlassCrossEntropy: TREE_START[0], BinaryCrossEntropy: TREE_START[2]}
    return of_trees.get(type(loss), SLOW_START[0]) if trees else SLOW_START[0]


def heads_for(left: list[float], window: int = 6) -> float:
    """Return what will be left of what falls from stage to stage, by how its last falls compare; early on −∞.

    Were each fall the same part of the one before, this is where they would end; twice as far, to be on the safe side.

    >>> bool(abs(heads_for([0.2 + 0.8**stage for stage in range(30)]) - 0.2) < 0.01)
    True
    """
    if len(left) < 4 * window:
        return -np.inf
    before, now = left[-2 * window - 1] - left[-window - 1], left[-window - 1] - left[-1]
    part = now / before if before > 0 else 1.0
    return left[-1] - 2 * now * part / (1 - part) if 0 < part < 1 else left[-1] if now <= 0 else -np.inf
