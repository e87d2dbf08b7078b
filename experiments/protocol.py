"""What every method has in common: a space to tune in, and a fit that returns predictions, time and size."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from optuna.distributions import BaseDistribution, FloatDistribution, IntDistribution

from .data import Parts
from .problems import Problem

Config = dict[str, Any]
Space = Mapping[str, BaseDistribution]


class Point(NamedTuple):
    """A moment of training: learners (or steps) so far, seconds since the start, and the losses."""

    progress: int
    seconds: float
    train: float
    validation: float


class Fitted(NamedTuple):
    """What a method returns: a function from inputs to raw predictions, and what the fit took."""

    predict: Callable[[np.ndarray], np.ndarray]
    seconds: float
    parameters: int
    curve: list[Point]


class Method(NamedTuple):
    """A way to fit a problem: its name, what is tuned, and the fit itself."""

    name: str
    title: str
    space: Callable[[Problem], Space]
    fit: Callable[[Problem, Parts, Config, int], Fitted]
    package: str = "vpboost"  #: what must be installed
    after: str | None = None  #: the method whose winner, with ``begin`` added, is the first that is tried
    begin: Config | None = None
    keep: bool = False  #: whether what that winner has is kept, and only the rest tuned


def with_scale(method: Method) -> Method:
    """Return a method that tunes the scale of all initial weights, too, and begins where the given one ended."""

    def space(problem: Problem) -> Space:
        return {**method.space(problem), "weight_scale": between(0.1, 2.0)}

    def fit(problem: Problem, parts: Parts, config: Config, seed: int) -> Fitted:
        return method.fit(problem._replace(weight_scale=config["weight_scale"]), parts, config, seed)

    name, title = f"{method.name}_scaled", f"{method.title}, scaled"
    return Method(name, title, space, fit, method.package, method.name, {"weight_scale": 1.0})


def always(space: Space) -> Callable[[Problem], Space]:
    """Return a space that is the same for all problems."""
    return lambda problem: space


def between(low: float, high: float) -> FloatDistribution:
    """Return a positive number to be tuned on a logarithmic scale."""
    return FloatDistribution(low, high, log=True)


def whole(low: int, high: int) -> IntDistribution:
    """Return a whole number to be tuned."""
    return IntDistribution(low, high)


def thinned(points: list[Point], most: int = 40) -> list[Point]:
    """Return about so many of the points, the last one always."""
    step = max(len(points) // most, 1)
    return points[::-1][::step][::-1]
