"""The paper's boosting methods: they differ in when the linear weights are solved for."""

import time
from functools import partial

import jax.numpy as jnp
from optuna.distributions import FloatDistribution

from vpboost import Stage, Training, TrustRegion, boost, refit
from vpboost.featurizers import SomeColumns

from .data import Parts
from .problems import Problem
from .protocol import Config, Fitted, Method, Point, Space, between


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
    featurizer = problem.featurizer(problem.width)
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
        losses = [problem.mean_loss(kept.predict(x), y) for x, y in (parts[:2], parts[2:4])]
        curve.append(Point(len(curve) + 1, time.perf_counter() - began, *losses))
    return Fitted(kept.predict, time.perf_counter() - began, boosted.ensemble.n_parameters, curve)


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
]
