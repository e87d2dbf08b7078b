"""Algorithm 2: boosting as a functional trust-region method (``alg:trust_region_skeleton_vpboost``)."""

import dataclasses
import time
from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..engine import ONCE_A_STAGE, block_unit, program, using
from ..featurizers import Factory, columns
from ..featurizers.trees import without_tree
from ..losses import Loss
from ..losses.base import newton_constant
from ..numerics.blocks import block_map, block_scan, block_sum, largest
from ..numerics.devices import devices_of, mesh_of
from .arguments import check_arguments, check_dtype, check_engine, check_kinds, check_resumed, check_seed, traced
from .data import Data, prepare_validation
from .dense import summary_by_c, train_learner
from .diagnostics import Diagnostics, diagnose
from .ensemble import Ensemble
from .initial import blend, initial_populations
from .objective import Summary, summarise
from .records import Boosted, Record, Stage
from .reduced import Derivatives
from .shared import arrange_on, here, over
from .tracked import Tracked, add, features_of, featurized, in_blocks_of, keeps_features, track
from .trees import Trees, grower_of
from .trust_region import TrustRegion, accepts, bounds, first_lambda, next_lambda, reduction_ratio, search
from .weak_learner import Trained, Training, solve_at_end


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
    devices: Any = None,
    trees: Trees | None = None,
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
    engine : {"xla", "numpy", "native"}, default="xla"
        The backend. XLA compiles programs for the shapes of the data, which takes seconds once a process, and
        is faster from then on. NumPy begins at once, which pays for a single short fit; its steps take up to twice as
        long, of tiny networks longer, and it leaves to XLA what it does not know (sorting, say). "native" trains
        learners that are :class:`MLP` by C, two to three times as fast as XLA, and computes their features by it; the
        rest is left to NumPy, or to XLA where data are large.
    callback : callable, optional
        Called with the :class:`Stage` after each stage; returning True ends boosting.
    resume : Boosted, optional
        An earlier result on the same data and settings to go on from: ``n_learners`` counts its stages too, and the
        outcome is the same, bit for bit, as of one longer run.
    devices : None, "all", int or list of jax.Device, default=None
        The devices over which rows are shared out: all, so many of this process, or these. By default those of ``x``,
        if that is an array of JAX's spread along its first axis, else one. Where JAX has several processes, "all"
        makes them work together: each calls this function with its own rows, and a callback must answer alike in all.
    trees : Trees, optional
        Grow a soft tree beside each learner's featurizer, for responses that jump (see :mod:`vpboost.core.trees`); on
        one device.

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
    check_kinds({**kinds, "trees": (trees, Trees)})
    with jax.enable_x64(dtype == np.float64), using(engine):
        key, mesh = check_seed(seed), mesh_of(devices_of(x) if devices is None else devices)
        check_engine(engine, mesh)
        arrange = arrange_on(mesh)
        training, trust_region = traced(training or Training(), dtype), traced(trust_region or TrustRegion(), dtype)
        unit = block_unit(engine)
        data = arrange(x, y, loss, sample_weight, dtype, batch_size=training.batch_size, seed=seed, unit=unit)
        if training.batch_size is not None and training.batch_size >= data.n_rows:
            training = dataclasses.replace(training, batch_size=None)
        sets = (
            [data] if validation is None else [data, prepare_validation(validation, loss, dtype, data, unit, arrange)]
        )
        constant, learners, history, reg = begin(loss, data, trust_region, resume, mesh)
        grower = grower_of(trees, data, training, mesh)
        initial = initial_populations(featurizer, bias, key, data.sample(), training.candidates, len(history))
        first = next(initial)
        with over(mesh):
            kept = keeps_features(sets, loss, first[1], 1 << grower.depth if grower is not None else 0)
            tracked = track(sets, constant, kept)
            for module, weights in learners:
                tracked = add(weights, *featurized(module, tracked), tracked)
            derivatives, soundness, losses = differentiate(loss, [one.labelled for one in tracked])
        status, populations = "all stages done", chain([first], initial)
        try:
            for stage in range(len(history), n_learners):
                began = time.perf_counter()
                if not check_derivatives(soundness, stage):
                    status = "stationary: the gradient of the loss is zero"
                    break
                if history and not history[-1].accepted and float(reg) >= bounds(dtype)[1]:
                    status = "stationary to working precision: no step is small enough to lower the loss"
                    break
                train_key, population = next(populations)
                if learners:
                    population = blend(without_tree(learners[-1][0]), population, training.inherit)
                with over(mesh):
                    learner = train_learner(
                        train_key, population, data.x, in_blocks_of(data, derivatives), reg, training
                    )
                    known = None
                    if grower is not None:
                        (known,) = features_of(learner.featurizer, [tracked[0].data])
                        learner = grower.beside(train_key, learner, known, derivatives, reg)
                    verdict, tracked = assess_and_add(
                        learner, tracked, derivatives, loss, reg, training, trust_region, known
                    )
                    derivatives, soundness, losses = jax.block_until_ready(
                        differentiate(loss, [one.labelled for one in tracked])
                    )
                history.append(record(stage, losses, verdict, time.perf_counter() - began))
                if history[-1].accepted:
                    learners.append(here((learner.featurizer, verdict.trial.weights), mesh))
                reg = here(verdict.next_lambda, mesh)
                seen = tracked[1].rows() if len(tracked) > 1 else None
                if callback is not None and callback(Stage(history[-1], constant, learners, history, reg, seen)):
                    status = f"stopped by the callback after stage {stage}"
                    break
        except KeyboardInterrupt:
            if jax.process_count() > 1 and mesh is not None:
                raise  # the others would wait for this one
            status = f"interrupted after {len(history)} stages"
        return Boosted(Ensemble.stack(constant, learners), history, status, float(reg))


def begin(
    loss: Loss, data: Data, trust_region: TrustRegion, resume: Boosted | None, mesh: Any
) -> tuple[Array, list, list, Array]:
    """Return c₀, the learners and the history so far, and λ_w for the next stage."""
    dtype = np.dtype(data.weight.dtype)
    if resume is None:
        return first_constant(loss, data, mesh), [], [], first_lambda(trust_region.reg_lambda, dtype)
    constant = resume.ensemble.constant
    check_resumed(constant, data.n_outputs, dtype)
    return constant, resume.ensemble.unstack(), list(resume.history), first_lambda(resume.reg_lambda, dtype)


class Trial(NamedTuple):
    """A weak learner up for acceptance: its weights, boosting rate included, ρ, and what the theory says of it."""

    weights: Float[Array, "n k"]
    prediction: Array  #: of the ensemble with the learner, on the training data
    ratio: Float[Array, ""]
    solver_error: Float[Array, ""]
    diagnostics: Diagnostics


class Verdict(NamedTuple):
    """The last trial of a learner, and what follows from it."""

    trial: Trial
    accepted: Array
    reg_lambda: Float[Array, ""]  #: λ_w of the trial
    next_lambda: Float[Array, ""]  #: λ_w for the next stage
    solves: Array


def assess_and_add(
    learner: Trained,
    tracked: list[Tracked],
    derivatives: Derivatives,
    loss: Loss,
    reg: Array,
    training: Training,
    trust_region: TrustRegion,
    known: Array | None = None,
) -> tuple[Verdict, list[Tracked]]:
    """Assess a learner; return the verdict, and the predictions with it if it is accepted.

    ``known`` are its features of the training data but for a tree's, if they have been computed already.
    """
    featurizer, (x, *inputs) = featurized(learner.featurizer, tracked, known)
    now, summary = tracked[0].labelled, summary_by_c(featurizer, x, derivatives, training.solver)
    verdict = assess(learner.weights, summary, featurizer, x, now, derivatives, loss, reg, training, trust_region)
    if verdict.accepted:
        others = add(verdict.trial.weights, featurizer, inputs, tracked[1:])
        tracked = [Tracked(tracked[0].data, verdict.trial.prediction), *others]
    return verdict, tracked


@partial(program, quick=ONCE_A_STAGE)
def assess(
    weights: Array,
    summary: Summary | None,
    featurizer: Any,
    x: Array,
    labelled: tuple[Array, Array, Array],
    derivatives: Derivatives,
    loss: Loss,
    reg: Array,
    training: Training,
    trust_region: TrustRegion,
) -> Verdict:
    """Try the learner with the least λ_w that makes it acceptable, if any does; its summary may be known already.

    ``labelled`` are predictions of the ensemble, targets and weights.
    """
    if summary is None:
        summary = summarise(featurizer, x, derivatives, training.solver)

    def trial_at(reg: Array) -> Trial:
        solution = solve_at_end(weights, summary, derivatives, reg, training)
        theory = diagnose(solution.weights, summary, derivatives)
        step = trust_region.rate * solution.weights
        along = -2 * (theory.model_reduction + theory.slope)  # w·H̄w
        predicted = -trust_region.rate * theory.slope - 0.5 * trust_region.rate**2 * along
        moved, actual = move(loss, featurizer, step, x, *labelled)
        error = jnp.where(solution.finite, solution.error, jnp.inf)
        return Trial(step, moved, reduction_ratio(actual, predicted), error, theory)

    if not training.solves.end:  # nothing to solve again: the weights are what gradient descent made them
        trial, solves = trial_at(reg), jnp.ones((), jnp.int32)
    else:
        trial, reg, solves = search(trial_at, reg, trust_region)
    following = next_lambda(reg, trial.ratio, trust_region)
    return Verdict(trial, accepts(trial.ratio, trust_region), reg, following, solves)


def move(
    loss: Loss, featurizer: Any, weights: Array, x: Array, prediction: Array, target: Array, weight: Array
) -> tuple[Array, Array]:
    """Return f + h and the actual reduction L[f] − L[f + h].

    That is the mean of differences, which loses no digits when the reduction is small.
    """

    def one_block(f: Array, x: Array, t: Array, w: Array) -> tuple[Array, Array]:
        moved = f + columns(featurizer, x).T @ weights
        return moved, jnp.sum(w * (loss.value(f, t) - loss.value(moved, t)))

    return block_scan(one_block, prediction, x, target, weight)


class Soundness(NamedTuple):
    """What decides whether boosting can go on: are derivatives finite, the least curvature, the steepest slope."""

    finite: Array
    least_curvature: Array
    steepest: Array


@partial(program, quick=ONCE_A_STAGE)
def differentiate(loss: Loss, labelled: list[tuple]) -> tuple[Derivatives, Soundness, list[Array]]:
    """Return gradient and curvature of the loss at the current ensemble, their soundness, and the mean losses.

    ``labelled`` are the predictions, targets and weights of each data set; the first is the training data.
    """
    prediction, target, weight = labelled[0]
    gradient = block_map(loss.gradient, prediction, target)
    derivatives = Derivatives(weight, gradient, block_map(loss.curvature, prediction, target))
    losses = [mean_loss(loss, *one) for one in labelled]
    return derivatives, soundness_of(gradient, derivatives.curvature.diagonal()), losses


def soundness_of(gradient: Array, diagonal: Array) -> Soundness:
    """Return the soundness of gradients and of the diagonals of Hessians."""

    def maxima(gradient: Array, diagonal: Array) -> Array:
        wild = jnp.any(~jnp.isfinite(gradient)) | jnp.any(~jnp.isfinite(diagonal))
        return jnp.stack([wild.astype(gradient.dtype), -jnp.min(diagonal), jnp.max(jnp.abs(gradient))])

    wild, least, steepest = largest(maxima, gradient, diagonal)  # all in one message
    return Soundness(wild == 0, -least, steepest)


def mean_loss(loss: Loss, prediction: Array, target: Array, weight: Array) -> Array:
    """Return the mean loss over a data set."""
    return block_sum(lambda f, t, w: jnp.sum(w * loss.value(f, t)), prediction, target, weight)


def first_constant(loss: Loss, data: Data, mesh: Any) -> Array:
    """Return c₀, after checking that the loss can be trained."""
    target, weight = data.sample_of_targets()
    loss.check(target, jax.device_put(np.zeros(data.n_outputs, weight.dtype)))
    constant = loss.best_constant(target, weight)
    if mesh is not None:  # that was by some of the rows
        with over(mesh):
            constant = here(newton_constant(loss, data.target, data.weight, constant), mesh)
    loss.check(target, constant)
    return constant


def check_derivatives(found: Soundness, stage: int) -> bool:
    """Raise ``ValueError`` if the loss is not finite or not convex at the ensemble; return False if stationary."""
    if not found.finite:
        raise ValueError(f"loss has NaN or infinite derivatives at stage {stage}; check the loss and the scale of y")
    if float(found.least_curvature) < -1e-4:
        raise ValueError(f"loss is not convex: its curvature is {float(found.least_curvature):g} at stage {stage}")
    return float(found.steepest) > 0


def record(stage: int, losses: list, verdict: Verdict, seconds: float) -> Record:
    """Gather one stage's history in plain Python numbers."""
    trial = verdict.trial
    theory = {name: float(value) for name, value in trial.diagnostics._asdict().items()}
    return Record(
        stage=stage,
        loss=float(losses[0]),
        validation_loss=float(losses[1]) if len(losses) > 1 else float("nan"),
        ratio=float(trial.ratio),
        accepted=bool(verdict.accepted),
        reg_lambda=float(verdict.reg_lambda),
        solves=int(verdict.solves),
        solver_error=float(trial.solver_error),
        seconds=seconds,
        **theory,
    )
