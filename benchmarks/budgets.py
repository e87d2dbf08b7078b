"""What fewer steps a learner, larger boosting rates and fewer chains save and cost: the rule of ``plan.steps_of``.

    VPBOOST_DATA=path/to/data python benchmarks/budgets.py            # goes on if stopped
    python benchmarks/budgets.py --table                              # what is stored, in Markdown

Test parts are never read: rows are those of ``benchmarks/portfolio.py``, but up to 30,000 of them. The profile is the
one that the race chooses; then whole fits with it differ in one budget, and rows that no fit has seen judge them. Cost
is processor time, which other work on the machine hardly changes. Results: ``benchmarks/results/budgets.json``.
"""

import argparse
import json
import time
import warnings
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from portfolio import parts_of, score
from vpboost import VPBoostClassifier, VPBoostRegressor
from vpboost.estimators.plan import chains_of, rate_of, steps_of

RESULTS = Path(__file__).parent / "results" / "budgets.json"
MOST_ROWS = 30_000
PROBLEMS = (
    *("uci_kin8nm", "uci_power", "tab_california", "magic", "electricity", "higgs", "adult", "satimage", "penbased"),
    *("uci_wine_red", "uci_boston", "uci_concrete", "evans_airfoil", "mtr_wq", "mtr_jura"),
)
#: Factors on the steps of a learner, on the boosting rate, and the number of chains (None is the usual one).
BUDGETS: dict[str, tuple[float, float, int | None]] = {
    "usual": (1, 1, None),
    "half the steps": (0.5, 1, None),
    "three tenths of the steps": (0.3, 1, None),
    "one and a half times the rate": (1, 1.5, None),
    "half the steps, 1.5 times the rate": (0.5, 1.5, None),
    "half the steps, twice the rate": (0.5, 2, None),
    "half the steps, half the chains": (0.5, 1, 2),
    "half the steps, one chain": (0.5, 1, 1),
}
SEEDS = (0, 1)


def fitted(problem: str, seed: int, known: dict[str, Any]) -> tuple[dict[str, Any], dict[str, dict[str, float]]]:
    """Return the profile of a problem, and what comes of the budgets that are not known yet."""
    kind, parts = parts_of(problem, seed, MOST_ROWS)
    estimator = VPBoostRegressor if kind == "regression" else VPBoostClassifier
    validation = {"X_val": parts.val[0], "y_val": parts.val[1]}
    n, classes = len(parts.fit[0]), kind != "regression"
    profile = estimator(random_state=seed, n_estimators=1).fit(*parts.fit, **validation).profile_
    found = {}
    for name, (steps, rate, chains) in BUDGETS.items():
        if name in known:
            continue
        usual = chains_of(profile, parts.fit[0].shape, True, classes)
        n_chains = min(chains or usual, usual)
        given = profile.parameters() | {
            "max_steps": round(steps * steps_of(profile, n)),
            "learning_rate": min(rate * rate_of(profile, n, usual, classes), 1.0),
            "n_chains": n_chains,
        }
        began = time.process_time()
        model = estimator(**given, random_state=seed).fit(*parts.fit, **validation)
        facts = {
            "cost": time.process_time() - began,
            "judge": score(kind, model, *parts.judge),
            "stages": model.n_iter_,
        }
        found[name] = {key: float(f"{value:.5g}") for key, value in facts.items()}
    return {"profile": repr(profile)}, found


def markdown(results: dict[str, Any]) -> str:
    """Return scores and costs over those of the usual budget."""
    lines = ["| | " + " | ".join(list(BUDGETS)[1:]) + " |", "|---" * len(BUDGETS) + "|"]
    means = []
    for problem in dict.fromkeys(key.split(" | ")[0] for key in results):
        rows = [results[key] for key in results if key.split(" | ")[0] == problem and len(results[key]) > len(BUDGETS)]
        if not rows:
            continue
        logs = [
            [[np.log(row[name][what] / row["usual"][what]) for name in list(BUDGETS)[1:]] for what in ("judge", "cost")]
            for row in rows
        ]
        mean = np.exp(np.mean(logs, axis=0))
        means.append(mean)
        lines.append(f"| {problem} | " + " | ".join(f"{s:.3f} ({c:.2f})" for s, c in mean.T) + " |")
    if means:
        total = np.exp(np.mean(np.log(means), axis=0))
        lines.append("| geometric mean | " + " | ".join(f"{s:.3f} ({c:.2f})" for s, c in total.T) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="Scores against costs of budgets of training.")
    parser.add_argument("--only", nargs="+", default=list(PROBLEMS), choices=PROBLEMS)
    parser.add_argument("--seeds", type=int, default=len(SEEDS))
    parser.add_argument("--table", action="store_true", help="run nothing, show what is stored")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for seed, problem in product(range(options.seeds), options.only if not options.table else ()):
        key = f"{problem} | {seed}"
        if set(BUDGETS) <= set(results.get(key, {})):
            continue
        profile, found = fitted(problem, seed, results.get(key, {}))
        results[key] = {**profile, **results.get(key, {}), **found}
        print(key, found, flush=True)
        RESULTS.write_text(json.dumps(results, indent=0) + "\n")
    print(markdown(results))


if __name__ == "__main__":
    main()
