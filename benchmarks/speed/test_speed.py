"""What users wait for, each a second at the most once compiled; benchmarks/versions.py keeps the times."""

import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.linalg import cho_factor, cho_solve

import vpboost
from vpboost import MLP, SquaredError, Training, VPBoostClassifier, VPBoostRegressor, boost

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (2000, 6))
Y = np.stack([np.sin(3 * X[:, 0]) * X[:, 1], X[:, 2] ** 2, X[:, 3] * X[:, 4]], axis=1)
FIXED: dict[str, Any] = {"encoding": "plain", "inherit": 0.5, "max_features": 1.0, "n_chains": 1, "n_estimators": 10}
FIXED |= {"early_stopping_rounds": None, "max_steps": 20, "width": 16}


def work() -> np.ndarray:
    """A fixed piece of NumPy's and SciPy's work, of the kinds that a fit does."""
    z = np.tanh(np.tile(X, (20, 8)) @ np.ones((48, 48)) / 48)
    return cho_solve(cho_factor(z.T @ z + np.eye(48)), z.T[:, :100])


@pytest.mark.parametrize("when", ["before", "after"])
def test_yardstick(benchmark: Any, when: str) -> None:
    benchmark.pedantic(work, rounds=20, warmup_rounds=3)


def test_import(benchmark: Any) -> None:
    benchmark.pedantic(lambda: subprocess.run([sys.executable, "-c", "import vpboost"], check=True), rounds=5)


def test_fit_numpy(benchmark: Any) -> None:
    benchmark.pedantic(lambda: VPBoostRegressor(**FIXED, engine="numpy").fit(X, Y), rounds=3, warmup_rounds=1)


def test_fit_xla(benchmark: Any) -> None:
    benchmark.pedantic(lambda: VPBoostRegressor(**FIXED, engine="xla").fit(X, Y), rounds=3, warmup_rounds=1)


def test_fit_classes(benchmark: Any) -> None:
    labels = np.digitize(Y[:, 0], [-0.3, 0.3])
    benchmark.pedantic(lambda: VPBoostClassifier(**FIXED, engine="xla").fit(X, labels), rounds=3, warmup_rounds=1)


def test_boost(benchmark: Any) -> None:
    fit = partial(boost, X, Y, loss=SquaredError(), featurizer=partial(MLP, width=16), n_learners=10)
    benchmark.pedantic(partial(fit, training=Training(max_steps=20)), rounds=3, warmup_rounds=1)


@pytest.fixture(scope="module")
def model() -> VPBoostRegressor:
    return VPBoostRegressor(**FIXED).fit(X, Y)


def test_predict_one_row(benchmark: Any, model: VPBoostRegressor) -> None:
    benchmark.pedantic(model.predict, (X[:1],), rounds=200, warmup_rounds=5)


def test_predict_many_rows(benchmark: Any, model: VPBoostRegressor) -> None:
    benchmark.pedantic(model.predict, (np.tile(X, (20, 1)),), rounds=5, warmup_rounds=1)


def test_gradient(benchmark: Any, model: VPBoostRegressor) -> None:
    benchmark.pedantic(model.input_gradient, (X,), rounds=5, warmup_rounds=1)


def test_save_and_load(benchmark: Any, model: VPBoostRegressor, tmp_path: Path) -> None:
    def both() -> None:
        model.save_model(tmp_path / "model")
        vpboost.load_model(tmp_path / "model")

    benchmark.pedantic(both, rounds=5, warmup_rounds=1)
