"""A trial of a model that was read from a file: it must predict finite numbers."""

from typing import Any

import numpy as np

from .. import predictor
from ..files.describe import named_arrays
from ..files.reader import Reader

#: Most numbers that a trial works on: inputs times learners, of convolutions times the size of their kernels.
MOST_WORK = 1 << 25


def check_predictions(reader: Reader, model: Any) -> None:
    """Raise an error if a model's numbers are so large that it predicts none for ordinary inputs."""
    constant, weights = (np.asarray(array) for array in (model.ensemble_.constant, model.ensemble_.weights))
    with np.errstate(all="ignore"):
        most = np.abs(weights).sum(axis=(0, 1)) + np.abs(constant)  # of features up to one
        sound = np.isfinite(1e6 * most).all()
        raw = np.concatenate([most[None], trial(model, constant, weights)])
        # an exponential may well be large far away from the mean; near it there must be some room
        known = raw if model.target_scaler_.kind != "log" else raw[1:2] + 20
        sound &= np.isfinite(raw).all() and np.isfinite(model._from_raw(known)).all()
    reader.require(bool(sound), "has numbers so large that its predictions are not finite")


def trial(model: Any, constant: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return raw predictions for mean inputs and for some far away, in the model's precision; none if it takes long.

    Nor are there any for featurizers of the user's own, which only JAX can evaluate.
    """
    encoder, none = model.input_encoder_, np.zeros((0, len(constant)), constant.dtype)
    if model._light is None:
        return none
    shape = encoder.shape_ if len(encoder.shape_) > 1 else (len(encoder.sources_),)
    theta = {name: np.asarray(leaf) for name, leaf in named_arrays(model.ensemble_.featurizers).items()}
    kernels = [leaf[0, 0, 0].size for name, leaf in theta.items() if "convolutions" in name and leaf.ndim == 5]
    if np.prod(shape, dtype=float) * len(weights) * max(kernels, default=1) > MOST_WORK:
        return none
    x = np.stack([np.full(shape, value, constant.dtype) for value in (0, 8, -8)])
    return predictor.ensemble(constant, weights, model._light.description, theta, x)
