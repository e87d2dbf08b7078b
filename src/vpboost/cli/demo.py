"""Train on the paper's three 2D tasks, with variable projection and with gradient descent.

``vpboost demo`` prints a table and writes ``demo.png``: data, prediction and errors of every task.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.progress import Progress, TaskID
from rich.table import Table

from .. import datasets
from ..core.boosting import boost
from ..core.ensemble import Ensemble
from ..core.records import Boosted, Stage
from ..core.trust_region import TrustRegion
from ..core.weak_learner import Training
from ..featurizers import MLP
from ..losses import BinaryCrossEntropy, Loss, MulticlassCrossEntropy, SquaredError
from ..predictor import logits


class Task(NamedTuple):
    """A problem of the paper with its architecture, and the settings found best for it here."""

    title: str
    make: Callable[..., datasets.Split]
    loss: Loss
    n_learners: int
    depth: int
    init_scale: float
    max_steps: int
    step_size: float
    candidates: int
    trust_region: TrustRegion


#: In the order of the fields above.
TASKS = {
    "task1": Task(
        *("oscillatory regression", datasets.task1, SquaredError(), 10, 2, 2.0, 2000, 0.05, 16),
        TrustRegion(reg_lambda=1e-5),
    ),
    "task2": Task(
        *("two spirals", datasets.task2, BinaryCrossEntropy(), 5, 1, 2.0, 2000, 0.2, 8),
        TrustRegion(reg_lambda=1e-6),
    ),
    "task3": Task(
        *("level sets of peaks", datasets.task3, MulticlassCrossEntropy(), 10, 2, 1.0, 1000, 0.05, 4),
        TrustRegion(reg_lambda=3e-4, lambda_low=3e-4, rho_large=0.3, gamma_down=0.25, rate=0.7),
    ),
}


class Run(NamedTuple):
    """One task solved by one method."""

    task: str
    method: str
    fit: Boosted
    data: datasets.Split
    scaler: Callable[[np.ndarray], np.ndarray]
    test_loss: float  #: mean squared error, or cross-entropy
    score: float  #: R², or accuracy
    seconds: float


def run(
    name: str,
    method: str,
    seed: int = 0,
    candidates: int | None = None,
    callback: Callable[[Stage], None] | None = None,
) -> Run:
    """Train one task at the paper's architecture and evaluate it on the test part."""
    task = TASKS[name]
    data = task.make(seed=seed)
    mean, spread = data.x_train.mean(axis=0), data.x_train.std(axis=0)

    def scaler(x: np.ndarray) -> np.ndarray:
        return (x - mean) / spread

    sizes: Any = {"max_steps": task.max_steps, "step_size": task.step_size}
    training = Training(method=method, candidates=candidates or task.candidates, **sizes)
    began = time.perf_counter()
    fit = boost(
        scaler(data.x_train),
        data.y_train,
        loss=task.loss,
        featurizer=partial(MLP, width=4, depth=task.depth, init_scale=task.init_scale),
        n_learners=task.n_learners,
        training=training,
        trust_region=task.trust_region,
        validation=(scaler(data.x_val), data.y_val),
        seed=seed,
        callback=callback,
    )
    seconds = time.perf_counter() - began
    test_loss, score = evaluate(task.loss, fit.ensemble, scaler(data.x_test), data.y_test)
    return Run(name, method, fit, data, scaler, test_loss, score, seconds)


def evaluate(loss: Loss, ensemble: Ensemble, x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Return mean squared error and R² for squared error, else mean cross-entropy and accuracy."""
    raw = ensemble.predict(x)
    if isinstance(loss, SquaredError):
        error = float(np.mean((raw[:, 0] - y) ** 2))
        return error, 1 - error / float(np.var(y))
    with jax.enable_x64(True):
        values = np.asarray(loss.value(jnp.asarray(raw, dtype=jnp.float64), jnp.asarray(loss.prepare_targets(y))))
    return float(np.mean(values)), float(np.mean(logits(raw).argmax(axis=1) == y))


def table_of(runs: list[Run]) -> Table:
    """Lay out the results as a table."""
    titles = ", ".join(f"{name}: {task.title}" for name, task in TASKS.items())
    table = Table(title="VPBoost on the paper's 2D tasks (test part)", caption=titles)
    for heading in ("task", "method", "learners", "parameters", "test loss", "R² / accuracy", "seconds"):
        table.add_column(heading, justify="left" if heading in ("task", "method") else "right")
    for one in runs:
        ensemble = one.fit.ensemble
        sizes, found = (ensemble.n_learners, ensemble.n_parameters), (f"{one.test_loss:.2e}", f"{one.score:.4f}")
        table.add_row(one.task, one.method, *map(str, sizes), *found, f"{one.seconds:.1f}")
    return table


def draw(runs: list[Run], path: str) -> None:
    """Write a picture: one row per task; data, prediction of ``vp``, and the errors of ``vp`` and ``gd``."""
    try:
        from matplotlib.figure import Figure

        from ..plotting.figures import save_figure
    except ImportError as error:
        raise SystemExit("the picture needs matplotlib: pip install 'vpboost[plots]'") from error
    figure = Figure(figsize=(13, 9.5), layout="constrained")
    axes = figure.subplots(len(TASKS), 4, squeeze=False)
    for row, name in zip(axes, TASKS, strict=True):
        vp, gd = (next(r for r in runs if r.task == name and r.method == m) for m in ("vp", "gd"))
        _draw_task(figure, row, vp, gd)
        row[0].set_ylabel(f"{name}: {TASKS[name].title}")
    save_figure(figure, path)


def _draw_task(figure: Any, row: Any, vp: Run, gd: Run) -> None:
    """Draw the training data, VPBoost's prediction on a grid, and the errors of both methods on the test part."""
    data, several = vp.data, vp.task != "task1"
    low, high = data.x_train.min(), data.x_train.max()
    side = np.linspace(low, high, 201)
    grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)

    def predict(one: Run, x: np.ndarray) -> np.ndarray:
        raw = one.fit.ensemble.predict(one.scaler(x))
        return logits(raw).argmax(axis=1) if several else raw[:, 0]

    span = {"vmin": data.y_train.min(), "vmax": data.y_train.max(), "cmap": "viridis" if several else "RdBu_r"}
    errors = [np.abs(predict(one, data.x_test) - data.y_test) for one in (vp, gd)]
    row[0].scatter(*data.x_train.T, c=data.y_train, s=3, **span)
    field = row[1].imshow(predict(vp, grid).reshape(201, 201), origin="lower", extent=(low, high, low, high), **span)
    look = {"s": 6, "cmap": "magma_r", "vmin": 0, "vmax": 1 if several else np.quantile(errors[1], 0.99)}
    for axis, error in zip(row[2:], errors, strict=True):
        shown = axis.scatter(*data.x_test.T, c=np.minimum(error, 1), **look)
    for image, axes in () if several else ((field, row[:2]), (shown, row[2:])):
        figure.colorbar(image, ax=axes, shrink=0.8)
    titles = [f"errors of {name}, test loss {one.test_loss:.1e}" for name, one in (("VPBoost", vp), ("GDBoost", gd))]
    for axis, title in zip(row, ("training data", "VPBoost", *titles), strict=True):
        axis.set(xticks=[], yticks=[], xlim=(low, high), ylim=(low, high), aspect="equal")
        axis.set_title(title, fontsize=9)


def demonstrate(picture: str = "demo.png", seed: int = 0, candidates: int = 2) -> None:
    """Solve the three tasks by variable projection and by gradient descent, print a table and draw a picture."""
    console = Console()
    runs = []
    with Progress(console=console, transient=True) as progress:
        for name, task in TASKS.items():
            for method in ("vp", "gd"):
                bar = progress.add_task(f"{name} {method}", total=task.n_learners)

                def advance(stage: Stage, bar: TaskID = bar, label: str = f"{name} {method}") -> None:
                    progress.update(bar, advance=1, description=f"{label} loss {stage.record.loss:.1e}")

                runs.append(run(name, method, seed, candidates, advance))
    console.print(table_of(runs))
    draw(runs, picture)
    console.print(f"Picture of data, prediction and errors: {picture}")
