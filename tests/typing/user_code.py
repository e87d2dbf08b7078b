"""What a user may write; ``make types`` checks it strictly, and nobody runs it."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, assert_type

import numpy as np

import vpboost
from vpboost import (
    MLP,
    Boosted,
    Ensemble,
    ModelFileError,
    Quantile,
    Record,
    SquaredError,
    Training,
    TrustRegion,
    VPBoostClassifier,
    VPBoostRegressor,
    boost,
    load_model,
)
from vpboost.callbacks import Checkpoint, EarlyStopping, Logger, Progress, TimeBudget
from vpboost.deprecation import deprecated_parameters
from vpboost.losses import Loss
from vpboost.mlflow import StageLogger, log_fit


def watch(progress: Progress) -> bool:
    assert_type(progress.stage, int)
    assert_type(progress.score, float)
    assert_type(progress.record, Record)
    return progress.score < 0.1


def fit(X: np.ndarray[Any, Any], y: np.ndarray[Any, Any], folder: Path) -> np.ndarray[Any, Any]:
    callbacks: list[Any] = [watch, Checkpoint(folder / "state"), EarlyStopping(5), TimeBudget(3.0), Logger()]
    model = VPBoostRegressor(n_estimators=10, loss=Quantile([0.1, 0.9]), callbacks=callbacks)
    model.fit(X, y, X_val=X, y_val=y)
    model.save_model(folder / "model", training_rows=False)
    try:
        again = load_model(folder / "model")
    except ModelFileError as error:
        print(error)
        raise
    prediction: np.ndarray[Any, Any] = again.predict(X)
    importances: np.ndarray[Any, Any] = model.feature_importances_
    print(importances.sum())
    return prediction


def classes(X: np.ndarray[Any, Any], labels: Sequence[str]) -> np.ndarray[Any, Any]:
    model = VPBoostClassifier(width=8).fit(X, labels)
    probabilities: np.ndarray[Any, Any] = model.predict_proba(X)
    return probabilities


def by_hand(X: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> float:
    loss: Loss = SquaredError()
    result = boost(
        X,
        y,
        loss=loss,
        featurizer=partial(MLP, width=4),
        training=Training(max_steps=3),
        trust_region=TrustRegion.paper(),
    )
    assert_type(result, Boosted)
    assert_type(result.ensemble, Ensemble)
    assert_type(result.history, list[Record])
    return result.history[-1].loss


@deprecated_parameters(since="0.3", until="0.5", old="new")
def renamed(new: int = 3) -> int:
    return new


def logged(model: VPBoostRegressor) -> str:
    StageLogger().run_id  # noqa: B018
    log_fit(model)
    assert_type(renamed(4), int)
    return vpboost.__version__
