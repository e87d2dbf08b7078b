"""Training: from a table and options to a model file."""

import argparse
import contextlib
import itertools
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .. import VPBoostClassifier, VPBoostRegressor, callbacks, losses
from ..estimators.parts import hold_out
from ..estimators.portfolio import LEAST_ROWS
from ..estimators.regressor import REGRESSION_LOSSES
from ..files.checkpoint import CheckpointError
from ..suggest import did_you_mean
from . import reading, tables
from .errors import CommandError
from .interrupts import Interrupts
from .options import parameters_of
from .summary import read_model_file, summary_of


class Data(NamedTuple):
    """Inputs, targets and weights."""

    X: Any
    y: Any
    weight: Any

    def take(self, rows: np.ndarray) -> "Data":
        """Return some of the rows."""
        return Data(*(None if part is None else part.iloc[rows] for part in self))


def train(options: argparse.Namespace) -> None:
    """Fit a model to a table."""
    check_columns(options)
    if options.report is not None:
        from ..plotting import report  # needs matplotlib: better to know now
    form = reading.Format.of(options)
    frame = reading.read_table(options.table, form.reading(*options.categorical))
    data = training_data(frame, options, options.table)
    task = find_task(data.y, options)
    model = new_model(options, task)
    n_rows, data = len(data.X), data._replace(y=tables.labels_of(data.y, task))
    data, held_out, about = split(data, model, options, form, task)
    resume = options.checkpoint if options.checkpoint and Path(options.checkpoint).exists() else None
    began = time.perf_counter()
    try:
        with warnings.catch_warnings(), Interrupts() as interrupts:
            warnings.filterwarnings("ignore", message="fit interrupted")  # said below
            model.callbacks.append(interrupts)
            validation = dict(zip(("X_val", "y_val", "sample_weight_val"), held_out or (), strict=False))
            model.fit(*data, **validation, resume_from=resume)
    except CheckpointError as error:
        raise CommandError(f"{error}; delete it, or name another --checkpoint, to begin anew") from error
    save(model, options.output, not options.no_training_rows)
    try:
        if options.report is not None:
            shown = held_out or data
            report(model, shown.X, shown.y, Path(options.report), about=about)
    finally:
        print_end(model, options, f"{task} of {', '.join(options.target)}: {n_rows} rows", began)
    if model.boosted_.status.startswith("interrupted"):
        print(f"vpboost: {model.boosted_.status}; the model holds those", file=sys.stderr)
        raise KeyboardInterrupt


def save(model: Any, path: str, training_rows: bool) -> None:
    """Save a model; if its place is gone, somewhere else: training may have taken long."""
    try:
        model.save_model(path, training_rows=training_rows)
    except OSError as error:
        kept = Path(tempfile.mkdtemp(prefix="vpboost-"), "model.vpboost")
        try:
            model.save_model(kept, training_rows=training_rows)
        finally:
            with contextlib.suppress(OSError):  # not empty, if all went well
                kept.parent.rmdir()
        raise CommandError(f"{error}; the model is kept as {kept}") from error


def print_end(model: Any, options: argparse.Namespace, what: str, began: float) -> None:
    """Print what came of training."""
    if not options.quiet:
        seconds = time.perf_counter() - began
        print(f"{what}, {model.n_features_in_} columns, {seconds:.1f} s")
        print(summary_of(*read_model_file(options.output)))
        print(f"model written to {options.output}")


def split(data: Data, model: Any, options: argparse.Namespace, form: Any, task: str) -> tuple[Data, Data | None, str]:
    """Return the data to train on, validation data if the command has any, and what a report says it is about.

    A report should be about rows that were not trained on. Where the estimator would set some aside by itself, they are
    set aside here.
    """
    rounds = model.early_stopping_rounds
    use = "" if rounds is None else ", which chose the stage to stop at"
    if options.validation is not None:
        text = [name for name in data.X.columns if tables.kind_of(data.X[name]) == "text"]
        labels = options.target if np.asarray(data.y).dtype.kind in "OU" else []
        frame = reading.read_table(options.validation, form.reading(*text, *labels))
        held_out = training_data(frame, options, options.validation, data.X)
        held_out = held_out._replace(y=tables.labels_of(held_out.y, task))
        return data, held_out, f"the rows of {options.validation}{use}"
    trained_on = data, None, "the rows trained on (expect larger errors on new ones)"
    few = rounds is None or (rounds == "auto" and len(data.X) < LEAST_ROWS[task == "classification"])
    if options.report is None or few or not 0 < model.validation_fraction < 1:  # of which the fit will complain
        return trained_on
    _, groups = np.unique(tables.pd.util.hash_pandas_object(data.X, index=False), return_inverse=True)
    target, classes = np.asarray(data.y), task == "classification"
    parts = hold_out(target, groups, model.validation_fraction, options.seed, classes)
    if parts is None:
        return trained_on
    return data.take(parts[0]), data.take(parts[1]), f"rows held out from training{use}"


def check_columns(options: argparse.Namespace) -> None:
    """Raise an error if a column is asked to be two things."""
    if len(set(options.target)) < len(options.target):
        raise CommandError(f"--target {options.target[-1]} is given twice")
    roles = {"--target": options.target, "--weight": [options.weight]}
    roles.update({"--ignore": options.ignore, "--categorical": options.categorical})
    for first, second in itertools.combinations(roles, 2):
        both = [name for name in roles[first] if name is not None and name in roles[second]]
        if both and (first, second) != ("--weight", "--ignore"):  # a weight is no input in any case
            raise CommandError(f"column {both[0]!r} is given as {first} and as {second}; leave out one of them")


def new_model(options: argparse.Namespace, task: str) -> Any:
    """Return the estimator that the command line asks for."""
    parameters = {**parameters_of(options), **loss_of(options, task)}
    watching: list[Any] = []
    if options.time_limit is not None:
        watching.append(callbacks.TimeBudget(options.time_limit))
    if options.checkpoint is not None:
        watching.append(callbacks.Checkpoint(options.checkpoint, every=10, seconds=30))
    estimator = VPBoostRegressor if task == "regression" else VPBoostClassifier
    known = set(estimator().get_params())
    for name in parameters:
        if name not in known:
            raise CommandError(f"{name}: {estimator.__name__} has no such parameter{did_you_mean(name, known)}")
    return estimator(**parameters, callbacks=watching, verbose=0 if options.quiet else 1)


def loss_of(options: argparse.Namespace, task: str) -> dict[str, Any]:
    """Return the parameter ``loss``, if the command line gives one."""
    name, distribution = (parameters_of(options).get(parameter) for parameter in ("loss", "distribution"))
    forms = (
        ("--quantile", "quantile", losses.Quantile, options.quantile),
        ("--quantiles", "quantile", losses.Quantile, options.quantiles),
        ("--tweedie-power", "tweedie", losses.Tweedie, options.tweedie_power),
    )
    given = [form for form in forms if form[3] is not None]
    if task == "classification" and (given or distribution is not None or name not in (None, "log_loss")):
        flag = given[0][0] if given else "--distribution" if distribution is not None else f"--loss {name}"
        raise CommandError(f"{flag} is for regressions, and this is a classification; see --task")
    if task == "regression" and name is not None and name not in REGRESSION_LOSSES:
        known, hint = ", ".join(REGRESSION_LOSSES), did_you_mean(str(name), REGRESSION_LOSSES)
        raise CommandError(f"--loss must be one of {known} (for a level give --quantile), got {name!r}{hint}")
    if distribution is not None and (given or name is not None):
        flag = given[0][0] if given else "--loss"
        raise CommandError(f"--distribution {distribution} brings its own loss; leave out {flag}")
    for flag, kind, loss, number in given:
        if len(given) > 1 or name not in (None, kind):
            raise CommandError(f"{flag} {number} goes with --loss {kind} alone; leave out the other loss")
        try:
            return {"loss": loss(number)}
        except ValueError as error:
            raise CommandError(f"{flag}: {error}") from error
    return {} if name is None else {"loss": name}


def training_data(frame: Any, options: argparse.Namespace, name: str, like: Any = None) -> Data:
    """Return inputs, targets and weights; inputs are all columns that are nothing else, or those of ``like``."""
    used = [*options.target, *([options.weight] if options.weight else [])]
    columns = None if like is None else list(like.columns)
    tables.take_columns(frame, [*used, *(columns or [*options.ignore, *options.categorical])], name)
    lacking = frame[options.target].isna().any(axis=1)
    if lacking.any() and not options.skip_missing_target:
        raise CommandError(
            f"{name} has {int(lacking.sum())} rows without a target, the first row {int(lacking.argmax()) + 1}; fill "
            "them in, or leave them out with --skip-missing-target"
        )
    frame = frame[~lacking]
    if not len(frame):
        raise CommandError(f"{name} has no row with a target")
    inputs = columns or [column for column in frame.columns if column not in {*used, *options.ignore}]
    if not inputs:
        raise CommandError(f"{name} has no columns left to learn from beside {', '.join(options.target)}")
    if like is None:
        X = tables.check_inputs(frame[inputs], options.categorical, options.decimal)
    else:
        X = tables.known_inputs(frame[inputs], [tables.kind_of(like[column]) for column in inputs], name)
        for column in [column for column in inputs if tables.kind_of(like[column]) == "text"]:
            levels = sorted({tables.level_name(value) for value in like[column].dropna().unique()})
            X[column] = tables.as_known_levels(X[column], tuple(levels), options.decimal)
    others = tables.with_numbers(frame[used])
    for column in options.target:
        if tables.is_number(others[column]):
            tables.check_numbers(others[column], "target", -np.inf)
    if options.weight is not None:
        if not tables.is_number(others[options.weight]):
            raise CommandError(f"column {options.weight!r} holds text; weights are numbers")
        tables.check_numbers(others[options.weight], "--weight", 0.0)
    X, others = X.reset_index(drop=True), others.reset_index(drop=True)
    y = others[options.target[0]] if len(options.target) == 1 else others[options.target]
    return Data(X, y, None if options.weight is None else others[options.weight])


def find_task(y: Any, options: argparse.Namespace) -> str:
    """Return the task: the one asked for, that of the loss asked for, or the one that the target suggests.

    Text, true and false, or few whole numbers are classes.
    """
    if options.task != "auto":
        return options.task
    given, asked = parameters_of(options), (options.quantile, options.quantiles, options.tweedie_power)
    loss_given = given.get("loss") not in (None, "log_loss") or any(number is not None for number in asked)
    if y.ndim == 2 or loss_given or given.get("distribution") is not None:
        return "regression"
    if not tables.is_number(y):
        way_out = "or give --task classification if these are names of classes"
        tables.check_text(y, y.name, way_out, options.decimal)
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
