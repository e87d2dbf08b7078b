"""Going back: learners of an ensemble trained again, together.

Boosting never returns to a learner. :func:`retrain` takes learners as one wide featurizer z = (z_1, ..., z_M) and
trains it by variable projection from where it is, on the quadratic model of the loss at the ensemble f, for what these
learners put on top of the others, h = Σ_m W_mᵀ z_m, now h₀:

    Q(h) = L[f] + ⟨g, h − h₀⟩ + ½ ⟨h − h₀, H (h − h₀)⟩ = constant + ⟨g − H h₀, h⟩ + ½ ⟨h, H h⟩

A trust region accepts what lowers the loss as the model says, λ_w raised where it does not, and validation data, if
given, have the last word. The capacity of the ensemble stays.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..checks import check_count
from ..losses import Loss
from ..numerics.blocks import block_map, block_sum
from ..numerics.devices import devices_of, mesh_of
from .arguments import check_seed, traced
from .boosting import mean_loss
from .data import Data, prepare_validation
from .ensemble import Ensemble, stacked_columns
from .objective import summarise
from .reduced import Derivatives, Weights
from .refit import Stacked, check_arguments, data_for
from .shared import arrange_on, here, over
from .trust_region import reduction_ratio
from .weak_learner import Training, solve_at_end, train

#: Features that are trained together, at the most: a system of this size is factorised at every step.
MOST_FEATURES = 512
#: λ_w is raised by this factor, so often at the most, until the loss falls.
GAMMA, RAISES = 10.0, 6


def retrain(
    ensemble: Ensemble,
    x: Any,
    y: Any,
    *,
    loss: Loss,
    training: Training | None = None,
    reg_lambda: float = 1e-6,
    rounds: int = 4,
    sample_weight: Any = None,
    validation: tuple | None = None,
    seed: int = 0,
    devices: Any = None,
) -> Ensemble:
    """Return the ensemble with its learners trained again, all together; where there are many, group by group.

    This pays for a few learners on smooth problems with plenty of data: a tenth of boosting's error. Many learners
    overfit together, which only validation data can tell: give them.

    Parameters
    ----------
    ensemble : Ensemble
        As :func:`boost` returns it. (An estimator's ``ensemble_`` works on inputs as the estimator encodes them.)
    x, y, sample_weight
        The data, as for :func:`boost`.
    loss : Loss
        The loss that the ensemble was trained with.
    training : Training, optional
        How featurizers are trained in a round; by default 500 steps of size 0.01.
    reg_lambda : float, default=1e-6
        λ_w > 0, the weight of ½‖W‖² over the learners trained together.
    rounds : int, default=4
        Quadratic models, or groups of learners, at the most.
    validation : (x, y) or (x, y, sample_weight), optional
        A round that does not lower the loss on these is undone, and the last.
    seed : int, default=0
        Fixes batches and groups.
    devices : optional
        Over which the rows are shared out, as for :func:`boost`.

    Returns
    -------
    Ensemble
        Its training loss, or its validation loss where such data are given, is not above that of the ensemble given.

    Examples
    --------
    >>> import numpy as np
    >>> from functools import partial
    >>> from vpboost import MLP, SquaredError, boost, retrain
    >>> x = np.linspace(-1, 1, 200)[:, None]
    >>> y = np.sin(8 * x[:, 0])
    >>> fit = boost(x, y, loss=SquaredError(), featurizer=partial(MLP, width=3, depth=1), n_learners=3, seed=1)
    >>> again = retrain(fit.ensemble, x, y, loss=SquaredError())
    >>> error = [np.mean((model.predict(x)[:, 0] - y) ** 2) for model in (fit.ensemble, again)]
    >>> bool(error[1] < 0.5 * error[0])
    True
    """
    check_arguments(ensemble, loss, reg_lambda, 1)
    check_count("rounds", rounds)
    training = Training(max_steps=500, step_size=0.01) if training is None else training
    if not isinstance(training, Training) or training.method != "vp" or training.candidates != 1:
        raise ValueError(f"training must be a Training with method='vp' and one candidate, got {training!r}")
    dtype = np.dtype(ensemble.constant.dtype)
    with jax.enable_x64(dtype == np.float64):
        key, training = check_seed(seed), traced(training, dtype)
        mesh = mesh_of(devices_of(x) if devices is None else devices)
        data = data_for(ensemble, x, y, loss, sample_weight, mesh)
        sets = [data]
        if validation is not None:
            sets.append(prepare_validation(validation, loss, dtype, data, prepare=arrange_on(mesh)))
        if ensemble.n_learners == 0:
            return ensemble
        with over(mesh):
            reg, best = jnp.asarray(reg_lambda, dtype), losses_of(ensemble, loss, sets)
        for i, group in zip(range(rounds), groups_of(ensemble, seed), strict=False):
            with over(mesh):
                trial = one_round(jax.random.fold_in(key, i), ensemble, group, data, loss, training, reg)
                found = losses_of(trial, loss, sets)
            if not found[-1] < best[-1]:
                break
            ensemble, best = here(trial, mesh), found
        return ensemble


def groups_of(ensemble: Ensemble, seed: int) -> Any:
    """Yield the learners of each round: all of them, or as many as may be trained together, in a random order."""
    size = max(MOST_FEATURES // ensemble.weights.shape[1], 1)
    rng, learners = np.random.default_rng(seed), np.arange(ensemble.n_learners)
    while True:
        order = learners if size >= len(learners) else rng.permutation(learners)
        yield from np.split(order, range(size, len(order), size))


def one_round(
    key: Array, ensemble: Ensemble, group: np.ndarray, data: Data, loss: Loss, training: Training, reg: Array
) -> Ensemble:
    """Return the ensemble after one round of training these learners; the same one if the loss cannot be lowered."""
    chosen = jax.tree.map(lambda leaf: leaf[group] if eqx.is_array(leaf) else leaf, ensemble.featurizers)
    featurizer, weights = Stacked(chosen, len(group)), ensemble.weights[group].reshape(-1, ensemble.n_outputs)
    now, h = outputs_of(ensemble, data.x), group_outputs(featurizer, weights, data.x)
    derivatives = model_around(loss, now, h, data)
    population = jax.tree.map(lambda leaf: leaf[None] if eqx.is_array(leaf) else leaf, featurizer)
    learner = train(key, population, data.x, derivatives, reg, training)
    before = mean_loss(loss, now, data.target, data.weight)
    model_before = quadratic(derivatives, h)
    for _ in range(RAISES):
        found = solved(learner.featurizer, learner.weights, data.x, derivatives, reg, training)
        new = group_outputs(learner.featurizer, found, data.x)
        actual = before - mean_loss(loss, now - h + new, data.target, data.weight)
        if float(reduction_ratio(actual, model_before - quadratic(derivatives, new))) > 0:
            parts = found.reshape(len(group), -1, ensemble.n_outputs)
            featurizers = jax.tree.map(
                lambda all_of, part: all_of.at[group].set(part) if eqx.is_array(all_of) else all_of,
                ensemble.featurizers,
                learner.featurizer.featurizers,
            )
            return Ensemble(ensemble.constant, featurizers, ensemble.weights.at[group].set(parts))
        reg = GAMMA * reg
    return ensemble


@eqx.filter_jit
def model_around(loss: Loss, prediction: Array, h: Array, data: Data) -> Derivatives:
    """Return gradient and curvature of the quadratic model in h, the outputs of the learners that are trained."""
    curvature = block_map(loss.curvature, prediction, data.target)
    return Derivatives(data.weight, block_map(loss.gradient, prediction, data.target) - curvature.apply(h), curvature)


@eqx.filter_jit
def quadratic(derivatives: Derivatives, h: Array) -> Array:
    """Return ⟨g, h⟩ + ½ ⟨h, H h⟩."""

    def one_block(d: Derivatives, h: Array) -> Array:
        return jnp.sum(d.weight * jnp.sum(h * (d.gradient + 0.5 * d.curvature.apply(h)), axis=-1))

    return block_sum(one_block, derivatives, h)


@eqx.filter_jit
def solved(
    featurizer: Any, weights: Weights, x: Array, derivatives: Derivatives, reg: Array, training: Training
) -> Weights:
    """Return the linear weights of a trained featurizer on all rows."""
    summary = summarise(featurizer, x, derivatives, training.solver)
    return solve_at_end(weights, summary, derivatives, reg, training).weights


@eqx.filter_jit
def group_outputs(featurizer: Stacked, weights: Weights, x: Array) -> Array:
    """Return Wᵀz for every row in blocks."""
    return block_map(lambda x: featurizer.columns(x).T @ weights, x)


@eqx.filter_jit
def outputs_of(ensemble: Ensemble, x: Array) -> Array:
    """Return the ensemble's predictions for rows in blocks."""

    def one_block(x: Array) -> Array:
        z = stacked_columns(ensemble.featurizers, ensemble.n_learners, x).reshape(-1, x.shape[-1])
        return ensemble.constant + z.T @ ensemble.weights.reshape(-1, ensemble.n_outputs)

    return block_map(one_block, x)


def losses_of(ensemble: Ensemble, loss: Loss, sets: list[Data]) -> list[float]:
    """Return the mean loss on each data set."""
    return [float(mean_loss(loss, outputs_of(ensemble, one.x), one.target, one.weight)) for one in sets]
