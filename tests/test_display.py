"""What notebooks show of an estimator."""

import re

import numpy as np
import pytest
from sklearn import config_context
from sklearn.base import BaseEstimator
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import estimator_html_repr

from models import QUICK
from vpboost import Quantile, VPBoostClassifier, VPBoostRegressor, load_model
from vpboost.estimators.display import facts_of

X = np.random.default_rng(0).normal(size=(60, 2))
HOSTILE = "<script>alert('x')</script>"
#: Whether scikit-learn's diagram has a place for the table; older ones show the line below the name alone.
TABLES = hasattr(BaseEstimator, "_get_fitted_attr_html")


def table(model):
    """The table of facts, as it stands in the diagram."""
    written = model._get_fitted_attr_html()._repr_html_inner()
    assert (written in model._repr_html_()) == TABLES
    return written


def cells(model):
    """The table of facts, as text by name."""
    return dict(re.findall(r"<tr><td>(.*?)</td><td>(.*?)</td></tr>", table(model)))


def test_before_the_fit_there_are_no_facts():
    page = estimator_html_repr(VPBoostRegressor(width=7))
    assert "VPBoostRegressor" in page
    assert "stages kept" not in page
    assert "Fit</summary>" not in page


def test_a_fit_is_told_in_one_line_and_a_table(tmp_path):
    model = VPBoostRegressor(**QUICK).fit(X, np.stack([X[:, 0], X[:, 1]], axis=1), X_val=X, y_val=X)
    page = model._repr_html_()
    assert "stages kept" in model._repr_mimebundle_()["text/html"]
    facts = cells(model)
    assert facts["stages"] == f"{model.best_iteration_} of 3 stages kept"
    assert facts["outputs"] == "2"
    assert facts["score"] == f"{model.best_score_:.4g} (loss, validation data)"
    assert re.fullmatch(r"[\d,]+ numbers, [\d,]+ KiB", facts["size"])
    assert "encoding plain" in facts["profile"]
    assert facts["ended"] == "all stages done"
    assert f'<div class="caption">{facts["stages"]}, {facts["size"]}, score' in page
    model.save_model(tmp_path / "model")
    assert cells(load_model(tmp_path / "model")) == facts


def test_the_table_costs_nothing():
    model = VPBoostRegressor(**QUICK).fit(X, X[:, 0])
    model._repr_html_()
    assert model._importances is None, "importances are computed when they are asked for"


def test_names_are_text_and_nothing_else():
    pd = pytest.importorskip("pandas")
    y = pd.DataFrame(X, columns=[HOSTILE, "b"])
    model = VPBoostRegressor(**QUICK).fit(X, y)
    labels = np.where(X[:, 0] > 0, HOSTILE, "no")
    for shown in (model, VPBoostClassifier(**QUICK).fit(X, labels)):
        page = shown._repr_html_()
        assert "<script>alert" not in page
        assert "&lt;script&gt;alert(" in table(shown)


def test_facts_of_other_fits():
    labels = np.digitize(X[:, 0], [-1, -0.5, 0, 0.5, 1])
    options = {**QUICK, "early_stopping_rounds": None}
    facts = facts_of(VPBoostClassifier(**options, eval_metric=None).fit(X, labels))
    assert facts["classes"] == "6 (0, 1, 2, 3, 4 and 1 more)"
    assert facts["score"].endswith("(loss, training data)")
    quantiles = VPBoostRegressor(**options, loss=Quantile([0.1, 0.9])).fit(X, X[:, 0])
    assert facts_of(quantiles)["outputs"] == "1"
    watched = VPBoostRegressor(**QUICK, eval_metric="rmse").fit(X, X[:, 0], X_val=X, y_val=X[:, 0])
    assert "(rmse, validation data)" in facts_of(watched)["score"]


def test_pipelines_show_the_step():
    pipeline = make_pipeline(StandardScaler(), VPBoostRegressor(**QUICK)).fit(X, X[:, 0])
    assert "of 3 stages kept" in estimator_html_repr(pipeline)
    with config_context(display="text"):
        assert not hasattr(VPBoostRegressor(), "_repr_html_")
