"""Writes the golden model files of a format version, with what they predict. Run once per version, never again."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from vpboost import ConvNet, VPBoostClassifier, VPBoostRegressor

FOLDER = Path(__file__).parent
QUICK = {"n_estimators": 3, "max_steps": 4, "width": 3}


def write(name, model, X):
    assert model.best_iteration_ > 0
    model.save_model(FOLDER / f"{name}.vpboost")
    values = model._from_raw(model._raw(X))
    columns = list(X.columns) if isinstance(X, pd.DataFrame) else None
    content = {
        "columns": columns,
        "X": (X if columns is None else X.to_numpy()).tolist(),
        "predictions": values.tolist(),
    }
    (FOLDER / f"{name}.json").write_text(json.dumps(content) + "\n")


if __name__ == "__main__":
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3)).round(3)
    y = np.sin(X[:, 0]) + X[:, 1]
    write("version-1-regressor", VPBoostRegressor(**QUICK, encoding="quantile", max_features=0.5).fit(X, y), X[:10])
    targets = pd.DataFrame({"a": y, "b": y**2, "c": X[:, 2]})
    write("version-1-outputs", VPBoostRegressor(**QUICK, encoding="spline", dtype="float64").fit(X, targets), X[:10])
    labels = np.array(["low", "middle", "high"])[np.digitize(y, [-0.5, 0.5])]
    classifier = VPBoostClassifier(**QUICK, featurizer="resnet", class_weight={"low": 2.0, "middle": 1.0, "high": 1.0})
    write("version-1-classes", classifier.fit(X, labels), X[:10])
    frame = pd.DataFrame({"size": X[:, 0], "kind": np.array(["u", "v", None], object)[np.arange(60) % 3]})
    frame.loc[::7, "size"] = np.nan
    write("version-1-frame", VPBoostRegressor(**QUICK, loss="poisson").fit(frame, np.exp(y)), frame.iloc[1:7])
    images = rng.normal(size=(60, 10, 9)).round(2)
    factory = partial(ConvNet, kernels=(3, 2), pools=(2, 2), channels=(2, 3), strides=(2, 1))
    convnet = VPBoostClassifier(n_estimators=2, max_steps=4, featurizer=factory)
    write("version-1-images", convnet.fit(images, images[:, 2:8, 2:8].mean(axis=(1, 2)) > 0), images[:3])
