"""Numbers scaled to order one: means and spreads of columns, and targets with the way back to the user's units."""

from typing import Any

import numpy as np

from ..predictor import MOST_LOG, scaled_back, standardise, to_rates

#: Targets of robust losses are cut off at so many spreads, those of the deciles if they are larger.
ROBUST_LIMIT = 1e4


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


class TargetScaler:
    """Scales targets to order one, and predictions back.

    By shift and spread ("standard"), those of logarithms ("logs"), or, for a log link, by the mean alone ("log").
    """

    limit_: Any = ROBUST_LIMIT  # of losses that are not robust, and of files of earlier versions

    def __init__(self, kind: str):
        self.kind = kind

    def fit(self, target: np.ndarray, weight: np.ndarray, robust: bool = False) -> "TargetScaler":
        """Learn the scale from training targets and their weights.

        A ``robust`` scale is by quantiles: a few targets, however large, do not change it.
        """
        n_outputs = target.shape[1] if target.ndim == 2 else 1
        self.shift_, self.scale_ = np.zeros(n_outputs), np.ones(n_outputs)
        if self.kind == "none":
            return self
        target = self._logs(target)
        if self.kind == "log":
            mean = statistics(target, weight)[0]
            self.scale_ = np.where(mean > 0, mean, 1.0)
            return self
        self.shift_, self.scale_, _ = statistics(target, weight)
        if robust:
            known = [~np.isnan(column) for column in target.T]
            found = np.array([robust_statistics(target[k, j], weight[k]) for j, k in enumerate(known)])
            self.shift_, self.scale_ = found[:, 0], np.where(found[:, 1] > 0, found[:, 1], self.scale_)
            self.limit_ = ROBUST_LIMIT * np.maximum(found[:, 2] / self.scale_, 1.0)
        return self

    def transform(self, target: np.ndarray, robust: bool = False) -> np.ndarray:
        """Return scaled targets, cut off where a wild one would drown the sums over all rows.

        That is at a million spreads, of a robust loss, to which it makes no difference, earlier.
        """
        if self.kind == "none":
            return target
        target = self._logs(target)
        if self.kind == "log":
            return target / self.scale_
        scaled = standardise(target, self.shift_, self.scale_, False)
        if np.isnan(target).any():
            scaled = np.where(np.isnan(target), np.nan, scaled)
        return np.clip(scaled, -self.limit_, self.limit_) if robust else scaled

    def transform_slopes(self, slopes: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Return derivatives of scaled targets from those of targets, (rows, outputs, columns); not for a log link."""
        unit = self.scale_ * target if self.kind == "logs" else self.scale_
        return slopes / unit[..., None]

    def _logs(self, target: np.ndarray) -> np.ndarray:
        """Return targets, or their logarithms where those are scaled."""
        if self.kind != "logs":
            return target
        if np.nanmin(target) <= 0:
            raise ValueError(f"y must be positive for distribution='lognormal', got a value of {np.nanmin(target):g}")
        return np.log(target)

    def inverse(self, raw: np.ndarray) -> np.ndarray:
        """Return predictions in the user's units from raw ones."""
        return scaled_back(raw, self.kind, self.scale_, self.shift_)

    def slope(self, raw: np.ndarray) -> np.ndarray:
        """Return the derivative of :meth:`inverse`."""
        moves = np.where(np.abs(raw) < MOST_LOG, to_rates(raw), 0.0) if self.kind == "log" else np.ones_like(raw)
        return self.scale_ * moves


def robust_statistics(values: np.ndarray, weight: np.ndarray) -> tuple[float, float, float]:
    """Return the weighted median, the spread of a normal law with the same quartiles, and with the same deciles.

    Where most values are equal, or next to it, quantiles farther out take the place of the quartiles; the spread is
    zero if no such pair differs.
    """
    levels = [0.5, 0.25, 0.75, 0.1, 0.9, 0.02, 0.98]
    median, *ends = np.quantile(values, levels, weights=weight, method="inverted_cdf").tolist()
    widths = 1.349, 2.563, 4.107  # of a standard normal law
    spreads = [high / width - low / width for low, high, width in zip(ends[::2], ends[1::2], widths, strict=True)]
    least = max(16 * np.finfo(float).eps * abs(median), np.finfo(float).tiny, 1e-9 * spreads[1])
    return median, next((spread for spread in spreads if spread >= least), 0.0), spreads[1]
