"""Boosting by one plan."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ..callbacks import Progress
from ..core.boosting import boost
from ..core.records import Boosted, Stage
from ..core.slopes import boost_with_slopes
from .parts import Part
from .plan import FitPlan


class NoScoreError(ValueError):
    """A metric that is NaN from the first stage on."""


class Run:
    """A plan at work on encoded data: the validation score of every stage so far, and what came of it."""

    devices: Any = None  #: that boosting is shared out over
    mark: str | None = None  #: by which the data are known, where train and held_out are not all of them

    def __init__(self, plan: FitPlan, train: Part, held_out: Part | None):
        self.plan, self.train, self.held_out = plan, train, held_out
        self.scores: list[float] = []
        self.boosted: Boosted | None = None
        self.begun: Run | None = None  #: of a pilot, a fit of its profile that may be gone on from

    def boost(
        self,
        n_learners: int,
        seed: int,
        watch: Callable[[Progress], bool],
        resume: Boosted | None = None,
        facts: dict[str, Any] | None = None,
    ) -> Boosted:
        """Boost; ``watch`` sees every stage, with ``facts`` for checkpoints, and may end it."""
        plan, ((x, y, weight), validation), began = self.plan, self.rows(), time.monotonic()

        def after_stage(stage: Stage) -> bool:
            self.scores.append(self._score(stage))
            noted = {**(facts or {}), "scores": self.scores}
            return watch(Progress(stage, n_learners, self.scores[-1], noted, time.monotonic() - began))

        fit: Callable[..., Boosted] = boost
        if self.train.slopes is not None:
            pairs, slopes, weights = self.train.slopes.learnt
            fit = partial(boost_with_slopes, slopes=(pairs, slopes, plan.slope_weight * weights))
        self.boosted = fit(
            x,
            y,
            loss=plan.loss,
            featurizer=plan.factory,
            n_learners=n_learners,
            training=plan.training,
            trust_region=plan.trust_region,
            sample_weight=weight,
            validation=validation,
            seed=seed,
            dtype=plan.dtype,
            engine=plan.engine,
            callback=after_stage,
            resume=resume,
            devices=self.devices,
            **({} if plan.trees is None else {"trees": plan.trees}),
        )
        return self.boosted

    def rows(self) -> tuple[tuple, tuple | None]:
        """Return what is learnt from, and what validates."""
        return self.train.learnt, None if self.held_out is None else self.held_out.learnt

    def _score(self, stage: Stage) -> float:
        """Return the validation score of a stage, lower is better; NaN without validation data."""
        score, prediction = stage.record.validation_loss, stage.validation_prediction
        if self.held_out is None or prediction is None:
            return score
        if self.plan.metric is not None:
            score = self.plan.metric(self.held_out, prediction)
        if np.isnan(score) and not self.scores:
            raise NoScoreError(
                f"eval_metric={self.plan.eval_metric!r} is NaN on the validation data (a single class? a single row?); "
                "give other validation data as X_val and y_val, or another eval_metric"
            )
        return score

    @property
    def best_score(self) -> float:
        """The best validation score; infinite before the first stage."""
        return float(np.nanmin([*self.scores, np.inf]))
