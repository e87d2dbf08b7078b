"""A neural booster in the manner of GrowNet: each learner also sees the hidden features of the one before.

A stage has two parts, both with Adam: the new learner is fitted to the quadratic model of the loss around the ensemble;
then, in the corrective step, all learners and their boosting rates are trained together on the loss itself. Learners
are fully connected networks with two hidden layers, as wide as matches the ensemble's capacity; images are flattened.
"""

import time
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array

from vpboost import Loss

from .data import Parts
from .networks import capacity, targets
from .problems import Problem
from .protocol import Config, Fitted, Method, Point, always, between

#: Learning rate, and weight of ½‖·‖² of all parameters.
SPACE = {"step_size": between(1e-4, 0.1), "reg_lambda": between(1e-9, 1e-2)}
#: Boosting rate before it is trained.
FIRST_RATE = 1.0
#: The corrective step takes one in so many of a learner's optimiser steps.
CORRECTION = 2


class Learners(NamedTuple):
    """All learners stacked along their first axis, and their boosting rates."""

    first: Array  #: (M, width, inputs + width)
    first_bias: Array
    second: Array  #: (M, width, width)
    second_bias: Array
    last: Array  #: (M, width, K)
    last_bias: Array
    rate: Array  #: (M,)


def width_for(n_inputs: int, n_outputs: int, n_learners: int, wanted: int) -> int:
    """Return the width at which so many learners have about the wanted number of parameters."""

    def size(width: int) -> int:
        own = (n_inputs + width + 1) * width + (width + 1) * width + (width + 1) * n_outputs
        return n_learners * own - width * width

    return min(range(1, 400), key=lambda width: abs(size(width) - wanted))


def initial(key: Array, n_learners: int, n_inputs: int, width: int, n_outputs: int, scale: float = 1.0) -> Learners:
    """Return random learners."""
    shapes = ((width, n_inputs + width), (width, width), (width, n_outputs))
    fans = (n_inputs + width, width, width)
    draws = [
        jax.random.uniform(k, (n_learners, *shape), jnp.float32, -1, 1) * (scale * fan**-0.5)
        for k, shape, fan in zip(jax.random.split(key, 3), shapes, fans, strict=True)
    ]
    zeros = [jnp.zeros((n_learners, n)) for n in (width, width, n_outputs)]
    pairs = [array for pair in zip(draws, zeros, strict=True) for array in pair]
    return Learners._make([*pairs, jnp.full(n_learners, FIRST_RATE)])


def hidden_and_output(learner: Learners, x: Array, hidden: Array) -> tuple[Array, Array]:
    """Return the hidden features and the output of one learner, given the hidden features of the one before."""
    inside = jnp.tanh(jnp.concatenate([x, hidden], axis=1) @ learner.first.T + learner.first_bias)
    hidden = jnp.tanh(inside @ learner.second.T + learner.second_bias)
    return hidden, hidden @ learner.last + learner.last_bias


@jax.jit
def predict(learners: Learners, constant: Array, x: Array) -> tuple[Array, Array]:
    """Return the last learner's hidden features and the raw predictions of all."""

    def add(carry: tuple[Array, Array], learner: Learners) -> tuple[tuple[Array, Array], None]:
        hidden, output = hidden_and_output(learner, x, carry[0])
        return (hidden, carry[1] + learner.rate * output), None

    none = jnp.zeros((len(x), learners.second.shape[-1]), x.dtype)
    start = jnp.broadcast_to(constant, (len(x), len(constant)))
    return jax.lax.scan(add, (none, start), learners)[0]


@partial(jax.jit, static_argnames=("objective", "n_steps", "batch_size"))
def descend(
    learners: Learners,
    objective: Any,
    loss: Loss,
    reg: Array,
    step_size: Array,
    data: tuple[Array, ...],
    key: Array,
    n_steps: int,
    batch_size: int | None,
) -> Learners:
    """Take Adam steps on an objective of the learners and the data."""
    schedule = optax.cosine_onecycle_schedule(max(n_steps, 4), 1.0)
    optimizer = optax.chain(optax.scale_by_adam(), optax.scale_by_schedule(lambda k: -step_size * schedule(k)))
    n_rows = len(data[0])

    def penalised(learners: Learners, data: tuple) -> Array:
        return objective(learners, loss, data) + 0.5 * reg * sum(jnp.sum(array**2) for array in learners[:-1])

    def one(carry: tuple, key: Array) -> tuple[tuple, None]:
        learners, memory = carry
        batch = data
        if batch_size is not None and batch_size < n_rows:
            chosen = jax.random.randint(key, (batch_size,), 0, n_rows)
            batch = tuple(array[chosen] for array in data)
        updates, memory = optimizer.update(jax.grad(penalised)(learners, batch), memory)
        return (optax.apply_updates(learners, updates), memory), None

    return jax.lax.scan(one, (learners, optimizer.init(learners)), jax.random.split(key, n_steps))[0][0]


def quadratic_model(learner: Learners, loss: Loss, data: tuple) -> Array:
    """Return the quadratic model of the loss around the ensemble, at the output of a new learner."""
    x, y, hidden, before = data
    step = hidden_and_output(learner, x, hidden)[1]
    bent = loss.gradient(before, y) + 0.5 * loss.curvature(before, y).apply(step)
    return jnp.mean(jnp.sum(step * bent, axis=1))


def true_loss(learners: Learners, loss: Loss, data: tuple) -> Array:
    """Return the loss of all learners together."""
    x, y, constant = data
    return jnp.mean(loss.value(predict(learners, constant[0], x)[1], y))


def fit(problem: Problem, parts: Parts, config: Config, seed: int) -> Fitted:
    """Boost; the stage with the lowest validation loss is kept."""
    began, loss, n_outputs = time.perf_counter(), problem.loss, problem.n_outputs(parts)
    x, x_val = table(parts.x_train), table(parts.x_val)
    y, y_val = targets(loss, parts.y_train), targets(loss, parts.y_val)
    wanted = problem.n_learners * capacity(problem, problem.width, parts.x_train.shape[1:], n_outputs)
    width = width_for(x.shape[1], n_outputs, problem.n_learners, wanted)
    key = jax.random.key(seed)
    fresh = initial(key, problem.n_learners, x.shape[1], width, n_outputs, problem.weight_scale or 1.0)
    constant = loss.best_constant(y[None], jnp.full((1, len(y)), 1 / len(y), jnp.float32))
    settings = loss, jnp.float32(config["reg_lambda"]), jnp.float32(config["step_size"])
    learners, factor = first(fresh, 0), problem.loss_factor(n_outputs)
    curve: list[Point] = []
    best, best_loss = learners, np.inf
    for stage in range(problem.n_learners):
        key, one, two = jax.random.split(key, 3)
        new = jax.tree.map(lambda array, stage=stage: array[stage], fresh)
        data = (x, y, *predict(learners, constant, x))
        new = descend(new, quadratic_model, *settings, data, one, problem.max_steps, problem.batch_size)
        learners = jax.tree.map(lambda old, added: jnp.concatenate([old, added[None]]), learners, new)
        data = (x, y, jnp.broadcast_to(constant, (len(x), n_outputs)))
        n_steps = problem.max_steps // CORRECTION
        learners = descend(learners, true_loss, *settings, data, two, n_steps, problem.batch_size)
        losses = [
            factor * float(true_loss(learners, loss, (r, t, constant[None]))) for r, t in ((x, y), (x_val, y_val))
        ]
        if losses[1] < best_loss:
            best, best_loss = learners, losses[1]
        curve.append(Point(stage + 1, time.perf_counter() - began, *losses))
    parameters = sum(array.size for array in learners) - width * width
    seconds = time.perf_counter() - began
    return Fitted(lambda rows: np.asarray(predict(best, constant, table(rows))[1]), seconds, parameters, curve)


def first(learners: Learners, n: int) -> Learners:
    """Return the first learners."""
    return jax.tree.map(lambda array: array[:n], learners)


def table(x: np.ndarray) -> Array:
    """Return inputs as a table."""
    return jnp.asarray(x.reshape(len(x), -1), jnp.float32)


METHODS = [Method("grownet", "GrowNet-style", always(SPACE), fit)]
