"""What predictions for the rows of a table, and what a model says of their errors, are worth."""

import contextlib
from typing import Any

import numpy as np

from ..estimators.metrics import evaluate, true_classes, true_values

#: The coverage of the intervals and label sets that are looked at.
COVERAGE = 0.9


def measures(model: Any, X: Any, y: Any) -> dict[str, float]:
    """Return metrics by name: those of predictions, then those of distributions, intervals and sets, where known."""
    if not hasattr(model, "classes_") and np.ndim(getattr(model.loss_, "level", 0.0)):
        return of_quantiles(model, X, y)
    found = evaluate(model, X, y)
    with contextlib.suppress(ValueError):  # too few rows are known that were not trained on
        found["coverage_90"] = coverage(model, X, y)
    if getattr(model, "distribution", None) is not None:
        truth, law = plain_values(model, y), model.predict_dist(X)
        with np.errstate(all="ignore"):  # truth that the law knows nothing of
            found["nll"], found["crps"] = -float(law.logpdf(truth).mean()), float(law.crps(truth).mean())
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
    return float(((low <= truth) & (truth <= high)).mean())


def of_quantiles(model: Any, X: Any, y: Any) -> dict[str, float]:
    """Return the mean pinball loss of several quantiles, and the part of targets that is below each."""
    error = plain_values(model, y)[..., None] - model.predict(X)
    levels = np.array(model.loss_.level)
    found = {"pinball_loss": float(np.maximum(levels * error, (levels - 1) * error).mean())}
    for k, level in enumerate(levels):
        found[f"below {level:g}"] = float((error[..., k] < 0).mean())
    return found
