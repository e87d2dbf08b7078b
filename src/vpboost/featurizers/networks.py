"""Small neural networks as featurizers. The last layer has its activation: its outputs are the features."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from .. import predictor
from ..checks import check_count
from .activations import ACTIVATIONS, activation_function
from .base import ByColumns, flat
from .registry import Kind, register


class MLP(ByColumns):
    """A fully connected network: ``depth`` hidden layers of ``width`` units, then a layer of ``n_features``.

    Parameters
    ----------
    key, rows
        The random key, and some training inputs (any shape per sample; flattened).
    width : int, default=8
        Units per hidden layer.
    depth : int, default=2
        Hidden layers before the feature layer.
    n_features : int, optional
        Features; by default ``width``.
    activation : str or callable, default="tanh"
        A name ("tanh", "relu", "gelu", "silu", "softplus", "sin") or a JAX function.
    init_scale : float, default=1.0
        Factor on the first layer's initial weights: larger values start with more oscillating features.
    weight_scale : float, default=1.0
        Factor on the initial weights and biases of all layers. Small ones, 0.1 to 0.5, start with nearly linear
        features, which suits smooth responses without noise.
    """

    layers: tuple[eqx.nn.Linear, ...]
    activation: Callable = eqx.field(static=True)

    def __init__(
        self,
        key: PRNGKeyArray,
        rows: Array,
        *,
        width: int = 8,
        depth: int = 2,
        n_features: int | None = None,
        activation: str | Callable[[Array], Array] = "tanh",
        init_scale: float = 1.0,
        weight_scale: float | Array = 1.0,
    ):
        check_count("width", width)
        check_count("depth", depth, least=0)
        n_features = check_count("n_features", width if n_features is None else n_features)
        sizes = (int(np.prod(rows.shape[1:])), *[width] * depth, n_features)
        keys = jax.random.split(key, depth + 1)
        first, *rest = (eqx.nn.Linear(a, b, key=k) for a, b, k in zip(sizes[:-1], sizes[1:], keys, strict=True))
        self.layers = tuple(_shrunk(layer, weight_scale) for layer in (_scaled(first, init_scale), *rest))
        self.activation = activation_function(activation)

    def columns(self, x: Float[Array, "*shape rows"]) -> Float[Array, "n rows"]:
        """Return the features of inputs side by side."""
        features = flat(x)
        for layer in self.layers:
            features = self.activation(_apply(layer, features))
        return features


class ResNet(ByColumns):
    """A layer to ``width`` units, then ``depth`` residual blocks z ← z + activation(K z + b).

    Parameters are those of :class:`MLP`; ``depth`` counts the blocks and ``width`` is the number of features.
    """

    opening: eqx.nn.Linear
    blocks: tuple[eqx.nn.Linear, ...]
    activation: Callable = eqx.field(static=True)

    def __init__(
        self,
        key: PRNGKeyArray,
        rows: Array,
        *,
        width: int = 8,
        depth: int = 1,
        activation: str | Callable[[Array], Array] = "tanh",
        init_scale: float = 1.0,
        weight_scale: float | Array = 1.0,
    ):
        check_count("width", width)
        keys = jax.random.split(key, 1 + check_count("depth", depth, least=0))
        opening = _scaled(eqx.nn.Linear(int(np.prod(rows.shape[1:])), width, key=keys[0]), init_scale)
        self.opening = _shrunk(opening, weight_scale)
        self.blocks = tuple(_shrunk(eqx.nn.Linear(width, width, key=k), weight_scale) for k in keys[1:])
        self.activation = activation_function(activation)

    def columns(self, x: Float[Array, "*shape rows"]) -> Float[Array, "n rows"]:
        """Return the features of inputs side by side."""
        features = self.activation(_apply(self.opening, flat(x)))
        for block in self.blocks:
            features = features + self.activation(_apply(block, features))
        return features


class ConvNet(ByColumns):
    """Blocks of convolution, max-pooling and activation on images; the flattened last maps are the features.

    The defaults are the paper's MNIST learner: three one-channel blocks, everything with stride 1 and no padding, 87
    parameters and 144 features on 28×28 images.

    Parameters
    ----------
    key, rows
        The random key, and some training images: ``(n, height, width)`` or ``(n, channels, height, width)``.
    kernels, pools, channels : sequences of int
        Kernel size, pooling window and number of channels of each block.
    strides : sequence of int, optional
        Pooling strides; by default 1.
    activation : str or callable, default="relu"
        A name or a JAX function. With "relu" and max-pooling the features are piecewise smooth.

    The first biases are such that the pooled maps have mean zero over the given images.
    """

    convolutions: tuple[eqx.nn.Conv2d, ...]
    pools: tuple[int, ...] = eqx.field(static=True)
    strides: tuple[int, ...] = eqx.field(static=True)
    activation: Callable = eqx.field(static=True)

    def __init__(
        self,
        key: PRNGKeyArray,
        rows: Array,
        *,
        kernels: Sequence[int] = (8, 4, 2),
        pools: Sequence[int] = (4, 2, 2),
        channels: Sequence[int] = (1, 1, 1),
        strides: Sequence[int] | None = None,
        activation: str | Callable[[Array], Array] = "relu",
    ):
        if rows.ndim not in (3, 4):
            raise ValueError(
                "ConvNet needs images, X of shape (n, height, width) or (n, channels, height, width), got shape "
                f"{tuple(rows.shape)}"
            )
        strides = (1,) * len(kernels) if strides is None else tuple(strides)
        if not len(kernels) == len(pools) == len(channels) == len(strides):
            raise ValueError(
                "kernels, pools, channels and strides must have one entry per block, got lengths "
                f"{len(kernels)}, {len(pools)}, {len(channels)} and {len(strides)}"
            )
        for size in rows.shape[-2:]:
            for kernel, pool, stride in zip(kernels, pools, strides, strict=True):
                size = (size - kernel + 1 - pool) // stride + 1
            if size < 1:
                raise ValueError(
                    f"kernels {tuple(kernels)} and pools {tuple(pools)} are too large for images of "
                    f"{rows.shape[-2]} × {rows.shape[-1]}"
                )
        self.pools, self.strides = tuple(pools), strides
        self.activation = activation_function(activation)
        maps, convolutions = _maps(jnp.moveaxis(rows, 0, -1)), []
        for one, kernel, n_maps, pool, stride in zip(
            jax.random.split(key, len(kernels)), kernels, channels, pools, strides, strict=True
        ):
            convolution = eqx.nn.Conv2d(len(maps), n_maps, kernel, key=one)
            pooled = max_pool(convolve(convolution, maps), pool, stride)
            # maps centred on the data: one that is negative everywhere would be dead under relu from the start
            centre = jnp.mean(pooled, axis=(1, 2, 3))[:, None, None]
            bias: Any = convolution.bias
            convolutions.append(eqx.tree_at(lambda c: c.bias, convolution, bias - centre))
            maps = self.activation(pooled - centre[..., None])
        self.convolutions = tuple(convolutions)

    def columns(self, x: Float[Array, "*shape rows"]) -> Float[Array, "n rows"]:
        """Return the features of images side by side."""
        maps = _maps(x)
        for convolution, pool, stride in zip(self.convolutions, self.pools, self.strides, strict=True):
            maps = self.activation(max_pool(convolve(convolution, maps), pool, stride))
        return maps.reshape(-1, maps.shape[-1])


def _maps(x: Float[Array, "*shape rows"]) -> Float[Array, "c h w rows"]:
    return x[None] if x.ndim == 3 else x


def convolve(layer: eqx.nn.Conv2d, maps: Float[Array, "c h w rows"]) -> Float[Array, "o p q rows"]:
    """Convolve images side by side: each line of the result is a matrix times the lines under the kernel.

    The matrix repeats the kernel along its diagonals, so most of it is zero; products of matrices are still several
    times faster on CPUs than XLA's convolutions of few channels.
    """
    channels, _, width, n_rows = maps.shape
    kernel = layer.weight
    n_maps, _, size, _ = kernel.shape
    shift = np.arange(width) - np.arange(width - size + 1)[:, None]
    band = jnp.where((shift >= 0) & (shift < size), kernel[..., np.clip(shift, 0, size - 1)], 0)
    matrix = band.transpose(0, 3, 2, 1, 4).reshape(n_maps * len(shift), size * channels * width)
    lines = maps.swapaxes(0, 1)

    def one_line(first: Array) -> Array:
        return matrix @ jax.lax.dynamic_slice_in_dim(lines, first, size).reshape(-1, n_rows)

    result = jax.lax.map(one_line, jnp.arange(len(lines) - size + 1)).reshape(-1, n_maps, len(shift), n_rows)
    bias: Any = layer.bias
    return result.swapaxes(0, 1) + bias[..., None]


def max_pool(maps: Float[Array, "c h w rows"], window: int, stride: int) -> Float[Array, "c p q rows"]:
    """Take the maximum over square windows by maxima of shifted maps: XLA's own pooling is slow on CPUs."""
    for axis in (1, 2):
        reach = 1
        while reach < window:
            shift = min(reach, window - reach)
            length = maps.shape[axis] - shift
            near, far = (jax.lax.slice_in_dim(maps, s, s + length, axis=axis) for s in (0, shift))
            maps, reach = jnp.maximum(near, far), reach + shift
        maps = jax.lax.slice_in_dim(maps, 0, None, stride, axis)
    return maps


def _apply(layer: eqx.nn.Linear, x: Float[Array, "d rows"]) -> Float[Array, "n rows"]:
    bias: Any = layer.bias
    return layer.weight @ x + bias[:, None]


def _scaled(layer: eqx.nn.Linear, factor: float) -> eqx.nn.Linear:
    return eqx.tree_at(lambda linear: linear.weight, layer, layer.weight * factor)


def _shrunk(layer: eqx.nn.Linear, factor: float | Array) -> eqx.nn.Linear:
    return jax.tree.map(lambda leaf: (leaf * factor).astype(leaf.dtype), layer)


# --- what files and exports have to know ------------------------------------------------------------------------------

#: Largest square of an image's width, times blocks, that convolutions are built for: so much they take in memory.
MOST_SQUARES = 1 << 24


def onnx_linear(graph: Any, theta: dict, name: str, x: str) -> str:
    """Return the outputs of M linear layers."""
    product = graph("MatMul", graph.constant(theta[f"{name}.weight"]), x)
    return graph("Add", product, graph.constant(theta[f"{name}.bias"][..., None]))


def onnx_mlp(graph: Any, x: str, options: dict, theta: dict) -> str:
    """Return the features of fully connected networks."""
    for i in range(options["depth"] + 1):
        x = ACTIVATIONS[options["activation"]].onnx(graph, onnx_linear(graph, theta, f"layers.{i}", x))
    return x


def onnx_resnet(graph: Any, x: str, options: dict, theta: dict) -> str:
    """Return the features of residual networks."""
    activate = ACTIVATIONS[options["activation"]].onnx
    z = activate(graph, onnx_linear(graph, theta, "opening", x))
    for i in range(options["depth"]):
        z = graph("Add", z, activate(graph, onnx_linear(graph, theta, f"blocks.{i}", z)))
    return z


def onnx_convnet(graph: Any, x: str, options: dict, theta: dict) -> str:
    """Return the features of convolutional networks; learners are groups of channels."""
    for i, (pool, stride) in enumerate(zip(options["pools"], options["strides"], strict=True)):
        kernel, bias = theta[f"convolutions.{i}.weight"], theta[f"convolutions.{i}.bias"]
        stacked = graph.constant(kernel.reshape(-1, *kernel.shape[2:]))
        groups = 1 if i == 0 else len(kernel)
        x = graph("Conv", x, stacked, graph.constant(bias.reshape(-1)), group=groups)
        x = graph("MaxPool", x, kernel_shape=[pool, pool], strides=[stride, stride])
        x = ACTIVATIONS[options["activation"]].onnx(graph, x)
    return graph("Flatten", x)


def check_images(options: dict[str, Any], shape: tuple[int, ...]) -> None:
    """Raise ``ValueError`` if convolutions would take too much memory for images of this shape."""
    kernels = options.get("kernels")
    n_blocks = len(kernels) if isinstance(kernels, list) else 3  # as many as there are by default
    if n_blocks * shape[-1] ** 2 > MOST_SQUARES:
        raise ValueError(f"the model has {n_blocks} convolutions of images too wide: {shape[-1]} pixels")


def mlp_options(m: Any) -> dict[str, Any]:
    """Return the options of a fully connected network."""
    sizes = [layer.out_features for layer in m.layers]
    return {"width": sizes[0], "depth": len(sizes) - 1, "n_features": sizes[-1]}


def resnet_options(m: Any) -> dict[str, Any]:
    """Return the options of a residual network."""
    return {"width": m.opening.out_features, "depth": len(m.blocks)}


def convnet_options(m: Any) -> dict[str, Any]:
    """Return the options of a convolutional network."""
    kernels, channels = [c.kernel_size[0] for c in m.convolutions], [c.out_channels for c in m.convolutions]
    return {"kernels": kernels, "pools": list(m.pools), "channels": channels, "strides": list(m.strides)}


SIZES = {name: name for name in ("width", "depth", "activation", "weight_scale")}
register(Kind(MLP, "mlp", SIZES, mlp_options, predictor.mlp, onnx_mlp, quick_in_numpy=True))
register(Kind(ResNet, "resnet", SIZES, resnet_options, predictor.resnet, onnx_resnet, quick_in_numpy=True))
register(
    Kind(
        *(ConvNet, "convnet", {"activation": "activation"}, convnet_options, predictor.convnet, onnx_convnet),
        of_images=True,
        check=check_images,
    )
)
