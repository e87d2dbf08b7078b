"""scikit-learn estimators: validate, scale, call :func:`vpboost.boosting.boost`, store. No mathematics here."""

from .classifier import VPBoostClassifier
from .regressor import VPBoostRegressor

__all__ = ["VPBoostClassifier", "VPBoostRegressor"]
