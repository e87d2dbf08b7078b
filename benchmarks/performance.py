"""Speed and memory, side by side with peers, one thing at a time, as ratios within one run.

    python benchmarks/performance.py             # the cases that take about five minutes together
    python benchmarks/performance.py --all       # also those with millions of rows
    python benchmarks/performance.py --only NAME ...

Times are medians over repeats of warm calls unless a name says cold. Writes ``benchmarks/results/performance.json``, a
table of the same (``performance.md``) and, when the case ``scaling`` is run, ``docs/scaling.png``. Needs
``vpboost[benchmarks,plots]``, and nothing else should run.
"""

import argparse
import json
import os
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from cases import CASES, LARGE, matrix_multiply_peak

RESULTS = Path(__file__).parent / "results" / "performance.json"
PICTURE = Path(__file__).parents[1] / "docs" / "scaling.png"


def draw(scaling: dict[str, Any]) -> None:
    """Plot cost against each size on log axes."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import NullFormatter

    figure, axes = plt.subplots(1, len(scaling), figsize=(3.2 * len(scaling), 3), constrained_layout=True)
    for axis, (name, found) in zip(axes, scaling.items(), strict=True):
        axis.loglog(found["sizes"], found["seconds"], "o-")
        axis.set(xlabel=name, ylabel="seconds", title=f"slope {found['slope']:.2f}")
        axis.grid(alpha=0.3, which="both")
        for one in (axis.xaxis, axis.yaxis):
            one.set_minor_formatter(NullFormatter())
    figure.savefig(PICTURE, dpi=110)


def flatten(found: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested results as one level of names."""
    flat: dict[str, Any] = {}
    for name, value in found.items():
        if isinstance(value, dict):
            flat.update(flatten(value, f"{prefix}{name} "))
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def shown(value: Any) -> str:
    """Return a result as text."""
    numbers = value if isinstance(value, list) else [value]
    return ", ".join(f"{n:.4g}" if isinstance(n, float) else str(n) for n in numbers)


def markdown(results: dict[str, Any]) -> str:
    """Return all results as one table."""
    lines = ["| case | what | |", "|---|---|---|"]
    for name, found in results.items():
        lines += [f"| {name} | {label} | {shown(value)} |" for label, value in flatten(found).items()]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="Speed and memory of VPBoost beside its peers.")
    parser.add_argument("--all", action="store_true", help="also the cases with millions of rows")
    parser.add_argument("--only", nargs="+", choices=list(CASES), default=None)
    options = parser.parse_args()
    names = options.only or [name for name in CASES if options.all or name not in LARGE]
    console, results = Console(), json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    results["machine"] = {"cores": os.cpu_count(), "matrix multiply, GF/s": matrix_multiply_peak()}
    for name in names:
        console.print(f"[bold]{name}[/]: {(CASES[name].__doc__ or '').splitlines()[0]}")
        results[name] = CASES[name]()
        table = Table(show_header=False)
        for label, value in flatten(results[name]).items():
            table.add_row(label, shown(value))
        console.print(table)
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
        RESULTS.with_suffix(".md").write_text(markdown(results))
    if "scaling" in names:
        draw(results["scaling"])


if __name__ == "__main__":
    main()
