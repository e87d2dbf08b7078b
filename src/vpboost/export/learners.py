"""The learners of an ensemble in ONNX: features of all of them at once, as in :mod:`vpboost.predictor`.

Inputs arrive as ``(rows, D)`` (or images) and lie side by side, ``(D, rows)``, from then on.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from .graph import Graph


def ensemble(
    graph: Graph,
    x: str,
    shape: tuple[int, ...],
    constant: np.ndarray,
    weights: np.ndarray,
    description: Any,
    theta: dict,
) -> str:
    """Return c₀ + Σ_m W_mᵀ z_m(x), ``(rows, K)``, for inputs of a shape."""
    if not len(weights):
        zeros = np.zeros((int(np.prod(shape)), len(constant)))
        return graph("Add", graph("MatMul", graph("Flatten", x), graph.constant(zeros)), graph.constant(constant))
    if description["type"] == "WithBias":
        # the feature that is always one: its weights are part of the constant
        constant, weights = constant + weights[:, -1].sum(axis=0), weights[:, :-1]
        description, theta = description["featurizer"], inner(theta)
    flat = weights.reshape(-1, weights.shape[-1])
    if description["type"] == "ConvNet":
        images = graph("Unsqueeze", x, graph.constant([1], "int64")) if len(shape) == 2 else x
        features = convnet(graph, images, description["options"], theta)
    else:
        side_by_side = table_features(graph, graph("Transpose", graph("Flatten", x), perm=[1, 0]), description, theta)
        features = graph("Transpose", graph.reshape(side_by_side, [len(flat), -1]), perm=[1, 0])
    return graph("Add", graph("MatMul", features, graph.constant(flat)), graph.constant(constant))


def inner(theta: dict) -> dict:
    """Return the arrays of the featurizer inside another."""
    return {name.removeprefix("featurizer."): array for name, array in theta.items()}


def table_features(graph: Graph, x: str, description: dict, theta: dict) -> str:
    """Return the features of M learners on inputs side by side, ``(M, n, rows)``."""
    if description["type"] == "SomeColumns":
        seen = theta["seen"]
        if not seen.all():
            part = seen / np.sqrt(seen.mean(axis=1, keepdims=True))
            x = graph("Mul", graph.constant(part[:, :, None]), x)
        return table_features(graph, x, description["featurizer"], inner(theta))
    return FEATURES[description["type"]](graph, x, description["options"], theta)


def linear(graph: Graph, theta: dict, name: str, x: str) -> str:
    """Return the outputs of M linear layers."""
    product = graph("MatMul", graph.constant(theta[f"{name}.weight"]), x)
    return graph("Add", product, graph.constant(theta[f"{name}.bias"][..., None]))


def activate(graph: Graph, name: str, x: str) -> str:
    """Apply an activation."""
    return ACTIVATIONS[name](graph, x)


def gelu(graph: Graph, x: str) -> str:
    """Return ½x(1 + tanh(√(2/π)(x + 0.044715x³)))."""
    cube = graph("Mul", graph("Mul", x, x), graph("Mul", x, graph.constant(0.044715)))
    inside = graph("Tanh", graph("Mul", graph("Add", x, cube), graph.constant(np.sqrt(2 / np.pi))))
    half = graph("Mul", x, graph.constant(0.5))
    return graph("Add", half, graph("Mul", half, inside))


def softplus(graph: Graph, x: str) -> str:
    """Return log(1 + eˣ) without overflow."""
    small = graph("Exp", graph("Neg", graph("Abs", x)))
    return graph("Add", graph("Relu", x), graph("Log", graph("Add", graph.constant(1.0), small)))


ACTIVATIONS: dict[str, Callable[[Graph, str], str]] = {
    "tanh": lambda graph, x: graph("Tanh", x),
    "relu": lambda graph, x: graph("Relu", x),
    "gelu": gelu,
    "silu": lambda graph, x: graph("Mul", x, graph("Sigmoid", x)),
    "softplus": softplus,
    "sin": lambda graph, x: graph("Sin", x),
}


def mlp(graph: Graph, x: str, options: dict, theta: dict) -> str:
    """Return the features of fully connected networks."""
    for i in range(options["depth"] + 1):
        x = activate(graph, options["activation"], linear(graph, theta, f"layers.{i}", x))
    return x


def resnet(graph: Graph, x: str, options: dict, theta: dict) -> str:
    """Return the features of residual networks."""
    z = activate(graph, options["activation"], linear(graph, theta, "opening", x))
    for i in range(options["depth"]):
        z = graph("Add", z, activate(graph, options["activation"], linear(graph, theta, f"blocks.{i}", z)))
    return z


def rbf(graph: Graph, x: str, options: dict, theta: dict) -> str:
    """Return Gaussian bumps. ``x`` is (D, rows) or (M, D, rows); an axis for the bumps goes before D."""
    points = graph("Unsqueeze", x, graph.constant([-3], "int64"))
    distance = graph("Sub", points, graph.constant(theta["centres"][..., None]))
    distance = graph("Mul", distance, graph.constant(np.exp(-theta["log_widths"])[..., None]))
    squares = graph("ReduceSum", graph("Mul", distance, distance), graph.constant([-2], "int64"), keepdims=0)
    return graph("Exp", graph("Mul", squares, graph.constant(-0.5)))


def fourier(graph: Graph, x: str, options: dict, theta: dict) -> str:
    """Return waves, as sines: runtimes have no cosine in double precision."""
    phase = graph("MatMul", graph.constant(theta["frequencies"]), x)
    return graph("Sin", graph("Add", phase, graph.constant(theta["phases"][..., None] + np.pi / 2)))


def bspline(graph: Graph, x: str, options: dict, theta: dict) -> str:
    """Return cubic B-splines along directions."""
    ridge = graph(
        "Add", graph("MatMul", graph.constant(theta["directions"]), x), graph.constant(theta["offsets"][..., None])
    )
    ridge = graph("Unsqueeze", ridge, graph.constant([2], "int64"))
    t = graph("Abs", graph("Sub", ridge, graph.constant(np.arange(options["n_knots"])[:, None])))

    def cube(reach: float) -> str:
        side = graph("Relu", graph("Sub", graph.constant(reach), t))
        return graph("Mul", graph("Mul", side, side), side)

    difference = graph("Sub", cube(2.0), graph("Mul", cube(1.0), graph.constant(4.0)))
    return graph("Mul", difference, graph.constant(1 / 6))


def convnet(graph: Graph, x: str, options: dict, theta: dict) -> str:
    """Return the features of convolutional networks, ``(rows, M n)``; learners are groups of channels."""
    maps = x
    for i, (pool, stride) in enumerate(zip(options["pools"], options["strides"], strict=True)):
        kernel, bias = theta[f"convolutions.{i}.weight"], theta[f"convolutions.{i}.bias"]
        stacked = graph.constant(kernel.reshape(-1, *kernel.shape[2:]))
        groups = 1 if i == 0 else len(kernel)
        maps = graph("Conv", maps, stacked, graph.constant(bias.reshape(-1)), group=groups)
        maps = graph("MaxPool", maps, kernel_shape=[pool, pool], strides=[stride, stride])
        maps = activate(graph, options["activation"], maps)
    return graph("Flatten", maps)


FEATURES = {"MLP": mlp, "ResNet": resnet, "RBF": rbf, "Fourier": fourier, "BSpline": bspline}
