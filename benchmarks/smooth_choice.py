"""Profiles for responses without noise, or others: whether the validation scores of whole fits tell which to take.

    VPBOOST_DATA=path/to/data python benchmarks/smooth_choice.py         # half an hour; goes on if stopped
    python benchmarks/smooth_choice.py --table                           # what is stored already

Each problem is fitted twice with default settings but for the choice, which is forced. Stored are the errors on rows
that neither fit has seen, and the best validation score of each first chain. The rule takes the smooth profile where
its score is below so many times that of the other; its regret is the logarithm of the error over the better of both.
Simulations have samples of no benchmark; of tables, the test part is not read. Results are stored in
``benchmarks/results/smooth_choice.json``.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from portfolio import score
from problems import PROBLEMS, sample
from tables import data_folder, load
from vpboost import VPBoostRegressor
from vpboost.estimators import choosing

RESULTS = Path(__file__).parent / "results" / "smooth_choice.json"
TABLES = (
    "uci_yacht", "uci_energy", "mtr_enb", "cdr", "evans_airfoil", "uci_concrete", "uci_boston", "mtr_jura",
)  # fmt: skip
SEEDS = {"simulations": (5, 6), "tables": (7, 8)}
#: The leads to compare; the one in use where all rows are learnt from later is among them.
LEADS = (0.6, 0.75, 0.85, 0.9, 1.0, 1.2, 1.5, 2.0)


def cases() -> Iterator[tuple[str, int, tuple]]:
    """Yield the name, the seed, and the rows to fit and to judge by."""
    for seed in SEEDS["simulations"]:
        for name, problem in PROBLEMS.items():
            runs = sample(problem, 300, seed, 0.0)
            yield name, seed, (runs.x_train, runs.y_train, runs.x_test, runs.y_test)
    for name in TABLES:
        for seed in SEEDS["tables"]:
            parts = load(name, data_folder(), seed).parts
            X, y = (np.concatenate([parts[part][i] for part in ("train", "val")]) for i in (0, 1))
            fit, judge = np.split(np.random.default_rng(seed).permutation(len(X)), [round(0.8 * len(X))])
            yield name, seed, (X[fit], y[fit], X[judge], y[judge])


def run(stored: dict[str, Any]) -> None:
    """Run what is not stored yet."""
    choosing.CLEARLY, choosing.LITTLE_NOISE, choosing.WORTH_TRYING = 0.0, np.inf, (np.inf, np.inf)
    for name, seed, (X, y, X_judge, y_judge) in cases():
        key = f"{name} | {seed}"
        if key in stored:
            continue
        found = {}
        for choice, lead in (("other", 0.0), ("smooth", np.inf)):
            choosing.SMOOTH_LEAD = (lead, lead)
            model = VPBoostRegressor(random_state=seed).fit(X, y)
            error = score("regression", model, X_judge, y_judge)
            found[choice] = {"error": error, "score": float(np.nanmin(model.evals_result_["validation"]))}
        stored[key] = {choice: {k: float(f"{v:.5g}") for k, v in one.items()} for choice, one in found.items()}
        print(key, stored[key], flush=True)
        RESULTS.write_text(json.dumps(stored, indent=0) + "\n")


def show(stored: dict[str, Any]) -> None:
    """Print the regret of each lead."""
    print("| lead | mean regret | worst | where |\n|---|---|---|---|")
    for lead in (0.0, *LEADS, np.inf):
        regrets = {}
        for key, one in stored.items():
            taken = "smooth" if one["smooth"]["score"] < lead * one["other"]["score"] else "other"
            regrets[key] = np.log(one[taken]["error"] / min(one[choice]["error"] for choice in one))
        worst = max(regrets, key=regrets.__getitem__)
        print(f"| {lead} | {np.mean([*regrets.values()]):.4f} | {regrets[worst]:.2f} | {worst} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", action="store_true", help="run nothing, show what is stored")
    options = parser.parse_args()
    stored: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if not options.table:
        run(stored)
    show(stored)


if __name__ == "__main__":
    main()
