"""A fitted model as one JAX function, from an input to a prediction, both in the user's units; its derivatives."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..core.ensemble import Ensemble
from ..predictor import ENCODINGS, FARTHEST, level_name, to_rates
from ..tables.encoder import Categories, InputEncoder
from ..tables.scaling import TargetScaler

#: Rows whose derivatives are computed side by side.
ROWS_AT_ONCE = 64
#: Columns whose mean is more spreads than this from zero want double precision.
FAR_FROM_ZERO = 1e4


class AddedColumns(eqx.Module):
    """What an encoding adds to one numeric column, standardised."""

    column: int = eqx.field(static=True)
    encoding: str = eqx.field(static=True)
    arrays: dict[str, Array]
    mean: Array
    scale: Array

    def __call__(self, scaled: Array) -> Array:
        """Return the added columns for one row of scaled numbers."""
        values = ENCODINGS[self.encoding](self.arrays, scaled[self.column][None], jnp)[0]
        return (values - self.mean) / self.scale


class ModelFunction(eqx.Module):
    """A fitted model as a pure JAX function of one input: a pytree, whose leaves are all that the model has learnt.

    Call it with the numeric columns of one row (an image, where X holds images) in the user's units, NaN for missing
    ones. It returns what ``predict`` does, of a classifier what ``predict_proba`` does: a number, or one for each
    output or class.
    """

    shape: tuple[int, ...] = eqx.field(static=True)  #: of an input
    mean: Array
    scale: Array
    constant: Array  #: which columns do not vary
    missing: tuple[int, ...] = eqx.field(static=True)  #: columns that have an indicator of missing values
    levels: Array  #: categories, as 0 and 1
    added: list[AddedColumns]
    ensemble: Ensemble
    target_scale: Array
    target_shift: Array
    link: str = eqx.field(static=True)  #: "none", "standard", "log" or "classes"
    single: bool = eqx.field(static=True)  #: whether to return a number
    each: int = eqx.field(static=True, default=1)  #: numbers predicted for each target, the location first
    in_order: bool = eqx.field(static=True, default=False)  #: whether they are quantiles, all to be returned

    def __hash__(self) -> int:
        return id(self)  # JAX asks for one to compile a function; arrays have none

    def __eq__(self, other: object) -> bool:
        return self is other

    def __call__(self, x: Array) -> Array:
        """Return the prediction for one input."""
        if self.mean.dtype == np.float64 and not jax.config.jax_enable_x64:  # type: ignore[attr-defined]
            raise ValueError("the function was made in double precision; call it within jax.enable_x64(True), too")
        x = jnp.asarray(x, self.mean.dtype)
        if x.shape != self.shape:
            raise ValueError(f"x must be one input of shape {self.shape}, got shape {x.shape}; jax.vmap takes several")
        raw = self.ensemble(self.encode(x))
        if self.link == "classes":
            return jax.nn.softmax(jnp.concatenate([jnp.zeros(1, raw.dtype), raw]) if len(raw) == 1 else raw)
        raw = raw.reshape(-1, self.each)
        raw = jnp.sort(raw, axis=1).T if self.in_order else raw[:, 0]
        values = self.target_scale * (to_rates(raw, jnp) if self.link == "log" else raw) + self.target_shift
        values = values.T if self.in_order else values
        return values[0] if self.single else values

    def encode(self, x: Array) -> Array:
        """Return one input as the learners see it."""
        known = ~jnp.isnan(x)
        scaled = jnp.clip((x - self.mean) / self.scale, -FARTHEST, FARTHEST)
        scaled = jnp.where(known & ~self.constant, scaled, 0.0)
        if len(self.shape) > 1:
            return scaled
        marks = 1.0 - known[jnp.asarray(self.missing, int)]
        more = [jnp.where(known[added.column], added(scaled), 0.0) for added in self.added]
        return jnp.concatenate([scaled, marks.astype(scaled.dtype), self.levels, *more])


def function_of(model: Any, levels: np.ndarray, link: str, single: bool) -> ModelFunction:
    """Return the function of a fitted estimator, in the precision that JAX has now."""
    encoder: InputEncoder = model.input_encoder_
    if not jax.config.jax_enable_x64:  # type: ignore[attr-defined]
        warn_if_too_coarse(encoder, model.target_scaler_)

    def array(values: Any) -> Array:
        with np.errstate(over="ignore"):
            return jnp.asarray(np.asarray(values, float))

    def learnt(leaf: Any) -> Any:
        return array(leaf) if eqx.is_inexact_array(leaf) else leaf

    added = [
        AddedColumns(
            extra.column, extra.encoding.name, {name: array(part) for name, part in vars(extra.encoding).items()},
            array(extra.mean), array(extra.scale),
        )
        for extra in encoder.extras_
    ]  # fmt: skip
    return ModelFunction(
        shape=tuple(encoder.shape_),
        mean=array(encoder.mean_),
        scale=array(encoder.scale_),
        constant=jnp.asarray(encoder.constant_),
        missing=tuple(map(int, encoder.missing_)),
        levels=array(levels),
        added=added,
        ensemble=jax.tree.map(learnt, model.ensemble_),
        target_scale=array(model.target_scaler_.scale_),
        target_shift=array(model.target_scaler_.shift_),
        link=link,
        single=single,
        each=model.loss_.n_parameters,
        in_order=model._in_order(),
    )


def warn_if_too_coarse(encoder: InputEncoder, scaler: TargetScaler) -> None:
    """Warn where single precision does not tell inputs or targets apart, or cannot hold them."""
    tiny, huge = np.finfo(np.float32).tiny, np.finfo(np.float32).max
    sizes = np.abs(np.concatenate([np.ravel(part) for part in (encoder.scale_, scaler.scale_)]))
    far = np.abs(encoder.mean_) > FAR_FROM_ZERO * encoder.scale_
    if np.any(far) or sizes.min() < tiny or max(sizes.max(), np.abs(encoder.mean_).max(initial=0.0)) > huge:
        warnings.warn(
            "single precision is too coarse for the units of X or y; make and use the function in double precision, "
            "with jax.enable_x64(True)",
            UserWarning,
            stacklevel=4,
        )


def chosen_levels(model: Any, values: Mapping | None) -> np.ndarray:
    """Return the categories of a row as 0 and 1, from a known value for each categorical column."""
    categories = model.input_encoder_.categories_
    names = getattr(model, "feature_names_in_", None)
    labels = [c.column if names is None else str(names[c.column]) for c in categories]
    given = {} if values is None else values
    if not isinstance(given, Mapping) or set(given) != set(labels):
        found = list(given) if isinstance(given, Mapping) else repr(given)
        raise ValueError(f"levels must map each categorical column, {labels}, and no other, to a value; got {found}")
    rows = [[level_name(given[label])] for label in labels]
    for label, (name,), known in zip(labels, rows, categories, strict=True):
        if name not in known.levels:
            raise ValueError(f"levels[{label!r}] must be one of {list(known.levels)}, got {given[label]!r}")
    return one_hot(categories, rows, 1)[0]


def one_hot(categories: Sequence[Categories], columns: Sequence[Any], n_rows: int) -> np.ndarray:
    """Return the names in categorical columns as 0 and 1, a row each."""
    parts = [
        np.array(names, object)[:, None] == np.array(known.levels, object)
        for names, known in zip(columns, categories, strict=True)
    ]
    return np.concatenate([np.zeros((n_rows, 0)), *parts], axis=1).astype(float)


def each_row(of_row: Callable, function: ModelFunction, *arrays: np.ndarray) -> np.ndarray:
    """Return ``of_row(function, levels, x, ...)`` for each row of the arrays, some rows at a time."""
    found = []
    for begin in range(0, len(arrays[0]), ROWS_AT_ONCE):
        parts = [part[begin : begin + ROWS_AT_ONCE] for part in arrays]
        n_rows = len(parts[0])
        padded = [np.pad(part, [(0, ROWS_AT_ONCE - n_rows), *[(0, 0)] * (part.ndim - 1)]) for part in parts]
        found.append(np.asarray(_mapped(of_row, function, *map(jnp.asarray, padded)))[:n_rows])
    return np.concatenate(found)


@eqx.filter_jit
def _mapped(of_row: Callable, function: ModelFunction, *arrays: Array) -> Array:
    return jax.vmap(lambda levels, *row: of_row(eqx.tree_at(lambda f: f.levels, function, levels), *row))(*arrays)


def hessian(function: ModelFunction, x: Float[Array, " d"]) -> Float[Array, "... d d"]:
    """Return the second derivatives of the predictions."""
    return jax.hessian(function)(x)


def along_inputs(function: ModelFunction, x: Array, direction: Array) -> Array:
    """Return the derivatives of all predictions along a direction of the inputs: J v."""
    return jax.jvp(function, (x,), (direction,))[1]


def along_outputs(function: ModelFunction, x: Array, weights: Array) -> Array:
    """Return the derivatives of a weighted sum of predictions by all inputs: Jᵀ u."""
    return jax.vjp(function, x)[1](weights)[0]
