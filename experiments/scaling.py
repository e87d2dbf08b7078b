"""Scaling: the cost and the quality of VPBoost against GDBoost as the number of outputs grows.

``python -m experiments.scaling [--quick]`` with nothing else running. Linear regression problems of scikit-learn, eight
learners, five seeds; every method has run once before it is timed. A run that was stopped goes on.
"""

import json
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from sklearn.datasets import make_regression

from vpboost import MLP, SquaredError, Stage, Training, TrustRegion, boost

from .data import Parts, scaled, split
from .runner import place
from .study import rounded, write_whole

OUTPUTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
N_SEEDS, N_LEARNERS, MAX_STEPS = 5, 8, 100
#: Step sizes that are tried for each method and number of outputs; the best by validation is used.
STEP_SIZES = (0.03, 0.1)
#: GDBoost, VPBoost, and VPBoost whose featurizers see at most so many combinations of the outputs.
METHODS: dict[str, dict[str, Any]] = {"gd": {"method": "gd"}, "vp": {}, "vp_sketch": {"sketch": 16}}


def load(n_outputs: int, seed: int) -> Parts:
    """Return a regression problem with so many outputs, of unit variance each, split 70/15/15."""
    x, y = make_regression(2000, 20, n_informative=10, n_targets=n_outputs, noise=0.0, random_state=seed)
    y = y.reshape(len(y), -1)
    return scaled(split(x, (y - y.mean(axis=0)) / y.std(axis=0), seed))


def fit(parts: Parts, method: str, step_size: float, seed: int, n_learners: int, max_steps: int) -> list[list[float]]:
    """Return seconds and validation mean squared error after each learner."""
    began, curve = time.perf_counter(), []

    def watch(stage: Stage) -> None:
        loss = 2 * stage.record.validation_loss / parts.y_train.shape[1]
        curve.append([rounded(time.perf_counter() - began), rounded(loss)])

    boost(
        parts.x_train, parts.y_train, loss=SquaredError(), featurizer=partial(MLP, width=8, depth=2),
        n_learners=n_learners, training=Training(max_steps=max_steps, step_size=step_size, **METHODS[method]),
        trust_region=TrustRegion.paper(reg_lambda=1e-6), validation=(parts.x_val, parts.y_val), seed=seed,
        callback=watch,
    )  # fmt: skip
    return curve


def seconds_to(curve: list[list[float]], target: float) -> float:
    """Return when a curve first is at the target or below; infinity if never."""
    return next((seconds for seconds, loss in curve if loss <= target), float("inf"))


def comparison(found: dict[str, Any]) -> dict[int, dict[str, Any]]:
    """Return, by number of outputs and method: seconds to GDBoost's final loss, and the ratio of the final losses."""
    rows: dict[int, dict[str, Any]] = {}
    for key in found:
        n_outputs = int(key)
        rows[n_outputs] = {}
        for method in METHODS:
            pairs = [(seed["gd"], seed[method]) for seed in found[key]]
            times = [seconds_to(curve, base[-1][1]) for base, curve in pairs]
            own = [seconds_to(base, base[-1][1]) for base, _ in pairs]
            speedups = [one / other for one, other in zip(own, times, strict=True)]
            ratios = [base[-1][1] / curve[-1][1] for base, curve in pairs]
            rows[n_outputs][method] = {
                "seconds": float(np.median(times)),
                "never": int(np.sum(np.isinf(times))),
                "speedup": float(np.median(speedups)),
                "total_seconds": float(np.mean([curve[-1][0] for _, curve in pairs])),
                "loss_ratio": float(np.median(ratios)),
                "loss_ratio_spread": [float(np.quantile(ratios, q)) for q in (0.25, 0.75)],
            }
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what is missing, and show the comparison."""
    quick, results = place(__doc__ or "", arguments)
    path = results / "scaling.json"
    sizes, n_seeds, budget = (OUTPUTS, N_SEEDS, (N_LEARNERS, MAX_STEPS)) if not quick else ((1, 8), 2, (3, 30))
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    for n_outputs in track([n for n in sizes if str(n) not in found], "numbers of outputs"):
        best = {}
        for method in METHODS:  # this also compiles everything
            parts = load(n_outputs, 0)
            ends = {size: fit(parts, method, size, 0, *budget)[-1][1] for size in STEP_SIZES}
            best[method] = min(ends, key=ends.__getitem__)
        found[str(n_outputs)] = [
            {method: fit(load(n_outputs, seed), method, best[method], seed, *budget) for method in METHODS}
            | {"step_sizes": best}
            for seed in range(n_seeds)
        ]
        write_whole(path, json.dumps(found).replace('{"gd"', '\n{"gd"') + "\n")
    for n_outputs, row in comparison(found).items():
        times = ", ".join(
            f"{m} {row[m]['speedup']:.2f}x, MSE ratio {row[m]['loss_ratio']:.3g}" for m in METHODS if m != "gd"
        )
        Console().print(f"{n_outputs:5d} outputs: to GDBoost's final loss {times}")


if __name__ == "__main__":
    main()
