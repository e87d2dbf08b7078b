"""Bad input: an error that names the argument, before anything is compiled."""

from functools import partial

import jax.numpy as jnp
import numpy as np
import pytest

from vpboost import MLP, CustomLoss, MulticlassCrossEntropy, SquaredError, Training, TrustRegion, boost

X, Y = np.random.default_rng(0).normal(size=(20, 3)), np.arange(20.0)
GOOD = {"x": X, "y": Y, "loss": SquaredError(), "featurizer": partial(MLP, width=2), "n_learners": 1}


def with_nan(array):
    array = array.copy()
    array.flat[5] = np.nan
    return array


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"x": np.zeros((0, 3)), "y": np.zeros(0)}, ValueError, "x must not be empty"),
        ({"x": np.zeros((20, 0))}, ValueError, "x must not be empty"),
        ({"x": np.zeros(20)}, ValueError, "x must have one row per sample"),
        ({"x": X.astype(str)}, TypeError, "x must be numeric"),
        ({"x": with_nan(X)}, ValueError, "x must be finite"),
        ({"x": X * 1e300}, ValueError, "x has values too large for float32"),
        ({"y": with_nan(Y)}, ValueError, "y must be finite"),
        ({"y": Y[:-1]}, ValueError, "x and y must have as many rows, got 20 and 19"),
        ({"y": Y * 1e300}, ValueError, "y has values too large for float32"),
        ({"y": Y.astype(int), "loss": MulticlassCrossEntropy(5)}, ValueError, "labels from 0 to n_classes - 1 = 4"),
        ({"sample_weight": -np.ones(20)}, ValueError, "sample_weight must be non-negative"),
        ({"sample_weight": np.zeros(20)}, ValueError, "sample_weight must have a positive entry"),
        ({"sample_weight": np.ones(19)}, ValueError, r"sample_weight must have shape \(20,\)"),
        ({"sample_weight": with_nan(np.ones(20))}, ValueError, "sample_weight must be finite"),
        ({"sample_weight": ["a"] * 20}, TypeError, "sample_weight must be numeric"),
        ({"loss": "squared_error"}, TypeError, "loss must be a vpboost loss"),
        ({"featurizer": "mlp"}, TypeError, "featurizer must be callable"),
        ({"n_learners": -1}, ValueError, "n_learners must be a whole number"),
        ({"n_learners": 2.5}, ValueError, "n_learners must be a whole number"),
        ({"seed": "today"}, TypeError, "seed must be a whole number"),
        ({"dtype": "float16"}, ValueError, "dtype must be 'float32' or 'float64'"),
        ({"callback": 3}, TypeError, "callback must be callable"),
        ({"validation": (X[:5], Y[:4])}, ValueError, "validation x and validation y must have as many rows"),
        ({"validation": (with_nan(X), Y)}, ValueError, "validation x must be finite"),
        ({"validation": (X[:, :2], Y)}, ValueError, "validation x must have rows of shape"),
        ({"validation": (X, np.stack([Y, Y], axis=1))}, ValueError, "validation y must have 1 outputs"),
        ({"validation": X}, ValueError, "validation must be"),
        (
            {"featurizer": lambda key, rows: lambda x: x[None]},
            ValueError,
            "featurizer must map one input to a non-empty 1-D",
        ),
        ({"loss": CustomLoss(lambda p, t: jnp.sum(jnp.sin(p)))}, ValueError, "not convex"),
        ({"loss": CustomLoss(lambda p, t: jnp.sum(jnp.log(t - p)))}, ValueError, "NaN or infinity"),
    ],
)
def test_bad_input_names_the_argument(change, error, message):
    with pytest.raises(error, match=message):
        boost(**(GOOD | change))


def test_a_loss_that_breaks_down_later_is_an_error():
    """Finite near the constant, infinite curvature where the residual has become exactly zero."""
    loss = CustomLoss(lambda p, t: jnp.sum(jnp.abs(p - t) ** 1.5))
    with pytest.raises(ValueError, match="second derivatives"):
        boost(X, np.zeros(20), loss=loss, featurizer=GOOD["featurizer"])


def test_settings_are_checked_on_construction():
    with pytest.raises(ValueError, match="method must be one of"):
        boost(**GOOD, training=Training(method="sgd"))
    with pytest.raises(ValueError, match="reg_lambda must be positive"):
        boost(**GOOD, trust_region=TrustRegion(reg_lambda=-1.0))
