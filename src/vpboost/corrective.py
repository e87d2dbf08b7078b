"""All linear weights at once: what is left of boosting when every featurizer is fixed is a convex problem.

Boosting solves for the weights of one learner at a time and never returns to them. :func:`refit` solves

    min over W_1 ... W_M of  L[c₀ + Σ_m W_mᵀ z_m] + ½ λ Σ_m ‖W_m‖²

by damped Newton steps on the true loss, a single exact one for squared error. The capacity of the ensemble stays.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .blocks import block_map, block_sum
from .data import prepare
from .ensemble import Ensemble, stacked_columns
from .featurizers import columns
from .losses import Loss, SquaredError
from .reduced import Derivatives, Weights, optimal_weights, optimal_weights_cg, reduce_block, uses_cg

Scalar = Float[Array, ""]

#: Tolerance and iterations of conjugate gradients in a Newton step.
CG = (1e-5, 200)
#: Lengths of a Newton step that are tried.
LENGTHS = 0.5 ** np.arange(6)
#: Newton steps end when one lowers the objective by less than this part of it.
LEAST_GAIN = 1e-6


class Stacked(eqx.Module):
    """The features of all learners as those of one featurizer, z = (z_1, ..., z_M)."""

    featurizers: Any  #: stacked along a first axis, as in :class:`Ensemble`

    def columns(self, x: Float[Array, "*shape rows"]) -> Float[Array, "mn rows"]:
        """Return the features of inputs side by side."""
        return stacked_columns(self.featurizers, x).reshape(-1, x.shape[-1])


class Linear(eqx.Module):
    """The problem in the linear weights of one featurizer: mean loss + ½λ‖w‖², data in blocks."""

    featurizer: Any
    x: Array
    target: Array
    weight: Float[Array, "blocks rows"]
    loss: Loss
    constant: Float[Array, " k"]
    reg: Scalar

    def outputs(self, weights: Weights) -> Float[Array, "blocks rows k"]:
        """Return Wᵀz for every row."""
        return block_map(lambda x: columns(self.featurizer, x).T @ weights, self.x)

    def newton(self, weights: Weights, outputs: Array, cg: tuple[float, int]) -> Weights:
        """Return the minimiser of the quadratic model at ``weights``, which give these outputs."""

        def differentiate(f: Array, t: Array, w: Array) -> Derivatives:
            # with g_i − H_i Wᵀz_i as slopes the unknowns are the new weights, not the step, as the penalty needs it
            curvature = self.loss.curvature(self.constant + f, t)
            return Derivatives(w, self.loss.gradient(self.constant + f, t) - curvature.apply(f), curvature)

        derivatives = block_map(differentiate, outputs, self.target, self.weight)
        if uses_cg(derivatives.curvature, weights.size, "auto"):
            features = block_map(lambda x: columns(self.featurizer, x), self.x)
            return optimal_weights_cg(features, derivatives, self.reg, weights, *cg).weights
        reduced = block_sum(lambda x, d: reduce_block(columns(self.featurizer, x), d), self.x, derivatives)
        return optimal_weights(reduced, self.reg).weights

    def descend(self, weights: Weights, cg: tuple[float, int]) -> tuple[Weights, Array]:
        """Take a Newton step of the best of the lengths tried, and say whether the objective fell by much."""
        outputs = self.outputs(weights)
        step = self.newton(weights, outputs, cg) - weights
        change = self.outputs(step)

        def value(length: Array | float) -> Scalar:
            def one_block(f: Array, d: Array, t: Array, w: Array) -> Scalar:
                return jnp.sum(w * self.loss.value(self.constant + f + length * d, t))

            size = jnp.sum((weights + length * step) ** 2)
            return block_sum(one_block, outputs, change, self.target, self.weight) + 0.5 * self.reg * size

        lengths = jnp.asarray(LENGTHS, weights.dtype)
        before, values = value(0.0), jax.lax.map(value, lengths)
        best = jnp.argmin(jnp.where(jnp.isnan(values), jnp.inf, values))
        gain = before - values[best]
        return weights + jnp.where(gain > 0, lengths[best], 0) * step, gain > LEAST_GAIN * jnp.abs(before)

    def solve(self, weights: Weights, n_steps: int, cg: tuple[float, int] = CG) -> Weights:
        """Return the weights after ``n_steps`` Newton steps, or as many as gain anything; one with squared error."""
        if isinstance(self.loss, SquaredError):
            return self.newton(weights, self.outputs(weights), cg)  # exact

        def again(state: tuple[Array, Weights, Array]) -> tuple[Array, Weights, Array]:
            k, weights, _ = state
            return k + 1, *self.descend(weights, cg)

        start = jnp.zeros((), jnp.int32), weights, jnp.asarray(True)
        return jax.lax.while_loop(lambda state: (state[0] < n_steps) & state[2], again, start)[1]


@eqx.filter_jit
def _solved(problem: Linear, weights: Weights, n_steps: int) -> Weights:
    return problem.solve(weights, n_steps)


def refit(
    ensemble: Ensemble,
    x: Any,
    y: Any,
    *,
    loss: Loss,
    reg_lambda: float = 1e-4,
    sample_weight: Any = None,
    n_steps: int = 10,
) -> Ensemble:
    """Return the ensemble with the linear weights of all learners solved for together; featurizers stay as they are.

    This pays for a few strong learners and for cross-entropies, where boosting's quadratic models were rough. Choose
    ``reg_lambda`` by validation, and compare with the ensemble as it was: many learners can overfit together.

    Parameters
    ----------
    ensemble : Ensemble
        As :func:`boost` returns it.
    x, y, sample_weight
        The data, as for :func:`boost`.
    loss : Loss
        The loss that the ensemble was trained with.
    reg_lambda : float, default=1e-4
        λ > 0, the weight of ½‖W‖² over all learners.
    n_steps : int, default=10
        Newton steps at the most; squared error needs and takes one.

    Returns
    -------
    Ensemble
        Its training objective, mean loss plus penalty, is never above that of the ensemble given.

    Examples
    --------
    >>> import numpy as np
    >>> from functools import partial
    >>> from vpboost import MLP, SquaredError, boost, refit
    >>> x = np.linspace(-1, 1, 200)[:, None]
    >>> y = np.sin(8 * x[:, 0])
    >>> fit = boost(x, y, loss=SquaredError(), featurizer=partial(MLP, width=3, depth=1), n_learners=3, seed=1)
    >>> again = refit(fit.ensemble, x, y, loss=SquaredError(), reg_lambda=1e-6)
    >>> error = [np.mean((model.predict(x)[:, 0] - y) ** 2) for model in (fit.ensemble, again)]
    >>> bool(error[1] < error[0])
    True
    """
    if not 0 < reg_lambda < float("inf"):
        raise ValueError(f"reg_lambda must be positive and finite, got {reg_lambda!r}")
    if isinstance(n_steps, bool) or not isinstance(n_steps, int | np.integer) or n_steps < 1:
        raise ValueError(f"n_steps must be a whole number of at least 1, got {n_steps!r}")
    if ensemble.n_learners == 0:
        return ensemble
    dtype = np.dtype(ensemble.constant.dtype)
    with jax.enable_x64(dtype == np.float64):
        data = prepare(x, y, loss, sample_weight, dtype)
        if data.n_outputs != ensemble.n_outputs:
            raise ValueError(f"y must have {ensemble.n_outputs} outputs or classes, got {data.n_outputs}")
        problem = Linear(
            *(Stacked(ensemble.featurizers), data.x, data.target, data.weight),
            *(loss, ensemble.constant, jnp.asarray(reg_lambda, dtype)),
        )
        weights = ensemble.weights.reshape(-1, ensemble.n_outputs)
        return Ensemble(
            ensemble.constant,
            ensemble.featurizers,
            _solved(problem, weights, int(n_steps)).reshape(ensemble.weights.shape),
        )
