"""Parts of the page: numbers in large type, tables and pictures."""

import base64
import io
from html import escape
from typing import Any

from matplotlib.axes import Axes

from .figures import missing_letters_allowed

#: Outputs or classes of which all scores are shown; of more, so many of the worst and of the best.
MOST_SCORES, EXTREMES = 50, 10
#: Outputs of which all predictions are drawn; of more, the worst and the best.
MOST_DRAWN = 4

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1d2433; max-width: 1120px; margin: 2rem auto; padding: 0 1rem; }
h1, h2, p, th, td { overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; margin-bottom: 0.2rem; } h2 { font-size: 1.15rem; margin: 2rem 0 0.6rem; }
.lead { color: #5a6272; margin-top: 0; }
table { border-collapse: collapse; }
th, td { text-align: left; padding: 0.25rem 1.2rem 0.25rem 0; vertical-align: top; }
th { font-weight: 600; } td { font-variant-numeric: tabular-nums; } tr + tr { border-top: 1px solid #e6e9ef; }
.scores { margin-top: 1rem; font-size: 0.9rem; line-height: 1.3; }
.scores td, .scores thead th + th { text-align: right; }
.plots { display: grid; grid-template-columns: repeat(2, 1fr); gap: 1.2rem; }
.plots.three { grid-template-columns: repeat(3, 1fr); }
.plots img { width: 100%; } .numbers { display: flex; flex-wrap: wrap; gap: 2.5rem; }
.number b { display: block; font-size: 1.7rem; line-height: 1.2; }
"""


def page(title: str, sections: list[str]) -> bytes:
    """Return a whole page."""
    head = f"<meta charset='utf-8'><title>{escape(title)}</title><style>{STYLE}</style>"
    body = "\n".join([f"<h1>{escape(title)}</h1>", *sections])
    text = f"<!doctype html><html lang='en'><head>{head}</head><body>{body}</body></html>"
    return text.encode("utf-8", "replace")  # names may hold halves of letters


def number(name: str, value: float) -> str:
    """Return a metric in large type."""
    label = {"r2": "R²", "rmse": "RMSE", "mae": "MAE", "log_loss": "log-loss", "auc": "AUC"}.get(name, name)
    return f"<div class='number'><b>{figure_of(value)}</b>{escape(label)}</div>"


def figure_of(value: float) -> str:
    """Return a number in four digits, a dash for NaN."""
    return "–" if value != value else f"{value:.4g}"


def facts_table(rows: dict[str, Any]) -> str:
    """Return a table of names and values."""
    lines = "".join(f"<tr><th>{escape(name)}</th><td>{escape(str(value))}</td></tr>" for name, value in rows.items())
    return f"<table>{lines}</table>"


def scores_table(head: list[str], rows: list[tuple[str, list[Any]]]) -> str:
    """Return a table of numbers with a name before each row."""
    top = "".join(f"<th>{escape(name)}</th>" for name in head)
    lines = "".join(
        f"<tr><th>{escape(name)}</th>{''.join(f'<td>{figure_of(value)}</td>' for value in values)}</tr>"
        for name, values in rows
    )
    return f"<table class='scores'><thead><tr>{top}</tr></thead><tbody>{lines}</tbody></table>"


def plots(axes: list[Axes]) -> str:
    """Return figures as pictures inside the page."""
    style = "plots three" if len(axes) == 3 else "plots"
    return f"<div class='{style}'>" + "".join(picture(ax) for ax in axes) + "</div>"


def picture(ax: Axes) -> str:
    """Return the figure of some axes as an image element."""
    buffer = io.BytesIO()
    figure: Any = ax.get_figure(root=True)
    with missing_letters_allowed():
        figure.savefig(buffer, format="png", dpi=130)
    encoded = base64.b64encode(buffer.getvalue()).decode()
    title = ax.get_title().replace(r"\$", "$").replace("\n", ": ")
    return f"<img alt='{escape(title)}' src='data:image/png;base64,{encoded}'>"
