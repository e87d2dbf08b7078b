"""The ensemble f(x) = c₀ + Σ_m W_mᵀ z_m(x): predictions, staged predictions and input gradients."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..engine import ONCE_A_STAGE, program
from ..featurizers import columns, count_parameters
from ..native import n_cores
from ..numerics.blocks import Layout, block_map
from ..numerics.devices import here_of

#: Rows of a block, and blocks of one call where there are as many, when an ensemble is evaluated.
ROWS_AT_ONCE = 256
BLOCKS_AT_ONCE = 32


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

    def __getstate__(self) -> dict[str, Any]:
        # as NumPy's arrays: JAX would read its own in single precision
        return {
            name: jax.tree.map(lambda leaf: np.asarray(leaf) if suits_numpy(leaf) else leaf, value)
            for name, value in vars(self).items()
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        def put(leaf: Any) -> Any:
            return jax.device_put(leaf) if isinstance(leaf, np.ndarray) else leaf

        with jax.enable_x64(state["constant"].dtype == np.float64):
            for name, value in state.items():
                object.__setattr__(self, name, jax.tree.map(put, value))

    @classmethod
    def stack(cls, constant: Array, learners: Sequence[tuple[Any, Array]]) -> "Ensemble":
        """Build an ensemble from ``(featurizer, weights)`` pairs."""
        with jax.enable_x64(constant.dtype == jnp.float64):
            if not learners:
                return cls(constant, None, jnp.zeros((0, 0, constant.shape[0]), constant.dtype))
            structure = jax.tree.structure(learners[0])
            leaves = zip(*[jax.tree.leaves(learner) for learner in learners], strict=True)  # not by ``jax.tree.map``:
            stacked = [_stack(*several) if eqx.is_array(several[0]) else several[0] for several in leaves]  # it is slow
            return cls(constant, *jax.tree.unflatten(structure, stacked))

    def unstack(self) -> list[tuple[Any, Array]]:
        """Undo :meth:`stack`: the ``(featurizer, weights)`` pairs of the learners."""
        return [self.part(m) for m in range(self.n_learners)]

    def part(self, which: int | slice) -> tuple[Any, Array]:
        """Return featurizer and weights of one learner, or of several, stacked."""
        arrays, structure = eqx.partition((self.featurizers, self.weights), eqx.is_array)
        with jax.enable_x64(self.constant.dtype == jnp.float64):
            return eqx.combine(jax.tree.map(lambda leaf: _part_of(leaf, which), arrays), structure)

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
        return Ensemble(self.constant, *self.part(slice(n_learners)))

    def learner_outputs(self, x: Array) -> Float[Array, "m k"]:
        """Return the contribution of each learner for one input."""
        return self._outputs(x[..., None])[:, 0]

    def _outputs(self, x: Float[Array, "*shape rows"]) -> Float[Array, "m rows k"]:
        """Return the contribution of each learner for inputs side by side."""
        if self.n_learners == 0:
            return jnp.zeros((0, x.shape[-1], self.n_outputs), self.constant.dtype)
        return jnp.einsum("mnr,mnk->mrk", stacked_columns(self.featurizers, self.n_learners, x), self.weights)

    def __call__(self, x: Array) -> Float[Array, " k"]:
        """Return f(x) for one input; a JAX function that can be differentiated, mapped and compiled."""
        return self.constant + jnp.sum(self.learner_outputs(x), axis=0)

    def predict(self, x: Any, devices: Any = None) -> np.ndarray:
        """Return f(x_i) for each row, shape ``(n_rows, K)``: raw values (logits for cross-entropies).

        Blocks of many rows go to ``devices`` in turn, given as for :func:`boost`; of this process.
        """
        return self._in_blocks(_predictions, x, here_of(devices))

    def staged_predict(self, x: Any) -> np.ndarray:
        """Return the predictions of the first 0, 1, ..., M learners, shape ``(M + 1, n_rows, K)``."""
        return np.moveaxis(self._in_blocks(_stages, x), 1, 0)

    def input_gradient(self, x: Any) -> np.ndarray:
        """Return ∂f/∂x at each row, shape ``(n_rows, K, *input_shape)``, exact by automatic differentiation."""
        return self._in_blocks(_jacobians, x)

    def _in_blocks(self, of_block: Callable, x: Any, devices: Sequence[Any] = ()) -> np.ndarray:
        dtype = np.dtype(self.constant.dtype)
        rows = np.asarray(x, dtype=dtype)
        if rows.ndim < 2:
            raise ValueError(f"x must have one row per sample (at least 2-D), got shape {rows.shape}")
        # always blocks of the same size: a row's result then does not depend on the rows it comes with
        layout = Layout(len(rows), max(-(-len(rows) // ROWS_AT_ONCE), 1), ROWS_AT_ONCE)
        starts = [*range(0, layout.n_blocks - BLOCKS_AT_ONCE + 1, BLOCKS_AT_ONCE)]
        calls = [(b, BLOCKS_AT_ONCE) for b in starts]
        calls += [(b, 1) for b in range(len(starts) * BLOCKS_AT_ONCE, layout.n_blocks)]

        def evaluate(first: int, n_blocks: int) -> np.ndarray:
            turn = jax.default_device(devices[first // BLOCKS_AT_ONCE % len(devices)]) if devices else nullcontext()
            part = rows[first * ROWS_AT_ONCE : (first + n_blocks) * ROWS_AT_ONCE]
            padded = np.zeros((n_blocks * ROWS_AT_ONCE, *rows.shape[1:]), dtype)
            padded[: len(part)] = part
            blocks = np.moveaxis(padded.reshape(n_blocks, ROWS_AT_ONCE, *rows.shape[1:]), 1, -1)
            with jax.enable_x64(dtype == np.float64), turn:
                found = np.asarray(_evaluate(self, of_block, jnp.asarray(blocks)))
            return found.reshape(-1, *found.shape[2:])

        if len(calls) == 1:
            found = [evaluate(*calls[0])]
        else:  # a call keeps one core busy
            with ThreadPoolExecutor(n_cores()) as pool:
                found = list(pool.map(evaluate, *zip(*calls, strict=True)))
        return np.concatenate(found)[: len(rows)]


def averaged(ensembles: Sequence[Ensemble]) -> Ensemble:
    """Return the mean of ensembles of one architecture as one ensemble, whose learners are theirs in turn.

    >>> import jax.numpy as jnp
    >>> two = [Ensemble.stack(jnp.array([value]), []) for value in (1.0, 2.0)]
    >>> float(averaged(two).constant[0])
    1.5
    """
    if len(ensembles) == 1:
        return ensembles[0]
    dtype, full = ensembles[0].constant.dtype, [one for one in ensembles if one.n_learners]
    turns = np.concatenate([np.arange(one.n_learners) for one in full] or [np.zeros(0, int)])
    order = np.argsort(turns, kind="stable")

    def joined(*leaves: Array) -> Array:
        if all(map(suits_numpy, leaves)):
            return jax.device_put(np.concatenate([np.asarray(leaf) for leaf in leaves])[order])
        return jnp.concatenate(leaves)[order]

    with jax.enable_x64(dtype == jnp.float64), np.errstate(over="ignore"):
        constants = [np.asarray(one.constant) for one in ensembles]
        constant = jax.device_put(np.mean(constants, axis=0, dtype=float).astype(dtype))
        if not full:
            return Ensemble.stack(constant, [])
        structure = eqx.filter(full[0].featurizers, eqx.is_array, inverse=True)
        arrays = [(eqx.filter(one.featurizers, eqx.is_array), one.weights) for one in full]
        featurizers, weights = jax.tree.map(joined, *arrays)
        share = jax.device_put(np.asarray(weights) / np.asarray(len(ensembles), dtype))
        return Ensemble(constant, eqx.combine(featurizers, structure), share)


def divided(ensemble: Ensemble, divisor: float) -> Ensemble:
    """Return an ensemble that predicts 1/divisor of what this one does."""
    with jax.enable_x64(ensemble.constant.dtype == jnp.float64):
        parts = [np.asarray(part) for part in (ensemble.constant, ensemble.weights)]
        constant, weights = (jax.device_put((part.astype(float) / divisor).astype(part.dtype)) for part in parts)
        return Ensemble(constant, ensemble.featurizers, weights)


# Stacking and cutting are left to NumPy where it can: JAX would compile a program for every shape.


def suits_numpy(leaf: Any) -> bool:
    """Say whether this is an array of plain numbers: not of random keys, nor traced by JAX."""
    plain = eqx.is_array(leaf) or isinstance(leaf, np.ndarray)
    return plain and not isinstance(leaf, jax.core.Tracer) and not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _stack(*leaves: Array) -> Array:
    return jax.device_put(np.stack(leaves)) if all(map(suits_numpy, leaves)) else jnp.stack(leaves)


def _part_of(leaf: Array, which: int | slice) -> Array:
    """Return part of an array along its first axis."""
    return jax.device_put(np.asarray(leaf)[which]) if suits_numpy(leaf) else leaf[which]


def stacked_columns(featurizers: Any, n: int, x: Float[Array, "*shape rows"]) -> Float[Array, "m n rows"]:
    """Return the features, by each of ``n`` stacked featurizers, of inputs side by side."""
    arrays, structure = eqx.partition(featurizers, eqx.is_array)
    return jax.vmap(lambda leaves: columns(eqx.combine(leaves, structure), x), axis_size=n)(arrays)


@eqx.filter_jit
def _evaluate(ensemble: Ensemble, of_block: Callable, blocks: Array) -> Array:
    return block_map(lambda x: of_block(ensemble, x), blocks)


def _predictions(ensemble: Ensemble, x: Array) -> Float[Array, "rows k"]:
    return ensemble.constant + jnp.sum(ensemble._outputs(x), axis=0)


def _stages(ensemble: Ensemble, x: Array) -> Float[Array, "rows m k"]:
    constant = jnp.broadcast_to(ensemble.constant, (1, x.shape[-1], ensemble.n_outputs))
    return jnp.moveaxis(jnp.cumsum(jnp.concatenate([constant, ensemble._outputs(x)]), axis=0), 0, 1)


@partial(program, quick=ONCE_A_STAGE)
def mean_squared_slopes(ensemble: Ensemble, x: Float[Array, "*shape rows"]) -> Float[Array, " *shape"]:
    """Return the squares of ∂f/∂x, averaged over rows, inputs side by side, and outputs."""
    return jnp.mean(_jacobians(ensemble, x) ** 2, axis=(0, 1))


def _jacobians(ensemble: Ensemble, x: Array) -> Float[Array, "rows k *shape"]:
    # one forward pass per input, or one backward pass per output: whichever are fewer
    mode = jax.jacrev if ensemble.n_outputs <= x[..., 0].size else jax.jacfwd
    return jax.vmap(mode(ensemble), in_axes=-1)(x)
