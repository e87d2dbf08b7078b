"""Tables, from stored results only."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from .problems import PROBLEMS
from .study import SEEDS

#: Scores in the paper's tables, by problem.
SCORES = {"r2": "R²", "auc": "AUC", "accuracy": "accuracy"}


def load(results: Path, problem: str) -> dict[str, dict[str, Any]]:
    """Return the stored results of a problem by method, those without seeds left out."""
    found = [json.loads(path.read_text()) for path in sorted((results / problem).glob("*.json"))]
    return {content["method"]: content for content in found if content["seeds"]}


def statistics(content: dict[str, Any]) -> dict[str, Any]:
    """Return means and standard deviations over the seeds of a method, and how many trials and seeds there were."""
    seeds = content["seeds"][:SEEDS]  # some methods have more than others
    numbers = {name: [seed["test"][name] for seed in seeds] for name in seeds[0]["test"]}
    numbers |= {name: [seed[name] for seed in seeds] for name in ("seconds", "parameters")}
    found = {name: (float(np.mean(values)), float(np.std(values))) for name, values in numbers.items()}
    return found | {"trials": len(content["trials"]), "seeds": len(seeds)}


def cells_of(row: dict[str, Any], scores: Sequence[str]) -> list[str]:
    """Return what a table shows of one method: loss, scores, time, size, effort."""
    cells = [f"{row['loss'][0]:.3g} ± {row['loss'][1]:.1g}"]
    cells += [f"{row[name][0]:.4f} ± {row[name][1]:.1g}" for name in scores]
    cells += [f"{row['seconds'][0]:.2g} ± {row['seconds'][1]:.1g}"]
    size, spread = (round(number) for number in row["parameters"])
    return [*cells, f"{size:,} ± {spread:,}" if spread else f"{size:,}", str(row["trials"]), str(row["seeds"])]


def rows_of(results: Path, problem: str) -> tuple[list[str], dict[str, list[str]]]:
    """Return the headings of a table, and its cells by method, lowest loss first."""
    rows = {name: statistics(content) for name, content in load(results, problem).items()}
    scores = [score for score in SCORES if any(score in row for row in rows.values())]
    headings = [f"test {PROBLEMS[problem].loss_name}", *(SCORES[s] for s in scores)]
    headings += ["seconds", "parameters", "trials", "seeds"]
    ranked = sorted(rows.items(), key=lambda item: item[1]["loss"][0])
    return headings, {name: cells_of(row, scores) for name, row in ranked}


def summary(results: Path, problem: str, titles: dict[str, str]) -> Table:
    """Return a table of a problem's results for the terminal."""
    headings, rows = rows_of(results, problem)
    table = Table("method", title=f"{problem}: mean over seeds ± standard deviation")
    for heading in headings:
        table.add_column(heading, justify="right")
    for name, cells in rows.items():
        table.add_row(titles[name], *cells)
    return table


def full_table(results: Path, problem: str, titles: dict[str, str]) -> str:
    """Return everything about one problem in Markdown."""
    headings, rows = rows_of(results, problem)
    lines = ["| method | " + " | ".join(headings) + " |", "|---|" + "---:|" * len(headings)]
    return "\n".join(lines + [f"| {titles[name]} | " + " | ".join(cells) + " |" for name, cells in rows.items()])


#: The rows of the paper's tables, in its order.
PAPER_ROWS = ("gd", "vp_start", "vp_end", "vp_start_end", "vp", "xgboost", "network", "network_vp")


def paper_table(results: Path, problems: Sequence[str], titles: dict[str, str]) -> str:
    """Return one of the paper's tables in Markdown: methods by problems, loss and scores; the best loss is bold."""
    stored = {problem: {m: statistics(c) for m, c in load(results, problem).items()} for problem in problems}
    columns = [(p, s) for p in problems for s in ("loss", *SCORES) if any(s in row for row in stored[p].values())]
    names = [loss_heading(p) if s == "loss" else f"{p} {SCORES[s]} ↑" for p, s in columns]
    lines = ["| method | " + " | ".join(names) + " |", "|---|" + "---:|" * len(names)]
    for method in PAPER_ROWS:
        cells = [cell(stored[p], method, s) for p, s in columns]
        if any(cells):
            lines.append(f"| {titles[method]} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def loss_heading(problem: str) -> str:
    """Return the heading of a loss column."""
    return f"{problem} {PROBLEMS[problem].loss_name} ↓"


def cell(rows: dict[str, dict[str, Any]], method: str, name: str) -> str:
    """Return mean and deviation of a loss, bold if it is the best of the paper's rows, or the mean of a score."""
    if method not in rows:
        return ""
    mean, spread = rows[method][name]
    if name != "loss":
        return f"{mean:.4f}"
    best = mean == min(rows[m]["loss"][0] for m in PAPER_ROWS if m in rows)
    return f"**{mean:.3g}** ± {spread:.1g}" if best else f"{mean:.3g} ± {spread:.1g}"
