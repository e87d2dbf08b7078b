"""Learners trained by C: the same as by XLA, whatever the vectors, threads and shapes."""

import itertools
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vpboost import (
    MLP,
    BinaryCrossEntropy,
    CustomLoss,
    MulticlassCrossEntropy,
    Poisson,
    ResNet,
    SquaredError,
    Training,
    TrustRegion,
    VPBoostClassifier,
    VPBoostRegressor,
    boost,
    native,
)
from vpboost.core import dense
from vpboost.featurizers import SomeColumns
from vpboost.native import library

pytestmark = pytest.mark.skipif(not native.is_available(), reason="vpboost was built without its C part")

RNG = np.random.default_rng(0)


def quartic(prediction, target):  # type: ignore[no-untyped-def]
    return (0.5 * (prediction - target) ** 2 + (prediction - target) ** 4).sum()


X = RNG.normal(size=(300, 5))
Y = np.stack([np.sin(2 * X[:, 0]) * X[:, 1], X[:, 2] ** 2], axis=1)
MANY = np.tanh(X @ RNG.normal(size=(5, 9)))
CASES = {
    "squared error": (SquaredError(), Y, {}),
    "batches": (SquaredError(), Y, {"batch_size": 64}),
    "penalty of theta": (SquaredError(), Y, {"reg_theta": 1e-2}),
    "sketch": (SquaredError(), MANY, {"sketch": 4}),
    "schedule": (SquaredError(), Y, {"schedule": "cosine", "step_size": 0.01}),
    "two classes": (BinaryCrossEntropy(), (Y[:, 0] > 0).astype(int), {}),
    "counts": (Poisson(), np.round(np.exp(Y[:, 0])), {}),
    "any loss of one output": (CustomLoss(quartic), Y[:, 0], {}),
    "three classes": (MulticlassCrossEntropy(3), np.digitize(Y[:, 0], [-0.3, 0.3]), {"majorant": True}),
}


def options_of(case: str, activation: str = "tanh", some: bool = False, **training: object) -> dict:
    loss, y, given = CASES[case]
    featurizer = partial(MLP, width=7, depth=1, activation=activation)
    if some:
        featurizer = partial(SomeColumns, factory=featurizer, fraction=0.5)
    return {
        "y": y, "loss": loss, "featurizer": featurizer, "n_learners": 3, "dtype": "float64",
        "training": Training(**{"max_steps": 15, "inherit": 0.5, **given, **training}),
        "trust_region": TrustRegion(reg_lambda=1e-3), "sample_weight": 0.5 + np.arange(300) % 3,
    }  # fmt: skip


@pytest.mark.parametrize("some", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_learners_are_those_of_xla(case: str, some: bool) -> None:
    activation = {"squared error": "silu", "batches": "relu"}.get(case, "tanh")
    options = options_of(case, activation, some)
    ours, theirs = (boost(X, engine=engine, **options) for engine in ("native", "xla"))
    assert [record.loss for record in ours.history] == pytest.approx([r.loss for r in theirs.history], rel=1e-9)
    np.testing.assert_allclose(ours.ensemble.predict(X), theirs.ensemble.predict(X), rtol=1e-6, atol=1e-8)
    assert not np.array_equal(ours.ensemble.predict(X), theirs.ensemble.predict(X))  # it is not the same program


@pytest.mark.parametrize("activation", list(native.ACTIVATIONS))
def test_single_precision_is_as_good(activation: str) -> None:
    options = {**options_of("squared error", activation), "dtype": "float32", "n_learners": 1}
    ours, theirs = (boost(X, engine=engine, **options).history[-1].loss for engine in ("native", "xla"))
    assert ours == pytest.approx(theirs, rel=0.02)


def dense_of(
    sizes: tuple, n_outputs: int, n_blocks: int, rows: int, dtype: str, activation: str = "tanh"
) -> native.Dense:
    rng = np.random.default_rng([*sizes, n_outputs, n_blocks, rows])
    n_theta = sum(m * (n + 1) for n, m in itertools.pairwise(sizes))
    theta, x = rng.normal(size=n_theta), rng.normal(size=(n_blocks, sizes[0], rows))
    curvature = rng.uniform(0.1, 1, (n_blocks, rows))
    gradient = rng.normal(size=(n_blocks, n_outputs, rows)) * curvature[:, None]
    scale = curvature.sum()
    arrays = (array.astype(dtype) for array in (theta / 2, x, gradient / scale, curvature / scale))
    return native.Dense(sizes, activation, *arrays)


def descent_of(steps: int, reg: float = 1e-3, chosen: np.ndarray | None = None) -> native.Descent:
    return native.Descent(np.full(steps, -0.02), np.ones(steps), chosen, reg, 0.0, 1e-8)


def features_of(dense: native.Dense) -> np.ndarray:
    """Features of all rows by plain NumPy, the constant one last."""
    z, at = np.moveaxis(dense.x, 1, 0).reshape(dense.sizes[0], -1).astype(float), 0
    act = {"tanh": np.tanh, "relu": lambda a: np.maximum(a, 0), "silu": lambda a: a / (1 + np.exp(-a))}[
        dense.activation
    ]
    for n, m in zip(dense.sizes[:-1], dense.sizes[1:], strict=True):
        weight, bias = dense.theta[at : at + m * n].reshape(m, n), dense.theta[at + m * n : at + m * (n + 1)]
        z, at = act(weight @ z + bias[:, None]), at + m * (n + 1)
    return np.vstack([z, np.ones(z.shape[1])])


def objective_of(dense: native.Dense, reg: float) -> float:
    """−½ ḡ·(H̄ + λI)⁻¹ḡ by dense linear algebra: the objective at w*."""
    z, gradient = features_of(dense), np.moveaxis(dense.gradient, 1, 0).reshape(dense.gradient.shape[1], -1)
    g = z @ gradient.T.astype(float)
    return -0.5 * float(np.sum(g * np.linalg.solve((z * dense.curvature.ravel()) @ z.T + reg * np.eye(len(z)), g)))


@settings(max_examples=25, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 19), min_size=2, max_size=4),
    n_outputs=st.integers(1, 11),
    n_blocks=st.integers(1, 5),
    rows=st.integers(1, 40),
    activation=st.sampled_from(list(native.ACTIVATIONS)),
)
def test_objective_is_that_of_dense_algebra(
    sizes: list, n_outputs: int, n_blocks: int, rows: int, activation: str
) -> None:
    dense = dense_of(tuple(sizes), n_outputs, n_blocks, 32 * rows, "float64", activation)
    expected = objective_of(dense, 1e-3)
    assert native.train(dense, descent_of(1))[0] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("activation", list(native.ACTIVATIONS))
def test_the_first_step_goes_against_the_slope(activation: str) -> None:
    dense = dense_of((3, 5, 4), 2, 2, 64, "float64", activation)
    before = dense.theta.copy()

    def objective(i: int, by: float) -> float:
        moved = before.copy()
        moved[i] += by
        return objective_of(dense._replace(theta=moved), 1e-3)

    slopes = np.array([(objective(i, 1e-6) - objective(i, -1e-6)) / 2e-6 for i in range(len(before))])
    native.train(dense, descent_of(1)._replace(damping=1e3))  # so that a step of Adam is as long as the slope
    np.testing.assert_allclose(dense.theta - before, -0.02 * slopes / (np.abs(slopes) + 1e3), rtol=1e-4, atol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_threads_do_not_change_a_bit(dtype: str) -> None:
    found = []
    for n_threads in (1, 2, 3, 16, 99):
        dense = dense_of((6, 9, 8), 3, 7, 1024, dtype)
        found.append((native.train(dense, descent_of(5), n_threads).tobytes(), dense.theta.tobytes()))
    assert len(set(found)) == 1


@pytest.mark.parametrize(("dtype", "close"), [("float32", 1e-4), ("float64", 1e-11)])
def test_vectors_of_other_processors_give_the_same(dtype: str, close: float) -> None:
    sizes = [size for size in (16, 32, 64) if size <= native.vector_bytes()]
    found = []
    for size in sizes:
        dense = dense_of((6, 9, 8), 3, 2, 96, dtype)
        native.train(dense, descent_of(5), vector_bytes=size)
        found.append(dense.theta)
    for one in found[1:]:
        np.testing.assert_allclose(one, found[0], rtol=close, atol=close)


def test_batches_are_of_the_blocks_chosen() -> None:
    whole, part = dense_of((4, 6), 2, 6, 64, "float64"), dense_of((4, 6), 2, 6, 64, "float64")
    chosen = np.array([[1, 4, 4]] * 3)
    parts = [np.ascontiguousarray(array[chosen[0]]) for array in (part.x, part.gradient, part.curvature)]
    trace = native.train(whole, descent_of(3, chosen=chosen))
    part = part._replace(x=parts[0], gradient=parts[1], curvature=parts[2])
    np.testing.assert_allclose(trace, native.train(part, descent_of(3)), rtol=1e-12)
    np.testing.assert_allclose(whole.theta, part.theta, rtol=1e-10)


def test_collinear_features_without_a_penalty() -> None:
    dense = dense_of((1, 30), 1, 1, 32, "float32")  # more features than one input can tell apart
    assert np.isfinite(native.train(dense, descent_of(20, reg=0.0))).all()


@pytest.mark.parametrize("spoilt", ["x", "gradient", "curvature", "theta"])
def test_what_is_not_finite_ends_all_the_same(spoilt: str) -> None:
    dense = dense_of((3, 4), 1, 2, 64, "float32")
    getattr(dense, spoilt).flat[0] = np.nan
    assert len(native.train(dense, descent_of(5))) == 5


def test_many_at_once() -> None:
    def one(_: int) -> bytes:
        dense = dense_of((5, 8), 2, 3, 512, "float32")
        native.train(dense, descent_of(20))
        return dense.theta.tobytes()

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(one, range(24)))) == 1
    assert library._n_running == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": np.zeros((2, 3, 63))}, "expected"),
        ({"theta": np.zeros(3)}, "expected"),
        ({"curvature": np.zeros((2, 64), np.float32)}, "expected"),
        ({"gradient": np.zeros((2, 64, 1)).transpose(0, 2, 1)[:, :, ::2]}, "expected"),
    ],
)
def test_arrays_that_c_would_misread(change: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        native.train(dense_of((3, 4), 1, 2, 64, "float64")._replace(**change), descent_of(2))


def test_blocks_that_are_not_there() -> None:
    for chosen in ([[2]], [[-1]]):
        with pytest.raises(ValueError, match="numbers of 2 blocks"):
            native.train(dense_of((3, 4), 1, 2, 64, "float64"), descent_of(1, chosen=np.array(chosen)))
    with pytest.raises(ValueError, match="multiple of 32"):
        native.train(dense_of((3, 4), 1, 2, 40, "float64"), descent_of(1))


@pytest.mark.parametrize(
    "options",
    [
        {"featurizer": partial(ResNet, width=4)},
        {"featurizer": partial(MLP, width=4, activation="gelu")},
        {"featurizer": partial(MLP, width=4), "bias": False},
        {"featurizer": partial(MLP, width=4), "training": Training(max_steps=4, method="gd")},
        {"featurizer": partial(MLP, width=4), "training": Training(max_steps=4, candidates=2)},
        {"featurizer": partial(MLP, width=4), "training": Training(max_steps=4, optimizer="lion")},
        {"featurizer": partial(MLP, width=4), "loss": Poisson(), "y": np.round(np.exp(Y))},
    ],
)
def test_what_c_does_not_know_goes_to_the_others(options: dict) -> None:
    options = {"y": Y, "loss": SquaredError(), "training": Training(max_steps=4), "n_learners": 2, **options}
    ours, theirs = (boost(X, engine=engine, dtype="float64", **options) for engine in ("native", "xla"))
    assert ours.history[-1].loss == pytest.approx(theirs.history[-1].loss, rel=1e-8)


def test_what_would_take_much_memory_goes_to_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "train", None)  # would be an error
    monkeypatch.setattr(dense, "MOST_KEPT", 320 * 14 - 1)  # 300 rows are 320 with their padding, of 7 + 7 units
    boost(X, engine="native", **options_of("squared error"))
    monkeypatch.setattr(dense, "MOST_KEPT", 320 * 14)
    with pytest.raises(TypeError):
        boost(X, engine="native", **options_of("squared error"))


def test_estimators_choose_it_where_it_suits() -> None:
    quick = {"n_estimators": 2, "max_steps": 3, "encoding": "plain", "inherit": 0.5, "max_features": 1.0}
    labels = np.digitize(Y[:, 0], [-0.3, 0.3])
    engines = {
        "native": [VPBoostRegressor(**quick), VPBoostClassifier(**quick), VPBoostRegressor(**quick, loss="poisson")],
        "numpy": [VPBoostRegressor(**quick, featurizer="resnet"), VPBoostRegressor(**quick, method="gd")],
    }
    for engine, models in engines.items():
        for model in models:
            y = labels if isinstance(model, VPBoostClassifier) else np.exp(Y[:, 0])
            assert engine_used(model, y) == engine


def engine_used(model: VPBoostRegressor, y: np.ndarray) -> str:
    seen = []
    choose = type(model)._choose_profile

    def watched(self: VPBoostRegressor, *args: object) -> tuple:
        run, interrupted = choose(self, *args)
        seen.append(run.plan.engine)
        return run, interrupted

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(model), "_choose_profile", watched)
        model.fit(X, y)
    return seen[0]


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "functions", lambda size=None: None)
    assert not native.is_available()
    quick = {"n_estimators": 2, "max_steps": 3, "encoding": "plain", "inherit": 0.5, "max_features": 1.0}
    assert engine_used(VPBoostRegressor(**quick), Y[:, 0]) == "numpy"
    with pytest.raises(ValueError, match="engine='native' needs vpboost's C part"):
        VPBoostRegressor(**quick, engine="native").fit(X, Y)
    with pytest.raises(RuntimeError, match="without its C part"):
        native.train(dense_of((3, 4), 1, 2, 64, "float64"), descent_of(1))


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system does not tie processes to cores")
def test_a_process_tied_to_a_core_has_one():
    code = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); from vpboost import native"
    found = subprocess.run([sys.executable, "-c", f"{code}; print(native.n_cores())"], capture_output=True, text=True)
    assert found.stdout == "1\n", found.stderr
