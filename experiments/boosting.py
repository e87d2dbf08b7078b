"""The paper's boosting methods: they differ in when the linear weights are solved for."""

import time
from functools import partial

import jax.numpy as jnp
from optuna.distributions import FloatDistribution

from vpboost import Ensemble, Stage, Training, TrustRegion, boost, refit, retrain
from vpboost.featurizers import SomeColumns

from .data import Parts
from .problems import Problem
from .protocol import Config, Fitted, Method, Point, Space, between

#: Rounds of going back, and how many times the steps of a stage each takes.
ROUNDS, LONGER = 8, 4


def paper_space(problem: Problem) -> Space:
    """Learning rate and regularisation, tuned jointly as in the paper."""
    return {"step_size": between(1e-3, 0.5), "reg_lambda": between(1e-8, problem.largest_lambda)}


def more_space(problem: Problem) -> Space:
    """Tune the library's additions too: boosting rate, inheritance, λ_θ, and λ of the last solve of all weights.

    On noisy tables also the part of the columns that a learner sees.
    """
    columns = {"max_features": FloatDistribution(0.3, 1.0)} if problem.hides_columns else {}
    return {
        **paper_space(problem),
        **columns,
        "rate": between(0.05, 1.0),
        "inherit": FloatDistribution(0.0, 0.9),
        "reg_theta": between(1e-8, 1e-3),
        "refit_lambda": between(1e-8, problem.largest_lambda),
    }


def back_space(problem: Problem) -> Space:
    """Tune going back as well: step size and λ_w of the joint training."""
    return {**more_space(problem), "back_step": between(1e-3, 0.1), "back_lambda": between(1e-9, 1e-2)}


def trust_region(method: str, config: Config) -> TrustRegion:
    """Return Algorithm 2 as the paper has it, or, with a boosting rate, the library's.

    The library solves a rejected learner again; that makes no sense for a method that does not solve at the end.
    """
    if "rate" not in config:
        return TrustRegion.paper(reg_lambda=config["reg_lambda"])
    return TrustRegion(
        reg_lambda=config["reg_lambda"], rate=config["rate"], **({"resolves": 0} if method == "gd" else {})
    )


def fit(problem: Problem, parts: Parts, config: Config, seed: int, method: str) -> Fitted:
    """Boost; drop the learners after the lowest validation loss; solve for those left together if that helps."""
    curve: list[Point] = []
    featurizer = problem.learner(problem.width)
    if config.get("max_features", 1.0) < 1:
        fraction = jnp.float32(config["max_features"])  # an array: another value needs no other program
        featurizer = partial(SomeColumns, factory=featurizer, fraction=fraction)
    factor = problem.loss_factor(problem.n_outputs(parts))
    began = time.perf_counter()

    def watch(stage: Stage) -> None:
        record, seconds = stage.record, time.perf_counter() - began
        curve.append(Point(record.stage + 1, seconds, factor * record.loss, factor * record.validation_loss))

    boosted = boost(
        parts.x_train,
        parts.y_train,
        loss=problem.loss,
        featurizer=featurizer,
        n_learners=problem.n_learners,
        training=Training(
            method=method,
            max_steps=problem.max_steps,
            step_size=config["step_size"],
            batch_size=problem.batch_size,
            inherit=config.get("inherit", 0.0),
            reg_theta=config.get("reg_theta", 0.0),
        ),
        trust_region=trust_region(method, config),
        bias=problem.bias,
        validation=(parts.x_val, parts.y_val),
        seed=seed,
        callback=watch,
    )
    best = min(range(len(curve)), key=lambda i: curve[i].validation, default=-1)
    kept = boosted.ensemble.truncate(sum(record.accepted for record in boosted.history[: best + 1]))
    if "refit_lambda" in config:
        again = refit(kept, parts.x_train, parts.y_train, loss=problem.loss, reg_lambda=config["refit_lambda"])
        kept = min(kept, again, key=lambda e: problem.mean_loss(e.predict(parts.x_val), parts.y_val))
        curve.append(point_of(problem, parts, kept, len(curve) + 1, began))
    if "back_lambda" in config:
        kept = go_back(problem, parts, config, kept, seed)
        curve.append(point_of(problem, parts, kept, len(curve) + 1, began))
    return Fitted(kept.predict, time.perf_counter() - began, boosted.ensemble.n_parameters, curve)


def go_back(problem: Problem, parts: Parts, config: Config, ensemble: Ensemble, seed: int) -> Ensemble:
    """Train the learners again, together, for as long as that lowers the validation loss."""
    steps = LONGER * problem.max_steps
    return retrain(
        ensemble,
        parts.x_train,
        parts.y_train,
        loss=problem.loss,
        training=Training(max_steps=steps, step_size=config["back_step"], batch_size=problem.batch_size),
        reg_lambda=config["back_lambda"],
        rounds=ROUNDS,
        validation=(parts.x_val, parts.y_val),
        seed=seed,
    )


def point_of(problem: Problem, parts: Parts, ensemble: Ensemble, progress: int, began: float) -> Point:
    """Return the point of the curve for an ensemble."""
    losses = [problem.mean_loss(ensemble.predict(x), y) for x, y in (parts[:2], parts[2:4])]
    return Point(progress, time.perf_counter() - began, *losses)


TITLES = {
    "gd": "GDBoost",
    "vp_start": "VP@Start",
    "vp_end": "VP@End",
    "vp_start_end": "VP@Start+End",
    "vp": "VPBoost",
}
METHODS = [
    *(Method(name, title, paper_space, partial(fit, method=name)) for name, title in TITLES.items()),
    Method("gd_more", "GDBoost, our additions", more_space, partial(fit, method="gd")),
    Method("vp_more", "VPBoost, our additions", more_space, partial(fit, method="vp")),
    Method(
        "vp_back",
        "VPBoost, our additions, going back",
        back_space,
        partial(fit, method="vp"),
        after="vp_more",
        begin={"back_step": 0.01, "back_lambda": 1e-6},
        keep=True,
    ),
]
