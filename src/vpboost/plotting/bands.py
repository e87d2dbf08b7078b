"""Predictions with bands along one input."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes

from ..checks import check_count, check_one_of
from ..losses import Quantile
from .calibration import require_regressor, truth_of
from .effects import (
    as_places,
    as_values,
    column_of,
    grid_of,
    height_for,
    kind_of,
    levels_of,
    most_frequent,
    name_below,
    name_levels,
    numbers_of,
    require_table,
    table_rows,
    taken,
    with_column,
)
from .figures import BLUE, ORANGE, axes_or_new, some_places
from .names import column_name, column_number, of_output, output_number, plain_text, subject

#: Bands to draw, widest first, and rows to look for typical values in.
COVERAGES, MOST_TYPICAL = (0.9, 0.5), 1000
#: Colours of bands, outermost first; of more, the last one for all others.
SHADES = ("#d6e4f2", "#9dbfe0", "#6f9fcd")
#: How targets are drawn.
POINTS: Any = {"s": 7, "alpha": 0.4, "color": ORANGE, "linewidths": 0}


class Band(NamedTuple):
    """Between which bounds a part of the targets is."""

    coverage: float
    low: np.ndarray
    high: np.ndarray

    @property
    def name(self) -> str:
        """What to call it in a legend."""
        return f"{100 * self.coverage:.3g}%"


def plot_bands(
    model: Any,
    X: Any,
    feature: Any,
    y: Any = None,
    ax: Axes | None = None,
    output: Any = None,
    n_points: int = 80,
    by: str = "auto",
) -> Axes:
    """Draw the prediction with bands that hold 50% and 90% of targets, along one column.

    The other columns have their medians, those of categories their most frequent level. A numeric column, or one of
    dates, varies over its range; a column of categories takes its most frequent levels, at most 20. A model of several
    quantiles has a band between each pair of them.

    Parameters
    ----------
    model : VPBoostRegressor
        A regressor fitted to a table.
    X : array-like or data frame
        Rows that tell the range of the column and medians of the others.
    feature : int or str
        Number of the column, from 0, or its name.
    y : array-like, optional
        Targets of X, to be drawn as points, at most 1,000 of them; of a model with several columns they also vary by
        the others.
    ax : matplotlib axes, optional
        Where to draw; by default on a new figure.
    output : int or str, optional
        Which output, by number from 0 or by name; by default the first.
    n_points : int, default=80
        Values of a numeric column.
    by : {"auto", "interval", "distribution"}, default="auto"
        What tells the bands: ``predict_interval``, or ``predict_dist``, whose bands without a ``distribution`` have
        noise and ignorance in them and so widen away from the data. "auto" is the latter for models with a
        ``distribution``, the former for others.

    Returns
    -------
    matplotlib axes

    Examples
    --------
    >>> import numpy as np
    >>> from vpboost import VPBoostRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(200, 1))
    >>> y = X[:, 0] + 0.1 * rng.normal(size=200)
    >>> model = VPBoostRegressor(n_estimators=5, encoding="plain").fit(X, y)
    >>> ax = plot_bands(model, X, 0, y)
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['90%', '50%', 'prediction', 'data']
    """
    require_regressor(model)
    require_table(model)
    column, chosen = column_number(model, feature), output_number(model, output)
    check_count("n_points", n_points, least=2)
    check_one_of("by", by, ("auto", "interval", "distribution"))
    rows = table_rows(model, X, MOST_TYPICAL)
    truth = None if y is None else truth_of(model, X, y)[some_places(np.shape(X)[0], MOST_TYPICAL), chosen]
    model.predict(rows)  # whether they fit, the model says best

    def ask(wanted: Any) -> tuple[np.ndarray | None, list[Band]]:
        changed = with_column(typical_rows(model, rows, len(wanted)), column, wanted)
        return bands_of(model, changed, chosen, by)

    values = column_of(rows, column)
    kind = kind_of(model, values, column)
    if kind == "levels":
        ax = draw_over_levels(ask, values, truth, ax)
        ax.set(xlabel=subject(model, chosen), ylabel=plain_text(column_name(model, column)) + ax.get_ylabel())
    else:
        ax = draw_over_range(ask, values, kind, n_points, truth, ax)
        name_below(ax, model, column, kind)
        ax.set_ylabel(subject(model, chosen))
    ax.set_title("Predicted bands")
    ax.legend(frameon=False, fontsize=9, markerscale=1.6)
    return ax


def bands_of(model: Any, rows: Any, output: int, by: str) -> tuple[np.ndarray | None, list[Band]]:
    """Return predictions, or medians, of an output, None if there is none; and bands around them, outermost first."""
    loss = model.loss_
    if isinstance(loss, Quantile) and len(loss.levels) > 1:
        found = of_output(model, model.predict(rows), output)
        levels, half = loss.levels, len(loss.levels) // 2
        pairs = [Band(levels[-1 - k] - levels[k], found[:, k], found[:, -1 - k]) for k in range(half)]
        return (found[:, half] if len(levels) % 2 else None), pairs
    law = None
    if by == "distribution" or (by == "auto" and model.distribution is not None):
        law = model.predict_dist(rows)
    bands = []
    for coverage in COVERAGES:
        low, high = model.predict_interval(rows, coverage) if law is None else law.interval(coverage)
        bands.append(Band(coverage, of_output(model, low, output), of_output(model, high, output)))
    return of_output(model, model.predict(rows), output), bands


def typical_rows(model: Any, table: Any, n: int) -> Any:
    """Return so many equal rows: numbers and times at their medians, categories at their most frequent levels."""
    rows = taken(table, np.zeros(n, int))
    for column in range(table.shape[1]):
        values = column_of(table, column)
        rows = with_column(rows, column, taken(values, np.full(n, typical_place(model, values, column))))
    return rows


def typical_place(model: Any, values: Any, column: int) -> int:
    """Return the place of a column's median, or of its most frequent level."""
    kind = kind_of(model, values, column)
    if kind == "levels":
        levels = levels_of(values)
        return levels.index(most_frequent(levels)[0])
    numbers = numbers_of(values, kind)
    order = np.argsort(numbers, kind="stable")  # missing ones come last
    return int(order[(np.count_nonzero(~np.isnan(numbers)) - 1) // 2])


def draw_over_range(
    ask: Callable, values: Any, kind: str, n_points: int, truth: np.ndarray | None, ax: Axes | None
) -> Axes:
    """Draw bands over the range of a column of numbers or times."""
    ax, grid = axes_or_new(ax), grid_of(values, kind, n_points)
    places, (middle, bands) = as_places(grid, kind), ask(grid)
    for band, colour in zip(bands, shades(bands), strict=True):
        ax.fill_between(places, band.low, band.high, color=colour, linewidth=0, label=band.name)
    if middle is not None:
        ax.plot(places, middle, color=BLUE, linewidth=2, label="prediction")
    if truth is not None:
        numbers = numbers_of(values, kind)
        known = ~np.isnan(numbers)
        ax.scatter(as_places(as_values(numbers[known], kind), kind), truth[known], label="data", **POINTS)
    return ax


def draw_over_levels(ask: Callable, values: Any, truth: np.ndarray | None, ax: Axes | None) -> Axes:
    """Draw bands for the most frequent levels of a column, the most frequent at the top."""
    levels = levels_of(values)
    chosen = most_frequent(levels)
    ax, places = axes_or_new(ax, height_for(chosen) + 0.8), np.arange(len(chosen))
    middle, bands = ask(taken(values, np.array([levels.index(level) for level in chosen])))
    for k, (band, colour) in enumerate(zip(bands, shades(bands), strict=True)):
        ax.hlines(places, band.low, band.high, color=colour, linewidth=5 + 2 * k, label=band.name)
    if middle is not None:
        ax.plot(middle, places, "o", color=BLUE, label="prediction")
    if truth is not None:
        for place, level in enumerate(chosen):
            of_level = truth[[one == level for one in levels]]
            below = np.full(len(of_level), place + 0.25)  # beside the bands, which they would hide
            ax.scatter(of_level, below, label="data" if place == 0 else None, **POINTS)
    name_levels(ax, levels, chosen)
    return ax


def shades(bands: list[Band]) -> list[str]:
    """Return the colour of each band."""
    return [SHADES[min(k, len(SHADES) - 1)] for k in range(len(bands))]
