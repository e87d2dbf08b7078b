"""Bayesian optimisation of functions of six inputs: how far 60 evaluations come with VPBoost and a Gaussian process.

    python benchmarks/bayesian_optimisation.py --runs 10                                       # Hartmann's function
    python benchmarks/bayesian_optimisation.py --runs 5 --functions levy rosenbrock ackley styblinski_tang
    python benchmarks/bayesian_optimisation.py --runs 5 --models process bumps default         # default settings, too

Each run begins with the same 18 points for all models, a Latin hypercube, and then evaluates where the expected
improvement is largest, by ``predict(X, return_std=True)``. Printed is the regret: the best value found less the
minimum.
"""

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.stats import norm, qmc
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

from vpboost import VPBoostRegressor

N_INPUTS, N_START, N_ALL = 6, 18, 60
HEIGHTS = np.array([1.0, 1.2, 3.0, 3.2])
STEEPNESS = np.array(
    [[10, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14], [3, 3.5, 1.7, 10, 17, 8], [17, 8, 0.05, 10, 0.1, 14]]
)
CENTRES = np.array(
    [
        [0.1312, 0.1696, 0.5569, 0.0124, 0.8283, 0.5886],
        [0.2329, 0.4135, 0.8307, 0.3736, 0.1004, 0.9991],
        [0.2348, 0.1451, 0.3522, 0.2883, 0.3047, 0.6650],
        [0.4047, 0.8828, 0.8732, 0.5743, 0.1091, 0.0381],
    ]
)


def hartmann(x: np.ndarray) -> np.ndarray:
    squares = np.sum(STEEPNESS * (x[:, None] - CENTRES) ** 2, axis=-1)
    return -np.exp(-squares) @ HEIGHTS


def ackley(x: np.ndarray) -> np.ndarray:
    x = 20 * x - 10
    waves = np.exp(np.cos(2 * np.pi * x).mean(axis=1))
    return 20 - 20 * np.exp(-0.2 * np.sqrt((x**2).mean(axis=1))) + np.e - waves


def rosenbrock(x: np.ndarray) -> np.ndarray:
    x = 4 * x - 2
    return np.sum(100 * (x[:, 1:] - x[:, :-1] ** 2) ** 2 + (1 - x[:, :-1]) ** 2, axis=1)


def levy(x: np.ndarray) -> np.ndarray:
    w = (20 * x - 10 + 3) / 4
    middle = np.sum((w[:, :-1] - 1) ** 2 * (1 + 10 * np.sin(np.pi * w[:, :-1] + 1) ** 2), axis=1)
    return np.sin(np.pi * w[:, 0]) ** 2 + middle + (w[:, -1] - 1) ** 2 * (1 + np.sin(2 * np.pi * w[:, -1]) ** 2)


def styblinski_tang(x: np.ndarray) -> np.ndarray:
    x = 10 * x - 5
    return np.sum(x**4 - 16 * x**2 + 5 * x, axis=1) / 2


#: Functions of the unit cube, and their minima.
FUNCTIONS: dict[str, tuple[Callable[[np.ndarray], np.ndarray], float]] = {
    "hartmann": (hartmann, -3.32237),
    "ackley": (ackley, 0.0),
    "rosenbrock": (rosenbrock, 0.0),
    "levy": (levy, 0.0),
    "styblinski_tang": (styblinski_tang, -39.16617 * N_INPUTS),
}


def process() -> Any:
    kernel = ConstantKernel() * Matern(np.ones(N_INPUTS), nu=2.5) + WhiteKernel(1e-4, (1e-8, 1))
    return GaussianProcessRegressor(kernel, normalize_y=True, n_restarts_optimizer=2, random_state=0)


def bumps() -> Any:
    # every row counts: none is set aside
    return VPBoostRegressor(featurizer="rbf", n_estimators=30, learning_rate=0.3, early_stopping_rounds=None)


MODELS: dict[str, Callable[[], Any]] = {"process": process, "bumps": bumps, "default": VPBoostRegressor}


def improvement(model: Any, x: np.ndarray, best: float) -> np.ndarray:
    mean, std = model.predict(x, return_std=True)
    gain = (best - mean) / std
    return std * (gain * norm.cdf(gain) + norm.pdf(gain))


def proposal(model: Any, x: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return where the expected improvement is largest: among random points, points near the best, then near those."""
    near = np.repeat(x[np.argsort(y)[:3]], 300, axis=0)
    near = near + rng.normal(size=near.shape) * rng.choice([0.02, 0.05, 0.1, 0.2], size=(len(near), 1))
    found = np.concatenate([rng.uniform(size=(1500, N_INPUTS)), np.clip(near, 0, 1)])
    for width in (0.05, 0.01):
        found = found[np.argsort(-improvement(model, found, y.min()))[:10]]
        around = np.repeat(found, 50, axis=0)
        found = np.concatenate([found, np.clip(around + width * rng.normal(size=around.shape), 0, 1)])
    return found[improvement(model, found, y.min()).argmax()]


def regret(make: Callable[[], Any], name: str, seed: int) -> float:
    function, minimum = FUNCTIONS[name]
    rng, x = np.random.default_rng(seed), qmc.LatinHypercube(N_INPUTS, seed=seed).random(N_START)
    y = function(x)
    while len(y) < N_ALL:
        x = np.concatenate([x, proposal(make().fit(x, y), x, y, rng)[None]])
        y = np.append(y, function(x[-1:]))
    return float(y.min() - minimum)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--first", type=int, default=0, help="seed of the first run")
    parser.add_argument("--functions", nargs="+", choices=FUNCTIONS, default=["hartmann"])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=["process", "bumps"])
    options = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    for name in options.functions:
        found: dict[str, list[float]] = {model: [] for model in options.models}
        for seed in range(options.first, options.first + options.runs):
            for model, regrets in found.items():
                began = time.perf_counter()
                regrets.append(regret(MODELS[model], name, seed))
                seconds = time.perf_counter() - began
                print(f"{name}, run {seed}, {model}: regret {regrets[-1]:.4f} ({seconds:.0f} s)", flush=True)
        for model, regrets in found.items():
            print(f"{name}, {model}: mean regret {np.mean(regrets):.4f}, median {np.median(regrets):.4f}", flush=True)


if __name__ == "__main__":
    main()
