"""Soft trees beside networks: greedy questions for what a trained network leaves of the quadratic model.

No gradient finds where a response jumps. So the questions of a tree are found by trial, as in other boosting libraries:
each column is cut into bins, and of all cuts the one is taken that lowers the quadratic model most, if every leaf had a
weight of its own. The leaves then are features like any other (:class:`vpboost.featurizers.WithTree`): their weights
are solved for in closed form, together with the network's, and the trust region judges both.
"""

from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .. import native
from ..checks import check_count
from ..engine import is_native, program
from ..featurizers.trees import DEEPEST, planted
from ..numerics.quantiles import evenly_filled
from .data import Data
from .reduced import Derivatives
from .weak_learner import Trained, Training

#: Bins of a column, rows and columns that a tree is grown by, and outputs that count, at the most. (More outputs are
#: mixed at random.)
MOST_BINS, MOST_ROWS, MOST_COLUMNS, MOST_OUTPUTS = 128, 20_000, 100, 8
#: The part of the rows, and of the columns, that each tree is grown by: trees that see other parts err in other ways.
ROWS, COLUMNS = 0.7, 0.8
#: Where more than this part of the rows is in one bin of a column, sums are taken over the others.
COMMON = 0.6
#: How far an answer reaches from a cut, in units of the gap between the values beside it: between quantiles of many
#: values, and between values that are all there are. And at least, of scaled inputs.
SOFT, SHARP, SHARPEST = 0.1, 1 / 12, 1e-4
#: λ_w holds the weight of a leaf back as much as so many rows with nothing to explain would.
ROWS_OF_PENALTY = 1.0


class Trees(NamedTuple):
    """How to grow trees beside the featurizers of a fit."""

    depth: int = 6  #: levels
    n_columns: int | None = None  #: the first so many columns are asked about; None is all

    def check(self, training: Training) -> None:
        """Raise ``ValueError`` if this makes no sense."""
        check_count("depth of trees", self.depth)
        if self.depth > DEEPEST:
            raise ValueError(f"depth of trees must be at most {DEEPEST}, got {self.depth!r}")
        if not training.solves.end:
            raise ValueError(f"trees go with a method that solves at the end, got method={training.method!r}")


class Cuts(NamedTuple):
    """Where a column may be cut."""

    places: np.ndarray
    reach: np.ndarray  #: of the answers


class Grower:
    """Grows a tree beside each learner of a fit, on its training data."""

    def __init__(self, trees: Trees, data: Data):
        inputs = np.asarray(data.x)
        if inputs.ndim != 3:
            raise ValueError(f"trees are for tables, one row per sample, got inputs of shape {inputs.shape[1:-1]}")
        self.depth, self.width = trees.depth, inputs.shape[1]
        weight = np.asarray(data.weight, float).ravel()
        columns = np.moveaxis(inputs, 1, 0).reshape(self.width, -1)[: trees.n_columns]
        self.there = there = np.flatnonzero(weight)  # not what fills up blocks, which backends differ in
        self.cuts = [cuts_of(column[there].astype(float), weight[there]) for column in columns]
        self.bins = np.stack(
            [np.searchsorted(cuts.places, column) for cuts, column in zip(self.cuts, columns, strict=True)]
        ).astype(np.uint8)
        counts = [np.bincount(row) for row in self.bins[:, there]]
        self.common = np.array([np.argmax(c) if c.max() > COMMON * len(there) else -1 for c in counts], np.int16)

    def beside(self, words: Any, learner: Trained, features: Array, derivatives: Derivatives, reg: Array) -> Trained:
        """Return a learner with a tree beside its featurizer, by a random key's words.

        ``features`` are those of the training data.
        """
        rng = np.random.default_rng(words)
        dtype, n_outputs = features.dtype, derivatives.gradient.shape[-1]
        mix = rng.normal(size=(n_outputs, MOST_OUTPUTS)).astype(dtype) if n_outputs > MOST_OUTPUTS else None
        weight, bias = self.grow(rng, *left_by(features, derivatives, float(reg), mix))
        size = np.sqrt(float(reg) * len(self.there) / ROWS_OF_PENALTY)
        tree = (np.asarray(part, dtype) for part in (weight, bias, size))
        weights: Any = np.zeros((features.shape[1] + (1 << self.depth), n_outputs), dtype)  # only a first guess
        return Trained(planted(learner.featurizer, *tree), weights, learner.objective)

    def grow(self, rng: np.random.Generator, gradient: np.ndarray, curvature: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return v and b of each level's question, from ω g, (rows, outputs), and ω s of all rows."""
        chosen = self.there[rng.random(len(self.there)) < ROWS]
        if len(chosen) > MOST_ROWS:
            chosen = np.sort(rng.choice(chosen, MOST_ROWS, replace=False))
        n_columns = len(self.cuts)
        seen = np.zeros(n_columns, bool)
        seen[rng.permutation(n_columns)[: min(max(round(COLUMNS * n_columns), 1), MOST_COLUMNS)]] = True
        asked = native.Questions(
            np.take(self.bins, chosen, axis=1),
            np.zeros(len(chosen), np.uint8),
            np.ascontiguousarray(gradient[chosen]),
            np.ascontiguousarray(curvature[chosen]),
            seen,
            self.common,
        )
        find = native.best_cuts if is_native() and native.is_available() else best_cuts
        found = find(asked, MOST_BINS + 1, 1, self.depth, ROWS_OF_PENALTY / len(self.there))
        weight, bias = np.zeros((self.depth, self.width)), np.zeros(self.depth)
        for level, (column, place, _) in enumerate(found):
            if column < 0:
                break  # nothing to ask: all that are left are answered by one half
            cuts = self.cuts[column]
            weight[level, column] = 1 / cuts.reach[place]
            bias[level] = -cuts.places[place] / cuts.reach[place]
        return weight, bias


def grower_of(trees: Trees | None, data: Data, training: Training, mesh: Any) -> Grower | None:
    """Return what grows trees beside learners, if that is asked for."""
    if trees is None:
        return None
    trees.check(training)
    if mesh is not None:
        raise ValueError("trees are grown on one device; leave devices=None, or trees out")
    return Grower(trees, data)


def cuts_of(column: np.ndarray, weight: np.ndarray) -> Cuts:
    """Return where to cut a column: between neighbours of its quantiles, or of its values where those are few."""
    points = evenly_filled(column, weight, MOST_BINS)
    gaps = np.diff(points)
    few = len(np.unique(column)) <= len(points)
    return Cuts(points[:-1] + gaps / 2, np.maximum((SHARP if few else SOFT) * gaps, SHARPEST))


def left_by(
    features: Array, derivatives: Derivatives, reg: float, mix: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return ω g, (rows, outputs), after a step with the best weights of features in blocks, and ω s, s = mean H_kk.

    ``mix`` makes few outputs of many.
    """
    z = np.moveaxis(np.asarray(features), 1, 0).reshape(features.shape[1], -1)
    weight = np.asarray(derivatives.weight, float).reshape(-1, 1)
    gradient = np.asarray(derivatives.gradient).reshape(len(weight), -1)
    gradient = weight * (gradient if mix is None else gradient @ mix)
    curvature = weight[:, 0] * np.asarray(mean_curvature(derivatives), float).ravel()
    if is_native() and native.is_available():
        z, *rows = (np.ascontiguousarray(part, z.dtype) for part in (z, gradient.T, curvature))
        hessian, slopes = native.sums(z, rows[0], rows[1])
    else:
        hessian, slopes = (z * curvature) @ z.T, z @ gradient
    weights = np.linalg.solve(hessian + reg * np.eye(len(z)), slopes)
    return gradient - curvature[:, None] * (z.T @ weights.astype(z.dtype)), curvature


@partial(program, quick=np.inf)
def mean_curvature(derivatives: Derivatives) -> Array:
    """Return the mean over outputs of the diagonal of H_i."""
    return jnp.mean(derivatives.curvature.diagonal(), axis=-1)


def best_cuts(asked: native.Questions, n_bins: int, n_leaves: int, depth: int, penalty: float) -> list[native.Cut]:
    """Do what :func:`vpboost.native.best_cuts` does, by NumPy."""
    found, leaf = [native.NOTHING] * depth, asked.leaf.astype(np.intp)
    for level in range(depth):
        found[level] = cut = best_cut(asked, leaf, n_bins, n_leaves << level, penalty)
        if cut.column < 0:
            break
        leaf += (asked.bins[cut.column] > cut.place) * (n_leaves << level)
    return found


def best_cut(asked: native.Questions, leaf: np.ndarray, n_bins: int, n_leaves: int, penalty: float) -> native.Cut:
    """Return the best cut of all leaves."""
    best = native.NOTHING
    for column in np.flatnonzero(asked.seen):
        cell, n = leaf * n_bins + asked.bins[column], n_leaves * n_bins
        sums = [np.bincount(cell, part, n) for part in (asked.curvature, *asked.gradient.T)]
        left = np.cumsum(np.reshape(sums, (-1, n_leaves, n_bins)), axis=2)
        right = left[:, :, -1:] - left
        sides = [np.sum(side[1:] ** 2, axis=0) / (side[0] + penalty) for side in (left, right)]
        gain = np.sum(sides[0] + sides[1], axis=0)[: asked.bins[column].max(initial=0)]
        if len(gain) and gain.max() > best.gain:
            best = native.Cut(int(column), int(np.argmax(gain)), float(gain.max()))
    return best
