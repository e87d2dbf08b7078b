"""Cost of a stage against the number of outputs: squared error, 8 features, 4,000 rows.

Run ``python benchmarks/output_scaling.py`` with nothing else running. One factorisation serves all outputs, so the cost
grows far slower than the cube of the number of outputs. It prints ratios to one output, taken in one run, and writes
``benchmarks/results/output_scaling.json``.
"""

import json
import time
from functools import partial
from pathlib import Path

import jax
import numpy as np
from rich.console import Console
from rich.table import Table

from vpboost import MLP, SquaredError, Training, boost

RESULTS = Path(__file__).parent / "results" / "output_scaling.json"
OUTPUTS = (1, 2, 4, 8, 16, 32, 64, 128)
GOAL = 8.0  #: a stage with 128 outputs may cost this many times a stage with one


def stage_seconds(n_outputs: int, repeats: int = 5) -> float:
    """Return the median time of a warm stage: training, solve, trust region and diagnostics."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4000, 10))
    y = np.tanh(x @ rng.normal(size=(10, n_outputs)))
    fit = partial(boost, x, y, loss=SquaredError(), featurizer=partial(MLP, width=8), training=Training(max_steps=200))
    seconds = [record.seconds for record in fit(n_learners=1 + repeats).history[1:]]
    return float(np.median(seconds))


def main() -> None:
    began = time.perf_counter()
    seconds = {k: stage_seconds(k) for k in OUTPUTS}
    ratios = {k: seconds[k] / seconds[1] for k in OUTPUTS}
    table = Table(title="Cost of a stage (200 steps, N = 4,000, 8 features and a bias)")
    for heading in ("outputs", "seconds", "ratio to one output", "the dense solve alone, K³"):
        table.add_column(heading, justify="right")
    for k in OUTPUTS:
        table.add_row(str(k), f"{seconds[k]:.3f}", f"{ratios[k]:.2f}", f"{k**3:,}")
    console = Console()
    console.print(table)
    verdict = "met" if ratios[128] <= GOAL else "MISSED"
    console.print(f"128 outputs at {ratios[128]:.2f} times the cost of one; goal {GOAL:g}: {verdict}")
    RESULTS.parent.mkdir(exist_ok=True)
    found = {"seconds": seconds, "ratio": ratios, "goal": GOAL, "jax": jax.__version__}
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    console.print(f"took {time.perf_counter() - began:.0f} s; wrote {RESULTS.name}")


if __name__ == "__main__":
    main()
