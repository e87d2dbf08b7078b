"""The bits of a dozen fits: run it before and after a change that should change none, and compare what it prints.

    python benchmarks/fingerprints.py > before.txt
    python benchmarks/fingerprints.py | diff before.txt -

It uses public names only. A fingerprint is of predictions, gradients, history (but for the seconds) and learners; bits
are the same on one machine with one set of versions, and need not be on another.
"""

import hashlib
import tempfile
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd

import vpboost
from vpboost import MLP, ResNet, Training, TrustRegion, VPBoostClassifier, VPBoostRegressor
from vpboost.callbacks import Checkpoint

GOLDEN = Path(__file__).parents[1] / "tests" / "golden"
RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (400, 5))
Y = np.sin(3 * X[:, 0]) * X[:, 1] + X[:, 2] ** 2 + 0.05 * RNG.normal(size=400)
SEVERAL = np.stack([Y, X[:, 3] * X[:, 4], np.exp(X[:, 0])], axis=1)
CLASSES = np.digitize(X[:, 0] + X[:, 1] ** 2, [-0.3, 0.1, 0.6])
WEIGHT = RNG.uniform(0, 2, 400).round(1)
FRAME = pd.DataFrame(
    {
        "number": np.where(RNG.uniform(size=400) < 0.1, np.nan, X[:, 0]),
        "kind": RNG.choice(["a", "b", "c"], 400),
        "when": np.datetime64("2020-01-01") + np.arange(400) * np.timedelta64(36, "h"),
    }
)


def arrays_of(model: Any) -> list[Any]:
    """Return what a fitted estimator knows, predicts and has learnt."""
    history = [model.history_[name] for name in sorted(model.history_) if name != "seconds"]
    return [*history, *jax.tree.leaves(model.ensemble_), model.best_score_, list(model.race_.values())]


def outputs_of(model: Any, inputs: Any) -> list[Any]:
    """Return predictions and gradients, of few rows and of many."""
    many = pd.concat([inputs] * 5) if isinstance(inputs, pd.DataFrame) else np.concatenate([inputs] * 5)
    ask = model.predict_proba if hasattr(model, "predict_proba") else model.predict
    return [ask(inputs), ask(many), model.predict(inputs), model.input_gradient(inputs), model.feature_importances_]


def fitted(model: Any, inputs: Any, target: Any, **options: Any) -> list[Any]:
    model.fit(inputs, target, **options)
    return [*arrays_of(model), *outputs_of(model, inputs)]


def images() -> list[Any]:
    pictures = RNG.normal(size=(150, 12, 12))
    labels = (pictures[:, 3:6, 3:6].mean(axis=(1, 2)) > 0).astype(int)
    factory = partial(vpboost.ConvNet, kernels=(3, 3), pools=(2, 2), channels=(2, 2))
    return fitted(VPBoostClassifier(featurizer=factory, n_estimators=6, max_steps=10), pictures, labels)


def resumed() -> list[Any]:
    options: dict[str, Any] = {"n_estimators": 12, "max_steps": 8, "width": 4}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state"
        watched = VPBoostRegressor(**options, callbacks=[Checkpoint(path, every=5)]).fit(X, Y)
        again = VPBoostRegressor(**options).fit(X, Y, resume_from=path)
    return [*arrays_of(watched), *arrays_of(again), *outputs_of(again, X)]


def went_on() -> list[Any]:
    model = VPBoostRegressor(n_estimators=4, max_steps=8, warm_start=True).fit(X, SEVERAL, sample_weight=WEIGHT)
    return fitted(model.set_params(n_estimators=9), X, SEVERAL, sample_weight=WEIGHT)


def boosted() -> list[Any]:
    found: list[Any] = []
    wide = np.outer(Y, np.linspace(-1, 1, 70)) + SEVERAL[:, 1:2]
    squared: Any = {"loss": vpboost.SquaredError(), "validation": (X[:90], Y[:90])}
    cases: list[tuple[Any, dict[str, Any]]] = [
        (Y, {**squared, "training": Training(max_steps=20, candidates=3, inherit=0.5), "dtype": "float64"}),
        (Y, {**squared, "training": Training(method="gd", max_steps=20, batch_size=64)}),
        (Y, {**squared, "training": Training(method="vp_start_end", max_steps=30, tol=1e-2), "engine": "numpy"}),
        (wide, {"loss": vpboost.SquaredError(), "training": Training(max_steps=10, sketch=8)}),
        (CLASSES, {"loss": vpboost.MulticlassCrossEntropy(4), "trust_region": TrustRegion.paper()}),
        (CLASSES, {"loss": vpboost.MulticlassCrossEntropy(4), "training": Training(max_steps=9, solver="cg")}),
    ]
    for target, options in cases:
        options = {"n_learners": 4, "featurizer": partial(MLP, width=5, depth=1), **options}
        result = vpboost.boost(X, target, sample_weight=WEIGHT, **options)
        found += [np.array([record[:-1] for record in result.history], float), *jax.tree.leaves(result.ensemble)]
        again = vpboost.refit(result.ensemble, X, target, loss=options["loss"])
        found += jax.tree.leaves(again)
    return found


def restored() -> list[Any]:
    """Model files of earlier versions, predicted by JAX, by NumPy alone, and after being saved again."""
    found: list[Any] = []
    for path in sorted(GOLDEN.glob("*.vpboost")):
        model = vpboost.load_model(path)
        found += [*arrays_of(model), model.feature_importances_]
        if model.kinds_ is None:
            inputs = np.linspace(-2, 2, 7 * int(np.prod(model.input_encoder_.shape_)))
            inputs = inputs.reshape(7, *model.input_encoder_.shape_)
            found += [model.predict(inputs), model.input_gradient(inputs)]
    return found


def exported() -> list[Any]:
    from vpboost.export import to_numpy, to_onnx

    model = VPBoostClassifier(n_estimators=5, encoding="spline").fit(FRAME, CLASSES)
    with tempfile.TemporaryDirectory() as folder:
        data = to_onnx(model, Path(folder) / "model.onnx", dtype="float64").read_bytes()
        saved, _ = to_numpy(model, folder)
        again = vpboost.load_model(saved)
    return [np.frombuffer(data, np.uint8), *outputs_of(again, FRAME)]


def dense(prediction: Any, target: Any) -> Any:
    difference = prediction - target
    return 0.5 * (difference @ difference) + 0.25 * difference.sum() ** 2


FITS: dict[str, Callable[[], list[Any]]] = {
    "regressor": lambda: fitted(VPBoostRegressor(n_estimators=40), X, Y, sample_weight=WEIGHT),
    "several outputs, double precision": lambda: fitted(
        VPBoostRegressor(n_estimators=10, dtype="float64", encoding="quantile", eval_metric="mae"), X, SEVERAL
    ),
    "two classes, data frame": lambda: fitted(
        VPBoostClassifier(n_estimators=10, class_weight="balanced"), FRAME, np.where(CLASSES > 1, "high", "low")
    ),
    "four classes, XLA": lambda: fitted(
        VPBoostClassifier(n_estimators=10, engine="xla", max_features=0.5, reg_theta=1e-4), X, CLASSES
    ),
    "images": images,
    "robust and log-link losses": lambda: [
        *fitted(VPBoostRegressor(n_estimators=6, loss="quantile"), X, SEVERAL),
        *fitted(VPBoostRegressor(n_estimators=6, loss="poisson"), X, np.round(np.exp(SEVERAL)).clip(0)),
    ],
    "a loss of the user's own": lambda: fitted(
        VPBoostRegressor(n_estimators=5, loss=vpboost.CustomLoss(dense, structure="dense")), X, SEVERAL
    ),
    "a featurizer of the user's own choice": lambda: fitted(
        VPBoostRegressor(n_estimators=5, featurizer=partial(ResNet, width=6, activation="gelu")), X, Y
    ),
    "checkpoint and resume": resumed,
    "warm start": went_on,
    "boost and refit": boosted,
    "model files of earlier versions": restored,
    "export": exported,
}


def fingerprint(values: list[Any]) -> str:
    total = hashlib.sha256()
    for value in values:
        array = np.asarray(value)
        text = array.dtype.kind in "OU"
        total.update(f"{array.shape} {'' if text else array.dtype}".encode())
        total.update(str(array.tolist()).encode() if text else np.ascontiguousarray(array).tobytes())
    return total.hexdigest()[:16]


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    for name, fit in FITS.items():
        print(f"{fingerprint(fit())}  {name}", flush=True)
