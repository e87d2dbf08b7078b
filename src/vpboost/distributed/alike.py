"""What must be alike in all processes: settings, columns and what these hold, outputs, kinds of labels."""

from typing import Any

import numpy as np

from ..checks import plain_number
from ..estimators.checks import power_of
from ..estimators.parts import Part
from ..numerics.processes import exchange_facts, together
from ..numerics.rows import chunks
from ..tables.frames import Table

#: Parameters that may differ: the first process decides, or nothing depends on them.
FIRST_DECIDES = ("callbacks", "verbose", "random_state")


def check_alike(what: str, found: list[Any]) -> None:
    """Raise ``ValueError`` if something that each process has found is not the same in all of them."""
    for i, one in enumerate(found):
        if one != found[0]:
            raise ValueError(
                f"{what} must be alike in all processes: process 0 has {shown(found[0], one)}, process {i} has "
                f"{shown(one, found[0])}"
            )


def shown(one: Any, other: Any) -> str:
    """Return a fact as text; of a long list where another one differs, the first that does so."""
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other) > 1:
        place = next(i for i, pair in enumerate(zip(one, other, strict=True)) if pair[0] != pair[1])
        return f"{one[place]!r} at place {place}"
    return repr(one)


def check_settings_alike(estimator: Any, resuming: bool) -> None:
    """Raise ``ValueError`` if estimators differ in a plain setting, or some go on from a checkpoint and others do not.

    Objects (losses, functions) are compared by their types: what else is in them may show otherwise in each process.
    """
    parameters = estimator.get_params(deep=False).items()
    settings = {name: plain(value) for name, value in sorted(parameters) if name not in FIRST_DECIDES}
    told = exchange_facts([type(estimator).__name__, resuming, settings])
    check_alike("kinds of estimators", [one[0] for one in told])
    check_alike("resume_from, given or not,", [one[1] for one in told])
    for name in settings:
        check_alike(f"the parameter {name}", [one[2][name] for one in told])


def plain(value: Any) -> Any:
    """Return a setting as JSON has it, an object by the name of its type."""
    value = plain_number(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, dict):
        return [[plain(name), plain(one)] for name, one in sorted(value.items(), key=lambda pair: str(pair[0]))]
    return [plain(one) for one in value] if isinstance(value, list | tuple) else type(value).__name__


def agree_on_columns(estimator: Any, X: Any, data: Part) -> Part:
    """Return rows whose columns are read as all processes read them.

    A column that has no values in one process looks like numbers there; what it holds is told by the others.
    """
    names = getattr(estimator, "feature_names_in_", None)
    shape = list(data.inputs.shape[1:])
    kinds = estimator.kinds_ or ["number"] * shape[0]
    told = exchange_facts(
        [shape, None if names is None else [str(name) for name in names], kinds, empty_in(data.inputs)]
    )
    for k, what in enumerate(("columns", "columns (their names)")):
        check_alike(what, [one[k] for one in told])
    agreed = [next((one[2][j] for one in told if j not in one[3]), "number") for j in range(len(kinds))]
    check_alike(
        "columns (what they hold)",
        [[agreed[j] if j in one[3] else kind for j, kind in enumerate(one[2])] for one in told],
    )
    differs = agreed != kinds
    if differs:
        estimator.kinds_ = agreed
    return together(lambda: data._replace(inputs=estimator._check_inputs(X, reset=False)) if differs else data)


def empty_in(inputs: Any) -> list[int]:
    """Return the columns that are taken for numbers and have none."""
    if len(inputs.shape) != 2:
        return []
    numbers, kinds = inputs, ["number"] * inputs.shape[1]
    if isinstance(inputs, Table):
        numbers, kinds = inputs.numbers, inputs.kinds
    in_numbers = [j for j, kind in enumerate(kinds) if kind != "category"]
    some = sum((~np.isnan(part)).any(axis=0) for part in chunks(numbers))
    return [j for j, found in zip(in_numbers, some > 0, strict=True) if kinds[j] == "number" and not found]


def weigh_alike(data: Part, sample_weight: Any) -> Part:
    """Return rows with weights of one scale: each process has brought huge or tiny ones to order one by itself."""
    largest = 1.0 if sample_weight is None else float(np.max(np.asarray(sample_weight, float)))
    power, common = power_of(largest), power_of(max(exchange_facts(largest)))
    return data if power == common else data._replace(weight=np.ldexp(data.weight, power - common))
