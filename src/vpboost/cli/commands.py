"""What the commands do."""

import argparse
import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from ..files.container import ModelFileError, check_version, read_file, unpack
from ..predictor import level_name
from .main import CommandError, parameters_of, printable


def train(options: argparse.Namespace) -> None:
    """Fit a model to a table."""
    from ..checkpoint import CheckpointError
    from ..compilation import cache_unless_set
    from . import tables

    cache_unless_set()
    form = tables.Format.of(options)
    X, y, weight = training_data(tables.read_table(options.table, form), options, options.table)
    task = find_task(y) if options.task == "auto" else options.task
    for path in (options.output, options.report, options.checkpoint):
        check_output(path)
    model, held_out = new_model(options, task), {}
    if options.validation is not None:
        table = tables.read_table(options.validation, form)
        X_val, y_val, weight_val = training_data(table, options, options.validation, list(X.columns))
        held_out = {"X_val": X_val, "y_val": labels_of(y_val, task), "sample_weight_val": weight_val}
    resume = options.checkpoint if options.checkpoint and Path(options.checkpoint).exists() else None
    began, target = time.perf_counter(), labels_of(y, task)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="fit interrupted")  # said below
            model.fit(X, target, weight, **held_out, resume_from=resume)
    except CheckpointError as error:
        raise CommandError(f"{error}; delete it, or name another --checkpoint, to begin anew") from error
    model.save_model(options.output)
    if options.report is not None:
        from ..plotting import report

        report(model, held_out.get("X_val", X), held_out.get("y_val", target), options.report)
    if not options.quiet:
        seconds = time.perf_counter() - began
        print(f"{task} of {', '.join(options.target)}: {len(X)} rows, {X.shape[1]} columns, {seconds:.1f} s")
        print_summary(read_model_file(options.output))
        print(f"model written to {options.output}")
    if model.boosted_.status.startswith("interrupted"):
        print(f"vpboost: {model.boosted_.status}; the model holds those", file=sys.stderr)
        raise KeyboardInterrupt


def new_model(options: argparse.Namespace, task: str) -> Any:
    """Return the estimator that the command line asks for."""
    from .. import VPBoostClassifier, VPBoostRegressor, callbacks

    parameters = parameters_of(options)
    watching: list[Any] = []
    if options.time_limit is not None:
        watching.append(callbacks.TimeBudget(options.time_limit))
    if options.checkpoint is not None:
        watching.append(callbacks.Checkpoint(options.checkpoint, every=10, seconds=30))
    estimator = VPBoostRegressor if task == "regression" else VPBoostClassifier
    unknown = sorted(set(parameters) - set(estimator().get_params()))
    if unknown:
        raise CommandError(f"{unknown[0]}: {estimator.__name__} has no such parameter")
    return estimator(**parameters, callbacks=watching, verbose=0 if options.quiet else 1)


def training_data(
    frame: Any, options: argparse.Namespace, name: str, columns: list[str] | None = None
) -> tuple[Any, Any, Any]:
    """Return inputs (by default all columns that are nothing else), targets and weights."""
    from . import tables

    if len(set(options.target)) < len(options.target):
        raise CommandError(f"--target {options.target[-1]} is given twice")
    used = [*options.target, *([options.weight] if options.weight else [])]
    tables.take_columns(frame, [*used, *(columns or [*options.ignore, *options.categorical])], name)
    lacking = frame[options.target].isna().any(axis=1)
    if lacking.any() and not options.skip_missing_target:
        raise CommandError(
            f"{name} has {int(lacking.sum())} rows without a target, the first row {int(lacking.argmax()) + 1}; fill "
            "them in, or leave them out with --skip-missing-target"
        )
    frame = frame[~lacking].reset_index(drop=True)
    if not len(frame):
        raise CommandError(f"{name} has no row with a target")
    inputs = columns or [column for column in frame.columns if column not in {*used, *options.ignore}]
    if not inputs:
        raise CommandError(f"{name} has no columns left to learn from beside {', '.join(options.target)}")
    X = tables.check_inputs(frame[inputs], options.categorical)
    y = frame[options.target[0]] if len(options.target) == 1 else frame[options.target]
    if options.weight is not None and not tables.is_number(frame[options.weight]):
        raise CommandError(f"column {options.weight!r} holds text; weights are numbers")
    return X, y, None if options.weight is None else frame[options.weight]


def find_task(y: Any) -> str:
    """Return the task that a target suggests: text, true and false, or few whole numbers are classes."""
    from . import tables

    if y.ndim == 2:
        return "regression"
    if not tables.is_number(y):
        tables.check_text(y, y.name, "or give --task classification if these are names of classes")
        if y.nunique() > max(tables.MOST_LEVELS, len(y) / 2):
            raise CommandError(
                f"target {y.name!r} has {y.nunique()} different texts; if they are classes give --task classification"
            )
        return "classification"
    if tables.pd.api.types.is_bool_dtype(y):
        return "classification"
    n_values = y.nunique()
    few = n_values == 2 or (2 < n_values <= 20 and len(y) > 40)
    if few and (y == np.floor(y)).all():
        hint = "as classes; for a regression give --task regression"
        print(f"vpboost: {y.name!r} has {n_values} different whole numbers, taken {hint}", file=sys.stderr)
        return "classification"
    return "regression"


def labels_of(y: Any, task: str, as_text: bool = False) -> Any:
    """Return targets as the estimators take them; ``as_text`` is for models whose classes are texts."""
    from . import tables

    if task == "classification":
        if y.ndim == 2:
            raise CommandError("classification takes one --target")
        if as_text or not tables.is_number(y):
            return y.astype(object).map(level_name)
        whole = y.dtype.kind == "f" and (y == np.floor(y)).all()  # as whole numbers beside missing ones are read
        return y.astype(int) if whole else y
    for name in [y.name] if y.ndim == 1 else y.columns:
        if not tables.is_number(y if y.ndim == 1 else y[name]):
            tables.check_text(y if y.ndim == 1 else y[name], name, "a regression needs numbers")
            raise CommandError(f"target {name!r} holds text; a regression needs numbers (--task classification?)")
    return y


def predict(options: argparse.Namespace) -> None:
    """Predict the rows of a table."""
    from . import tables

    model = load(options.model)
    if options.probabilities and not hasattr(model, "classes_"):
        raise CommandError("--probabilities is for classifiers; the model is a regressor")
    frame = tables.read_table(options.table, tables.Format.of(options))
    X = inputs_of(model, frame, options.table)
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
    tables.write_table(tables.pd.concat([frame, predictions], axis=1) if options.keep else predictions, options.output)


def inputs_of(model: Any, frame: Any, name: str) -> Any:
    """Return a table's columns as the model was trained on them."""
    from . import tables

    if len(model.input_encoder_.shape_) > 1:
        raise CommandError("the model was trained on images; tables are of no use to it")
    if hasattr(model, "feature_names_in_"):
        frame = tables.take_columns(frame, [str(n) for n in model.feature_names_in_], name)
    elif frame.shape[1] != model.n_features_in_:
        raise CommandError(f"{name} has {frame.shape[1]} columns; the model was trained on {model.n_features_in_}")
    X = tables.known_inputs(frame, {c.column for c in model.input_encoder_.categories_}, name)
    return X if hasattr(model, "feature_names_in_") else X.to_numpy(dtype=float, na_value=np.nan)


def evaluate(options: argparse.Namespace) -> None:
    """Compare predictions with the truth in a table."""
    from ..metrics import evaluate as measure
    from . import tables

    check_output(options.report)
    model = load(options.model)
    target = options.target or model.target_names_
    if not target:
        raise CommandError("the model does not know the name of its target; give --target")
    frame = tables.read_table(options.table, tables.Format.of(options))
    truth = tables.take_columns(frame, target, options.table)
    if truth.isna().any().any():
        raise CommandError(f"{options.table} has rows without a target; leave them out")
    X, y = inputs_of(model, frame, options.table), truth[target[0]] if len(target) == 1 else truth
    as_text = hasattr(model, "classes_") and model.classes_.dtype.kind in "OU"
    y = labels_of(y, "classification" if hasattr(model, "classes_") else "regression", as_text)
    found = measure(model, X, y)
    if options.json:
        print(json.dumps({name: value if np.isfinite(value) else None for name, value in found.items()}, indent=1))
    else:
        width = max(map(len, found))
        print("\n".join(f"{name:<{width}}  {value:.6g}" for name, value in found.items()))
    if options.report is not None:
        from ..plotting import report

        report(model, X, y, options.report)


def inspect(options: argparse.Namespace) -> None:
    """Show what a model file contains."""
    content, arrays = read_model_file(options.model)
    if options.json:
        shapes = {name: {"shape": list(array.shape), "dtype": str(array.dtype)} for name, array in arrays.items()}
        print(json.dumps({**content, "arrays": shapes}, indent=1))
    else:
        print_summary((content, arrays))
    if options.plot is not None:
        from ..plotting import draw_history

        draw_history(load(options.model), options.plot)
        print(f"picture of the history: {options.plot}")


def export(options: argparse.Namespace) -> None:
    """Write a model for use without JAX."""
    from ..export import to_numpy, to_onnx

    model = load(options.model)
    if options.to == "onnx":
        check_output(options.output)
        print(to_onnx(model, options.output, options.dtype))
    else:
        print("\n".join(map(str, to_numpy(model, options.output))))


def demo(options: argparse.Namespace) -> None:
    """Run the demonstration."""
    from ..demo import demonstrate

    demonstrate(options.picture, options.seed, options.candidates)


def load(path: str) -> Any:
    """Return the model in a file."""
    from ..files.model import load_model

    try:
        return load_model(path)
    except ModelFileError as error:
        hint = "; load it in Python with load_model" if "author's own" in str(error) else ""
        raise CommandError(f"{error}{hint}") from error


def read_model_file(path: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the description and the arrays in a model file, without building the model."""
    content, arrays = unpack(read_file(path), path)
    check_version(content, path, "vpboost model", 1)
    return content, arrays


def print_summary(parts: tuple[dict[str, Any], dict[str, np.ndarray]]) -> None:
    """Print what a model file says, in a few lines."""
    try:
        print(printable(summary(*parts)))
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise CommandError(f"the file does not describe a model: {error!r}") from error


def summary(content: dict[str, Any], arrays: dict[str, np.ndarray]) -> str:
    """Return what a model file says, in a few lines."""
    weights, best, loss = arrays["weights"], content["best_iteration"], arrays["history.loss"]
    size = sum(array[:best].size for name, array in arrays.items() if name == "weights" or name.startswith("theta."))
    featurizer = content["featurizer"] or {"type": "none"}
    while isinstance(featurizer.get("featurizer"), dict):
        featurizer = featurizer["featurizer"]
    shape = ", ".join(f"{name} {value}" for name, value in featurizer.get("options", {}).items())
    lines = {
        "model": f"{content['kind']}, written by vpboost {content['library']}",
        "inputs": f"{content['n_features_in']}" + brief_list(content["feature_names"]),
        "outputs": f"{weights.shape[2]}" + brief_list(content["classes"] or content["target_names"]),
        "loss": content["loss"]["type"],
        "learners": f"{best} of {len(loss)} stages, {size} numbers: {featurizer['type']}"
        + (f" ({shape})" if shape else ""),
        "encoding": content["encoder"]["encoding"],
        "training loss": f"{sparkline(loss)} {loss[-1]:.4g}" if len(loss) else "no stages",
    }
    if len(arrays["scores"]):
        lines["validation"] = f"{sparkline(arrays['scores'])} best {float(arrays['best_score']):.4g}"
    return "\n".join(f"{name + ':':<15}{text}" for name, text in lines.items())


def brief_list(names: list | None) -> str:
    """Return a few of the names in brackets."""
    if not names:
        return ""
    return f" ({', '.join(map(str, names[:8]))}{', ...' if len(names) > 8 else ''})"


def sparkline(values: np.ndarray, width: int = 40) -> str:
    """Return a curve of text.

    >>> sparkline(np.array([3.0, 2.0, 1.0]))
    '█▅▁'
    """
    bars = "▁▂▃▄▅▆▇█"
    finite = values[np.isfinite(values)]
    if not len(finite):
        return ""
    chosen = finite[np.unique(np.linspace(0, len(finite) - 1, min(width, len(finite))).astype(int))]
    low, high = chosen.min(), chosen.max()
    heights = (chosen - low) / (high - low) if high > low else np.zeros(len(chosen))
    return "".join(bars[round(float(h) * (len(bars) - 1))] for h in heights)


def check_output(path: str | None) -> None:
    """Raise :class:`CommandError` if a file cannot be written: better before a long fit than after it."""
    if path is None:
        return
    folder = Path(path).resolve().parent
    if not folder.is_dir():
        raise CommandError(f"{path} cannot be written: there is no folder {folder}")
    if Path(path).is_dir():
        raise CommandError(f"{path} is a folder; give the name of a file")
