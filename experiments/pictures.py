"""Predictions of the tuned methods over the plane, for the pictures of the 2D tasks.

``python -m experiments.pictures [--quick]``, after the tasks. Stores ``<results>/<task>/pictures.npz``.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.progress import track

from vpboost import datasets

from .problems import PROBLEMS
from .runner import METHODS, place
from .tables import load

#: What is drawn, and over which square.
SHOWN = ("gd", "vp_start", "vp_end", "vp_start_end", "vp", "xgboost", "network", "network_vp")
SQUARES = {"task1": (0.0, 1.0), "task2": (-1.25, 1.25), "task3": (-3.0, 3.0)}
SIDE = 64


def grid(task: str) -> np.ndarray:
    """Return the points of the picture, row by row from the bottom."""
    line = np.linspace(*SQUARES[task], SIDE)
    across, up = np.meshgrid(line, line)
    return np.stack([across.ravel(), up.ravel()], axis=1)


def main(arguments: Sequence[str] | None = None) -> None:
    """Fit each method of each task once, with the seed 0, and store its predictions over the grid."""
    quick, results = place(__doc__ or "", arguments)
    for task in track(SQUARES, "pictures"):
        problem = PROBLEMS[task].quick() if quick else PROBLEMS[task]
        parts, stored = problem.load(0), load(results, task)
        points = scaled_like(task, grid(task))
        images: dict[str, Any] = {
            name: METHODS[name].fit(problem, parts, stored[name]["config"], 0).predict(points).astype(np.float16)
            for name in SHOWN
            if name in stored
        }
        if images:
            np.savez_compressed(results / task / "pictures.npz", **images)


def scaled_like(task: str, points: np.ndarray) -> np.ndarray:
    """Return points scaled as the inputs of the task are with seed 0."""
    raw = getattr(datasets, task)(seed=0).x_train
    return (points - raw.mean(axis=0)) / raw.std(axis=0)


if __name__ == "__main__":
    main()
