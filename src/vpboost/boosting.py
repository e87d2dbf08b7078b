"""Algorithm 2: boosting as a functional trust-region method (``alg:trust_region_skeleton_vpboost``)."""

import dataclasses
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .arguments import check_arguments, check_dtype, check_kinds, check_resumed, check_seed
from .blocks import MAX_BLOCKS_KEPT, block_map, block_sum
from .data import Data, prepare, prepare_validation
from .diagnostics import Diagnostics, diagnose
from .ensemble import Ensemble
from .featurizers import Factory, Given, columns
from .initial import blend, initial_populations
from .interpreter import program, using
from .losses import Loss
from .objective import summarise
from .reduced import Derivatives
from .trust_region import TrustRegion, accepts, bounds, first_lambda, next_lambda, reduction_ratio, search
from .weak_learner import Trained, Training, solve_at_end, train


class Record(NamedTuple):
    """One stage of the history. See :class:`vpboost.diagnostics.Diagnostics` for the theory's quantities."""

    stage: int
    loss: float  #: training loss of the ensemble after the stage
    validation_loss: float  #: the same on the validation data; NaN without any
    ratio: float  #: ρ, actual over predicted reduction (``eq:reduction_ratio``)
    accepted: bool
    reg_lambda: float  #: λ_w that the learner's linear weights were solved with
    solves: int  #: 1, and 1 more for each re-solve with a raised λ_w
    solver_error: float  #: jitter or residual of the solve; see :class:`vpboost.reduced.Solution`
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


def boost(
    x: Any,
    y: Any,
    *,
    loss: Loss,
    featurizer: Factory,
    n_learners: int = 10,
    training: Training | None = None,
    trust_region: TrustRegion | None = None,
    bias: bool = True,
    sample_weight: Any = None,
    validation: tuple | None = None,
    seed: int = 0,
    dtype: Any = "float32",
    engine: str = "xla",
    callback: Callable[[Stage], bool | None] | None = None,
    resume: Boosted | None = None,
) -> Boosted:
    """Fit a VPBoost ensemble: c₀, then one weak learner per stage, each accepted or rejected by the trust region.

    Parameters
    ----------
    x : array of shape (n_rows, ...)
        Inputs. Scale them to order one; this function does not.
    y : array of shape (n_rows,) or (n_rows, n_outputs)
        Targets, as the loss expects them.
    loss : Loss
        See :mod:`vpboost.losses`.
    featurizer : callable
        Builds each stage's featurizer; see :mod:`vpboost.featurizers`.
    n_learners : int, default=10
        Number of stages. A stage whose learner is rejected adds nothing.
    training, trust_region : Training, TrustRegion, optional
        Settings of Algorithm 1 and of the trust region.
    bias : bool, default=True
        Add a constant feature to every featurizer.
    sample_weight : array of shape (n_rows,), optional
        Non-negative weights; they enter every mean.
    validation : (x, y) or (x, y, sample_weight), optional
        Data on which to report the loss after every stage.
    seed : int, default=0
        Fixes every random choice: same seed, data and machine give the same bits.
    dtype : {"float32", "float64"}
        Precision of the whole computation.
    engine : {"xla", "numpy"}, default="xla"
        Who does the sums. XLA compiles programs for the shapes of the data, which takes seconds once a process, and
        is faster from then on. NumPy begins at once, which pays for a single short fit; its steps take up to twice as
        long, of tiny networks longer, and it leaves to XLA what it does not know (sorting, say).
    callback : callable, optional
        Called with the :class:`Stage` after each stage; returning True ends boosting.
    resume : Boosted, optional
        An earlier result on the same data and settings to go on from: ``n_learners`` counts its stages too, and the
        outcome is the same, bit for bit, as of one longer run.

    Returns
    -------
    Boosted
        ``ensemble``, ``history``, ``status``, ``reg_lambda``. After Ctrl-C it holds the stages done, and ``status``
        begins with "interrupted".

    Examples
    --------
    >>> import numpy as np
    >>> from functools import partial
    >>> from vpboost import MLP, SquaredError, Training, boost
    >>> x = np.linspace(-1, 1, 200)[:, None]
    >>> y = np.sin(5 * x[:, 0])
    >>> fit = boost(x, y, loss=SquaredError(), featurizer=partial(MLP, width=4, depth=1), n_learners=3,
    ...             training=Training(max_steps=200))
    >>> bool(np.mean((fit.ensemble.predict(x)[:, 0] - y) ** 2) < 1e-3)
    True
    """
    dtype = check_dtype(dtype)
    check_arguments(loss, featurizer, n_learners, engine, callback, bias)
    kinds = {"training": (training, Training), "trust_region": (trust_region, TrustRegion), "resume": (resume, Boosted)}
    check_kinds(kinds)
    with jax.enable_x64(dtype == np.float64), using(engine):
        key = check_seed(seed)
        training, trust_region = traced(training or Training(), dtype), traced(trust_region or TrustRegion(), dtype)
        unit = 1 if engine == "numpy" else None  # nothing is gained by blocks of similar sizes
        data = prepare(x, y, loss, sample_weight, dtype, batch_size=training.batch_size, seed=seed, unit=unit)
        if training.batch_size is not None and training.batch_size >= data.n_rows:
            training = dataclasses.replace(training, batch_size=None)
        held_out = None if validation is None else prepare_validation(validation, loss, dtype, data, unit)
        if resume is not None:
            check_resumed(resume.ensemble.constant, data.n_outputs, dtype)
        constant = first_constant(loss, data) if resume is None else resume.ensemble.constant
        datasets = (data, held_out)
        predictions: tuple[Any, ...] = tuple(d if d is None else start(constant, d) for d in datasets)
        learners = [] if resume is None else resume.ensemble.unstack()
        for module, weights in learners:
            predictions = update(weights, predictions, *featurized(module, datasets))
        history = [] if resume is None else list(resume.history)
        reg = first_lambda(trust_region.reg_lambda if resume is None else resume.reg_lambda, dtype)
        status = "all stages done"
        initial = initial_populations(featurizer, bias, key, data.sample(), training.candidates, len(history))
        labels = tuple(d if d is None else (d.target, d.weight) for d in datasets)
        derivatives, facts, losses = differentiate(loss, predictions, labels)
        try:
            for stage in range(len(history), n_learners):
                began = time.perf_counter()
                if not check_derivatives(facts, stage):
                    status = "stationary: the gradient of the loss is zero"
                    break
                if history and not history[-1].accepted and float(reg) >= bounds(dtype)[1]:
                    status = "stationary to working precision: no step is small enough to lower the loss"
                    break
                train_key, population = next(initial)
                if learners:
                    population = blend(learners[-1][0], population, training.inherit)
                learner = train(train_key, population, data.x, derivatives, reg, training)
                settings = loss, reg, training, trust_region
                verdict, predictions = add_if_good(learner, predictions, derivatives, datasets, *settings)
                derivatives, facts, losses = jax.block_until_ready(differentiate(loss, predictions, labels))
                entry = record(stage, losses, verdict, time.perf_counter() - began)
                if entry.accepted:
                    learners.append((learner.featurizer, verdict.trial.weights))
                history.append(entry)
                reg = verdict.next_lambda
                seen = validation_rows(predictions[1], held_out)
                if callback is not None and callback(Stage(history[-1], constant, learners, history, reg, seen)):
                    status = f"stopped by the callback after stage {stage}"
                    break
        except KeyboardInterrupt:
            status = f"interrupted after {len(history)} stages"
        return Boosted(Ensemble.stack(constant, learners), history, status, float(reg))


class Trial(eqx.Module):
    """A weak learner up for acceptance: its weights, boosting rate included, ρ, and what the theory says of it."""

    weights: Float[Array, "n k"]
    ratio: Float[Array, ""]
    solver_error: Float[Array, ""]
    diagnostics: Diagnostics


class Verdict(eqx.Module):
    """The last trial of a learner, and what follows from it."""

    trial: Trial
    accepted: Array
    reg_lambda: Float[Array, ""]  #: λ_w of the trial
    next_lambda: Float[Array, ""]  #: λ_w for the next stage
    solves: Array


def add_if_good(
    learner: Trained, predictions: tuple, derivatives: Derivatives, datasets: tuple, *settings: Any
) -> tuple[Verdict, tuple]:
    """Assess a learner; return the verdict, and the predictions with it if it is accepted."""
    featurizer, sets = featurized(learner.featurizer, datasets)
    verdict = assess(learner.weights, featurizer, predictions[0], derivatives, sets[0], *settings)
    if verdict.accepted:
        predictions = update(verdict.trial.weights, predictions, featurizer, sets)
    return verdict, predictions


@program
def assess(
    weights: Array,
    featurizer: Any,
    prediction: Array,
    derivatives: Derivatives,
    data: Data,
    loss: Loss,
    reg: Array,
    training: Training,
    trust_region: TrustRegion,
) -> Verdict:
    """Try the learner with the least λ_w that makes it acceptable, if any does."""
    summary = summarise(featurizer, data.x, derivatives, training.solver)

    def attempt(reg: Array) -> Trial:
        solution = solve_at_end(weights, summary, derivatives, reg, training)
        theory = diagnose(solution.weights, summary, derivatives)
        step = trust_region.rate * solution.weights
        bend = -2 * (theory.model_reduction + theory.slope)
        predicted = -trust_region.rate * theory.slope - 0.5 * trust_region.rate**2 * bend
        actual = actual_reduction(loss, prediction, featurizer, step, data)
        error = jnp.where(solution.finite, solution.error, jnp.inf)
        return Trial(step, reduction_ratio(actual, predicted), error, theory)

    if not training.solves.end:  # nothing to solve again: the weights are what gradient descent made them
        trial, solves = attempt(reg), jnp.ones((), jnp.int32)
    else:
        trial, reg, solves = search(attempt, reg, trust_region)
    following = next_lambda(reg, trial.ratio, trust_region)
    return Verdict(trial, accepts(trial.ratio, trust_region), reg, following, solves)


def actual_reduction(loss: Loss, prediction: Array, featurizer: Any, weights: Array, data: Data) -> Array:
    """Return L[f] − L[f + h] as the mean of differences, which loses no digits when the reduction is small."""

    def one_block(f: Array, x: Array, t: Array, w: Array) -> Array:
        moved = f + columns(featurizer, x).T @ weights
        return jnp.sum(w * (loss.value(f, t) - loss.value(moved, t)))

    return block_sum(one_block, prediction, data.x, data.target, data.weight)


class Facts(NamedTuple):
    """What decides whether boosting can go on: are derivatives finite, the least curvature, the steepest slope."""

    finite: Array
    least_curvature: Array
    steepest: Array


@program
def differentiate(loss: Loss, predictions: tuple, labels: tuple) -> tuple[Derivatives, Facts, list[Array]]:
    """Return gradient and curvature of the loss at the current ensemble, facts about them, and the mean losses.

    ``labels`` are the targets and weights of each data set.
    """
    prediction, (target, weight) = predictions[0], labels[0]
    gradient = block_map(loss.gradient, prediction, target)
    derivatives = Derivatives(weight, gradient, block_map(loss.curvature, prediction, target))
    diagonal = derivatives.curvature.diagonal()
    finite = jnp.all(jnp.isfinite(gradient)) & jnp.all(jnp.isfinite(diagonal))
    losses = [mean_loss(loss, *pair) for pair in zip(predictions, labels, strict=True)]
    return derivatives, Facts(finite, jnp.min(diagonal), jnp.max(jnp.abs(gradient))), losses


def featurized(featurizer: Any, datasets: tuple) -> tuple[Any, tuple]:
    """Return a featurizer and data sets with the same features, the features as inputs where there are few blocks.

    They are then computed once, and the programs that follow serve inputs of any shape.
    """
    if any(len(d.weight) > MAX_BLOCKS_KEPT for d in datasets if d is not None):
        return featurizer, datasets
    features = features_of(featurizer, tuple(d if d is None else d.x for d in datasets))
    sets = zip(datasets, features, strict=True)
    return Given(), tuple(d if d is None else dataclasses.replace(d, x=z) for d, z in sets)


@program
def features_of(featurizer: Any, inputs: tuple) -> tuple:
    """Return the features of inputs in blocks (None stays None)."""
    return tuple(x if x is None else block_map(partial(columns, featurizer), x) for x in inputs)


@program
def update(weights: Array, predictions: tuple, featurizer: Any, datasets: tuple) -> tuple:
    """Add a learner to the predictions on each data set (None stays None)."""

    def add(prediction: Array, data: Data) -> Array:
        return block_map(lambda f, x: f + columns(featurizer, x).T @ weights, prediction, data.x)

    return tuple(p if p is None else add(p, d) for p, d in zip(predictions, datasets, strict=True))


def mean_loss(loss: Loss, prediction: Array | None, labels: tuple[Array, Array] | None) -> Array:
    """Return the mean loss over a data set, given its targets and weights; NaN for none."""
    if prediction is None or labels is None:
        return jnp.array(jnp.nan)
    return block_sum(lambda f, t, w: jnp.sum(w * loss.value(f, t)), prediction, *labels)


def first_constant(loss: Loss, data: Data) -> Array:
    """Return c₀, after checking that the loss can be trained."""
    loss.check(data.target, jax.device_put(np.zeros(data.n_outputs, data.weight.dtype)))
    constant = loss.best_constant(data.target, data.weight)
    loss.check(data.target, constant)
    return constant


def validation_rows(prediction: Array | None, held_out: Data | None) -> np.ndarray | None:
    """Return raw predictions on the validation data, one row per sample."""
    return None if prediction is None or held_out is None else held_out.layout.merge(np.asarray(prediction))


def start(constant: Array, data: Data) -> Array:
    """Return the prediction f⁽⁰⁾ = c₀ for every row."""
    shape = *data.weight.shape, constant.shape[0]
    return jax.device_put(np.ascontiguousarray(np.broadcast_to(np.asarray(constant), shape)))


def check_derivatives(facts: Facts, stage: int) -> bool:
    """Raise ``ValueError`` if the loss is not finite or not convex at the ensemble; return False if stationary."""
    if not facts.finite:
        raise ValueError(f"loss has NaN or infinite derivatives at stage {stage}; check the loss and the scale of y")
    if float(facts.least_curvature) < -1e-4:
        raise ValueError(f"loss is not convex: its curvature is {float(facts.least_curvature):g} at stage {stage}")
    return float(facts.steepest) > 0


def record(stage: int, losses: list, verdict: Verdict, seconds: float) -> Record:
    """Gather one stage's history in plain Python numbers."""
    trial = verdict.trial
    theory = {name: float(value) for name, value in vars(trial.diagnostics).items()}
    return Record(
        stage=stage,
        loss=float(losses[0]),
        validation_loss=float(losses[1]),
        ratio=float(trial.ratio),
        accepted=bool(verdict.accepted),
        reg_lambda=float(verdict.reg_lambda),
        solves=int(verdict.solves),
        solver_error=float(trial.solver_error),
        seconds=seconds,
        **theory,
    )


def traced(settings: Any, dtype: np.dtype) -> Any:
    """Turn the numbers of a settings object into arrays, so that changing them does not recompile anything."""

    def as_array(leaf: Any) -> Any:
        return jax.device_put(np.asarray(leaf, dtype)) if isinstance(leaf, float | int) else leaf

    return jax.tree.map(as_array, settings)
