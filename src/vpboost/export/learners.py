"""The learners of an ensemble in ONNX: features of all of them at once, as in :mod:`vpboost.predictor`.

Inputs arrive as ``(rows, D)`` (or images) and lie side by side, ``(D, rows)``, from then on.
"""

from typing import Any

import numpy as np

from ..featurizers import KINDS
from ..featurizers.trees import onnx_leaves
from ..files.describe import kind_described


def ensemble(
    graph: Any, x: str, shape: tuple[int, ...], constant: np.ndarray, weights: np.ndarray, description: Any, theta: dict
) -> str:
    """Return c₀ + Σ_m W_mᵀ z_m(x), ``(rows, K)``, for inputs of a shape."""
    if not len(weights):
        zeros = np.zeros((int(np.prod(shape)), len(constant)))
        return graph("Add", graph("MatMul", graph("Flatten", x), graph.constant(zeros)), graph.constant(constant))
    if description["type"] == "WithBias":
        # the feature that is always one: its weights are part of the constant
        constant, weights = constant + weights[:, -1].sum(axis=0, dtype=float), weights[:, :-1]
        description, theta = description["featurizer"], inner(theta)
    flat = weights.reshape(-1, weights.shape[-1])
    if kind_described(description).of_images:
        images = graph("Unsqueeze", x, graph.constant([1], "int64")) if len(shape) == 2 else x
        features = KINDS[description["type"]].onnx(graph, images, description["options"], theta)
    else:
        side_by_side = table_features(graph, graph("Transpose", graph("Flatten", x), perm=[1, 0]), description, theta)
        features = graph("Transpose", graph.reshape(side_by_side, [len(flat), -1]), perm=[1, 0])
    return graph("Add", graph("MatMul", features, graph.constant(flat)), graph.constant(constant))


def inner(theta: dict) -> dict:
    """Return the arrays of the featurizer inside another."""
    return {name.removeprefix("featurizer."): array for name, array in theta.items()}


def table_features(graph: Any, x: str, description: dict, theta: dict) -> str:
    """Return the features of M learners on inputs side by side, ``(M, n, rows)``."""
    if description["type"] == "SomeColumns":
        seen = theta["seen"]
        if not seen.all():
            part = seen / np.sqrt(seen.mean(axis=1, keepdims=True))
            x = graph("Mul", graph.constant(part[:, :, None]), x)
        return table_features(graph, x, description["featurizer"], inner(theta))
    if description["type"] == "WithTree":
        features = table_features(graph, x, description["featurizer"], inner(theta))
        return graph("Concat", features, onnx_leaves(graph, x, theta), axis=1)
    return KINDS[description["type"]].onnx(graph, x, description["options"], theta)
