"""Predictions of Dask's collections: lazy, partition by partition."""

import uuid
from typing import Any

import dask
import dask.array as da
import numpy as np


def predicted_lazily(model: Any, method: str, X: Any, options: dict[str, Any]) -> Any:
    """Return what a method of a plain fitted estimator gives: an array of an array, a series or frame of a frame.

    The model is one task, which each worker that predicts fetches once.
    """
    shape, dtype = width_of(model, method), dtype_of(model, method)
    sent = dask.delayed(model, name=f"vpboost-model-{uuid.uuid4().hex}", traverse=False)
    if isinstance(X, da.Array):
        chunks = (X.chunks[0], *((n,) for n in shape))
        own = tuple(range(1, X.ndim))
        kept = own[: len(shape)]
        return da.map_blocks(
            predict_part, X, sent, method, options, shape, dtype,
            dtype=dtype, chunks=chunks, drop_axis=list(own[len(kept) :]), new_axis=new_axes(X.ndim, len(shape)),
            meta=np.empty((0,) * (1 + len(shape)), dtype),
        )  # fmt: skip
    names = names_of(model, method, shape)
    meta = as_frame(np.empty((0, *shape), dtype), X._meta.index[:0], names)
    return X.map_partitions(predict_frame, sent, method, options, shape, dtype, names, meta=meta)


def new_axes(n_in: int, n_out: int) -> list[int] | None:
    """Return the axes that predictions have more than inputs."""
    return list(range(n_in, 1 + n_out)) or None


def width_of(model: Any, method: str) -> tuple[int, ...]:
    """Return the shape of the prediction of a row."""
    if hasattr(model, "classes_"):
        n_classes = len(model.classes_)
        return () if method == "predict" or (method == "decision_function" and n_classes == 2) else (n_classes,)
    levels = getattr(model.loss_, "level", None)
    quantiles = (len(levels),) if isinstance(levels, tuple) else ()
    return (*(() if model.single_output_ else (model.n_outputs_,)), *quantiles)


def dtype_of(model: Any, method: str) -> np.dtype:
    """Return the type of predictions."""
    return model.classes_.dtype if method == "predict" and hasattr(model, "classes_") else np.dtype(np.float64)


def names_of(model: Any, method: str, shape: tuple[int, ...]) -> list[Any]:
    """Return the name of a series of predictions, or those of the columns of a frame."""
    if len(shape) > 1:
        raise ValueError("several quantiles of several outputs make no data frame; predict a Dask array")
    if not shape:
        return [(model.target_names_ or [None])[0]]
    if hasattr(model, "classes_"):
        return model.classes_.tolist()
    named = model.target_names_ is not None and len(model.target_names_) == shape[0]
    return model.target_names_ if named else list(range(shape[0]))


def predict_part(part: Any, model: Any, method: str, options: dict, shape: tuple[int, ...], dtype: np.dtype) -> Any:
    """Return the predictions of a partition, which may have no rows."""
    if not len(part):
        return np.empty((0, *shape), dtype)
    return np.asarray(getattr(model, method)(part, **options), dtype).reshape(len(part), *shape)


def predict_frame(
    part: Any, model: Any, method: str, options: dict, shape: tuple[int, ...], dtype: np.dtype, names: list[Any]
) -> Any:
    """Return the predictions of a partition of a data frame, with its index."""
    return as_frame(predict_part(part, model, method, options, shape, dtype), part.index, names)


def as_frame(values: np.ndarray, index: Any, names: list[Any]) -> Any:
    """Return predictions as a series or data frame."""
    import pandas as pd

    if values.ndim == 1:
        return pd.Series(values, index=index, name=names[0])
    return pd.DataFrame(values, index=index, columns=names)
