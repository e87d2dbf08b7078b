"""Cross-entropies on logits."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .base import Loss, Rows, Values, away_from_zero, real_targets, weighted_mean
from .curvature import Curvature, Diagonal, Softmax


class BinaryCrossEntropy(Loss):
    """ℓ = log(1 + e^ŷ) − y ŷ for one logit ŷ and a label, or probability, y in [0, 1]; H_i = p(1 − p)."""

    def value(self, prediction: Rows, target: Array) -> Values:
        return jnp.sum(jax.nn.softplus(prediction) - target * prediction, axis=-1)

    def gradient(self, prediction: Rows, target: Array) -> Rows:
        return jax.nn.sigmoid(prediction) - target

    def curvature(self, prediction: Rows, target: Array) -> Curvature:
        return Diagonal(jax.nn.sigmoid(prediction) * jax.nn.sigmoid(-prediction))

    def prepare_targets(self, y: Any) -> np.ndarray:
        target = real_targets(y)
        if target.shape[1] != 1:
            raise ValueError(f"y must have one column for binary cross-entropy, got shape {np.shape(y)}")
        if target.min() < 0 or target.max() > 1:
            raise ValueError(
                f"y must lie in [0, 1] for binary cross-entropy (labels 0 and 1), got values from {target.min():g} to "
                f"{target.max():g}"
            )
        return target

    def best_constant(self, target: Array, weight: Float[Array, "blocks rows"]) -> Float[Array, " k"]:
        mean = away_from_zero(weighted_mean(target, weight))
        return jax.device_put((np.log(mean) - np.log(away_from_zero(1 - mean))).astype(weight.dtype))


class MulticlassCrossEntropy(Loss):
    """ℓ = log Σ_k e^{ŷ_k} − ŷ_y for K logits and a label y in {0, ..., K−1}; H_i = diag(p) − p pᵀ.

    Parameters
    ----------
    n_classes : int, optional
        K. By default the largest label plus one.
    """

    n_classes: int | None = eqx.field(static=True, default=None)

    @property
    def couples_outputs(self) -> bool:
        return True

    def value(self, prediction: Rows, target: Int[Array, "*rows"]) -> Values:
        chosen = jnp.take_along_axis(prediction, target[..., None], axis=-1)[..., 0]
        return jax.nn.logsumexp(prediction, axis=-1) - chosen

    def gradient(self, prediction: Rows, target: Int[Array, "*rows"]) -> Rows:
        n_classes = prediction.shape[-1]
        return jax.nn.softmax(prediction, axis=-1) - jax.nn.one_hot(target, n_classes, dtype=prediction.dtype)

    def curvature(self, prediction: Rows, target: Int[Array, "*rows"]) -> Curvature:
        return Softmax(jax.nn.softmax(prediction, axis=-1))

    def prepare_targets(self, y: Any) -> np.ndarray:
        labels = np.asarray(y)
        if labels.ndim == 2 and labels.shape[1] == 1:
            labels = labels[:, 0]
        if labels.ndim != 1 or labels.dtype.kind not in "biuf":
            raise ValueError(f"y must be a 1-D array of class labels, got shape {labels.shape}, dtype {labels.dtype}")
        if not np.all(np.isfinite(labels)) or np.any(labels != np.floor(labels)):
            raise ValueError("y must hold whole class labels 0, 1, ..., got NaN, infinite or fractional values")
        n_classes = self.n_classes if self.n_classes is not None else int(labels.max()) + 1
        if n_classes < 2:
            raise ValueError("y must hold at least two classes for multiclass cross-entropy, got one")
        if labels.min() < 0 or labels.max() >= n_classes:
            raise ValueError(
                f"y must hold labels from 0 to n_classes - 1 = {n_classes - 1}, got labels from {labels.min():g} to "
                f"{labels.max():g}"
            )
        return labels.astype(np.int32)

    def n_outputs(self, target: np.ndarray | Array) -> int:
        return self.n_classes if self.n_classes is not None else int(target.max()) + 1

    def best_constant(self, target: Array, weight: Float[Array, "blocks rows"]) -> Float[Array, " k"]:
        n_classes = self.n_outputs(target)
        frequency = np.bincount(np.asarray(target).reshape(-1), np.asarray(weight).reshape(-1), n_classes)
        return jax.device_put(np.log(away_from_zero(frequency)).astype(weight.dtype))
