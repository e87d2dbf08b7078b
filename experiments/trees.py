"""Tree boosters: XGBoost at matched capacity, and the usual libraries at any, ended by early stopping."""

import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from . import trust_region_trees
from .data import Parts
from .problems import Problem
from .protocol import Config, Fitted, Method, Point, Space, always, between, whole

#: Learning rate and regularisation; of the unconstrained, depth as well.
MATCHED = {"learning_rate": between(0.02, 1.0), "reg_lambda": between(1e-4, 1e4)}
FREE = MATCHED | {"depth": whole(3, 9)}
THREADS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
#: Rounds without progress after which the unconstrained boosters stop.
PATIENCE = 50


def catboost_space(problem: Problem) -> Space:
    """Return what is tuned of CatBoost."""
    return FREE | {"depth": whole(3, problem.catboost_depth)}


def flat(x: np.ndarray) -> np.ndarray:
    """Return inputs as a table."""
    return x.reshape(len(x), -1).astype(np.float32)


def raw_of(predict: Callable[[np.ndarray], Any]) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function from inputs of any shape to an array of raw predictions."""
    return lambda x: np.asarray(predict(flat(x)), float).reshape(len(x), -1)


def fit_xgboost(problem: Problem, parts: Parts, config: Config, seed: int, matched: bool) -> Fitted:
    """Fit XGBoost, with as many trees as match the ensemble's capacity or as many as help."""
    import xgboost

    n_trees, depth = problem.trees if matched else (problem.most_trees, config["depth"])
    objective = {"regression": "reg:squarederror", "binary": "binary:logistic", "multiclass": "multi:softprob"}
    metric = {"regression": "rmse", "binary": "logloss", "multiclass": "mlogloss"}[problem.kind]
    estimator = xgboost.XGBRegressor if problem.kind == "regression" else xgboost.XGBClassifier
    model = estimator(
        objective=objective[problem.kind], n_estimators=n_trees, max_depth=depth,
        learning_rate=config["learning_rate"], reg_lambda=config["reg_lambda"], eval_metric=metric,
        early_stopping_rounds=None if matched else PATIENCE, n_jobs=THREADS, random_state=seed, tree_method="hist",
    )  # fmt: skip
    pairs = [(flat(parts.x_train), parts.y_train), (flat(parts.x_val), parts.y_val)]
    began = time.perf_counter()
    model.fit(*pairs[0], eval_set=pairs, verbose=False)
    seconds = time.perf_counter() - began
    power = 2 if metric == "rmse" else 1
    histories = [np.array(model.evals_result()[f"validation_{i}"][metric]) ** power for i in (0, 1)]
    curve = [
        Point(i + 1, seconds * (i + 1) / len(histories[0]), float(train), float(validation))
        for i, (train, validation) in enumerate(zip(*histories, strict=True))
    ]
    raw = raw_of(model.predict if problem.kind == "regression" else partial(model.predict, output_margin=True))
    used = len(curve) if matched else model.best_iteration + 1
    return Fitted(raw, seconds, problem.n_outputs(parts) * used * (2**depth - 1), curve)


def fit_lightgbm(problem: Problem, parts: Parts, config: Config, seed: int) -> Fitted:
    """Fit LightGBM with early stopping, one model per output."""
    import lightgbm

    estimator = lightgbm.LGBMRegressor if problem.kind == "regression" else lightgbm.LGBMClassifier
    outputs = [slice(None)] if np.ndim(parts.y_train) == 1 else [np.s_[:, k] for k in range(parts.y_train.shape[1])]
    x, x_val, models, began = flat(parts.x_train), flat(parts.x_val), [], time.perf_counter()
    for output in outputs:
        model = estimator(
            n_estimators=problem.most_trees, learning_rate=config["learning_rate"], reg_lambda=config["reg_lambda"],
            num_leaves=2 ** config["depth"] - 1, max_depth=config["depth"], n_jobs=THREADS, random_state=seed,
            verbose=-1,
        )  # fmt: skip
        stop = lightgbm.early_stopping(PATIENCE, verbose=False)
        watched: dict[str, Any] = {"eval_X": x_val, "eval_y": parts.y_val[output]}
        models.append(model.fit(x, parts.y_train[output], callbacks=[stop], **watched))
    seconds = time.perf_counter() - began

    def predict(x: np.ndarray) -> np.ndarray:
        each = [np.asarray(m.predict(x, raw_score=True)).reshape(len(x), -1) for m in models]
        return np.concatenate(each, axis=1)

    n_trees = sum(m.best_iteration_ * m.booster_.num_model_per_iteration() for m in models)
    return Fitted(raw_of(predict), seconds, n_trees * (2 ** config["depth"] - 1), [])


def fit_catboost(problem: Problem, parts: Parts, config: Config, seed: int) -> Fitted:
    """Fit CatBoost (MultiRMSE for several outputs) with early stopping."""
    import catboost

    n_outputs = problem.n_outputs(parts)
    several = {"loss_function": "MultiRMSE"} if np.ndim(parts.y_train) > 1 else {}
    estimator = catboost.CatBoostRegressor if problem.kind == "regression" else catboost.CatBoostClassifier
    model = estimator(
        iterations=problem.most_trees, learning_rate=config["learning_rate"],
        l2_leaf_reg=config["reg_lambda"], depth=config["depth"], early_stopping_rounds=PATIENCE, thread_count=THREADS,
        random_seed=seed, verbose=False, allow_writing_files=False, **several,
    )  # fmt: skip
    began = time.perf_counter()
    model.fit(flat(parts.x_train), parts.y_train, eval_set=(flat(parts.x_val), parts.y_val))
    seconds = time.perf_counter() - began
    raw = raw_of(partial(model.predict, prediction_type="RawFormulaVal"))
    return Fitted(raw, seconds, n_outputs * model.tree_count_ * (2 ** config["depth"] - 1), [])


METHODS = [
    Method("xgboost", "XGBoost, matched", always(MATCHED), partial(fit_xgboost, matched=True), "xgboost"),
    Method(
        "trboost", "TRBoost-style trees, matched", always(trust_region_trees.SPACE), trust_region_trees.fit, "xgboost"
    ),
    Method("xgboost_free", "XGBoost, unconstrained", always(FREE), partial(fit_xgboost, matched=False), "xgboost"),
    Method("lightgbm_free", "LightGBM, unconstrained", always(FREE), fit_lightgbm, "lightgbm"),
    Method("catboost_free", "CatBoost, unconstrained", catboost_space, fit_catboost, "catboost"),
]
