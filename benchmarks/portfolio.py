"""The portfolio of profiles, learned by protocol: many profiles × tables and simulations × seeds, no test part touched.

    VPBOOST_DATA=path/to/data python benchmarks/portfolio.py run      # an hour or two on two cores; goes on if stopped
    python benchmarks/portfolio.py choose                             # which profiles together lose least

Of every table, the test part of ``benchmarks/tables.py`` is set aside and never read. The rest (4,000 rows at the most)
is split by seed into rows to fit, rows that early stopping and the race see, and rows that judge. Of every profile are
stored its score on the judging rows after a whole fit, and its validation score in a race. ``choose`` replays races
between the members of a portfolio and grows it greedily; what a problem's own scores taught is left out when the
problem is judged: one table, or one family of simulations, at a time.
"""

import argparse
import json
import os
import time
import warnings
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.metrics import log_loss

from problems import PROBLEMS, sample
from tables import TABLES, UNSEEN, data_folder, load
from vpboost import VPBoostClassifier, VPBoostRegressor
from vpboost.estimators.portfolio import Profile

RESULTS = Path(__file__).parent / "results" / "portfolio.json"
MORE_TABLES = ("adult", "covertype")
SEEDS = (0, 1)
MOST_ROWS = 4000
RACE = {"n_estimators": 10, "learning_rate": 0.3}

SMOOTH = Profile("plain", 0.8, 1.0, "silu", 0.4, 200, 0.1, 1e-10, 0.0, "float64", True, 20)
CANDIDATES = {
    **{"plain": Profile("plain", 0.8, 1.0), "plain half": Profile("plain", 0.7, 0.5)},
    **{"quantile": Profile("quantile", 0.8, 1.0), "quantile half": Profile("quantile", 0.7, 0.5)},
    "quantile few": Profile("quantile", 0.0, 0.3),
    **{"spline": Profile("spline", 0.7, 1.0), "spline half": Profile("spline", 0.7, 0.5)},
    **{"spline fresh": Profile("spline", 0.0, 1.0), "spline fresh half": Profile("spline", 0.0, 0.5)},
    "plain tame": Profile("plain", 0.8, 1.0, reg_theta=1e-4),
    "spline half tame": Profile("spline", 0.7, 0.5, reg_theta=1e-4),
    "spline half short": Profile("spline", 0.7, 0.5, max_steps=20),
    **{"plain silu": Profile("plain", 0.8, 1.0, "silu"), "spline half silu": Profile("spline", 0.7, 0.5, "silu")},
    **{"smooth": SMOOTH, "smooth tanh": SMOOTH._replace(activation="tanh", weight_scale=1.0)},
    "smooth tanh short": SMOOTH._replace(activation="tanh", weight_scale=1.0, max_steps=50),
}
FOR_SIMULATIONS = [name for name in CANDIDATES if name in ("plain", "plain silu") or "smooth" in name]


class Parts(NamedTuple):
    """Rows to fit, rows that early stopping and the race see, and rows that judge."""

    fit: tuple[np.ndarray, np.ndarray]
    val: tuple[np.ndarray, np.ndarray]
    judge: tuple[np.ndarray, np.ndarray]


def parts_of(problem: str, seed: int) -> tuple[str, Parts]:
    """Return the kind of a problem and its rows; "friedman 300 0.01" is a simulation, its runs and noise."""
    name, *facts = problem.split()
    if name in PROBLEMS:
        runs = sample(PROBLEMS[name], int(facts[0]), 100 + seed, float(facts[1]))  # seeds of no benchmark
        order = np.random.default_rng(seed).permutation(len(runs.x_train))
        val, fit = np.split(order, [round(0.15 * len(order))])
        taken = [(runs.x_train[i], runs.y_train[i]) for i in (fit, val)]
        return "regression", Parts(taken[0], taken[1], (runs.x_test, runs.y_test))
    split = load(name, data_folder())
    X, y = (np.concatenate([split.parts[part][i] for part in ("train", "val")]) for i in (0, 1))
    order = np.random.default_rng(seed).permutation(len(X))[: MOST_ROWS + len(X) // 50]
    fit, val, judge = np.split(order, [round(0.65 * len(order)), round(0.8 * len(order))])
    if split.kind != "regression":  # every class must be known
        rare = np.setdiff1d(y[order], y[fit])
        fit, val, judge = fit, val[~np.isin(y[val], rare)], judge[~np.isin(y[judge], rare)]
    return split.kind, Parts(*((X[i], y[i]) for i in (fit, val, judge)))


def options_of(profile: Profile, n: int) -> dict[str, Any]:
    """Return the parameters of an estimator that fix a profile."""
    given = {name: value for name, value in profile._asdict().items() if name != "rounds"}
    given["max_steps"] = profile.max_steps or (30 if n < 2000 else 50)  # nothing may be left to a race
    given["learning_rate"] = profile.learning_rate or (0.05 if n < 2000 else 0.1)
    return {**given, "activation": profile.activation or "tanh", "early_stopping_rounds": profile.rounds}


def score(kind: str, model: Any, X: np.ndarray, y: np.ndarray) -> float:
    """Return the log-loss, or the root mean square error over the spread of each output."""
    if kind != "regression":
        return float(log_loss(y, model.predict_proba(X), labels=model.classes_))
    truth, found = (array.reshape(len(X), -1) for array in (y, model.predict(X)))
    spread = np.maximum(truth.std(axis=0), 1e-12)
    return float(np.mean(np.sqrt(np.mean((found - truth) ** 2, axis=0)) / spread))


def try_profile(case: tuple[str, int, str]) -> tuple[str, dict[str, float]]:
    """Fit a profile to a problem, whole and as in a race."""
    warnings.simplefilter("ignore")
    problem, seed, name = case
    kind, parts = parts_of(problem, seed)
    options = options_of(CANDIDATES[name], len(parts.fit[0]))
    estimator = VPBoostRegressor if kind == "regression" else VPBoostClassifier
    validation = {"X_val": parts.val[0], "y_val": parts.val[1]}
    began = time.perf_counter()
    model = estimator(**options, random_state=seed).fit(*parts.fit, **validation)
    seconds = time.perf_counter() - began
    raced = min(model.race_.values(), default=None)
    if raced is None:
        quick = {**options, **RACE, "early_stopping_rounds": None}
        raced = estimator(**quick, random_state=seed).fit(*parts.fit, **validation)
        raced = min(raced.evals_result_["validation"])
    facts = {"judge": score(kind, model, *parts.judge), "validation": model.best_score_, "race": raced}
    facts |= {"stages": model.n_iter_, "seconds": round(seconds, 2)}
    return " | ".join(map(str, case)), {key: float(f"{value:.6g}") for key, value in facts.items()}


def cases(problems: Iterable[str]) -> Iterator[tuple[str, int, str]]:
    """Yield all that is to be tried, seeds outermost: a study that is cut short has seen every problem."""
    for seed, problem in product(SEEDS, problems):
        simulated = problem.split()[0] in PROBLEMS
        wide = not simulated and load(problem, data_folder()).parts["train"][0].shape[1] > 64
        few_known = problem in (*TABLES, *UNSEEN, *MORE_TABLES) and load(problem, data_folder()).kind != "regression"
        for name, profile in CANDIDATES.items():
            if simulated and name not in FOR_SIMULATIONS:
                continue
            if (wide and profile.encoding == "spline") or (few_known and profile.dtype == "float64"):
                continue
            yield problem, seed, name


def run(options: argparse.Namespace) -> None:
    """Try what is not stored yet."""
    stored = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    todo = [case for case in cases(options.problems) if " | ".join(map(str, case)) not in stored]
    print(f"{len(stored)} stored, {len(todo)} to do", flush=True)
    with ProcessPoolExecutor(options.workers, get_context("spawn")) as pool:
        for key, facts in pool.map(try_profile, todo):
            stored[key] = facts
            print(key, facts, flush=True)
            RESULTS.write_text(json.dumps(stored, indent=0) + "\n")


# --- the choice -------------------------------------------------------------------------------------------------------


class Tried(NamedTuple):
    """All scores of one problem with one seed, by profile."""

    problem: str
    group: str  #: what is left out together
    judge: dict[str, float]
    race: dict[str, float]
    seconds: dict[str, float]


def tried() -> list[Tried]:
    """Return what is stored, problem by problem."""
    found: dict[tuple[str, str], dict[str, dict[str, float]]] = {}
    for key, facts in json.loads(RESULTS.read_text()).items():
        problem, seed, name = key.split(" | ")
        found.setdefault((problem, seed), {})[name] = facts
    return [
        Tried(
            f"{problem} ({seed})",
            PROBLEMS[problem.split()[0]].family if problem.split()[0] in PROBLEMS else problem,
            *({name: facts[what] for name, facts in by_name.items()} for what in ("judge", "race", "seconds")),
        )
        for (problem, seed), by_name in found.items()
    ]


def regret(one: Tried, members: Iterable[str]) -> float:
    """Return by how much, as a logarithm, the winner of a race is worse than the best profile of all."""
    racing = [name for name in members if name in one.race]
    if not racing:
        return 1.0
    winner = min(racing, key=lambda name: one.race[name])
    return float(np.clip(np.log(one.judge[winner] / min(one.judge.values())), 0, 3))


def grow(problems: list[Tried], size: int) -> list[str]:
    """Return a portfolio: each time the profile that lowers the mean regret most."""
    members: list[str] = []
    while len(members) < size:
        rest = [name for name in CANDIDATES if name not in members]
        members.append(min(rest, key=lambda name: np.mean([regret(one, [*members, name]) for one in problems])))
    return members


def choose(options: argparse.Namespace) -> None:
    """Print portfolios by size with their regret on all problems, and on problems that were left out."""
    problems, console = tried(), Console()
    groups = sorted({one.group for one in problems})
    table = Table(title="Mean regret (logarithm of the score over that of the best profile)")
    for heading in ("size", "added", "all problems", "left out", "one race less lucky: best of the portfolio"):
        table.add_column(heading)
    whole = grow(problems, options.size)
    for size in range(1, options.size + 1):
        aside = []
        for group in groups:
            members = grow([one for one in problems if one.group != group], size)
            aside += [regret(one, members) for one in problems if one.group == group]
        known = np.mean([regret(one, whole[:size]) for one in problems])
        oracle = [
            np.log(min(one.judge[n] for n in whole[:size] if n in one.judge) / min(one.judge.values()))
            for one in problems
            if any(n in one.judge for n in whole[:size])
        ]
        table.add_row(str(size), whole[size - 1], f"{known:.4f}", f"{np.mean(aside):.4f}", f"{np.mean(oracle):.4f}")
    console.print(table)
    details = Table(title="Score of each profile over the best, and the winner of the race")
    for heading in ("problem", "best", "winner", "regret", *whole):
        details.add_column(heading)
    for one in problems:
        best = min(one.judge, key=lambda name: one.judge[name])
        winner = min((n for n in whole if n in one.race), key=lambda name: one.race[name])
        ratios = [f"{one.judge[n] / one.judge[best]:.3f}" if n in one.judge else "–" for n in whole]
        details.add_row(one.problem, f"{best} {one.judge[best]:.4g}", winner, f"{regret(one, whole):.3f}", *ratios)
    console.print(details)


def main() -> None:
    known = [*TABLES, *UNSEEN, *MORE_TABLES]
    known += [f"{name} {n} {noise}" for n, noise in ((300, 0.0), (300, 0.01), (1000, 0.0)) for name in PROBLEMS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("run", "choose"))
    parser.add_argument("--problems", nargs="+", default=known, metavar="PROBLEM")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--size", type=int, default=8)
    options = parser.parse_args()
    {"run": run, "choose": choose}[options.action](options)


if __name__ == "__main__":
    main()
