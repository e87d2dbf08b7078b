"""What fewer steps a learner, larger boosting rates and fewer chains save and cost: the rule of ``plan.steps_of``.

    VPBOOST_DATA=path/to/data python benchmarks/budgets.py            # goes on if stopped
    VPBOOST_DATA=path/to/data python benchmarks/budgets.py --trees    # the same for the profile with trees
    VPBOOST_DATA=path/to/data python benchmarks/budgets.py --rates 8  # its boosting rate on small tables, many seeds
    VPBOOST_DATA=path/to/data python benchmarks/budgets.py --lean     # less work for the profile with trees as it is
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
from unittest import mock

import numpy as np

from portfolio import parts_of, score
from vpboost import VPBoostClassifier, VPBoostRegressor
from vpboost.core import trees
from vpboost.estimators.plan import chains_of, rate_of, steps_of, width_of
from vpboost.estimators.portfolio import PORTFOLIO, of_many

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
#: The same of the profile with trees: factors on the steps, on the rate of learners without trees; other parameters.
TREE_BUDGETS: dict[str, tuple[float, float, dict[str, Any]]] = {
    "usual": (1, 1, {}),
    "half the steps": (0.5, 1, {}),
    "one and a half times the rate": (1, 1.5, {}),
    "twice the rate": (1, 2, {}),
    "half as wide": (1, 1, {"width": 0.5}),
    "batches of 2,048": (1, 1, {"batch_size": 2048}),
    "half the steps, half as wide": (0.5, 1, {"width": 0.5}),
    "half the patience": (1, 1, {"early_stopping_rounds": 10}),
    "one chain": (1, 1, {"n_chains": 1}),
    "one chain, half the rate": (1, 0.5, {"n_chains": 1}),
    "five levels": (1, 1, {"tree_depth": 5}),
    "1.5 times the rate, batches of 2,048": (1, 1.5, {"batch_size": 2048}),
    "1.5 times the rate, four chains": (1, 1.5, {"n_chains": 4}),
    "twice the rate, four chains": (1, 2, {"n_chains": 4}),
    "twice the rate, three chains": (1, 2, {"n_chains": 3}),
}
#: Small tables on which the profile with trees wins the race: more seeds, rates only (``--rates``).
SMALL, RATES = ("uci_wine_red", "uci_boston", "mtr_wq", "mtr_jura", "mtr_oes97"), (0.5, 0.7, 1.0, 1.5, 2.0)
TREE_PROBLEMS = (
    *("uci_power", "tab_california", "magic", "adult", "electricity", "higgs", "uci_wine_red", "uci_boston"),
    *("uci_concrete", "evans_airfoil", "mtr_wq", "mtr_jura"),
)
#: Other parameters for the profile with trees as fits use it (``--lean``); the width is a factor. Those in capitals are
#: constants of ``vpboost.core.trees``.
LEAN: dict[str, dict[str, Any]] = {
    "usual": {"width": 1.0},
    "half as wide": {"width": 0.5},
    "a quarter as wide": {"width": 0.25},
    "batches of 2,048": {"batch_size": 2048},
    "half as wide, batches of 2,048": {"width": 0.5, "batch_size": 2048},
    "half as wide, trees by half of the columns": {"width": 0.5, "COLUMNS": 0.5},
    "half as wide, trees by half of the rows": {"width": 0.5, "ROWS": 0.5},
    "half as wide, trees by 10,000 rows": {"width": 0.5, "MOST_ROWS": 10_000},
}
LEAN_PROBLEMS = (
    *("uci_power", "tab_california", "magic", "adult", "electricity", "higgs", "uci_kin8nm", "satimage"),
    *("uci_wine_red", "uci_boston", "uci_concrete", "mtr_wq", "mtr_jura"),
)
SEEDS = (0, 1)


def fitted_leanly(problem: str, seed: int, known: dict[str, Any]) -> tuple[dict[str, Any], dict[str, dict[str, float]]]:
    """Return what comes of leaner settings that are not known yet of the profile with trees."""
    kind, parts = parts_of(problem, seed, MOST_ROWS)
    n = len(parts.fit[0])
    profile = of_many(next(p for p in PORTFOLIO if p.tree_depth), n, kind != "regression")
    found = {}
    for name, others in LEAN.items():
        if name not in known:
            constants = {what: value for what, value in others.items() if what.isupper()}
            changed = {what: value for what, value in others.items() if what not in constants}
            if "width" in changed:
                changed["width"] = round(changed["width"] * width_of(n))
            with mock.patch.multiple(trees, **{"ROWS": trees.ROWS, **constants}):
                found[name] = judged(kind, parts, profile.parameters() | changed, seed)
    return {"profile": repr(profile)}, found


def fitted_with_trees(
    problem: str, seed: int, known: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, dict[str, float]]]:
    """Return what comes of the budgets that are not known yet of the profile with trees."""
    kind, parts = parts_of(problem, seed, MOST_ROWS)
    profile, n = next(p for p in PORTFOLIO if p.tree_depth), len(parts.fit[0])
    usual_rate = rate_of(
        profile._replace(tree_depth=0), n, chains_of(profile, parts.fit[0].shape, True), kind != "regression"
    )
    found = {}
    for name, (steps, rate, others) in TREE_BUDGETS.items():
        if name in known:
            continue
        usual = {"max_steps": round(steps * steps_of(profile, n)), "learning_rate": rate * usual_rate}
        given = profile.parameters() | usual | others
        if "width" in others:
            given["width"] = round(others["width"] * width_of(n))
        found[name] = judged(kind, parts, given, seed)
    return {"profile": repr(profile)}, found


def rates(n_seeds: int) -> str:
    """Return errors of small tables at other rates over those at the usual one, with their standard errors."""
    profile = next(p for p in PORTFOLIO if p.tree_depth)
    lines = ["| times the rate | " + " | ".join(map(str, RATES)) + " |", "|---" * (len(RATES) + 1) + "|"]
    for problem in SMALL:
        logs = []
        for seed in range(n_seeds):
            kind, parts = parts_of(problem, seed, MOST_ROWS)
            usual = rate_of(profile, len(parts.fit[0]), 2)
            given = [profile.parameters() | {"learning_rate": usual * factor} for factor in RATES]
            scores = np.log([judged(kind, parts, one, seed)["judge"] for one in given])
            logs.append(scores - scores[RATES.index(1.0)])
        mean, error = np.exp(np.mean(logs, axis=0)), np.std(logs, axis=0) / np.sqrt(n_seeds)
        lines.append(
            f"| {problem} | " + " | ".join(f"{m:.4f} ± {e:.4f}" for m, e in zip(mean, error, strict=True)) + " |"
        )
        print(lines[-1], flush=True)
    return "\n".join(lines)


def judged(kind: str, parts: Any, given: dict[str, Any], seed: int) -> dict[str, float]:
    """Return cost and score of a fit with these parameters."""
    estimator = VPBoostRegressor if kind == "regression" else VPBoostClassifier
    began = time.process_time()
    model = estimator(**given, random_state=seed).fit(*parts.fit, X_val=parts.val[0], y_val=parts.val[1])
    facts = {"cost": time.process_time() - began, "judge": score(kind, model, *parts.judge), "stages": model.n_iter_}
    return {key: float(f"{value:.5g}") for key, value in facts.items()}


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
        found[name] = judged(kind, parts, given, seed)
    return {"profile": repr(profile)}, found


def markdown(results: dict[str, Any], names: list[str], ending: str) -> str:
    """Return scores and costs over those of the usual budget."""
    lines = ["| | " + " | ".join(names[1:]) + " |", "|---" * len(names) + "|"]
    means = []
    of_kind = [key for key in results if " | ".join(key.split(" | ")[2:]) == ending and len(results[key]) > len(names)]
    for problem in dict.fromkeys(key.split(" | ")[0] for key in of_kind):
        rows = [results[key] for key in of_kind if key.split(" | ")[0] == problem]
        logs = [
            [[np.log(row[name][what] / row["usual"][what]) for name in names[1:]] for what in ("judge", "cost")]
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
    parser.add_argument("--only", nargs="+", choices=PROBLEMS)
    parser.add_argument("--trees", action="store_true", help="budgets of the profile with trees")
    parser.add_argument("--lean", action="store_true", help="less work for the profile with trees as it is")
    parser.add_argument("--seeds", type=int, default=len(SEEDS))
    parser.add_argument("--rates", type=int, metavar="SEEDS", help="rates of small tables with trees, of so many seeds")
    parser.add_argument("--table", action="store_true", help="run nothing, show what is stored")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.rates:
        print(rates(options.rates))
        return
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    kind: tuple[Any, Any, Any, str] = BUDGETS, PROBLEMS, fitted, ""
    if options.trees:
        kind = TREE_BUDGETS, TREE_PROBLEMS, fitted_with_trees, "trees"
    if options.lean:
        kind = LEAN, LEAN_PROBLEMS, fitted_leanly, "lean"
    budgets, problems, fit, ending = kind
    for seed, problem in product(range(options.seeds), () if options.table else options.only or problems):
        key = " | ".join([problem, str(seed), *([ending] if ending else [])])
        if set(budgets) <= set(results.get(key, {})):
            continue
        profile, found = fit(problem, seed, results.get(key, {}))
        results[key] = {**profile, **results.get(key, {}), **found}
        print(key, found, flush=True)
        RESULTS.write_text(json.dumps(results, indent=0) + "\n")
    print(markdown(results, list(budgets), ending))


if __name__ == "__main__":
    main()
