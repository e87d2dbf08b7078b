"""The command line that all experiments share: which methods, how many trials, how many seeds."""

import argparse
import importlib.util
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from . import boosting, grownet, networks, trees
from .problems import PROBLEMS
from .protocol import Method, with_scale
from .study import RESULTS, SEEDS, Store, confirm_leader, rerun, tune
from .tables import summary

OF_NETWORKS = (*boosting.METHODS, *networks.METHODS, *grownet.METHODS)
#: Every method of networks with the scale of initial weights as one more tuned parameter.
SCALED = [with_scale(method) for method in OF_NETWORKS if method.after is None]
METHODS = {m.name: m for m in (*OF_NETWORKS, *SCALED, *trees.METHODS)}
TRIALS = 100
QUICK_TRIALS, QUICK_SEEDS = 2, 2
QUICK_RESULTS = Path("quick-results")


def parse(description: str, arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the options of a command line."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="a short version, to see that everything runs")
    parser.add_argument("--methods", nargs="+", choices=METHODS, metavar="METHOD", help=f"of: {', '.join(METHODS)}")
    parser.add_argument("--trials", type=int, help=f"configurations tried per method (default: {TRIALS})")
    parser.add_argument("--seeds", type=int, help=f"reruns of the best configuration (default: {SEEDS})")
    parser.add_argument("--results", type=Path, help="folder of results (default: experiments/results)")
    options = parser.parse_args(arguments)
    options.trials = options.trials or (QUICK_TRIALS if options.quick else TRIALS)
    options.seeds = options.seeds or (QUICK_SEEDS if options.quick else SEEDS)
    options.results = options.results or (QUICK_RESULTS if options.quick else RESULTS)
    return options


def place(description: str, arguments: Sequence[str] | None) -> tuple[bool, Path]:
    """Return the options of a command line that has only these two: whether it is quick, and where results go."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="a short version, to see that everything runs")
    parser.add_argument("--results", type=Path, help="folder of results (default: experiments/results)")
    options = parser.parse_args(arguments)
    return options.quick, options.results or (QUICK_RESULTS if options.quick else RESULTS)


def chosen(names: Sequence[str] | None, console: Console) -> list[Method]:
    """Return the methods of these names; by default all that can run but those with the initial scale tuned, too."""
    methods = [METHODS[name] for name in names or METHODS if names or METHODS[name] not in SCALED]
    missing = {m.package for m in methods if importlib.util.find_spec(m.package) is None}
    if missing and names:
        raise SystemExit(f"not installed: {', '.join(missing)}; pip install 'vpboost[experiments]'")
    if missing:
        console.print(
            f"left out, for they are not installed: {', '.join(missing)} (pip install 'vpboost[experiments]')"
        )
    return [m for m in methods if m.package not in missing]


def run(names: Sequence[str], arguments: Sequence[str] | None = None) -> None:
    """Run the protocol on some problems: tune, rerun over seeds, show the table."""
    options = parse(f"Run the experiment on {', '.join(names)}; a run that was stopped goes on.", arguments)
    console = Console()
    methods = chosen(options.methods, console)
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    for name in names:
        problem = PROBLEMS[name].quick() if options.quick else PROBLEMS[name]
        with Progress(*columns, console=console) as progress:
            bar = progress.add_task(name, total=len(methods) * (options.trials + problem.finals + options.seeds))
            for method in methods:
                store = Store(options.results, problem, method)
                done = min(len(store.trials), options.trials) + min(len(store.seeds), options.seeds)
                progress.update(bar, advance=done + min(len(store.finals), problem.finals))

                def tell(text: str, progress: Progress = progress, bar: TaskID = bar) -> None:
                    progress.update(bar, advance=1, description=text)

                tune(problem, method, store, options.trials, tell)
                confirm_leader(problem, method, store, tell)
                rerun(problem, method, store, options.seeds, tell)
        console.print(summary(options.results, name, {m.name: m.title for m in METHODS.values()}))
