"""What all featurizers share: the factory protocol, the bias feature, columns left out."""

import abc
from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

#: Builds a fresh featurizer from a random key and some training inputs, ``factory(key, rows) -> module``.
Factory = Callable[[PRNGKeyArray, Array], Any]


def columns(featurizer: Any, x: Float[Array, "*shape rows"]) -> Float[Array, "n rows"]:
    """Return the features of inputs side by side, the rows of the data last."""
    if callable(getattr(featurizer, "columns", None)):
        return featurizer.columns(x)
    return jax.vmap(featurizer, in_axes=-1, out_axes=-1)(x)


class ByColumns(eqx.Module):
    """A featurizer that is written for many inputs side by side, which is faster than mapping it over single ones."""

    @abc.abstractmethod
    def columns(self, x: Float[Array, "*shape rows"]) -> Float[Array, "n rows"]:
        """Return the features of inputs side by side."""

    def __call__(self, x: Array) -> Float[Array, " n"]:
        """Return the features of one input."""
        return self.columns(x[..., None])[:, 0]


def flat(x: Float[Array, "*shape rows"]) -> Float[Array, "d rows"]:
    """Return inputs of any shape as vectors."""
    return x.reshape(-1, x.shape[-1])


class Identity(ByColumns):
    """The featurizer of inputs that are features already."""

    def columns(self, x: Float[Array, "n rows"]) -> Float[Array, "n rows"]:
        """Return the inputs."""
        return x


class WithBias(eqx.Module):
    """A featurizer with one more feature that is always 1."""

    featurizer: Callable

    def __call__(self, x: Array) -> Float[Array, " n"]:
        """Return the features of ``x`` and a final 1."""
        features = require_vector(self.featurizer(x))
        return jnp.concatenate([features, jnp.ones(1, features.dtype)])

    def columns(self, x: Float[Array, "*shape rows"]) -> Float[Array, "n rows"]:
        """Return the features of inputs side by side."""
        features = columns(self.featurizer, x)
        return jnp.concatenate([features, jnp.ones((1, x.shape[-1]), features.dtype)])


class WithSlopes(ByColumns):
    """A featurizer of inputs [x, v]: its features at x where v is zero, else their slopes along v.

    >>> module = WithSlopes(jnp.sin)
    >>> module(jnp.array([0.0, 0.0])), module(jnp.array([0.0, 2.0]))
    (Array([0.], dtype=float32), Array([2.], dtype=float32))
    """

    featurizer: Callable

    def columns(self, x: Float[Array, "2d rows"]) -> Float[Array, "n rows"]:
        """Return the features of inputs side by side."""
        half = x.shape[0] // 2
        at, along = x[:half], x[half:]
        features, slopes = jax.jvp(partial(columns, self.featurizer), (at,), (along,))
        return jnp.where(jnp.any(along != 0, axis=0), slopes, features)


class SomeColumns(ByColumns):
    """A featurizer that sees a random part of the columns; the others read zero.

    Learners that look at different columns err in different ways, which helps on small and noisy tables.

    Parameters
    ----------
    key, rows
        The random key and some training inputs, one row each.
    factory : callable
        Builds the featurizer.
    fraction : float
        Part of the columns seen, at least one.
    groups : tuple of int, optional
        Number of the input that each column encodes, 0 ... G−1: columns of one input are seen or hidden together.
    """

    featurizer: Callable
    seen: Bool[Array, " d"]

    def __init__(
        self,
        key: PRNGKeyArray,
        rows: Array,
        *,
        factory: Factory,
        fraction: float | Array,
        groups: tuple[int, ...] | None = None,
    ):
        if rows.ndim != 2:
            raise ValueError(f"SomeColumns needs a table, one row per sample, got inputs of shape {rows.shape[1:]}")
        inner_key, order_key = jax.random.split(key)
        self.featurizer = factory(inner_key, rows)
        group = np.arange(rows.shape[1]) if groups is None else np.asarray(groups)
        n_groups = int(group.max()) + 1
        lot = jax.random.uniform(order_key, (n_groups,))
        place = jnp.sum(lot < lot[:, None], axis=1)  # a random order; sorting would take long to compile
        self.seen = (place < jnp.maximum(jnp.round(fraction * n_groups), 1))[group]

    def columns(self, x: Float[Array, "d rows"]) -> Float[Array, "n rows"]:
        """Return the features of inputs side by side, what is seen scaled up to the size of a whole input."""
        seen = jnp.where(self.seen[:, None], x, 0) / jnp.sqrt(jnp.mean(self.seen, dtype=x.dtype))
        return columns(self.featurizer, seen)


def require_vector(features: Any) -> Any:
    """Return a featurizer's output, or its abstract shape, if it is a non-empty vector; raise ``ValueError`` if not."""
    shape = getattr(features, "shape", None)
    if shape is None or len(shape) != 1 or shape[0] == 0:
        what = type(features).__name__ if shape is None else f"shape {shape}"
        raise ValueError(f"featurizer must map one input to a non-empty 1-D array of features, got {what}")
    return features


def with_bias(factory: Factory) -> Factory:
    """Return a factory of the same featurizers with a bias feature."""

    def make(key: PRNGKeyArray, rows: Array) -> WithBias:
        return WithBias(factory(key, rows))

    return make


def count_parameters(featurizer: Any) -> int:
    """Return n_θ, the number of trainable parameters of a featurizer."""
    return sum(leaf.size for leaf in jax.tree.leaves(eqx.filter(featurizer, eqx.is_inexact_array)))
