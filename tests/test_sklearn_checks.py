"""scikit-learn's own checks of both estimators, with no expected failures."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from vpboost import VPBoostClassifier, VPBoostRegressor

pytestmark = pytest.mark.slow

QUICK = {"n_estimators": 5, "max_steps": 30, "width": 4, "step_size": 0.05, "learning_rate": 0.3}


@parametrize_with_checks([VPBoostRegressor(**QUICK), VPBoostClassifier(**QUICK)])
def test_scikit_learn_checks(estimator, check):
    check(estimator)
