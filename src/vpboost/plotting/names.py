"""What inputs and outputs are called in plots, and which of them somebody means."""

from typing import Any, NoReturn

import numpy as np

from ..checks import is_whole
from ..predictor import level_name
from ..suggest import did_you_mean

#: Names in error messages.
MOST_LISTED = 10


def label_of(value: Any) -> str:
    """Return a label or level as text; a date at midnight without its time."""
    return level_name(value).removesuffix("T00:00:00")


def plain_text(text: Any, most: int = 32) -> str:
    r"""Return a text as matplotlib shows it: one line, not too long, no formulas.

    >>> print(plain_text("price in $\nof 2024"))
    price in \$ of 2024
    """
    line = "".join(letter if letter.isprintable() else " " for letter in str(text))
    return (line if len(line) <= most else line[: most - 1] + "…").replace("$", r"\$")


def column_name(model: Any, column: int) -> str:
    """Return what to call an input column."""
    names = getattr(model, "feature_names_in_", None)
    return f"column {column}" if names is None else str(names[column])


def column_number(model: Any, feature: Any) -> int:
    """Return the number of a column, given by number or by name; raise ``ValueError`` if there is none."""
    names = [str(name) for name in getattr(model, "feature_names_in_", [])]
    if isinstance(feature, str) and feature in names:
        return names.index(feature)
    if is_whole(feature) and 0 <= feature < model.n_features_in_:
        return int(feature)
    refuse("feature", feature, model.n_features_in_, names)


def n_outputs(model: Any) -> int:
    """Return the number of outputs, or of classes."""
    return len(model.classes_) if hasattr(model, "classes_") else model.n_outputs_


def names_of_outputs(model: Any) -> list[str]:
    """Return the labels of the classes, or the names of the outputs, as text; empty if outputs have no names."""
    if hasattr(model, "classes_"):
        return [label_of(label) for label in model.classes_]
    return list(getattr(model, "target_names_", None) or [])


def output_name(model: Any, output: int) -> str:
    """Return what to call an output or a class."""
    names = names_of_outputs(model)
    return names[output] if names else "value" if n_outputs(model) == 1 else f"output {output} of {n_outputs(model)}"


def output_number(model: Any, output: Any) -> int:
    """Return the number of an output, or of a class; raise ``ValueError`` if there is none like it.

    None stands for the first, and of two classes for the second, whose logit the model predicts. A whole number is
    always the number of the output or class, from 0; a class whose label is a number is named by text, such as "7".
    """
    if output is None:
        return 1 if hasattr(model, "classes_") and n_outputs(model) == 2 else 0
    names = names_of_outputs(model)
    dated = hasattr(output, "isoformat") or isinstance(output, np.datetime64)
    text = label_of(output) if dated else output
    if isinstance(text, str) and text in names:
        return names.index(text)
    if is_whole(output) and 0 <= output < n_outputs(model):
        return int(output)
    refuse("output", output, n_outputs(model), names)


def of_output(model: Any, values: Any, output: int) -> np.ndarray:
    """Return the part for one output of predictions, logits or derivatives of all."""
    values = np.asarray(values)
    if hasattr(model, "classes_") and n_outputs(model) == 2:
        return values if output == 1 else -values  # there is one logit, that of the second class
    return values if getattr(model, "single_output_", False) else values[:, output]


def subject(model: Any, output: int) -> str:
    """Return what is drawn: the prediction, whose if that is not obvious, or the logit of a class."""
    name = plain_text(output_name(model, output))
    if hasattr(model, "classes_"):
        return f"logit of '{name}'"
    return "prediction" if n_outputs(model) == 1 and not names_of_outputs(model) else f"prediction of {name}"


def refuse(parameter: str, given: Any, n: int, names: list[str]) -> NoReturn:
    """Raise ``ValueError`` for a column or an output that there is not."""
    listed = ", ".join(repr(name) for name in names[:MOST_LISTED])
    more = f" and {len(names) - MOST_LISTED} more" if len(names) > MOST_LISTED else ""
    choices = (
        f"one of the names {listed}{more} or a number from 0 to {n - 1}" if names else f"a number from 0 to {n - 1}"
    )
    hint = did_you_mean(given, names) if isinstance(given, str) else ""
    if not isinstance(given, str) and str(given) in names:
        hint = f"; the name is written {str(given)!r}"
    raise ValueError(f"{parameter} must be {choices}, got {given!r}{hint}")
