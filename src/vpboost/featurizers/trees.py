"""Leaves of soft trees as features: for responses that jump, where networks alone need many learners."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from .base import ByColumns, Factory, WithBias, columns, flat

#: Levels of a tree at the most.
DEEPEST = 8


class WithTree(ByColumns):
    """A featurizer beside the leaves of a soft tree.

    All nodes of a level of the tree ask the same question, answered by a number in (0, 1): the gate σ(v·x + b). A leaf
    is a product of gates or of what they lack to one, so that leaves are smooth in x and add up to ``size``. Questions
    are found greedily by :mod:`vpboost.core.trees`, where v asks about one column; their weights, like all others, are
    solved for in closed form.

    Attributes
    ----------
    featurizer : the featurizer, whose features come first.
    weight, bias : v and b of each level, shapes ``(depth, d)`` and ``(depth,)``.
    size : how large leaves are, and so how little λ_w holds their weights back.

    >>> tree = WithTree(lambda x: x, jnp.array([[9.0], [0.0]]), jnp.array([0.0, 99.0]), jnp.array(2.0))
    >>> np.asarray(tree(jnp.array([1.0]))).round(2).tolist()  # beyond zero; the second question is always answered by 1
    [1.0, 0.0, 0.0, 0.0, 2.0]
    """

    featurizer: Callable
    weight: Float[Array, "depth d"]
    bias: Float[Array, " depth"]
    size: Float[Array, ""]

    def columns(self, x: Float[Array, "*shape rows"]) -> Float[Array, "n rows"]:
        """Return the features of inputs side by side."""
        gates = jax.nn.sigmoid(self.weight @ flat(x) + self.bias[:, None])
        leaves = jnp.broadcast_to(self.size, (1, x.shape[-1]))
        for level in range(self.bias.shape[0]):
            gate = gates[level]
            leaves = jnp.concatenate([leaves * (1 - gate), leaves * gate])
        return jnp.concatenate([columns(self.featurizer, x), leaves])


def untrained_tree(key: PRNGKeyArray, rows: Array, *, factory: Factory, depth: int) -> WithTree:
    """Return a fresh featurizer beside a tree that asks nothing yet."""
    bias = jnp.zeros(depth, rows.dtype)
    weight = jnp.zeros((depth, int(np.prod(rows.shape[1:]))), rows.dtype)
    return WithTree(factory(key, rows), weight, bias, jnp.ones((), rows.dtype))


def planted(featurizer: Any, weight: Any, bias: Any, size: Any) -> Any:
    """Return a featurizer with a tree beside it; a bias feature stays the last one."""
    if isinstance(featurizer, WithBias):
        return WithBias(planted(featurizer.featurizer, weight, bias, size))
    return WithTree(featurizer, weight, bias, size)


def without_tree(featurizer: Any) -> Any:
    """Return the featurizer beside which a tree was planted, if one was."""
    if isinstance(featurizer, WithBias):
        return WithBias(without_tree(featurizer.featurizer))
    return featurizer.featurizer if isinstance(featurizer, WithTree) else featurizer


def onnx_leaves(graph: Any, x: str, theta: dict[str, np.ndarray]) -> str:
    """Return the leaves of M stacked trees in an ONNX graph, ``(M, 2^depth, rows)``."""
    asked = graph("MatMul", graph.constant(theta["weight"]), x)
    gates = graph("Sigmoid", graph("Add", asked, graph.constant(theta["bias"][..., None])))
    leaves = graph.constant(theta["size"][:, None, None])
    for level in range(theta["bias"].shape[-1]):
        gate = graph("Gather", gates, graph.constant([level], "int64"), axis=1)
        lacking = graph("Sub", graph.constant(1.0), gate)
        leaves = graph("Concat", graph("Mul", leaves, lacking), graph("Mul", leaves, gate), axis=1)
    return leaves
