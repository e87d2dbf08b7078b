"""scikit-learn estimators: validate, scale, call :func:`vpboost.boost`, store. No mathematics here."""

from .classifier import VPBoostClassifier
from .loading import load_model
from .regressor import VPBoostRegressor

__all__ = ["VPBoostClassifier", "VPBoostRegressor", "load_model"]
