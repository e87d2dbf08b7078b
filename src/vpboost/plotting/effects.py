"""How inputs act on the prediction: derivatives and partial dependence."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from sklearn.utils.validation import check_is_fitted

from ..checks import check_count
from ..estimators.metrics import has_quantiles
from ..predictor import is_missing
from ..tables.frames import as_numbers, column_values, is_arrow, is_frame, is_times
from .figures import BLUE, GREY, axes_or_new, some_places
from .names import column_name, column_number, label_of, n_outputs, of_output, output_number, plain_text, subject

#: Rows over which to average, rows to count levels in, and levels to show.
MOST_ROWS, MOST_COUNTED, MOST_LEVELS = 200, 100_000, 20


def plot_input_gradients(model: Any, X: Any, ax: Axes | None = None, most: int = 15, output: Any = None) -> Axes:
    """Draw the derivatives of the prediction by its most important numeric inputs, over the rows of X.

    They are exact and multiplied by each input's spread, so that they are comparable: the change of the prediction, or
    of a class's logit, per standard deviation of the input.

    Parameters
    ----------
    model : VPBoostRegressor or VPBoostClassifier
        An estimator fitted to a table.
    X : array-like or data frame
        Rows at which to take derivatives; at most 1,000 are used.
    ax : matplotlib axes, optional
        Where to draw; by default on a new figure.
    most : int, default=15
        How many inputs to show.
    output : int or str, optional
        Which output or class, by number from 0, or by its name or label as text; by default the first, or the second
        of two classes.

    Returns
    -------
    matplotlib axes
    """
    check_is_fitted(model)
    chosen = output_number(model, output)
    check_count("most", most)
    encoder = model.input_encoder_
    require_table(model)
    require_one_prediction(model)
    if not encoder.numeric_:
        raise ValueError("the model has no numeric inputs to take derivatives by; see plot_partial_dependence")
    size = n_outputs(model) * len(encoder.sources_)  # of the derivatives at one row
    rows = table_rows(model, X, int(np.clip(20_000_000 // size, 20, 1000)))
    numeric, gradient = encoder.numeric_, of_output(model, model.input_gradient(rows), chosen)
    effect = gradient[:, numeric] * np.asarray(encoder.scale_)
    order = np.argsort(np.abs(effect).mean(axis=0))[-most:]
    ax = axes_or_new(ax, 1.2 + 0.3 * len(order))
    ax.axvline(0, color=GREY, linewidth=0.8)
    boxes = ax.boxplot(effect[:, order], orientation="horizontal", showfliers=False, patch_artist=True, whis=(5, 95))
    for box in boxes["boxes"]:
        box.set(facecolor="#cfe0f1", edgecolor=BLUE)
    ax.set_yticks(range(1, len(order) + 1), [plain_text(column_name(model, numeric[j]), 24) for j in order])
    ax.set(xlabel=f"change of the {subject(model, chosen)}\nper spread of the input", title="Input gradients")
    return ax


def plot_partial_dependence(
    model: Any, X: Any, feature: Any, ax: Axes | None = None, output: Any = None, n_points: int = 40
) -> Axes:
    """Draw the mean prediction as one column takes other values, everything else staying as it is.

    A numeric column, or one of dates, varies over its range; thin lines are single rows. A column of categories takes
    its most frequent levels, at most 20; lines are the middle 80% of the rows.

    Parameters
    ----------
    model : VPBoostRegressor or VPBoostClassifier
        An estimator fitted to a table; of a classifier, the logit is shown.
    X : array-like or data frame
        Rows over which to average; at most 200 are used.
    feature : int or str
        Number of the column, from 0, or its name.
    ax : matplotlib axes, optional
        Where to draw; by default on a new figure.
    output : int or str, optional
        Which output or class, by number from 0, or by its name or label as text; by default the first, or the second
        of two classes. A whole number is the number of the class, not its label.
    n_points : int, default=40
        Values of a numeric column.

    Returns
    -------
    matplotlib axes
    """
    check_is_fitted(model)
    require_table(model)
    require_one_prediction(model)
    column, chosen = column_number(model, feature), output_number(model, output)
    check_count("n_points", n_points, least=2)
    rows = table_rows(model, X, MOST_ROWS)
    ask = model.decision_function if hasattr(model, "classes_") else model.predict

    def predict(values: Any) -> np.ndarray:
        return of_output(model, ask(with_column(rows, column, values)), chosen)

    ask(rows)  # whether they fit, the model says best
    values = column_of(table_rows(model, X, MOST_COUNTED), column)
    kind = kind_of(model, values, column)
    if kind == "levels":
        ax = draw_levels(predict, values, rows.shape[0], ax)
        what = f"{subject(model, chosen)}\n(mean, and the middle 80% of the rows)"
        ax.set(xlabel=what, ylabel=plain_text(column_name(model, column)) + ax.get_ylabel())
        return ax
    grid = grid_of(column_of(rows, column), kind, n_points)
    shown, ax = np.stack([predict(value) for value in grid]), axes_or_new(ax)
    places = as_places(grid, kind)
    ax.plot(places, shown[:, :: max(rows.shape[0] // 40, 1)], color=GREY, linewidth=0.5, alpha=0.4)
    ax.plot(places, shown.mean(axis=1), color=BLUE, linewidth=2)
    name_below(ax, model, column, kind)
    ax.set(ylabel=subject(model, chosen), title="Partial dependence")
    return ax


def table_rows(model: Any, X: Any, most: int) -> Any:
    """Return some rows of a table, evenly spaced; raise ``ValueError`` if it is none, or one of other columns."""
    X = np.ma.filled(X.astype(float), np.nan) if isinstance(X, np.ma.MaskedArray) else X
    table = X.to_pandas() if is_arrow(X) else X if is_frame(X) else np.asarray(X)
    if len(table.shape) != 2:
        kind = type(X).__name__
        raise ValueError(f"X must be an array or data frame of rows and columns, got {kind} of shape {table.shape}")
    n, columns = table.shape
    if columns != model.n_features_in_:
        raise ValueError(f"X must have the {model.n_features_in_} columns of training, got {columns}")
    if not n:
        raise ValueError("X has no rows; a plot needs at least one")
    if n <= most:
        return table
    return taken(table, some_places(n, most))


def taken(table: Any, places: Any) -> Any:
    """Return rows of a table, or values of a column."""
    return table.iloc[places] if hasattr(table, "iloc") else table[places]


def column_of(table: Any, column: int) -> Any:
    """Return a column of an array or a data frame."""
    return table[table.columns[column]] if is_frame(table) else table[:, column]


def kind_of(model: Any, values: Any, column: int) -> str:
    """Return how a column varies: "levels", "numbers", "dates" or "durations"."""
    dtype = str(values.dtype).lower()
    if dtype.startswith("bool") or any(column == category.column for category in model.input_encoder_.categories_):
        return "levels"
    present = [value for value in column_values(values) if not is_missing(value)]
    if all(value == present[0] for value in present):  # none or a single one: nothing to vary
        return "levels"
    return {"datetime": "dates", "timedelta": "durations"}.get(model.input_encoder_.times_.get(column, ""), "numbers")


def numbers_of(values: Any, kind: str) -> np.ndarray:
    """Return a column as numbers, times as seconds; missing ones are NaN."""
    if kind == "numbers":
        return np.asarray(column_values(values), float)
    return as_numbers(column_values(values), {"dates": "datetime", "durations": "timedelta"}[kind], "of X")


def as_values(numbers: np.ndarray, kind: str) -> np.ndarray:
    """Return numbers as values of a column of that kind."""
    if kind == "numbers":
        return numbers
    spans = (1e6 * numbers).astype("timedelta64[us]")
    return spans if kind == "durations" else np.datetime64(0, "us") + spans


def as_places(values: np.ndarray, kind: str) -> np.ndarray:
    """Return where on an axis values are: durations in days."""
    return values / np.timedelta64(1, "D") if kind == "durations" else values


def name_below(ax: Axes, model: Any, column: int, kind: str) -> None:
    """Write the name of a column below the axes, and its unit if it is one of durations."""
    if kind == "dates":
        ax.tick_params(axis="x", rotation=30)
    ax.set_xlabel(plain_text(column_name(model, column)) + (", days" if kind == "durations" else ""))


def grid_of(values: Any, kind: str, n_points: int) -> np.ndarray:
    """Return values over the range of a column, without the outermost 2% at either end."""
    numbers = numbers_of(values, kind)
    low, high = np.nanquantile(numbers, [0.02, 0.98])
    low, high = (low, high) if low < high else (np.nanmin(numbers), np.nanmax(numbers))
    return as_values(np.linspace(low, high, n_points), kind)


def with_column(rows: Any, column: int, values: Any) -> Any:
    """Return rows with other values in one column, or one value in all of it."""
    if not is_frame(rows):
        table = rows.copy() if is_times(rows) else np.array(rows, dtype=float)
        table[:, column] = values
        return table
    name = rows.columns[column]
    if hasattr(rows, "iloc"):
        changed = rows.copy()
        changed[name] = getattr(values, "array", values)  # values alone: they have labels of other rows
        return changed
    import polars

    return rows.with_columns((values if isinstance(values, polars.Series) else polars.lit(values)).alias(name))


def draw_levels(predict: Callable, values: Any, n_rows: int, ax: Axes | None) -> Axes:
    """Draw the mean and the middle 80% of predictions for the most frequent levels, the most frequent at the top."""
    levels = levels_of(values)
    chosen = most_frequent(levels)
    ax = axes_or_new(ax, height_for(chosen))
    for place, level in enumerate(chosen):
        found = predict(taken(values, np.full(n_rows, levels.index(level))))
        ax.plot(np.quantile(found, [0.1, 0.9]), [place, place], color="#9dbfe0", linewidth=5, solid_capstyle="butt")
        ax.plot(found.mean(), place, "o", color=BLUE)
    name_levels(ax, levels, chosen)
    ax.set_title("Partial dependence")
    return ax


def levels_of(values: Any) -> list[str]:
    """Return the levels of a column as text."""
    levels = [label_of(value) for value in column_values(values)]
    if str(values.dtype).lower().startswith("bool"):  # nullable ones are read as numbers
        return [{"0": "False", "1": "True"}.get(level, level) for level in levels]
    return levels


def most_frequent(levels: list[str]) -> list[str]:
    """Return the levels to show, the most frequent first."""
    return [level for level, _ in Counter(levels).most_common(MOST_LEVELS)]


def height_for(chosen: list[str]) -> float:
    """Return how high a figure with a line for each level is."""
    return 1.5 + 0.27 * len(chosen)


def name_levels(ax: Axes, levels: list[str], chosen: list[str]) -> None:
    """Write levels, and how frequent they are, beside lines from the top; and how many there are if not all are."""
    counts = Counter(levels)
    labels = [f"{plain_text(level, 24)} ({counts[level] / len(levels):.0%})" for level in chosen]
    ax.set_yticks(range(len(chosen)), labels)
    ax.set_ylim(len(chosen) - 0.5, -0.5)
    ax.set_ylabel("" if len(counts) <= MOST_LEVELS else f"\n({MOST_LEVELS} most frequent of {len(counts)})")


def require_table(model: Any) -> None:
    """Raise ``ValueError`` if a model was fitted to images."""
    if len(model.input_encoder_.shape_) > 1:
        raise ValueError("this plot is for models of tables; the model was fitted to images")


def require_one_prediction(model: Any) -> None:
    """Raise ``ValueError`` if a model predicts several quantiles of each target."""
    if has_quantiles(model):
        raise ValueError("this plot is of one prediction; the model predicts several quantiles: see plot_bands")
