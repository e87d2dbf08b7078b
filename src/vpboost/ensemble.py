"""The ensemble f(x) = c₀ + Σ_m W_mᵀ z_m(x): predictions, staged predictions and input gradients."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .blocks import Layout
from .featurizers import count_parameters

#: Rows that are evaluated together.
ROWS_AT_ONCE = 256


class Ensemble(eqx.Module):
    """A constant and M weak learners of one architecture, stacked so that one program evaluates them all.

    Attributes
    ----------
    constant : c₀, shape ``(K,)``.
    featurizers : the M featurizers as one module whose arrays have a leading axis M; None when M is 0.
    weights : linear weights with the boosting rate included, shape ``(M, n, K)``.
    """

    constant: Float[Array, " k"]
    featurizers: Any
    weights: Float[Array, "m n k"]

    @classmethod
    def stack(cls, constant: Array, learners: Sequence[tuple[Any, Array]]) -> "Ensemble":
        """Build an ensemble from ``(featurizer, weights)`` pairs."""
        if not learners:
            return cls(constant, None, jnp.zeros((0, 0, constant.shape[0]), constant.dtype))
        arrays = [eqx.filter(featurizer, eqx.is_array) for featurizer, _ in learners]
        structure = eqx.filter(learners[0][0], eqx.is_array, inverse=True)
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *arrays)
        return cls(constant, eqx.combine(stacked, structure), jnp.stack([weights for _, weights in learners]))

    def unstack(self) -> list[tuple[Any, Array]]:
        """Undo :meth:`stack`: the ``(featurizer, weights)`` pairs of the learners."""
        arrays, structure = eqx.partition(self.featurizers, eqx.is_array)
        return [
            (eqx.combine(jax.tree.map(lambda leaf, m=m: leaf[m], arrays), structure), self.weights[m])
            for m in range(self.n_learners)
        ]

    @property
    def n_learners(self) -> int:
        """M, the number of weak learners."""
        return self.weights.shape[0]

    @property
    def n_outputs(self) -> int:
        """K, the number of outputs."""
        return self.constant.shape[0]

    @property
    def n_parameters(self) -> int:
        """The capacity M (n_θ + n_w) of the ensemble."""
        return count_parameters(self.featurizers) + self.weights.size

    def truncate(self, n_learners: int) -> "Ensemble":
        """Return the ensemble of the first ``n_learners`` learners."""
        if not 0 <= n_learners <= self.n_learners:
            raise ValueError(f"n_learners must be between 0 and {self.n_learners}, got {n_learners!r}")
        if n_learners == 0:
            return Ensemble.stack(self.constant, [])
        arrays, structure = eqx.partition(self.featurizers, eqx.is_array)
        kept = jax.tree.map(lambda leaf: leaf[:n_learners], arrays)
        return Ensemble(self.constant, eqx.combine(kept, structure), self.weights[:n_learners])

    def learner_outputs(self, x: Array) -> Float[Array, "m k"]:
        """Return the contribution of each learner for one input."""
        if self.n_learners == 0:
            return jnp.zeros((0, self.n_outputs), self.constant.dtype)
        arrays, structure = eqx.partition(self.featurizers, eqx.is_array)
        features = jax.vmap(lambda leaves: eqx.combine(leaves, structure)(x))(arrays)
        return jnp.einsum("mn,mnk->mk", features, self.weights)

    def __call__(self, x: Array) -> Float[Array, " k"]:
        """Return f(x) for one input; a JAX function that can be differentiated, mapped and compiled."""
        return self.constant + jnp.sum(self.learner_outputs(x), axis=0)

    def predict(self, x: Any) -> np.ndarray:
        """Return f(x_i) for each row, shape ``(n_rows, K)``: raw values (logits for cross-entropies)."""
        return self._in_blocks(_prediction, x)

    def staged_predict(self, x: Any) -> np.ndarray:
        """Return the predictions of the first 0, 1, ..., M learners, shape ``(M + 1, n_rows, K)``."""
        return np.moveaxis(self._in_blocks(_stages, x), 1, 0)

    def input_gradient(self, x: Any) -> np.ndarray:
        """Return ∂f/∂x at each row, shape ``(n_rows, K, *input_shape)``, exact by automatic differentiation."""
        return self._in_blocks(_jacobian, x)

    def _in_blocks(self, of_one_row: Callable, x: Any) -> np.ndarray:
        dtype = np.dtype(self.constant.dtype)
        rows = np.asarray(x, dtype=dtype)
        if rows.ndim < 2:
            raise ValueError(f"x must have one row per sample (at least 2-D), got shape {rows.shape}")
        # always blocks of the same size: a row's result then does not depend on the rows it comes with
        size = ROWS_AT_ONCE
        layout = Layout(len(rows), max(-(-len(rows) // size), 1), size)
        padded = np.zeros((layout.n_blocks * size, *rows.shape[1:]), dtype)
        padded[: len(rows)] = rows
        with jax.enable_x64(dtype == np.float64):
            blocks = padded.reshape(layout.n_blocks, size, *rows.shape[1:])
            return layout.merge(
                np.stack([np.asarray(_evaluate(self, of_one_row, jnp.asarray(block))) for block in blocks])
            )


@eqx.filter_jit
def _evaluate(ensemble: Ensemble, of_one_row: Callable, block: Array) -> Array:
    return jax.vmap(lambda x: of_one_row(ensemble, x))(block)


def _prediction(ensemble: Ensemble, x: Array) -> Array:
    return ensemble(x)


def _stages(ensemble: Ensemble, x: Array) -> Array:
    return jnp.cumsum(jnp.concatenate([ensemble.constant[None], ensemble.learner_outputs(x)]), axis=0)


def _jacobian(ensemble: Ensemble, x: Array) -> Array:
    # one forward pass per input, or one backward pass per output: whichever are fewer
    mode = jax.jacrev if ensemble.n_outputs <= x.size else jax.jacfwd
    return mode(ensemble)(x)
