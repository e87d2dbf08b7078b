"""A trust-region tree booster in the manner of TRBoost, with XGBoost growing the trees.

Each stage grows a tree on the quadratic model with μ added to every second derivative, which is a trust region in
disguise: the larger μ, the shorter the step. The tree is kept if the loss really falls; μ shrinks where the model
predicted the fall well, and grows where it did not.
"""

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from vpboost import Loss

from .data import Parts
from .problems import Problem
from .protocol import Config, Fitted, Point, between

#: First μ, and the usual weight on the leaves' values.
SPACE = {"mu": between(1e-3, 100.0), "reg_lambda": between(1e-4, 100.0)}
#: A model that predicts at least this part of the real change is trusted more, one below the other part less.
TRUST_MORE, TRUST_LESS = 0.75, 0.25
FACTOR = 2.0


def derivatives(loss: Loss, raw: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return values, gradients and diagonals of the Hessians, one row a sample."""
    at = jnp.asarray(raw, jnp.float32), jnp.asarray(target)
    each = loss.value(*at), loss.gradient(*at), loss.curvature(*at).diagonal()
    return tuple(np.asarray(a, float) for a in jax.block_until_ready(each))  # type: ignore[return-value]


def fit(problem: Problem, parts: Parts, config: Config, seed: int) -> Fitted:
    """Grow as many trees as XGBoost at matched capacity, rejected ones included."""
    import xgboost

    loss, n_outputs = problem.loss, problem.n_outputs(parts)
    n_trees, depth = problem.trees
    target, target_val = (loss.prepare_targets(y) for y in (parts.y_train, parts.y_val))
    tables = [x.reshape(len(x), -1).astype(np.float32) for x in (parts.x_train, parts.x_val)]
    began = time.perf_counter()
    rows, rows_val = (xgboost.DMatrix(table) for table in tables)
    rows.set_label(np.zeros((len(target), n_outputs)))
    share = jnp.full((1, len(target)), 1 / len(target), jnp.float32)
    constant = np.asarray(loss.best_constant(jnp.asarray(target)[None], share), float)
    settings = {
        "max_depth": depth, "learning_rate": 1.0, "reg_lambda": config["reg_lambda"], "base_score": 0.0, "seed": seed,
        "tree_method": "hist", "objective": "reg:squarederror", "disable_default_eval_metric": 1,
    }  # fmt: skip
    booster = xgboost.Booster(settings, [rows])
    factor, mu, curve = problem.loss_factor(n_outputs), config["mu"], []
    raw = np.tile(constant, (len(target), 1))

    def predict(model: Any, table: Any) -> np.ndarray:
        margin = model.predict(table, output_margin=True) if model.num_boosted_rounds() else 0.0
        return constant + np.asarray(margin).reshape(table.num_row(), -1)

    best = booster.copy(), np.inf
    for stage in range(n_trees):
        value, gradient, hessian = derivatives(loss, raw, target)
        booster.boost(rows, stage, grad=gradient, hess=hessian + mu)
        trial = predict(booster, rows)
        step = trial - raw
        predicted = -np.mean(np.sum(gradient * step + 0.5 * hessian * step**2, axis=1))
        new_value = derivatives(loss, trial, target)[0]
        ratio = (value.mean() - new_value.mean()) / predicted if predicted > 0 else -np.inf
        if ratio > 0:
            raw, value = trial, new_value
        else:
            kept = booster.num_boosted_rounds() - 1
            booster = booster[:kept] if kept else xgboost.Booster(settings, [rows])
        mu = mu / FACTOR if ratio > TRUST_MORE else mu * FACTOR if ratio < TRUST_LESS else mu
        validation = factor * derivatives(loss, predict(booster, rows_val), target_val)[0].mean()
        curve.append(Point(stage + 1, time.perf_counter() - began, factor * value.mean(), validation))
        if validation < best[1]:
            best = booster.copy(), validation
    seconds = time.perf_counter() - began

    def raw_predictions(x: np.ndarray) -> np.ndarray:
        return predict(best[0], xgboost.DMatrix(x.reshape(len(x), -1).astype(np.float32)))

    return Fitted(raw_predictions, seconds, n_outputs * booster.num_boosted_rounds() * (2**depth - 1), curve)
