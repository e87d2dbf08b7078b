"""What processes must agree on before a fit: columns, classes, outputs, levels of categories, missing values."""

from typing import Any, NamedTuple

import numpy as np

from ..estimators.checks import Checks
from ..estimators.parts import Part
from ..numerics.processes import exchange_arrays, exchange_facts, together
from ..numerics.rows import chunks
from ..tables.encoder import Categories, InputEncoder
from ..tables.frames import Table, check_levels
from .alike import agree_on_columns, check_alike, weigh_alike


class Given(NamedTuple):
    """Rows of this process as the user has them."""

    X: Any
    y: Any
    weight: Any


class Exact(NamedTuple):
    """What of the columns is told by all rows, not by a sample."""

    levels: dict[int, tuple[str, ...]]  #: of categorical columns
    missing: np.ndarray  #: numeric columns with missing values

    def complete(self, encoder: InputEncoder) -> InputEncoder:
        """Return an encoder that a sample was enough for, made to know all levels and missing values."""
        encoder.categories_ = [Categories(j, levels) for j, levels in self.levels.items()]
        encoder.missing_ = self.missing
        encoder.sources_ = encoder.find_sources()
        return encoder


def agree(estimator: Any, given: Given, validating: Given) -> tuple[Part, Part | None, Exact]:
    """Return the rows of this process, checked, those that validate, and what all say of their columns.

    The estimator's attributes about data (classes and the like) are set as by a fit to the rows of all.
    """
    data = together(lambda: estimator._check_data(*given, reset=True))
    data = agree_on_columns(estimator, given.X, data)
    facts = exchange_facts(together(lambda: facts_of(estimator, data, validating)))
    for what in ("outputs", "names of outputs", "kinds of labels", "validation rows, given or not,"):
        check_alike(what, [one[what] for one in facts])
    estimator._has_holes = any(one["holes"] for one in facts)
    if estimator._is_classifier:
        estimator.classes_ = all_classes([one["classes"] for one in facts], any(one["objects"] for one in facts))
        data = together(lambda: relabelled(estimator, given, data))
    data = weigh_classes(estimator, weigh_alike(data, given.weight))
    aside = None
    if any(one is not None for one in validating):
        aside = together(lambda: estimator._split(data, np.zeros(0), (*validating, None), 0)[1])
        aside = weigh_alike(aside, validating.weight)
        estimator._has_holes = any(exchange_facts(bool(estimator._has_holes)))
    columns = {int(j) for one in facts for j in one["levels"]}
    levels = {j: tuple(sorted({name for one in facts for name in one["levels"][str(j)]})) for j in sorted(columns)}
    for j, names in levels.items():
        check_levels(np.array(names, object), True, getattr(estimator, "feature_names_in_", range(j + 1))[j])
    return data, aside, Exact(levels, np.unique(np.concatenate([np.array(one["missing"], int) for one in facts])))


def facts_of(estimator: Any, data: Part, validating: Given) -> dict[str, Any]:
    """Return what this process has to tell about its rows."""
    inputs, labels = data.inputs, estimator.classes_ if estimator._is_classifier else np.zeros(0)
    texts = inputs.texts if isinstance(inputs, Table) else {}
    numbers = inputs.numbers if isinstance(inputs, Table) else inputs
    other = [label for label in labels.tolist() if not isinstance(label, bool | int | float | str)]
    if other:
        kind = type(other[0]).__name__
        raise TypeError(f"labels must be numbers or text in fits by several processes, got {other[0]!r} ({kind})")
    plain, dimensions = len(numbers.shape) == 2, 1 if getattr(estimator, "single_output_", True) else 2
    missing = sum((np.isnan(part).any(axis=0) for part in chunks(numbers)), np.zeros(numbers.shape[1:], bool))
    return {
        "outputs": f"{int(np.prod(data.target.shape[1:]))} of {dimensions}-D y",
        "names of outputs": estimator.target_names_,
        "kinds of labels": "text" if all(isinstance(label, str) for label in labels.tolist()) else "numbers",
        "validation rows, given or not,": any(one is not None for one in validating),
        "holes": bool(estimator._has_holes),
        "classes": labels.tolist(),
        "objects": labels.dtype.kind == "O",
        "levels": {str(j): sorted(set(column.tolist())) for j, column in texts.items()},
        "missing": np.flatnonzero(missing).tolist() if plain else [],
        "rows": data.n_rows,
    }


def all_classes(classes: list[list], objects: bool) -> np.ndarray:
    """Return the classes of all processes in order."""
    return np.unique(np.array([label for some in classes for label in some], object if objects else None))


def relabelled(estimator: Any, given: Given, data: Part) -> Part:
    """Return rows with numbers and weights of the classes that all processes have together."""
    target = estimator._check_target(given.y, reset=False)
    weight = Checks._check_weight(estimator, given.weight, given.y, data.n_rows, "sample_weight")
    return data._replace(target=target, weight=weight)


def weigh_classes(estimator: Any, data: Part) -> Part:
    """Return rows with the weights of their classes worked in; "balanced" is so over the rows of all processes."""
    if not estimator._is_classifier or estimator.class_weight is None:
        return data
    n = len(estimator.classes_)
    counts = np.sum(exchange_arrays(np.bincount(data.target, minlength=n)[None]), axis=0).reshape(-1)
    if isinstance(estimator.class_weight, str):  # "balanced", as has been checked
        weights = counts.sum() / (n * counts)
    else:
        weights = np.array([estimator.class_weight.get(label, 1.0) for label in estimator.classes_.tolist()])
    estimator._weights_of_classes = weights
    return data._replace(weight=data.weight * weights[data.target])
