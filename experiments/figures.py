"""Figures, from stored results only."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from vpboost import datasets

from .pictures import SIDE, SQUARES, grid
from .problems import PROBLEMS
from .scaling import comparison
from .tables import load

COLOURS = {
    "gd": "#7f7f7f", "vp_start": "#9467bd", "vp_end": "#8c564b", "vp_start_end": "#e377c2", "vp": "#1f77b4",
    "vp_more": "#17becf", "gd_more": "#dbdb8d", "xgboost": "#2ca02c", "network": "#ff7f0e", "network_vp": "#d62728",
    "grownet": "#bcbd22", "trboost": "#98df8a", "catboost_free": "#c5b0d5", "lightgbm_free": "#c49c94",
    "xgboost_free": "#006400", "network_long": "#ffbb78", "network_vp_long": "#ff9896",
}  # fmt: skip
BOOSTED = ("gd", "vp_start", "vp_end", "vp_start_end", "vp", "vp_more")


def curves(results: Path, names: Sequence[str], titles: dict[str, str]) -> Figure:
    """Return training and validation losses against the number of learners, mean and deviation over seeds."""
    figure = Figure(figsize=(9, 2.7 * len(names)), layout="constrained")
    axes = figure.subplots(len(names), 2, squeeze=False, sharey="row")
    for row, name in zip(axes, names, strict=True):
        stored = load(results, name)
        for method in BOOSTED:
            if method in stored:
                draw_curve(row, stored[method], COLOURS[method], titles[method])
        if "xgboost" in stored:
            for column, axis in enumerate(row):
                last = np.mean([seed["curve"][-1][2 + column] for seed in stored["xgboost"]["seeds"]])
                axis.axhline(last, color=COLOURS["xgboost"], linestyle="--", label=titles["xgboost"])
        for axis, part in zip(row, ("training", "validation"), strict=True):
            axis.set(yscale="log", title=f"{name}: {part}", xlabel="learners")
            axis.xaxis.get_major_locator().set_params(integer=True)
            axis.grid(alpha=0.3)
        row[0].set_ylabel(PROBLEMS[name].loss_name)
    handles, labels = axes[0, 1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=8)
    return figure


def draw_curve(row: Sequence[Axes], content: dict[str, Any], colour: str, title: str) -> None:
    """Draw mean and deviation of one method's losses."""
    runs = [np.array(seed["curve"]) for seed in content["seeds"]]
    length = min(len(run) for run in runs)
    if length == 0:
        return
    together = np.stack([run[:length] for run in runs])
    for column, axis in enumerate(row):
        losses = together[:, :, 2 + column]
        middle, spread = losses.mean(axis=0), losses.std(axis=0)
        progress = together[0, :, 0]
        axis.plot(progress, middle, color=colour, label=title, marker=".", markersize=4)
        axis.fill_between(
            progress, np.maximum(middle - spread, 0.5 * losses.min(axis=0)), middle + spread, color=colour, alpha=0.15
        )


def plane(results: Path, task: str, titles: dict[str, str]) -> Figure | None:
    """Return predictions over the plane and their errors; None if there are none stored."""
    path = results / task / "pictures.npz"
    if not path.exists():
        return None
    with np.load(path, allow_pickle=False) as file:
        images = {name: file[name].astype(float) for name in file.files}
    points = grid(task)
    figure = Figure(figsize=(1.4 * (len(images) + 1), 3.2), layout="constrained")
    axes = figure.subplots(2, len(images) + 1)
    seen, labels = draw_truth(axes[:, 0], task, points)
    for column, (name, image) in zip(axes[:, 1:].T, images.items(), strict=True):
        draw_method(column, task, image, points, seen)
        column[0].set_title(titles[name], fontsize=9)
    axes[1, 1].set_ylabel(labels)
    for axis in axes.ravel():
        axis.set(xticks=[], yticks=[])
    return figure


def draw_truth(column: Sequence[Axes], task: str, points: np.ndarray) -> tuple[np.ndarray | None, str]:
    """Draw the truth over some training points below; return the truth on the grid, and what the lower row shows."""
    data = getattr(datasets, task)(seed=0)
    extent = (*SQUARES[task], *SQUARES[task])
    column[0].set_title("truth", fontsize=9)
    column[1].scatter(
        data.x_train[:400, 0],
        data.x_train[:400, 1],
        c=data.y_train[:400],
        s=2,
        cmap="viridis" if task != "task2" else "coolwarm",
    )
    column[1].set(xlim=SQUARES[task], ylim=SQUARES[task], aspect="equal", title="training points")
    column[1].title.set_fontsize(9)
    if task == "task2":
        column[0].scatter(data.x_test[:, 0], data.x_test[:, 1], c=data.y_test, s=2, cmap="coolwarm")
        column[0].set(xlim=SQUARES[task], ylim=SQUARES[task], aspect="equal")
        return None, "probability"
    truth = datasets.oscillatory(points) if task == "task1" else datasets.peaks_class(points)
    column[0].imshow(truth.reshape(SIDE, SIDE), origin="lower", extent=extent)
    return truth, "error" if task == "task1" else "mistakes in red"


def draw_method(
    column: Sequence[Axes], task: str, image: np.ndarray, points: np.ndarray, truth: np.ndarray | None
) -> None:
    """Draw a prediction, and below it its error, or (Swiss roll) its probability."""
    extent = (*SQUARES[task], *SQUARES[task])
    style: dict[str, Any] = {"origin": "lower", "extent": extent}
    square = (SIDE, SIDE)
    if task == "task1" and truth is not None:
        column[0].imshow(image.reshape(square), vmin=truth.min(), vmax=truth.max(), **style)
        column[1].imshow(np.abs(image[:, 0] - truth).reshape(square), vmin=0, vmax=0.1, cmap="magma", **style)
    elif task == "task2":
        column[0].imshow((image > 0).reshape(square), cmap="coolwarm", alpha=0.6, **style)
        data = datasets.task2(seed=0)
        column[0].scatter(data.x_test[:, 0], data.x_test[:, 1], c=data.y_test, s=1, cmap="coolwarm")
        column[1].imshow(
            1 / (1 + np.exp(-np.clip(image, -30, 30).reshape(square))), vmin=0, vmax=1, cmap="coolwarm", **style
        )
    else:
        labels = image.argmax(axis=1)
        column[0].imshow(labels.reshape(square), vmin=0, vmax=4, **style)
        column[1].imshow(labels.reshape(square), vmin=0, vmax=4, alpha=0.4, **style)
        wrong = np.where(labels != truth, 1.0, np.nan).reshape(square)
        column[1].imshow(wrong, cmap="autumn", vmin=1, vmax=2, **style)


def time_and_loss(results: Path, titles: dict[str, str]) -> Figure:
    """Return time against test loss on the 2D tasks."""
    found = json.loads((results / "timing.json").read_text())
    figure = Figure(figsize=(11, 4), layout="constrained")
    axes = np.atleast_1d(figure.subplots(1, len(found)))
    for axis, (task, methods) in zip(axes, found.items(), strict=True):
        for method, entry in methods.items():
            seconds, losses = np.array(entry["runs"]).T
            axis.errorbar(
                seconds.mean(), losses.mean(), xerr=seconds.std(), yerr=losses.std(), fmt="o", color=COLOURS[method],
                label=titles[method], markersize=6 if method in ("vp", "vp_more") else 4,
            )  # fmt: skip
        axis.set(xscale="log", yscale="log", title=task, xlabel="seconds, warm")
        axis.xaxis.set_minor_formatter(NullFormatter())  # labels between the powers of ten would overlap
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("test loss")
    handles, names = axes[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside right center", fontsize=7)
    return figure


def scaling(results: Path) -> Figure:
    """Return the speedup to GDBoost's final loss and the ratio of the final losses against the number of outputs."""
    rows = comparison(json.loads((results / "scaling.json").read_text()))
    outputs = sorted(rows)
    figure = Figure(figsize=(10, 3.5), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    styles = {"gd": ("GDBoost", "gd"), "vp": ("VPBoost", "vp"), "vp_sketch": ("VPBoost, 16 combinations", "vp_more")}
    for method, (title, colour) in styles.items():
        line: dict[str, Any] = {"color": COLOURS[colour], "marker": "o", "label": title}
        left.plot(outputs, [rows[n][method]["seconds"] for n in outputs], **line)
        if method != "gd":
            middle.plot(outputs, [rows[n][method]["speedup"] for n in outputs], **line)
            right.plot(outputs, [rows[n][method]["loss_ratio"] for n in outputs], **line)
            low, high = np.array([rows[n][method]["loss_ratio_spread"] for n in outputs]).T
            right.fill_between(outputs, low, high, color=COLOURS[colour], alpha=0.15)
    left.set(title="seconds to GDBoost's final loss", yscale="log")
    middle.set(title="speedup over GDBoost", yscale="log")
    right.set(title="GDBoost's MSE / VPBoost's", yscale="log")
    for axis in (left, middle, right):
        axis.set_xlabel("outputs")
        axis.set_xscale("log", base=2)
        axis.grid(alpha=0.3)
    middle.axhline(1, color="black", linewidth=0.8)
    left.legend(fontsize=7)
    return figure


def save(figure: Figure, path: Path) -> None:
    """Write a figure that is the same file for the same numbers."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=90, metadata={"Software": None})
