"""Error bars on the UCI tables: likelihood, CRPS and conformal intervals of VPBoost and its peers.

    VPBOOST_DATA=path/to/data python benchmarks/uncertainty.py        # hours; goes on if stopped
    python benchmarks/uncertainty.py --table                          # what is stored already, in Markdown
    python benchmarks/uncertainty.py --inner                          # VPBoost on parts of training parts: to choose by
    python benchmarks/uncertainty.py --simulated 0.01 --splits 3      # coverage on simulations with 1 % of noise

The 90/10 splits of the literature (20, of the large tables 5), default settings; peers that stop early get a tenth
of the training part to do so. One fit at a time; set ``OMP_NUM_THREADS=1`` if others work on the machine, and compare
seconds of the processor. Results are stored one by one in ``benchmarks/results/uncertainty.json``. NGBoost and MAPIE
want an environment of their own (``pip install vpboost[benchmarks] ngboost mapie``); where they are missing, they are
left out.
"""

import argparse
import json
import math
import time
import warnings
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.stats import betabinom, norm

from problems import PROBLEMS, sample
from tables import THREADS, data_folder
from vpboost import VPBoostRegressor
from vpboost.estimators.prediction import evaluated

RESULTS = Path(__file__).parent / "results" / "uncertainty.json"
#: Tables, and splits of each.
TABLES = {
    **{"uci_boston": 20, "uci_concrete": 20, "uci_energy": 20, "uci_wine_red": 20, "uci_yacht": 20},
    **{"uci_kin8nm": 5, "uci_naval": 5, "uci_power": 5},
}
COVERAGES = (0.5, 0.9, 0.95)
MOST_FOR_PROCESS = 1500
#: Printed elsewhere: mean NLL of NGBoost in its paper and of XGBDistribution in its documentation.
PRINTED = {
    "NGBoost, printed": {
        "uci_boston": 2.55, "uci_concrete": 3.09, "uci_energy": 0.62, "uci_naval": -3.91, "uci_power": 2.77,
        "uci_wine_red": 0.93, "uci_yacht": 0.75,
    },
    "XGBDistribution, printed": {
        "uci_boston": 2.62, "uci_concrete": 3.14, "uci_energy": 0.58, "uci_naval": -5.11, "uci_power": 2.77,
        "uci_wine_red": 0.98, "uci_yacht": 0.89,
    },
}  # fmt: skip


class Split(NamedTuple):
    """A table in two parts."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray

    def aside(self, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return nine tenths of the training part, then the rest: X, X_val, y, y_val."""
        order = np.random.default_rng(seed).permutation(len(self.X))
        val, fit = np.split(order, [len(order) // 10])
        return self.X[fit], self.X[val], self.y[fit], self.y[val]


def load(name: str, seed: int) -> Split:
    data = np.load(data_folder() / f"{name}.npz", allow_pickle=False)
    X, y, fit, test = data["X"].astype(float), data["y"].astype(float), data["idx_train"][seed], data["idx_test"][seed]
    return Split(X[fit], y[fit], X[test], y[test])


def of_normal(split: Split, mean: np.ndarray, std: np.ndarray) -> dict[str, float]:
    """Return NLL and CRPS of normal laws."""
    z = (split.y_test - mean) / std
    crps = std * (z * (2 * norm.cdf(z) - 1) + 2 * norm.pdf(z) - 1 / np.sqrt(np.pi))
    return {"nll": -float(np.mean(norm.logpdf(split.y_test, mean, std))), "crps": float(np.mean(crps))}


def vpboost(split: Split, seed: int) -> dict[str, float]:
    law = VPBoostRegressor(distribution="normal", random_state=seed).fit(split.X, split.y).predict_dist(split.X_test)
    return of_normal(split, law.mean(), law.std())


def ngboost(split: Split, seed: int) -> dict[str, float]:
    from ngboost import NGBRegressor

    X, X_val, y, y_val = split.aside(seed)
    model = NGBRegressor(n_estimators=2000, verbose=False, random_state=seed)
    model.fit(X, y, X_val=X_val, Y_val=y_val, early_stopping_rounds=50)
    law = model.pred_dist(split.X_test, max_iter=model.best_val_loss_itr)
    return of_normal(split, law.loc, law.scale)


def catboost(split: Split, seed: int) -> dict[str, float]:
    from catboost import CatBoostRegressor

    X, X_val, y, y_val = split.aside(seed)
    model = CatBoostRegressor(
        loss_function="RMSEWithUncertainty", iterations=2000, thread_count=THREADS, random_seed=seed, verbose=False,
        allow_writing_files=False,
    )  # fmt: skip
    model.fit(X, y, eval_set=(X_val, y_val), early_stopping_rounds=50)
    mean, variance = model.predict(split.X_test).T
    return of_normal(split, mean, np.sqrt(variance))


def process(split: Split, seed: int) -> dict[str, float]:
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel
    from sklearn.preprocessing import StandardScaler

    if len(split.X) > MOST_FOR_PROCESS:
        return {}
    scaler = StandardScaler().fit(split.X)
    kernel = ConstantKernel() * Matern(np.ones(split.X.shape[1]), nu=2.5) + WhiteKernel(0.1)
    model = GaussianProcessRegressor(kernel, normalize_y=True, random_state=seed)
    mean, std = model.fit(scaler.transform(split.X), split.y).predict(scaler.transform(split.X_test), return_std=True)
    return of_normal(split, mean, std)


def of_intervals(split: Split, intervals: dict[float, tuple[np.ndarray, np.ndarray]]) -> dict[str, float]:
    """Return how many targets intervals cover, and their mean width in spreads of y."""
    found, spread = {}, split.y.std()
    for coverage, (low, high) in intervals.items():
        found[f"covered {coverage}"] = float(np.mean((low <= split.y_test) & (split.y_test <= high)))
        found[f"width {coverage}"] = float(np.mean(high - low) / spread)
    return found


def vpboost_intervals(split: Split, seed: int) -> dict[str, float]:
    model = VPBoostRegressor(random_state=seed).fit(split.X, split.y)
    found = of_intervals(split, {c: model.predict_interval(split.X_test, c) for c in COVERAGES})
    return found | {"rows": len(split.y_test), "errors known": model._known_conformity(max(COVERAGES)).fewest()}


def mapie(split: Split, seed: int) -> dict[str, float]:
    """Split conformal around CatBoost: the tenth that ends its fit early is not the one that tells its errors."""
    from catboost import CatBoostRegressor
    from mapie.regression import SplitConformalRegressor

    X, X_known, y, y_known = split.aside(seed)
    X, X_val, y, y_val = Split(X, y, X, y).aside(seed)
    model = CatBoostRegressor(
        iterations=2000, thread_count=THREADS, random_seed=seed, verbose=False, allow_writing_files=False
    )
    model.fit(X, y, eval_set=(X_val, y_val), early_stopping_rounds=50)
    conformal = SplitConformalRegressor(model, confidence_level=list(COVERAGES), prefit=True)
    _, bounds = conformal.conformalize(X_known, y_known).predict_interval(split.X_test)
    return of_intervals(split, {c: (bounds[:, 0, i], bounds[:, 1, i]) for i, c in enumerate(COVERAGES)})


MODELS: dict[str, Callable[[Split, int], dict[str, float]]] = {
    **{"VPBoost": vpboost, "NGBoost": ngboost, "CatBoost": catboost, "Gaussian process": process},
    **{"VPBoost, intervals": vpboost_intervals, "MAPIE, CatBoost": mapie},
}


def cases(options: argparse.Namespace) -> Iterator[tuple[str, str, int]]:
    """Yield table, model and split, splits outermost: what is cut short has seen every table."""
    for seed, name, model in product(range(options.splits), options.only, options.models):
        if seed < TABLES[name]:
            yield name, model, seed


def run(options: argparse.Namespace) -> None:
    for name, model, seed in cases(options):
        found = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        key = f"{name} | {model} | {seed}"
        if key in found:
            continue
        split, began, busy = load(name, seed), time.perf_counter(), time.process_time()
        try:
            scores = MODELS[model](split, seed)
        except ImportError as error:
            print(f"{model} is left out: {error}")
            continue
        if scores:
            times = {"seconds": time.perf_counter() - began, "processor": time.process_time() - busy}
            found[key] = {what: float(f"{value:.5g}") for what, value in (scores | times).items()}
            RESULTS.write_text(json.dumps(found, indent=1) + "\n")
            print(key, found[key], flush=True)


def inner_splits(name: str) -> Iterator[Split]:
    """Yield parts of the training parts of a table's first two splits, two of each: what settings are chosen by."""
    for outer, repeat in product(range(2), range(2)):
        X, y, *_ = load(name, outer)
        order = np.random.default_rng([outer, repeat]).permutation(len(X))
        aside, fit = np.split(order, [len(order) // 10])
        yield Split(X[fit], y[fit], X[aside], y[aside])


def inner(names: list[str]) -> None:
    """Print mean NLL of scaled targets, and seconds of the processor, of VPBoost on inner splits of small tables."""
    rows = []
    for name in (name for name in names if TABLES[name] == TABLES["uci_boston"]):
        found = []
        for i, split in enumerate(inner_splits(name)):
            busy = time.process_time()
            nll = vpboost(split, i % 2)["nll"] - np.log(split.y.std())
            found.append((nll, time.process_time() - busy))
        rows.append(np.mean(found, axis=0))
        print(f"{name}: NLL {rows[-1][0]:.3f}, {rows[-1][1]:.1f} s", flush=True)
    nll, seconds = np.mean(rows, axis=0)
    print(f"mean: NLL {nll:.3f}, {seconds:.1f} s")


def simulated(noise: float, seeds: int) -> None:
    """Print coverages where chains after the first learn from all rows, of the model and of the first chain alone.

    They are of 1,000 more runs of simulations of 200, less those of exact intervals: means with standard errors.
    """
    found = []
    for seed, (name, problem) in product(range(70, 70 + seeds), PROBLEMS.items()):
        runs = sample(problem, 200, seed, noise)
        if runs.y_train.ndim > 1:
            continue
        model = VPBoostRegressor(random_state=seed).fit(runs.x_train, runs.y_train)
        if not model.profile_.refit_full:
            continue
        rng = np.random.default_rng(seed)
        truth = runs.y_test + noise * runs.y_train.std() * rng.normal(size=len(runs.y_test))
        first = model.boosted_.ensemble.truncate(model.best_iteration_)
        alone = model._from_raw(evaluated(first, model.input_encoder_.transform(runs.x_test))).reshape(truth.shape)
        row = []
        for coverage in COVERAGES:
            low, high = model.predict_interval(runs.x_test, coverage)
            facts = {"rows": len(truth), "errors known": model._known_conformity(coverage).fewest()}
            for predicted in ((low + high) / 2, alone):
                covered = np.mean(np.abs(truth - predicted) <= (high - low) / 2)
                row.append(covered - promised([facts], coverage)[0])
        found.append(row)
        print(f"{name}, seed {seed}: {' '.join(f'{value:+.3f}' for value in row)}", flush=True)
    mean, error = np.mean(found, axis=0), np.std(found, axis=0, ddof=1) / np.sqrt(len(found))
    cells = [f"{value:+.3f} ± {2 * off:.3f}" for value, off in zip(mean, error, strict=True)]
    print(f"\n| {len(found)} fits | {' | '.join(map(str, COVERAGES))} |\n|---|{'---|' * len(COVERAGES)}")
    for i, who in enumerate(("the model", "its first chain")):
        print(f"| {who} | {' | '.join(cells[i::2])} |")


def mean_of(found: dict[str, dict[str, float]], name: str, model: str, what: str) -> str:
    """Return the mean of a number over splits, with its standard error."""
    values = [facts[what] for key, facts in found.items() if key.startswith(f"{name} | {model} | ") and what in facts]
    if not values:
        return ""
    error = f" ± {np.std(values, ddof=1) / np.sqrt(len(values)):.2g}" if len(values) > 1 else ""
    return f"{np.mean(values):.3g}{error}"


def table(found: dict[str, dict[str, float]], models: list[str], what: str) -> None:
    """Print a table of one number."""
    printed = PRINTED if what == "nll" else {}
    print(f"\n{what}\n\n| | {' | '.join([*models, *printed])} |\n|---|{'---|' * (len(models) + len(printed))}")
    for name in TABLES:
        cells = [mean_of(found, name, model, what) for model in models]
        cells += [str(numbers.get(name, "")) for numbers in printed.values()]
        print(f"| {name} | {' | '.join(cells)} |")


def promised(facts: list[dict[str, float]], coverage: float) -> tuple[float, float]:
    """Return the mean coverage of exact conformal intervals on splits, and its sampling error.

    Of n rows whose errors are known and m others in random order, the number of the others that is within has a
    beta-binomial law, whatever the model. That holds given all rows of a table, of which splits are drawn one by one:
    their errors are independent. (Of chains, some rows are among the n more than once; the true error is larger.)
    """
    laws = []
    for one in facts:
        m, n = int(one["rows"]), int(one["errors known"])
        k = math.ceil(coverage * (n + 1) - 1e-9)
        laws.append([betabinom.mean(m, k, n + 1 - k) / m, betabinom.var(m, k, n + 1 - k) / m**2])
    mean, variance = np.mean(laws, axis=0)
    return float(mean), float(np.sqrt(variance / len(laws)))


def sampling_errors(found: dict[str, dict[str, float]]) -> None:
    """Print coverages of VPBoost with what exact ones may be by chance, and by how many errors they are off."""
    print("\nVPBoost, covered (exact intervals: mean ± 2 errors; off by so many errors)\n")
    print(f"| | {' | '.join(map(str, COVERAGES))} |")
    print(f"|---|{'---|' * len(COVERAGES)}")
    for name in TABLES:
        cells, facts = [], [facts for key, facts in found.items() if key.startswith(f"{name} | VPBoost, intervals | ")]
        for coverage in COVERAGES if facts else ():
            (mean, error), covered = promised(facts, coverage), np.mean([one[f"covered {coverage}"] for one in facts])
            cells.append(f"{covered:.3f} ({mean:.3f} ± {2 * error:.3f}; {(covered - mean) / error:+.1f})")
        print(f"| {name} | {' | '.join(cells)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", action="store_true", help="print what is stored")
    parser.add_argument("--inner", action="store_true", help="score VPBoost on parts of training parts only")
    parser.add_argument("--simulated", type=float, metavar="NOISE", help="coverage on simulations; a seed is a split")
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--only", nargs="+", default=list(TABLES), choices=list(TABLES))
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.inner:
        inner(options.only)
        return
    if options.simulated is not None:
        simulated(options.simulated, options.splits)
        return
    if not options.table:
        run(options)
    found = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    laws, bands = list(MODELS)[:4], list(MODELS)[4:]
    for what in ("nll", "crps", "processor"):
        table(found, laws, what)
    for coverage in COVERAGES:
        table(found, bands, f"covered {coverage}")
        table(found, bands, f"width {coverage}")
    sampling_errors(found)


if __name__ == "__main__":
    main()
