"""Where the training of each stage's learner starts."""

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..engine import is_array, program, using
from ..featurizers import Factory, columns, require_vector, with_bias
from .ensemble import suits_numpy

#: How many stages' initial featurizers are built by one call of the factory.
STAGES_AT_ONCE = 16


def stack_of(factory: Factory, bias: bool, keys: Array, rows: Array) -> Any:
    """Build one featurizer per key, stacked along the keys' axes, from some training inputs."""
    make = with_bias(factory) if bias else factory
    population = eqx.filter_vmap(lambda k: make(k, rows))(keys.reshape(-1))
    arrays, structure = eqx.partition(population, eqx.is_array)

    def features_of_one(leaves: Any, x: Array) -> Array:
        return eqx.combine(leaves, structure)(x)

    def features_of_all(leaves: Any, x: Array) -> Array:
        return columns(eqx.combine(leaves, structure), x)

    first = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), arrays)
    one = require_vector(jax.eval_shape(features_of_one, first, rows[0]))
    side_by_side = jax.eval_shape(features_of_all, first, jnp.moveaxis(rows, 0, -1)).shape
    if side_by_side != (*one.shape, len(rows)):
        raise ValueError(
            "featurizer.columns must map inputs side by side to features side by side, here of shape "
            f"{(*one.shape, len(rows))}, got {side_by_side}"
        )
    return eqx.combine(jax.tree.map(lambda leaf: leaf.reshape(*keys.shape, *leaf.shape[1:]), arrays), structure)


@partial(program, quick=math.inf)
def initialise(factory: Factory, bias: bool, key: Array, rows: Array, candidates: int, stage: Any) -> tuple[Array, Any]:
    """Return the training keys and the initial featurizers of ``stage`` and the next few."""
    stages = stage + jnp.arange(STAGES_AT_ONCE)
    keys = jax.vmap(lambda s: jax.random.split(jax.random.fold_in(key, s)))(stages)
    population_keys = jax.vmap(lambda k: jax.random.split(k, candidates))(keys[:, 0])
    return keys[:, 1], stack_of(factory, bias, population_keys, rows)


def initial_populations(
    factory: Factory, bias: bool, key: Array, rows: Array, candidates: int, stage: int
) -> Iterator[tuple[np.ndarray, Any]]:
    """Yield the training key and the initial featurizers of ``stage`` and all that follow, made a few at a time.

    The key is told by its two words: to make one of them takes JAX a tenth of a millisecond.
    """
    factory = compared_by_value(factory)
    while True:
        given = factory, bias, key, rows, candidates, np.asarray(stage)
        try:
            with using("numpy"):  # random numbers take long to compile and no time to make
                keys, populations = initialise(*given)
        except RuntimeError:  # a factory of the user's that NumPy cannot carry out
            keys, populations = initialise(*given)
        # taken apart without JAX where possible: so little work is not worth a compiled program
        leaves, structure = jax.tree.flatten(populations)
        leaves = [np.asarray(leaf) if suits_numpy(leaf) else leaf for leaf in leaves]
        words = np.asarray(jax.random.key_data(keys))
        for i in range(STAGES_AT_ONCE):
            one = [leaf[i] if is_array(leaf) else leaf for leaf in leaves]
            yield words[i], jax.tree.unflatten(structure, one)
        stage += STAGES_AT_ONCE


def example(factory: Factory, bias: bool, rows: Array) -> Any:
    """Return one featurizer: the structure of all that the factory builds."""
    _, populations = initialise(compared_by_value(factory), bias, jax.random.key(0), rows, 1, np.asarray(0))
    return jax.tree.map(lambda leaf: leaf[0, 0] if eqx.is_array(leaf) else leaf, populations)


def compared_by_value(factory: Any) -> Any:
    """Return ``functools.partial`` objects as trees of their arguments, so that a later fit finds compiled programs."""
    if isinstance(factory, np.generic):
        return factory.item()  # a size, which must not be traced
    if not isinstance(factory, partial):
        return factory
    options = {name: compared_by_value(value) for name, value in factory.keywords.items()}
    return jax.tree_util.Partial(factory.func, *factory.args, **options)


def blend(last: Any, fresh: Any, inherit: float | Array) -> Any:
    """Return featurizers between the last accepted one (``inherit`` = 1) and fresh ones (``inherit`` = 0)."""
    part = float(inherit)

    def mix(old: Any, new: Any) -> Any:
        if not eqx.is_inexact_array(new):
            return new
        return (part * np.asarray(old) + (1 - part) * np.asarray(new)).astype(new.dtype)

    return jax.tree.map(mix, last, fresh)
