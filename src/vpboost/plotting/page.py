"""A report of one page: what the model is, how it was trained, how well it predicts and by what."""

import base64
import html
import io
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from .._version import __version__
from ..metrics import evaluate
from .figures import (
    plot_diagnostics,
    plot_input_gradients,
    plot_partial_dependence,
    plot_predictions,
    plot_training,
    plot_trust_region,
)

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1d2433; max-width: 1120px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; margin-bottom: 0.2rem; } h2 { font-size: 1.15rem; margin: 2rem 0 0.6rem; }
.lead { color: #5a6272; margin-top: 0; }
table { border-collapse: collapse; }
th, td { text-align: left; padding: 0.25rem 1.2rem 0.25rem 0; vertical-align: top; }
th { font-weight: 600; } td { font-variant-numeric: tabular-nums; } tr + tr { border-top: 1px solid #e6e9ef; }
.plots { display: grid; grid-template-columns: repeat(2, 1fr); gap: 1.2rem; }
.plots.three { grid-template-columns: repeat(3, 1fr); }
.plots img { width: 100%; } .numbers { display: flex; flex-wrap: wrap; gap: 2.5rem; }
.number b { display: block; font-size: 1.7rem; line-height: 1.2; }
"""


def report(model: Any, X: Any, y: Any, path: Any = "report.html", title: str = "VPBoost model") -> Path:
    """Write a page about a fitted model: its settings, its training, its metrics and predictions on data you give.

    Parameters
    ----------
    model : VPBoostRegressor or VPBoostClassifier
        A fitted estimator.
    X, y : array-like
        Data that the model has not seen, best of all.
    path : str or Path, default="report.html"
        The page: one file that needs nothing else.
    title : str, default="VPBoost model"
        Heading of the page.

    Returns
    -------
    Path
        The page.
    """
    metrics = evaluate(model, X, y)
    main = {name: value for name, value in metrics.items() if not name.startswith("r2 of ")}
    rest = {name: value for name, value in metrics.items() if name not in main}
    sections = [
        f"<h1>{html.escape(title)}</h1>",
        f"<p class='lead'>{html.escape(sentence(model, len(np.asarray(y))))}</p>",
        "<h2>Metrics on the data given</h2>",
        "<div class='numbers'>" + "".join(number(name, value) for name, value in main.items()) + "</div>",
        table(rest) if rest else "",
        "<h2>Predictions</h2>",
        plots([plot_predictions(model, X, y), *effects(model, X)]),
        "<h2>Training</h2>",
        plots([plot_training(model), plot_trust_region(model), plot_diagnostics(model)]),
        "<h2>Model</h2>",
        table(facts(model)),
        "<h2>Settings</h2>",
        table({name: repr(value) for name, value in model.get_params(deep=False).items() if value is not None}),
    ]
    body = "\n".join(sections)
    head = f"<meta charset='utf-8'><title>{html.escape(title)}</title><style>{STYLE}</style>"
    Path(path).write_text(f"<!doctype html><html lang='en'><head>{head}</head><body>{body}</body></html>", "utf-8")
    return Path(path)


def sentence(model: Any, n_rows: int) -> str:
    """Return what the model is, in a sentence."""
    kind = "classifier" if hasattr(model, "classes_") else "regressor"
    ensemble = model.ensemble_
    return (
        f"A {kind} of {ensemble.n_learners} smooth learners with {ensemble.n_parameters:,} parameters in all, "
        f"{model.n_features_in_} inputs and {ensemble.n_outputs} output{'s' if ensemble.n_outputs > 1 else ''}, "
        f"looked at on {n_rows:,} rows."
    )


def effects(model: Any, X: Any) -> list[Axes]:
    """Return plots of how inputs act, for models of tables with numeric columns."""
    encoder = model.input_encoder_
    if len(encoder.shape_) > 1 or not encoder.numeric_:
        return []
    order = [j for j in np.argsort(-model.feature_importances_) if j in encoder.numeric_]
    return [plot_input_gradients(model, X), *(plot_partial_dependence(model, X, int(j)) for j in order[:2])]


def facts(model: Any) -> dict[str, Any]:
    """Return facts about a fitted model."""
    found = {
        "stages": f"{model.n_iter_}, of which {model.best_iteration_} learners were kept",
        "loss": type(model.loss_).__name__,
        "encoding of inputs": model.profile_.encoding,
        "start of learners": f"{model.profile_.inherit} of the learner before",
        "columns seen by each learner": model.profile_.max_features,
        "best validation score": f"{model.best_score_:.6g}" if model.evals_result_["validation"] else "none",
        "time of training": f"{model.history_['seconds'].sum():.1f} s of stages",
        "precision": model.dtype,
        "vpboost": __version__,
    }
    names = getattr(model, "feature_names_in_", None)
    if len(model.feature_importances_) == model.n_features_in_:
        order = np.argsort(-model.feature_importances_)[:8]
        label = [str(names[j]) if names is not None else f"column {j}" for j in order]
        shares = [f"{name} {model.feature_importances_[j]:.0%}" for name, j in zip(label, order, strict=True)]
        found["most important inputs"] = ", ".join(shares)
    return found


def number(name: str, value: float) -> str:
    """Return a metric in large type."""
    label = {"r2": "R²", "rmse": "RMSE", "mae": "MAE", "log_loss": "log-loss", "auc": "AUC"}.get(name, name)
    return f"<div class='number'><b>{value:.4g}</b>{html.escape(label)}</div>"


def table(rows: dict[str, Any]) -> str:
    """Return rows of names and values."""

    def text(value: Any) -> str:
        return html.escape(f"{value:.6g}" if isinstance(value, float) else str(value))

    lines = "".join(f"<tr><th>{html.escape(name)}</th><td>{text(value)}</td></tr>" for name, value in rows.items())
    return f"<table>{lines}</table>"


def plots(axes: list[Axes]) -> str:
    """Return figures as pictures inside the page."""
    style = "plots three" if len(axes) == 3 else "plots"
    return f"<div class='{style}'>" + "".join(picture(ax) for ax in axes) + "</div>"


def picture(ax: Axes) -> str:
    """Return the figure of some axes as an image element."""
    buffer = io.BytesIO()
    figure: Any = ax.get_figure(root=True)
    figure.savefig(buffer, format="png", dpi=130)
    encoded = base64.b64encode(buffer.getvalue()).decode()
    return f"<img alt='{html.escape(ax.get_title())}' src='data:image/png;base64,{encoded}'>"
