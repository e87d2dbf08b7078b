"""Observed slopes as data: a learner's slope along v is Wᵀ ∂z(x)·v, linear in W as its value Wᵀ z(x) is.

So an observed slope is one more row of the least-squares problem, with ∂z(x)·v for its features; everything in
:mod:`vpboost.core` then holds as it stands, on rows [x, v] and learners that are wrapped in
:class:`vpboost.featurizers.WithSlopes`. What comes out is unwrapped: a plain ensemble.
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from ..featurizers import Factory, WithBias, WithSlopes
from ..losses import Loss
from .boosting import boost
from .data import SAMPLE_ROWS, evenly_spaced
from .ensemble import Ensemble
from .records import Boosted, Stage
from .trust_region import TrustRegion


def boost_with_slopes(
    x: np.ndarray,
    y: np.ndarray,
    slopes: tuple[np.ndarray, np.ndarray, np.ndarray],
    *,
    loss: Loss,
    featurizer: Factory,
    trust_region: TrustRegion,
    sample_weight: np.ndarray,
    validation: tuple | None,
    dtype: Any,
    callback: Callable[[Stage], bool | None],
    resume: Boosted | None,
    **settings: Any,
) -> Boosted:
    """Fit an ensemble to values and to slopes, as :func:`vpboost.boost` does to values.

    ``slopes`` are rows [x, v], the slopes ∂y(x)·v observed there, and their weights. Values should have mean zero: c₀,
    which has no slope, is zero. The history's loss is that of values and slopes, its validation loss that of values.
    """
    pairs, observed, weight = slopes
    rows = np.concatenate([standing(x), pairs])
    inputs = np.asarray(evenly_spaced(x, SAMPLE_ROWS), dtype)

    def see(stage: Stage) -> bool | None:
        learners = [(featurizer.featurizer, weights) for featurizer, weights in stage.learners]
        return callback(stage._replace(learners=learners))

    boosted = boost(
        rows,
        np.concatenate([y, observed]),
        loss=loss,
        featurizer=partial(learner_with_slopes, factory=featurizer, inputs=inputs),
        bias=False,  # is in it
        trust_region=trust_region,
        sample_weight=np.concatenate([sample_weight, weight]),
        validation=None if validation is None else (standing(validation[0]), *validation[1:]),
        dtype=dtype,
        callback=see,
        resume=from_zero(loss.n_outputs(y), trust_region, dtype) if resume is None else rewrapped(resume, WithSlopes),
        **settings,
    )
    return rewrapped(boosted, lambda featurizers: featurizers.featurizer)


def standing(x: np.ndarray) -> np.ndarray:
    """Return rows [x, 0], which stand for values."""
    return np.concatenate([x, np.zeros_like(x)], axis=1)


def learner_with_slopes(key: PRNGKeyArray, rows: Array, *, factory: Factory, inputs: Any) -> WithSlopes:
    """Build a featurizer of rows [x, v] from training inputs without the repetitions that there are in ``rows``."""
    return WithSlopes(WithBias(factory(key, jnp.asarray(inputs))))


def from_zero(n_outputs: int, trust_region: TrustRegion, dtype: Any) -> Boosted:
    """Return the ensemble that predicts zero, to go on from."""
    with jax.enable_x64(np.dtype(dtype) == np.float64):
        nothing = Ensemble.stack(jax.device_put(np.zeros(n_outputs, dtype)), [])
    return Boosted(nothing, [], "unfinished", trust_region.reg_lambda)  # type: ignore[arg-type]


def rewrapped(boosted: Boosted, change: Callable[[Any], Any]) -> Boosted:
    """Return a result with its stacked featurizers changed, if there are any."""
    ensemble = boosted.ensemble
    if not ensemble.n_learners:
        return boosted
    return boosted._replace(ensemble=dataclasses.replace(ensemble, featurizers=change(ensemble.featurizers)))
