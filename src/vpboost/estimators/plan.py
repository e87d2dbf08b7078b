"""What a fit decides before its first stage: the estimator's parameters turned into settings of the core."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np

from ..checks import plain_number
from ..core.trust_region import TrustRegion
from ..core.weak_learner import Training
from ..featurizers import Factory, SomeColumns, named_factory
from ..losses import Loss
from ..tables.encoder import InputEncoder
from ..tables.targets import TargetScaler
from .parts import Part
from .portfolio import Profile

#: Below so many training rows, the automatic settings are more careful.
FEW_TO_LEARN_FROM = 2000
#: Rows times steps of a learner's training up to which a first fit by NumPy takes half as long as one by XLA, which has
#: to compile its programs; fewer where the outputs are coupled (several classes).
SHORT, SHORT_IF_COUPLED = 150_000, 30_000
#: With at least twice as many outputs of squared error, learners are trained on so many combinations of them.
SKETCH = 32


@dataclass(frozen=True)
class FitPlan:
    """How to learn with one profile from encoded data; nothing in it changes during a fit."""

    profile: Profile
    loss: Loss
    scaler: TargetScaler
    encoder: InputEncoder
    factory: Factory
    training: Training
    trust_region: TrustRegion
    engine: str
    dtype: Any
    eval_metric: Any  #: as the user gave it
    metric: Callable[[Part, np.ndarray], float] | None  #: of a part and raw predictions for it; None for the loss


def make_plan(
    settings: Any,
    profile: Profile,
    loss: Loss,
    scaler: TargetScaler,
    encoder: InputEncoder,
    train: Part,
    rate: float,
    metric: Callable[[Part, np.ndarray], float] | None,
) -> FitPlan:
    """Return the plan for a profile; ``settings`` has the estimator's parameters, ``train`` encoded training data."""
    scaled: Any = train.scaled
    coupled = loss.couples_outputs and loss.n_outputs(scaled) > 1
    n_outputs = 1 if scaled.ndim == 1 else scaled.shape[1]
    return FitPlan(
        profile,
        loss,
        scaler,
        encoder,
        factory=learner_factory(settings, train.n_rows, profile, encoder.sources_),
        training=training_of(settings, train.n_rows, profile.inherit, n_outputs),
        trust_region=trust_region_of(settings, rate),
        engine=engine_of(settings, np.shape(train.inputs), coupled),
        dtype=settings.dtype,
        eval_metric=settings.eval_metric,
        metric=metric,
    )


def training_of(settings: Any, n: int, inherit: float = 0.0, n_outputs: int = 1) -> Training:
    """Return how learners are trained on ``n`` rows."""
    batch = (None if n <= 8192 else 4096) if settings.batch_size == "auto" else plain_number(settings.batch_size)
    # longer training of the learners overfits small tables
    few = n < FEW_TO_LEARN_FROM
    steps = (30 if few else 50) if settings.max_steps == "auto" else plain_number(settings.max_steps)
    return Training(
        method=settings.method,
        max_steps=steps,
        tol=plain_number(settings.tol),
        optimizer=settings.optimizer,
        step_size=plain_number(settings.step_size),
        batch_size=batch,
        reg_theta=plain_number(settings.reg_theta),
        candidates=plain_number(settings.candidates),
        inherit=inherit,
        sketch=SKETCH if settings.method == "vp" and n_outputs >= 2 * SKETCH else None,
    )


def engine_of(settings: Any, shape: tuple[int, ...], coupled: bool) -> str:
    """Return the backend: NumPy where training is so short that compilation would take longer."""
    if settings.engine != "auto":
        return settings.engine
    work = shape[0] * training_of(settings, shape[0]).max_steps
    return "numpy" if len(shape) == 2 and work <= (SHORT_IF_COUPLED if coupled else SHORT) else "xla"


def rate_of(settings: Any, n: int) -> float:
    """Return the boosting rate; small tables can afford more and smaller steps."""
    if settings.learning_rate == "auto":
        return 0.05 if n < FEW_TO_LEARN_FROM else 0.1
    return float(settings.learning_rate)


def trust_region_of(settings: Any, rate: float) -> TrustRegion:
    """Return the settings of the trust region."""
    return TrustRegion(
        reg_lambda=plain_number(settings.reg_lambda),
        rho_accept=plain_number(settings.rho_accept),
        rho_small=plain_number(settings.rho_small),
        gamma_up=plain_number(settings.gamma_up),
        gamma_down=plain_number(settings.gamma_down),
        rate=rate,
        lambda_low=min(plain_number(settings.reg_lambda), 1e-12),
    )


def factory_of(settings: Any, n: int) -> Factory:
    """Return the featurizer factory; a named one gets width, depth and activation where it takes them."""
    given = {"width": settings.width, "depth": settings.depth, "activation": settings.activation}
    given = {name: plain_number(value) for name, value in given.items() if value is not None}
    if isinstance(settings.featurizer, str):
        return named_factory(settings.featurizer, given, width=16 if n < 10_000 else 32)
    if not callable(settings.featurizer):
        raise TypeError(f"featurizer must be a name or a factory, got {type(settings.featurizer).__name__}")
    if given:
        raise ValueError(f"{', '.join(given)} go with a named featurizer; give a factory its own options")
    return settings.featurizer


def learner_factory(settings: Any, n: int, profile: Profile, sources: np.ndarray) -> Factory:
    """Return the factory of a profile's learners; ``sources`` says which input each encoded column belongs to."""
    factory = factory_of(settings, n)
    if profile.max_features is None:
        return factory
    groups = tuple(np.unique(sources, return_inverse=True)[1].tolist())
    # an array, not a number: profiles that differ in it share their compiled programs
    fraction = jax.device_put(np.float32(profile.max_features))
    return partial(SomeColumns, factory=factory, fraction=fraction, groups=groups)
