"""Other settings of the profile with trees, on few rows: the rule of ``portfolio.OF_REGRESSORS``.

    VPBOOST_DATA=path/to/data python benchmarks/tree_settings.py                       # deeper trees, ten tables
    VPBOOST_DATA=path/to/data python benchmarks/tree_settings.py --given '{"max_steps": 5}' --seeds 2 --rows 1000

Test parts are never read: rows are samples of those that ``benchmarks/portfolio.py`` learns from, or of the first half
of ``benchmarks/other_tables.py`` (named "other ..."), by which rules may be looked into. What is printed are errors
over those with the usual settings (three chains of six levels), means over seeds and their standard errors, and
processor time over that of the usual settings.
"""

import argparse
import json
import warnings
from typing import Any

import numpy as np

import other_tables
from budgets import judged
from portfolio import Parts, parts_of
from vpboost.estimators.portfolio import PORTFOLIO

PROBLEMS = (
    *("uci_wine_red", "uci_power", "tab_california", "other chicago", "other nox", "other slid", "other wage"),
    *("other earnings", "other deliveries", "other ames"),
)
USUAL: dict[str, Any] = {"tree_depth": 6, "reg_lambda": 1e-2, "n_chains": 3}
DEEPER: dict[str, Any] = {"tree_depth": 8, "reg_lambda": 3e-2}
#: Rows that are learnt from, validate and judge, of a sample of all.
SHARES = {"train": 0.65, "val": 0.15}


def rows_of(problem: str, seed: int, n_rows: int) -> tuple[str, Parts]:
    """Return the kind of a problem and its rows."""
    if not problem.startswith("other "):
        return parts_of(problem, seed, n_rows)
    kind, parts = other_tables.load(problem.removeprefix("other "), seed)
    rng = np.random.default_rng(seed)
    for part, share in SHARES.items():
        X, y = parts[part]
        few = rng.permutation(len(X))[: round(share * n_rows)]
        parts[part] = X.iloc[few], y[few]
    return kind, Parts(parts["train"], parts["val"], parts["test"])


def compared(problem: str, n_seeds: int, n_rows: int, given: dict[str, Any]) -> np.ndarray:
    """Return logarithms of the ratios of errors and of costs, seed by seed."""
    profile = next(p for p in PORTFOLIO if p.tree_depth).parameters() | USUAL
    ratios = []
    for seed in range(n_seeds):
        kind, parts = rows_of(problem, seed, n_rows)
        usual, other = (judged(kind, parts, one, seed) for one in (profile, profile | given))
        ratios.append([np.log(other[what] / usual[what]) for what in ("judge", "cost")])
    return np.array(ratios)


def main() -> None:
    parser = argparse.ArgumentParser(description="Other settings of the profile with trees, on few rows.")
    parser.add_argument("--given", type=json.loads, default=DEEPER, help="parameters to compare with the usual ones")
    parser.add_argument("--only", nargs="+", default=PROBLEMS)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--rows", type=int, default=2000)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"| {options.given} | error over the usual one's | ± | cost |\n|---|---|---|---|")
    means = []
    for problem in options.only:
        ratios = compared(problem, options.seeds, options.rows, options.given)
        means.append(ratios.mean(axis=0))
        error, cost = np.exp(means[-1])
        spread = ratios[:, 0].std(ddof=1) / np.sqrt(len(ratios))
        print(f"| {problem} | {error:.4f} | {spread:.4f} | {cost:.2f} |", flush=True)
    (error, cost), spread = np.exp(np.mean(means, axis=0)), np.std(means, axis=0)[0] / np.sqrt(len(means))
    print(f"| geometric mean | {error:.4f} | {spread:.4f} | {cost:.2f} |")


if __name__ == "__main__":
    main()
