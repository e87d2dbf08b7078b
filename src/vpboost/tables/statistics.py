"""Means and spreads of columns, whatever their size."""

from typing import Any

import numpy as np


def statistics(numbers: np.ndarray, weight: np.ndarray) -> tuple[Any, Any, Any]:
    """Return mean, spread and "is constant" of each column, of images as a whole; missing numbers do not count.

    Numbers may be huge, tiny or far from zero: they are divided by a power of two and moved near zero before anything
    is squared or added up.
    """
    axes = (0,) if numbers.ndim == 2 else None
    present = np.isfinite(numbers)
    weights = np.broadcast_to(weight.reshape(-1, *[1] * (numbers.ndim - 1)), numbers.shape) * present
    total = np.maximum(weights.sum(axis=axes), np.finfo(float).tiny)
    largest = np.abs(np.where(present, numbers, 0.0)).max(axis=axes)
    unit = np.exp2(np.ceil(np.log2(np.maximum(largest, np.finfo(float).tiny))) - 1)
    small = np.where(present, numbers, 0.0) / unit
    first = small[np.argmax(present, axis=0), np.arange(small.shape[1])] if numbers.ndim == 2 else small.flat[0]
    moved = np.where(present, small - first, 0.0)
    shift = (weights * moved).sum(axis=axes) / total
    centred = np.where(present, moved - shift, 0.0)
    farthest = np.maximum(np.abs(centred).max(axis=axes), np.finfo(float).tiny)
    spread = farthest * np.sqrt((weights * (centred / farthest) ** 2).sum(axis=axes) / total)
    constant = spread <= 16 * np.finfo(float).eps * np.abs(
        first + shift
    )  # what remains after rounding of equal numbers
    for j in np.flatnonzero(constant & (spread > 0)) if numbers.ndim == 2 else ():
        column = numbers[present[:, j], j]
        constant[j] = largest[j] > 2**53 or (column != np.floor(column)).any()  # whole numbers are exact
    constant |= spread * unit < np.finfo(float).tiny  # too small to divide by
    return unit * (first + shift), np.where(constant, 1.0, spread * unit), constant
