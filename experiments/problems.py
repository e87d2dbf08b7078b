"""The paper's problems: data, loss, architecture of the learners and size of the matched trees."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from scipy.special import logsumexp
from sklearn.metrics import accuracy_score, mean_squared_error, r2_score, roc_auc_score

from vpboost import MLP, BinaryCrossEntropy, ConvNet, Loss, MulticlassCrossEntropy, ResNet, SquaredError, datasets

from . import data
from .data import Parts

#: Rows of each part in the short version of a problem, at the most.
QUICK_ROWS = 500


class Problem(NamedTuple):
    """One of the paper's problems."""

    name: str
    title: str
    kind: str  #: "regression", "binary" or "multiclass"
    load: Callable[[int], Parts]  #: data of a seed: drawn, or split, anew
    loss: Loss
    featurizer: Callable[[int], Callable]  #: factory of featurizers with so many units per layer
    width: int  #: units per layer of a weak learner
    bias: bool
    n_learners: int
    max_steps: int  #: optimiser steps of a learner
    batch_size: int | None
    trees: tuple[int, int]  #: number and depth of XGBoost's trees at matched capacity
    most_trees: int = 2000  #: rounds of the unconstrained boosters, if early stopping does not end them before
    catboost_depth: int = 9  #: the deepest of its trees that are tried; they take long where there are many columns
    finals: int = 1  #: the best configuration must hold its place on so many other seeds
    largest_lambda: float = 0.1  #: end of the range in which boosting's λ_w is tuned; larger where features are
    hides_columns: bool = False  #: whether the library's additions may show a learner part of the columns only
    weight_scale: float | None = 1.0  #: of all layers' initial weights; None where the learners have no such option

    def quick(self) -> "Problem":
        """Return a short version, to see that everything runs."""

        def load(seed: int) -> Parts:
            return Parts(*(array[:QUICK_ROWS] for array in self.load(seed)))

        batch_size = None if self.batch_size is None else 128
        short = self._replace(load=load, batch_size=batch_size, trees=(8, 3), most_trees=5, finals=1)
        return short._replace(n_learners=2, max_steps=10)

    def learner(self, width: int) -> Callable:
        """Return the factory of featurizers with so many units per layer and the initial weights' scale."""
        if self.weight_scale is None:
            return self.featurizer(width)
        scale = jnp.float32(self.weight_scale)  # an array: another value needs no other program
        return partial(self.featurizer(width), weight_scale=scale)

    def settings(self) -> dict[str, int | None]:
        """Return what results depend on beside the method's own settings."""
        return {name: getattr(self, name) for name in ("width", "n_learners", "max_steps", "batch_size")}

    def n_outputs(self, parts: Parts) -> int:
        """Return the number of values predicted per row."""
        return self.loss.n_outputs(self.loss.prepare_targets(parts.y_train))

    @property
    def loss_name(self) -> str:
        """What the paper calls the loss."""
        return {"regression": "MSE", "binary": "BCE", "multiclass": "MCE"}[self.kind]

    def loss_factor(self, n_outputs: int) -> float:
        """Return the factor from the trained loss to the reported one: ½‖·‖² against the mean over all entries."""
        return 2 / n_outputs if self.kind == "regression" else 1.0

    def mean_loss(self, raw: np.ndarray, target: np.ndarray) -> float:
        """Return the reported loss of raw predictions; infinity if they are no numbers."""
        return self.measure(raw, target)["loss"] if np.isfinite(raw).all() else np.inf

    def measure(self, raw: np.ndarray, target: np.ndarray) -> dict[str, float]:
        """Return loss and scores of raw predictions, as the paper's tables report them."""
        raw = np.asarray(raw, float)
        if self.kind == "regression":
            truth = target.reshape(len(target), -1)
            r2 = r2_score(truth, raw, multioutput="variance_weighted")
            return {"loss": float(mean_squared_error(truth, raw)), "r2": float(r2)}
        if self.kind == "binary":
            loss = float(np.mean(np.logaddexp(0, raw[:, 0]) - target * raw[:, 0]))
            accuracy = accuracy_score(target, raw[:, 0] > 0)
            return {"loss": loss, "auc": float(roc_auc_score(target, raw[:, 0])), "accuracy": float(accuracy)}
        odds = np.exp(raw - raw.max(axis=1, keepdims=True))
        chances = odds / odds.sum(axis=1, keepdims=True)
        labels = np.arange(raw.shape[1])
        return {
            "loss": float(np.mean(logsumexp(raw, axis=1) - raw[np.arange(len(raw)), target])),
            "auc": float(roc_auc_score(target, chances, multi_class="ovr", labels=labels)),
            "accuracy": float(accuracy_score(target, raw.argmax(axis=1))),
        }


def network(depth: int) -> Callable[[int], Callable]:
    """Return factories of fully connected networks of that depth, by width."""
    return lambda width: partial(MLP, width=width, depth=depth)


def drawn(maker: Callable[..., Parts]) -> Callable[[int], Parts]:
    """Return the loader of a 2D task."""
    return lambda seed: data.scaled(maker(seed=seed))


def residual(width: int) -> Callable:
    """Return the CDR learners: a projection and one residual block."""
    return partial(ResNet, width=width, depth=1)


def convolutional(width: int) -> Callable:
    """Return the MNIST learners: three blocks of so many channels."""
    return partial(ConvNet, channels=(width, width, width))


PROBLEMS = {
    problem.name: problem
    for problem in (
        Problem(
            "task1", "oscillatory regression", "regression", drawn(datasets.task1), SquaredError(),
            network(2), 4, True, 10, 500, None, (38, 4), finals=3,
        ),
        Problem(
            "task2", "Swiss roll", "binary", drawn(datasets.task2), BinaryCrossEntropy(),
            network(1), 4, True, 5, 500, None, (26, 3), finals=3,
        ),
        Problem(
            "task3", "level sets of peaks", "multiclass", drawn(datasets.task3), MulticlassCrossEntropy(5),
            network(2), 4, True, 10, 500, None, (10, 4), finals=3,
        ),
        Problem(
            "mnist", "handwritten digits", "multiclass", data.mnist, MulticlassCrossEntropy(10),
            convolutional, 1, False, 5, 50, 512, (20, 5), most_trees=100,
            catboost_depth=6, largest_lambda=10.0, weight_scale=None,
        ),
        Problem(
            "cdr", "convection, diffusion, reaction", "regression", data.cdr, SquaredError(),
            residual, 8, True, 30, 500, None, (18, 5), most_trees=200,
        ),
        Problem(
            "cdr_published", "the same, published split", "regression", data.cdr_published, SquaredError(),
            residual, 8, True, 30, 500, None, (18, 5), most_trees=200,
        ),
        Problem(
            "higgs", "Higgs boson", "binary", data.higgs, BinaryCrossEntropy(),
            network(2), 16, True, 25, 100, 8192, (200, 7), hides_columns=True,
        ),
    )
}  # fmt: skip
