import re

import numpy as np
import pandas as pd
import pytest

from vpboost import VPBoostClassifier, VPBoostRegressor, plotting
from vpboost.metrics import evaluate

QUICK = {"n_estimators": 5, "max_steps": 10, "width": 4, "encoding": "plain", "inherit": 0.0}


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    return pd.DataFrame({"a": rng.normal(size=250), "b": rng.normal(size=250), "c": ["x", "y"] * 125})


@pytest.fixture(scope="module")
def regressor(frame):
    return VPBoostRegressor(**QUICK).fit(frame, pd.Series(3 * frame["a"] - frame["b"] ** 2, name="height"))


@pytest.fixture(scope="module")
def classifier(frame):
    return VPBoostClassifier(**QUICK).fit(frame[["a", "b"]].to_numpy(), np.where(frame["a"] > 0, "up", "down"))


def test_histories(regressor):
    ax = plotting.plot_training(regressor)
    training, validation = ax.get_lines()[:2]
    np.testing.assert_array_equal(training.get_ydata(), regressor.evals_result_["training"])
    np.testing.assert_array_equal(validation.get_ydata(), regressor.evals_result_["validation"])
    assert ax.get_yscale() == "log"
    ax = plotting.plot_trust_region(regressor)
    np.testing.assert_array_equal(ax.get_lines()[0].get_ydata(), regressor.history_["ratio"])
    assert "λ_w" in [text.get_text() for text in ax.get_legend().get_texts()]
    ax = plotting.plot_diagnostics(regressor)
    np.testing.assert_array_equal(ax.get_lines()[1].get_ydata(), regressor.history_["curvature_capture"])


def test_predictions(regressor, classifier, frame):
    y = 3 * frame["a"] - frame["b"] ** 2
    ax = plotting.plot_predictions(regressor, frame, y)
    np.testing.assert_allclose(ax.collections[0].get_offsets()[:, 1], regressor.predict(frame))
    assert ax.get_xlabel() == "true height"
    with pytest.raises(ValueError, match="output must be from 0 to 0, got 3"):
        plotting.plot_predictions(regressor, frame, y, output=3)
    X, labels = frame[["a", "b"]].to_numpy(), np.where(frame["a"] > 0, "up", "down")
    ax = plotting.plot_predictions(classifier, X, labels)
    counts = [int(text.get_text()) for text in ax.texts]
    assert sum(counts) == 250
    assert counts[0] + counts[3] == round(classifier.score(X, labels) * 250)


def test_effects(regressor, classifier, frame):
    ax = plotting.plot_input_gradients(regressor, frame)
    assert sorted(label.get_text() for label in ax.get_yticklabels()) == ["a", "b"]
    ax = plotting.plot_partial_dependence(regressor, frame, "b")
    grid, mean = ax.get_lines()[-1].get_data()
    rows = frame.iloc[np.linspace(0, 249, 200).astype(int)]
    np.testing.assert_allclose(mean[3], regressor.predict(rows.assign(b=grid[3])).mean(), rtol=1e-5)
    ax = plotting.plot_partial_dependence(classifier, frame[["a", "b"]].to_numpy(), 0)
    assert ax.get_ylabel() == "logit"
    with pytest.raises(ValueError, match="numeric column, got 2"):
        plotting.plot_partial_dependence(regressor, frame, "c")
    with pytest.raises(ValueError, match="number or the name of a column, got 'z'"):
        plotting.plot_partial_dependence(regressor, frame, "z")


def test_axes_may_be_given(regressor):
    ax = plotting.plot_training(regressor)
    assert plotting.plot_diagnostics(regressor, ax) is ax


def test_report(regressor, frame, tmp_path):
    y = 3 * frame["a"] - frame["b"] ** 2
    page = plotting.report(regressor, frame, y, tmp_path / "report.html", title="a < b").read_text()
    assert "<h1>a &lt; b</h1>" in page
    assert page.count("<img ") == 7
    assert not re.search(r"(src|href)='(?!data:)", page), "the page needs nothing from elsewhere"
    assert f"<b>{evaluate(regressor, frame, y)['r2']:.4g}</b>R²" in page
    images = VPBoostClassifier(n_estimators=2, max_steps=2, featurizer="convnet")
    X = np.random.default_rng(0).normal(size=(40, 18, 18))
    images.fit(X, np.arange(40) % 2)
    assert plotting.report(images, X, np.arange(40) % 2, tmp_path / "images.html").read_text().count("<img ") == 4
    with pytest.raises(ValueError, match="fitted to images"):
        plotting.plot_input_gradients(images, X)


def test_evaluate_against_scikit_learn(regressor, classifier, frame):
    from sklearn.metrics import log_loss, r2_score, roc_auc_score, root_mean_squared_error

    y = 3 * frame["a"] - frame["b"] ** 2 + 1
    found, prediction = evaluate(regressor, frame, y), regressor.predict(frame)
    assert found["r2"] == pytest.approx(r2_score(y, prediction))
    assert found["rmse"] == pytest.approx(root_mean_squared_error(y, prediction))
    X, labels = frame[["a", "b"]].to_numpy(), np.where(frame["b"] > 0, "up", "down")
    found, probability = evaluate(classifier, X, labels), classifier.predict_proba(X)
    assert found["log_loss"] == pytest.approx(log_loss(labels, probability))
    assert found["auc"] == pytest.approx(roc_auc_score(labels == "up", probability[:, 1]))
    assert found["accuracy"] == pytest.approx(classifier.score(X, labels))
    with pytest.raises(ValueError, match="'left', which is none of the model's classes"):
        evaluate(classifier, X, np.array(["left"] * 250))


def test_names_of_any_kind(tmp_path):
    rng = np.random.default_rng(0)
    for columns in ([0, 1], ["a $%$", "b$_$"]):
        frame = pd.DataFrame(rng.normal(size=(60, 2)), columns=columns)
        model = VPBoostRegressor(**QUICK).fit(frame if columns[0] != 0 else frame.to_numpy(), frame[columns[0]])
        assert plotting.report(
            model, frame if columns[0] != 0 else frame.to_numpy(), frame[columns[0]], tmp_path / "r"
        ).exists()
    model = VPBoostRegressor(**QUICK).fit(frame.set_axis([0, 1], axis=1), frame.iloc[:, 0])
    plotting.plot_partial_dependence(model, frame.set_axis([0, 1], axis=1), 1)
    labels = pd.DataFrame({"y": np.where(frame.iloc[:, 0] > 0, "$x$", "$_$")})
    classifier = VPBoostClassifier(**QUICK).fit(frame, labels["y"])
    assert evaluate(classifier, frame, labels)["accuracy"] > 0.7
    plotting.report(classifier, frame, labels["y"], tmp_path / "r")


def test_the_line_marks_where_learners_were_cut_off(frame):
    X, y = frame[["a", "b"]].to_numpy(), np.random.default_rng(1).normal(size=250)
    options = {**QUICK, "n_estimators": 30, "learning_rate": 0.5}
    cut = VPBoostRegressor(**options).fit(X, y)
    text = [t.get_text() for t in plotting.plot_training(cut).get_legend().get_texts()]
    assert text[-1] == f"kept: stage {np.argmin(cut.evals_result_['validation']) + 1}"
    whole = VPBoostRegressor(**options, early_stopping_rounds=None).fit(X, y, X_val=X, y_val=y)
    assert len(plotting.plot_training(whole).get_legend().get_texts()) == 2
