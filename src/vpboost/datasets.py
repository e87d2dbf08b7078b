"""The paper's three two-dimensional problems, generated: no download, any size, any seed."""

from typing import NamedTuple

import numpy as np


class Split(NamedTuple):
    """Training, validation and test parts of a problem, 70/15/15."""

    x_train: np.ndarray
    y_train: np.ndarray
    x_val: np.ndarray
    y_val: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray


def oscillatory(x: np.ndarray) -> np.ndarray:
    """Return task 1's target x₁(1−x₁) cos(4πx₁) sin²(4πx₂²)."""
    return x[:, 0] * (1 - x[:, 0]) * np.cos(4 * np.pi * x[:, 0]) * np.sin(4 * np.pi * x[:, 1] ** 2) ** 2


def peaks(x: np.ndarray) -> np.ndarray:
    """Return the MATLAB ``peaks`` function (``eq:peaks``)."""
    a, b = x[:, 0], x[:, 1]
    return (
        3 * (1 - a) ** 2 * np.exp(-(a**2) - (b + 1) ** 2)
        - 10 * (a / 5 - a**3 - b**5) * np.exp(-(a**2) - b**2)
        - np.exp(-((a + 1) ** 2) - b**2) / 3
    )


def peaks_class(x: np.ndarray, n_classes: int = 5) -> np.ndarray:
    """Return the level set of ``peaks``, out of ``n_classes`` equal slices of its range over [−3, 3]²."""
    side = np.linspace(-3, 3, 301)
    values = peaks(np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2))
    edges = np.linspace(values.min(), values.max(), n_classes + 1)[1:-1]
    return np.digitize(peaks(x), edges)


def task1(n_train: int = 1200, seed: int = 0) -> Split:
    """Regression on the unit square: a smooth, oscillating function.

    >>> task1().x_train.shape
    (1200, 2)
    """
    rng = np.random.default_rng(seed)
    x = rng.uniform(size=(_total(n_train), 2))
    return _split(x, oscillatory(x), n_train, rng)


def task2(n_train: int = 1600, seed: int = 0) -> Split:
    """Binary classification: two interleaved spirals, radius and angle growing together, half the points on each."""
    rng = np.random.default_rng(seed)
    total = _total(n_train)
    label = np.arange(total) % 2
    angle = rng.uniform(0, 4 * np.pi, size=total)
    radius = angle / (4 * np.pi) + 0.2 * label
    x = radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return _split(x, label, n_train, rng)


def task3(n_train: int = 4000, seed: int = 0) -> Split:
    """Five balanced classes: level sets of ``peaks`` over [−3, 3]²."""
    rng = np.random.default_rng(seed)
    per_class = -(-_total(n_train) // 5)
    found: list[list[np.ndarray]] = [[] for _ in range(5)]
    while min(sum(map(len, parts)) for parts in found) < per_class:
        x = rng.uniform(-3, 3, size=(20_000, 2))
        label = peaks_class(x)
        for k in range(5):
            found[k].append(x[label == k])
    x = np.concatenate([np.concatenate(parts)[:per_class] for parts in found])
    return _split(x, np.repeat(np.arange(5), per_class), n_train, rng)


def _total(n_train: int) -> int:
    return round(n_train / 0.7)


def _split(x: np.ndarray, y: np.ndarray, n_train: int, rng: np.random.Generator) -> Split:
    order = rng.permutation(len(x))
    n_val = (len(x) - n_train) // 2
    train, val, test = np.split(order, [n_train, n_train + n_val])
    return Split(x[train], y[train], x[val], y[val], x[test], y[test])
