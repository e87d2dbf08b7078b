"""A report of one page: what the model is, how it was trained, how well it predicts, how sure it is and by what."""

from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from .._version import __version__
from ..callbacks import name_of
from ..estimators.metrics import (
    Compared,
    compare,
    evaluate,
    has_quantiles,
    scores_of_classes,
    scores_of_outputs,
    summary,
)
from ..files.atomic import write_file
from .bands import plot_bands
from .calibration import truth_of
from .effects import plot_input_gradients, plot_partial_dependence
from .figures import BLUE, axes_or_new, plot_diagnostics, plot_training, plot_trust_region
from .html import EXTREMES, MOST_DRAWN, MOST_SCORES, facts_table, number, page, plots, scores_table
from .names import column_name, n_outputs, names_of_outputs, output_name
from .predictions import draw_confusion, draw_values
from .sureness import how_sure

#: Inputs along which quantiles are drawn.
MOST_BANDS = 2


def report(
    model: Any, X: Any, y: Any, path: Any = "report.html", title: str = "VPBoost model", about: str = "the data given"
) -> Path:
    """Write a page about a fitted model: its settings, its training, its metrics and predictions on data you give.

    Its section "How sure is it?" compares nominal with observed coverage, or probabilities with what comes true.

    Parameters
    ----------
    model : VPBoostRegressor or VPBoostClassifier
        A fitted estimator.
    X, y : array-like
        Data that the model has not seen, best of all.
    path : str or Path, default="report.html"
        The page: one file that needs nothing else. A file that is there stays until the new one is complete.
    title : str, default="VPBoost model"
        Heading of the page.
    about : str, default="the data given"
        What X and y are, such as "the test data".

    Returns
    -------
    Path
        The page.
    """
    if has_quantiles(model):  # of which none is the prediction
        compared, metrics = Compared(truth_of(model, X, y), np.asarray(model.predict(X))), evaluate(model, X, y)
        shown = [bands(model, X, y)]
    else:
        compared = compare(model, X, y)
        metrics = {name: value for name, value in summary(model, compared).items() if " of " not in name}
        shown = [scores(model, compared), "<h2>Predictions</h2>", plots(predictions(model, compared))]
    sections = [
        f"<p class='lead'>{escape(sentence(model, len(compared.truth), str(about)))}</p>",
        f"<h2>Metrics on {escape(str(about))}</h2>",
        "<div class='numbers'>" + "".join(number(name, value) for name, value in metrics.items()) + "</div>",
        *shown,
        *how_sure(model, X, compared),
        *inputs(model, X),
        "<h2>Training</h2>",
        plots([plot_training(model), plot_trust_region(model), plot_diagnostics(model)]),
        "<h2>Model</h2>",
        facts_table(facts(model)),
        "<h2>Settings</h2>",
        facts_table(settings(model)),
    ]
    write_file(path, page(str(title), sections))
    return Path(path)


def sentence(model: Any, n_rows: int, about: str) -> str:
    """Return what the model is, in a sentence."""
    classifier, ensemble = hasattr(model, "classes_"), model.ensemble_
    return (
        f"A {'classifier' if classifier else 'regressor'} of {count(ensemble.n_learners, 'smooth learner')} with "
        f"{ensemble.n_parameters:,} parameters in all, {count(model.n_features_in_, 'input')} and "
        f"{count(n_outputs(model), 'class' if classifier else 'output')}, looked at on {about}: {count(n_rows, 'row')}."
    )


def count(n: int, noun: str) -> str:
    """Return a number of things.

    >>> count(1, "class"), count(2000, "class"), count(2, "row")
    ('1 class', '2,000 classes', '2 rows')
    """
    return f"{n:,} {noun}{'' if n == 1 else 'es' if noun.endswith('s') else 's'}"


def scores(model: Any, compared: Compared) -> str:
    """Return a table of every output's or class's scores; of very many, the worst and the best."""
    n, classifier = n_outputs(model), hasattr(model, "classes_")
    if n == 1:
        return ""
    r2_and_rmse = {} if classifier else dict(zip(("R²", "RMSE"), scores_of_outputs(compared), strict=True))
    columns = scores_of_classes(compared) if classifier else r2_and_rmse
    head, note, chosen = "class" if classifier else "output", "", np.arange(n)
    if n > MOST_SCORES:
        by, judged = worth(compared, classifier)
        order = from_worst(judged)
        chosen = order if len(order) <= MOST_SCORES else np.concatenate([order[:EXTREMES], order[-EXTREMES:]])
        low, middle, high = (f"{judged[order[k]]:.4g}" for k in (0, len(order) // 2, -1))
        which = f"{EXTREMES} worst and the {EXTREMES} best" if len(chosen) < len(order) else f"{len(order)} that occur"
        note = (
            f"<p>The {which} of {count(n, head)}. {by} is {low} at the least, {middle} in the middle and {high} at the "
            "most.</p>"
        )
    names = names_of_outputs(model) or [str(k) for k in range(n)]
    rows = [(names[k], [values[k] for values in columns.values()]) for k in chosen]
    return note + scores_table([head, *columns], rows)


def worth(compared: Compared, classifier: bool = False) -> tuple[str, np.ndarray]:
    """Return what to judge outputs or classes by, larger where predictions are better: F1 or R², −RMSE of one row."""
    if classifier:
        return "F1", scores_of_classes(compared)["F1"]
    r2, rmse = scores_of_outputs(compared)
    return ("−RMSE", -rmse) if np.isnan(r2).any() else ("R²", r2)  # of a single row there is no R²


def from_worst(judged: np.ndarray) -> np.ndarray:
    """Return places in order, worst first, without those of classes that neither occur nor were predicted (NaN)."""
    return np.argsort(judged, kind="stable")[: int((~np.isnan(judged)).sum())]


def predictions(model: Any, compared: Compared) -> list[Axes]:
    """Return plots of predictions: of all outputs, or of the worst and the best and how good all are."""
    if hasattr(model, "classes_"):
        return [draw_confusion(model, compared)]
    n, (by, judged) = n_outputs(model), worth(compared)
    if n <= MOST_DRAWN:
        return [draw_values(model, compared, k) for k in range(n)]
    order, notes = from_worst(judged), ("worst", "second worst", "second best", "best")
    chosen = zip((*order[:2], *order[-2:]), notes, strict=True)
    drawn = [draw_values(model, compared, int(k), note=f"\n{note}, {by} {judged[k]:.3g}") for k, note in chosen]
    return [*drawn, draw_distribution(by, judged)] if n > MOST_SCORES else drawn


def bands(model: Any, X: Any, y: Any) -> str:
    """Return a section on what is predicted along the most important inputs, for models of tables."""
    if len(model.input_encoder_.shape_) > 1:
        return ""
    columns = np.argsort(-model.feature_importances_)[:MOST_BANDS]
    return "<h2>Predictions</h2>" + plots([plot_bands(model, X, int(column), y) for column in columns])


def draw_distribution(name: str, values: np.ndarray) -> Axes:
    """Draw how many outputs have which score."""
    ax = axes_or_new(None)
    clipped = name == "R²" and values.min() < -1  # a few very bad outputs would squeeze all others into one bar
    ax.hist(np.maximum(values, -1) if clipped else values, bins=40, color=BLUE)
    ax.set(xlabel=f"{name}, −1 or less at −1" if clipped else name, ylabel="outputs", title=f"{name} of all outputs")
    return ax


def inputs(model: Any, X: Any) -> list[str]:
    """Return a section on how inputs act, for models of tables."""
    if len(model.input_encoder_.shape_) > 1 or has_quantiles(model):
        return []
    known = getattr(model, "distribution", None) != "lognormal"  # whose mean depends on its spread, too
    axes = [plot_input_gradients(model, X)] if known and model.input_encoder_.numeric_ else []
    axes += [plot_partial_dependence(model, X, int(j)) for j in np.argsort(-model.feature_importances_)[:2]]
    first = "" if hasattr(model, "classes_") or n_outputs(model) == 1 else f" on {escape(output_name(model, 0))}"
    return [f"<h2>Effects of inputs{first}</h2>", plots(axes)]


def facts(model: Any) -> dict[str, Any]:
    """Return facts about a fitted model."""
    found = {
        "stages": f"{model.n_iter_}, the best after {model.best_iteration_} learners",
        "chains": f"{model.n_chains_}, {model.ensemble_.n_learners} learners in all",
        "loss": type(model.loss_).__name__,
        "encoding of inputs": model.profile_.encoding,
        "start of learners": f"{model.profile_.inherit} of the learner before",
        "columns seen by each learner": model.profile_.max_features,
        "tree beside each learner": f"{model.profile_.tree_depth} levels" if model.profile_.tree_depth else "none",
        "best validation score": f"{model.best_score_:.6g}" if model.evals_result_["validation"] else "none",
        "time of training": f"{model.history_['seconds'].sum():.1f} s of stages",
        "precision": model.profile_.dtype,
        "vpboost": __version__,
    }
    if len(model.feature_importances_) == model.n_features_in_:
        order = np.argsort(-model.feature_importances_)[:8]
        found["most important inputs"] = ", ".join(
            f"{column_name(model, j)} {model.feature_importances_[j]:.0%}" for j in order
        )
    return found


def settings(model: Any) -> dict[str, str]:
    """Return the parameters that are set, as text of moderate length."""

    def text(value: Any) -> str:
        if isinstance(value, list | tuple):
            return f"[{', '.join(map(text, value))}]"
        shown = name_of(value) if " at 0x" in repr(value) else repr(value)
        return shown if len(shown) <= 300 else shown[:299] + "…"

    return {name: text(value) for name, value in model.get_params(deep=False).items() if value is not None}
