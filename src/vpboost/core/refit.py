"""All linear weights at once: what is left of boosting when every featurizer is fixed is a convex problem.

Boosting solves for the weights of one learner at a time and never returns to them. :func:`refit` solves

    min over W_1 ... W_M of  L[c₀ + Σ_m W_mᵀ z_m] + ½ λ Σ_m ‖W_m‖²

by damped Newton steps on the true loss. The capacity of the ensemble stays.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..checks import check_between, check_count
from ..featurizers import columns
from ..losses import Loss
from ..numerics.blocks import block_map, block_sum
from ..numerics.devices import devices_of, mesh_of
from .arguments import check_loss
from .data import Data
from .ensemble import Ensemble, stacked_columns
from .reduced import Derivatives, Reduced, Weights, optimal_weights, optimal_weights_cg, reduce_block, uses_cg
from .shared import arrange_on, here, over

Scalar = Float[Array, ""]

#: Tolerance and iterations of conjugate gradients in a Newton step; the next step mends what they leave.
CG = (1e-3, 100)
#: Lengths of a Newton step that are tried.
LENGTHS = 0.5 ** np.arange(6)
#: Newton steps end when one gains no more than this part of all before.
LEAST_GAIN = 1e-6


class Stacked(eqx.Module):
    """The features of all learners as those of one featurizer, z = (z_1, ..., z_M)."""

    featurizers: Any  #: stacked along a first axis, as in :class:`Ensemble`
    n_learners: int = eqx.field(static=True)

    def columns(self, x: Float[Array, "*shape rows"]) -> Float[Array, "mn rows"]:
        """Return the features of inputs side by side."""
        return stacked_columns(self.featurizers, self.n_learners, x).reshape(-1, x.shape[-1])


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
        """Return the step from ``weights``, which give these outputs, to the minimum of the quadratic model there.

        The step and not the new weights: its rounding errors die out from one Newton step to the next.
        """

        def differentiate(f: Array, t: Array, w: Array) -> Derivatives:
            f = self.constant + f
            return Derivatives(w, self.loss.gradient(f, t), self.loss.curvature(f, t))

        derivatives = block_map(differentiate, outputs, self.target, self.weight)
        of_penalty = self.reg * weights
        if uses_cg(derivatives.curvature, weights.size, "auto"):
            features = block_map(lambda x: columns(self.featurizer, x), self.x)
            return optimal_weights_cg(features, derivatives, self.reg, jnp.zeros_like(weights), *cg, of_penalty).weights
        reduced = block_sum(lambda x, d: reduce_block(columns(self.featurizer, x), d), self.x, derivatives)
        return optimal_weights(Reduced(reduced.gradient + of_penalty, reduced.hessian), self.reg).weights

    def descend(self, weights: Weights, cg: tuple[float, int]) -> tuple[Weights, Scalar]:
        """Take a Newton step of the best of the lengths tried, and say by how much the objective fell."""
        outputs = self.outputs(weights)
        step = self.newton(weights, outputs, cg)
        change = self.outputs(step)
        slope, square = jnp.sum(weights * step), jnp.sum(step**2)

        def gain(length: Array) -> Scalar:
            """Return by how much the objective falls, as a sum of differences, which loses no digits."""

            def one_block(f: Array, d: Array, t: Array, w: Array) -> Scalar:
                f = self.constant + f
                return jnp.sum(w * (self.loss.value(f, t) - self.loss.value(f + length * d, t)))

            fit = block_sum(one_block, outputs, change, self.target, self.weight)
            return fit - self.reg * (length * slope + 0.5 * length**2 * square)

        lengths = jnp.asarray(LENGTHS, weights.dtype)
        gains = jax.lax.map(gain, lengths)
        best = jnp.argmax(jnp.where(jnp.isnan(gains), -jnp.inf, gains))
        better = gains[best] > 0
        return weights + jnp.where(better, lengths[best], 0) * step, jnp.where(better, gains[best], 0)

    def solve(self, weights: Weights, n_steps: int, cg: tuple[float, int] = CG) -> Weights:
        """Return the weights after ``n_steps`` Newton steps, or as many as gain anything."""

        def goes_on(state: tuple[Array, Weights, Scalar, Scalar]) -> Array:
            k, _, gain, total = state
            return (k == 0) | ((k < n_steps) & (gain > LEAST_GAIN * total))

        def again(state: tuple[Array, Weights, Scalar, Scalar]) -> tuple[Array, Weights, Scalar, Scalar]:
            k, weights, _, total = state
            weights, gain = self.descend(weights, cg)
            return k + 1, weights, gain, total + gain

        none = jnp.zeros((), weights.dtype)
        return jax.lax.while_loop(goes_on, again, (jnp.zeros((), jnp.int32), weights, none, none))[1]


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
    devices: Any = None,
) -> Ensemble:
    """Return the ensemble with the linear weights of all learners solved for together; featurizers stay as they are.

    This pays for a few strong learners and for cross-entropies, where boosting's quadratic models were rough. Choose
    ``reg_lambda`` by validation, and compare with the ensemble as it was: many learners can overfit together.

    Parameters
    ----------
    ensemble : Ensemble
        As :func:`boost` returns it. (An estimator's ``ensemble_`` works on inputs as the estimator encodes them.)
    x, y, sample_weight
        The data, as for :func:`boost`.
    loss : Loss
        The loss that the ensemble was trained with.
    reg_lambda : float, default=1e-4
        λ > 0, the weight of ½‖W‖² over all learners.
    n_steps : int, default=10
        Newton steps at the most; they end when nothing is gained. Squared error needs one or two.
    devices : optional
        Over which the rows are shared out, as for :func:`boost`.

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
    check_arguments(ensemble, loss, reg_lambda, n_steps)
    dtype = np.dtype(ensemble.constant.dtype)
    with jax.enable_x64(dtype == np.float64):
        mesh = mesh_of(devices_of(x) if devices is None else devices)
        data = data_for(ensemble, x, y, loss, sample_weight, mesh)
        if ensemble.n_learners == 0:
            return ensemble
        featurizer = Stacked(ensemble.featurizers, ensemble.n_learners)
        reg = jnp.asarray(reg_lambda, dtype)
        problem = Linear(featurizer, data.x, data.target, data.weight, loss, ensemble.constant, reg)
        with over(mesh):
            weights = _solved(problem, ensemble.weights.reshape(-1, ensemble.n_outputs), int(n_steps))
        weights = here(weights, mesh)
        return Ensemble(ensemble.constant, ensemble.featurizers, weights.reshape(ensemble.weights.shape))


def check_arguments(ensemble: Any, loss: Any, reg_lambda: Any, n_steps: Any) -> None:
    """Raise an error that names the argument if one of these cannot be used."""
    if not isinstance(ensemble, Ensemble):
        raise TypeError(f"ensemble must be an Ensemble, as in boost(...).ensemble, got {type(ensemble).__name__}")
    check_loss(loss)
    check_between("reg_lambda", reg_lambda, 0, np.inf, "positive and finite")
    check_count("n_steps", n_steps)


def data_for(ensemble: Ensemble, x: Any, y: Any, loss: Loss, sample_weight: Any, mesh: Any) -> Data:
    """Return data arranged in blocks; raise ``ValueError`` if the ensemble is not one for such inputs or targets."""
    data = arrange_on(mesh)(x, y, loss, sample_weight, ensemble.constant.dtype)
    if data.n_outputs != ensemble.n_outputs:
        raise ValueError(
            f"y must have {ensemble.n_outputs} outputs or classes, got {data.n_outputs}; if a class is missing, "
            "give the loss its number of classes"
        )
    loss.check(data.sample_of_targets()[0], ensemble.constant)
    if ensemble.n_learners:
        try:
            one = jax.ShapeDtypeStruct(data.x.shape[1:], data.x.dtype)
            jax.eval_shape(Stacked(ensemble.featurizers, ensemble.n_learners).columns, one)
        except (TypeError, ValueError) as error:
            shape = data.x.shape[1:-1]
            raise ValueError(f"x has rows of shape {shape}, which the ensemble was not trained on") from error
    return data
