"""Bayesian optimisation of Hartmann's function of six inputs: how far 60 evaluations come with either model.

    python benchmarks/bayesian_optimisation.py --runs 10

Each run begins with the same 18 points for both models, a Latin hypercube, and then evaluates where the expected
improvement is largest, by ``predict(X, return_std=True)``. Printed is the regret: the best value found less the
minimum.
"""

import argparse
import time
import warnings
from functools import partial
from typing import Any

import numpy as np
from scipy.stats import norm, qmc
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

from vpboost import VPBoostRegressor

N_INPUTS, N_START, N_ALL, MINIMUM = 6, 18, 60, -3.32237
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


def process() -> Any:
    kernel = ConstantKernel() * Matern(np.ones(N_INPUTS), nu=2.5) + WhiteKernel(1e-4, (1e-8, 1))
    return GaussianProcessRegressor(kernel, normalize_y=True, n_restarts_optimizer=2, random_state=0)


def boosted(featurizer: str) -> Any:
    # every row counts: none is set aside
    return VPBoostRegressor(featurizer=featurizer, n_estimators=30, learning_rate=0.3, early_stopping_rounds=None)


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


def regret(make: Any, seed: int) -> float:
    rng, x = np.random.default_rng(seed), qmc.LatinHypercube(N_INPUTS, seed=seed).random(N_START)
    y = hartmann(x)
    while len(y) < N_ALL:
        x = np.concatenate([x, proposal(make().fit(x, y), x, y, rng)[None]])
        y = np.append(y, hartmann(x[-1:]))
    return float(y.min() - MINIMUM)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--first", type=int, default=0, help="seed of the first run")
    parser.add_argument("--featurizer", default="rbf", help="bumps, by default; Hartmann's function is a sum of some")
    options = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    found: dict[str, list[float]] = {"Gaussian process": [], "vpboost": []}
    for seed in range(options.first, options.first + options.runs):
        for (name, regrets), make in zip(found.items(), (process, partial(boosted, options.featurizer)), strict=True):
            began = time.perf_counter()
            regrets.append(regret(make, seed))
            print(f"run {seed}, {name}: regret {regrets[-1]:.4f} ({time.perf_counter() - began:.0f} s)", flush=True)
    for name, regrets in found.items():
        print(f"{name}: mean regret {np.mean(regrets):.4f}, median {np.median(regrets):.4f}")


if __name__ == "__main__":
    main()
