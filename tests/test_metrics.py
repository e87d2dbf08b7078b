import datetime

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn import metrics as reference

from models import QUICK
from vpboost import VPBoostClassifier, VPBoostRegressor
from vpboost.estimators.metrics import REGRESSION, Compared, compare, evaluate, scores_of_classes, scores_of_outputs

X = np.random.default_rng(0).normal(size=(90, 2))
Y = pd.DataFrame({"height": X[:, 0], "width": X[:, 1] ** 2})


@pytest.fixture(scope="module")
def regressor():
    return VPBoostRegressor(**QUICK).fit(X, Y)


@pytest.fixture(scope="module")
def single():
    return VPBoostRegressor(**QUICK).fit(X, Y["height"])


@pytest.fixture(scope="module")
def classifier():
    return VPBoostClassifier(**QUICK).fit(X, np.digitize(X[:, 0], [-0.5, 0.5]))


def test_every_output_is_scored(regressor):
    found, prediction = evaluate(regressor, X, Y), regressor.predict(X)
    assert list(found) == ["r2", "rmse", "mae", "r2 of height", "rmse of height", "r2 of width", "rmse of width"]
    assert found["r2"] == pytest.approx(reference.r2_score(Y, prediction))
    assert found["rmse"] == pytest.approx(reference.root_mean_squared_error(Y, prediction))
    assert found["mae"] == pytest.approx(reference.mean_absolute_error(Y, prediction))
    assert found["r2 of width"] == pytest.approx(reference.r2_score(Y["width"], prediction[:, 1]))
    assert found["rmse of height"] == pytest.approx(reference.root_mean_squared_error(Y["height"], prediction[:, 0]))


def test_outputs_without_names():
    unnamed = VPBoostRegressor(**QUICK).fit(X, Y.to_numpy())
    assert list(evaluate(unnamed, X, Y))[3:] == ["r2 of 0", "rmse of 0", "r2 of 1", "rmse of 1"]


@pytest.mark.parametrize(
    "change",
    [
        np.asarray,
        lambda y: y.to_numpy().tolist(),
        lambda y: y[["width", "height"]],
        lambda y: pl.from_pandas(y[["width", "height"]]),
        lambda y: y.astype("Float64"),
        lambda y: y.set_axis(["a", "b"], axis=1),
    ],
)
def test_the_truth_may_be_of_any_kind(regressor, change):
    assert evaluate(regressor, X, change(Y)) == pytest.approx(evaluate(regressor, X, Y))


def test_a_single_output_of_any_kind(single):
    wanted = evaluate(single, X, Y["height"])
    assert list(wanted) == ["r2", "rmse", "mae"]
    column = Y["height"]
    for y in (
        column.tolist(),
        Y[["height"]],
        pl.Series(column.to_numpy()),
        column.astype("Float64"),
        column.to_frame(),
    ):
        assert evaluate(single, X, y) == pytest.approx(wanted)


def test_one_row(regressor, single):
    found = evaluate(regressor, X[:1], Y[:1])
    assert np.isnan([found["r2"], found["r2 of width"]]).all()
    assert found["rmse of width"] == pytest.approx(abs(regressor.predict(X[:1])[0, 1] - Y["width"][0]))
    assert evaluate(single, X[:1], [0.5])["mae"] > 0


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (Y["height"], r"y must have the shape \(n_rows, 2\) with at least one row, got \(90,\)"),
        (np.zeros((90, 3)), r"y must have the shape \(n_rows, 2\) with at least one row, got \(90, 3\)"),
        (np.zeros((0, 2)), r"y must have the shape \(n_rows, 2\) with at least one row, got \(0, 2\)"),
        (3.0, r"y must have the shape \(n_rows, 2\) with at least one row, got \(\)"),
        (np.zeros((80, 2)), "X and y must have as many rows, got 90 and 80"),
        (Y.where(Y > 0.1), "y has missing or infinite values in [0-9]+ rows; leave these rows out of X and y"),
        (Y.where(Y > 0.1).astype("Float64"), "y has missing or infinite values in [0-9]+ rows"),
        (np.full((90, 2), np.inf), "y has missing or infinite values in 90 rows"),
        ([["a", "b"]] * 90, "y must hold numbers, as many in each row, got list"),
        ([[1, 2], [3]], "y must hold numbers, as many in each row, got list"),
    ],
)
def test_a_truth_that_does_not_fit(regressor, y, message):
    with pytest.raises(ValueError, match=message):
        evaluate(regressor, X, y)


def test_constant_outputs_are_scored_as_by_scikit_learn(regressor):
    truth = np.column_stack([np.full(90, 2.0), X[:, 0]])
    prediction = regressor.predict(X)
    np.testing.assert_allclose(
        scores_of_outputs(compare(regressor, X, truth))[0], [0, reference.r2_score(X[:, 0], prediction[:, 1])]
    )


@pytest.mark.parametrize("unit", [1e200, 1e-200, 1e-300])
def test_huge_and_tiny_values_are_scored_as_others(regressor, unit):
    truth, prediction = Y.to_numpy(), regressor.predict(X)
    wanted = scores_of_outputs(Compared(truth, prediction))
    found = scores_of_outputs(Compared(unit * truth, unit * prediction))
    np.testing.assert_allclose(found[0], wanted[0])
    np.testing.assert_allclose(found[1] / unit, wanted[1])
    weight = np.ones(len(truth))
    rmse = REGRESSION["rmse"](unit * truth, unit * prediction, weight)
    assert rmse / unit == pytest.approx(REGRESSION["rmse"](truth, prediction, weight))
    worst = scores_of_outputs(Compared(1e-200 * truth, 1e200 + 0 * truth))[0]
    assert np.isneginf(worst).all()


def test_classes_are_scored_one_by_one(classifier):
    y = np.digitize(X[:, 0] + 0.3 * X[:, 1], [-0.5, 0.5])
    found = scores_of_classes(compare(classifier, X, y))
    wanted = reference.precision_recall_fscore_support(y, classifier.predict(X), zero_division=np.nan)
    for values, expected in zip(found.values(), wanted, strict=True):
        np.testing.assert_allclose(values, expected)
    assert list(evaluate(classifier, X, y)) == ["accuracy", "log_loss"]
    absent = scores_of_classes(compare(classifier, X[y == 0], y[y == 0]))
    assert absent["rows"][2] == 0
    assert np.isnan(absent["recall"][2])
    assert evaluate(classifier, X[:1], [1])["accuracy"] in (0, 1)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([7] * 90, r"y holds 7, which is none of the model's classes \[0, 1, 2\]"),
        (["1"] * 90, r"y holds '1', which is none of the model's classes \[0, 1, 2\]"),
        ([float("nan")] * 90, "y holds nan, which is none"),
        (np.zeros((90, 2)), r"y must hold one label per row, got shape \(90, 2\)"),
        (1, r"y must hold one label per row, got shape \(\)"),
        ([], "y has no rows"),
        ([1] * 3, "X and y must have as many rows, got 90 and 3"),
    ],
)
def test_labels_that_do_not_fit(classifier, y, message):
    with pytest.raises(ValueError, match=message):
        evaluate(classifier, X, y)


DAYS = np.array(["2024-01-01", "2024-06-01"], "datetime64[ns]")


@pytest.mark.parametrize(
    "labels",
    [
        DAYS[(X[:, 0] > 0).astype(int)],
        pd.Series(DAYS[(X[:, 0] > 0).astype(int)]).astype("datetime64[s]"),
        pd.Series(np.where(X[:, 0] > 0, "up", "down"), dtype="category"),
        np.where(X[:, 0] > 0, "up", "down").astype(object),
        pl.Series(np.where(X[:, 0] > 0, "up", "down")),
        X[:, 0] > 0,
    ],
)
def test_classes_of_any_kind(labels):
    model = VPBoostClassifier(**QUICK).fit(X, np.asarray(labels))
    assert evaluate(model, X, labels)["accuracy"] > 0.8
    assert (
        evaluate(model, X, np.asarray(labels).tolist() if np.asarray(labels).dtype.kind != "M" else labels)["auc"] > 0.8
    )


def test_dates_of_another_resolution():
    labels = DAYS[(X[:, 0] > 0).astype(int)]
    model = VPBoostClassifier(**QUICK).fit(X, labels)
    assert evaluate(model, X, labels.astype("datetime64[D]"))["accuracy"] > 0.8
    assert evaluate(model, X, labels.astype("datetime64[us]").tolist())["accuracy"] > 0.8
    with pytest.raises(
        ValueError, match=r"y holds '2020-01-01T00:.*', which is none of the model's classes ..2024-01-01T"
    ):
        evaluate(model, X, [datetime.date(2020, 1, 1)] * 90)
    with pytest.raises(ValueError, match="y holds 'soon', which is none"):
        evaluate(model, X, ["soon"] * 90)


def test_metrics_by_name_and_by_function():
    with pytest.raises(ValueError, match=r"got 'rsme'; did you mean 'rmse'\?"):
        VPBoostRegressor(**QUICK, eval_metric="rsme").fit(X, Y)
    with pytest.raises(ValueError, match=r"eval_metric must be one of .*, got \['rmse'\]"):
        VPBoostRegressor(**QUICK, eval_metric=["rmse"]).fit(X, Y)
    for wrong in (lambda y, p: None, lambda y, p: y - p, lambda y, p: "3"):
        with pytest.raises(TypeError, match="eval_metric must return a number, got"):
            VPBoostRegressor(**QUICK, eval_metric=wrong).fit(X, Y, X_val=X, y_val=Y)
