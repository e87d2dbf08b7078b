"""Weak learners that are networks of dense layers, trained by C where that is the backend (see :mod:`vpboost.native`).

What most fits train is of one kind: dense layers, variable projection at every step, Adam, curvatures that are
multiples of the identity. For those, :mod:`vpboost.core.weak_learner`'s loop exists in C, which is faster.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from .. import native
from ..engine import is_array, is_native, program
from ..featurizers import MLP, Identity, SomeColumns, WithBias
from ..featurizers.activations import Activation
from ..featurizers.trees import WithTree
from ..losses.curvature import ScaledIdentity
from ..numerics.blocks import draw_blocks
from .objective import Summary
from .reduced import Derivatives, Reduced
from .weak_learner import TINY, Trained, Training, as_key, blocks_of_batch, seen_by_theta, train

#: Numbers that C keeps at the most; other backends compute features anew where there are more.
MOST_KEPT = 1 << 26


def train_learner(
    key: Any, featurizers: Any, x: Array, derivatives: Derivatives, reg: Array, training: Training
) -> Trained:
    """Do what :func:`vpboost.core.weak_learner.train` does, by C if that is the backend and knows such learners."""
    if is_native() and is_plain(training) and is_dense(featurizers) and x.ndim == 3 and fits(featurizers, x, training):
        gradient, curvature = weighted(key, derivatives, training)
        if curvature is not None:
            return train_dense(key, featurizers, x, derivatives, (gradient, curvature), reg, training)
    return train(key, featurizers, x, derivatives, reg, training)


def fits(featurizers: Any, x: Array, training: Training) -> bool:
    """Say whether there is room for what C keeps: the values of all units for all rows of a step."""
    n_blocks, _, block_rows = x.shape
    rows = (blocks_of_batch(training, n_blocks, block_rows) or n_blocks) * block_rows
    return rows * sum(bias.shape[-1] for bias in parameters_of(featurizers)[1::2]) <= MOST_KEPT


def is_plain(training: Any) -> bool:
    """Say whether training, or settings with the same names, are of the kind that C knows."""
    return (training.method, training.optimizer, training.candidates, training.tol) == ("vp", "adam", 1, None)


def is_dense(featurizer: Any) -> bool:
    """Say whether a featurizer is a network that C knows, with a constant feature."""
    if not isinstance(featurizer, WithBias):
        return False
    network = network_of(featurizer)
    known = (
        isinstance(getattr(network, "activation", None), Activation) and network.activation.name in native.ACTIVATIONS
    )
    return known and type(network) is MLP and not any(leaf is None for leaf in parameters_of(featurizer))


@partial(program, quick=np.inf)
def weighted(key: PRNGKeyArray, derivatives: Derivatives, training: Training) -> tuple[Array, Array | None]:
    """Return ω g, rows last, and ω s of what θ is trained on; None if H_i is not s_i I."""
    return rows_last(seen_by_theta(as_key(key), derivatives, training))


def rows_last(derivatives: Derivatives) -> tuple[Array, Array | None]:
    """Return ω g, rows last, and ω s; None if H_i is not s_i I."""
    weight, curvature = derivatives.weight, derivatives.curvature
    gradient = jnp.moveaxis(weight[..., None] * derivatives.gradient, -1, -2)
    if isinstance(curvature, ScaledIdentity):
        return gradient, weight * curvature.scale
    if gradient.shape[-2] == 1:
        return gradient, weight * curvature.diagonal()[..., 0]
    return gradient, None


@partial(program, quick=np.inf)
def drawn(key: PRNGKeyArray, n: int, n_blocks: int, n_steps: int) -> Array:
    """Return the blocks of each step's batch, those that :func:`vpboost.core.weak_learner.descend` draws."""
    key, _ = jax.random.split(jax.random.split(as_key(key), 1)[0])
    return jax.vmap(lambda k: draw_blocks(jax.random.fold_in(key, k), n, n_blocks))(jnp.arange(n_steps))


def train_dense(
    key: PRNGKeyArray,
    featurizers: Any,
    x: Array,
    derivatives: Derivatives,
    of_theta: tuple[Array, Array],
    reg: Array,
    training: Training,
) -> Trained:
    """Train the one featurizer of a population by C; ``of_theta`` are ω g and ω s."""
    featurizer = jax.tree.map(lambda leaf: leaf[0] if is_array(leaf) else leaf, featurizers)
    leaves = [np.asarray(leaf) for leaf in parameters_of(featurizer)]
    inputs, hidden = inputs_of(featurizer, np.asarray(x), bool(training.reg_theta))
    moving = [leaves[0] if hidden is None else leaves[0][:, ~hidden], *leaves[1:]]
    theta = np.concatenate([leaf.ravel() for leaf in moving])
    sizes = inputs.shape[1], *(len(bias) for bias in leaves[1::2])
    activation = network_of(featurizer).activation.name
    gradient, curvature = (np.ascontiguousarray(array) for array in of_theta)
    dense = native.Dense(sizes, activation, theta, np.ascontiguousarray(inputs), gradient, curvature)
    trace = native.train(dense, descent_of(key, np.asarray(derivatives.weight), reg, training))

    ends = np.cumsum([leaf.size for leaf in moving])[:-1]
    found = [part.reshape(leaf.shape) for part, leaf in zip(np.split(theta, ends), moving, strict=True)]
    if hidden is not None:
        found[0], moved = leaves[0].copy(), found[0]
        found[0][:, ~hidden] = moved
    weights = np.zeros((sizes[-1] + 1, derivatives.gradient.shape[-1]), theta.dtype)  # only a first guess
    made: Any = weights, trace  # of NumPy, as all that goes on there
    return Trained(with_parameters(featurizer, found), *made)


def with_parameters(featurizer: Any, found: list[np.ndarray]) -> Any:
    """Return a featurizer with other ``parameters_of`` it; ``eqx.tree_at`` would do the same, and take longer."""
    leaves, structure = jax.tree.flatten(featurizer)
    new = {id(old): leaf for old, leaf in zip(parameters_of(featurizer), found, strict=True)}
    return jax.tree.unflatten(structure, [new.get(id(leaf), leaf) for leaf in leaves])


def features_by_c(featurizer: Any, inputs: list[Any], known: Any = None) -> list[np.ndarray]:
    """Return the features of inputs in blocks, all of each in one block.

    Of the first, those without the leaves of a tree may be known.
    """
    network = network_for_c(featurizer, inputs[0].dtype)
    of_each = [None if known is None else np.asarray(known)[0], *[None] * (len(inputs) - 1)]
    return [native.features(network, np.ascontiguousarray(x), z)[None] for x, z in zip(inputs, of_each, strict=True)]


def network_for_c(featurizer: Any, dtype: Any) -> native.Network:
    """Return the network of a featurizer, and the tree beside it, for C; of stacked featurizers several, stacked."""
    tree, sees = parts_of(featurizer)
    leaves = [np.asarray(leaf, dtype) for leaf in parameters_of(featurizer)]
    stacked, n_inputs = leaves[0].shape[:-2], leaves[0].shape[-1]
    if isinstance(sees, SomeColumns):  # what is hidden counts for nothing, and the rest for more
        seen = np.asarray(sees.seen)
        scale = 1 / np.sqrt(np.mean(seen, axis=-1, keepdims=True))
        leaves[0] = leaves[0] * np.where(seen, scale, 0).astype(dtype)[..., None, :]
    asked = [np.zeros((*stacked, 0))] if tree is None else [np.asarray(tree.weight), np.asarray(tree.bias)]
    theta, questions = (
        np.concatenate([part.reshape(*stacked, -1) for part in parts], axis=-1).astype(dtype)
        for parts in (leaves, asked)
    )
    size = np.ones(stacked, dtype) if tree is None else np.asarray(tree.size, dtype)
    sizes = n_inputs, *(bias.shape[-1] for bias in leaves[1::2])
    return native.Network(sizes, network_of(featurizer).activation.name, theta, questions, size)


def summary_by_c(featurizer: Any, x: Array, derivatives: Derivatives, solver: str) -> Summary | None:
    """Do what :func:`vpboost.core.objective.summarise` does, by C; None if it does not know such sums."""
    if not (is_native() and isinstance(featurizer, Identity) and len(x) == 1) or solver == "cg":
        return None
    gradient, curvature = (None if part is None else np.asarray(part) for part in by_rows(derivatives))
    if gradient is None or curvature is None or not isinstance(x, np.ndarray):
        return None
    weight = np.asarray(derivatives.weight)
    hessian, slope = native.sums(x[0], np.ascontiguousarray(gradient[0]), curvature[0])
    alike = np.array_equal(curvature, weight)  # as of squared error
    covariance = hessian if alike else native.sums(x[0], np.empty((0, x.shape[2]), x.dtype), weight[0])[0]
    slope, hessian, covariance = (part.astype(x.dtype) for part in (slope, hessian[None], covariance))
    return Summary(slope, covariance, Reduced(slope, hessian))


@partial(program, quick=np.inf)
def by_rows(derivatives: Derivatives) -> tuple[Array, Array | None]:
    """Do what :func:`rows_last` does, as a program."""
    return rows_last(derivatives)


def parts_of(featurizer: Any) -> tuple[WithTree | None, Any]:
    """Return the tree within a featurizer with a constant feature, if there is one, and what stands beside it."""
    inner = featurizer.featurizer
    return (inner, inner.featurizer) if isinstance(inner, WithTree) else (None, inner)


def network_of(featurizer: Any) -> Any:
    """Return the network within a featurizer."""
    inner = parts_of(featurizer)[1]
    return inner.featurizer if isinstance(inner, SomeColumns) else inner


def parameters_of(featurizer: Any) -> list[Any]:
    """Return weights and biases of a featurizer's network, layer by layer."""
    return [leaf for layer in network_of(featurizer).layers for leaf in (layer.weight, layer.bias)]


def inputs_of(featurizer: Any, x: np.ndarray, decays: bool) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the inputs that a network sees, and which columns are hidden from it, and left out, if any are.

    Weights of hidden columns do not move, unless those of all columns decay.
    """
    if not isinstance(featurizer.featurizer, SomeColumns):
        return x, None
    seen = np.asarray(featurizer.featurizer.seen)
    if seen.all():
        return x, None
    scale = (1 / np.sqrt(np.mean(seen))).astype(x.dtype)
    if decays:
        return x * np.where(seen, scale, 0).astype(x.dtype)[:, None], None
    shown = np.take(x, np.flatnonzero(seen), axis=1)
    shown *= scale
    return shown, ~seen


def descent_of(key: PRNGKeyArray, weight: np.ndarray, reg: Array, training: Training) -> native.Descent:
    """Return the steps to take on rows of these weights."""
    n_blocks, block_rows = weight.shape
    n, steps = blocks_of_batch(training, n_blocks, block_rows), training.max_steps
    chosen, factors = None, np.ones(steps)
    if n is not None:
        chosen = np.asarray(drawn(key, n, n_blocks, steps)).astype(np.int64)
        masses = weight.sum(axis=1, dtype=np.float64)[chosen].sum(axis=1)
        factors = 1 / np.maximum(masses, np.finfo(weight.dtype).tiny)
    sizes = np.asarray(step_sizes(training), np.float64)
    damping = TINY if weight.dtype == np.float64 else 1e-8
    return native.Descent(sizes, factors, chosen, float(reg), float(training.reg_theta), damping)


@partial(program, quick=np.inf)
def step_sizes(training: Training) -> Array:
    """Return the factors on the optimiser's directions."""
    return training.step_sizes()
