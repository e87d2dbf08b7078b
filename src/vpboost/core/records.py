"""What boosting tells of itself: an entry of its history, what callbacks see, and what it returns."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Array

from .ensemble import Ensemble


class Record(NamedTuple):
    """One stage of the history. See :class:`vpboost.core.diagnostics.Diagnostics` for the theory's quantities."""

    stage: int
    loss: float  #: training loss of the ensemble after the stage
    validation_loss: float  #: the same on the validation data; NaN without any
    ratio: float  #: ρ, actual over predicted reduction (``eq:reduction_ratio``)
    accepted: bool
    reg_lambda: float  #: λ_w that the learner's linear weights were solved with
    solves: int  #: 1, and 1 more for each re-solve with a raised λ_w
    solver_error: float  #: jitter or residual of the solve; see :class:`vpboost.core.reduced.Solution`
    gradient_norm: float
    operator_norm: float
    radius: float
    step_norm: float
    slope: float
    alignment: float
    curvature_capture: float
    model_reduction: float
    cauchy_reduction: float
    seconds: float


class Boosted(NamedTuple):
    """What :func:`boost` returns: the ensemble, the history of its stages, and why boosting ended."""

    ensemble: Ensemble
    history: list[Record]
    status: str
    reg_lambda: float  #: λ_w for the next stage, should boosting go on


class Stage(NamedTuple):
    """What a callback sees after each stage."""

    record: Record
    constant: Array
    learners: list[tuple[Any, Array]]  #: accepted so far, as (featurizer, weights)
    history: list[Record]  #: all stages so far
    reg_lambda: Array  #: λ_w for the next stage
    validation_prediction: np.ndarray | None  #: raw predictions on the validation data, (n_rows, K)

    @property
    def ensemble(self) -> Ensemble:
        """The ensemble so far."""
        return Ensemble.stack(self.constant, self.learners)

    @property
    def boosted(self) -> Boosted:
        """What :func:`boost` would return if it ended now; it can be resumed."""
        return Boosted(self.ensemble, list(self.history), "unfinished", float(self.reg_lambda))
