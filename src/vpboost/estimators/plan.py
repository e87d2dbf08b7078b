"""What a fit decides before its first stage: the estimator's parameters turned into settings of the core."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np

from ..callbacks import EarlyStopping
from ..checks import plain_number
from ..core.dense import is_plain
from ..core.trees import Trees
from ..core.trust_region import TrustRegion
from ..core.weak_learner import Training
from ..featurizers import Factory, SomeColumns, named_factory, takes
from ..losses import Loss, MulticlassCrossEntropy, SquaredError
from ..native import ACTIVATIONS as NATIVE_ACTIVATIONS
from ..native import is_available as native_is_available
from ..tables.encoder import InputEncoder
from ..tables.scaling import TargetScaler
from .parts import Part
from .portfolio import MOST_TREE_ROWS, OF_NETWORK, Profile, is_auto

#: Below so many training rows, the automatic settings are more careful.
FEW_TO_LEARN_FROM = 2000
#: So many chains are averaged where validation data end the fit, below this number of training rows.
CHAINS, MANY_FOR_CHAINS = 4, 20_000
#: The same where those after the first learn from all rows and are the model.
CHAINS_IF_FULL = 3
#: The factor on the boosting rate of learners with trees, unless rows are few (benchmarks/budgets.py --trees).
TREE_RATE = 1.5
#: Rows times steps of a learner's training up to which a first fit by NumPy takes half as long as one by XLA, which has
#: to compile its programs; fewer where the outputs are coupled (several classes).
SHORT, SHORT_IF_COUPLED = 150_000, 30_000
#: Learners of so many steps make long fits, at which XLA is three times as fast: less work then repays compilation.
MANY_STEPS, SHORT_IF_MANY = 100, 10_000
#: The most rows that are seen at every step, and how many are of larger tables; then for learners of many steps, which
#: see all rows often enough.
BATCHES = (8192, 4096), (2048, 1024)
#: Of very many rows, a step sees such a part of them, up to a number, and a larger one where the outputs are coupled:
#: of more, learners find more that is not there; of fewer, less that is (benchmarks/budgets.py --batches).
PARTS_OF_MANY, MOST_OF_MANY = (32, 5), 16_384
#: What part of the score an improvement must be, for each stage that early stopping waits for it by itself: smooth
#: responses without noise improve for ever by less and less.
LEAST_GAIN = 2e-4
#: With at least twice as many outputs of squared error, learners are trained on so many combinations of them.
SKETCH = 32
#: How well conjugate gradients solve for the weights of a learner, of which a tenth or so is taken.
CG_TOL = 1e-3


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
    n_chains: int = 1  #: fits that are averaged
    slope_weight: float = 1.0  #: of an observed slope beside a value
    trees: Trees | None = None  #: grown beside the learners


def training_of(settings: Any, profile: Profile, n: int, n_outputs: int = 1, coupled: bool = False) -> Training:
    """Return how learners are trained on ``n`` rows; ``coupled`` says whether the loss couples the outputs."""
    most, rows = BATCHES[steps_of(profile, n) >= MANY_STEPS]
    rows = max(rows, min(n // PARTS_OF_MANY[coupled], MOST_OF_MANY))
    batch = (None if n <= most else rows) if settings.batch_size == "auto" else plain_number(settings.batch_size)
    projects = settings.method == "vp"
    sketch = SKETCH if projects and not coupled and n_outputs >= 2 * SKETCH else None
    given = parameters_of(settings, "method", "tol", "optimizer", "step_size", "candidates")
    given |= parameters_of(profile, "inherit", "reg_theta")
    given |= {"sketch": sketch, "majorant": projects and coupled, "cg_tol": CG_TOL}
    return Training(max_steps=steps_of(profile, n), batch_size=batch, **given)


def trees_of(profile: Profile, n_plain: int) -> Trees | None:
    """Return how trees are grown beside learners, if any are: by the columns themselves, not by what encodings add."""
    return Trees(int(profile.tree_depth), n_plain) if profile.tree_depth else None


def steps_of(profile: Profile, n: int) -> int:
    """Return the optimiser steps of a learner: longer training overfits small tables."""
    few = n < FEW_TO_LEARN_FROM
    return (30 if few else 50) if profile.max_steps is None else int(profile.max_steps)


def parameters_of(settings: Any, *names: str) -> dict[str, Any]:
    """Return parameters by name, NumPy's numbers as Python's."""
    return {name: plain_number(getattr(settings, name)) for name in names}


def engine_of(settings: Any, profile: Profile, shape: tuple[int, ...], coupled: bool) -> str:
    """Return the backend but for C: NumPy where training is so short that compilation would take longer."""
    if settings.engine != "auto":
        return settings.engine
    if settings.devices is not None:
        return "xla"
    steps = steps_of(profile, shape[0])
    most = SHORT_IF_COUPLED if coupled else SHORT
    if steps >= MANY_STEPS:
        most = min(most, SHORT_IF_MANY)
    return "numpy" if len(shape) == 2 and shape[0] * steps <= most else "xla"


def suits_native(settings: Any, profile: Profile, loss: Loss, train: Part) -> bool:
    """Say whether learners are left to C: it is there, and they are of the kind that it trains (see ``core.dense``)."""
    if settings.engine != "auto" or settings.devices is not None or not native_is_available():
        return False
    dense = settings.featurizer == "mlp" and (settings.activation or profile.activation or "tanh") in NATIVE_ACTIVATIONS
    alike = isinstance(loss, SquaredError | MulticlassCrossEntropy) or loss.n_outputs(train.scaled) == 1
    return is_plain(settings) and dense and alike and train.slopes is None and len(np.shape(train.inputs)) == 2


def chains_of(profile: Profile, shape: tuple[int, ...], validated: bool, n_classes: int = 0) -> int:
    """Return how many chains are averaged: several where each is quick, and validation data tell when to stop.

    ``n_classes`` is zero in regression.
    """
    if profile.n_chains is not None:
        return int(profile.n_chains)
    if not validated or len(shape) > 2:
        return 1
    if shape[0] >= MANY_FOR_CHAINS:  # of trees stages are quick, and of two classes fits end early
        return CHAINS // 2 if (profile.tree_depth or n_classes == 2) and shape[0] <= MOST_TREE_ROWS else 1
    if profile.refit_full:
        return CHAINS_IF_FULL
    few = shape[0] < FEW_TO_LEARN_FROM
    return CHAINS if few or not n_classes else CHAINS // 2  # each takes long


def may_chain(settings: Any, n: int) -> bool:
    """Say whether a fit to ``n`` training rows may average chains."""
    return n <= MOST_TREE_ROWS if is_auto(settings.n_chains) or settings.n_chains is None else settings.n_chains > 1


def rate_of(profile: Profile, n: int, n_chains: int = 1, classes: bool = False) -> float:
    """Return the boosting rate; small tables can afford more and smaller steps, on others trees take larger ones.

    So do chains, but not those of classifiers, which would lose by it what the mean gains.
    """
    if profile.learning_rate is not None:
        return float(profile.learning_rate)
    few = n < FEW_TO_LEARN_FROM
    grown = TREE_RATE if profile.tree_depth and not few else 1.0
    return (0.05 if few else 0.1) * (1 if n_chains == 1 or classes else 2) * grown


def stopping_of(profile: Profile) -> EarlyStopping:
    """Return what ends a fit by itself."""
    return EarlyStopping(profile.rounds, min_gain=LEAST_GAIN * profile.rounds)


def trust_region_of(settings: Any, profile: Profile, rate: float) -> TrustRegion:
    """Return the settings of the trust region."""
    given = parameters_of(settings, "rho_accept", "rho_small", "gamma_up", "gamma_down")
    given |= parameters_of(profile, "reg_lambda")
    return TrustRegion(**given, rate=rate, lambda_low=min(given["reg_lambda"], 1e-12))


def width_of(n: int) -> int:
    """Return the units of a hidden layer for so many training rows."""
    return 16 if n < 10_000 else 32


def factory_of(settings: Any, profile: Profile, n: int) -> Factory:
    """Return the featurizer factory; a named one gets width, depth and so on where it takes them."""
    given = parameters_of(settings, "width", "depth", "activation")
    if not is_auto(settings.weight_scale):
        given["weight_scale"] = plain_number(settings.weight_scale)
    given = {name: value for name, value in given.items() if value is not None}
    if isinstance(settings.featurizer, str):
        if takes(settings.featurizer, "weight_scale"):
            # an array, not a number: profiles that differ in it share their compiled programs
            given["weight_scale"] = jax.device_put(np.float32(profile.weight_scale))
            given |= {name: value for name in OF_NETWORK if (value := getattr(profile, name)) is not None}
        return named_factory(settings.featurizer, given, width=width_of(n))
    if not callable(settings.featurizer):
        raise TypeError(f"featurizer must be a name or a factory, got {type(settings.featurizer).__name__}")
    if given:
        raise ValueError(f"{', '.join(given)} go with a named featurizer; give a factory its own options")
    return settings.featurizer


def learner_factory(settings: Any, n: int, profile: Profile, sources: np.ndarray) -> Factory:
    """Return the factory of a profile's learners; ``sources`` says which input each encoded column belongs to."""
    factory = factory_of(settings, profile, n)
    if profile.max_features is None:
        return factory
    groups = tuple(np.unique(sources, return_inverse=True)[1].tolist())
    fraction = jax.device_put(np.float32(profile.max_features))
    return partial(SomeColumns, factory=factory, fraction=fraction, groups=groups)
