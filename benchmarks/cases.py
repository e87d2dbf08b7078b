"""The cases of :mod:`performance`: each returns numbers, times in seconds."""

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from vpboost import (
    MLP,
    MulticlassCrossEntropy,
    SquaredError,
    Training,
    TrustRegion,
    VPBoostClassifier,
    VPBoostRegressor,
    boost,
    cache_compilation,
    datasets,
)
from vpboost.core.objective import CG_AT_END, value_and_slopes
from vpboost.core.reduced import Derivatives, optimal_weights, optimal_weights_cg, reduce
from vpboost.engine import ENGINES
from vpboost.featurizers import with_bias
from vpboost.losses.curvature import ScaledIdentity, Softmax

THREADS = 2


def median_seconds(function: Callable[[], Any], repeats: int) -> float:
    """Return the median time of some calls after a first one."""
    function()
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - began)
    return float(np.median(seconds))


def matrix_multiply_peak() -> float:
    """Return the machine's single-precision matrix-multiply rate, in GF/s: what all speeds may be held against."""
    a = np.random.default_rng(0).normal(size=(2048, 2048)).astype(np.float32)
    return 2 * 2048**3 / median_seconds(lambda: a @ a, 5) / 1e9


def in_new_process(case: str, *arguments: str) -> dict[str, float]:
    """Run ``python cases.py CASE ...`` and return the numbers it prints."""
    environment = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
    environment["VPBOOST_CACHE"] = "off"  # unless the case names a folder
    command = [sys.executable, __file__, case, *arguments]
    printed = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    return {name: float(value) for name, value in (line.split("=") for line in printed.splitlines() if "=" in line)}


def time_to_reach(target: float, seed: int, engine: str) -> dict[str, float]:
    """Boost on task 1 at the paper's architecture until the test error is ``target``; return the time it took."""
    data = datasets.task1(seed=seed)
    mean, spread = data.x_train.mean(axis=0), data.x_train.std(axis=0)
    began, reached = time.perf_counter(), []

    def watch(stage: Any) -> bool:
        reached.append((2 * stage.record.validation_loss, time.perf_counter() - began))
        return reached[-1][0] <= target

    boost(
        (data.x_train - mean) / spread, data.y_train, loss=SquaredError(), n_learners=100, callback=watch,
        featurizer=partial(MLP, width=4, depth=2, init_scale=3.0), training=Training(max_steps=100, inherit=0.8),
        trust_region=TrustRegion(reg_lambda=1e-5, rate=0.5), seed=seed, engine=engine,
        validation=((data.x_test - mean) / spread, data.y_test),
    )  # fmt: skip
    return {"mse": reached[-1][0], "seconds": reached[-1][1], "learners": float(len(reached))}


def task1() -> dict[str, Any]:
    """Task 1 at the paper's architecture: time to CatBoost's early-stopped test error, beside CatBoost's fit time.

    Over five seeds of data and training; VPBoost gets up to 100 learners, and infinite time where they do not suffice.
    Warm: a repeated fit. Cold: the first of a new process. With either engine.
    """
    import catboost as cb

    found: dict[str, Any] = {}
    ratios: dict[str, list[float]] = defaultdict(list)
    for seed in range(5):
        data = datasets.task1(seed=seed)

        def fit(data: Any = data) -> Any:
            model = cb.CatBoostRegressor(
                iterations=2000, early_stopping_rounds=50, thread_count=THREADS, verbose=False,
                allow_writing_files=False,
            )  # fmt: skip
            return model.fit(data.x_train, data.y_train, eval_set=(data.x_val, data.y_val))

        seconds = median_seconds(fit, 3)
        error = float(np.mean((fit().predict(data.x_test) - data.y_test) ** 2))
        found[f"seed {seed}"] = {"catboost test mse": error, "catboost seconds": seconds}
        for engine in ENGINES:
            time_to_reach(error, seed, engine)
            warm, cold = time_to_reach(error, seed, engine), in_new_process("task1", str(error), str(seed), engine)
            found[f"seed {seed}"][engine] = warm
            for kind, run in (("warm", warm), ("cold", cold)):
                ratios[f"{engine}, {kind}"].append(run["seconds"] / seconds if run["mse"] <= error else np.inf)
    return {**found, "median ratio of times": {kind: float(np.median(each)) for kind, each in ratios.items()}}


def start_up() -> dict[str, Any]:
    """First and second fits of new processes on 800 × 8, with a race of profiles and without, with either engine.

    With XLA also when programs are kept on disk.
    """
    found: dict[str, Any] = {}
    for settings in ("race", "one profile"):
        for engine in ENGINES:
            runs = [in_new_process("start_up", settings, engine) for _ in range(3)]
            found[f"{settings}, {engine}"] = {
                "first fit": float(np.median([run["first"] for run in runs])),
                "second fit": float(np.median([run["second"] for run in runs])),
            }
        with tempfile.TemporaryDirectory() as folder:
            kept = [in_new_process("start_up", settings, "xla", folder)["first"] for _ in range(3)][1:]
        found[f"{settings}, xla"]["first fit, programs on disk"] = float(np.median(kept))
    return found


def first_fits(settings: str, engine: str, folder: str | None = None) -> dict[str, float]:
    """Fit a small table twice and return the times."""
    if folder is not None:
        cache_compilation(folder)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(800, 8))
    y = np.sin(x[:, 0]) + x[:, 1] * x[:, 2] + 0.1 * rng.normal(size=800)
    profile: dict[str, Any] = {"encoding": "plain", "inherit": 0.8, "max_features": 1.0}
    found = {}
    for name in ("first", "second"):
        began = time.perf_counter()
        VPBoostRegressor(engine=engine, **({} if settings == "race" else profile)).fit(x, y)
        found[name] = time.perf_counter() - began
    return found


def stage_seconds(n_rows: int, n_inputs: int, n_outputs: int, width: int, repeats: int = 3, **options: Any) -> float:
    """Return the median time of a warm stage of squared error: training, solve, trust region and diagnostics."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n_rows, n_inputs))
    y = np.tanh(x @ rng.normal(size=(n_inputs, 20))) @ rng.normal(size=(20, n_outputs))
    training = Training(**{"max_steps": 100, **options})
    fit = boost(
        x, y, loss=SquaredError(), featurizer=partial(MLP, width=width), training=training, n_learners=1 + repeats
    )
    return float(np.median([record.seconds for record in fit.history[1:]]))


def outputs() -> dict[str, Any]:
    """Cost of a stage against the number of outputs (N = 4,000, width 16, 100 steps), with and without a sketch."""
    sizes = (1, 16, 128, 1024, 4096)
    plain = {k: stage_seconds(4000, 10, k, 16) for k in sizes[:-1]}
    sketch = {k: stage_seconds(4000, 10, k, 16, sketch=32) for k in sizes}
    return {
        "seconds of a stage": {str(k): v for k, v in sketch.items()},
        "ratio to one output": {str(k): v / sketch[1] for k, v in sketch.items()},
        "ratio without the sketch": {str(k): v / plain[1] for k, v in plain.items()},
    }


def softmax() -> dict[str, Any]:
    """Softmax, 17 features: solving for w* by conjugate gradients and densely, 100 classes; a stage, 1,000 classes."""
    rng, n_rows, n_classes, n = np.random.default_rng(0), 4000, 100, 17
    logits = rng.normal(size=(1, n_rows, n_classes))
    probabilities = jnp.asarray(np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True), jnp.float32)
    chosen = jax.nn.one_hot(rng.integers(0, n_classes, (1, n_rows)), n_classes)
    features = jnp.asarray(np.tanh(rng.normal(size=(1, n, n_rows))), jnp.float32)
    weight = jnp.full((1, n_rows), 1 / n_rows)
    derivatives = Derivatives(weight, probabilities - chosen, Softmax(probabilities))
    reg, start = jnp.asarray(1e-4), jnp.zeros((n, n_classes))
    by_cg = jax.jit(lambda: optimal_weights_cg(features, derivatives, reg, start, *CG_AT_END).weights)
    densely = jax.jit(lambda: optimal_weights(reduce(features, derivatives), reg).weights)
    with jax.enable_x64(True):
        double = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf), jnp.float64), (features, derivatives))
        exact = np.asarray(optimal_weights(reduce(*double), jnp.asarray(1e-4)).weights)

    def error(weights: jax.Array) -> float:
        return float(np.linalg.norm(weights - exact) / np.linalg.norm(exact))

    cg = median_seconds(lambda: jax.block_until_ready(by_cg()), 5)
    dense = median_seconds(lambda: jax.block_until_ready(densely()), 3)
    y = np.concatenate([np.arange(1000), rng.integers(0, 1000, 3000)])
    fit = boost(
        rng.normal(size=(4000, 10)), y, loss=MulticlassCrossEntropy(1000), featurizer=partial(MLP, width=16),
        n_learners=3, training=Training(max_steps=10), trust_region=TrustRegion(reg_lambda=1e-3),
    )  # fmt: skip
    return {
        "100 classes, solve": {"conjugate gradients": cg, "dense": dense, "ratio": dense / cg},
        "error against double precision": {"conjugate gradients": error(by_cg()), "dense": error(densely())},
        "1,000 classes, seconds of a stage of 10 steps": float(np.median([r.seconds for r in fit.history[1:]])),
    }


def unblocked_step(module: Any, x: jax.Array, gradient: jax.Array, reg: float) -> Any:
    """The slopes of a θ step as one would write them with plain JAX: all rows at once."""
    theta, structure = eqx.partition(module, eqx.is_inexact_array)

    def objective(theta: Any) -> jax.Array:
        z = jax.vmap(eqx.combine(theta, structure))(x)
        fixed, n = jax.lax.stop_gradient(z), len(x)
        system = fixed.T @ fixed / n + reg * jnp.eye(z.shape[1])
        weights = -jnp.linalg.solve(system, fixed.T @ gradient / n)
        step = z @ weights
        return jnp.sum(step * (gradient + 0.5 * step)) / n

    return jax.grad(objective)(theta)


def theta_step() -> dict[str, Any]:
    """A full-batch θ step on 1,000,000 × 28, width 16: in blocks, and unblocked in plain JAX."""
    n_rows, rows = 1 << 20, 8192
    key = jax.random.key(0)
    x = jax.random.normal(key, (n_rows // rows, 28, rows))
    gradient = jax.random.normal(key, (n_rows // rows, rows, 1))
    module = with_bias(partial(MLP, width=16, depth=2))(key, jnp.zeros((2, 28)))
    theta, structure = eqx.partition(module, eqx.is_inexact_array)
    shape = gradient.shape[:2]
    derivatives = Derivatives(jnp.full(shape, 1 / n_rows), gradient, ScaledIdentity(jnp.ones(shape), 1))
    blocked, build = eqx.filter_jit(value_and_slopes), lambda t: eqx.combine(t, structure)
    start, reg = jnp.zeros((17, 1)), jnp.asarray(1e-4)
    flat_x, flat_gradient = jnp.moveaxis(x, 1, 2).reshape(n_rows, 28), gradient.reshape(n_rows, 1)
    plain = eqx.filter_jit(unblocked_step)
    expected = jax.tree.leaves(plain(module, flat_x, flat_gradient, 1e-4))
    found = jax.tree.leaves(blocked(theta, start, build, x, derivatives, reg, 0.0, "direct")[1][0])
    worst = max(float(jnp.max(jnp.abs(a - b)) / jnp.max(jnp.abs(a))) for a, b in zip(expected, found, strict=True))
    ours = median_seconds(
        lambda: jax.block_until_ready(blocked(theta, start, build, x, derivatives, reg, 0.0, "direct")), 5
    )
    theirs = median_seconds(lambda: jax.block_until_ready(plain(module, flat_x, flat_gradient, 1e-4)), 5)
    # multiply-adds of a row: forward and twice backward through the layers (not to the inputs), Gram matrix and step
    work = 2 * n_rows * (3 * (28 * 16 + 2 * 16 * 16) - 28 * 16 + 17 * 17 + 3 * 17)
    return {
        **{"in blocks": ours, "unblocked": theirs, "ratio": theirs / ours, "largest relative difference": worst},
        "part of the matrix-multiply peak": work / ours / 1e9 / matrix_multiply_peak(),
    }


def higgs_like(n_rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a made-up table of 28 columns whose classes depend on smooth combinations of them, with noise."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n_rows, 28)).astype(np.float32)
    mass = np.sqrt((x[:, 0] + x[:, 1]) ** 2 + (x[:, 2] - x[:, 3]) ** 2) + 0.7 * np.tanh(x[:, 4] * x[:, 5])
    score = 1.2 * np.sin(1.5 * mass) + 0.6 * x[:, 6] * x[:, 7] + 0.3 * x[:, 8]
    return x, (rng.uniform(size=n_rows) < 1 / (1 + np.exp(-2 * score))).astype(int)


def million_rows() -> dict[str, Any]:
    """25 learners on 1,000,000 × 28 beside XGBoost's 200 trees of depth 7: time, and log-loss on 100,000 new rows."""
    import xgboost as xgb
    from sklearn.metrics import log_loss

    (x, y), (x_new, y_new) = higgs_like(1_000_000, 0), higgs_like(100_000, 1)

    def ours() -> Any:
        model = VPBoostClassifier(
            n_estimators=25, learning_rate=0.3, encoding="plain", inherit=0.8, max_features=1.0,
            early_stopping_rounds=None,
        )  # fmt: skip
        return model.fit(x, y)

    def theirs() -> Any:
        return xgb.XGBClassifier(n_estimators=200, max_depth=7, n_jobs=THREADS).fit(x, y)

    found: dict[str, Any] = {}
    for name, fit in (("vpboost", ours), ("xgboost", theirs)):
        seconds = median_seconds(fit, 1)
        found[name] = {"seconds": seconds, "log loss": float(log_loss(y_new, fit().predict_proba(x_new)))}
    return {**found, "ratio of times": found["vpboost"]["seconds"] / found["xgboost"]["seconds"]}


def memory() -> dict[str, Any]:
    """Peak memory of a fit on 10,000,000 × 28 single-precision numbers, in a process of its own."""
    return in_new_process("memory", "10000000")


def peak_memory(n_rows: int) -> dict[str, float]:
    """Fit three learners and return the process's high-water mark, in GB."""
    x = np.empty((n_rows, 28), np.float32)
    for begin in range(0, n_rows, 500_000):
        part = x[begin : begin + 500_000]
        part[:] = np.random.default_rng(begin).normal(size=part.shape)
    y = x[:, 0] * x[:, 1] + np.sin(2 * x[:, 2]) > 0
    began = time.perf_counter()
    VPBoostClassifier(
        n_estimators=3, early_stopping_rounds=None, encoding="plain", inherit=0.8, max_features=1.0
    ).fit(x, y)  # fmt: skip
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    return {"table GB": x.nbytes / 1e9, "peak GB": peak, "seconds": time.perf_counter() - began}


def prediction() -> dict[str, Any]:
    """Prediction of 100,000 rows and of one, beside XGBoost with as many parameters."""
    import xgboost as xgb

    rng = np.random.default_rng(0)
    x, many = rng.normal(size=(4000, 10)), rng.normal(size=(100_000, 10))
    y = np.sin(x[:, 0]) + x[:, 1] * x[:, 2]
    ours = VPBoostRegressor(
        n_estimators=50, encoding="plain", inherit=0.8, max_features=1.0, early_stopping_rounds=None
    ).fit(x, y)  # fmt: skip
    n_parameters = ours.ensemble_.n_parameters
    theirs = xgb.XGBRegressor(n_estimators=round(n_parameters / 63), max_depth=6, n_jobs=THREADS).fit(x, y)
    found: dict[str, Any] = {"parameters": n_parameters}
    for rows, name, repeats in ((many, "100,000 rows", 5), (x[:1], "one row", 300)):
        seconds = {
            "vpboost": median_seconds(lambda rows=rows: ours.predict(rows), repeats),  # type: ignore[misc]
            "xgboost": median_seconds(lambda rows=rows: theirs.predict(rows), repeats),  # type: ignore[misc]
        }
        found[name] = {**seconds, "ratio": seconds["vpboost"] / seconds["xgboost"]}
    return found


def scaling() -> dict[str, Any]:
    """Cost against rows, outputs, features and learners, and the slopes on log axes."""

    def fit_seconds(n_learners: int) -> float:
        rng = np.random.default_rng(0)
        x = rng.normal(size=(2000, 10))
        fit = partial(boost, x, np.tanh(x[:, 0]), loss=SquaredError(), featurizer=partial(MLP, width=16))
        return median_seconds(lambda: fit(n_learners=n_learners, training=Training(max_steps=50)), 3)

    of: dict[str, tuple[tuple[int, ...], Callable[[int], float]]] = {
        "rows": ((2000, 8000, 32_000, 128_000), lambda n: stage_seconds(n, 10, 1, 16, max_steps=20)),
        "outputs": ((1, 8, 64, 512), lambda k: stage_seconds(4000, 10, k, 16, sketch=32)),
        "features": ((8, 16, 32, 64, 128), lambda n: stage_seconds(4000, 10, 1, n, max_steps=20)),
        "learners": ((4, 16, 64), fit_seconds),
    }
    found: dict[str, Any] = {}
    for name, (sizes, seconds_of) in of.items():
        seconds = [seconds_of(size) for size in sizes]
        slope = float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])
        found[name] = {"sizes": list(sizes), "seconds": seconds, "slope": slope}
    return found


CASES: dict[str, Callable[[], dict[str, Any]]] = {
    "task1": task1,
    "start_up": start_up,
    "outputs": outputs,
    "softmax": softmax,
    "prediction": prediction,
    "scaling": scaling,
    "theta_step": theta_step,
    "million_rows": million_rows,
    "memory": memory,
}
#: Cases with millions of rows.
LARGE = ("million_rows", "memory")

#: What :func:`in_new_process` can run.
PARTS: dict[str, Callable[..., dict[str, float]]] = {
    "task1": lambda target, seed, engine: time_to_reach(float(target), int(seed), engine),
    "start_up": first_fits,
    "memory": lambda n_rows: peak_memory(int(n_rows)),
}

if __name__ == "__main__":
    case, *given = sys.argv[1:]
    for label, value in PARTS[case](*given).items():
        print(f"{label}={value}")
