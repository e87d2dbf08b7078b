"""Training curves, the trust region, diagnostics, predictions and the effect of inputs."""

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..frames import is_frame
from ..preprocessing import take

try:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
except ImportError as error:
    raise ImportError("plots need matplotlib: pip install 'vpboost[plots]'") from error

BLUE, ORANGE, GREY = "#2563a8", "#d9822b", "#8a8f98"


def axes_or_new(ax: Any, height: float = 3.4) -> Axes:
    """Return the axes given, or those of a new figure."""
    return Figure(figsize=(5.2, height), layout="constrained").subplots() if ax is None else ax


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
    ax.plot(np.arange(1, model.n_iter_ + 1), curves["training"], color=BLUE, label="training loss")
    if curves["validation"]:
        metric = "loss" if model.eval_metric is None else str(model.eval_metric)
        label = f"validation {metric}"
        ax.plot(np.arange(1, model.n_iter_ + 1), curves["validation"], color=ORANGE, label=label)
    accepted = np.cumsum(model.history_["accepted"])
    if len(accepted) and model.best_iteration_ < accepted[-1]:
        kept = int(np.argmax(accepted >= model.best_iteration_)) + 1
        ax.axvline(kept, color=GREY, linestyle=":", label=f"kept: stage {kept}")
    values = np.array([*curves["training"], *curves["validation"]])
    finite = values[np.isfinite(values)]
    if len(finite) and finite.min() > 0:
        ax.set_yscale("log")
    ax.set(xlabel="stage", title="Training")
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
    ax.plot(stage[accepted], history["ratio"][accepted], ".", color=BLUE, label="ρ, accepted")
    if not accepted.all():
        ax.plot(stage[~accepted], history["ratio"][~accepted], "x", color="crimson", label="ρ, rejected")
    ax.axhline(1, color=GREY, linewidth=0.8)
    ax.axhline(model.rho_small, color=GREY, linewidth=0.8, linestyle=":")
    ax.set(xlabel="stage", ylabel="ρ, actual over predicted reduction", title="Trust region")
    right = ax.twinx()
    right.plot(stage, history["reg_lambda"], color=ORANGE, label="λ_w")
    right.set(yscale="log", ylabel="λ_w")
    if len(stage):
        right.set_ylim(history["reg_lambda"].min() / 10, 10 * history["reg_lambda"].max())
        finite = history["ratio"][np.isfinite(history["ratio"])]
        ax.set_ylim(min(0.0, *finite, 0.0) - 0.05, max(1.5, *finite, 1.5) + 0.05)
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
    ax.plot(stage, model.history_["alignment"], color=BLUE, label="gradient alignment κ_align")
    ax.plot(stage, model.history_["curvature_capture"], color=ORANGE, label="curvature capture κ_curve")
    if len(stage) and model.history_["curvature_capture"].max() > 10:
        ax.set_yscale("log")
    ax.set(xlabel="stage", title="Diagnostics")
    ax.legend(frameon=False)
    return ax


def draw_history(model: Any, path: Any) -> None:
    """Write a picture of a fit: training curves, trust region and diagnostics side by side."""
    figure = Figure(figsize=(14, 3.8), layout="constrained")
    for plot, ax in zip((plot_training, plot_trust_region, plot_diagnostics), figure.subplots(1, 3), strict=True):
        plot(model, ax)
    figure.savefig(path, dpi=110)


def plot_predictions(model: Any, X: Any, y: Any, ax: Axes | None = None, output: int = 0) -> Axes:
    """Draw predicted against true values, or a classifier's confusion matrix.

    Parameters
    ----------
    model : VPBoostRegressor or VPBoostClassifier
        A fitted estimator.
    X, y : array-like
        Data to predict, and the truth.
    ax : matplotlib axes, optional
        Where to draw; by default on a new figure.
    output : int, default=0
        Which output of a regressor to show.

    Returns
    -------
    matplotlib axes
    """
    check_is_fitted(model)
    ax = axes_or_new(ax)
    if hasattr(model, "classes_"):
        return confusion(model, X, np.asarray(y), ax)
    truth = np.asarray(y, float).reshape(len(np.asarray(y)), -1)
    prediction = np.asarray(model.predict(X)).reshape(truth.shape)
    if not 0 <= output < truth.shape[1]:
        raise ValueError(f"output must be from 0 to {truth.shape[1] - 1}, got {output!r}")
    ends = [min(truth[:, output].min(), prediction[:, output].min())]
    ends.append(max(truth[:, output].max(), prediction[:, output].max()))
    ax.plot(ends, ends, color=GREY, linewidth=0.8)
    ax.scatter(truth[:, output], prediction[:, output], s=9, alpha=0.5, color=BLUE, linewidths=0)
    name = output_name(model, output, truth.shape[1])
    ax.set(xlabel=f"true {name}", ylabel=f"predicted {name}", title="Predictions")
    return ax


def output_name(model: Any, output: int, n_outputs: int) -> str:
    """Return what to call an output."""
    if getattr(model, "target_names_", None):
        return plain_text(model.target_names_[output])
    return "value" if n_outputs == 1 else f"output {output}"


def confusion(model: Any, X: Any, y: np.ndarray, ax: Axes) -> Axes:
    """Draw how often each class was taken for each."""
    predicted, n = model.predict(X), len(model.classes_)
    counts = np.zeros((n, n), int)
    np.add.at(counts, (np.searchsorted(model.classes_, y), np.searchsorted(model.classes_, predicted)), 1)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    ax.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    if n <= 12:
        for i, j in np.ndindex(n, n):
            ax.text(j, i, str(counts[i, j]), ha="center", va="center", color="white" if shares[i, j] > 0.5 else "black")
        labels = [plain_text(str(label)) for label in model.classes_]
        ax.set(xticks=range(n), yticks=range(n), xticklabels=labels, yticklabels=labels)
    ax.set(xlabel="predicted", ylabel="true", title="Confusion matrix")
    return ax


def column_name(model: Any, feature: int) -> str:
    """Return what to call an input column."""
    names = getattr(model, "feature_names_in_", None)
    return f"column {feature}" if names is None else plain_text(str(names[feature]))


def plain_text(text: str) -> str:
    """Return a text that matplotlib shows as it is."""
    return text.replace("$", r"\$")


def plot_input_gradients(model: Any, X: Any, ax: Axes | None = None, most: int = 15) -> Axes:
    """Draw the derivatives of the prediction by its most important numeric inputs, over the rows of X.

    They are exact and multiplied by each input's spread, so that they are comparable: the change of the prediction per
    standard deviation of the input. Of several outputs the first is shown.

    Parameters
    ----------
    model : VPBoostRegressor or VPBoostClassifier
        An estimator fitted to a table.
    X : array-like
        Rows at which to take derivatives; at most 1,000 are used.
    ax : matplotlib axes, optional
        Where to draw; by default on a new figure.
    most : int, default=15
        How many inputs to show.

    Returns
    -------
    matplotlib axes
    """
    check_is_fitted(model)
    require_table(model)
    X = take(X if is_frame(X) else np.asarray(X), np.linspace(0, len(X) - 1, min(len(X), 1000)).astype(int))
    gradient = model.input_gradient(X)
    gradient = gradient if gradient.ndim == 2 else gradient[:, 0]
    numeric, spread = model.input_encoder_.numeric_, np.asarray(model.input_encoder_.scale_)
    effect = gradient[:, numeric] * spread
    order = np.argsort(np.abs(effect).mean(axis=0))[-most:]
    ax = axes_or_new(ax, 1.2 + 0.3 * len(order))
    ax.axvline(0, color=GREY, linewidth=0.8)
    if len(order):
        boxes = ax.boxplot(
            effect[:, order], orientation="horizontal", showfliers=False, patch_artist=True, whis=(5, 95)
        )
        for box in boxes["boxes"]:
            box.set(facecolor="#cfe0f1", edgecolor=BLUE)
        ax.set_yticks(range(1, len(order) + 1), [column_name(model, numeric[j]) for j in order])
    ax.set(xlabel="change of the prediction per spread of the input", title="Input gradients")
    return ax


def plot_partial_dependence(
    model: Any, X: Any, feature: int | str, ax: Axes | None = None, output: int = 0, n_points: int = 40
) -> Axes:
    """Draw the mean prediction as one numeric column varies over its range, and single rows as thin lines.

    Parameters
    ----------
    model : VPBoostRegressor or VPBoostClassifier
        An estimator fitted to a table; of a classifier, the logit is shown.
    X : array or pandas data frame
        Rows over which to average; at most 200 are used.
    feature : int or str
        Number of the column, or its name.
    ax : matplotlib axes, optional
        Where to draw; by default on a new figure.
    output : int, default=0
        Which output, or class, to show.
    n_points : int, default=40
        Values of the column.

    Returns
    -------
    matplotlib axes
    """
    check_is_fitted(model)
    require_table(model)
    column = column_number(model, feature)
    rows = take(X if is_frame(X) else np.asarray(X), np.linspace(0, len(X) - 1, min(len(X), 200)).astype(int))
    values = np.asarray(rows[rows.columns[column]] if is_frame(rows) else rows[:, column], float)
    low, high = np.nanquantile(values, [0.02, 0.98])
    grid = np.linspace(low, high, n_points)
    ask = model.decision_function if hasattr(model, "classes_") else model.predict
    curves = [np.asarray(ask(with_value(rows, column, value))).reshape(len(values), -1) for value in grid]
    shown = np.stack(curves)[:, :, min(output, curves[0].shape[1] - 1)]
    ax = axes_or_new(ax)
    ax.plot(grid, shown[:, :: max(len(values) // 40, 1)], color=GREY, linewidth=0.5, alpha=0.4)
    ax.plot(grid, shown.mean(axis=1), color=BLUE, linewidth=2)
    ax.set(xlabel=column_name(model, column), ylabel="logit" if hasattr(model, "classes_") else "prediction")
    ax.set_title("Partial dependence")
    return ax


def column_number(model: Any, feature: int | str) -> int:
    """Return the number of a numeric column."""
    names = [str(name) for name in getattr(model, "feature_names_in_", [])]
    if isinstance(feature, str):
        if feature not in names:
            raise ValueError(f"feature must be the number or the name of a column, got {feature!r}")
        feature = names.index(feature)
    if feature not in model.input_encoder_.numeric_:
        raise ValueError(f"feature must be a numeric column, got {feature!r}")
    return int(feature)


def with_value(rows: Any, column: int, value: float) -> Any:
    """Return rows with one column set to a value."""
    if is_frame(rows):
        name = rows.columns[column]
        if not hasattr(rows, "iloc"):  # polars
            import polars

            return rows.with_columns(polars.lit(value).alias(name))
        changed = rows.copy()
        changed[name] = value
        return changed
    table = np.array(rows, dtype=float)
    table[:, column] = value
    return table


def require_table(model: Any) -> None:
    """Raise ``ValueError`` if a model was fitted to images."""
    if len(model.input_encoder_.shape_) > 1:
        raise ValueError("this plot is for models of tables; the model was fitted to images")
