"""Boosting by several processes: one plan, the rows of each where they are, decisions taken by the first."""

import dataclasses
import signal
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from ..callbacks import Checkpoint, EarlyStopping, Progress
from ..checks import plain_number
from ..core.records import Boosted, Stage
from ..core.shared import InShares
from ..estimators.chains import Chain, chain_of, is_whole, seed_of
from ..estimators.parts import Part
from ..estimators.plan import FitPlan, learner_factory, rate_of, training_of
from ..estimators.portfolio import Profile, is_auto
from ..estimators.run import Run
from ..numerics.processes import by_first, exchange_arrays, exchange_facts, together
from ..tables.encoder import InputEncoder
from .agreeing import Exact
from .sampling import Held, fingerprint

#: Rows of a step, where the user leaves their number open: waiting for each other must not be most of it.
BATCH = 16_384


class SharedRun(Run):
    """A plan at work on the rows of all processes; ``train`` and ``held_out`` are samples of them."""

    devices = "all"

    def __init__(self, plan: FitPlan, samples: tuple[Part, Part | None], mine: Held, aside: Held | None):
        super().__init__(plan, *samples)
        self.mine, self.aside = mine, aside

    def rows(self) -> tuple[tuple, tuple | None]:
        return learnt(self.mine), None if self.aside is None else learnt(self.aside)

    def boost(
        self,
        n_learners: int,
        seed: int,
        watch: Callable[[Progress], bool],
        resume: Boosted | None = None,
        facts: dict[str, Any] | None = None,
    ) -> Boosted:
        interrupted = False

        def decide(progress: Progress) -> bool:
            nonlocal interrupted
            ends = by_first(lambda: bool(watch(progress)))
            interrupted = any(exchange_facts(ctrl_c.pressed))
            return ends or interrupted

        with CtrlC() as ctrl_c:
            boosted = super().boost(by_first(lambda: n_learners), seed, decide, resume, facts)
        if interrupted:
            boosted = boosted._replace(status=f"interrupted after {len(boosted.history)} stages")
        self.boosted = boosted
        return boosted

    def _score(self, stage: Stage) -> float:
        if self.plan.metric is None or self.aside is None:
            return super()._score(stage)
        part = self.aside.part
        raw, target, weight = (
            np.concatenate(exchange_arrays(np.ascontiguousarray(one)))
            for one in (stage.validation_prediction, part.target, np.asarray(part.weight, float))
        )
        everyone = Run(self.plan, self.train, Part(None, target, weight))
        everyone.scores = self.scores
        return by_first(lambda: float(everyone._score(stage._replace(validation_prediction=raw))))


class CtrlC:
    """Within this context the first Ctrl-C is noted only: a process that ends alone would leave the others waiting."""

    def __init__(self) -> None:
        self.pressed = False
        self._before: Any = None

    def __enter__(self) -> "CtrlC":
        # the main thread alone hears of signals; somebody else's handler is left alone
        main = threading.current_thread() is threading.main_thread()
        if main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self._before = signal.signal(signal.SIGINT, self.press)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def press(self, *_: Any) -> None:
        """Take note of Ctrl-C; raise ``KeyboardInterrupt`` for another one."""
        if self.pressed:
            raise KeyboardInterrupt
        self.pressed = True


def learnt(held: Held) -> tuple[Any, Any, np.ndarray]:
    """Return inputs, targets and weights as the learners see them, in shares."""
    x, y, weight = held.part.learnt
    return InShares(x, held.ends), y, weight


def plan_of(
    estimator: Any,
    profile: Profile,
    weights: np.ndarray | None,
    samples: tuple[Part, Part | None],
    sets: tuple[Held, Held | None],
    exact: Exact,
) -> SharedRun:
    """Return a run of a profile on all rows that has not begun; its encoder has learnt from a sample."""
    train, judges = samples
    n = sum(exchange_facts(sets[0].part.n_rows))
    encoder = exact.complete(InputEncoder(profile.encoding).fit(train.inputs, train.weight)).weighed(weights)
    shown = estimator._scaled(train).encoded(encoder, profile.dtype)
    rate = rate_of(profile, n, chains_of(estimator), estimator._is_classifier)
    plan = estimator._plan_for(profile, encoder, shown, rate, chains_of(estimator))
    coupled = plan.loss.couples_outputs and plan.loss.n_outputs(shown.scaled) > 1
    training = training_of(estimator, profile, n, plan.loss.n_outputs(shown.scaled), coupled)
    if is_auto(estimator.batch_size):
        training = dataclasses.replace(training, batch_size=None if n <= BATCH else BATCH)
    factory = learner_factory(estimator, n, profile, encoder.sources_)
    plan = dataclasses.replace(plan, factory=factory, training=training, engine="xla")

    def encoded(held: Held | None) -> Held | None:
        return (
            None if held is None else held._replace(part=estimator._scaled(held.part).encoded(encoder, profile.dtype))
        )

    seen = shown, None if judges is None else estimator._scaled(judges).encoded(encoder, profile.dtype)
    mine, aside = together(lambda: (encoded(sets[0]), encoded(sets[1])))
    return SharedRun(plan, seen, mine, aside)


def chains_of(estimator: Any) -> int:
    """Return how many chains are averaged: one, if the user does not say."""
    return 1 if is_auto(estimator.n_chains) or estimator.n_chains is None else int(plain_number(estimator.n_chains))


def mark(estimator: Any, run: SharedRun, resumed: bool) -> None:
    """Let a run know its data by a mark, where a checkpoint needs it."""
    saves = any(isinstance(callback, Checkpoint) for callback in estimator.callbacks or [])
    if resumed or by_first(lambda: saves):
        run.mark = fingerprint([held for held in (run.mine, run.aside) if held is not None])


def boost(estimator: Any, run: SharedRun, seed: int, start: Boosted | None) -> Any:
    """Boost all chains, one after the other, and store what comes of it."""
    stopping = estimator._early_stopping(run)
    boosted, cut_short = estimator._boost(run, seed, stopping, start, recall=start is not None)
    others: list[Chain] = []
    whole = by_first(lambda: is_whole(boosted, cut_short))
    for i in range(1, chains_of(estimator) if whole else 1):
        chain = SharedRun(run.plan, (run.train, run.held_out), run.mine, run.aside)
        own = None if stopping is None else EarlyStopping(stopping.rounds, stopping.min_delta, stopping.min_gain)
        found = chain.boost(estimator._stages_of(run, stopping), seed_of(seed, i), own.after_stage if own else go_on)
        others.append(chain_of(chain, found, own is not None, None))
    estimator._store(run, boosted, stopping is not None, others, given=True)
    estimator._finish(run, None, np.arange(run.train.n_rows), seed, others)
    return estimator


def go_on(progress: Progress) -> bool:
    """Let a chain go on to its end."""
    return False
