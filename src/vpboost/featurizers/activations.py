"""Activations by name, for JAX and for ONNX; those for NumPy are in :mod:`vpboost.predictor`."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array


class Forms(NamedTuple):
    """An activation as a function of JAX, and as operations of an ONNX graph."""

    jax: Callable[[Array], Array]
    onnx: Callable[[Any, str], str]


class Activation(eqx.Module):
    """An activation by name. Unlike JAX's own functions it can be pickled and compared."""

    name: str = eqx.field(static=True)

    def __call__(self, x: Array) -> Array:
        """Apply the activation elementwise."""
        return ACTIVATIONS[self.name].jax(x)


def activation_function(activation: str | Callable[[Array], Array]) -> Callable[[Array], Array]:
    """Return the activation of that name; a function is returned as it is."""
    if callable(activation):
        return activation
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation must be a function or one of {sorted(ACTIVATIONS)}, got {activation!r}")
    return Activation(activation)


def gelu(graph: Any, x: str) -> str:
    """Return ½x(1 + tanh(√(2/π)(x + 0.044715x³))) in ONNX."""
    cube = graph("Mul", graph("Mul", x, x), graph("Mul", x, graph.constant(0.044715)))
    inside = graph("Tanh", graph("Mul", graph("Add", x, cube), graph.constant(np.sqrt(2 / np.pi))))
    half = graph("Mul", x, graph.constant(0.5))
    return graph("Add", half, graph("Mul", half, inside))


def softplus(graph: Any, x: str) -> str:
    """Return log(1 + eˣ) in ONNX, without overflow."""
    small = graph("Exp", graph("Neg", graph("Abs", x)))
    return graph("Add", graph("Relu", x), graph("Log", graph("Add", graph.constant(1.0), small)))


def silu(graph: Any, x: str) -> str:
    """Return x/(1 + e⁻ˣ) in ONNX; x·sigmoid(x) would be fused to what some runtimes lack in double precision."""
    return graph("Div", x, graph("Add", graph.constant(1.0), graph("Exp", graph("Neg", x))))


ACTIVATIONS = {
    "tanh": Forms(jnp.tanh, lambda graph, x: graph("Tanh", x)),
    "relu": Forms(jax.nn.relu, lambda graph, x: graph("Relu", x)),
    "gelu": Forms(jax.nn.gelu, gelu),
    "silu": Forms(jax.nn.silu, silu),
    "softplus": Forms(jax.nn.softplus, softplus),
    "sin": Forms(jnp.sin, lambda graph, x: graph("Sin", x)),
}
