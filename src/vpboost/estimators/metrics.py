"""Validation scores by name (lower is better), and what predictions of a fitted estimator are worth."""

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from sklearn.metrics import r2_score, roc_auc_score
from sklearn.utils.validation import check_is_fitted

from ..suggest import did_you_mean
from ..tables.frames import column_names, column_values, is_frame

Score = Callable[[np.ndarray, np.ndarray, np.ndarray], float]


def _of_observed(score: Score) -> Score:
    """Return a score, the mean of those of the outputs, that leaves missing targets out."""

    def of_observed(y: np.ndarray, prediction: np.ndarray, weight: np.ndarray) -> float:
        known = ~np.isnan(_columns(y))
        if known.all():
            return score(y, prediction, weight)
        outputs = zip(known.T, _columns(y).T, _columns(prediction).T, strict=True)
        return float(np.nanmean([score(t[k], p[k], weight[k]) for k, t, p in outputs if k.any()]))

    return of_observed


def _rmse(y: np.ndarray, prediction: np.ndarray, weight: np.ndarray) -> float:
    error = _columns(y) - _columns(prediction)
    unit = _unit(error, axis=None)  # squares of huge or tiny numbers must not over- or underflow
    of_outputs = np.sqrt(np.average(np.square(error / unit), axis=0, weights=weight))
    return float(unit * of_outputs.mean())


def _mae(y: np.ndarray, prediction: np.ndarray, weight: np.ndarray) -> float:
    return float(np.average(np.abs(_columns(y) - _columns(prediction)).mean(axis=1), weights=weight))


def _negative_r2(y: np.ndarray, prediction: np.ndarray, weight: np.ndarray) -> float:
    return -float(r2_score(_columns(y), _columns(prediction), sample_weight=weight))


def _log_loss(y: np.ndarray, probability: np.ndarray, weight: np.ndarray) -> float:
    chosen = np.maximum(probability[np.arange(len(y)), y], np.finfo(float).tiny)
    return float(np.average(-np.log(chosen), weights=weight))


def _error(y: np.ndarray, probability: np.ndarray, weight: np.ndarray) -> float:
    return float(np.average(probability.argmax(axis=1) != y, weights=weight))


def _negative_auc(y: np.ndarray, probability: np.ndarray, weight: np.ndarray) -> float:
    if probability.shape[1] != 2:
        raise ValueError(f"eval_metric='auc' needs two classes, got {probability.shape[1]}")
    if len(np.unique(y)) < 2:
        return float("nan")
    return -float(roc_auc_score(y, probability[:, 1], sample_weight=weight))


REGRESSION: dict[str, Score] = {
    name: _of_observed(score) for name, score in (("rmse", _rmse), ("mae", _mae), ("r2", _negative_r2))
}
CLASSIFICATION: dict[str, Score] = {"log_loss": _log_loss, "error": _error, "auc": _negative_auc}


def score_function(metric: Any, classifier: bool) -> Score | None:
    """Return the score of that name (R² and AUC with their sign turned), or one made of a function; None for None."""
    if metric is None:
        return None
    if callable(metric):
        return lambda y, prediction, weight: _as_score(metric(y, prediction))
    allowed = CLASSIFICATION if classifier else REGRESSION
    if not isinstance(metric, str) or metric not in allowed:
        hint = did_you_mean(metric, allowed) if isinstance(metric, str) else ""
        raise ValueError(f"eval_metric must be one of {sorted(allowed)}, a function or None, got {metric!r}{hint}")
    return allowed[metric]


def _as_score(value: Any) -> float:
    if np.ndim(value) or not np.isrealobj(value) or isinstance(value, str | None):
        raise TypeError(f"eval_metric must return a number, got {value!r}")
    return float(value)


def _unit(values: np.ndarray, axis: int | None) -> np.ndarray:
    """Return a power of two, by which division is exact, near the largest magnitude; one if all are zero."""
    largest = np.abs(values).max(axis=axis)
    return np.where(largest > 0, np.ldexp(1.0, np.frexp(largest)[1] - 1), 1.0)


def _columns(values: np.ndarray) -> np.ndarray:
    return values.reshape(len(values), -1)


class Compared(NamedTuple):
    """The truth about some rows and what a model predicts for them."""

    truth: np.ndarray  #: values, (n_rows, n_outputs); of a classifier the numbers of the classes, (n_rows,)
    prediction: np.ndarray  #: values, (n_rows, n_outputs); of a classifier probabilities, (n_rows, n_classes)


def evaluate(model: Any, X: Any, y: Any) -> dict[str, float]:
    """Return what people ask about a fitted estimator's predictions.

    Parameters
    ----------
    model : VPBoostRegressor or VPBoostClassifier
        A fitted estimator.
    X : array-like or data frame
        Rows to predict.
    y : array-like, series or data frame
        The truth; of several outputs, missing values (NaN) do not count. The columns of a data frame that has the names
        of the model's outputs may be in any order.

    Returns
    -------
    dict of str to float
        Of a regressor: "r2", "rmse" and "mae", means over the outputs, and of several outputs also "r2 of name" and
        "rmse of name" for every one, by its number from 0 if it has no name. R² of a single row is NaN. Of several
        quantiles: "pinball_loss", and "below 0.9" for each, the part of the targets that is. Of a classifier:
        "accuracy" and "log_loss", and "auc" if there are two classes and y holds both.
    """
    if has_quantiles(model):
        return summary_of_quantiles(model, X, y)
    return summary(model, compare(model, X, y))


def has_quantiles(model: Any) -> bool:
    """Say whether a fitted estimator predicts several quantiles of each target."""
    check_is_fitted(model)
    return bool(np.ndim(getattr(model.loss_, "level", 0.0)))


def summary_of_quantiles(model: Any, X: Any, y: Any) -> dict[str, float]:
    """Return the mean pinball loss of several quantiles, and the part of targets that is below each."""
    truth = true_values(model, y)
    found = np.asarray(model.predict(X))
    check_rows(len(found), len(truth))
    error = truth[:, :, None] - found.reshape(*truth.shape, -1)
    levels, known = np.array(model.loss_.level), error[~np.isnan(truth)]
    parts = {f"below {level:g}": float((known[:, k] < 0).mean()) for k, level in enumerate(levels)}
    return {"pinball_loss": float(np.maximum(levels * known, (levels - 1) * known).mean()), **parts}


def compare(model: Any, X: Any, y: Any) -> Compared:
    """Predict rows; raise ``ValueError`` if the truth is not of that many rows, or not what the model predicts."""
    check_is_fitted(model)
    classifier = hasattr(model, "classes_")
    truth = true_classes(model, y) if classifier else true_values(model, y)
    prediction = np.asarray(model.predict_proba(X) if classifier else _columns(np.asarray(model.predict(X))))
    if not classifier and prediction.shape[1] != truth.shape[1]:
        raise ValueError("metrics are of one prediction for each target; this model predicts several quantiles")
    check_rows(len(prediction), len(truth))
    return Compared(truth, prediction)


def check_rows(n_inputs: int, n_targets: int) -> None:
    """Raise ``ValueError`` unless there are as many."""
    if n_inputs != n_targets:
        raise ValueError(f"X and y must have as many rows, got {n_inputs} and {n_targets}")


def summary(model: Any, compared: Compared) -> dict[str, float]:
    """Return the metrics that :func:`evaluate` is for."""
    truth, prediction = compared
    weight = np.ones(len(truth))
    if hasattr(model, "classes_"):
        found = {"accuracy": 1 - _error(truth, prediction, weight), "log_loss": _log_loss(truth, prediction, weight)}
        if len(model.classes_) == 2 and len(np.unique(truth)) == 2:
            found["auc"] = -_negative_auc(truth, prediction, weight)
        return found
    r2, rmse = scores_of_outputs(compared)
    of_all = {name: REGRESSION[name](truth, prediction, weight) for name in ("rmse", "mae")}
    found = {"r2": float(r2.mean()), **of_all}
    if truth.shape[1] > 1:
        for k, name in enumerate(getattr(model, "target_names_", None) or map(str, range(truth.shape[1]))):
            found[f"r2 of {name}"], found[f"rmse of {name}"] = float(r2[k]), float(rmse[k])
    return found


def scores_of_outputs(compared: Compared) -> tuple[np.ndarray, np.ndarray]:
    """Return R² and RMSE of every output; as in scikit-learn, R² of a constant is 0, or 1 if it is hit exactly."""
    truth, prediction = compared
    known = ~np.isnan(truth)
    if not known.all():  # missing ones do not count
        columns = zip(known.T, truth.T, prediction.T, strict=True)
        found = [scores_of_outputs(Compared(t[rows, None], p[rows, None])) for rows, t, p in columns]
        r2s, rmses = (np.concatenate(scores) for scores in zip(*found, strict=True))
        return r2s, rmses
    error, centred = truth - prediction, truth - truth.mean(axis=0)
    unit, spread = _unit(error, axis=0), _unit(centred, axis=0)
    rmse = unit * np.sqrt(np.square(error / unit).mean(axis=0))
    if len(truth) < 2:
        return np.full(truth.shape[1], np.nan), rmse
    deviation = spread * np.sqrt(np.square(centred / spread).mean(axis=0))
    constant = np.ptp(truth, axis=0) == 0
    with np.errstate(over="ignore"):  # as bad as can be is −inf
        r2 = 1 - np.square(rmse / np.where(constant, 1.0, deviation))
    return np.where(constant, np.where(rmse == 0, 1.0, 0.0), r2), rmse


def scores_of_classes(compared: Compared) -> dict[str, np.ndarray]:
    """Return precision, recall, their harmonic mean F1 and the number of rows of every class; NaN where undefined."""
    truth, predicted, n = compared.truth, compared.prediction.argmax(axis=1), compared.prediction.shape[1]
    rows, named = np.bincount(truth, minlength=n), np.bincount(predicted, minlength=n)
    hits = np.bincount(truth[truth == predicted], minlength=n)

    def share(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
        return np.where(whole > 0, part / np.maximum(whole, 1), np.nan)

    return {
        "precision": share(hits, named),
        "recall": share(hits, rows),
        "F1": share(2 * hits, rows + named),
        "rows": rows,
    }


def true_values(model: Any, y: Any) -> np.ndarray:
    """Return true values as numbers, (n_rows, n_outputs)."""
    try:
        values = np.asarray(_plain_values(model, y), dtype=float)
    except (TypeError, ValueError) as error:
        raise ValueError(f"y must hold numbers, as many in each row, got {type(y).__name__}: {error}") from error
    if values.ndim not in (1, 2) or not len(values) or _columns(values).shape[1] != model.n_outputs_:
        shape = "(n_rows,)" if model.n_outputs_ == 1 else f"(n_rows, {model.n_outputs_})"
        raise ValueError(f"y must have the shape {shape} with at least one row, got {values.shape}")
    values = _columns(values)
    bad = np.isinf(values).any(axis=1) | np.isnan(values).all(axis=1)
    if bad.any():
        raise ValueError(f"y has missing or infinite values in {bad.sum()} rows; leave these rows out of X and y")
    empty = np.flatnonzero(np.isnan(values).all(axis=0))
    if len(empty):
        raise ValueError(f"y has no target at all for output(s) {empty.tolist()}, so nothing can be told of these")
    return values


def _plain_values(model: Any, y: Any) -> Any:
    """Return the values of a data frame, in the order of the model's outputs if it has their names, or of a series."""
    if np.ma.is_masked(y):
        raise ValueError("y has masked values; leave these rows out of X and y")
    if is_frame(y):
        names, known = column_names(y), getattr(model, "target_names_", None) or []
        order = known if sorted(map(str, names)) == sorted(known) else names
        return np.stack([column_values(y[name]) for name in order], axis=1) if order else np.zeros((len(y), 0))
    return column_values(y) if hasattr(y, "dtype") and hasattr(y, "to_numpy") else y


def true_classes(model: Any, y: Any) -> np.ndarray:
    """Return the numbers of the true classes, (n_rows,)."""
    if np.ma.is_masked(y):
        raise ValueError("y has masked values; leave these rows out of X and y")
    labels = np.asarray(y)
    if not labels.ndim or labels.size != len(labels):
        raise ValueError(f"y must hold one label per row, got shape {labels.shape}")
    if not len(labels):
        raise ValueError("y has no rows; give at least one")
    if model.classes_.dtype.kind == "M" and labels.dtype.kind in "MO":
        with contextlib.suppress(TypeError, ValueError):  # what is no date is found unknown below
            labels = labels.astype(model.classes_.dtype)
    given, known = (
        a.astype(str).tolist() if a.dtype.kind == "M" else a.tolist() for a in (labels.reshape(-1), model.classes_)
    )
    # by equality, not by order: labels of other types than the classes can be looked up, too, and are found unknown
    numbers = {label: k for k, label in enumerate(known)}
    found = np.array([numbers.get(label, -1) for label in given])
    if (found < 0).any():
        shown = f"{known}" if len(known) <= 20 else f"{known[:20]} and {len(known) - 20} more"
        raise ValueError(f"y holds {given[int(np.argmin(found))]!r}, which is none of the model's classes {shown}")
    return found
