"""Targets with holes: a loss that counts observed numbers only."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .base import Loss, Rows, Values
from .curvature import Curvature, Diagonal

#: Stands for a missing target where a loss needs one: a number that every loss takes.
ANY = 1.0


class Observed(Loss):
    """A loss of several outputs some of whose targets are missing (NaN): those add nothing to it.

    The loss of a row is the sum over its observed outputs, g and H are zero for the others, and rows are averaged as
    ever: every observed number counts alike, so that an output with many holes has less of a say.

    Parameters
    ----------
    loss : Loss
        One that is a sum over the outputs, such as :class:`SquaredError`.

    Examples
    --------
    >>> from vpboost.losses import SquaredError
    >>> loss = Observed(SquaredError())
    >>> prediction, target = jnp.array([[3.0, 5.0]]), jnp.array([[1.0, jnp.nan]])
    >>> float(loss.value(prediction, target)[0]), loss.gradient(prediction, target)[0].tolist()
    (2.0, [2.0, 0.0])
    """

    loss: Loss

    def __check_init__(self) -> None:
        if not self.loss.sums_over_outputs:
            raise ValueError(
                f"y has missing values, which the loss {type(self.loss).__name__} cannot skip: it is not known to be a "
                "sum over the outputs; leave these rows out, or take one of 'squared_error', 'pseudo_huber', "
                "'quantile', 'poisson', 'gamma' and 'tweedie'"
            )

    @property
    def n_parameters(self) -> int:
        return self.loss.n_parameters

    @property
    def robust(self) -> bool:  # type: ignore[override]
        """Whether single targets have little influence, as the loss itself says."""
        return self.loss.robust

    def _alone(self, prediction: Rows, target: Array) -> tuple[Array, Array, Array]:
        """Return predictions and targets with an axis for the targets of a row, and which are observed."""
        known = ~jnp.isnan(target)
        alone = prediction.reshape(*target.shape, self.n_parameters)
        return alone, jnp.where(known, target, ANY)[..., None], known

    def value(self, prediction: Rows, target: Array) -> Values:
        alone, filled, known = self._alone(prediction, target)
        return jnp.sum(jnp.where(known, self.loss.value(alone, filled), 0.0), axis=-1)

    def gradient(self, prediction: Rows, target: Array) -> Rows:
        alone, filled, known = self._alone(prediction, target)
        return jnp.where(known[..., None], self.loss.gradient(alone, filled), 0.0).reshape(prediction.shape)

    def curvature(self, prediction: Rows, target: Array) -> Curvature:
        alone, filled, known = self._alone(prediction, target)
        entries = self.loss.curvature(alone, filled).diagonal()
        return Diagonal(jnp.where(known[..., None], entries, 0.0).reshape(prediction.shape))

    def prepare_targets(self, y: Any) -> np.ndarray:
        target = np.asarray(y, dtype=np.float64)
        missing = np.isnan(target)
        return np.where(missing, np.nan, self.loss.prepare_targets(np.where(missing, ANY, target)))

    def n_outputs(self, target: np.ndarray | Array) -> int:
        return self.loss.n_outputs(target)

    def best_constant(self, target: Array, weight: Float[Array, "blocks rows"]) -> Float[Array, " k"]:
        known, share = ~np.isnan(np.asarray(target)), np.asarray(weight)
        filled, found = np.where(known, np.asarray(target), np.asarray(ANY, share.dtype)), []
        for k in range(target.shape[-1]):
            observed = share * known[..., k]
            if not observed.any():  # by the chance of a split; targets are of order one
                found.append(np.zeros(self.n_parameters, share.dtype))
                continue
            alone = jax.device_put(np.ascontiguousarray(filled[..., k : k + 1]))
            total = observed.sum(dtype=float).astype(share.dtype)
            found.append(np.asarray(self.loss.best_constant(alone, jax.device_put(observed / total))))
        return jax.device_put(np.concatenate(found))
