"""An ensemble in plain NumPy, double precision: for a few rows, where JAX would spend its time on calling itself.

Arrays of the M learners are stacked along a first axis; inputs lie side by side, ``(1 or M, ..., n_rows)``: products
serve all learners and rows at once. Only the featurizers of this library, with activations by name, are known here.
"""

from collections.abc import Callable
from functools import singledispatch
from typing import Any

import equinox as eqx
import jax
import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from .ensemble import Ensemble
from .featurizers import MLP, RBF, BSpline, ConvNet, Fourier, ResNet, SomeColumns, WithBias
from .featurizers.base import Activation

ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "softplus": lambda x: np.logaddexp(x, 0),
    "sin": np.sin,
}


class LightEnsemble:
    """The same function as an :class:`vpboost.Ensemble`, evaluated by NumPy."""

    def __init__(self, ensemble: Ensemble):
        def plain(leaf: Any) -> Any:
            return np.asarray(leaf, float if eqx.is_inexact_array(leaf) else None) if eqx.is_array(leaf) else leaf

        self.constant, self.weights = plain(ensemble.constant), plain(ensemble.weights)
        self.featurizers = jax.tree.map(plain, ensemble.featurizers)

    @classmethod
    def of(cls, ensemble: Ensemble) -> "LightEnsemble | None":
        """Return the light version of an ensemble; None if it has parts of the user's own."""
        light = cls(ensemble)
        return light if ensemble.n_learners == 0 or is_known(light.featurizers) else None

    def predict(self, x: np.ndarray) -> np.ndarray:
        """Return f(x_i) for each row, shape ``(n_rows, K)``."""
        rows = np.asarray(x, float)
        if self.featurizers is None:
            return np.tile(self.constant, (len(rows), 1))
        z = features(self.featurizers, np.moveaxis(rows, 0, -1)[None])
        return self.constant + np.tensordot(z, self.weights, axes=((0, 1), (0, 1)))


def is_known(module: Any) -> bool:
    """Say whether the featurizer, and what it is made of, can be evaluated here."""
    known: tuple = (MLP, ResNet, ConvNet, RBF, Fourier, BSpline)
    if type(module) in (WithBias, SomeColumns):
        return is_known(module.featurizer)
    return type(module) in known and isinstance(getattr(module, "activation", Activation("tanh")), Activation)


@singledispatch
def features(module: Any, x: np.ndarray) -> np.ndarray:
    """Return the features of M stacked featurizers, ``(M, n, n_rows)``."""
    raise TypeError(f"{type(module).__name__} cannot be evaluated in NumPy")


@features.register
def _(module: WithBias, x: np.ndarray) -> np.ndarray:
    z = features(module.featurizer, x)
    return np.concatenate([z, np.ones((len(z), 1, z.shape[-1]))], axis=1)


@features.register
def _(module: SomeColumns, x: np.ndarray) -> np.ndarray:
    seen: Any = module.seen
    if np.all(seen):
        return features(module.featurizer, x)
    return features(module.featurizer, seen[:, :, None] * x / np.sqrt(seen.mean(axis=1))[:, None, None])


@features.register
def _(module: MLP, x: np.ndarray) -> np.ndarray:
    z = flat(x)
    for layer in module.layers:
        z = activation(module)(linear(layer, z))
    return z


@features.register
def _(module: ResNet, x: np.ndarray) -> np.ndarray:
    z = activation(module)(linear(module.opening, flat(x)))
    for block in module.blocks:
        z = z + activation(module)(linear(block, z))
    return z


@features.register
def _(module: Fourier, x: np.ndarray) -> np.ndarray:
    return np.cos(module.frequencies @ flat(x) + np.asarray(module.phases)[..., None])


@features.register
def _(module: RBF, x: np.ndarray) -> np.ndarray:
    points = flat(x)[:, None]  # one axis for the bumps
    distance = (points - np.asarray(module.centres)[..., None]) * np.exp(-np.asarray(module.log_widths))[..., None]
    return np.exp(-0.5 * np.sum(distance**2, axis=-2))


@features.register
def _(module: BSpline, x: np.ndarray) -> np.ndarray:
    ridge = module.directions @ flat(x) + np.asarray(module.offsets)[..., None]
    t = np.abs(ridge[:, :, None] - np.arange(module.n_knots)[:, None])
    splines = (np.maximum(2 - t, 0) ** 3 - 4 * np.maximum(1 - t, 0) ** 3) / 6
    return splines.reshape(len(ridge), -1, ridge.shape[-1])


@features.register
def _(module: ConvNet, x: np.ndarray) -> np.ndarray:
    maps = np.moveaxis(x[:, None] if x.ndim == 4 else x, -1, 1)  # (1 or M, n_rows, channels, height, width)
    for convolution, pool, stride in zip(module.convolutions, module.pools, module.strides, strict=True):
        kernel: Any = convolution.weight
        windows = sliding_window_view(maps, kernel.shape[-2:], axis=(-2, -1))
        windows = np.broadcast_to(windows, (len(kernel), *windows.shape[1:]))
        bias: Any = convolution.bias
        maps = np.einsum("mrchwij,mocij->mrohw", windows, kernel, optimize=True) + bias[:, None]
        pooled = sliding_window_view(maps, (pool, pool), axis=(-2, -1)).max(axis=(-2, -1))
        maps = activation(module)(pooled[..., ::stride, ::stride])
    return np.moveaxis(maps.reshape(*maps.shape[:2], -1), 1, -1)


def flat(x: np.ndarray) -> np.ndarray:
    """Return inputs of any shape as vectors."""
    return x.reshape(len(x), -1, x.shape[-1])


def linear(layer: Any, x: np.ndarray) -> np.ndarray:
    """Return the outputs of the M stacked linear layers."""
    return layer.weight @ x + layer.bias[..., None]


def activation(module: Any) -> Callable[[np.ndarray], np.ndarray]:
    """Return a featurizer's activation in NumPy."""
    return ACTIVATIONS[module.activation.name]
