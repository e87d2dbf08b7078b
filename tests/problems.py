"""Small random reduced problems, as plain arrays and in blocks."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from vpboost.core.reduced import Derivatives
from vpboost.featurizers import columns
from vpboost.losses.curvature import Dense, Diagonal, ScaledIdentity, Softmax
from vpboost.numerics.blocks import Layout, block_map, block_sum

STRUCTURES = ("identity", "diagonal", "softmax", "dense")


def random_problem(structure, n_rows=23, n_features=4, n_outputs=3, seed=0, block_rows=7):
    """Features, derivatives (in blocks, float64 under x64), and the plain arrays weight, gradient, Hessians."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(n_rows, n_features))
    weight = rng.uniform(0.2, 2, size=n_rows)
    gradient = rng.normal(size=(n_rows, n_outputs))
    if structure == "identity":
        curvature = ScaledIdentity(jnp.asarray(rng.uniform(0.1, 2, size=n_rows)), n_outputs)
    elif structure == "diagonal":
        curvature = Diagonal(jnp.asarray(rng.uniform(0.1, 2, size=(n_rows, n_outputs))))
    elif structure == "softmax":
        curvature = Softmax(jnp.asarray(rng.dirichlet(np.ones(n_outputs), size=n_rows)))
        gradient -= gradient.mean(axis=1, keepdims=True)  # as of every softmax: nothing along the null space of H_i
    else:
        half = rng.normal(size=(n_rows, n_outputs, n_outputs))
        curvature = Dense(jnp.asarray(half @ half.transpose(0, 2, 1)))
    plain = weight / weight.sum(), gradient, np.asarray(curvature.matrix())
    layout = Layout.for_rows(n_rows, block_rows)
    blocked = type(curvature)(
        *(jnp.asarray(layout.split(leaf)) for leaf in vars(curvature).values() if hasattr(leaf, "shape")),
        *([n_outputs] if structure == "identity" else []),
    )
    derivatives = Derivatives(jnp.asarray(layout.split_weights(weight)), jnp.asarray(layout.split(gradient)), blocked)
    return jnp.asarray(layout.split_inputs(features, float)), derivatives, features, plain


@eqx.filter_jit
def featurize(featurizer, x):
    """The features of inputs in blocks."""
    return block_map(partial(columns, featurizer), x)


@jax.jit
def quadratic_model(weights, features, derivatives):
    """Q(w, θ) − Q(0, θ) over all blocks."""

    def one_block(z, d):
        step = z.T @ weights
        return jnp.sum(d.weight * jnp.sum(step * (d.gradient + 0.5 * d.curvature.apply(step)), axis=1))

    return block_sum(one_block, features, derivatives)
