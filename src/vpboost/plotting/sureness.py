"""The section of the report on how sure the model is, and whether it may be."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from ..distributions import Distribution
from ..estimators.metrics import Compared
from ..numerics.conformal import rows_needed
from .calibration import (
    Curve,
    curves_of,
    distribution_of,
    draw_calibration,
    draw_reliability,
    known_scores,
    known_targets,
    plot_interval_widths,
    some_rows,
)
from .html import EXTREMES, MOST_DRAWN, MOST_SCORES, number, plots, scores_table
from .names import n_outputs, names_of_outputs

#: Coverages of the table, and that of label sets and of what outputs are judged by.
SHOWN, USUAL = (0.5, 0.9, 0.95), 0.9

NOT_KNOWN = (
    "<p>It cannot say {what}: the fit has set too few rows aside to know its errors by; "
    "call <code>calibrate(X, y)</code> with rows that it has not seen.</p>"
)


def how_sure(model: Any, X: Any, compared: Compared) -> list[str]:
    """Return the section."""
    return ["<h2>How sure is it?</h2>", *(of_classes if hasattr(model, "classes_") else of_values)(model, X, compared)]


def of_values(model: Any, X: Any, compared: Compared) -> list[str]:
    """Return how often intervals, and a distribution if there is one, hold the truth, and how wide they are."""
    X, truth = some_rows(X, compared.truth)
    law = distribution_of(model, X)
    curves = curves_of(model, X, truth, law)
    parts = [] if law is None else [numbers_of_law(law, truth[:, 0] if model.single_output_ else truth)]
    if not curves:
        return [NOT_KNOWN.format(what="within which bounds the truth is")]
    if "intervals" in curves:
        parts.append(coverage_table(model, curves["intervals"]))
    axes = [draw_calibration(model, curves, known_targets(truth, k), k) for k in judged_outputs(curves)]
    if n_outputs(model) == 1 and known_scores(model) >= rows_needed(USUAL):
        axes.append(plot_interval_widths(model, X, truth, coverage=USUAL))
    return [*parts, plots(axes)]


def numbers_of_law(law: Distribution, truth: np.ndarray) -> str:
    """Return what predicted distributions are worth, in large type."""
    with np.errstate(all="ignore"):  # targets may be where a law allows none
        known = ~np.isnan(truth)
        scores = {"negative log-likelihood": -law.logpdf(truth)[known].mean(), "CRPS": law.crps(truth)[known].mean()}
    return "<div class='numbers'>" + "".join(number(name, value) for name, value in scores.items()) + "</div>"


def coverage_table(model: Any, curve: Curve) -> str:
    """Return which part of the rows is within intervals, and how wide they are; of very many outputs, some."""
    found = {level: place for place, level in enumerate(curve.levels.tolist())}
    unknown = np.full(curve.observed.shape[1], np.nan)
    pairs = [
        (curve.observed[found[level]], curve.width[found[level]]) if level in found else (unknown, unknown)  # type: ignore[index]
        for level in SHOWN
    ]
    if n_outputs(model) == 1:
        rows = [(f"{level:.0%}", [part[0], width[0]]) for level, (part, width) in zip(SHOWN, pairs, strict=True)]
        return scores_table(["intervals of", "observed coverage", "mean width"], rows)
    n, note, chosen = n_outputs(model), "", np.arange(n_outputs(model))
    if n > MOST_SCORES:
        order = np.argsort(curve.observed[-1], kind="stable")
        chosen = np.concatenate([order[:EXTREMES], order[-EXTREMES:]])
        note = f"<p>The {EXTREMES} outputs of {n:,} whose intervals hold the truth least often, and most often.</p>"
    names = names_of_outputs(model) or [str(k) for k in range(n)]
    head = [text for level in SHOWN for text in (f"coverage of {level:.0%}", "mean width")]
    return note + scores_table(
        ["output", *head], [(names[k], [values[k] for pair in pairs for values in pair]) for k in chosen]
    )


def judged_outputs(curves: dict[str, Curve]) -> list[int]:
    """Return the outputs to draw: all, or of many those that are within least often and most often."""
    observed = next(iter(curves.values())).observed
    n, last = observed.shape[1], observed[-1]
    return list(range(n)) if n <= MOST_DRAWN else [int(np.nanargmin(last)), int(np.nanargmax(last))]


def of_classes(model: Any, X: Any, compared: Compared) -> list[str]:
    """Return how large label sets are and how often they hold the true class, and the reliability diagram."""
    axes: list[Axes] = [draw_reliability(model, compared, None)]
    if known_scores(model) < rows_needed(USUAL):
        return [NOT_KNOWN.format(what="which classes may be the true one"), plots(axes)]
    X, truth = some_rows(X, compared.truth)
    sets = model.predict_set(X, USUAL)
    scores = {
        f"classes in a label set of {USUAL:.0%} coverage, on average": sets.sum(axis=1).mean(),
        "of these sets hold the true class": np.take_along_axis(sets, truth[:, None], axis=1).mean(),
    }
    numbers = "".join(number(name, value) for name, value in scores.items())
    return [f"<div class='numbers'>{numbers}</div>", plots(axes)]
