"""Validation scores by name; lower is better."""

from collections.abc import Callable
from typing import Any

import numpy as np

Score = Callable[[np.ndarray, np.ndarray, np.ndarray], float]


def _rmse(y: np.ndarray, prediction: np.ndarray, weight: np.ndarray) -> float:
    return float(np.sqrt(np.average(np.square(_columns(y) - _columns(prediction)).mean(axis=1), weights=weight)))


def _mae(y: np.ndarray, prediction: np.ndarray, weight: np.ndarray) -> float:
    return float(np.average(np.abs(_columns(y) - _columns(prediction)).mean(axis=1), weights=weight))


def _negative_r2(y: np.ndarray, prediction: np.ndarray, weight: np.ndarray) -> float:
    from sklearn.metrics import r2_score

    return -float(r2_score(_columns(y), _columns(prediction), sample_weight=weight))


def _log_loss(y: np.ndarray, probability: np.ndarray, weight: np.ndarray) -> float:
    chosen = np.maximum(probability[np.arange(len(y)), y], np.finfo(float).tiny)
    return float(np.average(-np.log(chosen), weights=weight))


def _error(y: np.ndarray, probability: np.ndarray, weight: np.ndarray) -> float:
    return float(np.average(probability.argmax(axis=1) != y, weights=weight))


def _negative_auc(y: np.ndarray, probability: np.ndarray, weight: np.ndarray) -> float:
    from sklearn.metrics import roc_auc_score

    if probability.shape[1] != 2:
        raise ValueError(f"eval_metric='auc' needs two classes, got {probability.shape[1]}")
    if len(np.unique(y)) < 2:
        return float("nan")
    return -float(roc_auc_score(y, probability[:, 1], sample_weight=weight))


REGRESSION: dict[str, Score] = {"rmse": _rmse, "mae": _mae, "r2": _negative_r2}
CLASSIFICATION: dict[str, Score] = {"log_loss": _log_loss, "error": _error, "auc": _negative_auc}


def score_function(metric: Any, classifier: bool) -> Score | None:
    """Return the score of that name (R² and AUC with their sign turned), or one made of a function; None for None."""
    if metric is None:
        return None
    if callable(metric):
        return lambda y, prediction, weight: float(metric(y, prediction))
    allowed = CLASSIFICATION if classifier else REGRESSION
    if metric not in allowed:
        raise ValueError(f"eval_metric must be one of {sorted(allowed)}, a function or None, got {metric!r}")
    return allowed[metric]


def _columns(values: np.ndarray) -> np.ndarray:
    return values.reshape(len(values), -1)


def evaluate(model: Any, X: Any, y: Any) -> dict[str, float]:
    """Return what people ask about a fitted estimator's predictions: R², errors; or accuracy, log-loss and AUC."""
    from sklearn.metrics import accuracy_score, mean_absolute_error, r2_score, roc_auc_score

    y = np.asarray(y)
    if hasattr(model, "classes_"):
        y = y.reshape(-1)
        unknown = ~np.isin(y, model.classes_)
        if unknown.any():
            other = y[unknown].tolist()[0]
            raise ValueError(f"y holds {other!r}, which is none of the model's classes {model.classes_.tolist()}")
        probability, place = model.predict_proba(X), np.searchsorted(model.classes_, y)
        found = {"accuracy": float(accuracy_score(place, probability.argmax(axis=1)))}
        found["log_loss"] = _log_loss(place, probability, np.ones(len(y)))
        if len(model.classes_) == 2 and len(np.unique(place)) == 2:
            found["auc"] = float(roc_auc_score(place, probability[:, 1]))
        return found
    truth, prediction = _columns(y.astype(float)), _columns(np.asarray(model.predict(X)))
    found = {"r2": float(r2_score(truth, prediction)) if len(truth) > 1 else float("nan")}
    found["rmse"] = _rmse(truth, prediction, np.ones(len(truth)))
    found["mae"] = float(mean_absolute_error(truth, prediction))
    if truth.shape[1] > 1:
        names = getattr(model, "target_names_", None) or [str(k) for k in range(truth.shape[1])]
        for k, name in enumerate(names):
            found[f"r2 of {name}"] = float(r2_score(truth[:, k], prediction[:, k])) if len(truth) > 1 else float("nan")
    return found
