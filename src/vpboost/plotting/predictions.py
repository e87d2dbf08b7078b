"""Predictions against the truth: values, confusion of classes, probabilities."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from sklearn.utils.validation import check_is_fitted

from ..estimators.metrics import Compared, compare
from .figures import BLUE, GREY, ORANGE, axes_or_new, some_places
from .names import n_outputs, names_of_outputs, output_name, output_number, plain_text

MOST_POINTS = 5000
#: Classes whose counts are written into the confusion matrix, and classes whose labels are written beside it.
MOST_COUNTS, MOST_LABELS = 12, 40


def plot_predictions(model: Any, X: Any, y: Any, ax: Axes | None = None, output: Any = None) -> Axes:
    """Draw predicted against true values, or how often a classifier took each class for each.

    Parameters
    ----------
    model : VPBoostRegressor or VPBoostClassifier
        A fitted estimator.
    X, y : array-like
        Data to predict, and the truth. At most 5,000 points are drawn.
    ax : matplotlib axes, optional
        Where to draw; by default on a new figure.
    output : int or str, optional
        Which output of a regressor to show, by number from 0 or by name; by default the first. A classifier's
        confusion matrix shows all classes; if one is given, by number from 0 or by its label as text (a whole number
        is the number of the class, not its label), the probabilities predicted for it are drawn instead.

    Returns
    -------
    matplotlib axes
    """
    check_is_fitted(model)
    chosen = output_number(model, output)
    compared = compare(model, X, y)
    if not hasattr(model, "classes_"):
        return draw_values(model, compared, chosen, ax)
    return draw_confusion(model, compared, ax) if output is None else draw_probabilities(model, compared, chosen, ax)


def draw_values(model: Any, compared: Compared, output: int, ax: Axes | None = None, note: str = "") -> Axes:
    """Draw predicted against true values of one output."""
    ax = axes_or_new(ax)
    known = ~np.isnan(compared.truth[:, output])
    truth, prediction = (values[known, output] for values in compared)
    ends = [min(truth.min(), prediction.min()), max(truth.max(), prediction.max())]
    ax.plot(ends, ends, color=GREY, linewidth=0.8)
    some = some_places(len(truth), MOST_POINTS)
    ax.scatter(truth[some], prediction[some], s=9, alpha=0.5, color=BLUE, linewidths=0)
    name = plain_text(output_name(model, output))
    title = "Predictions" if n_outputs(model) == 1 else f"Predictions of {name}"
    ax.set(xlabel=f"true {name}", ylabel=f"predicted {name}", title=title + note)
    return ax


def draw_confusion(model: Any, compared: Compared, ax: Axes | None = None) -> Axes:
    """Draw how often each class was taken for each; colours are shares of the true class."""
    n = n_outputs(model)
    ax = axes_or_new(ax, 3.4 if n <= MOST_COUNTS else 4.6)
    counts = np.zeros((n, n), int)
    np.add.at(counts, (compared.truth, compared.prediction.argmax(axis=1)), 1)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    image = ax.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    if n <= MOST_COUNTS:
        size = 10 if n <= 6 else 7
        for i, j in np.ndindex(n, n):
            colour = "white" if shares[i, j] > 0.5 else "black"
            ax.text(j, i, str(counts[i, j]), ha="center", va="center", color=colour, fontsize=size)
    else:
        ax.get_figure(root=True).colorbar(image, ax=ax, label="share of the true class")  # type: ignore[union-attr]
    if n <= MOST_LABELS:
        labels = [plain_text(label, 16) for label in names_of_outputs(model)]
        size = 10 if n <= MOST_COUNTS else 6
        ax.set_yticks(range(n), labels, fontsize=size)
        crowded = sum(map(len, labels)) > 24
        ax.set_xticks(range(n), labels, fontsize=size, rotation=90 if crowded else 0)
    number = "" if n <= MOST_LABELS else ", number of the class"
    ax.set(xlabel=f"predicted{number}", ylabel=f"true{number}", title="Confusion matrix")
    return ax


def draw_probabilities(model: Any, compared: Compared, output: int, ax: Axes | None = None) -> Axes:
    """Draw how often which probability was predicted for a class, to rows of the class and to others."""
    ax = axes_or_new(ax)
    name, own = plain_text(output_name(model, output)), compared.truth == output
    for rows, colour, label in ((~own, ORANGE, f"not '{name}'"), (own, BLUE, f"'{name}'")):
        values = compared.prediction[rows, output]
        ax.hist(values, bins=25, range=(0, 1), color=colour, alpha=0.6, label=f"{label}: {rows.sum()} rows")
    ax.set(xlabel=f"predicted probability of '{name}'", ylabel="rows", title=f"Predictions of '{name}'")
    ax.set_ylim(top=1.3 * ax.get_ylim()[1])  # room for the legend
    ax.legend(frameon=False)
    return ax
