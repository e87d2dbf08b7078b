"""Full networks of the ensemble's capacity on the true loss, with and without variable projection.

With squared error the linear weights are solved for in closed form at every step; with cross-entropies by damped Newton
steps on the convex problem that is left when the features are fixed, warm-started from the step before.
"""

import time
from functools import cache, partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array

from vpboost import Loss, SquaredError
from vpboost.core.refit import Linear
from vpboost.featurizers import Identity, columns, count_parameters, with_bias

from .data import Parts
from .problems import Problem
from .protocol import Config, Fitted, Method, Point, Space, between

#: How often the losses are recorded; the best record is kept.
RECORDS = 20
#: Newton steps at every gradient evaluation, and before the first one.
NEWTON_STEPS, FIRST_NEWTON_STEPS = 2, 15
#: Relative residual and most steps of conjugate gradients, where the Newton system is too large to factor.
CG = (1e-5, 20)


def space(problem: Problem) -> Space:
    """Learning rate and weight of the penalty on the linear weights."""
    return {"step_size": between(1e-4, 0.2), "reg_lambda": between(1e-9, 0.1 * problem.largest_lambda)}


class Network(NamedTuple):
    """A featurizer, its linear weights and the constant in front."""

    module: Any
    weights: Array
    constant: Array

    def predict(self, x: Array) -> Array:
        """Return raw predictions for inputs side by side."""
        return predict(self.module, self.weights, self.constant, x)


@eqx.filter_jit
def predict(module: Any, weights: Array, constant: Array, x: Array) -> Array:
    """Return raw predictions for inputs side by side."""
    return constant + columns(module, x).T @ weights


def factory(problem: Problem, width: int) -> Any:
    """Return the maker of a featurizer of that width, with the problem's bias."""
    return with_bias(problem.learner(width)) if problem.bias else problem.learner(width)


@cache
def capacity(problem: Problem, width: int, input_shape: tuple[int, ...], n_outputs: int) -> int:
    """Return the number of parameters of a network of that width, its linear map included."""
    shape = jax.ShapeDtypeStruct((2, *input_shape), jnp.float32)
    module = eqx.filter_eval_shape(factory(problem, width), jax.random.key(0), shape)
    inputs = jax.ShapeDtypeStruct((*input_shape, 1), jnp.float32)
    n_features = eqx.filter_eval_shape(columns, module, inputs).shape[0]
    theta = sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(module) if hasattr(leaf, "shape"))
    return theta + n_features * n_outputs


def matched_width(problem: Problem, input_shape: tuple[int, ...], n_outputs: int) -> int:
    """Return the width at which one network has about as many parameters as the ensemble."""
    size = partial(capacity, problem, input_shape=input_shape, n_outputs=n_outputs)
    wanted = problem.n_learners * size(problem.width)
    width = problem.width
    while size(width + 1) <= wanted:
        width += 1
    return min(width, width + 1, key=lambda width: abs(size(width) - wanted))


def newton(loss: Loss, z: Array, target: Array, constant: Array, weights: Array, reg: Array, steps: int) -> Array:
    """Return linear weights nearer to the minimum of the mean loss + ½λ‖w‖² for fixed features ``z`` (n × rows)."""
    share = jnp.full((1, z.shape[1]), 1 / z.shape[1], z.dtype)
    problem = Linear(Identity(), z[None], target[None], share, loss, constant, reg)
    if isinstance(loss, SquaredError):
        return weights + problem.newton(weights, problem.outputs(weights), CG)  # in closed form
    return problem.solve(weights, steps, CG)


class Trainer(eqx.Module):
    """Adam with a one-cycle schedule on the featurizer, and on the linear weights too unless they are projected out."""

    loss: Loss
    project: bool = eqx.field(static=True)
    total_steps: int = eqx.field(static=True)
    batch_size: int | None = eqx.field(static=True)

    def optimizer(self, step_size: Array) -> optax.GradientTransformation:
        """Return the optimiser."""
        shape = optax.cosine_onecycle_schedule(max(self.total_steps, 4), 1.0)
        return optax.chain(optax.scale_by_adam(), optax.scale_by_schedule(lambda k: -step_size * shape(k)))

    def moving(self, theta: Any, weights: Array) -> tuple:
        """Return what the optimiser moves."""
        return (theta,) if self.project else (theta, weights)

    @eqx.filter_jit
    def steps(
        self, network: Network, memory: Any, key: Array, x: Array, y: Array, step_size: Array, reg: Array, n: int
    ) -> tuple[Network, Any]:
        """Take n steps."""
        theta, structure = eqx.partition(network.module, eqx.is_inexact_array)
        constant, optimizer = network.constant, self.optimizer(step_size)

        def features(theta: Any, rows: Array) -> Array:
            return columns(eqx.combine(theta, structure), rows)

        def objective(moving: tuple, weights: Array, rows: Array, target: Array) -> Array:
            w = weights if self.project else moving[1]
            prediction = constant + features(moving[0], rows).T @ w
            return jnp.mean(self.loss.value(prediction, target)) + 0.5 * reg * jnp.sum(w**2)

        def one(carry: tuple, key: Array) -> tuple[tuple, None]:
            theta, weights, memory = carry
            rows, target = x, y
            if self.batch_size is not None and self.batch_size < len(y):
                chosen = jax.random.randint(key, (self.batch_size,), 0, len(y))
                rows, target = x[..., chosen], y[chosen]
            if self.project:
                weights = newton(self.loss, features(theta, rows), target, constant, weights, reg, NEWTON_STEPS)
            moving = self.moving(theta, weights)
            slopes = jax.grad(objective)(moving, weights, rows, target)
            updates, memory = optimizer.update(slopes, memory, moving)
            moved = optax.apply_updates(moving, updates)
            return (moved[0], weights if self.project else moved[1], memory), None

        keys = jax.random.split(key, n)
        (theta, weights, memory), _ = jax.lax.scan(one, (theta, network.weights, memory), keys)
        return Network(eqx.combine(theta, structure), weights, constant), memory

    @eqx.filter_jit
    def settled(self, network: Network, x: Array, y: Array, reg: Array) -> Network:
        """Return the network with its linear weights solved for on all rows, if they are projected out."""
        if not self.project:
            return network
        z = columns(network.module, x)
        weights = newton(self.loss, z, y, network.constant, network.weights, reg, FIRST_NEWTON_STEPS)
        return network._replace(weights=weights)


def side_by_side(x: np.ndarray) -> Array:
    """Return inputs with the rows last."""
    return jnp.asarray(np.moveaxis(x, 0, -1), jnp.float32)


def targets(loss: Loss, y: np.ndarray) -> Array:
    """Return targets as the loss works on them."""
    prepared = loss.prepare_targets(y)
    return jnp.asarray(prepared, jnp.int32 if prepared.dtype.kind == "i" else jnp.float32)


def start(problem: Problem, parts: Parts, y: Array, seed: int) -> Network:
    """Return the network before training: fresh features, random linear weights, the best constant."""
    key, n_outputs = jax.random.key(seed), problem.n_outputs(parts)
    make = factory(problem, matched_width(problem, parts.x_train.shape[1:], n_outputs))
    module = make(key, jnp.asarray(parts.x_train[:512], jnp.float32))
    n_features = columns(module, side_by_side(parts.x_train[:1])).shape[0]
    bound = n_features**-0.5
    weights = jax.random.uniform(jax.random.fold_in(key, 1), (n_features, n_outputs), jnp.float32, -bound, bound)
    constant = problem.loss.best_constant(y[None], jnp.full((1, len(y)), 1 / len(y), jnp.float32))
    return Network(module, weights, constant)


def fit(problem: Problem, parts: Parts, config: Config, seed: int, project: bool, as_long_as_ensemble: bool) -> Fitted:
    """Train for as many steps as one learner (the paper) or all learners together take; keep the best record."""
    began = time.perf_counter()
    y, y_val = targets(problem.loss, parts.y_train), targets(problem.loss, parts.y_val)
    x, x_val = side_by_side(parts.x_train), side_by_side(parts.x_val)
    reg, step_size = jnp.float32(config["reg_lambda"]), jnp.float32(config["step_size"])
    total = problem.max_steps * (problem.n_learners if as_long_as_ensemble else 1)
    chunk = max(total // RECORDS, 1)
    total -= total % chunk
    trainer = Trainer(problem.loss, project, total, problem.batch_size)
    network = trainer.settled(start(problem, parts, y, seed), x, y, reg)
    theta = eqx.filter(network.module, eqx.is_inexact_array)
    memory = trainer.optimizer(step_size).init(trainer.moving(theta, network.weights))
    factor = problem.loss_factor(problem.n_outputs(parts))

    def loss(network: Network, x: Array, y: Array) -> float:
        return factor * float(jnp.mean(problem.loss.value(network.predict(x), y)))

    curve: list[Point] = []
    best, best_loss = network, np.inf
    for done in range(chunk, total + 1, chunk):
        key = jax.random.fold_in(jax.random.key(seed), done)
        network, memory = trainer.steps(network, memory, key, x, y, step_size, reg, chunk)
        shown = trainer.settled(network, x, y, reg)
        point = Point(done, time.perf_counter() - began, loss(shown, x, y), loss(shown, x_val, y_val))
        if point.validation < best_loss:
            best, best_loss = shown, point.validation
        curve.append(point)
    parameters = count_parameters(network.module) + network.weights.size
    seconds = time.perf_counter() - began
    return Fitted(lambda rows: np.asarray(best.predict(side_by_side(rows))), seconds, parameters, curve)


METHODS = [
    Method(
        f"network{'_vp' if project else ''}{'_long' if long else ''}",
        f"Full NN{'+VP' if project else ''}{', all steps' if long else ''}",
        space,
        partial(fit, project=project, as_long_as_ensemble=long),
    )
    for long in (False, True)
    for project in (False, True)
]
