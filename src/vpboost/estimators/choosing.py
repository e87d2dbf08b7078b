"""The choice of a profile: plans, the race between them, and the weights of columns."""

import dataclasses
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np

from ..callbacks import EarlyStopping, Progress
from ..losses import SquaredError
from ..native import n_cores
from ..tables.encoder import InputEncoder, count_encodable
from .checks import Checks
from .column_weights import process_weights, slope_weights, weights_of
from .metrics import Score, score_function
from .noise import (
    LEAST_SMOOTH_ROWS,
    hears_noise,
    is_hopeless,
    is_nearly_all,
    is_noisy,
    process_of,
    sees_noise,
    unexplained,
    variance_of,
)
from .parts import Part, hold_out
from .plan import (
    CHAINS,
    FitPlan,
    chains_of,
    engine_of,
    learner_factory,
    rate_of,
    stopping_of,
    suits_native,
    training_of,
    trees_of,
    trust_region_of,
)
from .portfolio import (
    CLEARLY,
    LEAST_ROWS,
    MANY_TO_RACE,
    MOST_TREE_CLASSES,
    PILOT_BATCH,
    PILOT_RATE,
    PILOT_STAGES,
    RACE_ROWS,
    SMOOTH_LEAD,
    SMOOTH_RATE,
    SMOOTH_ROWS,
    SMOOTH_STAGES,
    Profile,
    fallback,
    fix,
    is_auto,
    is_wide,
    profiles,
    smooth_profiles,
)
from .race import heads_for, race
from .run import Run
from .slopes import slope_weight_of

#: Profiles for responses without noise are tried where the best of the others leaves at most the first of these parts
#: of the targets' variance unexplained. It is doubtful where that is more than the second, with more than ``SMALL``
#: training rows, and where a Gaussian process sees noise: what does not suit it looks like noise to it.
SMALL, MOST_SMOOTH_ROWS, WORTH_TRYING = 2000, 20_000, (0.8, 0.02)
#: Where there is one reason for doubt, not two, pilots must leave less than this part of what the best of the others
#: does (benchmarks/smooth_choice.py --doubts).
WELL_AHEAD = 0.8
#: Where a process hears some noise, smooth profiles train learners less, and average chains instead of learning from
#: all rows.
WITH_SOME_NOISE: dict[str, Any] = {"max_steps": 50, "n_chains": CHAINS, "refit_full": False}
#: How often columns are weighed anew at the most: as long as the score falls below this part of what it was.
ROUNDS, ENOUGH = 3, 0.98


class Choosing(Checks):
    """How an estimator plans its runs and chooses between them."""

    race_: dict[Profile, float]

    def _plan(
        self,
        profile: Profile,
        train: Part,
        held_out: Part | None,
        weights: np.ndarray | None = None,
        encoder: InputEncoder | None = None,
    ) -> Run:
        """Return a run of a profile that has not begun, its numeric columns weighed if ``weights`` are given."""
        if encoder is None:
            encoder = InputEncoder(profile.encoding).fit(train.inputs, train.weight).weighed(weights)
        known = None if held_out is None else held_out.values.encoded(encoder, profile.dtype)
        return self._run_of(profile, encoder, train.encoded(encoder, profile.dtype), known)

    def _run_of(self, profile: Profile, encoder: InputEncoder, train: Part, held_out: Part | None) -> Run:
        """Return a run of a profile on encoded data that has not begun."""
        validated = held_out is not None and self.early_stopping_rounds is not None
        n_chains = chains_of(
            profile, np.shape(train.inputs), validated, len(self.classes_) if self._is_classifier else 0
        )
        averaged = 1 if profile.refit_full else n_chains  # its first chain is not averaged with the second
        rate = rate_of(profile, train.n_rows, averaged, self._is_classifier)
        return Run(self._plan_for(profile, encoder, train, rate, n_chains), train, held_out)

    def _plan_for(
        self,
        profile: Profile,
        encoder: InputEncoder,
        train: Part,
        rate: float,
        n_chains: int = 1,
    ) -> FitPlan:
        """Return the plan for a profile and encoded training data."""
        loss = self._for_holes(self.loss_)
        n_outputs = loss.n_outputs(train.scaled)
        coupled = loss.couples_outputs and n_outputs > 1
        metric = score_function(self.eval_metric, self._is_classifier)
        engine = engine_of(self, profile, (train.n_learnt, *np.shape(train.inputs)[1:]), coupled)
        return FitPlan(
            *(profile, loss, self.target_scaler_, encoder),
            factory=learner_factory(self, train.n_rows, profile, encoder.sources_),
            training=training_of(self, profile, train.n_learnt, n_outputs, coupled),
            trust_region=trust_region_of(self, profile, rate),
            engine="native" if suits_native(self, profile, loss, train) else engine,
            dtype=profile.dtype,
            eval_metric=self.eval_metric,
            metric=None if metric is None else partial(self._score, metric),
            n_chains=n_chains,
            trees=trees_of(profile, encoder.n_plain),
            slope_weight=1.0 if train.slopes is None else slope_weight_of(self.slope_weight, len(encoder.numeric_)),
        )

    def _score(self, metric: Score, part: Part, raw: np.ndarray) -> float:
        """Return the score of raw predictions for a part."""
        return metric(self._plain(part.target), self._from_raw(raw), part.weight)

    def _choose_profile(
        self, train: Part, groups: np.ndarray, held_out: Part | None, seed: int, refits: bool
    ) -> tuple[Run, bool]:
        """Return a run of the profile that validates best, and whether Ctrl-C cut the choice short.

        ``refits`` says whether the rows that validate may be learnt from later.
        """
        shape, slopes = np.shape(train.inputs), train.slopes is not None
        choices = profiles(self, shape, count_encodable(train.inputs) if is_wide(shape) else None)
        loss = self._for_holes(self.loss_)
        many = loss.couples_outputs and loss.n_outputs(train.scaled) > MOST_TREE_CLASSES
        if many or slopes:  # leaves make large systems of many classes, and hardly have slopes
            choices = [p for p in choices if not p.tree_depth or not is_auto(self.tree_depth)]
        smooth, pilots = self._smooth_choices(train, choices), (PILOT_STAGES, PILOT_RATE)
        if slopes:  # responses whose slopes are known are smooth
            choices = smooth or [p for p in choices if p.encoding == self.encoding] or [fallback(self)]
            smooth, pilots = [], (SMOOTH_STAGES, SMOOTH_RATE)
            if held_out is None and train.n_rows < LEAST_ROWS[0]:
                return self._weighed_by_slopes(choices[0], train), False
        if len([*choices, *smooth]) == 1 and not choices[0].relevance:
            return self._plan(choices[0], train, held_out), False
        racing, judging = train, held_out
        if judging is None:
            rows = hold_out(train.target, groups, self.validation_fraction, seed, self._is_classifier)
            if rows is None:  # nothing to compare by
                return self._plan(fallback(self), train, None), False
            racing, judging = train.take(rows[0]), train.take(rows[1])
        most = RACE_ROWS[train.n_rows >= MANY_TO_RACE]
        racing, judging = racing.sample(most[0], seed), judging.sample(most[1], seed)
        best, interrupted = self._race(choices, racing, judging, seed, *pilots)
        if not interrupted and smooth and unexplained(best) <= WORTH_TRYING[0]:
            fewer = racing.sample(SMOOTH_ROWS, seed)
            best, interrupted = self._race_smooth(best, smooth, fewer, judging, seed, refits)
        elif not interrupted and best.plan.profile.relevance:  # the user's choice
            weights = slope_weights(best) if slopes else process_weights(process_of(best), best)
            best, interrupted = self._weigh_columns([best.plan.profile], weights, best, racing, judging, seed)
        chosen = best.plan.profile
        if self.verbose:
            print(f"chosen: {chosen}, validation {best.best_score:.4g}", file=sys.stderr)
        if interrupted:
            return best, True
        everything = judging is held_out and racing is train and best.train.n_rows == train.n_rows
        if best.begun is not None and everything and self._goes_on_from_choice():
            return best.begun, False
        if everything:
            return self._run_of(chosen, best.plan.encoder, best.train, best.held_out), False
        return self._plan(chosen, train, held_out, best.plan.encoder.weights_), False

    def _goes_on_from_choice(self) -> bool:
        """Say whether a whole fit that has decided the choice may be the first chain: it would be the same again.

        Not where callbacks are to see every stage.
        """
        watched = bool(self.callbacks) or bool(self.verbose)
        return not watched and self.devices is None and self.early_stopping_rounds is not None

    def _weighed_by_slopes(self, profile: Profile, train: Part) -> Run:
        """Return a run of a profile on few rows, its columns weighed by the slopes observed; no row is set aside."""
        planned = self._plan(profile, train, None)
        weights = slope_weights(planned) if profile.relevance else None
        return planned if weights is None else self._plan(profile, train, None, weights)

    def _race_smooth(
        self, best: Run, smooth: list[Profile], train: Part, held_out: Part, seed: int, refits: bool
    ) -> tuple[Run, bool]:
        """Return the better one of the winner so far and the best profile for responses without noise."""
        planned = self._plan(smooth[0], train, held_out)
        process, left = process_of(planned), unexplained(best)
        noisy, doubtful = is_noisy(process, left), left > WORTH_TRYING[1] and best.train.n_rows > SMALL
        if noisy and (doubtful or is_nearly_all(process, left)):
            return best, False
        if hears_noise(process):
            smooth = [fix(profile._replace(**WITH_SOME_NOISE), self) for profile in smooth]
        other, interrupted = self._weigh_columns(smooth, process_weights(process, planned), None, train, held_out, seed)
        if interrupted or ((noisy or doubtful) and unexplained(other) > WELL_AHEAD * left):
            return best, interrupted
        if unexplained(other) < CLEARLY * unexplained(best):
            return other, False
        # pilots may mislead: whole fits decide, by the loss, whatever the metric; the second one ends when it has won
        if self.verbose:
            print("comparing whole fits of two profiles", file=sys.stderr)
        rival, interrupted = self._boosted_whole(best.plan.profile, train, held_out, None, seed)
        if interrupted or is_hopeless(process, unexplained(other), unexplained(rival)):
            best.begun = rival
            return best, interrupted
        lead = SMOOTH_LEAD[refits and other.plan.profile.refit_full]
        if sees_noise(process):  # more rows will not make up for a worse score
            lead = min(lead, 1.0)
        bound = lead * unexplained(rival)
        encoder = other.plan.encoder
        proof, interrupted = self._boosted_whole(other.plan.profile, train, held_out, encoder, seed, bound)
        winner, winner_whole = (other, proof) if unexplained(proof) < bound else (best, rival)
        winner.begun = winner_whole
        return winner, interrupted

    def _boosted_whole(
        self,
        profile: Profile,
        train: Part,
        held_out: Part,
        encoder: InputEncoder | None,
        seed: int,
        enough: float = 0.0,
    ) -> tuple[Run, bool]:
        """Return a run of a profile to its end, and whether Ctrl-C came first.

        It also ends when no more than ``enough`` is unexplained, or when it will not come to that.
        """
        run = self._plan(profile, train, held_out, encoder=encoder)
        stopping = self._early_stopping(run) or stopping_of(profile)
        variance, left = variance_of(held_out), []

        def watch(progress: Progress) -> bool:
            left.append(2 * progress.record.validation_loss / variance)
            return stopping.after_stage(progress) or left[-1] < enough or heads_for(left) > enough > 0

        boosted = run.boost(self._most_stages(), seed, watch)
        return run, boosted.status.startswith("interrupted")

    def _early_stopping(self, run: Run) -> EarlyStopping | None:
        """Return what ends a run by its validation score."""
        if run.held_out is None or self.early_stopping_rounds is None:
            return None
        rounds = self.early_stopping_rounds
        return stopping_of(run.plan.profile) if rounds == "auto" else EarlyStopping(int(rounds))

    def _smooth_choices(self, train: Part, others: list[Profile]) -> list[Profile]:
        """Return the profiles for responses without noise, if this may be one."""
        if train.slopes is not None:
            return smooth_profiles(self, []) if train.n_rows <= MOST_SMOOTH_ROWS else []
        table = len(np.shape(train.inputs)) == 2 and LEAST_SMOOTH_ROWS <= train.n_rows <= MOST_SMOOTH_ROWS
        return smooth_profiles(self, others) if table and isinstance(self.loss_, SquaredError) else []

    def _race(
        self, choices: list[Profile], train: Part, held_out: Part, seed: int, n_stages: int, rate: float
    ) -> tuple[Run, bool]:
        """Return the best of some profiles after a few stages of each, and whether Ctrl-C came first."""
        if self.verbose:
            print(f"comparing {len(choices)} profiles on a few stages each", file=sys.stderr)
        firsts = {profile.encoding: profile for profile in reversed(choices)}
        learnt = InputEncoder().fit(train.inputs, train.weight)

        def planned(first: Profile) -> Run:
            encoder = learnt.having(first.encoding, train.inputs, train.weight)
            return self._plan(first, train, held_out, encoder=encoder)

        with ThreadPoolExecutor(n_cores()) as pool:
            encoded = dict(zip(firsts, pool.map(planned, firsts.values()), strict=True))
        runs = [self._pilot(encoded[profile.encoding], profile, rate) for profile in choices]
        best, interrupted = race(runs, seed, n_stages)
        self.race_ |= {run.plan.profile: run.best_score for run in runs}
        return best, interrupted

    def _pilot(self, run: Run, profile: Profile, rate: float) -> Run:
        """Return a run on the same encoded data with another profile, made to show quickly where that leads."""
        encoder, train = run.plan.encoder, run.train
        rate = max(rate_of(profile, train.n_rows), rate)
        plan = self._plan_for(profile, encoder, train, rate)
        if is_auto(self.batch_size) and plan.training.batch_size is not None:
            fewer = dataclasses.replace(plan.training, batch_size=min(plan.training.batch_size, PILOT_BATCH))
            plan = dataclasses.replace(plan, training=fewer)
        return Run(plan, train, run.held_out)

    def _weigh_columns(
        self,
        choices: list[Profile],
        weights: np.ndarray | None,
        best: Run | None,
        train: Part,
        held_out: Part,
        seed: int,
    ) -> tuple[Run, bool]:
        """Return the best pilot of some profiles whose inputs are weighed by what depends on them, and of ``best``.

        The first weights are given; others follow from the derivatives of the best pilot, and those of the next pilot
        from it. The second value says whether Ctrl-C came first.
        """
        relevant, interrupted = choices[0].relevance, False
        if best is None or weights is not None:
            best, interrupted = self._try_weights(choices, weights, best, train, held_out, seed)
        for _ in range(ROUNDS):
            derived = weights_of(best) if relevant and not interrupted else None
            if derived is None:
                break
            before, profile = best.best_score, best.plan.profile
            best, interrupted = self._try_weights([profile], derived, best, train, held_out, seed)
            if best.best_score > ENOUGH * before:
                break
        weighed = best.plan.encoder.weights_
        others = [profile for profile in choices if profile != best.plan.profile]
        if others and not interrupted and weighed is not None and weighed is not weights:
            best, interrupted = self._try_weights(others, weighed, best, train, held_out, seed)
        return best, interrupted

    def _try_weights(
        self,
        choices: list[Profile],
        weights: np.ndarray | None,
        best: Run | None,
        train: Part,
        held_out: Part,
        seed: int,
    ) -> tuple[Run, bool]:
        """Return the best of pilots with these weights of columns and of the best so far, and whether Ctrl-C came."""
        planned = self._plan(choices[0], train, held_out, weights)
        pilots = [self._pilot(planned, profile, SMOOTH_RATE) for profile in choices]
        trial, interrupted = race(pilots, seed, SMOOTH_STAGES)
        for run in pilots:
            self.race_[run.plan.profile] = min(run.best_score, self.race_.get(run.plan.profile, np.inf))
        return min([trial] if best is None else [best, trial], key=lambda run: run.best_score), interrupted
