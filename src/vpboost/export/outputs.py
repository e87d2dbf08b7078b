"""What the raw predictions of a model stand for, as the outputs of an ONNX graph.

Numbers are computed in units of the targets' scale, of order one, and multiplied by it at the end: onnxruntime takes a
constant for zero that is so in single precision.
"""

from typing import Any

import numpy as np

from ..files.describe import describe_featurizer, named_arrays
from ..losses import GammaLikelihood, StudentTLikelihood
from ..predictor import FARTHEST_LOCATION, MOST_LOG, MOST_LOG_SCALE
from .learners import ensemble
from .names import label_tensor

#: Below this, e^v − 1 is a sum of powers: the difference would lose its digits.
SMALL = 1e-3


def regress(graph: Any, model: Any, x: str, raw: str, coverage: float | None, simultaneous: bool) -> None:
    """Declare a regressor's outputs, in the user's units: ``x`` are encoded inputs, ``raw`` what is predicted."""
    unit = np.ones(1) if model.target_scaler_.kind == "logs" else model.target_scaler_.scale_
    if model._in_order():
        declare(graph, model, "prediction", quantiles(graph, model, raw), unit[:, None])
        return
    mean, std = moments(graph, model, x, raw)
    declare(graph, model, "prediction", mean, unit)
    if std is not None:
        declare(graph, model, "std", std, unit)
    if coverage is None:
        return
    most = model._known_conformity(coverage).quantiles(coverage, simultaneous)
    width = double(graph, most / unit) if std is None else graph("Mul", std, double(graph, most))
    low, high = graph("Sub", mean, width), graph("Add", mean, width)
    if model.target_scaler_.kind in ("log", "logs"):  # no target is negative
        low = graph("Max", low, double(graph, 0.0))
    declare(graph, model, "low", low, unit)
    declare(graph, model, "high", high, unit)


def declare(graph: Any, model: Any, name: str, values: str, unit: Any) -> None:
    """Declare an output of a regressor, shaped as ``predict`` returns it."""
    values = graph.cast(graph("Mul", values, double(graph, unit)), graph.dtype)
    levels = [model.loss_.n_parameters] if model._in_order() else []
    shape = levels if model.single_output_ else [model.n_outputs_, *levels]
    graph.output(name, graph.reshape(values, [-1, *shape]), graph.dtype, ["rows", *shape])


def quantiles(graph: Any, model: Any, raw: str) -> str:
    """Return several quantiles of each output in order, (rows, outputs, levels), in units of its scale."""
    scaler, n_levels = model.target_scaler_, model.loss_.n_parameters
    each = graph.reshape(raw, [-1, model.n_outputs_, n_levels])
    ordered = graph("TopK", each, graph.constant([n_levels], "int64"), n_results=2, axis=2, largest=0)
    return graph("Add", ordered, double(graph, (scaler.shift_ / scaler.scale_)[:, None]))


def moments(graph: Any, model: Any, x: str, raw: str) -> tuple[str, str | None]:
    """Return predictions, and the standard deviations of a distribution, in units of the scale of each output.

    Those of a lognormal distribution are in the user's units.
    """
    scaler = model.target_scaler_
    if model.loss_.n_parameters > 1:  # a likelihood of the user's own, of which the first is the location
        each = graph.reshape(raw, [-1, model.n_outputs_, model.loss_.n_parameters])
        raw = graph("Gather", each, graph.constant(0, "int64"), axis=2)
    mean = graph("Exp", clip(graph, raw, MOST_LOG)) if scaler.kind == "log" else raw
    mean = graph("Add", mean, double(graph, scaler.shift_ / scaler.scale_))
    if model._spread is None:
        return mean, None
    other = graph("Exp", clip(graph, spread(graph, model, x, raw), MOST_LOG_SCALE))
    likelihood = model._spread.likelihood
    if scaler.kind == "logs":
        return of_lognormal(graph, *(graph("Mul", part, double(graph, scaler.scale_)) for part in (mean, other)))
    if scaler.kind == "log":  # the variance is μ²/a, that of counts μ²/r + μ
        variance = graph("Div", graph("Mul", mean, mean), other)
        if not isinstance(likelihood, GammaLikelihood):
            variance = graph("Add", variance, graph("Div", mean, double(graph, scaler.scale_)))
        return mean, graph("Sqrt", variance)
    if isinstance(likelihood, StudentTLikelihood):
        other = graph("Mul", other, double(graph, np.sqrt(likelihood.df / (likelihood.df - 2))))
    return mean, other


def of_lognormal(graph: Any, loc: str, scale: str) -> tuple[str, str]:
    """Return mean and standard deviation of numbers whose logarithms have these."""
    variance = graph("Mul", scale, scale)
    mean = graph("Exp", graph("Add", loc, graph("Mul", variance, double(graph, 0.5))))
    one = double(graph, 1.0)
    series = graph("Add", one, graph("Mul", variance, double(graph, 1 / 3)))
    series = graph("Add", one, graph("Mul", graph("Mul", variance, double(graph, 0.5)), series))  # 1 + v/2 + v²/6
    more = graph("Sub", graph("Exp", variance), one)
    excess = graph("Where", graph("Less", variance, double(graph, SMALL)), graph("Mul", variance, series), more)
    return mean, graph("Mul", mean, graph("Sqrt", excess))


def spread(graph: Any, model: Any, x: str, location: str) -> str:
    """Return what the second ensemble of a distribution predicts, (rows, outputs), in double precision."""
    encoder, learnt = model.input_encoder_, model._spread.ensemble
    inputs, n_plain = graph.cast(clip(graph, location, FARTHEST_LOCATION), graph.dtype), 0
    if len(encoder.shape_) == 1:
        n_plain = encoder.n_plain
        plain = graph("Gather", x, graph.constant(np.arange(n_plain), "int64"), axis=1)
        inputs = graph("Concat", plain, inputs, axis=1)
    theta = {name: np.asarray(leaf) for name, leaf in named_arrays(learnt.featurizers).items()}
    constant, weights = np.asarray(learnt.constant, float), np.asarray(learnt.weights, float)
    description = describe_featurizer(learnt.featurizers)
    shape = (n_plain + model.n_outputs_,)
    return graph.cast(ensemble(graph, inputs, shape, constant, weights, description, theta), "float64")


def classify(graph: Any, model: Any, raw: str, coverage: float | None) -> None:
    """Declare a classifier's outputs."""
    probabilities = of_classes(graph, model, raw)
    labels, kind = label_tensor(model.classes_)
    label = graph("Gather", graph.constant(labels, kind), graph("ArgMax", probabilities, axis=1, keepdims=0))
    shape = ["rows", len(model.classes_)]
    graph.output("label", label, kind, ["rows"])
    graph.output("probabilities", graph.cast(probabilities, graph.dtype), graph.dtype, shape)
    if coverage is not None:
        most = model._known_conformity(coverage).quantiles(coverage)[0]
        before = of_classes(graph, model, graph("Mul", raw, double(graph, model._temperature)))
        improbable = graph("Sub", double(graph, 1.0), before)
        graph.output("set", graph("LessOrEqual", improbable, double(graph, most)), "bool", shape)


def of_classes(graph: Any, model: Any, raw: str) -> str:
    """Return the probabilities of the classes."""
    logits = graph("Concat", graph("Sub", raw, raw), raw, axis=1) if len(model.classes_) == 2 else raw
    return graph("Softmax", logits, axis=1)


def clip(graph: Any, values: str, most: float) -> str:
    """Return numbers of at most this size."""
    return graph("Clip", values, double(graph, -most), double(graph, most))


def double(graph: Any, value: Any) -> str:
    """Return a constant in double precision."""
    return graph.constant(value, "float64")
