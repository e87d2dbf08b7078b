"""What observed derivatives are worth: n runs with slopes beside n, 2n, 4n and 8n runs without, default settings.

    python benchmarks/slopes.py                            # 4 problems of 6 to 20 inputs, half an hour
    python benchmarks/slopes.py --only circuit --seeds 3
    python benchmarks/slopes.py --weights                  # what slope_weight should be, five minutes
    python benchmarks/slopes.py --table                    # what is stored already

Results are stored one by one in ``benchmarks/results/slopes.json``, which a later call goes on from. Errors are root
mean squares over 1,000 other runs, divided by the spread of the response; slopes are central differences.
"""

import argparse
import json
import time
import warnings
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from problems import PROBLEMS, sample
from simulations import error_of, key_of
from vpboost import VPBoostRegressor
from vpboost.estimators.portfolio import SMOOTH

RESULTS = Path(__file__).parent / "results" / "slopes.json"
NAMES, RUNS, TIMES = ("circuit", "hartmann", "friedman", "welch"), (50, 100), (1, 2, 4, 8)
#: The study of slope_weight, in units of 1 over the number of inputs, with (runs, seed) and settings of its own.
WEIGHTS, CASES = (0.1, 0.3, 1, 3, 10), ((40, 1), (80, 2))
WEIGHED = ("hartmann", "circuit", "ishigami", "peaks_and_ridge", "dette_curved", "dette_pepelyshev")
SETTINGS: dict[str, Any] = {
    **SMOOTH[0].parameters(),
    **{"early_stopping_rounds": None, "n_chains": 1, "refit_full": False, "relevance": False},
    **{"n_estimators": 40, "learning_rate": 0.2},
}


def slopes_of(run: Any, x: np.ndarray, step: float = 1e-6) -> np.ndarray:
    """Return the derivatives of one output by each input, by central differences."""
    moves = step * np.eye(x.shape[1])
    return np.stack([(run(x + move) - run(x - move)) / (2 * step) for move in moves], axis=1)


def run(options: argparse.Namespace, stored: dict[str, Any]) -> None:
    """Fit what is not stored yet."""
    sizes = sorted({(n * times, with_slopes) for n in RUNS for times in TIMES for with_slopes in (times == 1, False)})
    for seed, name in ((seed, name) for seed in range(options.seeds) for name in options.only):
        for n, with_slopes in sizes:
            key = key_of(name, n, "slopes" if with_slopes else "values", seed)
            if key in stored:
                continue
            data, began = sample(PROBLEMS[name], n, seed), time.perf_counter()
            dy = slopes_of(PROBLEMS[name].run, data.x_train) if with_slopes else None
            model = VPBoostRegressor(random_state=seed).fit(data.x_train, data.y_train, dy=dy)
            seconds = round(time.perf_counter() - began, 1)
            stored[key] = {"nrmse": round(error_of(model.predict, data), 7), "seconds": seconds}
            print(key, stored[key], flush=True)
            RESULTS.write_text(json.dumps(stored, indent=0) + "\n")


def try_weights(stored: dict[str, Any]) -> None:
    """Fit with several weights of slopes, and print the geometric mean of errors of each, and single ones."""
    print("| slope_weight × inputs |", " | ".join(f"{name} {n}" for name in WEIGHED for n, _ in CASES), "| mean |")
    print("|--:" * (2 + len(WEIGHED) * len(CASES)) + "|")
    for weight in WEIGHTS:
        errors = []
        for name, (n, seed) in product(WEIGHED, CASES):
            key = key_of(name, n, f"weight {weight}", seed)
            if key not in stored:
                data, problem = sample(PROBLEMS[name], n, seed), PROBLEMS[name]
                model = VPBoostRegressor(random_state=seed, slope_weight=weight / problem.n_inputs, **SETTINGS)
                model.fit(data.x_train, data.y_train, dy=slopes_of(problem.run, data.x_train))
                stored[key] = {"nrmse": round(error_of(model.predict, data), 7)}
                RESULTS.write_text(json.dumps(stored, indent=0) + "\n")
            errors.append(stored[key]["nrmse"])
        cells = [*errors, np.exp(np.mean(np.log(errors)))]
        print(f"| {weight} |", " | ".join(f"{error:.4f}" for error in cells), "|", flush=True)


def mean_of(stored: dict[str, Any], name: str, n: int, what: str, seeds: int) -> float:
    """Return the geometric mean of errors over the seeds that are stored; NaN for none."""
    found = [stored[key]["nrmse"] for seed in range(seeds) if (key := key_of(name, n, what, seed)) in stored]
    return float(np.exp(np.mean(np.log(found)))) if found else float("nan")


def worth(error: float, runs: list[int], errors: list[float]) -> str:
    """Return how many runs without slopes have this error, over the first number of runs; between them by powers."""
    falling = np.minimum.accumulate(np.log(errors))
    if np.log(error) < falling[-1]:
        return f"> {runs[-1] // runs[0]}"
    found = np.interp(-np.log(error), -falling, np.log(runs))
    return f"{np.exp(found) / runs[0]:.1f}"


def show(stored: dict[str, Any], options: argparse.Namespace) -> None:
    """Print a table in Markdown."""
    print("| problem | inputs | n | n with slopes | n | 2n | 4n | 8n | n with slopes are worth, in n |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|--:|")
    for name in options.only:
        for n in RUNS:
            runs = [n * times for times in TIMES]
            error = mean_of(stored, name, n, "slopes", options.seeds)
            errors = [mean_of(stored, name, more, "values", options.seeds) for more in runs]
            if np.isnan([error, *errors]).any():
                continue
            cells = [name, PROBLEMS[name].n_inputs, n, *(f"{e:.5f}" for e in (error, *errors))]
            print("| " + " | ".join(map(str, cells)) + f" | {worth(error, runs, errors)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PROBLEMS, default=list(NAMES), metavar="PROBLEM")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--weights", action="store_true", help="compare weights of slopes instead")
    parser.add_argument("--table", action="store_true", help="run nothing, show what is stored")
    options = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    stored: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if options.weights:
        try_weights(stored)
        return
    if not options.table:
        run(options, stored)
    show(stored, options)


if __name__ == "__main__":
    main()
