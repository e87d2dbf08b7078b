"""A fitted estimator as an ONNX model, preprocessing included."""

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from .._version import __version__
from ..estimators.metrics import has_quantiles
from ..files.atomic import file_name, write_file
from ..files.describe import describe_featurizer, named_arrays
from ..predictor import FARTHEST
from ..tables.encoder import InputEncoder
from .learners import ensemble
from .names import input_names, require_valid
from .outputs import classify, regress
from .plain import check_known


def to_onnx(
    model: Any, path: Any, dtype: str = "float32", coverage: float | None = None, simultaneous: bool = False
) -> Path:
    """Write a fitted estimator as an ONNX model.

    Parameters
    ----------
    model : VPBoostRegressor or VPBoostClassifier
        A fitted estimator with a featurizer of this library.
    path : str or Path
        The file.
    dtype : {"float32", "float64"}, default="float32"
        Precision of inputs, learners and outputs. Inputs are scaled in double precision in any case.
    coverage : float, optional
        In (0, 1): also write the outputs ``low`` and ``high``, as ``predict_interval`` returns them for this coverage,
        or ``set`` of a classifier, as ``predict_set`` does.
    simultaneous : bool, default=False
        Of several outputs: whether ``low`` and ``high`` hold all outputs of a row at once, as those of
        ``predict_interval(X, coverage, simultaneous=True)``.

    Returns
    -------
    Path
        The file.

    Notes
    -----
    The model's input ``X`` has the numeric columns, shape (rows, columns), NaN for missing, or the images. Dates among
    them are seconds since 1970, spans of time seconds: use ``dtype="float64"`` for these. Each
    categorical column is an input of its own, of text and shape (rows, 1), with "<missing>" for a missing value, under
    its name in the training data. Where that name is taken ("X", an output's, or one that begins with "vpboost/"),
    empty or not valid text, "category" is put before it, and a number after it should that be taken, too. The model's
    metadata entry "columns" says, in JSON, which column or columns each input stands for.

    Outputs: ``prediction`` of a regressor, shaped as ``predict`` returns it (several quantiles in order along the last
    axis), and with a ``distribution`` ``std``, the standard deviation; ``label`` and ``probabilities`` of a classifier.
    Labels that are dates are written as text, durations as whole numbers of their unit. What ``return_std`` adds for
    ignorance is not exported: it takes rows of the fit, of which none is in the file.
    """
    try:
        import onnx

        from .graph import Graph
    except ImportError as error:
        raise ImportError("export to ONNX needs the package onnx: pip install 'vpboost[export]'") from error
    file = Path(file_name(path))
    check_known(model)
    if dtype not in ("float32", "float64"):
        raise ValueError(f"dtype must be 'float32' or 'float64', got {dtype!r}")
    description = describe_featurizer(model.ensemble_.featurizers)
    if dtype == "float64" and "ConvNet" in str(description):
        raise ValueError("dtype='float64' is not for the ConvNet featurizer: ONNX runtimes convolve in float32 only")
    if simultaneous and (coverage is None or hasattr(model, "classes_")):
        raise ValueError("simultaneous=True is for the intervals of a regressor: give their coverage with it")
    if coverage is not None and has_quantiles(model):
        raise ValueError("coverage goes with one prediction for each target; several quantiles are bounds themselves")
    if coverage is not None:
        model._known_conformity(coverage, simultaneous)  # or an error says what is wrong
    if dtype == "float32":
        warn_of_single_precision(model)
    graph = Graph(dtype)
    names = names_of_columns(model)
    x = encode(graph, model.input_encoder_, names)
    raw = raw_output(graph, model, x, description)
    if hasattr(model, "classes_"):
        classify(graph, model, raw, coverage)
    else:
        regress(graph, model, x, raw, coverage, simultaneous)
    facts = {"kind": type(model).__name__, "vpboost": __version__}
    if len(model.input_encoder_.shape_) == 1:
        facts["columns"] = json.dumps(columns_of_inputs(model.input_encoder_, names))
    proto = graph.model("vpboost", facts)
    onnx.checker.check_model(proto)
    write_file(file, proto.SerializeToString())
    return file


def warn_of_single_precision(model: Any) -> None:
    """Warn of numbers that single precision cannot hold, or not tell apart well: 1.7e9 ± 1000, say."""
    encoder, scaler = model.input_encoder_, model.target_scaler_
    names = names_of_columns(model) if len(encoder.shape_) == 1 else ["X"]
    columns = encoder.numeric_ if len(encoder.shape_) == 1 else [0]
    mean, scale, constant = map(np.atleast_1d, (encoder.mean_, encoder.scale_, encoder.constant_))
    for faulty, fault in (
        (np.abs(mean) > 1e3 * scale, "varies little beside its mean; float32 inputs blur it"),
        (out_of_range(mean, scale), "has numbers that float32 cannot hold"),
    ):
        if (faulty & ~constant).any():
            name = names[columns[int(np.flatnonzero(faulty & ~constant)[0])]]
            warnings.warn(f"column {name!r} {fault}: use dtype='float64'", UserWarning, stacklevel=3)
    if out_of_range(scaler.shift_, scaler.scale_).any():
        warnings.warn(
            "predictions are numbers that float32 cannot hold: use dtype='float64'", UserWarning, stacklevel=3
        )


def out_of_range(mean: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Say which numbers of this mean and spread are beyond single precision, or may be."""
    return (np.abs(mean) > 1e36) | (scale > 1e36) | (scale < 1e-36)


def names_of_columns(model: Any) -> list[str]:
    """Return the names of the training data's columns, or made-up ones."""
    if hasattr(model, "feature_names_in_"):
        return [str(name) for name in model.feature_names_in_]
    return [f"column_{j}" for j in range(model.n_features_in_)]


def columns_of_inputs(encoder: InputEncoder, names: list[str]) -> dict[str, Any]:
    """Return the names of the columns that each input stands for: a list for the numbers, one for a category."""
    categorical = [names[column] for column, _ in encoder.categories_]
    numeric = {"X": [names[j] for j in encoder.numeric_]} if encoder.numeric_ else {}
    return {**numeric, **dict(zip(input_names(categorical), categorical, strict=True))}


def encode(graph: Any, encoder: InputEncoder, names: list[str]) -> str:
    """Return encoded inputs in the learners' precision."""
    shape = list(encoder.shape_)
    parts: list[str] = []
    if shape[0]:
        x = graph.cast(graph.input("X", graph.dtype, ["rows", *shape]), "float64")
        unknown = graph("IsNaN", x)
        slope = np.where(encoder.constant_, 0.0, 1 / np.asarray(encoder.scale_))
        centred = graph("Sub", x, graph.constant(encoder.mean_, "float64"))
        scaled = graph("Mul", centred, graph.constant(slope, "float64"))
        scaled = graph("Clip", scaled, *(graph.constant(end, "float64") for end in (-FARTHEST, FARTHEST)))
        scaled = graph("Where", unknown, graph.constant(0.0, "float64"), scaled)
        parts.append(graph.cast(scaled, graph.dtype))
        if len(shape) > 1:
            return parts[0]
        if len(encoder.missing_):
            marks = graph("Gather", unknown, graph.constant(encoder.missing_, "int64"), axis=1)
            parts.append(graph.cast(marks, graph.dtype))
    inputs = input_names([names[column] for column, _ in encoder.categories_])
    for name, (_, levels) in zip(inputs, encoder.categories_, strict=True):
        texts = require_valid(levels, f"level of column {name!r:.60}")
        text = graph.input(name, "string", ["rows", 1])
        hot = graph("OneHotEncoder", text, domain="ai.onnx.ml", cats_strings=texts, zeros=1)
        parts.append(graph.cast(graph.reshape(hot, [-1, len(levels)]), graph.dtype))
    for extra in encoder.extras_:
        place = graph.constant([extra.column], "int64")
        known = graph("Not", graph("Gather", unknown, place, axis=1))
        columns = extra.encoding.onnx(graph, graph("Gather", scaled, place, axis=1))
        mean, scale = graph.constant(extra.mean, "float64"), graph.constant(extra.scale, "float64")
        columns = graph("Div", graph("Sub", columns, mean), scale)
        parts.append(graph.cast(graph("Where", known, columns, graph.constant(0.0, "float64")), graph.dtype))
    return parts[0] if len(parts) == 1 else graph("Concat", *parts, axis=1)


def raw_output(graph: Any, model: Any, x: str, description: dict) -> str:
    """Return what the ensemble predicts, ``(rows, K)``, in double precision."""
    fitted, encoder = model.ensemble_, model.input_encoder_
    theta = {name: np.asarray(leaf) for name, leaf in named_arrays(fitted.featurizers).items()}
    shape = encoder.shape_ if len(encoder.shape_) > 1 else (len(encoder.sources_),)
    weights, constant = np.asarray(fitted.weights, float), np.asarray(fitted.constant, float)
    return graph.cast(ensemble(graph, x, shape, constant, weights, description, theta), "float64")
