"""Featurizers: smooth maps z_θ from one input x to a vector of features.

The protocol
------------
A *featurizer* is any Equinox module with ``__call__(x) -> features``, where ``x`` is one sample (any shape) and
``features`` is a 1-D array. Its floating-point arrays are θ, the trainable parameters. Everything else (sizes,
activation functions) is structure and must not depend on the random key.

A *factory* builds a fresh featurizer for each weak learner: any callable ``factory(key, rows) -> module``, where
``rows`` are some training inputs, ``(n_rows, *input_shape)``, from which it may take sizes, ranges or centres. The
classes here are factories themselves; give them options with :func:`functools.partial`. JAX compiles factories, so they
must treat ``key`` and ``rows`` with ``jax.numpy``, not NumPy.


>>> from functools import partial
>>> import jax, jax.numpy as jnp
>>> factory = partial(MLP, width=4, depth=2)
>>> module = factory(jax.random.key(0), jnp.zeros((10, 2)))
>>> module(jnp.zeros(2)).shape, count_parameters(module)
((4,), 52)

Your own is as simple:

>>> import equinox as eqx
>>> class Sines(eqx.Module):
...     frequency: jax.Array
...     def __init__(self, key, rows):
...         self.frequency = jax.random.normal(key, (8, rows.shape[1]))
...     def __call__(self, x):
...         return jnp.sin(self.frequency @ x)
>>> Sines(jax.random.key(0), jnp.zeros((10, 2)))(jnp.ones(2)).shape
(8,)

It may also have a method ``columns(x)`` from inputs side by side, ``(*input_shape, n_rows)``, to their features,
``(n_features, n_rows)``, such as ``jnp.sin(self.frequency @ x)`` here: it is then used instead, and is faster.
"""

from .activations import activation_function
from .base import (
    Factory,
    Identity,
    SomeColumns,
    WithBias,
    WithSlopes,
    columns,
    count_parameters,
    require_vector,
    with_bias,
)
from .bases import RBF, BSpline, Fourier
from .networks import MLP, ConvNet, ResNet
from .registry import KINDS, Kind, kind_of, named_factory, register, takes
from .trees import WithTree

__all__ = [
    "KINDS", "MLP", "RBF", "BSpline", "ConvNet", "Factory", "Fourier", "Identity", "Kind", "ResNet", "SomeColumns",
    "WithBias", "WithSlopes", "WithTree", "activation_function", "columns", "count_parameters", "kind_of",
    "named_factory", "register", "require_vector", "takes", "with_bias",
]  # fmt: skip
