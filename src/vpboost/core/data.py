"""Checks of training data at the boundary, and their arrangement in blocks."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

from ..losses import Loss
from ..numerics.blocks import Layout, rows_per_block
from ..numerics.rows import Rows, chunks

#: Training inputs that featurizer factories get to see, at the most.
SAMPLE_ROWS = 1024
#: Rows of a block, at the most, where mini-batches of several blocks are drawn.
ROWS_PER_DRAW = 1024


class Data(eqx.Module):
    """Inputs (rows last), prepared targets and sample weights (summing to one) in blocks of rows."""

    x: Array
    target: Array
    weight: Float[Array, "blocks rows"]
    n_rows: np.ndarray  #: without padding; not static, so that data of similar sizes share compiled programs
    n_outputs: int = eqx.field(static=True)

    @property
    def layout(self) -> Layout:
        """How the rows are arranged."""
        return Layout(int(self.n_rows), *self.weight.shape)

    def rows_of(self, blocks: Array) -> np.ndarray:
        """Return what is in blocks, predictions say, one row per sample."""
        return self.layout.merge(np.asarray(blocks))

    def sample(self, n_rows: int = SAMPLE_ROWS) -> Array:
        """Return up to ``n_rows`` training inputs, evenly spaced over the data."""
        chosen = evenly_spaced(np.arange(self.layout.n_rows), n_rows)
        block, place = np.divmod(chosen, self.layout.block_rows)
        return jax.device_put(np.asarray(self.x)[block, ..., place])

    def filled(self, values: Array) -> Array:
        """Return an array in blocks that has these values for every row."""
        shape = *self.weight.shape, *values.shape
        return jax.device_put(np.ascontiguousarray(np.broadcast_to(np.asarray(values), shape)))

    def sample_of_targets(self) -> tuple[Array, Array]:
        """Return targets in blocks and weights that sum to one, for checks and for c₀: all of them."""
        return self.target, self.weight


def evenly_spaced(rows: np.ndarray, n_rows: int) -> np.ndarray:
    """Return up to ``n_rows`` of the rows, from the first to the last part of them.

    >>> evenly_spaced(np.arange(7), 3).tolist()
    [0, 3, 6]
    """
    return rows[:: max(-(-len(rows) // n_rows), 1)]


def prepare(
    x: Any,
    y: Any,
    loss: Loss,
    sample_weight: Any = None,
    dtype: Any = np.float32,
    names: tuple[str, str] = ("x", "y"),
    batch_size: int | None = None,
    seed: int = 0,
    unit: int | None = None,
) -> Data:
    """Check inputs, targets and weights and arrange them in blocks; errors name the argument at fault.

    For mini-batches, which are made of whole blocks, blocks are small and the rows shuffled. ``unit`` is that of
    :meth:`Layout.for_rows`.
    """
    inputs, target, weight, n_outputs = checked(x, y, loss, sample_weight, names)
    layout, order = Layout.for_rows(len(inputs), rows_per_block(dtype), unit), None
    if batch_size is not None and batch_size < len(inputs):
        # little padding, which is all in the last block: batches that draw it have fewer rows
        layout = Layout.for_rows(len(inputs), min(batch_size, ROWS_PER_DRAW), unit=32)
        order = np.random.default_rng(seed).permutation(np.arange(len(inputs), dtype=np.int32))
        target, weight = target[order], weight[order]
    # targets and weights first: what they leave behind is gone before the inputs, the largest part, are laid out
    weight_blocks = jax.device_put(layout.split_weights(weight).astype(dtype))
    with np.errstate(over="ignore"):
        target_blocks = layout.split(target.astype(target.dtype if target.dtype.kind in "iu" else dtype))
        del target, weight
        x_blocks = layout.split_inputs(inputs, dtype, order)
    check_size(x_blocks, target_blocks, names, dtype)
    return Data(
        x=jax.device_put(x_blocks, may_alias=True),  # nobody else has it, and it may be large
        target=jax.device_put(target_blocks),
        weight=weight_blocks,
        n_rows=np.asarray(len(inputs)),
        n_outputs=n_outputs,
    )


def checked(x: Any, y: Any, loss: Loss, sample_weight: Any, names: tuple[str, str]) -> tuple[Any, Any, np.ndarray, int]:
    """Return inputs, prepared targets, weights and the number of outputs; errors name the argument at fault."""
    inputs = check_inputs(x, names[0])
    if len(np.atleast_1d(y)) != len(inputs):
        raise ValueError(
            f"{names[0]} and {names[1]} must have as many rows, got {len(inputs)} and {len(np.atleast_1d(y))}"
        )
    target = loss.prepare_targets(y)
    return inputs, target, check_weights(sample_weight, len(inputs)), loss.n_outputs(target)


def check_size(x_blocks: np.ndarray, target_blocks: np.ndarray, names: tuple[str, str], dtype: Any) -> None:
    """Raise ``ValueError`` if a number has become infinite in this precision."""
    # a target may be missing, where its loss allows it
    for name, blocks, missing in zip(names, (x_blocks, target_blocks), (False, True), strict=True):
        if not all(np.all(np.isfinite(block) | (missing & np.isnan(block))) for block in blocks):
            raise ValueError(f"{name} has values too large for {np.dtype(dtype)}; rescale it or use float64")


def prepare_validation(
    validation: tuple, loss: Loss, dtype: Any, training: Data, unit: int | None = None, prepare: Callable = prepare
) -> Data:
    """Prepare ``(x, y)`` or ``(x, y, sample_weight)``, checked against the training data."""
    if not isinstance(validation, tuple | list) or len(validation) not in (2, 3):
        raise ValueError("validation must be (x, y) or (x, y, sample_weight)")
    x, y, *rest = validation
    data = prepare(x, y, loss, rest[0] if rest else None, dtype, ("validation x", "validation y"), unit=unit)
    if data.x.shape[1:-1] != training.x.shape[1:-1]:
        raise ValueError(f"validation x must have rows of shape {training.x.shape[1:-1]}, got {data.x.shape[1:-1]}")
    classes = data.target.dtype.kind == "i"  # not every class need occur in the validation data
    if data.n_outputs > training.n_outputs or (data.n_outputs < training.n_outputs and not classes):
        raise ValueError(f"validation y must have {training.n_outputs} outputs or classes, got {data.n_outputs}")
    return data


def check_inputs(x: Any, name: str) -> Any:
    """Return ``x`` as a finite numeric array or source with at least one row; raise an error naming it otherwise."""
    inputs: Any = x if isinstance(x, Rows) else np.asarray(x)
    if not isinstance(x, Rows) and inputs.dtype.kind not in "biuf":
        raise TypeError(f"{name} must be numeric, got dtype {inputs.dtype}")
    if inputs.ndim < 2:
        raise ValueError(f"{name} must have one row per sample (at least 2-D), got shape {inputs.shape}")
    if 0 in inputs.shape:
        raise ValueError(f"{name} must not be empty, got shape {inputs.shape}")
    if not isinstance(x, Rows) and not all(np.all(np.isfinite(part)) for part in chunks(inputs)):
        raise ValueError(f"{name} must be finite, got NaN or infinity")
    return inputs


def check_weights(sample_weight: Any, n_rows: int) -> np.ndarray:
    """Return sample weights, ones by default; raise an error that names them if they make no sense."""
    if sample_weight is None:
        return np.ones(n_rows)
    weight = np.asarray(sample_weight)
    if weight.dtype.kind not in "biuf":
        raise TypeError(f"sample_weight must be numeric, got dtype {weight.dtype}")
    if weight.shape != (n_rows,):
        raise ValueError(f"sample_weight must have shape ({n_rows},), got {weight.shape}")
    if not np.all(np.isfinite(weight)):
        raise ValueError("sample_weight must be finite, got NaN or infinity")
    if weight.min() < 0:
        raise ValueError(f"sample_weight must be non-negative, got a value of {weight.min():g}")
    if weight.max() == 0:
        raise ValueError("sample_weight must have a positive entry, got only zeros")
    # divided first by the largest, so that the sum cannot overflow
    return weight / weight.max()
