"""Smooth one-dimensional encodings that give a network more of a column than its standardised value.

Each is fitted on one standardised column and turns it into one or more columns with continuous derivatives, which input
gradients need (but for the ends of the training range, where a normal score stops rising).
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from scipy.interpolate import PchipInterpolator
from scipy.special import ndtr, ndtri

from ..numerics.quantiles import distribution, evenly_filled
from ..predictor import spline, steps, waves


class NormalScore:
    """The column mapped to a standard normal law: Φ⁻¹ of its distribution function, through at most 33 knots.

    Tames heavy tails and spreads out crowded values. Between the knots the map is a monotone cubic spline; beyond the
    training range it is constant.
    """

    name = "quantile"

    def __init__(self, knots: np.ndarray, coefficients: np.ndarray):
        self.knots, self.coefficients = knots, coefficients

    @classmethod
    def fit(cls, values: np.ndarray, weight: np.ndarray, n_knots: int = 33) -> "NormalScore":
        """Learn the map from a column and its weights."""
        points, probability = distribution(values, weight)
        scores = ndtri(probability)
        if len(points) > n_knots:  # knots evenly spaced in the score, so that the tails get their share
            wanted = np.linspace(scores[0], scores[-1], n_knots)
            points, kept = np.unique(np.interp(ndtr(wanted), probability, points), return_index=True)
            scores = wanted[kept]
        return cls(points, PchipInterpolator(points, scores).c)

    def __call__(self, values: np.ndarray) -> np.ndarray:
        """Return the encoded column, shape ``(n, 1)``."""
        return spline(self.knots, self.coefficients, values)[:, None]

    def slope(self, values: np.ndarray) -> np.ndarray:
        """Return the derivative of the encoded column, shape ``(n, 1)``."""
        inside = (values >= self.knots[0]) & (values <= self.knots[-1])
        a, b, c, _ = self.coefficients
        derivative = np.stack([np.zeros_like(a), 3 * a, 2 * b, c])
        return np.where(inside, spline(self.knots, derivative, values), 0.0)[:, None]

    def onnx(self, graph: Any, value: str) -> str:
        """Return the encoded column in an ONNX graph, from the scaled column, ``(rows, 1)``."""
        number, knots = partial(graph.constant, dtype="float64"), self.knots
        inside = graph("Clip", value, number(knots[0]), number(knots[-1]))
        beyond = graph.cast(graph("GreaterOrEqual", inside, number(knots[1:-1])), "int64")  # (rows, inner knots)
        piece = graph("ReduceSum", beyond, graph.constant([1], "int64"), keepdims=0)
        t = graph("Sub", inside, graph.reshape(graph("Gather", number(knots), piece), [-1, 1]))
        columns = number(np.zeros((1, 1)))
        for powers in self.coefficients:  # Horner's rule
            coefficient = graph.reshape(graph("Gather", number(powers), piece), [-1, 1])
            columns = graph("Add", graph("Mul", columns, t), coefficient)
        return columns


class Steps:
    """The column as smooth steps: one rises from 0 to 1 across each bin between quantiles of the training values.

    A network that weighs them can bend at every quantile, which is what rough functions of single columns ask for.
    """

    name = "spline"

    def __init__(self, knots: np.ndarray):
        self.knots = knots

    @classmethod
    def fit(cls, values: np.ndarray, weight: np.ndarray, n_bins: int = 16) -> "Steps":
        """Learn the bins from a column and its weights."""
        return cls(evenly_filled(values, weight, n_bins))

    def __call__(self, values: np.ndarray) -> np.ndarray:
        """Return the steps, shape ``(n, n_bins)``."""
        return steps(self.knots, values)

    def slope(self, values: np.ndarray) -> np.ndarray:
        """Return their derivatives, shape ``(n, n_bins)``."""
        t = np.clip((values[:, None] - self.knots[:-1]) / np.diff(self.knots), 0, 1)
        return 6 * t * (1 - t) / np.diff(self.knots)

    def onnx(self, graph: Any, value: str) -> str:
        """Return the steps in an ONNX graph, from the scaled column, ``(rows, 1)``."""
        number = partial(graph.constant, dtype="float64")
        crossed = graph("Div", graph("Sub", value, number(self.knots[:-1])), number(np.diff(self.knots)))
        t = graph("Clip", crossed, number(0.0), number(1.0))
        rise = graph("Sub", number(3.0), graph("Mul", number(2.0), t))
        return graph("Mul", graph("Mul", t, t), rise)


class Cycles:
    """A time as its place in the day, the week and the year: a sine and a cosine of each that the data show."""

    name = "cycles"
    PERIODS = 86_400.0, 7 * 86_400.0, 365.2425 * 86_400.0

    def __init__(self, frequencies: np.ndarray, phases: np.ndarray):
        self.frequencies, self.phases = frequencies, phases

    @classmethod
    def fit(cls, times: np.ndarray, mean: float, scale: float) -> "Cycles":
        """Learn from times in seconds; the encoding itself is one of standardised times."""
        span = np.ptp(times)
        # a cycle seen one and a half times can be told from a trend; one of a single phase (midnight, say) says nothing
        seen = [p for p in cls.PERIODS if span >= 1.5 * p and len(np.unique(np.round(times % p / p, 6))) > 2]
        turns = 2 * np.pi / np.array(seen, dtype=float)
        return cls(turns * scale, np.remainder(turns * mean, 2 * np.pi))

    def __call__(self, values: np.ndarray) -> np.ndarray:
        """Return sines and cosines, shape ``(n, 2 * n_cycles)``."""
        return waves(self.frequencies, self.phases, values)

    def slope(self, values: np.ndarray) -> np.ndarray:
        """Return their derivatives, shape ``(n, 2 * n_cycles)``."""
        angles = values[:, None] * self.frequencies + self.phases
        return np.concatenate([self.frequencies * np.cos(angles), -self.frequencies * np.sin(angles)], axis=1)

    def onnx(self, graph: Any, value: str) -> str:
        """Return sines and cosines in an ONNX graph, from the scaled column, ``(rows, 1)``."""
        phases = np.concatenate([self.phases, self.phases + np.pi / 2])  # cosines are sines
        turned = graph("Mul", value, graph.constant(np.tile(self.frequencies, 2), "float64"))
        return graph("Sin", graph("Add", turned, graph.constant(phases, "float64")))


#: Encodings by name: what is added to every numeric column that has more than two values.
ENCODINGS: dict[str, Any] = {"plain": None, "quantile": NormalScore, "spline": Steps, "fine": Steps}
#: Bins of a column at the most, and of all columns together, about.
MOST_BINS, ALL_BINS = {"spline": 16, "fine": 64}, 512


def bins_of(encoding: str, distinct: Sequence[int]) -> int:
    """Return the most bins of a column, by the distinct values of each: fewer where all would be too wide an input."""
    most = MOST_BINS[encoding]
    fitting = (b for b in range(most, 4, -1) if sum(min(n - 1, b) for n in distinct) <= ALL_BINS)
    return next(fitting, 4)
