"""Whether models are as sure as they may be: nominal and observed coverage, reliability, and widths of intervals."""

from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from scipy.stats import binom
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _num_samples, check_is_fitted

from ..distributions import Distribution, NegativeBinomial
from ..estimators.metrics import Compared, compare, true_values
from ..losses import Quantile
from ..numerics.conformal import rows_needed
from .figures import BLUE, GREY, ORANGE, axes_or_new, some_places
from .names import n_outputs, of_output, output_name, output_number, plain_text
from .predictions import MOST_POINTS

#: Coverages to look at, and rows to look at them by.
LEVELS, MOST_JUDGED = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95), 10_000
#: Groups of rows of equal number, and rows that each has at the least.
MOST_GROUPS, FEWEST_ROWS = 10, 20


class Curve(NamedTuple):
    """How often the truth is where a model says that it is with some probability."""

    levels: np.ndarray  #: the probabilities
    observed: np.ndarray  #: parts of the rows, (levels, outputs)
    width: np.ndarray | None = None  #: means of the intervals' widths, (levels, outputs), where they are known


def plot_calibration(model: Any, X: Any, y: Any, ax: Axes | None = None, output: Any = None) -> Axes:
    """Draw how often the truth is where the model says that it is, against how often it should be.

    Of a regressor, that is the part of rows within ``predict_interval`` of ten coverages, and with a ``distribution``
    also within its central intervals, told by its values F(y); of several quantiles, the part of rows below each.
    Of a classifier, it is the part of rows whose predicted class is the true one, against its predicted probability,
    for groups of rows alike in it. A model that is as sure as it may be has points on the diagonal: 95% of them are in
    the grey band, which is the sampling error of a part of so many rows (that of the calibration comes on top).

    Parameters
    ----------
    model : VPBoostRegressor or VPBoostClassifier
        A fitted estimator.
    X, y : array-like
        Rows that the model has not seen, and the truth; at most 10,000 are used.
    ax : matplotlib axes, optional
        Where to draw; by default on a new figure.
    output : int or str, optional
        Which output of a regressor, by number from 0 or by name; by default the first. Of a classifier, a class, by
        number or by its label as text: its probability is then judged instead of that of the predicted class.

    Returns
    -------
    matplotlib axes

    Examples
    --------
    >>> import numpy as np
    >>> from vpboost import VPBoostRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(300, 1))
    >>> y = X[:, 0] + 0.1 * rng.normal(size=300)
    >>> model = VPBoostRegressor(n_estimators=5, encoding="plain").fit(X[:200], y[:200])
    >>> ax = plot_calibration(model, X[200:], y[200:])
    >>> nominal, observed = ax.get_lines()[1].get_data()
    >>> bool(abs(observed[nominal == 0.9][0] - 0.9) < 0.1)
    True
    """
    check_is_fitted(model)
    chosen = output_number(model, output)
    if hasattr(model, "classes_"):
        return draw_reliability(model, compare(model, X, y), None if output is None else chosen, ax)
    X, truth = some_rows(X, truth_of(model, X, y))
    curves = curves_of(model, X, truth, distribution_of(model, X))
    if not curves:
        model.predict_interval(X, LEVELS[0])  # says what is missing
    return draw_calibration(model, curves, known_targets(truth, chosen), chosen, ax)


def plot_interval_widths(
    model: Any, X: Any, y: Any, ax: Axes | None = None, output: Any = None, coverage: float = 0.9
) -> Axes:
    """Draw the widths of ``predict_interval`` against predictions, and which part of the rows is within.

    The latter is on an axis of its own at the right, for groups of as many rows each, from the smallest predictions to
    the largest: where it is below the coverage, intervals are too narrow there. The pale band is the sampling error
    that 95% of groups have at the most.

    Parameters
    ----------
    model : VPBoostRegressor
        A fitted regressor.
    X, y : array-like
        Rows that the model has not seen, and the truth; at most 10,000 are used.
    ax : matplotlib axes, optional
        Where to draw; by default on a new figure.
    output : int or str, optional
        Which output, by number from 0 or by name; by default the first.
    coverage : float, default=0.9
        That of the intervals.

    Returns
    -------
    matplotlib axes
        Those of the widths.

    Examples
    --------
    >>> import numpy as np
    >>> from vpboost import VPBoostRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(300, 1))
    >>> y = X[:, 0] + 0.1 * rng.normal(size=300)
    >>> model = VPBoostRegressor(n_estimators=5, encoding="plain").fit(X[:200], y[:200])
    >>> plot_interval_widths(model, X[200:], y[200:], coverage=0.8).get_ylabel()
    'width of the interval'
    """
    require_regressor(model)
    chosen = output_number(model, output)
    truth = truth_of(model, X, y)
    known = np.flatnonzero(~np.isnan(truth[:, chosen]))
    X, truth = some_rows(_safe_indexing(X, known) if len(known) < len(truth) else X, truth[known])
    low, high = (of_output(model, bound, chosen) for bound in model.predict_interval(X, coverage))
    prediction, width = of_output(model, model.predict(X), chosen), high - low
    within = (low <= truth[:, chosen]) & (truth[:, chosen] <= high)
    ax = axes_or_new(ax)
    some = some_places(len(truth), MOST_POINTS)
    ax.scatter(prediction[some], width[some], s=9, alpha=0.5, color=BLUE, linewidths=0, label="width")
    if 0 < width.max() < np.finfo(float).max / 2:
        ax.set_ylim(0, 1.8 * width.max())  # room for the part within, and for the legend
    right, (centres, parts, size) = ax.twinx(), by_groups(prediction, within)
    right.axhspan(*sampling_error(coverage, size), color=ORANGE, alpha=0.12, linewidth=0)
    right.axhline(coverage, color=ORANGE, linewidth=0.8, linestyle=":")
    right.plot(centres, parts, "o-", color=ORANGE, markersize=4, label=f"part within, {within.mean():.1%} of all")
    right.set(ylabel="part within the interval", ylim=(0, 1.35))
    right.set_yticks(np.linspace(0, 1, 6))
    name = plain_text(output_name(model, chosen))
    ax.set(xlabel=f"predicted {name}", ylabel="width of the interval", title=f"Intervals of {coverage:.0%} coverage")
    handles = [handle for one in (ax, right) for handle in one.get_legend_handles_labels()[0]]
    ax.legend(handles=handles, frameon=False, ncols=2, loc="upper center")
    return ax


def curves_of(model: Any, X: Any, truth: np.ndarray, law: Distribution | None) -> dict[str, Curve]:
    """Return what a regressor's statements are worth on some rows, by what makes them; empty if it makes none."""
    loss = model.loss_
    if isinstance(loss, Quantile) and len(loss.levels) > 1:
        quantiles = np.asarray(model.predict(X)).reshape(*truth.shape, -1)
        parts = [of_known(truth <= quantiles[:, :, k], truth) for k in range(len(loss.levels))]
        return {"quantiles": Curve(np.array(loss.levels), np.array(parts))}
    curves, known = {}, known_scores(model)
    levels = [level for level in LEVELS if known >= rows_needed(level)]
    if levels:
        curves["intervals"] = of_intervals(model, X, truth, levels)
    if law is not None:
        curves["distribution"] = of_distribution(law, truth[:, 0] if model.single_output_ else truth)
    return curves


def known_scores(model: Any) -> int:
    """Return how many rows that were not trained on a model knows its errors by."""
    return 0 if model._conformity is None else model._conformity.fewest()


def of_intervals(model: Any, X: Any, truth: np.ndarray, levels: list[float]) -> Curve:
    """Return how often intervals hold the truth, and their mean widths."""
    observed, width = [], []
    for level in levels:
        low, high = (np.asarray(bound).reshape(truth.shape) for bound in model.predict_interval(X, level))
        observed.append(of_known((low <= truth) & (truth <= high), truth))
        with np.errstate(over="ignore"):
            width.append((high - low).mean(axis=0))
    return Curve(np.array(levels), np.array(observed), np.array(width))


def of_distribution(law: Distribution, truth: np.ndarray) -> Curve:
    """Return how often F(y) is within central intervals.

    Of counts, F(y) is spread evenly over the jump of F at y, as is usual: else not even the true law would be on the
    diagonal.
    """
    upto = law.cdf(truth).reshape(len(truth), -1)
    below = law.cdf(truth - 1).reshape(upto.shape) if isinstance(law, NegativeBinomial) else upto
    jump, observed = upto - below, []
    for level in LEVELS:
        low, high = (1 - level) / 2, (1 + level) / 2
        part = np.maximum(np.minimum(upto, high) - np.maximum(below, low), 0) / np.where(jump > 0, jump, 1)
        observed.append(of_known(np.where(jump > 0, part, (low <= upto) & (upto <= high)), upto))
    return Curve(np.array(LEVELS), np.array(observed))


def of_known(holds: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Return the mean of each output over the rows whose truth is known; NaN if it is of none.

    >>> of_known(np.array([[1, 1], [0, 0]]), np.array([[2.0, 3.0], [1.0, np.nan]])).tolist()
    [0.5, 1.0]
    """
    known = ~np.isnan(truth)
    counts = known.sum(axis=0)
    return np.where(counts, np.where(known, holds, 0).sum(axis=0) / np.maximum(counts, 1), np.nan)


def distribution_of(model: Any, X: Any) -> Distribution | None:
    """Return the distributions that a model was fitted to predict; None if it was not, or they are not ours."""
    kind = model.distribution
    if not isinstance(kind, str) and getattr(kind, "law", None) is None:
        return None
    law = model.predict_dist(X)
    return law if isinstance(law, Distribution) else None


def draw_calibration(model: Any, curves: dict[str, Curve], n_rows: int, output: int, ax: Axes | None = None) -> Axes:
    """Draw observed against nominal coverage of one output, or parts of rows below quantiles."""
    ax = axes_or_new(ax)
    draw_diagonal(ax, 0, n_rows)
    for (label, curve), colour in zip(curves.items(), (BLUE, ORANGE), strict=False):
        ax.plot(curve.levels, curve.observed[:, output], "o-", color=colour, markersize=4, label=label)
    title = "Calibration" if n_outputs(model) == 1 else f"Calibration of {plain_text(output_name(model, output))}"
    below = "quantiles" in curves
    ax.set(xlabel="level of the quantile" if below else "nominal coverage", title=title)
    ax.set_ylabel("part of the rows below" if below else "observed coverage")
    ax.legend(frameon=False, loc="upper left")
    return ax


def draw_reliability(model: Any, compared: Compared, output: int | None, ax: Axes | None = None) -> Axes:
    """Draw which part of rows is of the predicted class, or of a given one, against its predicted probability."""
    ax, (truth, probability) = axes_or_new(ax), compared
    chosen = probability.argmax(axis=1) if output is None else np.full(len(truth), output)
    centres, parts, size = by_groups(probability[np.arange(len(truth)), chosen], chosen == truth)
    draw_diagonal(ax, np.floor(10 * min(centres.min(), parts.min())) / 10, size)
    ax.plot(centres, parts, "o-", color=BLUE, markersize=4, label=f"groups of {size} rows")
    name = "the predicted class" if output is None else f"'{plain_text(output_name(model, output))}'"
    ax.set(xlabel=f"predicted probability of {name}", ylabel="part of the rows", title=f"Reliability of {name}")
    ax.legend(frameon=False)
    return ax


def draw_diagonal(ax: Axes, start: float, n_rows: int) -> None:
    """Draw the diagonal up to one, and how far off parts of so many rows are by chance."""
    grid = np.linspace(start, 1, 201)
    ax.plot(grid[[0, -1]], grid[[0, -1]], color=GREY, linewidth=0.8)
    error = f"95% sampling error of {n_rows:,} row{'' if n_rows == 1 else 's'}"
    ax.fill_between(grid, *sampling_error(grid, n_rows), color=GREY, alpha=0.2, linewidth=0, label=error)


def sampling_error(probability: Any, n_rows: int) -> np.ndarray:
    """Return between which parts of so many rows 95% of samples lie if each counts with this probability.

    The ends are quantiles of the binomial distribution, interpolated between counts, for bands without steps.

    >>> sampling_error(0.9, 1000).round(3)
    array([0.881, 0.918])
    """
    ends = []
    for level in (0.025, 0.975):
        count = binom.ppf(level, n_rows, probability)
        over = (level - binom.cdf(count - 1, n_rows, probability)) / binom.pmf(count, n_rows, probability)
        ends.append(np.clip(count - 0.5 + over, 0, n_rows) / n_rows)
    return np.stack(ends)


def by_groups(values: np.ndarray, holds: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """Return the mean of values, and the part of rows where something holds, of groups of rows alike in their values.

    Groups are of as many rows each, which is the last thing returned (one more in some).
    """
    groups = np.array_split(np.argsort(values, kind="stable"), np.clip(len(values) // FEWEST_ROWS, 1, MOST_GROUPS))
    centres, parts = (np.array([of[rows].mean() for rows in groups]) for of in (values, holds))
    return centres, parts, len(groups[-1])


def truth_of(model: Any, X: Any, y: Any) -> np.ndarray:
    """Return the true values, (n_rows, n_outputs); raise ``ValueError`` if they are not those of as many rows."""
    truth, n = true_values(model, y), _num_samples(X)
    if len(truth) != n:
        raise ValueError(f"X and y must have as many rows, got {n} and {len(truth)}")
    return truth


def known_targets(truth: np.ndarray, output: int) -> int:
    """Return how many targets of an output are known."""
    return int((~np.isnan(truth[:, output])).sum())


def some_rows(X: Any, truth: np.ndarray) -> tuple[Any, np.ndarray]:
    """Return rows and the truth about them, evenly spaced ones of very many."""
    if len(truth) <= MOST_JUDGED:
        return X, truth
    rows = some_places(len(truth), MOST_JUDGED)
    return _safe_indexing(X, rows), truth[rows]


def require_regressor(model: Any) -> None:
    """Raise ``ValueError`` if a model is a classifier."""
    check_is_fitted(model)
    if hasattr(model, "classes_"):
        raise ValueError("this plot is for regressors; see plot_calibration for classifiers, and predict_set")
