"""What the commands do."""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ..files.container import ModelFileError
from .errors import CommandError
from .outputs import check_folder, standard_output, table_format, write_table
from .summary import read_model_file, summary_of


def train(options: argparse.Namespace) -> None:
    """Fit a model to a table."""
    from . import training

    training.train(options)


def predict(options: argparse.Namespace) -> None:
    """Predict the rows of a table."""
    from . import reading, tables

    table_format(options.output)  # which refuses names of other formats
    model = load(options.model)
    check_kind(model, options)
    form = reading.Format.of(options).reading(*text_columns(model))
    content = reading.piped(options.table) if options.keep else None  # kept tables are read twice
    frame = reading.read_table(options.table, form, content)
    X = inputs_of(model, frame, options.table, options.decimal)
    found = predicted_columns(model, X, options)
    predictions = tables.pd.DataFrame(found, index=frame.index)
    if options.keep:
        clash = [name for name in found if name in frame.columns]
        if clash:
            raise CommandError(f"{options.table} has a column {clash[0]!r} already; rename it, or leave out --keep")
        form = form._replace(keep="type" if table_format(options.output) is None else "text")
        frame = reading.read_table(options.table, form, content)
        predictions = tables.pd.concat([frame, predictions], axis=1)
    write_table(predictions, options.output)


def check_kind(model: Any, options: argparse.Namespace) -> None:
    """Raise an error if predictions of a regressor are asked of a classifier, or the reverse."""
    if hasattr(model, "classes_"):
        this, other, instead = "classifier", "regressors", {"interval": "; give --set", "std": "; give --probabilities"}
    else:
        this, other, instead = "regressor", "classifiers", {"set": "; give --interval", "probabilities": ""}
    for name, hint in instead.items():
        if getattr(options, name) not in (None, False):
            raise CommandError(f"--{name} is for {other}; the model is a {this}{hint}")
    if options.simultaneous and options.interval is None:
        raise CommandError("--simultaneous goes with --interval")


def predicted_columns(model: Any, X: Any, options: argparse.Namespace) -> dict[str, np.ndarray]:
    """Return what is predicted, by the names of the columns that are written."""
    values = np.asarray(model.predict(X))
    if hasattr(model, "classes_"):
        name = model.target_names_[0] if model.target_names_ else "target"
        found = {f"predicted_{name}": values}
        if options.probabilities:
            found.update(by_name([f"probability_{label}" for label in model.classes_], model.predict_proba(X)))
        if options.set is not None:
            sets = asked(f"--set {options.set:g}", lambda: model.predict_set(X, options.set))
            found.update(by_name([f"set_{label}" for label in model.classes_], sets))
        return found
    names = model.target_names_ or (["target"] if model.single_output_ else [str(k) for k in range(model.n_outputs_)])
    levels = [f"_{level:g}" for level in model.loss_.level] if np.ndim(getattr(model.loss_, "level", 0.0)) else [""]
    found = by_name([f"predicted_{name}{level}" for name in names for level in levels], values)
    if options.interval is not None:
        how = options.interval, options.simultaneous
        bounds = asked(f"--interval {options.interval:g}", lambda: model.predict_interval(X, *how))
        for end, values in zip(("low", "high"), bounds, strict=True):
            found.update(by_name([f"{name}_{end}" for name in names], values))
    if options.std:
        values = asked("--std", lambda: model.predict_dist(X).std())
        found.update(by_name([f"{name}_std" for name in names], values))
    return found


def asked(option: str, predict: Callable[[], Any]) -> Any:
    """Return what an option asks of a model; if it does not know, say of which option."""
    try:
        return predict()
    except ValueError as error:
        raise CommandError(f"{option}: {error}") from error


def by_name(names: list[str], values: np.ndarray) -> dict[str, np.ndarray]:
    """Return the columns of values by their names."""
    return dict(zip(names, values.reshape(len(values), -1).T, strict=True))


def text_columns(model: Any) -> list[str]:
    """Return the names of the columns that a model knows as categories."""
    names = getattr(model, "feature_names_in_", None)
    return [] if names is None else [str(names[c.column]) for c in model.input_encoder_.categories_]


def inputs_of(model: Any, frame: Any, name: str, decimal: str) -> Any:
    """Return a table's columns as the model was trained on them."""
    from . import tables

    encoder = model.input_encoder_
    if len(encoder.shape_) > 1:
        raise CommandError("the model was trained on images; tables are of no use to it")
    if hasattr(model, "feature_names_in_"):
        frame = tables.take_columns(frame, [str(n) for n in model.feature_names_in_], name)
    elif frame.shape[1] != model.n_features_in_:
        raise CommandError(f"{name} has {frame.shape[1]} columns; the model was trained on {model.n_features_in_}")
    kinds = {**{c.column: "text" for c in encoder.categories_}, **encoder.times_}
    X = tables.known_inputs(frame, [kinds.get(j, "number") for j in range(frame.shape[1])], name)
    for column, levels in encoder.categories_:
        X.isetitem(column, tables.as_known_levels(X.iloc[:, column], levels, decimal))
    return X if hasattr(model, "feature_names_in_") else X.to_numpy(dtype=float, na_value=np.nan)


def evaluate(options: argparse.Namespace) -> None:
    """Compare predictions with the truth in a table."""
    from . import reading, tables
    from .measures import measures

    model = load(options.model)
    target = options.target or model.target_names_
    if not target:
        raise CommandError("the model does not know the name of its target; give --target")
    labels = target if hasattr(model, "classes_") and model.classes_.dtype.kind in "OU" else []
    form = reading.Format.of(options).reading(*text_columns(model), *labels)
    frame = reading.read_table(options.table, form)
    truth = tables.with_numbers(tables.take_columns(frame, target, options.table))
    if truth.isna().any().any():
        raise CommandError(f"{options.table} has rows without a target; leave them out")
    X, y = inputs_of(model, frame, options.table, options.decimal), truth[target[0]] if len(target) == 1 else truth
    as_text = hasattr(model, "classes_") and model.classes_.dtype.kind in "OU"
    y = tables.labels_of(y, "classification" if hasattr(model, "classes_") else "regression", as_text)
    found = measures(model, X, y)
    if options.report is not None:
        from ..plotting import report

        report(model, X, y, Path(options.report), about=f"the rows of {options.table}")
    with standard_output() as out:
        if options.json:
            numbers = {name: value if np.isfinite(value) else None for name, value in found.items()}
            print(json.dumps(numbers, indent=1), file=out)
        else:
            width = max(map(len, found))
            print("\n".join(f"{name:<{width}}  {value:.6g}" for name, value in found.items()), file=out)


def inspect(options: argparse.Namespace) -> None:
    """Show what a model file contains."""
    content, arrays = read_model_file(options.model)
    text = summary_of(content, arrays)
    if options.json:
        shapes = {name: {"shape": list(array.shape), "dtype": str(array.dtype)} for name, array in arrays.items()}
        text = json.dumps({**content, "arrays": shapes}, indent=1)
    with standard_output() as out:
        print(text, file=out)
    if options.plot is not None:
        from ..plotting import draw_history

        draw_history(load(options.model), options.plot)
        if not options.json:
            print(f"picture of the history: {options.plot}")


def export(options: argparse.Namespace) -> None:
    """Write a model for use without JAX."""
    from ..export import to_numpy, to_onnx

    model = load(options.model)
    if options.to == "onnx":
        if options.simultaneous and (options.coverage is None or hasattr(model, "classes_")):
            raise CommandError("--simultaneous goes with --coverage, of a regressor")
        print(to_onnx(model, options.output, options.dtype, options.coverage, options.simultaneous))
    elif options.coverage is not None or options.simultaneous:
        name = "simultaneous" if options.coverage is None else "coverage"
        raise CommandError(f"--{name} is for ONNX; the NumPy predictor is told when it predicts")
    else:
        check_folder(options.output, options.model)
        print("\n".join(map(str, to_numpy(model, options.output))))


def demo(options: argparse.Namespace) -> None:
    """Run the demonstration."""
    from .demo import demonstrate

    demonstrate(options.picture, options.seed, options.candidates)


def load(path: str) -> Any:
    """Return the model in a file."""
    from ..estimators import load_model

    try:
        return load_model(path)
    except ModelFileError as error:
        hint = "; load it in Python with load_model" if "author's own" in str(error) else ""
        raise CommandError(f"{error}{hint}") from error
