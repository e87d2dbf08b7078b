"""What the commands do."""

import argparse
import json
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
    if options.probabilities and not hasattr(model, "classes_"):
        raise CommandError("--probabilities is for classifiers; the model is a regressor")
    form = reading.Format.of(options).reading(*text_columns(model))
    content = reading.piped(options.table) if options.keep else None  # kept tables are read twice
    frame = reading.read_table(options.table, form, content)
    X = inputs_of(model, frame, options.table, options.decimal)
    values = np.asarray(model.predict(X))
    if values.ndim == 1:
        name = model.target_names_[0] if model.target_names_ else "target"
        found = {f"predicted_{name}": values}
    else:
        names = model.target_names_ or [str(k) for k in range(values.shape[1])]
        found = {f"predicted_{name}": values[:, k] for k, name in enumerate(names)}
    if options.probabilities:
        probabilities = model.predict_proba(X)
        found.update({f"probability_{c}": probabilities[:, k] for k, c in enumerate(model.classes_)})
    predictions = tables.pd.DataFrame(found, index=frame.index)
    if options.keep:
        clash = [name for name in found if name in frame.columns]
        if clash:
            raise CommandError(f"{options.table} has a column {clash[0]!r} already; rename it, or leave out --keep")
        form = form._replace(keep="type" if table_format(options.output) is None else "text")
        frame = reading.read_table(options.table, form, content)
        predictions = tables.pd.concat([frame, predictions], axis=1)
    write_table(predictions, options.output)


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
    from ..estimators.metrics import evaluate as measure
    from . import reading, tables

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
    found = measure(model, X, y)
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
        print(to_onnx(model, options.output, options.dtype))
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
