import datetime
import os
import re

import numpy as np
import pandas as pd
import pytest

from vpboost import VPBoostClassifier, VPBoostRegressor, plotting
from vpboost.estimators.metrics import evaluate

pytestmark = pytest.mark.slow

SMALL = {"n_estimators": 2, "max_steps": 2, "width": 4, "encoding": "plain", "inherit": 0.0, "engine": "numpy"}


def test_report(regressor, frame, tmp_path):
    y = 3 * frame["a"] - frame["b"] ** 2
    page = plotting.report(regressor, frame, y, tmp_path / "report.html", title="a < b").read_text()
    assert "<h1>a &lt; b</h1>" in page
    assert page.count("<img ") == 9
    assert not re.search(r"(src|href)='(?!data:)", page), "the page needs nothing from elsewhere"
    assert f"<b>{evaluate(regressor, frame, y)['r2']:.4g}</b>R²" in page
    images = VPBoostClassifier(n_estimators=2, max_steps=2, featurizer="convnet")
    X = np.random.default_rng(0).normal(size=(40, 18, 18))
    images.fit(X, np.arange(40) % 2)
    assert plotting.report(images, X, np.arange(40) % 2, tmp_path / "images.html").read_text().count("<img ") == 5
    with pytest.raises(ValueError, match="fitted to images"):
        plotting.plot_input_gradients(images, X)


def cells(page):
    """The table of scores, which comes before that of coverages."""
    return re.findall(r"<tr><th>([^<]*)</th><td>([^<]*)</td><td>([^<]*)</td>", page.split("<h2>How sure")[0])


@pytest.mark.slow
@pytest.mark.long
def test_a_report_scores_every_output(outputs, unnamed, frame, tmp_path):
    model, y = outputs
    page = plotting.report(model, frame, y, tmp_path / "r.html").read_text()
    found = evaluate(model, frame, y)
    assert cells(page) == [(k, f"{found[f'r2 of {k}']:.4g}", f"{found[f'rmse of {k}']:.4g}") for k in y.columns]
    assert "<h2>Effects of inputs on height</h2>" in page
    model, X = unnamed
    y = np.outer(X[:, 0], np.arange(1, 21))
    y[:, 4] += 9
    page = plotting.report(model, X, y, tmp_path / "r.html").read_text()
    assert len(cells(page)) == 20
    assert "alt='Predictions of output 4 of 20: worst, R² " in page
    assert page.count("alt='Predictions of ") == 4
    page = plotting.report(model, X[:1], y[:1], tmp_path / "r.html").read_text()
    assert "alt='Predictions of output 4 of 20: worst, −RMSE " in page


@pytest.mark.slow
@pytest.mark.long
def test_a_report_of_very_many_outputs_is_short(frame, tmp_path):
    X = frame[["a", "b"]].to_numpy()
    y = X @ np.random.default_rng(0).normal(size=(2, 300))
    model = VPBoostRegressor(**SMALL).fit(X, y)
    y[:, 7] += 1e3
    y[:, 9] *= 1e-200
    page = plotting.report(model, X, y, tmp_path / "r.html").read_text()
    assert len(cells(page)) == 20
    assert [row[:2] for row in cells(page)[:2]] == [("9", "-inf"), ("7", cells(page)[1][1])]
    assert "The 10 worst and the 10 best of 300 outputs. R² is -inf at the least, " in page
    assert "alt='R² of all outputs'" in page


@pytest.mark.slow
@pytest.mark.long
def test_a_report_scores_every_class(months, frame, tmp_path):
    model, X, labels = months
    page = plotting.report(model, X, labels, tmp_path / "r.html").read_text()
    assert [row[0] for row in cells(page)] == ["7", "8", "9"]
    assert "<th>precision</th><th>recall</th><th>F1</th><th>rows</th>" in page
    assert "3 classes" in page
    labels = np.array([f"c{k:02}" for k in range(60)])[np.arange(250) % 60]
    many = VPBoostClassifier(**SMALL).fit(X, labels)
    assert len(cells(plotting.report(many, X, labels, tmp_path / "r.html").read_text())) == 20
    few = plotting.report(many, X[:3], labels[:3], tmp_path / "r.html").read_text()
    assert {"c00", "c01", "c02"} <= {row[0] for row in cells(few)}


@pytest.mark.slow
@pytest.mark.long
def test_a_report_says_what_data_it_is_about(regressor, frame, tmp_path):
    y = 3 * frame["a"] - frame["b"] ** 2
    page = plotting.report(regressor, frame, y, tmp_path / "r.html", about="<b>test</b> data").read_text()
    assert "<h2>Metrics on &lt;b&gt;test&lt;/b&gt; data</h2>" in page
    assert "looked at on &lt;b&gt;test&lt;/b&gt; data: 250 rows." in page
    assert "<h2>Metrics on the data given</h2>" in plotting.report(regressor, frame, y, tmp_path / "r.html").read_text()


@pytest.mark.slow
@pytest.mark.long
def test_pages_and_pictures_are_written_whole_or_not_at_all(regressor, frame, tmp_path, monkeypatch):
    for name, first in (("a.png", b"\x89PNG"), ("a.PDF", b"%PDF"), ("a.svg", b"<?xml"), ("a", b"\x89PNG")):
        plotting.draw_history(regressor, tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(first)
    before = sorted(path.name for path in tmp_path.iterdir())
    with pytest.raises(ValueError, match="Format 'docx' is not supported"):
        plotting.draw_history(regressor, tmp_path / "a.docx")
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        plotting.report(regressor, frame, frame["a"], tmp_path / "none" / "r.html")
    monkeypatch.setattr(os, "replace", lambda *paths: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        plotting.report(regressor, frame, frame["a"], tmp_path / "r.html")
    assert sorted(path.name for path in tmp_path.iterdir()) == before


HOSTILE = ["<script>alert(1)</script>", "a'b\"c & $x^{$", "two\nlines\t\x00", "x" * 500, "🦊 狐 \udc80"]


@pytest.mark.slow
@pytest.mark.long
def test_hostile_names(tmp_path):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(60, 5)), columns=pd.Index(HOSTILE, dtype=object))
    y = pd.DataFrame(rng.normal(size=(60, 5)), columns=pd.Index(HOSTILE, dtype=object))
    model = VPBoostRegressor(**SMALL).fit(X, y)
    page = plotting.report(model, X, y, tmp_path / "r.html", title=HOSTILE[0], about=HOSTILE[1]).read_text()
    assert "<script" not in page
    for name in HOSTILE:
        ax = plotting.plot_partial_dependence(model, X, name, output=name)
        assert "\n" not in ax.get_xlabel()
        assert len(ax.get_xlabel()) < 60
    labels = np.array([*HOSTILE[:4], "🦊 狐"], object)[np.arange(60) % 5]
    levels = pd.DataFrame({"level": labels, "number": rng.normal(size=60)})
    classifier = VPBoostClassifier(**SMALL).fit(levels, labels)
    assert "<script" not in plotting.report(classifier, levels, labels, tmp_path / "r.html").read_text()


@pytest.mark.slow
@pytest.mark.long
def test_classes_may_be_dates(frame, tmp_path):
    X = frame[["a", "b"]].to_numpy()
    labels = np.array(["2024-01-01", "2024-06-01", "2024-07-01T12:00"], "datetime64[ns]")[np.digitize(X[:, 0], [-1, 1])]
    model = VPBoostClassifier(**SMALL).fit(X, labels)
    page = plotting.report(model, X, labels, tmp_path / "r.html").read_text()
    assert [row[0] for row in cells(page)] == ["2024-01-01", "2024-06-01", "2024-07-01T12:00:00"]
    for day in ("2024-06-01", np.datetime64("2024-06-01"), pd.Timestamp("2024-06-01"), datetime.date(2024, 6, 1)):
        assert plotting.plot_partial_dependence(model, X, 0, output=day).get_ylabel() == "logit of '2024-06-01'"


def test_a_model_without_learners_and_a_history_with_gaps(frame, tmp_path):
    X = frame[["a", "b"]].to_numpy()
    model = VPBoostRegressor(**SMALL, rho_accept=0.9999, rho_small=0.99999, early_stopping_rounds=None)
    model.fit(X, np.full(250, 2.0))
    model._keep(0, float("nan"), [])
    model.history_ = {**model.history_, "accepted": np.zeros(len(model.history_["stage"]), bool)}
    for name in ("ratio", "reg_lambda", "curvature_capture", "loss"):
        model.history_[name] = np.full(len(model.history_["stage"]), np.nan)
    model.evals_result_ = {"training": [np.nan] * model.n_iter_, "validation": []}
    page = plotting.report(model, X, np.full(250, 2.0), tmp_path / "r.html").read_text()
    assert "0 smooth learners" in page
    for name in model.history_:
        model.history_[name] = model.history_[name][:0]
    model.n_iter_, model.evals_result_ = 0, {"training": [], "validation": []}
    plotting.draw_history(model, tmp_path / "h.png")
    model.history_ = {**model.history_, "stage": np.arange(2), "accepted": np.ones(2, bool)}
    model.history_.update(ratio=np.array([1.0, np.inf]), reg_lambda=np.zeros(2))
    ax = plotting.plot_trust_region(model)
    ax.get_figure().canvas.draw()
    assert ax.get_ylabel().endswith("\n(4 or more at 4)")
    assert ax.get_ylim()[1] < 5


def test_settings_and_metrics_are_named_not_addressed(frame, tmp_path):
    X = frame[["a", "b"]].to_numpy()

    def worst_error(y, prediction):
        return np.abs(y - prediction).max()

    model = VPBoostRegressor(**SMALL, callbacks=[lambda progress: None], eval_metric=worst_error).fit(X, X[:, 0])
    page = plotting.report(model, X, X[:, 0], tmp_path / "r.html").read_text()
    assert " at 0x" not in page
    assert "worst_error" in page
    texts = [text.get_text() for text in plotting.plot_training(model).get_legend().get_texts()]
    assert texts[1].endswith("worst_error")
    model.eval_metric = "r2"
    assert "validation −R²" in [text.get_text() for text in plotting.plot_training(model).get_legend().get_texts()]


def test_categories_alone(tmp_path):
    X = pd.DataFrame({"c": ["x", "y", "z"] * 30})
    model = VPBoostRegressor(**SMALL).fit(X, (X["c"] == "x").astype(float))
    assert plotting.report(model, X, X["c"] == "x", tmp_path / "r.html").read_text().count("<img ") == 5
    with pytest.raises(ValueError, match="no numeric inputs to take derivatives by"):
        plotting.plot_input_gradients(model, X)
