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
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PRNGKeyArray

from ..checks import check_count, check_one_of
from ..engine import program
from ..numerics.blocks import block_map, draw_blocks, known_everywhere, rows_per_block, take_blocks
from ..numerics.devices import n_devices
from .objective import Summary, feature_count, penalty, summarise, value_and_slopes
from .reduced import Derivatives, Solution
from .sketch import compress, majorised


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

OPTIMIZERS: dict[str, Callable[..., optax.GradientTransformation]] = {
    "adam": optax.scale_by_adam,
    "nadam": partial(optax.scale_by_adam, nesterov=True),
    "radam": optax.scale_by_radam,
    "lion": optax.scale_by_lion,
    "rmsprop": optax.scale_by_rms,
    "momentum": partial(optax.trace, decay=0.9),
    "sgd": optax.identity,
}
#: What these add to the size of slopes in double precision. The objective is as small as the squared gradient: beside
#: Optax's 1e-8, its slopes vanish where the ensemble is accurate, and later learners would hardly be trained. (In
#: single precision, slopes as small are mostly rounding.)
DAMPED, TINY = ("adam", "nadam"), 1e-20

SCHEDULES: dict[str, Callable[[int], optax.Schedule]] = {
    "onecycle": lambda steps: optax.cosine_onecycle_schedule(max(steps, 4), 1.0),
    "cosine": lambda steps: optax.cosine_decay_schedule(1.0, steps),
    "constant": lambda steps: optax.constant_schedule(1.0),
}

DEFAULT_STEP_SIZE = 0.03
#: The objective stalls when its means over two such runs of steps are alike.
STALL_STEPS = 10


class Training(eqx.Module):
    """Settings of weak-learner training. ``step_size`` and ``reg_theta`` may change without recompilation.

    Parameters
    ----------
    method : {"vp", "gd", "vp_start", "vp_end", "vp_start_end"}, default="vp"
        When the linear weights are solved for in closed form: at every step and at the end ("vp", variable projection),
        never ("gd"), before the first step, after the last, or both ("vp_start", "vp_end", "vp_start_end"). Where they
        are not solved for at every step, gradient descent moves them together with θ.
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
        Rows per θ step, about: as many random blocks of rows as come closest; by default all of them. Whatever it is, a
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
    tol : float, optional
        End training early, in the second half of the steps, when the objective falls by less than this part of itself
        (means over 10 steps). By default all steps are taken.
    sketch : int, optional
        With squared error, method "vp" and more outputs than this, θ is trained on so many combinations of the outputs
        (see :mod:`vpboost.core.sketch`), which makes many outputs affordable; w* is solved for on all of them.
    majorant : bool, default=False
        With multiclass cross-entropy and method "vp", train θ on a multiple of the identity that is nowhere below the
        Hessian, which costs the same for any number of classes (and may be sketched); w* is solved for with the Hessian
        itself at the end.
    cg_tol : float, default=1e-7
        The relative residual at which conjugate gradients, where they solve for w* at the end, stop.
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
    tol: float | Array | None = None
    sketch: int | None = eqx.field(static=True, default=None)
    majorant: bool = eqx.field(static=True, default=False)
    cg_tol: float | Array = 1e-7

    def __check_init__(self) -> None:
        check_one_of("method", self.method, METHODS)
        check_one_of("solver", self.solver, ("auto", "direct", "cg"))
        if isinstance(self.optimizer, str):
            check_one_of("optimizer", self.optimizer, OPTIMIZERS)
        elif not isinstance(self.optimizer, optax.GradientTransformation):
            raise TypeError(
                f"optimizer must be a name or an optax.GradientTransformation, got {type(self.optimizer).__name__}"
            )
        elif self.step_size is not None or self.schedule is not None:
            raise ValueError("step_size and schedule go with a named optimizer; an Optax object brings its own")
        if self.schedule is not None:
            check_one_of("schedule", self.schedule, SCHEDULES)
        if self.sketch is not None and self.method != "vp":
            raise ValueError(f"sketch goes with method='vp', got sketch={self.sketch!r} and method={self.method!r}")
        if not isinstance(self.majorant, bool):
            raise TypeError(f"majorant must be True or False, got {self.majorant!r}")
        if self.majorant and self.method != "vp":
            raise ValueError(f"majorant=True goes with method='vp', got method={self.method!r}")
        for name, least in (("max_steps", 0), ("batch_size", 1), ("candidates", 1), ("sketch", 2)):
            value = getattr(self, name)
            if name in ("batch_size", "sketch") and value is None:
                continue
            check_count(name, value, least)
        if self.step_size is not None and not 0 < self.step_size < float("inf"):
            raise ValueError(f"step_size must be positive and finite, got {self.step_size!r}")
        if not 0 <= self.reg_theta < float("inf"):
            raise ValueError(f"reg_theta must be non-negative and finite, got {self.reg_theta!r}")
        if not 0 < self.cg_tol < 1:
            raise ValueError(f"cg_tol must be in (0, 1), got {self.cg_tol!r}")
        if self.tol is not None and not 0 <= self.tol < 1:
            raise ValueError(f"tol must be in [0, 1) or None, got {self.tol!r}")
        if not 0 <= self.inherit < 1:
            raise ValueError(f"inherit must be in [0, 1), got {self.inherit!r}")

    @property
    def solves(self) -> Solves:
        """When the chosen method solves for the linear weights."""
        return METHODS[self.method]

    def optax(self, dtype: Any) -> optax.GradientTransformation:
        """Return the optimiser; the directions of a named one are to be multiplied by :meth:`step_sizes`."""
        if not isinstance(self.optimizer, str):
            return self.optimizer
        fine = self.optimizer in DAMPED and dtype == jnp.float64
        return OPTIMIZERS[self.optimizer](**({"eps": TINY} if fine else {}))

    def step_sizes(self) -> Float[Array, " steps"]:
        """Return the factor on the optimiser's direction at every step, sign included."""
        if not isinstance(self.optimizer, str):
            return jnp.ones(self.max_steps)
        step_size = DEFAULT_STEP_SIZE if self.step_size is None else self.step_size
        shape = SCHEDULES[self.schedule or "onecycle"](self.max_steps)
        return -step_size * jax.vmap(shape)(jnp.arange(self.max_steps))


class Trained(NamedTuple):
    """A trained weak learner: featurizer, linear weights, objective at every step."""

    featurizer: Any
    weights: Float[Array, "n k"]
    objective: Float[Array, " steps"]


@program
def train(
    key: PRNGKeyArray, featurizers: Any, x: Array, derivatives: Derivatives, reg: Array, training: Training
) -> Trained:
    """Train a population of featurizers (stacked along a first axis) and return the best learner.

    Its weights are those of the last step: the solve at the end is left to :func:`solve_at_end`.
    """
    arrays, structure = eqx.partition(featurizers, eqx.is_array)
    key = as_key(key)
    for_theta = seen_by_theta(key, derivatives, training)

    def one(key: PRNGKeyArray, arrays: Any) -> tuple[Any, Array, Array]:
        featurizer, weights, trace = descend(key, eqx.combine(arrays, structure), x, for_theta, reg, training)
        if for_theta.gradient is not derivatives.gradient:
            weights = jnp.zeros((weights.shape[0], derivatives.gradient.shape[-1]), weights.dtype)
        return eqx.filter(featurizer, eqx.is_array), weights, trace

    def final_objective(arrays: Any, weights: Array, trace: Array) -> Array:
        featurizer = eqx.combine(arrays, structure)
        summary = summarise(featurizer, x, derivatives, training.solver)
        weights = solve_at_end(weights, summary, derivatives, reg, training).weights
        model = jnp.sum(weights * summary.gradient) + 0.5 * summary.curvature_along(weights, derivatives)
        return model + penalty(eqx.filter(featurizer, eqx.is_inexact_array), weights, reg, training.reg_theta)

    keys = jax.random.split(key, training.candidates)
    if training.candidates == 1:
        arrays, *rest = one(keys[0], jax.tree.map(lambda leaf: leaf[0], arrays))
    else:
        population = jax.vmap(one)(keys, arrays)
        final = jax.vmap(final_objective)(*population)
        best = jnp.argmin(jnp.where(jnp.isnan(final), jnp.inf, final))
        arrays, *rest = jax.tree.map(lambda leaf: leaf[best], population)
    return Trained(eqx.combine(arrays, structure), *rest)


def as_key(words: Array | PRNGKeyArray) -> PRNGKeyArray:
    """Return the random key of two words; a key is one already."""
    if jax.dtypes.issubdtype(words.dtype, jax.dtypes.prng_key):
        return words
    return jax.random.wrap_key_data(words, impl="threefry2x32")


def seen_by_theta(key: PRNGKeyArray, derivatives: Derivatives, training: Training) -> Derivatives:
    """Return the derivatives that θ is trained on."""
    given = majorised(derivatives) if training.majorant else derivatives
    return compress(sketch_key(key), given, training.sketch)


def sketch_key(key: PRNGKeyArray) -> PRNGKeyArray:
    """Return the random key of a stage's sketch: ``split(key, n)[i]`` is ``fold_in(key, i)``, and no candidate is i."""
    return jax.random.fold_in(key, 0xFFFFFFFF)


def solve_at_end(
    weights: Array, summary: Summary, derivatives: Derivatives, reg: Array, training: Training
) -> Solution:
    """Return the weights of a trained learner, solved for on all rows if the method does so."""
    if training.solves.end:
        return summary.solve(derivatives, reg, weights, training.cg_tol)
    return Solution(weights, jnp.zeros((), weights.dtype), jnp.asarray(True))


def descend(
    key: PRNGKeyArray, featurizer: Any, x: Array, derivatives: Derivatives, reg: Array, training: Training
) -> tuple[Any, Array, Array]:
    """Run the optimiser from one initial featurizer; return it trained, with weights and the objective's trace."""
    theta, structure = eqx.partition(featurizer, eqx.is_inexact_array)
    n_features = feature_count(featurizer, x)
    key, weight_key = jax.random.split(key)
    bound, shape = 1 / n_features**0.5, (n_features, derivatives.gradient.shape[-1])
    weights = jax.random.uniform(weight_key, shape, derivatives.gradient.dtype, -bound, bound)
    draw = batches(key, x, derivatives, training)
    project = training.solves.every
    if project:
        weights = jnp.zeros_like(weights)  # only a first guess for the solver
    if training.solves.start:
        first, batch = draw(jnp.asarray(0))
        weights = summarise(featurizer, first, batch, training.solver).solve(batch, reg, weights).weights
    optimizer, solver = training.optax(weights.dtype), training.solver if project else None
    unflatten: Callable = lambda theta: theta  # noqa: E731
    if isinstance(training.optimizer, str) and jax.tree.leaves(
        theta
    ):  # knows nothing of layers: all parameters as one vector make short work
        theta, unflatten = ravel_pytree(theta)
    n_moving = 1 if project else 2

    def step(carry: tuple, now: tuple[Array, Array]) -> tuple[tuple, Array]:
        theta, weights, state = carry
        k, size = now
        rows, batch = draw(k)
        value, slopes, weights = value_and_slopes(
            theta, weights, lambda t: eqx.combine(unflatten(t), structure), rows, batch, reg, training.reg_theta, solver
        )
        moving = (theta, weights)[:n_moving]
        directions, state = optimizer.update(slopes[:n_moving], state, moving)
        updates = jax.tree.map(lambda direction: size.astype(direction.dtype) * direction, directions)
        moved: Any = optax.apply_updates(moving, updates)
        return (*moved, *(theta, weights)[n_moving:], state), value

    carry = (theta, weights, optimizer.init((theta, weights)[:n_moving]))
    series = jnp.arange(training.max_steps), training.step_sizes()
    if training.tol is None:
        (theta, weights, _), trace = jax.lax.scan(step, carry, series)
    else:
        (theta, weights, _), trace = until_stalled(step, carry, series, training.tol)
    return eqx.combine(unflatten(theta), structure), weights, trace


def until_stalled(step: Callable, carry: tuple, series: Any, tol: Array | float) -> tuple[Any, Array]:
    """Take steps as ``jax.lax.scan`` does until the objective stalls; NaN stands for the steps not taken.

    In the first half of the steps, where a one-cycle schedule begins with small steps, nothing counts as a stall.
    """
    max_steps = len(series[0])
    least = max(max_steps // 2, 2 * STALL_STEPS)
    if max_steps <= least:
        return jax.lax.scan(step, carry, series)

    def going_on(state: tuple) -> Array:
        k, _, trace = state
        recent = jax.lax.dynamic_slice(trace, (k - 2 * STALL_STEPS,), (2 * STALL_STEPS,))
        before, now = jnp.mean(recent[:STALL_STEPS]), jnp.mean(recent[STALL_STEPS:])
        stalled = (k >= least) & (before - now <= tol * jnp.abs(now))
        return (k < max_steps) & ~stalled

    def advance(state: tuple) -> tuple:
        k, carry, trace = state
        carry, value = step(carry, jax.tree.map(lambda leaf: jax.lax.dynamic_index_in_dim(leaf, k, 0, False), series))
        return k + 1, carry, jnp.where(jnp.arange(max_steps) == k, value, trace)  # no scatter, with several candidates

    empty = jnp.full(max_steps, jnp.nan, carry[1].dtype)
    _, carry, trace = jax.lax.while_loop(going_on, advance, (jnp.zeros((), int), carry, empty))
    return carry, trace


def blocks_of_batch(training: Training, n_blocks: int, block_rows: int) -> int | None:
    """Return the number of blocks that a step sees; None for all of them."""
    if training.batch_size is None or training.batch_size >= n_blocks * block_rows:
        return None
    return min(max(round(training.batch_size / block_rows), 1), n_blocks)


def batches(key: PRNGKeyArray, x: Array, derivatives: Derivatives, training: Training) -> Callable:
    """Return the function of k that gives the rows of step k: all of them, or random blocks.

    Blocks are drawn with replacement: that batches differ in the rows they see helps against overfitting. They are
    joined to one block, if not too long and all on one device; the weights of a batch sum to one.
    """
    n_blocks, block_rows = derivatives.weight.shape
    n = blocks_of_batch(training, n_blocks, block_rows)
    if n is None:
        return lambda k: (x, derivatives)
    joins = n * block_rows <= rows_per_block(x.dtype) and not n_devices()
    masses = known_everywhere(block_map(jnp.sum, derivatives.weight)) if n_devices() else None

    def draw(k: Array) -> tuple[Array, Derivatives]:
        chosen = draw_blocks(jax.random.fold_in(key, k), n, n_blocks)
        rows, batch = take_blocks((x, derivatives), chosen)
        if joins:
            rows = jnp.moveaxis(rows, 0, -2).reshape(1, *x.shape[1:-1], n * block_rows)
            batch = jax.tree.map(lambda leaf: leaf.reshape(1, n * block_rows, *leaf.shape[2:]), batch)
        total = jnp.sum(batch.weight if masses is None else masses[chosen])  # one message less
        total = jnp.maximum(total, jnp.finfo(batch.weight.dtype).tiny)
        return rows, batch._replace(weight=batch.weight / total)

    return draw
