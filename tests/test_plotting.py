import datetime

import matplotlib.dates as mdates
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse

from models import QUICK as QUICKEST
from vpboost import VPBoostClassifier, VPBoostRegressor, plotting
from vpboost.estimators.metrics import evaluate
from vpboost.numerics.rows import MANY_ROWS

QUICK = {**QUICKEST, "n_estimators": 5, "max_steps": 10, "width": 4}


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
    with pytest.raises(ValueError, match="output must be one of the names 'height' or a number from 0 to 0, got 3"):
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
    assert ax.get_ylabel() == "logit of 'up'"


def test_axes_may_be_given(regressor):
    ax = plotting.plot_training(regressor)
    assert plotting.plot_diagnostics(regressor, ax) is ax
    for wrong in (ax.get_figure(), np.array([ax]), 3):
        with pytest.raises(TypeError, match=r"ax must be matplotlib axes, such as figure.subplots\(\) returns, got"):
            plotting.plot_training(regressor, wrong)


def test_a_single_stage_is_a_point(frame):
    model = VPBoostRegressor(**{**QUICK, "n_estimators": 1}, early_stopping_rounds=None).fit(frame[["a"]], frame["a"])
    for plot in (plotting.plot_training, plotting.plot_diagnostics):
        assert plot(model).get_lines()[0].get_marker() == "."


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


@pytest.mark.slow
@pytest.mark.long
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


# --- which output -----------------------------------------------------------------------------------------------------

SMALL = {**QUICK, "n_estimators": 2, "max_steps": 2}


def mean_of(ax):
    return ax.get_lines()[-1].get_ydata()


def test_outputs_go_by_name_or_number(outputs, frame):
    model, y = outputs
    np.testing.assert_array_equal(
        mean_of(plotting.plot_partial_dependence(model, frame, "a", output="depth")),
        mean_of(plotting.plot_partial_dependence(model, frame, "a", output=np.int64(2))),
    )
    ax = plotting.plot_partial_dependence(model, frame, "a", output="depth")
    assert ax.get_ylabel() == "prediction of depth"
    assert plotting.plot_partial_dependence(model, frame, "a").get_ylabel() == "prediction of height"
    ax = plotting.plot_predictions(model, frame, y, output="width")
    assert (ax.get_title(), ax.get_xlabel()) == ("Predictions of width", "true width")
    np.testing.assert_array_equal(ax.collections[0].get_offsets()[:, 0], y["width"])
    first, third = (plotting.plot_input_gradients(model, frame, output=k) for k in (None, "depth"))
    assert "prediction of depth" in third.get_xlabel()
    assert "prediction of height" in first.get_xlabel()


@pytest.mark.parametrize("wrong", [3, 7, -1, True, False, 1.0, "z", ["height"]])
def test_outputs_that_there_are_not(outputs, frame, wrong):
    model, y = outputs
    message = "output must be one of the names 'height', 'width', 'depth' or a number from 0 to 2, got "
    for draw in (
        lambda: plotting.plot_partial_dependence(model, frame, "a", output=wrong),
        lambda: plotting.plot_predictions(model, frame, y, output=wrong),
        lambda: plotting.plot_input_gradients(model, frame, output=wrong),
    ):
        with pytest.raises(ValueError, match=message):
            draw()
    with pytest.raises(ValueError, match=r"got 'hieght'; did you mean 'height'\?"):
        plotting.plot_partial_dependence(model, frame, "a", output="hieght")


def test_outputs_without_names_are_numbered(unnamed):
    model, X = unnamed
    assert plotting.plot_partial_dependence(model, X, 0, output=3).get_ylabel() == "prediction of output 3 of 20"
    assert plotting.plot_predictions(model, X, model.predict(X)).get_title() == "Predictions of output 0 of 20"
    with pytest.raises(ValueError, match="output must be a number from 0 to 19, got 20"):
        plotting.plot_input_gradients(model, X, output=20)


def test_classes_go_by_number_or_by_label_as_text(months):
    model, X, labels = months
    ax = plotting.plot_partial_dependence(model, X, 0, output=1)
    assert ax.get_ylabel() == "logit of '8'"
    np.testing.assert_array_equal(mean_of(ax), mean_of(plotting.plot_partial_dependence(model, X, 0, output="8")))
    assert "logit of '7'" in plotting.plot_input_gradients(model, X).get_xlabel()
    with pytest.raises(ValueError, match="got 8; the name is written '8'"):
        plotting.plot_partial_dependence(model, X, 0, output=8)
    ax = plotting.plot_predictions(model, X, labels, output="9")
    assert ax.get_title() == "Predictions of '9'"
    drawn = [sum(bar.get_height() for bar in bars) for bars in ax.containers]
    assert drawn == [(labels != 9).sum(), (labels == 9).sum()]


def test_of_two_classes_either_logit_can_be_drawn(classifier, frame):
    X = frame[["a", "b"]].to_numpy()
    usual, up, down = (plotting.plot_partial_dependence(classifier, X, 0, output=k) for k in (None, "up", "down"))
    assert [ax.get_ylabel() for ax in (usual, up, down)] == ["logit of 'up'", "logit of 'up'", "logit of 'down'"]
    np.testing.assert_array_equal(mean_of(up), mean_of(usual))
    np.testing.assert_array_equal(mean_of(down), -mean_of(usual))


# --- which column -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["pandas", "polars"])
def mixed(request):
    rng = np.random.default_rng(0)
    columns = {
        "number": np.where(rng.random(120) < 0.2, np.nan, rng.normal(size=120)),
        "city": rng.choice(np.array(["Rome", "Paris", None], object), 120, p=[0.6, 0.3, 0.1]).tolist(),
        "flag": rng.random(120) > 0.4,
        "many": [f"level {k}" for k in rng.integers(0, 60, 120)],
        "constant": np.full(120, 3.0),
    }
    X = pd.DataFrame(columns) if request.param == "pandas" else pl.DataFrame(columns)
    return VPBoostRegressor(**SMALL).fit(X, np.array([city == "Paris" for city in columns["city"]], float)), X


def ticks(ax):
    return [label.get_text().rsplit(" (", 1)[0] for label in ax.get_yticklabels()]


def test_categories_are_drawn_by_level_the_most_frequent_first(mixed):
    model, X = mixed
    ax = plotting.plot_partial_dependence(model, X, "city")
    assert ticks(ax) == ["Rome", "Paris", "<missing>"]
    means = [line.get_xdata()[0] for line in ax.get_lines()[1::2]]
    for level, mean in zip(["Rome", "Paris", None], means, strict=True):
        if isinstance(X, pd.DataFrame):
            changed = X.assign(city=pd.Series([level] * 120, dtype=object))
        else:
            changed = X.with_columns(pl.lit(level, dtype=pl.String).alias("city"))
        assert mean == pytest.approx(model.predict(changed).mean())
    assert "middle 80% of the rows" in ax.get_xlabel()
    ax = plotting.plot_partial_dependence(model, X, "many")
    assert len(ticks(ax)) == 20
    assert ax.get_ylabel().startswith("many\n(20 most frequent of ")


def test_columns_of_truth_values_and_constants_are_levels(mixed):
    model, X = mixed
    assert ticks(plotting.plot_partial_dependence(model, X, "flag")) == ["True", "False"]
    assert ticks(plotting.plot_partial_dependence(model, X, "constant")) == ["3"]
    assert np.isfinite(mean_of(plotting.plot_partial_dependence(model, X, "number"))).all()
    assert len(plotting.plot_partial_dependence(model, X[:1], "city").get_lines()) == 2


def test_levels_of_nullable_truth_values_and_dates():
    X = pd.DataFrame({"flag": pd.array([True, True, False, None] * 15, dtype="boolean"), "a": np.arange(60.0)})
    model = VPBoostRegressor(**SMALL).fit(X, X["a"])
    assert ticks(plotting.plot_partial_dependence(model, X, "flag")) == ["True", "False", "<missing>"]
    X = pd.DataFrame({"day": [datetime.date(2024, 1, 1), datetime.date(2024, 5, 1)] * 30, "a": np.arange(60.0)})
    model = VPBoostRegressor(**SMALL).fit(X.astype({"day": str}), X["a"])
    levels = ["2024-01-01", "2024-05-01"]
    assert ticks(plotting.plot_partial_dependence(model, X.astype({"day": str}), "day")) == levels


def test_a_column_without_values_is_drawn_as_missing():
    X = np.column_stack([np.linspace(0, 1, 60), np.where(np.arange(60) % 2, np.nan, 1.0)])
    model = VPBoostRegressor(**SMALL).fit(X, X[:, 0])
    assert ticks(plotting.plot_partial_dependence(model, np.column_stack([X[:, 0], np.full(60, np.nan)]), 1)) == [
        "<missing>"
    ]
    assert set(ticks(plotting.plot_partial_dependence(model, X, 1))) == {"1", "<missing>"}


def test_a_column_that_hardly_varies_is_drawn_over_its_whole_range():
    X = np.zeros((200, 1))
    X[7] = 5.0
    model = VPBoostRegressor(**SMALL).fit(X, X[:, 0])
    assert plotting.plot_partial_dependence(model, X, 0).get_lines()[-1].get_xdata()[-1] == 5.0


MOMENTS = pd.date_range("2024-01-01", periods=120, freq="D").to_series(index=range(120))
TIMES = {
    "dates": MOMENTS,
    "dates with a zone": MOMENTS.dt.tz_localize("UTC").dt.tz_convert("Asia/Tokyo"),
    "dates as objects": MOMENTS.dt.date,
    "periods": MOMENTS.dt.to_period("D"),
    "durations": MOMENTS - MOMENTS[0],
    "times of day": pd.Series([datetime.time(i // 5, 3 * (i % 5)) for i in range(120)]),
}


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        *((pd.DataFrame, kind) for kind in TIMES),
        *((make, kind) for make in (pl.from_pandas, pa.Table.from_pandas) for kind in TIMES if kind != "periods"),
    ],
)
def test_times_are_drawn_as_such(make, kind):
    frame = pd.DataFrame({"a": 0.0, "day": TIMES[kind].where(MOMENTS.index % 10 != 5)})
    model = VPBoostRegressor(**{**QUICK, "n_estimators": 30}).fit(make(frame), np.arange(120.0))
    ax = plotting.plot_partial_dependence(model, make(frame), "day")
    _, mean = ax.get_lines()[-1].get_data()
    assert np.corrcoef(np.arange(len(mean)), mean)[0, 1] > 0.95  # rises with time
    assert mean[0] < 25
    assert mean[-1] > 95
    if kind.startswith(("dates", "periods")):
        assert isinstance(ax.xaxis.get_major_formatter(), mdates.AutoDateFormatter)
    else:
        assert ax.get_xlabel() == "day, days"
    ax.get_figure().canvas.draw()


def test_arrays_of_dates_are_drawn_as_such():
    table = MOMENTS.to_numpy()[:, None].astype("datetime64[ns]")
    model = VPBoostRegressor(**{**QUICK, "n_estimators": 30}).fit(table, np.arange(120.0))
    _, mean = plotting.plot_partial_dependence(model, table, 0).get_lines()[-1].get_data()
    assert mean[0] < 25
    assert mean[-1] > 95


@pytest.mark.parametrize("wrong", [-1, 3, True, 0.0, None])
def test_columns_that_there_are_not(regressor, frame, wrong):
    message = "feature must be one of the names 'a', 'b', 'c' or a number from 0 to 2, got "
    with pytest.raises(ValueError, match=message):
        plotting.plot_partial_dependence(regressor, frame, wrong)


def test_names_of_columns_are_looked_up(frame, months):
    X = frame.set_axis(["height", "width", "c"], axis=1)
    model = VPBoostRegressor(**SMALL).fit(X, X["height"])
    with pytest.raises(ValueError, match=r"got 'heigth'; did you mean 'height'\?"):
        plotting.plot_partial_dependence(model, X, "heigth")
    assert plotting.plot_partial_dependence(model, X, np.int32(1)).get_xlabel() == "width"
    with pytest.raises(ValueError, match="feature must be a number from 0 to 1, got 'a'"):
        plotting.plot_partial_dependence(months[0], months[1], "a")


@pytest.mark.parametrize(
    ("X", "message"),
    [
        ([], r"X must be an array or data frame of rows and columns, got list of shape \(0,\)"),
        (np.zeros((0, 2)), "X has no rows; a plot needs at least one"),
        (np.zeros((5, 3)), "X must have the 2 columns of training, got 3"),
        (np.zeros(5), r"X must be an array or data frame of rows and columns, got ndarray of shape \(5,\)"),
        (None, r"X must be an array or data frame of rows and columns, got NoneType of shape \(\)"),
        (scipy.sparse.csr_matrix((5, 2)), r"X must be an array or data frame .*, got csr_matrix of shape \(\)"),
        ([["a", "b"]], "could not convert string"),
    ],
)
def test_tables_that_do_not_fit(months, X, message):
    for draw in (plotting.plot_input_gradients, lambda model, X: plotting.plot_partial_dependence(model, X, 0)):
        with pytest.raises(ValueError, match=message):
            draw(months[0], X)


def test_tables_may_be_lists_and_single_rows_and_large(months):
    model, X, labels = months
    for rows in (X.tolist(), X[:1], X[:1].tolist(), np.zeros((MANY_ROWS + 1, 2), np.float32)):
        plotting.plot_input_gradients(model, rows)
        plotting.plot_partial_dependence(model, rows, 1)
    plotting.plot_predictions(model, X[:1].tolist(), labels[:1].tolist())


def test_numbers_of_things_to_draw_are_checked(months):
    with pytest.raises(ValueError, match="most must be a whole number of at least 1, got 0"):
        plotting.plot_input_gradients(*months[:2], most=0)
    with pytest.raises(ValueError, match=r"n_points must be a whole number of at least 2, got 2\.5"):
        plotting.plot_partial_dependence(*months[:2], 0, n_points=2.5)
