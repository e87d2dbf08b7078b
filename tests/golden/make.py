"""Writes the golden model files of a format version, with what they predict. Run once per version, never again."""

import json
from pathlib import Path

import numpy as np

from vpboost import VPBoostClassifier, VPBoostRegressor

FOLDER = Path(__file__).parent
QUICK = {"n_estimators": 3, "max_steps": 4, "width": 3}


def write(name, model, X):
    model.save_model(FOLDER / f"{name}.vpboost")
    values = model._from_raw(model._raw(X))
    content = {"X": X.tolist(), "predictions": values.tolist()}
    (FOLDER / f"{name}.json").write_text(json.dumps(content) + "\n")


if __name__ == "__main__":
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3)).round(3)
    y = np.sin(X[:, 0]) + X[:, 1]
    write("version-1-regressor", VPBoostRegressor(**QUICK, encoding="quantile", max_features=0.5).fit(X, y), X[:10])
    targets = np.stack([y, y**2, X[:, 2]], axis=1)
    write("version-1-outputs", VPBoostRegressor(**QUICK, encoding="spline", dtype="float64").fit(X, targets), X[:10])
    labels = np.array(["low", "middle", "high"])[np.digitize(y, [-0.5, 0.5])]
    write("version-1-classes", VPBoostClassifier(**QUICK, featurizer="resnet").fit(X, labels), X[:10])
    images = rng.normal(size=(30, 18, 18)).round(2)
    factory = {"featurizer": "convnet", "n_estimators": 2, "max_steps": 2}
    write("version-1-images", VPBoostClassifier(**factory).fit(images, np.arange(30) % 2), images[:3])
