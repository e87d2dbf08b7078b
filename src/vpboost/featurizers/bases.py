"""Classical bases with trainable parameters: nothing in the method asks for a neural network."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from .. import predictor
from ..checks import check_count
from .base import ByColumns, flat
from .registry import Kind, register


class RBF(eqx.Module):
    """Gaussian bumps exp(−½‖(x − c_j)/s_j‖²) with trainable centres c_j and log-widths log s_j.

    Centres start at random training inputs; every width starts at ``width_scale`` times the root of the inputs' mean
    squared spread per coordinate.
    """

    centres: Float[Array, "n d"]
    log_widths: Float[Array, "n d"]

    def __init__(self, key: PRNGKeyArray, rows: Array, *, n_features: int = 16, width_scale: float = 0.5):
        check_count("n_features", n_features)
        if not width_scale > 0:
            raise ValueError(f"width_scale must be positive, got {width_scale!r}")
        points = rows.reshape(rows.shape[0], -1)
        pick_key, jitter_key = jax.random.split(key)
        picked = points[jax.random.randint(pick_key, (n_features,), 0, points.shape[0])]
        spread = jnp.std(points, axis=0) + jnp.finfo(points.dtype).eps
        # two bumps at the very same place would make the features collinear
        self.centres = picked + 0.1 * spread * jax.random.normal(jitter_key, picked.shape, picked.dtype)
        width = width_scale * spread * np.sqrt(points.shape[1])
        self.log_widths = jnp.broadcast_to(jnp.log(width), picked.shape)

    def __call__(self, x: Array) -> Float[Array, " n"]:
        """Return the features of one input."""
        distance = (x.reshape(-1) - self.centres) * jnp.exp(-self.log_widths)
        return jnp.exp(-0.5 * jnp.sum(distance**2, axis=1))


class Fourier(ByColumns):
    """Waves cos(ω_j·x + φ_j) with trainable frequencies, drawn at first from a normal law, and phases.

    Parameters
    ----------
    key, rows
        The random key and some training inputs.
    n_features : int, default=16
        Number of waves.
    frequency_scale : float, default=2.0
        Standard deviation of the initial frequencies, in units of one over each input's spread.
    """

    frequencies: Float[Array, "n d"]
    phases: Float[Array, " n"]

    def __init__(self, key: PRNGKeyArray, rows: Array, *, n_features: int = 16, frequency_scale: float = 2.0):
        check_count("n_features", n_features)
        points = rows.reshape(rows.shape[0], -1)
        frequency_key, phase_key = jax.random.split(key)
        spread = jnp.std(points, axis=0)
        scale = frequency_scale / jnp.where(spread > 0, spread, 1)
        self.frequencies = scale * jax.random.normal(frequency_key, (n_features, points.shape[1]), points.dtype)
        self.phases = jax.random.uniform(phase_key, (n_features,), points.dtype, 0, 2 * np.pi)

    def columns(self, x: Float[Array, "*shape rows"]) -> Float[Array, "n rows"]:
        """Return the features of inputs side by side."""
        return jnp.cos(self.frequencies @ flat(x) + self.phases[:, None])


class BSpline(ByColumns):
    """Cubic B-splines along trainable directions: a smooth basis with local support.

    Each of ``n_directions`` ridge coordinates t = a·x + b carries ``n_knots`` uniform cubic B-splines over the range
    that the training inputs cover at the start. θ holds the directions a and offsets b.
    """

    directions: Float[Array, "r d"]
    offsets: Float[Array, " r"]
    n_knots: int = eqx.field(static=True)

    def __init__(self, key: PRNGKeyArray, rows: Array, *, n_directions: int = 2, n_knots: int = 8):
        check_count("n_directions", n_directions)
        check_count("n_knots", n_knots, least=4)
        points = rows.reshape(rows.shape[0], -1)
        spread = jnp.std(points, axis=0)
        directions = jax.random.normal(key, (n_directions, points.shape[1]), points.dtype)
        directions = directions / jnp.where(spread > 0, spread, 1)
        ridge = points @ directions.T
        low, high = ridge.min(axis=0), ridge.max(axis=0)
        # the knots are the whole numbers 0 .. n_knots−1; the inputs fill the part where all splines overlap
        scale = (n_knots - 3) / jnp.where(high > low, high - low, 1)
        self.directions = directions * scale[:, None]
        self.offsets = 1 - low * scale
        self.n_knots = n_knots

    def columns(self, x: Float[Array, "*shape rows"]) -> Float[Array, "n rows"]:
        """Return the features of inputs side by side."""
        ridge = self.directions @ flat(x) + self.offsets[:, None]
        return flat(cubic_spline(ridge[:, None] - jnp.arange(self.n_knots)[:, None]))


def cubic_spline(t: Array) -> Array:
    """Return the cardinal cubic B-spline, supported on |t| < 2, twice continuously differentiable."""
    inner, outer = jnp.maximum(1 - jnp.abs(t), 0), jnp.maximum(2 - jnp.abs(t), 0)
    return (outer**3 - 4 * inner**3) / 6


# --- what files and exports have to know ------------------------------------------------------------------------------


def onnx_rbf(graph: Any, x: str, options: dict, theta: dict) -> str:
    """Return Gaussian bumps. ``x`` is (D, rows) or (M, D, rows); an axis for the bumps goes before D."""
    points = graph("Unsqueeze", x, graph.constant([-3], "int64"))
    distance = graph("Sub", points, graph.constant(theta["centres"][..., None]))
    distance = graph("Mul", distance, graph.constant(np.exp(-theta["log_widths"])[..., None]))
    squares = graph("ReduceSum", graph("Mul", distance, distance), graph.constant([-2], "int64"), keepdims=0)
    return graph("Exp", graph("Mul", squares, graph.constant(-0.5)))


def onnx_fourier(graph: Any, x: str, options: dict, theta: dict) -> str:
    """Return waves, as sines: runtimes have no cosine in double precision."""
    phase = graph("MatMul", graph.constant(theta["frequencies"]), x)
    return graph("Sin", graph("Add", phase, graph.constant(theta["phases"][..., None] + np.pi / 2)))


def onnx_bspline(graph: Any, x: str, options: dict, theta: dict) -> str:
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


def count_of(name: str) -> Callable[[Any], dict[str, Any]]:
    """Return the function that reads the number of features off an array of a module."""
    return lambda m: {"n_features": getattr(m, name).shape[-2]}


def bspline_options(m: Any) -> dict[str, Any]:
    """Return the options of a basis of splines."""
    return {"n_directions": m.directions.shape[-2], "n_knots": m.n_knots}


WIDTH = {"width": "n_features"}
largest = {"log_widths": 100.0}  # beyond, features are NaN somewhere
register(Kind(RBF, "rbf", WIDTH, count_of("centres"), predictor.rbf, onnx_rbf, largest=largest))
register(Kind(Fourier, "fourier", WIDTH, count_of("frequencies"), predictor.fourier, onnx_fourier, periodic=True))
register(Kind(BSpline, "bspline", {"width": "n_knots"}, bspline_options, predictor.bspline, onnx_bspline))
