"""Fits that take no time, and what tests of saved models share."""

import numpy as np
import pytest

from vpboost import ModelFileError
from vpboost.estimators.loading import from_bytes
from vpboost.files.container import pack, unpack

#: No race: the profile is given.
PLAIN = {"encoding": "plain", "inherit": 0.0, "max_features": 1.0}
#: Compiles nothing.
QUICK = {"n_estimators": 3, "max_steps": 5, "width": 3, "engine": "numpy", **PLAIN}


def same(model, other, X):
    """Every public result of the two estimators has the same bits."""
    for name in ("predict", "predict_proba", "decision_function", "input_gradient"):
        if hasattr(model, name):
            np.testing.assert_array_equal(getattr(other, name)(X), getattr(model, name)(X))
            np.testing.assert_array_equal(getattr(other, name)(X[:5]), getattr(model, name)(X[:5]))
    np.testing.assert_array_equal(list(other.staged_predict(X)), list(model.staged_predict(X)))
    for name in ("n_iter_", "best_iteration_", "evals_result_", "profile_", "seed_", "n_features_in_", "target_names_"):
        np.testing.assert_equal(getattr(other, name), getattr(model, name))
    for name, values in model.history_.items():
        np.testing.assert_array_equal(other.history_[name], values)
        assert other.history_[name].dtype == values.dtype
    np.testing.assert_array_equal(other.feature_importances_, model.feature_importances_)
    np.testing.assert_equal(other.best_score_, model.best_score_)


def refuse_changed(model, path, change, message):
    """A file of the model, its content and arrays changed, is refused with this message."""
    model.save_model(path)
    content, arrays = unpack(path.read_bytes(), "model")
    change(content, arrays)
    with pytest.raises(ModelFileError, match=message):
        from_bytes(pack(content, arrays), "model")
