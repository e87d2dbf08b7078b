"""An ensemble in plain NumPy, double precision: for a few rows, where JAX would spend its time on calling itself."""

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import numpy as np

from .. import predictor
from ..core.ensemble import Ensemble
from ..core.evaluation import DenseEnsemble
from ..files.describe import describe_featurizer, is_custom, kind_described, named_arrays

#: Rows that are evaluated side by side: few enough for a processor's cache.
ROWS_AT_ONCE = 64
#: Where this serves: up to so many rows, or, of networks, more, as far as rows times parameters go. Beyond, a compiled
#: program is worth its time.
FEW_ROWS, MORE_ROWS, MOST_WORK = 32, 1000, 30_000_000
#: So many times more rows where a program would be used once.
TIMES_MORE = 10

#: Where the weights of an output have a larger norm, or encoded inputs are larger, sums in single precision are off by
#: more than about 1e-6.
LARGEST_NORM, LARGEST_INPUT = 1.5, 30.0


class LightEnsemble:
    """The same function as an :class:`vpboost.Ensemble`, evaluated by :mod:`vpboost.predictor`."""

    def __init__(self, ensemble: Ensemble):
        self.constant, self.weights = np.asarray(ensemble.constant, float), np.asarray(ensemble.weights, float)
        self.description = describe_featurizer(ensemble.featurizers)
        theta = {name: np.asarray(leaf) for name, leaf in named_arrays(ensemble.featurizers).items()}
        self.theta = {name: a.astype(float) if a.dtype.kind == "f" else a for name, a in theta.items()}
        self.most_rows = FEW_ROWS
        if ensemble.n_learners and kind_described(self.description).quick_in_numpy:
            self.most_rows = int(np.clip(MOST_WORK // max(ensemble.n_parameters, 1), FEW_ROWS, MORE_ROWS))

    @classmethod
    def of(cls, ensemble: Ensemble) -> "LightEnsemble | None":
        """Return the light version of an ensemble; None if it has parts of the user's own."""
        if ensemble.n_learners and is_custom(describe_featurizer(ensemble.featurizers)):
            return None
        return cls(ensemble)

    def predict(self, x: np.ndarray) -> np.ndarray:
        """Return f(x_i) for each row, shape ``(n_rows, K)``."""
        evaluate = partial(predictor.ensemble, self.constant, self.weights, self.description, self.theta)
        with np.errstate(all="ignore"):  # far away, parts of an activation may overflow
            parts = [x[i : i + ROWS_AT_ONCE] for i in range(0, max(len(x), 1), ROWS_AT_ONCE)]
            return np.concatenate([evaluate(np.asarray(part, float)) for part in parts])


def evaluated(ensemble: Ensemble, x: np.ndarray) -> np.ndarray:
    """Return f(x_i) for each row of an ensemble that is not asked again: by C or NumPy, unless that takes long."""
    light, accurate = LightEnsemble.of(ensemble), AccurateEnsemble(ensemble)
    if light is None or accurate.by_c[id(ensemble)] is not None:
        return accurate.predict(x)
    few = len(x) <= light.most_rows * (TIMES_MORE if light.most_rows > FEW_ROWS else 1)
    return light.predict(x) if few else accurate.predict(x)


class AccurateEnsemble:
    """An ensemble for many rows whose predictions are those of double precision, to about 1e-6 (targets of order one).

    XLA, or C where it knows the learners, computes in single precision where weights and inputs are small, else in
    double, three times as slow. A row's prediction is then the same, to 1e-6, whether it is made alone by NumPy or
    among many.
    """

    def __init__(self, ensemble: Ensemble):
        self.ensemble, self.double = ensemble, in_double(ensemble)
        self.by_c = {id(one): DenseEnsemble.of(one) for one in (self.ensemble, self.double)}
        with np.errstate(over="ignore"):  # weights of strangers' files
            norm = np.sqrt((np.asarray(ensemble.weights, float) ** 2).sum(axis=(0, 1))).max()
        exact = norm > LARGEST_NORM or has_waves(ensemble)
        self.largest = -1.0 if exact else LARGEST_INPUT  # no input is small enough

    def predict(self, x: np.ndarray, devices: Any = None) -> np.ndarray:
        """Return f(x_i) for each row, shape ``(n_rows, K)``; by several devices, if they are given."""

        def predict(ensemble: Ensemble, x: np.ndarray) -> np.ndarray:
            by_c = self.by_c[id(ensemble)]
            return ensemble.predict(x, devices) if by_c is None or devices is not None else by_c.predict(x)

        return self.apply(predict, x)

    def apply(self, function: Callable[[Ensemble, np.ndarray], np.ndarray], x: np.ndarray) -> np.ndarray:
        """Return what a function of an ensemble and rows gives for each row."""
        far = np.abs(x).reshape(len(x), -1).max(axis=1, initial=0.0) > self.largest
        if far.all() or not far.any():
            return function(self.double if far.any() else self.ensemble, x).astype(float)
        near = function(self.ensemble, x[~far])
        found = np.empty((len(x), *near.shape[1:]))
        found[~far], found[far] = near, function(self.double, x[far])
        return found


def has_waves(ensemble: Ensemble) -> bool:
    """Say whether learners are periodic: single precision does not know the phase of a large angle."""
    description = describe_featurizer(ensemble.featurizers)
    if not ensemble.n_learners or is_custom(description):
        return "'sin'" in str(description)
    return kind_described(description).periodic or "'sin'" in str(description)


def in_double(ensemble: Ensemble) -> Ensemble:
    """Return the same ensemble in double precision."""
    if ensemble.constant.dtype == np.float64:
        return ensemble

    def double(leaf: Any) -> Any:
        return jax.device_put(np.asarray(leaf, float)) if eqx.is_inexact_array(leaf) else leaf

    with jax.enable_x64(True):
        return jax.tree.map(double, ensemble)
