"""Timing: time against test loss of the tuned methods on the 2D tasks, one fit at a time.

``python -m experiments.timing [--quick]`` with nothing else running, after the tasks. Each method runs once before it
is timed, so that compilation does not count; the time of that first run is kept as well.
"""

import json
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.progress import track

from .problems import PROBLEMS
from .runner import METHODS, place
from .study import FIRST_SEED, rounded, write_whole
from .tables import load

TASKS, N_SEEDS = ("task1", "task2", "task3"), 5
#: The methods of the paper's figure, and ours.
TIMED = ("gd", "vp", "network", "network_vp", "xgboost", "vp_more")


def measure(name: str, method: str, config: dict[str, Any], n_seeds: int, quick: bool) -> dict[str, Any]:
    """Return the time of a first fit, and times and test losses of later ones."""
    problem = PROBLEMS[name].quick() if quick else PROBLEMS[name]
    fit = METHODS[method].fit
    first = fit(problem, problem.load(FIRST_SEED), config, FIRST_SEED).seconds
    runs = []
    for seed in range(FIRST_SEED, FIRST_SEED + n_seeds):
        parts = problem.load(seed)
        fit(problem, parts, config, seed)  # another number of kept learners means other programs
        fitted = fit(problem, parts, config, seed)
        runs.append(
            [rounded(fitted.seconds), rounded(problem.measure(fitted.predict(parts.x_test), parts.y_test)["loss"])]
        )
    return {"config": config, "first_seconds": rounded(first), "runs": runs}


def main(arguments: Sequence[str] | None = None) -> None:
    """Time the methods of the 2D tasks that have not been timed."""
    quick, results = place(__doc__ or "", arguments)
    path = results / "timing.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    stored = {task: load(results, task) for task in TASKS}
    wanted = [
        (task, method)
        for task in TASKS
        for method, content in stored[task].items()
        if method in TIMED and found.get(task, {}).get(method, {}).get("config") != content["config"]
    ]
    if not wanted and not found:
        raise SystemExit(f"{results} holds no results of {', '.join(TASKS)}: run these first")
    for task, method in track(wanted, "timing"):
        config = stored[task][method]["config"]
        found.setdefault(task, {})[method] = measure(task, method, config, 2 if quick else N_SEEDS, quick)
        write_whole(path, json.dumps(found, indent=1) + "\n")
    for task, times in found.items():
        for method, entry in times.items():
            seconds = sorted(run[0] for run in entry["runs"])
            Console().print(f"{task} {METHODS[method].title}: {seconds[len(seconds) // 2]:.2f} s")


if __name__ == "__main__":
    main()
