"""Write the tables and figures of ``docs/results.md`` from the stored results: ``python -m experiments.report``."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from .claims import claims_table, goals_table, scaled_table
from .figures import curves, plane, save, scaling, time_and_loss
from .pictures import SQUARES
from .problems import PROBLEMS
from .runner import METHODS
from .study import RESULTS
from .tables import full_table, load, paper_table

PAGE = Path(__file__).parent.parent / "docs" / "results.md"
TITLES = {method.name: method.title for method in METHODS.values()}
TASKS, REAL = ("task1", "task2", "task3"), ("cdr", "mnist", "higgs")


def texts(results: Path) -> dict[str, str]:
    """Return what stands between the marks of the page, by name."""
    found = {
        "tasks": paper_table(results, TASKS, TITLES),
        "real": paper_table(results, REAL, TITLES),
        "claims": claims_table(results, TITLES),
        "goals": goals_table(results, TITLES),
        "scaled": scaled_table(results, TITLES),
    }
    return found | {name: full_table(results, name, TITLES) for name in PROBLEMS if load(results, name)}


def filled(page: str, contents: dict[str, str]) -> str:
    """Return the page with everything between ``<!-- begin x -->`` and ``<!-- end x -->`` replaced by the text x."""
    for name, content in contents.items():
        begin, end = f"<!-- begin {name} -->\n", f"<!-- end {name} -->"
        if begin in page:
            before, rest = page.split(begin, 1)
            page = before + begin + content + "\n" + end + rest.split(end, 1)[1]
    return page


def draw(results: Path, folder: Path) -> list[Path]:
    """Draw every figure whose results are stored; return the files."""
    figures = {"curves-tasks": curves(results, [n for n in TASKS if load(results, n)], TITLES)}
    if real := [name for name in REAL if load(results, name)]:
        figures["curves-real"] = curves(results, real, TITLES)
    figures |= {f"plane-{task}": figure for task in SQUARES if (figure := plane(results, task, TITLES)) is not None}
    if (results / "timing.json").exists():
        figures["time-loss"] = time_and_loss(results, TITLES)
    if (results / "scaling.json").exists():
        figures["scaling"] = scaling(results)
    for name, figure in figures.items():
        save(figure, folder / f"{name}.png")
    return [folder / f"{name}.png" for name in figures]


def main(arguments: Sequence[str] | None = None) -> None:
    """Rewrite the page and its figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of results")
    parser.add_argument("--page", type=Path, default=PAGE, help="page to fill in (default: docs/results.md)")
    options = parser.parse_args(arguments)
    options.page.write_text(filled(options.page.read_text(), texts(options.results)))
    for path in draw(options.results, options.page.parent / "results"):
        Console().print(f"wrote {path}")


if __name__ == "__main__":
    main()
