"""Algorithm 1: train one separable weak learner on the quadratic model (``alg:weak_learner_training``).

All methods share one code path and differ in when the linear weights are solved for:

================  =========  ===============  ==========
method            at start   at every step    at the end
================  =========  ===============  ==========
``vp``                       yes              yes
``gd``
``vp_start``      yes
``vp_end``                                    yes
``vp_start_end``  yes                         yes
================  =========  ===============  ==========

Between the solves, gradient descent (any Optax optimiser) moves the linear weights together with θ; with ``vp`` it
moves θ alone.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from .blocks import Layout, block_map, rows_per_block
from .reduced import Derivatives, Solution, optimal_weights, optimal_weights_cg, quadratic_model, reduce, uses_cg


class Solves(NamedTuple):
    """When a method solves for the linear weights."""

    start: bool
    every: bool
    end: bool


METHODS = {
    "vp": Solves(start=False, every=True, end=True),
    "gd": Solves(start=False, every=False, end=False),
    "vp_start": Solves(start=True, every=False, end=False),
    "vp_end": Solves(start=False, every=False, end=True),
    "vp_start_end": Solves(start=True, every=False, end=True),
}

OPTIMIZERS: dict[str, Callable[[], optax.GradientTransformation]] = {
    "adam": optax.scale_by_adam,
    "nadam": partial(optax.scale_by_adam, nesterov=True),
    "radam": optax.scale_by_radam,
    "lion": optax.scale_by_lion,
    "rmsprop": optax.scale_by_rms,
    "momentum": partial(optax.trace, decay=0.9),
    "sgd": optax.identity,
}

SCHEDULES: dict[str, Callable[[int], optax.Schedule]] = {
    "onecycle": lambda steps: optax.cosine_onecycle_schedule(max(steps, 4), 1.0),
    "cosine": lambda steps: optax.cosine_decay_schedule(1.0, steps),
    "constant": lambda steps: optax.constant_schedule(1.0),
}

DEFAULT_STEP_SIZE = 0.03

#: Tolerance and iterations of conjugate gradients: loose while θ moves (each solve starts from the last), tight at the
#: end of training.
CG_WHILE_TRAINING = (1e-3, 30)
CG_AT_END = (1e-6, 500)


class Training(eqx.Module):
    """Settings of weak-learner training. ``step_size`` and ``reg_theta`` may change without recompilation.

    Parameters
    ----------
    method : {"vp", "gd", "vp_start", "vp_end", "vp_start_end"}, default="vp"
        When the linear weights are solved for in closed form; see the module's table.
    max_steps : int, default=500
        Optimiser steps per learner.
    optimizer : str or optax.GradientTransformation, default="adam"
        One of "adam", "nadam", "radam", "lion", "rmsprop", "momentum", "sgd"; or any Optax transformation, which then
        brings its own step size and schedule.
    step_size : float, optional
        Peak step size of a named optimiser; 0.03 by default.
    schedule : {"onecycle", "cosine", "constant"}, optional
        Shape of a named optimiser's step size over the steps; "onecycle" by default.
    batch_size : int, optional
        Rows per θ step, drawn at random and rounded up to whole blocks; by default all of them. Whatever it is, a
        method that solves at the end does so on all rows. Choose it much larger than the number of linear weights per
        factorised system.
    reg_theta : float, default=0.0
        λ_θ, the weight of ½‖θ‖² in the objective.
    candidates : int, default=1
        Initialisations trained side by side; the one with the lowest final objective is kept.
    inherit : float, default=0.0
        Where a learner starts, in [0, 1): θ₀ = ``inherit`` · θ of the last accepted learner + (1 − ``inherit``) · a
        fresh draw. 0 starts every learner afresh, as in the paper; 0.8 lets learners go on learning from stage to
        stage, which suits large tables.
    solver : {"auto", "direct", "cg"}, default="auto"
        How w* is computed: by factorisation, by conjugate gradients, or by the size and structure of the system.
    """

    method: str = eqx.field(static=True, default="vp")
    max_steps: int = eqx.field(static=True, default=500)
    optimizer: Any = eqx.field(static=True, default="adam")
    step_size: float | Array | None = None
    schedule: str | None = eqx.field(static=True, default=None)
    batch_size: int | None = eqx.field(static=True, default=None)
    reg_theta: float | Array = 0.0
    candidates: int = eqx.field(static=True, default=1)
    inherit: float | Array = 0.0
    solver: str = eqx.field(static=True, default="auto")

    def __check_init__(self) -> None:
        _require_one_of("method", self.method, METHODS)
        _require_one_of("solver", self.solver, ("auto", "direct", "cg"))
        if isinstance(self.optimizer, str):
            _require_one_of("optimizer", self.optimizer, OPTIMIZERS)
        elif not isinstance(self.optimizer, optax.GradientTransformation):
            raise TypeError(
                f"optimizer must be a name or an optax.GradientTransformation, got {type(self.optimizer).__name__}"
            )
        elif self.step_size is not None or self.schedule is not None:
            raise ValueError("step_size and schedule go with a named optimizer; an Optax object brings its own")
        if self.schedule is not None:
            _require_one_of("schedule", self.schedule, SCHEDULES)
        for name, least in (("max_steps", 0), ("batch_size", 1), ("candidates", 1)):
            value = getattr(self, name)
            if name == "batch_size" and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
                raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}")
        if self.step_size is not None and not 0 < self.step_size < float("inf"):
            raise ValueError(f"step_size must be positive and finite, got {self.step_size!r}")
        if not 0 <= self.reg_theta < float("inf"):
            raise ValueError(f"reg_theta must be non-negative and finite, got {self.reg_theta!r}")
        if not 0 <= self.inherit < 1:
            raise ValueError(f"inherit must be in [0, 1), got {self.inherit!r}")

    @property
    def solves(self) -> Solves:
        """When the chosen method solves for the linear weights."""
        return METHODS[self.method]

    def optax(self) -> optax.GradientTransformation:
        """Return the optimiser, schedule and sign included."""
        if not isinstance(self.optimizer, str):
            return self.optimizer
        step_size = DEFAULT_STEP_SIZE if self.step_size is None else self.step_size
        shape = SCHEDULES[self.schedule or "onecycle"](self.max_steps)
        return optax.chain(OPTIMIZERS[self.optimizer](), optax.scale_by_schedule(lambda k: -step_size * shape(k)))


class Trained(eqx.Module):
    """A trained weak learner: its featurizer and linear weights, and the objective at every step."""

    featurizer: Any
    weights: Float[Array, "n k"]
    objective: Float[Array, " steps"]


def featurize(featurizer: Any, x: Array) -> Float[Array, "blocks rows n"]:
    """Return the features of inputs in blocks."""
    return block_map(jax.vmap(featurizer), x)


def solve(
    features: Float[Array, "blocks rows n"],
    derivatives: Derivatives,
    reg: Float[Array, ""],
    start: Float[Array, "n k"],
    solver: str,
    effort: tuple[float, int],
) -> Solution:
    """Return w*(θ) by the solver that fits the system; ``start`` and ``effort`` serve conjugate gradients."""
    if uses_cg(derivatives.curvature, start.size, solver):
        return optimal_weights_cg(features, derivatives, reg, start, *effort)
    return optimal_weights(reduce(features, derivatives), reg)


def objective(
    featurizer: Any, weights: Array, x: Array, derivatives: Derivatives, reg: Array, training: Training, project: bool
) -> tuple[Float[Array, ""], Float[Array, "n k"]]:
    """Return Q(w, θ) + ½λ_w‖w‖² + λ_θ R(θ) and w; with ``project``, w is replaced by w*(θ).

    The graph is cut at w*: by optimality its derivative does not contribute (``lem:reduced_gradient_equality``).
    """
    features = featurize(featurizer, x)
    if project:
        solution = solve(jax.lax.stop_gradient(features), derivatives, reg, weights, training.solver, CG_WHILE_TRAINING)
        weights = jax.lax.stop_gradient(solution.weights)
    size = sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(eqx.filter(featurizer, eqx.is_inexact_array)))
    penalty = 0.5 * reg * jnp.sum(weights**2) + 0.5 * training.reg_theta * size
    return quadratic_model(weights, features, derivatives) + penalty, weights


@eqx.filter_jit
def train(
    key: PRNGKeyArray, featurizers: Any, x: Array, derivatives: Derivatives, reg: Array, training: Training
) -> Trained:
    """Train a population of featurizers (stacked along a first axis) and return the best learner."""
    arrays, structure = eqx.partition(featurizers, eqx.is_array)

    def one(key: PRNGKeyArray, arrays: Any) -> tuple[Any, Array, Array, Array]:
        featurizer, weights, trace = descend(key, eqx.combine(arrays, structure), x, derivatives, reg, training)
        if training.solves.end:
            weights = solve(featurize(featurizer, x), derivatives, reg, weights, training.solver, CG_AT_END).weights
        final, _ = objective(featurizer, weights, x, derivatives, reg, training, project=False)
        return eqx.filter(featurizer, eqx.is_array), weights, trace, final

    keys = jax.random.split(key, training.candidates)
    if training.candidates == 1:
        arrays, weights, trace, _ = one(keys[0], jax.tree.map(lambda leaf: leaf[0], arrays))
    else:
        population = jax.vmap(one)(keys, arrays)
        best = jnp.argmin(jnp.where(jnp.isnan(population[3]), jnp.inf, population[3]))
        arrays, weights, trace, _ = jax.tree.map(lambda leaf: leaf[best], population)
    return Trained(eqx.combine(arrays, structure), weights, trace)


def descend(
    key: PRNGKeyArray, featurizer: Any, x: Array, derivatives: Derivatives, reg: Array, training: Training
) -> tuple[Any, Array, Array]:
    """Run the optimiser from one initial featurizer; return it trained, with weights and the objective's trace."""
    theta, structure = eqx.partition(featurizer, eqx.is_inexact_array)
    n_features = jax.eval_shape(jax.vmap(featurizer), x[0]).shape[-1]
    key, weight_key = jax.random.split(key)
    bound, shape = 1 / n_features**0.5, (n_features, derivatives.gradient.shape[-1])
    weights = jax.random.uniform(weight_key, shape, derivatives.gradient.dtype, -bound, bound)
    if training.solves.every:
        weights = jnp.zeros_like(weights)  # only a first guess for the solver
    if training.solves.start:
        first = draw(jax.random.fold_in(key, training.max_steps), x, derivatives, training)
        weights = solve(featurize(featurizer, first[0]), first[1], reg, weights, training.solver, CG_AT_END).weights

    project = training.solves.every
    optimizer = training.optax()

    def loss(moving: tuple, fixed: tuple, batch: tuple) -> tuple[Array, Array]:
        theta, weights = (moving[0], fixed[0]) if project else moving
        x, derivatives = batch
        return objective(eqx.combine(theta, structure), weights, x, derivatives, reg, training, project)

    def step(carry: tuple, k: Array) -> tuple[tuple, Array]:
        theta, weights, state = carry
        batch = draw(jax.random.fold_in(key, k), x, derivatives, training)
        moving, fixed = ((theta,), (weights,)) if project else ((theta, weights), ())
        (value, used), slopes = jax.value_and_grad(loss, has_aux=True)(moving, fixed, batch)
        updates, state = optimizer.update(slopes, state, moving)
        moving = optax.apply_updates(moving, updates)
        theta, weights = (moving[0], used) if project else moving
        return (theta, weights, state), value

    state = optimizer.init((theta,) if project else (theta, weights))
    (theta, weights, _), trace = jax.lax.scan(step, (theta, weights, state), jnp.arange(training.max_steps))
    return eqx.combine(theta, structure), weights, trace


def draw(key: PRNGKeyArray, x: Array, derivatives: Derivatives, training: Training) -> tuple[Array, Derivatives]:
    """Return the rows of one θ step, in blocks: all of them, or a random batch with weights that sum to one."""
    n_rows = x.shape[0] * x.shape[1]
    if training.batch_size is None or training.batch_size >= n_rows:
        return x, derivatives
    layout = Layout.for_rows(training.batch_size, rows_per_block(x.dtype))
    chosen = jax.random.randint(key, (layout.n_blocks, layout.block_rows), 0, n_rows)
    x, derivatives = jax.tree.map(lambda leaf: leaf.reshape(n_rows, *leaf.shape[2:])[chosen], (x, derivatives))
    total = jnp.maximum(jnp.sum(derivatives.weight), jnp.finfo(derivatives.weight.dtype).tiny)
    return x, eqx.tree_at(lambda d: d.weight, derivatives, derivatives.weight / total)


def _require_one_of(name: str, value: Any, allowed: Any) -> None:
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}")
