"""The history of a fit: training curves, the trust region and diagnostics; and how pictures are written."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from sklearn.utils.validation import check_is_fitted

from ..callbacks import name_of
from ..files.atomic import replacing

BLUE, ORANGE, GREY = "#2563a8", "#d9822b", "#8a8f98"


def axes_or_new(ax: Any, height: float = 3.4) -> Axes:
    """Return the axes given, or those of a new figure."""
    if ax is None:
        return Figure(figsize=(5.2, height), layout="constrained").subplots()
    if not isinstance(ax, Axes):
        raise TypeError(f"ax must be matplotlib axes, such as figure.subplots() returns, got {type(ax).__name__}")
    return ax


def some_places(n: int, most: int) -> np.ndarray:
    """Return so many of the places of n rows at the most, evenly spaced."""
    return np.linspace(0, n - 1, min(n, most)).astype(int)


def curve(ax: Axes, stages: np.ndarray, values: Any, colour: str, label: str) -> None:
    """Draw values by stage; a single one as a point, for it has no line."""
    ax.plot(stages, values, color=colour, label=label, marker="." if len(stages) == 1 else None)


def stages_below(ax: Axes, title: str) -> None:
    """Write the numbers of stages below the axes, and a title above."""
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    ax.set(xlabel="stage", title=title)


def plot_training(model: Any, ax: Axes | None = None) -> Axes:
    """Draw training loss and validation score by stage; a line marks where later learners were cut off.

    Parameters
    ----------
    model : VPBoostRegressor or VPBoostClassifier
        A fitted estimator.
    ax : matplotlib axes, optional
        Where to draw; by default on a new figure.

    Returns
    -------
    matplotlib axes
    """
    check_is_fitted(model)
    ax = axes_or_new(ax)
    curves = model.evals_result_
    stages = np.arange(1, model.n_iter_ + 1)
    curve(ax, stages, curves["training"], BLUE, "training loss")
    if curves["validation"]:
        curve(ax, stages, curves["validation"], ORANGE, f"validation {metric_name(model.eval_metric)}")
    accepted = np.cumsum(model.history_["accepted"])
    if len(accepted) and model.best_iteration_ < accepted[-1]:
        kept = int(np.argmax(accepted >= model.best_iteration_)) + 1
        ax.axvline(kept, color=GREY, linestyle=":", label=f"kept: stage {kept}")
    values = np.array([*curves["training"], *curves["validation"]])
    finite = values[np.isfinite(values)]
    if len(finite) and finite.min() > 0:
        ax.set_yscale("log")
    stages_below(ax, "Training")
    ax.legend(frameon=False)
    return ax


def plot_trust_region(model: Any, ax: Axes | None = None) -> Axes:
    """Draw the reduction ratio ρ of every stage, rejected learners marked, and λ_w on a second axis.

    Parameters and returned axes as in :func:`plot_training`.
    """
    check_is_fitted(model)
    ax = axes_or_new(ax)
    history = model.history_
    stage, accepted = history["stage"] + 1, history["accepted"].astype(bool)
    ratio = np.clip(history["ratio"], -2, 4)  # one far off would make a line of all others
    ax.plot(stage[accepted], ratio[accepted], ".", color=BLUE, label="ρ, accepted")
    if not accepted.all():
        ax.plot(stage[~accepted], ratio[~accepted], "x", color="crimson", label="ρ, rejected")
    ax.axhline(1, color=GREY, linewidth=0.8)
    ax.axhline(model.rho_small, color=GREY, linewidth=0.8, linestyle=":")
    stages_below(ax, "Trust region")
    cut = [text for text, end in (("−2 or less at −2", -2), ("4 or more at 4", 4)) if (ratio == end).any()]
    ax.set_ylabel("ρ, actual over predicted reduction" + (f"\n({', '.join(cut)})" if cut else ""))
    right = ax.twinx()
    curve(right, stage, history["reg_lambda"], ORANGE, "λ_w")
    right.set_ylabel("λ_w")
    positive = history["reg_lambda"][np.isfinite(history["reg_lambda"]) & (history["reg_lambda"] > 0)]
    if len(positive):
        right.set_yscale("log")
        right.set_ylim(positive.min() / 10, 10 * positive.max())
    ax.set_ylim(np.nanmin([0.0, *ratio]) - 0.05, np.nanmax([1.5, *ratio]) + 0.05)
    handles = [line for one in (ax, right) for line in one.get_legend_handles_labels()[0]]
    ax.legend(handles=handles, frameon=False)
    return ax


def plot_diagnostics(model: Any, ax: Axes | None = None) -> Axes:
    """Draw what the convergence theory asks of learners: gradient alignment and curvature capture, by stage.

    Parameters and returned axes as in :func:`plot_training`.
    """
    check_is_fitted(model)
    ax = axes_or_new(ax)
    stage = model.history_["stage"] + 1
    curve(ax, stage, model.history_["alignment"], BLUE, "gradient alignment κ_align")
    curve(ax, stage, model.history_["curvature_capture"], ORANGE, "curvature capture κ_curve")
    if (model.history_["curvature_capture"] > 10).any():
        ax.set_yscale("log")
    stages_below(ax, "Diagnostics")
    ax.legend(frameon=False)
    return ax


def draw_history(model: Any, path: Any) -> None:
    """Write a picture of a fit: training curves, trust region and diagnostics side by side.

    Parameters
    ----------
    model : VPBoostRegressor or VPBoostClassifier
        A fitted estimator.
    path : str or Path
        The picture; its ending says of what kind it is: ".png" (also without an ending), ".svg", ".pdf" and others.
    """
    figure = Figure(figsize=(14, 3.8), layout="constrained")
    for plot, ax in zip((plot_training, plot_trust_region, plot_diagnostics), figure.subplots(1, 3), strict=True):
        plot(model, ax)
    save_figure(figure, path)


def metric_name(metric: Any) -> str:
    """Return what to call a validation score, whose sign is turned if more is better."""
    if metric is None:
        return "loss"
    return {"r2": "−R²", "auc": "−AUC"}.get(metric, metric) if isinstance(metric, str) else name_of(metric)


def save_figure(figure: Figure, path: Any, dpi: int = 110) -> None:
    """Write a picture as a whole or not at all; the ending of the path says of what kind, PNG if there is none."""
    with replacing(path) as temporary, missing_letters_allowed():
        figure.savefig(temporary, dpi=dpi, format=Path(path).suffix[1:].lower() or "png")


@contextmanager
def missing_letters_allowed() -> Iterator[None]:
    """Do not warn of letters that the font has not, such as emoji in names: a box stands for them."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from font")
        yield
