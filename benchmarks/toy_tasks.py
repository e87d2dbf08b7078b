"""The paper's three 2D tasks over several seeds, ``vp`` against ``gd`` with the same steps.

Run ``python benchmarks/toy_tasks.py`` (about twelve minutes). It prints a table and writes
``benchmarks/results/toy_tasks.json``, from which docs/benchmarks.md is quoted.
"""

import argparse
import json
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from vpboost.cli.demo import TASKS, Run, run

RESULTS = Path(__file__).parent / "results" / "toy_tasks.json"
#: Goals for the mean test loss of ``vp``: mean squared error, binary and multiclass cross-entropy.
GOALS = {"task1": 1.5e-4, "task2": 0.02, "task3": 0.06}


def summarise(runs: list[Run]) -> dict:
    losses = [r.test_loss for r in runs]
    return {
        "test_loss_mean": float(np.mean(losses)),
        "test_loss_std": float(np.std(losses)),
        "test_losses": losses,
        "score_mean": float(np.mean([r.score for r in runs])),
        "seconds_median": float(np.median([r.seconds for r in runs])),
        "parameters": runs[0].fit.ensemble.n_parameters,
        "learners_rejected": sum(not record.accepted for r in runs for record in r.fit.history),
        "extra_solves": sum(record.solves - 1 for r in runs for record in r.fit.history),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5, help="how many seeds (default: 5)")
    options = parser.parse_args()
    table = Table(title=f"2D tasks, mean over {options.seeds} seeds")
    for heading in ("task", "method", "test loss", "± std", "R² / accuracy", "rejected", "seconds", "goal"):
        table.add_column(heading, justify="left" if heading in ("task", "method") else "right")
    results: dict[str, dict] = {}
    for name in TASKS:
        for method in ("vp", "gd"):
            found = summarise([run(name, method, seed) for seed in range(options.seeds)])
            results[f"{name} {method}"] = found
            goal = f"{GOALS[name]:g} {'met' if found['test_loss_mean'] <= GOALS[name] else 'MISSED'}"
            table.add_row(
                name,
                method,
                f"{found['test_loss_mean']:.3g}",
                f"{found['test_loss_std']:.1g}",
                f"{found['score_mean']:.4f}",
                str(found["learners_rejected"]),
                f"{found['seconds_median']:.1f}",
                goal if method == "vp" else "",
            )
        ratio = results[f"{name} gd"]["test_loss_mean"] / results[f"{name} vp"]["test_loss_mean"]
        results[f"{name} gd over vp"] = {"test_loss_ratio": ratio}
        table.add_row(name, "gd / vp", f"{ratio:.2f}", "", "", "", "", "4 (task 1)" if name == "task1" else "")
    Console().print(table)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
