"""Simulations, default settings: VPBoost beside a Gaussian process, CatBoost and a network, by number of runs.

    python benchmarks/simulations.py                          # 17 problems, 100 to 3,000 runs, 3 seeds: hours
    python benchmarks/simulations.py --only hartmann beam --runs 300 --seeds 1
    python benchmarks/simulations.py --table                  # what is stored already
    python benchmarks/simulations.py --std --noises 0         # how sure VPBoost and the Gaussian process are

Results are stored one by one in ``benchmarks/results/simulations.json``, which a later call goes on from. Errors are
root mean squares over 1,000 other runs, without noise, divided by the spread of each output, then averaged. ``--std``
stores how likely these errors are by ``predict(X, return_std=True)``, as the mean negative log-likelihood of outputs of
unit spread, and how well standard deviations rank the sizes of errors. Nothing else should run. Needs
``vpboost[benchmarks,plots]``.
"""

import argparse
import json
import time
import warnings
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.stats import norm, spearmanr
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel
from sklearn.neural_network import MLPRegressor
from sklearn.preprocessing import StandardScaler

from problems import PROBLEMS, Sample, sample
from vpboost import VPBoostRegressor

RESULTS = Path(__file__).parent / "results" / "simulations.json"
PICTURE = Path(__file__).parents[1] / "docs" / "simulations.png"
RUNS, SEEDS, NOISES = (100, 300, 1000, 3000), (0, 1, 2), (0.0, 0.01)
#: More runs than this are too many for a Gaussian process.
MOST_FOR_PROCESS = 1000


def vpboost(data: Sample, seed: int) -> Callable:
    return VPBoostRegressor(random_state=seed).fit(data.x_train, data.y_train).predict


def gaussian_process(data: Sample, seed: int) -> Callable:
    """Matérn 5/2 with a length for each input and noise, all fitted by likelihood; of several outputs, one for all."""
    if len(data.x_train) > MOST_FOR_PROCESS:
        raise ValueError("too many runs")
    n_inputs = data.x_train.shape[1]
    kernel = ConstantKernel() * Matern(np.ones(n_inputs), (1e-2, 1e3), nu=2.5) + WhiteKernel(1e-6, (1e-12, 1.0))
    model = GaussianProcessRegressor(kernel, normalize_y=True, n_restarts_optimizer=1, random_state=seed)
    return model.fit(data.x_train, data.y_train).predict


def catboost(data: Sample, seed: int) -> Callable:
    from catboost import CatBoostRegressor

    several = data.y_train.ndim == 2
    n = len(data.x_train)
    aside = np.random.default_rng(seed).permutation(n)[: max(n // 7, 1)]
    kept = np.setdiff1d(np.arange(n), aside)
    model = CatBoostRegressor(
        iterations=2000,
        loss_function="MultiRMSE" if several else "RMSE",
        early_stopping_rounds=50,
        random_seed=seed,
        thread_count=2,
        verbose=False,
        allow_writing_files=False,
    )
    model.fit(data.x_train[kept], data.y_train[kept], eval_set=(data.x_train[aside], data.y_train[aside]))
    return model.predict


def network(data: Sample, seed: int) -> Callable:
    """Two hidden layers by L-BFGS, inputs and outputs standardised."""
    y = data.y_train.reshape(len(data.y_train), -1)
    scale, inputs = StandardScaler().fit(y), StandardScaler().fit(data.x_train)
    model = MLPRegressor((64, 64), activation="tanh", solver="lbfgs", max_iter=2000, random_state=seed)
    model.fit(inputs.transform(data.x_train), scale.transform(y).squeeze())
    return lambda x: scale.inverse_transform(model.predict(inputs.transform(x)).reshape(len(x), -1))


#: Those that tell standard deviations.
SURE = "vpboost", "gaussian process"
MODELS = {"vpboost": vpboost, "gaussian process": gaussian_process, "catboost": catboost, "network": network}


def error_of(predict: Callable, data: Sample) -> float:
    """Return the root mean square error over the spread of each output, averaged."""
    truth = data.y_test.reshape(len(data.y_test), -1)
    found = np.asarray(predict(data.x_test)).reshape(truth.shape)
    return float(np.mean(np.sqrt(np.mean((found - truth) ** 2, axis=0)) / truth.std(axis=0)))


def sureness_of(predict: Callable, data: Sample) -> dict[str, float]:
    """Return how likely errors are by the standard deviations told with predictions, and whether these rank them."""
    truth = data.y_test.reshape(len(data.y_test), -1)
    mean, std = (np.asarray(part).reshape(truth.shape) for part in predict(data.x_test, return_std=True))
    error, std = (truth - mean) / truth.std(axis=0), np.maximum(std / truth.std(axis=0), 1e-12)
    ranks = [spearmanr(*pair)[0] for pair in zip(np.abs(error).T, std.T, strict=True)]
    return {"nll": -float(np.mean(norm.logpdf(error, 0, std))), "rank": float(np.nanmean(ranks))}


def key_of(*facts: Any) -> str:
    return " | ".join(map(str, facts))


def run(options: argparse.Namespace, stored: dict[str, Any]) -> None:
    """Run what is not stored yet."""
    cases = list(product(options.only, options.runs, options.noises, range(options.seeds), options.models))
    for name, n, noise, seed, model in cases:
        key = key_of(name, n, noise, seed, model, *(["std"] if options.std else []))
        if key in stored or (model == "gaussian process" and n > MOST_FOR_PROCESS):
            continue
        data = sample(PROBLEMS[name], n, seed, noise)
        began = time.perf_counter()
        predict = MODELS[model](data, seed)
        seconds = time.perf_counter() - began
        found = sureness_of(predict, data) if options.std else {"nrmse": error_of(predict, data)}
        stored[key] = {what: round(value, 7) for what, value in found.items()} | {"seconds": round(seconds, 3)}
        print(key, stored[key], flush=True)
        RESULTS.write_text(json.dumps(stored, indent=0) + "\n")


def mean_of(stored: dict[str, Any], name: str, n: int, noise: float, model: str, what: str) -> float:
    """Return the mean over the seeds that are stored; NaN for none."""
    found = [stored[key][what] for seed in SEEDS if (key := key_of(name, n, noise, seed, model)) in stored]
    return float(np.mean(found)) if found else float("nan")


def show(stored: dict[str, Any], options: argparse.Namespace) -> None:
    """Print errors and seconds, and how VPBoost compares with the Gaussian process and with the best of all."""
    for noise in options.noises:
        table = Table(title=f"NRMSE (seconds), noise {noise}, mean over seeds")
        for heading in ("problem", "runs", *options.models):
            table.add_column(heading, justify="left" if heading == "problem" else "right")
        ratios = []
        for name, n in product(options.only, options.runs):
            errors = [mean_of(stored, name, n, noise, model, "nrmse") for model in options.models]
            if np.isnan(errors).all():
                continue
            times = [mean_of(stored, name, n, noise, model, "seconds") for model in options.models]
            table.add_row(name, str(n), *[f"{e:.5f} ({t:.1f})" for e, t in zip(errors, times, strict=True)])
            pair = [mean_of(stored, name, n, noise, model, "nrmse") for model in ("vpboost", "gaussian process")]
            if n >= 300 and np.isfinite(pair).all():
                ratios.append(pair[0] / pair[1])
        if ratios:
            table.caption = f"VPBoost over Gaussian process, 300 runs and more: {np.exp(np.mean(np.log(ratios))):.3f}"
        Console().print(table)


def show_sureness(stored: dict[str, Any], options: argparse.Namespace) -> None:
    """Print what ``--std`` has stored, and medians over problems."""
    for noise, n in product(options.noises, options.runs):
        rows, table = [], Table(title=f"NLL (rank correlation), {n} runs, noise {noise}, mean over seeds")
        for heading in ("problem", *SURE):
            table.add_column(heading, justify="left" if heading == "problem" else "right")
        for name in options.only:
            models = [f"{model} | std" for model in SURE]
            found = [[mean_of(stored, name, n, noise, model, what) for what in ("nll", "rank")] for model in models]
            if np.isfinite(found).all():
                table.add_row(name, *[f"{nll:.2f} ({rank:.2f})" for nll, rank in found])
                rows.append(found)
        if rows:
            table.add_row("median", *[f"{nll:.2f} ({rank:.2f})" for nll, rank in np.median(rows, axis=0)])
            Console().print(table)


def draw(stored: dict[str, Any], options: argparse.Namespace) -> None:
    """Write the picture: error against runs, one panel a problem."""
    from matplotlib.figure import Figure

    columns = 5
    figure = Figure(figsize=(15, 2.6 * -(-len(options.only) // columns)), layout="constrained")
    axes = figure.subplots(-(-len(options.only) // columns), columns, squeeze=False).ravel()
    for axis, name in zip(axes, options.only, strict=False):
        for model in options.models:
            errors = [mean_of(stored, name, n, 0.0, model, "nrmse") for n in options.runs]
            axis.loglog(options.runs, errors, ".-", label=model)
        axis.set_title(name, fontsize=9)
    for axis in axes[len(options.only) :]:
        axis.set_visible(False)
    axes[0].legend(fontsize=7, frameon=False)
    figure.supxlabel("runs")
    figure.supylabel("error over spread")
    figure.savefig(PICTURE, dpi=100)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PROBLEMS, default=list(PROBLEMS), metavar="PROBLEM")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--runs", nargs="+", type=int, default=list(RUNS))
    parser.add_argument("--noises", nargs="+", type=float, default=list(NOISES))
    parser.add_argument("--seeds", type=int, default=len(SEEDS))
    parser.add_argument("--table", action="store_true", help="run nothing, show what is stored")
    parser.add_argument("--std", action="store_true", help="measure standard deviations instead of errors")
    options = parser.parse_args()
    if options.std:
        options.models = [model for model in options.models if model in SURE]
    warnings.simplefilter("ignore", ConvergenceWarning)
    stored: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if not options.table:
        run(options, stored)
    if options.std:
        show_sureness(stored, options)
        return
    show(stored, options)
    draw(stored, options)


if __name__ == "__main__":
    main()
