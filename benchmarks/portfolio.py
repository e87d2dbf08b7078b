"""The portfolio of profiles, learned by protocol: many profiles × tables and simulations × seeds, no test part touched.

    VPBOOST_DATA=path/to/data python benchmarks/portfolio.py run      # an hour or two on two cores; goes on if stopped
    python benchmarks/portfolio.py choose                             # which profiles together lose least
    python benchmarks/portfolio.py estimate                           # scores of tables left out, and test scores
    VPBOOST_DATA=path/to/data python benchmarks/portfolio.py small    # what tables too small for a race should get
    VPBOOST_DATA=path/to/data python benchmarks/portfolio.py chains   # what the mean of several chains gains
    VPBOOST_DATA=path/to/data python benchmarks/portfolio.py large    # rough profiles on more rows than the study has
    VPBOOST_DATA=path/to/data python benchmarks/portfolio.py races    # what shorter races on fewer rows choose

Of every table, the test part of ``benchmarks/tables.py`` is set aside and never read. The rest (4,000 rows at the most)
is split by seed into rows to fit, rows that early stopping and the race see, and rows that judge. Of every profile are
stored its score on the judging rows after a whole fit, and its validation score in a race. ``choose`` replays races
between the members of a portfolio and grows it greedily; what a problem's own scores taught is left out when the
problem is judged: one table, or one family of simulations, at a time. Regret is the logarithm of the winner's score
over that of the best profile of all.
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
from vpboost.estimators.portfolio import PORTFOLIO, SLOW_START, TREE_START, Profile

RESULTS = Path(__file__).parent / "results" / "portfolio.json"
TEST_SCORES = RESULTS.with_name("tables.json")
MORE_TABLES = ("adult", "covertype")
OF_CLASSES = ("magic", "electricity", "higgs", "satimage", "penbased", *MORE_TABLES)
#: Problems of which small samples are taken.
SMALL_SAMPLES = (
    *("uci_concrete", "uci_energy", "uci_boston", "uci_kin8nm", "evans_airfoil", "uci_yacht", "mtr_jura", "mtr_wq"),
    *("uci_wine_red", "tab_california", "friedman 300 0.0", "circuit 300 0.01", "reactor 300 0.0"),
)
#: Tables of which chains are quick.
FOR_CHAINS = (
    *("uci_boston", "uci_wine_red", "mtr_jura", "mtr_oes97", "uci_concrete", "evans_airfoil", "uci_yacht"),
    *("uci_energy", "mtr_enb", "mtr_wq", "satimage", "tab_california", "magic", "uci_power", "higgs"),
)
#: Rough regression tables, large and small.
ROUGH = ("uci_power", "tab_california", "uci_wine_red", "uci_concrete")
KNOWN = [*TABLES, *UNSEEN, *MORE_TABLES]
KNOWN += [f"{name} {n} {noise}" for n, noise in ((300, 0.0), (300, 0.01), (1000, 0.0)) for name in PROBLEMS]
SEEDS = (0, 1)
MOST_ROWS = 4000
BEFORE = ["plain", "quantile", "quantile few", "spline", "spline fresh"]
RACE = {"n_estimators": 10, "learning_rate": 0.3}

SMOOTH = Profile("plain", 0.8, 1.0, "silu", 0.4, 200, 0.1, 1e-10, 0.0, "float64", True, 20)
TREES = Profile("quantile", 0.7, 0.5, max_steps=10, rounds=20, n_chains=2, tree_depth=6)
CANDIDATES = {
    **{"plain": Profile("plain", 0.8, 1.0), "plain half": Profile("plain", 0.7, 0.5)},
    **{"quantile": Profile("quantile", 0.8, 1.0), "quantile half": Profile("quantile", 0.7, 0.5)},
    "quantile few": Profile("quantile", 0.0, 0.3),
    **{"spline": Profile("spline", 0.7, 1.0), "spline half": Profile("spline", 0.7, 0.5)},
    **{"spline fresh": Profile("spline", 0.0, 1.0), "spline fresh half": Profile("spline", 0.0, 0.5)},
    **{"fine": Profile("fine", 0.3, 1.0), "fine fresh": Profile("fine", 0.0, 1.0)},
    "plain tame": Profile("plain", 0.8, 1.0, reg_theta=1e-4),
    "spline half tame": Profile("spline", 0.7, 0.5, reg_theta=1e-4),
    "spline half short": Profile("spline", 0.7, 0.5, max_steps=20),
    **{"plain silu": Profile("plain", 0.8, 1.0, "silu"), "spline half silu": Profile("spline", 0.7, 0.5, "silu")},
    **{"trees": TREES, "plain trees": TREES._replace(encoding="plain"), "trees long": TREES._replace(max_steps=30)},
    **{"smooth": SMOOTH, "smooth tanh": SMOOTH._replace(activation="tanh", weight_scale=1.0)},
    "smooth tanh short": SMOOTH._replace(activation="tanh", weight_scale=1.0, max_steps=50),
}
FOR_SIMULATIONS = [name for name in CANDIDATES if name in ("plain", "plain silu") or "smooth" in name]


class Parts(NamedTuple):
    """Rows to fit, rows that early stopping and the race see, and rows that judge."""

    fit: tuple[np.ndarray, np.ndarray]
    val: tuple[np.ndarray, np.ndarray]
    judge: tuple[np.ndarray, np.ndarray]


def parts_of(problem: str, seed: int, most_rows: int = MOST_ROWS) -> tuple[str, Parts]:
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
    order = np.random.default_rng(seed).permutation(len(X))[: most_rows + len(X) // 50]
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
    given["n_chains"] = 1
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
            if few_known and profile.tree_depth and load(problem, data_folder()).kind == "multiclass":
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
    classes: bool  #: whether it is one of classification
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
            problem in OF_CLASSES,
            *({name: facts[what] for name, facts in by_name.items()} for what in ("judge", "race", "seconds")),
        )
        for (problem, seed), by_name in found.items()
    ]


def winner_of(one: Tried, members: Iterable[str]) -> str | None:
    """Return who wins a race between some profiles, by the rule of the library; None if nobody runs."""
    racing = {name: one.race[name] for name in members if name in one.race}
    slow, trees = SLOW_START[one.classes], SLOW_START[1] if one.classes else TREE_START[0]

    def start(name: str) -> float:
        return 0.0 if (CANDIDATES[name].max_features or 1) == 1 else trees if CANDIDATES[name].tree_depth else slow

    return min(racing, key=lambda name: racing[name] * (1 - start(name)), default=None)


def regret(one: Tried, members: Iterable[str]) -> float:
    """Return by how much, as a logarithm, the winner of a race is worse than the best profile of all."""
    winner = winner_of(one, members)
    return 1.0 if winner is None else float(np.log(one.judge[winner] / min(one.judge.values())))


def grow(problems: list[Tried], size: int) -> list[str]:
    """Return a portfolio: each time the profile that lowers the mean regret most."""
    members: list[str] = []
    while len(members) < size:
        rest = [name for name in CANDIDATES if name not in members]
        members.append(min(rest, key=lambda name: np.mean([regret(one, [*members, name]) for one in problems])))
    return members


def choose(options: argparse.Namespace) -> None:
    """Print what portfolios lose: grown greedily, with and without the problem that is judged, and those in use."""
    problems = tried()
    whole, table = grow(problems, options.size), Table(title=f"Mean regret over {len(problems)} problems")
    for heading in ("portfolio", "all problems", "problem left out", "had the race been always right"):
        table.add_column(heading)
    for size in range(1, options.size + 1):
        aside = []
        for group in {one.group for one in problems}:
            members = grow([one for one in problems if one.group != group], size)
            aside += [regret(one, members) for one in problems if one.group == group]
        table.add_row(f"{size}: + {whole[size - 1]}", *losses(problems, whole[:size], f"{np.mean(aside):.3f}"))
    # the fine encoding is for more rows than the study has
    in_use = [name for name, profile in CANDIDATES.items() if profile in PORTFOLIO and profile.encoding != "fine"]
    table.add_row("before: " + ", ".join(BEFORE), *losses(problems, BEFORE, "–"))
    table.add_row("in use: " + ", ".join(in_use), *losses(problems, in_use, "–"))
    Console().print(table)
    for one in problems:
        ratios = {name: round(one.judge[name] / min(one.judge.values()), 3) for name in in_use if name in one.judge}
        print(f"{one.problem}: best {min(one.judge.values()):.4g}, winner {winner_of(one, in_use)}, {ratios}")


def losses(problems: list[Tried], members: list[str], left_out: str) -> list[str]:
    """Return a row of the table."""
    known = [regret(one, members) for one in problems]
    best = [min((one.judge[n] for n in members if n in one.judge), default=np.inf) for one in problems]
    right = [np.log(b / min(one.judge.values())) for b, one in zip(best, problems, strict=True) if np.isfinite(b)]
    return [f"{np.mean(known):.3f}", left_out, f"{np.mean(right):.3f}"]


def estimate(options: argparse.Namespace) -> None:
    """Print scores of tables by a portfolio that was grown without them, beside those of defaults on test parts."""
    problems, final = tried(), json.loads(TEST_SCORES.read_text())
    table = Table(title="Error over spread, or log-loss, by table")
    for heading in ("table", "left out, judging rows", "defaults, test part", "ratio"):
        table.add_column(heading)
    pairs = []
    for one in problems:
        name = one.problem.split()[0]
        if not final.get(name, {}).get("vpboost"):
            continue
        members = grow([other for other in problems if other.group != one.group], options.size)
        winner = winner_of(one, members)
        known = final[name]["vpboost"].values()
        test = np.mean([facts.get("log_loss", np.sqrt(max(1 - facts.get("r2", 1.0), 0.0))) for facts in known])
        pairs.append((one.judge[winner] if winner else np.nan, test))
        table.add_row(one.problem, *(f"{value:.4f}" for value in (*pairs[-1], pairs[-1][1] / pairs[-1][0])))
    logs = np.log(pairs)
    table.caption = (
        f"correlation of logarithms {np.corrcoef(logs.T)[0, 1]:.3f}, mean ratio {np.exp(np.diff(logs).mean()):.3f}"
    )
    Console().print(table)


def small(options: argparse.Namespace) -> None:
    """Print the mean regret of profiles on samples of 120 rows: too few for a race, and for early stopping."""
    known = ("plain", "plain half", "quantile half", "spline fresh")
    members = {"plain fresh": Profile("plain", 0.0, 1.0), **{name: CANDIDATES[name] for name in known}}
    names = [*members, "default"]
    found: list[list[float]] = []
    for problem, seed in product(SMALL_SAMPLES, SEEDS):
        kind, parts = parts_of(problem, seed)
        X, y = (array[:120] for array in parts.fit)
        scores = []
        for profile in members.values():
            settings = {**profile.parameters(), "early_stopping_rounds": None, "random_state": seed}
            scores.append(score(kind, VPBoostRegressor(**settings).fit(X, y), *parts.judge))
        scores.append(score(kind, VPBoostRegressor(random_state=seed).fit(X, y), *parts.judge))
        found.append(np.log(np.array(scores) / min(scores)).tolist())
        print(problem, seed, dict(zip(names, np.round(scores, 4).tolist(), strict=True)), flush=True)
    print("mean regret", dict(zip(names, np.mean(found, axis=0).round(3).tolist(), strict=True)))


def large(options: argparse.Namespace) -> None:
    """Print the scores of rough profiles, two chains each, on up to 20,000 rows."""
    names = ("quantile half", "spline fresh", "spline", "fine fresh", "fine")
    for problem, seed in product(options.problems if options.problems != KNOWN else ROUGH, SEEDS):
        kind, parts = parts_of(problem, seed, 20_000)
        scores = {}
        for name in names:
            settings = {**options_of(CANDIDATES[name], len(parts.fit[0])), "n_chains": 2, "random_state": seed}
            settings["learning_rate"] *= 2  # as where chains are averaged
            model = VPBoostRegressor(**settings).fit(*parts.fit, X_val=parts.val[0], y_val=parts.val[1])
            scores[name] = round(score(kind, model, *parts.judge), 4)
        print(problem, seed, len(parts.fit[0]), scores, flush=True)


def chains(options: argparse.Namespace) -> None:
    """Print the score of several chains, by boosting rate, over that of one chain at the usual rate."""
    ways, found = [(n, factor) for factor in (1, 2) for n in (1, 2, 4)], []
    for problem in options.problems if options.problems != KNOWN else FOR_CHAINS:
        scores = np.zeros((len(SEEDS), len(ways)))
        for seed in SEEDS:
            kind, parts = parts_of(problem, seed)
            estimator = VPBoostRegressor if kind == "regression" else VPBoostClassifier
            X, y = (np.concatenate([parts.fit[i], parts.val[i]]) for i in (0, 1))
            fixed: dict[str, Any] = {"validation_fraction": len(parts.val[0]) / len(X), "random_state": seed}
            profile = estimator(**fixed, n_estimators=1).fit(X, y).profile_._replace(n_chains=None)
            settings, rate = {**profile.parameters(), **fixed}, 0.05 if len(parts.fit[0]) < 2000 else 0.1
            for place, (n, factor) in enumerate(ways):
                model = estimator(**{**settings, "n_chains": n, "learning_rate": factor * rate}).fit(X, y)
                scores[seed, place] = score(kind, model, *parts.judge)
        found.append(np.log(scores / scores[:, :1].mean()).mean(axis=0))
        print(problem, dict(zip(ways, np.exp(found[-1]).round(3).tolist(), strict=True)), flush=True)
    print("geometric mean", dict(zip(ways, np.exp(np.mean(found, axis=0)).round(3).tolist(), strict=True)))


class Chosen(Exception):
    """Ends a fit when its profile is chosen."""


def races(options: argparse.Namespace) -> None:
    """Print what cheaper races choose: their mean regret among the profiles in use, and processor time."""
    from vpboost.estimators import base, choosing

    def end(self: Any, run: Any, *rest: Any) -> None:
        raise Chosen(run.plan.profile)

    for name, stub in (("_boost_chains", end), ("_smooth_choices", lambda *_: [])):
        setattr(base.BaseVPBoost, name, stub)
    names = {profile: name for name, profile in CANDIDATES.items() if profile in PORTFOLIO}
    ways = [(rows, stages) for rows in (60_000, 1500, 1000) for stages in (10, 8, 6)]
    found: dict[tuple[int, int], list[tuple[float, float]]] = {way: [] for way in ways}
    for one in tried():
        problem, seed = one.group, int(one.problem.split("(")[1][:-1])
        known = {name: one.judge[name] for name in names.values() if name in one.judge}
        if problem not in options.problems or len(known) < 4:
            continue
        kind, parts = parts_of(problem, seed)
        for way in ways:
            choosing.RACE_ROWS, choosing.PILOT_STAGES = ((way[0], 5000),) * 2, way[1]
            estimator = VPBoostRegressor if kind == "regression" else VPBoostClassifier
            began = time.process_time()
            try:
                estimator(random_state=seed).fit(*parts.fit, X_val=parts.val[0], y_val=parts.val[1])
            except Chosen as ended:
                chosen = names[ended.args[0]]
                if chosen in known:
                    regret = float(np.log(known[chosen] / min(known.values())))
                    found[way].append((regret, time.process_time() - began))
        print(problem, seed, {way: np.round(results[-1], 3).tolist() for way, results in found.items()}, flush=True)
    for way, results in found.items():
        print(way, "mean regret, seconds", np.mean(results, axis=0).round(4).tolist())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = {"run": run, "choose": choose, "estimate": estimate, "small": small, "chains": chains, "large": large}
    actions["races"] = races
    parser.add_argument("action", choices=tuple(actions))
    parser.add_argument("--problems", nargs="+", default=KNOWN, metavar="PROBLEM")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--size", type=int, default=8)
    options = parser.parse_args()
    actions[options.action](options)


if __name__ == "__main__":
    main()
