"""Train on the paper's three 2D tasks, with variable projection and with gradient descent.

``vpboost demo`` prints a table and writes ``demo.png``: truth, prediction and error of every task.
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
    """Write a picture: one row per task; truth, prediction and error of ``vp``, and the error of ``gd``."""
    try:
        from matplotlib.figure import Figure

        from ..plotting.figures import save_figure
    except ImportError as error:
        raise SystemExit("the picture needs matplotlib: pip install 'vpboost[plots]'") from error
    figure = Figure(figsize=(13, 9.5), layout="constrained")
    axes = figure.subplots(len(TASKS), 4, squeeze=False)
    for row, name in zip(axes, TASKS, strict=True):
        vp, gd = (next(r for r in runs if r.task == name and r.method == m) for m in ("vp", "gd"))
        _draw_regression(figure, row, vp, gd) if name == "task1" else _draw_classes(row, vp, gd)
        row[0].set_ylabel(f"{name}: {TASKS[name].title}")
        for axis in row:
            axis.set(xticks=[], yticks=[])
    save_figure(figure, path)


def _grid(low: float, high: float) -> tuple[np.ndarray, tuple[float, ...]]:
    side = np.linspace(low, high, 201)
    return np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2), (low, high, low, high)


def _draw_regression(figure, row, vp: Run, gd: Run) -> None:  # type: ignore[no-untyped-def]
    points, extent = _grid(0, 1)
    truth = datasets.oscillatory(points)
    predictions = [r.fit.ensemble.predict(r.scaler(points))[:, 0] for r in (vp, gd)]
    errors = [np.abs(p - truth) for p in predictions]
    top = np.abs(truth).max()
    panels = [
        ("truth", truth, "RdBu_r", -top, top),
        ("VPBoost", predictions[0], "RdBu_r", -top, top),
        (f"|error| of VPBoost, test MSE {vp.test_loss:.1e}", errors[0], "magma", 0, np.quantile(errors[1], 0.99)),
        (f"|error| of GDBoost, test MSE {gd.test_loss:.1e}", errors[1], "magma", 0, np.quantile(errors[1], 0.99)),
    ]
    for axis, (title, values, colours, low, high) in zip(row, panels, strict=True):
        image = axis.imshow(values.reshape(201, 201), origin="lower", extent=extent, cmap=colours, vmin=low, vmax=high)
        axis.set_title(title, fontsize=9)
        figure.colorbar(image, ax=axis, shrink=0.8)


def _draw_classes(row, vp: Run, gd: Run) -> None:  # type: ignore[no-untyped-def]
    data = vp.data
    limit = 1.25 if vp.task == "task2" else 3
    points, extent = _grid(-limit, limit)
    n_classes = int(data.y_train.max()) + 1
    colours = "coolwarm" if n_classes == 2 else "viridis"
    shown = {"cmap": colours, "vmin": 0, "vmax": n_classes - 1}
    row[0].scatter(*data.x_train.T, c=data.y_train, s=2, **shown)
    row[0].set(xlim=extent[:2], ylim=extent[2:], aspect="equal", title="truth")
    regions = [logits(r.fit.ensemble.predict(r.scaler(points))).argmax(axis=1).reshape(201, 201) for r in (vp, gd)]
    row[1].imshow(regions[0], origin="lower", extent=extent, **shown)
    row[1].set(title="VPBoost")
    for axis, one, region, label in ((row[2], vp, regions[0], "VPBoost"), (row[3], gd, regions[1], "GDBoost")):
        wrong = logits(one.fit.ensemble.predict(one.scaler(data.x_test))).argmax(axis=1) != data.y_test
        axis.imshow(region, origin="lower", extent=extent, alpha=0.35, **shown)
        axis.scatter(*data.x_test.T, c=data.y_test, s=3, **shown)
        axis.scatter(*data.x_test[wrong].T, s=45, facecolors="none", edgecolors="red")
        axis.set(xlim=extent[:2], ylim=extent[2:], aspect="equal")
        axis.set_title(f"{label}: {wrong.sum()} of {len(wrong)} wrong, loss {one.test_loss:.3f}", fontsize=9)
    for axis in row[:2]:
        axis.title.set_fontsize(9)


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
    console.print(f"Picture of truth, prediction and error: {picture}")
