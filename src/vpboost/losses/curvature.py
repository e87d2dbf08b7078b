"""Structures of a loss's Hessian in the prediction, one K×K matrix H_i per sample.

The structure decides how the linear weights are solved for (see :mod:`vpboost.core.reduced`): a multiple of the
identity needs one small factorisation for all outputs, a diagonal one per output, anything else couples the outputs.

All arrays may have any number of leading sample axes, so the same classes serve plain rows and rows in blocks.
"""

import abc

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float


class Curvature(eqx.Module):
    """Per-sample Hessians H_i = ∇²ℓ(ŷ_i, y_i), symmetric and positive semidefinite."""

    @abc.abstractmethod
    def apply(self, vectors: Float[Array, "*rows k"]) -> Float[Array, "*rows k"]:
        """Return H_i v_i for each sample."""

    @abc.abstractmethod
    def diagonal(self) -> Float[Array, "*rows k"]:
        """Return the diagonals of the H_i."""

    @abc.abstractmethod
    def matrix(self) -> Float[Array, "*rows k k"]:
        """Return the H_i as full matrices (for small K only)."""


class ScaledIdentity(Curvature):
    """H_i = s_i I, as of squared error (s_i = 1)."""

    scale: Float[Array, "*rows"]
    n_outputs: int = eqx.field(static=True)

    def apply(self, vectors: Float[Array, "*rows k"]) -> Float[Array, "*rows k"]:
        return self.scale[..., None] * vectors

    def diagonal(self) -> Float[Array, "*rows k"]:
        return jnp.broadcast_to(self.scale[..., None], (*self.scale.shape, self.n_outputs))

    def matrix(self) -> Float[Array, "*rows k k"]:
        return self.diagonal()[..., None] * jnp.eye(self.n_outputs, dtype=self.scale.dtype)


class Diagonal(Curvature):
    """H_i = diag(d_i), as of losses that are sums over the outputs."""

    entries: Float[Array, "*rows k"]

    def apply(self, vectors: Float[Array, "*rows k"]) -> Float[Array, "*rows k"]:
        return self.entries * vectors

    def diagonal(self) -> Float[Array, "*rows k"]:
        return self.entries

    def matrix(self) -> Float[Array, "*rows k k"]:
        return self.entries[..., None] * jnp.eye(self.entries.shape[-1], dtype=self.entries.dtype)


class Softmax(Curvature):
    """H_i = diag(p_i) − p_i p_iᵀ, as of multiclass cross-entropy; stored by p_i alone."""

    probabilities: Float[Array, "*rows k"]

    def apply(self, vectors: Float[Array, "*rows k"]) -> Float[Array, "*rows k"]:
        weighted = self.probabilities * vectors
        return weighted - self.probabilities * weighted.sum(axis=-1, keepdims=True)

    def diagonal(self) -> Float[Array, "*rows k"]:
        return self.probabilities * (1 - self.probabilities)

    def matrix(self) -> Float[Array, "*rows k k"]:
        outer = self.probabilities[..., :, None] * self.probabilities[..., None, :]
        return Diagonal(self.probabilities).matrix() - outer

    def majorant(self) -> ScaledIdentity:
        """Return s_i I with s_i = 2 max_k p_k(1 − p_k), which no H_i exceeds: row k of |H_i| sums to 2 p_k(1 − p_k)."""
        return ScaledIdentity(2 * jnp.max(self.diagonal(), axis=-1), self.probabilities.shape[-1])


class Dense(Curvature):
    """Any H_i, stored in full: for user-defined losses that couple the outputs."""

    entries: Float[Array, "*rows k k"]

    def apply(self, vectors: Float[Array, "*rows k"]) -> Float[Array, "*rows k"]:
        return jnp.einsum("...cd,...d->...c", self.entries, vectors)

    def diagonal(self) -> Float[Array, "*rows k"]:
        return jnp.diagonal(self.entries, axis1=-2, axis2=-1)

    def matrix(self) -> Float[Array, "*rows k k"]:
        return self.entries
