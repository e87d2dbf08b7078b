"""Data sets that a fit keeps track of: predictions of the ensemble on them, and features of its next learner."""

import dataclasses
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array

from ..engine import ONCE_A_STAGE, is_native, leave_to_numpy, program
from ..featurizers import Identity, columns
from ..losses import Loss, SquaredError
from ..numerics.blocks import block_map
from .data import Data
from .dense import MOST_KEPT, features_by_c, is_dense, parameters_of
from .reduced import Derivatives

#: Up to so many rows, the features of a learner are computed once and kept until it is accepted or rejected.
MAX_ROWS_KEPT = 1 << 17
#: What makes features of features.
THEMSELVES = Identity()


class Tracked(NamedTuple):
    """A data set and the ensemble's predictions on it; of the training data, and of validation data if there are."""

    data: Data
    prediction: Array

    @property
    def labelled(self) -> tuple[Array, Array, Array]:
        """Predictions, targets and weights: what a loss is made of."""
        return self.prediction, self.data.target, self.data.weight

    def rows(self) -> np.ndarray:
        """Return the predictions, one row per sample."""
        return self.data.rows_of(self.prediction)


def track(sets: list[Data], constant: Array, kept: bool) -> list[Tracked]:
    """Return data sets with the predictions of a constant; ``kept`` says whether C makes features, which are kept.

    All rows of a set then are one block, but for its inputs: many blocks would be many calls.
    """
    if kept:
        leave_to_numpy()
        sets = [in_one_block(data) for data in sets]
    return [Tracked(data, data.filled(constant)) for data in sets]


def keeps_features(sets: list[Data], loss: Loss, featurizer: Any, n_leaves: int) -> bool:
    """Say whether C makes the features of such learners and sums over them, and there is room for those of all rows.

    It knows no sums of coupled outputs, which others take block by block.
    """
    alone = sets[0].n_outputs == 1 or isinstance(loss, SquaredError)
    if not is_native() or not alone or sets[0].x.ndim != 3 or not is_dense(featurizer):
        return False
    n_features = parameters_of(featurizer)[-1].shape[-1] + n_leaves + 1
    return sum(data.weight.size for data in sets) * n_features <= MOST_KEPT


def in_one_block(data: Data) -> Data:
    """Return data whose targets and weights are in one block, the inputs as they were."""
    rows: Any = [np.asarray(part).reshape(1, -1, *part.shape[2:]) for part in (data.target, data.weight)]
    return dataclasses.replace(data, target=rows[0], weight=rows[1])


def in_blocks_of(data: Data, derivatives: Derivatives) -> Derivatives:
    """Return derivatives arranged in the blocks of data."""
    shape = data.weight.shape
    if derivatives.weight.shape == shape:
        return derivatives
    return jax.tree.map(lambda leaf: leaf.reshape(*shape, *leaf.shape[2:]), derivatives)


def featurized(featurizer: Any, tracked: list[Tracked], known: Any = None) -> tuple[Any, list[Any]]:
    """Return a featurizer and inputs of the data sets that give their features: these themselves if rows are few.

    They are then computed once, and the programs that follow serve inputs of any shape. ``known`` is as for
    :func:`features_of`.
    """
    sets = [one.data for one in tracked]
    if any(len(data.weight) > 1 and data.weight.size > MAX_ROWS_KEPT for data in sets):
        return featurizer, [data.x for data in sets]
    return THEMSELVES, features_of(featurizer, sets, known)


def features_of(featurizer: Any, sets: list[Data], known: Any = None) -> list[Any]:
    """Return the features of data sets, in as many blocks as their weights.

    ``known`` are those of the first set without the leaves of a tree, if they have been computed already.
    """
    inputs = [data.x for data in sets]
    by_c = is_native() and inputs[0].ndim == 3 and is_dense(featurizer)
    whole = all(len(data.weight) == 1 for data in sets)
    return features_by_c(featurizer, inputs, known) if by_c and whole else features_in_blocks(featurizer, inputs)


@partial(program, quick=ONCE_A_STAGE)
def features_in_blocks(featurizer: Any, inputs: list[Array]) -> list[Array]:
    """Return the features of inputs in blocks."""
    return [block_map(partial(columns, featurizer), x) for x in inputs]


def add(weights: Array, featurizer: Any, inputs: list[Any], tracked: list[Tracked]) -> list[Tracked]:
    """Return the data sets with predictions to which a learner is added; ``inputs`` are those of its featurizer."""
    found = update(weights, [one.prediction for one in tracked], featurizer, inputs)
    return [Tracked(one.data, prediction) for one, prediction in zip(tracked, found, strict=True)]


@partial(program, quick=ONCE_A_STAGE)
def update(weights: Array, predictions: list[Array], featurizer: Any, inputs: list[Array]) -> list[Array]:
    """Return predictions with a learner added."""

    def with_learner(prediction: Array, x: Array) -> Array:
        return block_map(lambda f, x: f + columns(featurizer, x).T @ weights, prediction, x)

    return [with_learner(*pair) for pair in zip(predictions, inputs, strict=True)]
