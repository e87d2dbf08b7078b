"""Commands and options."""

import argparse
import math
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from .._version import __version__
from ..suggest import did_you_mean
from .errors import CommandError, printable

#: Parameters of the estimators that have a flag of their own: name, type, help. All others go through ``--set``.
FLAGS: tuple[tuple[str, type, str], ...] = (
    ("n_estimators", int, "stages of boosting at the most (default: while validation improves)"),
    ("learning_rate", float, "boosting rate in (0, 1] (default: by the number of rows)"),
    ("loss", str, "squared_error, pseudo_huber, quantile, poisson, gamma or tweedie"),
    ("distribution", str, "also predict a spread: normal, lognormal, student_t, gamma or negative_binomial"),
    ("featurizer", str, "mlp, resnet, rbf, fourier or bspline (default mlp)"),
    ("width", int, "units per layer (default: by the number of rows)"),
    ("depth", int, "hidden layers (default 2)"),
    ("activation", str, "tanh, relu, gelu, silu, softplus or sin (default tanh)"),
    ("max_steps", int, "optimiser steps per stage (default: by the number of rows)"),
    ("encoding", str, "plain, quantile, spline or fine (default: raced on the validation part)"),
    ("reg_lambda", float, "initial weight of the penalty on linear weights (default: 1e-4 or 1e-10, raced)"),
    ("early_stopping_rounds", int, "stages to wait for a better validation score (default 10 or 20)"),
    ("validation_fraction", float, "part of the rows set aside for validation (default 0.15)"),
    ("eval_metric", str, "rmse, mae, r2; log_loss, error, auc (default: the loss)"),
    ("class_weight", str, "balanced, to give every class the same weight"),
    ("dtype", str, "float32 or float64 (default: raced for smooth responses)"),
    ("engine", str, "auto, xla or numpy (default auto)"),
)

EXAMPLES = """examples:
  vpboost train houses.csv --target price -o houses.vpboost
  vpboost predict houses.vpboost new.csv -o predictions.csv
  vpboost evaluate houses.vpboost test.csv
  vpboost inspect houses.vpboost
  vpboost export houses.vpboost --to onnx -o houses.onnx
  cat new.csv | vpboost predict houses.vpboost - > predictions.csv
"""


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line and say what may have been meant."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse arguments; none may be unknown. Unknown options come first: others seem missing when misspelt."""
        words = list(sys.argv[1:] if args is None else args)
        if self._subparsers is None:
            self.check_options(words)
        found, rest = super().parse_known_args(words, namespace)
        if rest:
            self.error(f"what is {rest[0]!r}? a text with spaces needs quotes")
        return found, rest

    def check_options(self, words: list[str]) -> None:
        """End with an error at the first option that does not exist."""
        known = list(self._option_string_actions)
        for word in words[: words.index("--")] if "--" in words else words:
            name = word.partition("=")[0]
            if re.fullmatch(r"--[\w-]+", name) and not any(option.startswith(name) for option in known):
                self.error(f"unknown option {name}{did_you_mean(name, known)}")
            if re.match(r"-[^-\d.]", word) and word[:2] not in known:
                self.error(f"unknown option {word}; write a file or column of that name as ./{word} or --OPTION={word}")

    def error(self, message: str) -> NoReturn:
        """Print what is wrong, in one line, and end with code 2."""
        choice = re.search(r"invalid choice: '(.*)' \(choose from (.*)\)", message)
        if choice is not None:
            message += did_you_mean(choice[1], re.findall(r"[\w-]+", choice[2]))
        end = "" if message.endswith("?") else ";"
        self.exit(2, printable(f"{self.prog}: error: {message}{end} see {self.prog} --help").replace("\n", " ") + "\n")


def command(name: str) -> Callable[[argparse.Namespace], None]:
    """Return the function of a command, imported when it is run."""

    def run(options: argparse.Namespace) -> None:
        from . import commands

        getattr(commands, name)(options)

    return run


def parser() -> Parser:
    """Return the parser of the command line."""
    top = Parser(
        prog="vpboost",
        description="Boosting of smooth learners: train on a table, predict, evaluate, inspect and export models.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"vpboost {__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def add(name: str, summary: str, reads: Sequence[str] = (), writes: Sequence[str] = ()) -> Parser:
        """Add a command; ``reads`` and ``writes`` are its options that hold paths."""
        part = commands.add_parser(name, help=summary, description=summary + ".")
        part.set_defaults(run=command(name), reads=reads, writes=writes)
        part.add_argument("--traceback", action="store_true", help="show where in the program an error arose")
        for argument in reads:
            if argument in MEANING:
                part.add_argument(argument, help=MEANING[argument])
        if "table" in reads:
            part.add_argument("--delimiter", help="what separates the fields of a CSV (default: found out)")
            part.add_argument("--decimal", default=".", help="decimal mark of a CSV (default: .)")
            text = "what a CSV writes for a missing value, beside nothing (default: NA, NaN, null and the like)"
            part.add_argument("--missing", action="append", metavar="TEXT", help=text)
        return part

    train(add("train", "Fit a model to a table", ("table", "validation"), ("output", "report", "checkpoint")))
    part = add("predict", "Predict the rows of a table", ("model", "table"), ("output",))
    text = "file: .csv, .txt or .tsv, also with .gz, or .parquet (default: - for standard output)"
    part.add_argument("-o", "--output", default="-", help=text)
    part.add_argument("--keep", action="store_true", help="keep the columns of the table beside the predictions")
    part.add_argument("--probabilities", action="store_true", help="add the probability of each class")
    text = "add intervals that hold the truth of this part of the rows, e.g. 0.9: TARGET_low and TARGET_high"
    part.add_argument("--interval", type=coverage, metavar="COVERAGE", help=text)
    part.add_argument("--simultaneous", action="store_true", help=AT_ONCE)
    part.add_argument("--std", action="store_true", help="add the standard deviation of the truth: TARGET_std")
    text = "add which classes are in sets that hold the true one of this part of the rows, e.g. 0.9: set_CLASS"
    part.add_argument("--set", type=coverage, metavar="COVERAGE", help=text)
    part = add("evaluate", "Compare predictions with the truth in a table", ("model", "table"), ("report",))
    part.add_argument("--target", action="append", help="target column (default: that of training); repeat for more")
    part.add_argument("--json", action="store_true", help="print JSON")
    part.add_argument("--report", metavar="HTML", help="also write a page with metrics and pictures")
    part = add("inspect", "Show what a model file contains", ("model",), ("plot",))
    part.add_argument("--json", action="store_true", help="print the whole description as JSON")
    part.add_argument("--plot", metavar="PNG", help="also draw the history of the fit")
    part = add("export", "Write a model for use without JAX", ("model",), ("output",))
    part.add_argument("--to", choices=("onnx", "numpy"), default="onnx", help="what to write (default: onnx)")
    part.add_argument("-o", "--output", required=True, help="the ONNX file, or a folder for the NumPy predictor")
    part.add_argument("--dtype", choices=("float32", "float64"), default="float32", help="precision of the ONNX model")
    text = "also write the ends of intervals, or label sets, that hold the truth of this part of the rows to ONNX"
    part.add_argument("--coverage", type=coverage, help=text)
    part.add_argument("--simultaneous", action="store_true", help=AT_ONCE)
    part = add("demo", "Train on the paper's three 2D tasks and draw a picture", writes=("picture",))
    part.add_argument("--picture", default="demo.png", help="where to write the picture (default: demo.png)")
    part.add_argument("--seed", type=seed, default=0, help="seed of data and training (default: 0)")
    part.add_argument("--candidates", type=int, default=2, help="initialisations per learner (default: 2)")
    return top


MEANING = {
    "table": "CSV (also with .gz) or Parquet file with a header, or - for CSV on standard input",
    "model": "a model file",
}
#: What --simultaneous stands for.
AT_ONCE = "let intervals hold all targets of a row at once, in this part of the rows"


def train(part: argparse.ArgumentParser) -> None:
    """Add the options of training."""
    part.add_argument("--target", action="append", required=True, help="target column; repeat for several")
    part.add_argument("-o", "--output", default="model.vpboost", help="the model file (default: model.vpboost)")
    kinds = ("auto", "regression", "classification")
    part.add_argument("--task", choices=kinds, default="auto", help="default: by the values of the target")
    part.add_argument("--ignore", action="append", default=[], metavar="COLUMN", help="leave a column out; repeatable")
    text = "read a column as categories; repeatable"
    part.add_argument("--categorical", action="append", default=[], metavar="COLUMN", help=text)
    part.add_argument("--weight", metavar="COLUMN", help="column of sample weights")
    part.add_argument("--validation", metavar="TABLE", help="table to validate with (default: part of the rows)")
    part.add_argument("--skip-missing-target", action="store_true", help="leave out rows without a target")
    part.add_argument("--seed", type=seed, default=0, help="seed of everything random (default: 0)")
    part.add_argument("--time-limit", type=seconds, metavar="SECONDS", help="stop boosting after this time")
    text = "save the state of the fit here now and then, and go on from it if the file exists"
    part.add_argument("--checkpoint", metavar="FILE", help=text)
    text = "also write a page with metrics and pictures, on rows held out from training where there are enough"
    part.add_argument("--report", metavar="HTML", help=text)
    text = "leave rows of the training table out of a regressor's model file, which --std of predict may need"
    part.add_argument("--no-training-rows", action="store_true", help=text)
    part.add_argument("--quiet", action="store_true", help="no progress, no summary")
    group = part.add_argument_group("settings of the model")
    for name, kind, meaning in FLAGS:
        group.add_argument(f"--{name.replace('_', '-')}", type=kind, help=meaning)
    text = "predict this quantile, in (0, 1), e.g. 0.9: --loss quantile of that level"
    group.add_argument("--quantile", type=float, metavar="LEVEL", help=text)
    text = "predict several quantiles, e.g. 0.05,0.5,0.95"
    group.add_argument("--quantiles", type=levels, metavar="LEVELS", help=text)
    text = "--loss tweedie of this power, in (1, 2) (default 1.5)"
    group.add_argument("--tweedie-power", type=float, metavar="POWER", help=text)
    text = "any other parameter of the estimator, e.g. --set inherit=0.8"
    group.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help=text)


def seed(text: str) -> int:
    """Return a seed; raise an error that argparse shows if it is none."""
    if not text.isascii() or not text.isdecimal() or int(text[:20]) >= 1 << 32:
        raise argparse.ArgumentTypeError(f"must be a whole number from 0 to 4294967295, got {text!r}")
    return int(text)


def coverage(text: str) -> float:
    """Return a coverage; raise an error that argparse shows if it is none."""
    try:
        part = float(text)
    except ValueError:
        part = math.nan
    if not 0 < part < 1:
        raise argparse.ArgumentTypeError(f"must be a number between 0 and 1, such as 0.9, got {text!r}")
    return part


def levels(text: str) -> list[float]:
    """Return the levels of several quantiles; raise an error that argparse shows if they are none."""
    try:
        return [float(level) for level in text.split(",")]
    except ValueError:
        message = f"must be numbers with commas between them, such as 0.05,0.5,0.95, got {text!r}"
        raise argparse.ArgumentTypeError(message) from None


def seconds(text: str) -> float:
    """Return a time; raise an error that argparse shows if it is none."""
    try:
        time = float(text)
    except ValueError:
        time = math.nan
    if not time > 0:
        raise argparse.ArgumentTypeError(f"must be a positive number of seconds, got {text!r}")
    return time


def parameters_of(options: argparse.Namespace) -> dict[str, Any]:
    """Return the estimator's parameters that the command line gives."""
    given = {name: getattr(options, name) for name, _, _ in FLAGS if getattr(options, name) is not None}
    for setting in options.set:
        name, equals, value = setting.partition("=")
        name = name.strip().replace("-", "_")
        if not name or not equals:
            raise CommandError(f"--set takes NAME=VALUE, got {setting!r}")
        if name in ("callbacks", "verbose", "random_state", "warm_start"):
            raise CommandError(f"--set {name} is not for the command line; see --seed, --quiet, --checkpoint")
        if name in given:
            raise CommandError(f"--set {name} is given twice, or beside --{name.replace('_', '-')}")
        given[name] = value_of(value)
    return {**given, "random_state": options.seed}


def value_of(text: str) -> Any:
    """Return a number, True, False or None if the text is one, else the text.

    >>> [value_of(text) for text in ("3", "0.5", "none", "auto")]
    [3, 0.5, None, 'auto']
    """
    words = {"none": None, "true": True, "false": False}
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
