"""What predictions for the rows of a table, and what a model says of their errors, are worth."""

import contextlib
from typing import Any

import numpy as np

from ..estimators.metrics import evaluate, has_quantiles, true_classes, true_values

#: The coverage of the intervals and label sets that are looked at.
COVERAGE = 0.9


def measures(model: Any, X: Any, y: Any) -> dict[str, float]:
    """Return metrics by name: those of predictions, then those of distributions, intervals and sets, where known."""
    found = evaluate(model, X, y)
    if has_quantiles(model):
        return found
    with contextlib.suppress(ValueError):  # too few rows are known that were not trained on
        found["coverage_90"] = coverage(model, X, y)
    if getattr(model, "distribution", None) is not None:
        truth, law = plain_values(model, y), model.predict_dist(X)
        with np.errstate(all="ignore"):  # truth that the law knows nothing of
            known = ~np.isnan(truth)
            found["nll"], found["crps"] = -float(law.logpdf(truth)[known].mean()), float(law.crps(truth)[known].mean())
    return found


def plain_values(model: Any, y: Any) -> np.ndarray:
    """Return true values, shaped as ``predict`` returns them."""
    truth = true_values(model, y)
    return truth[:, 0] if model.single_output_ else truth


def coverage(model: Any, X: Any, y: Any) -> float:
    """Return the part of rows, or of targets, within the intervals or sets of the model."""
    if hasattr(model, "classes_"):
        truth = true_classes(model, y)
        return float(model.predict_set(X, COVERAGE)[np.arange(len(truth)), truth].mean())
    truth, (low, high) = plain_values(model, y), model.predict_interval(X, COVERAGE)
    return float(((low <= truth) & (truth <= high))[~np.isnan(truth)].mean())
