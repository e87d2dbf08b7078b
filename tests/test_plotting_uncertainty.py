"""Pictures of how sure models are, and the section of the report on it, show the numbers that they should."""

import re

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from models import QUICK
from vpboost import Quantile, VPBoostClassifier, VPBoostRegressor, losses, plotting
from vpboost.distributions import NegativeBinomial, Normal
from vpboost.plotting import calibration
from vpboost.plotting.bands import typical_rows
from vpboost.plotting.calibration import LEVELS, by_groups, of_distribution, sampling_error

CANNOT = "the fit has set no rows aside to know its errors by"


def law(n, seed):
    """Rows whose noise grows with the first input."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, 2))
    return X, np.sin(3 * X[:, 0]) + X[:, 1] + (0.2 + 0.2 * X[:, 0]) * rng.normal(size=n)


X, y = law(150, 0)
X_NEW, Y_NEW = law(230, 1)
LABELS, LABELS_NEW = (np.digitize(values, [-0.5, 0.5]) for values in (y, Y_NEW))


@pytest.fixture(scope="module")
def plain():
    return VPBoostRegressor(**QUICK).fit(X, y)


@pytest.fixture(scope="module")
def normal():
    return VPBoostRegressor(distribution="normal", **QUICK).fit(X, y)


@pytest.fixture(scope="module")
def pair():
    return VPBoostRegressor(distribution="normal", **QUICK).fit(X, pd.DataFrame({"first": y, "second": 10 * X[:, 1]}))


@pytest.fixture(scope="module")
def quantiles():
    return VPBoostRegressor(loss=Quantile([0.1, 0.5, 0.9]), **QUICK).fit(X, y)


@pytest.fixture(scope="module")
def classifier():
    return VPBoostClassifier(**QUICK).fit(X, LABELS)


@pytest.fixture(scope="module")
def unsure():
    return VPBoostRegressor(**QUICK, early_stopping_rounds=None).fit(X, y)


def part_within(model, coverage, rows=X_NEW, truth=Y_NEW):
    low, high = model.predict_interval(rows, coverage)
    return np.mean((low <= truth) & (truth <= high), axis=0)


# --- calibration ------------------------------------------------------------------------------------------------------


def test_coverage_of_intervals_is_counted(plain):
    ax = plotting.plot_calibration(plain, X_NEW, Y_NEW)
    diagonal, curve = ax.get_lines()
    np.testing.assert_array_equal(diagonal.get_data(), [[0, 1], [0, 1]])
    nominal, observed = curve.get_data()
    np.testing.assert_array_equal(nominal, LEVELS)
    np.testing.assert_allclose(observed, [part_within(plain, level) for level in LEVELS], rtol=1e-12)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("nominal coverage", "observed coverage")
    texts = [text.get_text() for text in ax.get_legend().get_texts()]
    assert texts == ["95% sampling error of 230 rows", "intervals"]
    outline = ax.collections[0].get_paths()[0].vertices
    low, high = sampling_error(0.5, 230)
    drawn = outline[np.isclose(outline[:, 0], 0.5), 1]
    assert (drawn.min(), drawn.max()) == (pytest.approx(low), pytest.approx(high))


def test_coverage_of_distributions_is_that_of_their_central_intervals(normal, pair):
    ax = plotting.plot_calibration(normal, X_NEW, Y_NEW)
    distance = np.abs(Y_NEW - normal.predict_dist(X_NEW).loc) / normal.predict_dist(X_NEW).scale
    expected = [np.mean(distance <= stats.norm.ppf((1 + level) / 2)) for level in LEVELS]
    np.testing.assert_allclose(ax.get_lines()[2].get_ydata(), expected, rtol=1e-12)
    assert ax.get_lines()[2].get_label() == "distribution"
    truth = pd.DataFrame({"second": 10 * X_NEW[:, 1], "first": Y_NEW})  # in another order
    ax = plotting.plot_calibration(pair, X_NEW, truth, output="second")
    assert ax.get_title() == "Calibration of second"
    low, high = pair.predict_dist(X_NEW).interval(0.8)
    within = (low[:, 1] <= truth["second"]) & (truth["second"] <= high[:, 1])
    assert ax.get_lines()[2].get_ydata()[LEVELS.index(0.8)] == pytest.approx(within.mean(), rel=1e-12)
    expected = part_within(pair, 0.8, truth=truth[["first", "second"]].to_numpy())[1]
    assert ax.get_lines()[1].get_ydata()[LEVELS.index(0.8)] == pytest.approx(expected, rel=1e-12)


def test_the_true_law_is_on_the_diagonal_also_that_of_counts():
    rng = np.random.default_rng(0)
    mu, size = rng.uniform(0.3, 4, size=20_000), np.full(20_000, 2.0)
    counts = NegativeBinomial(mu, size)
    curve = of_distribution(counts, counts.sample(1, 1)[0])
    np.testing.assert_allclose(curve.observed[:, 0], LEVELS, atol=0.01)
    values = Normal(mu, size)
    curve = of_distribution(values, values.sample(1, 1)[0])
    np.testing.assert_allclose(curve.observed[:, 0], LEVELS, atol=0.012)
    narrow = of_distribution(Normal(mu, size / 2), values.sample(1, 1)[0])
    expected = 2 * stats.norm.cdf(stats.norm.ppf(0.5 + np.array(LEVELS) / 2) / 2) - 1
    np.testing.assert_allclose(narrow.observed[:, 0], expected, atol=0.012)


def test_parts_below_quantiles_are_counted(quantiles):
    ax = plotting.plot_calibration(quantiles, X_NEW, Y_NEW)
    level, part = ax.get_lines()[1].get_data()
    np.testing.assert_array_equal(level, [0.1, 0.5, 0.9])
    np.testing.assert_allclose(part, (Y_NEW[:, None] <= quantiles.predict(X_NEW)).mean(axis=0))
    assert ax.get_xlabel() == "level of the quantile"


def test_reliability_is_that_of_the_predicted_class_or_of_a_given_one(classifier):
    probability = classifier.predict_proba(X_NEW)
    ax = plotting.plot_calibration(classifier, X_NEW, LABELS_NEW)
    centres, parts = ax.get_lines()[1].get_data()
    order = np.argsort(probability.max(axis=1), kind="stable")
    for k, rows in enumerate(order.reshape(10, 23)):
        assert centres[k] == pytest.approx(probability[rows].max(axis=1).mean())
        assert parts[k] == pytest.approx(np.mean(classifier.predict(X_NEW[rows]) == LABELS_NEW[rows]))
    assert "groups of 23 rows" in [text.get_text() for text in ax.get_legend().get_texts()]
    ax = plotting.plot_calibration(classifier, X_NEW, LABELS_NEW, output="2")
    centres, parts = ax.get_lines()[1].get_data()
    assert centres.mean() == pytest.approx(probability[:, 2].mean())
    assert parts.mean() == pytest.approx(np.mean(LABELS_NEW == 2))
    assert ax.get_xlabel() == "predicted probability of '2'"


def test_models_that_know_nothing_of_their_errors_say_so(unsure, plain):
    for plot in (plotting.plot_calibration, plotting.plot_interval_widths):
        with pytest.raises(ValueError, match=CANNOT):
            plot(unsure, X_NEW, Y_NEW)
    with pytest.raises(ValueError, match=CANNOT):
        plotting.plot_bands(unsure, X, 0)
    few = VPBoostRegressor(**QUICK, early_stopping_rounds=None).fit(X, y).calibrate(X_NEW[:5], Y_NEW[:5])
    ax = plotting.plot_calibration(few, X_NEW, Y_NEW)
    np.testing.assert_array_equal(ax.get_lines()[1].get_xdata(), [level for level in LEVELS if level <= 0.8])
    with pytest.raises(ValueError, match="X and y must have as many rows, got 230 and 5"):
        plotting.plot_calibration(plain, X_NEW, Y_NEW[:5])


def test_likelihoods_of_ones_own_are_judged_by_their_law():
    def logpdf(parameters, target):
        return -0.5 * (target - parameters[0]) ** 2

    likelihood = losses.CustomLikelihood(logpdf, 1, law=lambda p: Normal(p[..., 0], np.ones_like(p[..., 0])))
    model = VPBoostRegressor(distribution=likelihood, **QUICK).fit(X, y)
    curve = plotting.plot_calibration(model, X_NEW, Y_NEW).get_lines()[-1]
    assert curve.get_label() == "distribution"
    expected = np.mean(np.abs(Y_NEW - model.predict_dist(X_NEW).loc) <= stats.norm.ppf(0.75))
    assert curve.get_ydata()[LEVELS.index(0.5)] == pytest.approx(expected)


def test_of_very_many_rows_some_are_judged(plain, monkeypatch):
    monkeypatch.setattr(calibration, "MOST_JUDGED", 50)
    some = np.linspace(0, 229, 50).astype(int)
    for rows in (X_NEW, X_NEW.tolist()):
        observed = plotting.plot_calibration(plain, rows, Y_NEW).get_lines()[1].get_ydata()
        assert observed[4] == pytest.approx(part_within(plain, 0.5, X_NEW[some], Y_NEW[some]))


@given(st.integers(1, 2000), st.floats(0.01, 0.99))
def test_sampling_errors_hold_95_percent_of_samples(n, probability):
    low, high = sampling_error(probability, n)
    counts = np.arange(n + 1)
    known = stats.binom.pmf(counts, n, probability)
    possible = np.concatenate([[0], np.cumsum(known)])  # counts have no tail of exactly 2.5%
    for outside, tails in ((counts < n * low - 1e-9, possible), (counts > n * high + 1e-9, possible[-1] - possible)):
        assert abs(known[outside].sum() - 0.025) <= np.abs(tails - 0.025).min() + 1e-6
    np.testing.assert_allclose(sampling_error(1 - probability, n), [1 - high, 1 - low], atol=1e-6)


def test_sampling_errors_of_certain_things_are_none():
    np.testing.assert_allclose(sampling_error(np.array([0.0, 1.0]), 50), [[0, 1], [0, 1]], atol=0.02)
    low, high = sampling_error(0.3, 100_000)
    assert (high - low) / 2 == pytest.approx(1.96 * np.sqrt(0.21 / 100_000), rel=0.01)


def test_groups_are_of_as_many_rows():
    values, holds = np.arange(45.0)[::-1], np.arange(45) < 9
    centres, parts, size = by_groups(values, holds)
    np.testing.assert_allclose(centres, [11, 33.5])
    np.testing.assert_allclose(parts, [0, 9 / 22])
    assert size == 22
    assert by_groups(np.ones(1), np.ones(1, bool))[2] == 1


# --- widths of intervals ----------------------------------------------------------------------------------------------


def test_widths_and_parts_within_by_prediction(normal, pair):
    ax = plotting.plot_interval_widths(normal, X_NEW, Y_NEW, coverage=0.8)
    low, high = normal.predict_interval(X_NEW, 0.8)
    np.testing.assert_allclose(ax.collections[0].get_offsets(), np.stack([normal.predict(X_NEW), high - low], axis=1))
    right = ax.get_figure().axes[1]
    centres, parts = right.get_lines()[1].get_data()
    order = np.argsort(normal.predict(X_NEW), kind="stable").reshape(10, 23)
    np.testing.assert_allclose(centres, normal.predict(X_NEW)[order].mean(axis=1))
    np.testing.assert_allclose(parts, ((low <= Y_NEW) & (high >= Y_NEW))[order].mean(axis=1))
    assert right.get_lines()[0].get_ydata()[0] == 0.8
    shown = [text.get_text() for text in ax.get_legend().get_texts()]
    assert shown == ["width", f"part within, {part_within(normal, 0.8):.1%} of all"]
    truth = np.stack([Y_NEW, 10 * X_NEW[:, 1]], axis=1)
    ax = plotting.plot_interval_widths(pair, X_NEW, truth, output=1)
    assert (ax.get_xlabel(), ax.get_title()) == ("predicted second", "Intervals of 90% coverage")
    low, high = pair.predict_interval(X_NEW)
    np.testing.assert_allclose(ax.collections[0].get_offsets()[:, 1], (high - low)[:, 1])


def test_pictures_of_intervals_are_for_regressors(classifier, plain):
    with pytest.raises(ValueError, match="this plot is for regressors"):
        plotting.plot_interval_widths(classifier, X_NEW, LABELS_NEW)
    with pytest.raises(ValueError, match="this plot is for regressors"):
        plotting.plot_bands(classifier, X_NEW, 0)
    with pytest.raises(ValueError, match=r"coverage must be in \(0, 1\), got 2"):
        plotting.plot_interval_widths(plain, X_NEW, Y_NEW, coverage=2)


# --- bands ------------------------------------------------------------------------------------------------------------


def bounds(band, places):
    """The lower and upper ends of a drawn band at some places."""
    outline = band.get_paths()[0].vertices
    ends = [outline[np.isclose(outline[:, 0], place), 1] for place in places]
    return np.array([[values.min(), values.max()] for values in ends]).T


def test_bands_are_intervals_at_the_medians_of_other_columns(plain):
    ax = plotting.plot_bands(plain, X[:149], 0, n_points=7)
    grid, middle = ax.get_lines()[0].get_data()
    np.testing.assert_allclose(grid, np.linspace(*np.quantile(X[:149, 0], [0.02, 0.98]), 7))
    rows = np.stack([grid, np.full(7, np.median(X[:149, 1]))], axis=1)
    np.testing.assert_allclose(middle, plain.predict(rows))
    for band, coverage in zip(ax.collections, (0.9, 0.5), strict=True):
        np.testing.assert_allclose(bounds(band, grid), plain.predict_interval(rows, coverage))
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["90%", "50%", "prediction"]


def test_bands_may_be_those_of_distributions(plain, normal, pair):
    places = np.linspace(*np.quantile(X[:, 0], [0.02, 0.98]), 5)
    rows = np.stack([places, np.full(5, np.sort(X[:, 1])[74])], axis=1)  # the lower one of the two in the middle
    for model, by in ((normal, "auto"), (normal, "distribution"), (plain, "distribution")):
        ax = plotting.plot_bands(model, X, 0, n_points=5, by=by)
        for band, coverage in zip(ax.collections, (0.9, 0.5), strict=True):
            z, dist = stats.norm.ppf((1 + coverage) / 2), model.predict_dist(rows)
            np.testing.assert_allclose(bounds(band, places), [dist.loc - z * dist.scale, dist.loc + z * dist.scale])
    ax = plotting.plot_bands(normal, X, 0, n_points=5, by="interval")
    np.testing.assert_allclose(bounds(ax.collections[1], places), normal.predict_interval(rows, 0.5))
    ax = plotting.plot_bands(pair, X, 0, n_points=5, output="second")
    np.testing.assert_allclose(ax.get_lines()[0].get_ydata(), pair.predict(rows)[:, 1])
    np.testing.assert_allclose(bounds(ax.collections[0], places)[0], pair.predict_dist(rows).interval(0.9)[0][:, 1])
    assert ax.get_ylabel() == "prediction of second"
    with pytest.raises(ValueError, match="by must be one of 'auto', 'interval', 'distribution', got 'intervall'"):
        plotting.plot_bands(plain, X, 0, by="intervall")


def test_bands_between_quantiles(quantiles):
    ax = plotting.plot_bands(quantiles, X[:149], 0, n_points=5)
    grid, middle = ax.get_lines()[0].get_data()
    found = quantiles.predict(np.stack([grid, np.full(5, np.median(X[:149, 1]))], axis=1))
    np.testing.assert_allclose(middle, found[:, 1])
    np.testing.assert_allclose(bounds(ax.collections[0], grid), found[:, [0, 2]].T)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["80%", "prediction"]


def test_data_are_drawn_on_top(plain):
    ax = plotting.plot_bands(plain, X, 1, y)
    np.testing.assert_array_equal(ax.collections[-1].get_offsets(), np.stack([X[:, 1], y], axis=1))
    many = np.tile(X, (10, 1))
    assert len(plotting.plot_bands(plain, many, 1, np.tile(y, 10)).collections[-1].get_offsets()) == 1000
    with pytest.raises(ValueError, match="X and y must have as many rows, got 150 and 3"):
        plotting.plot_bands(plain, X, 1, y[:3])


FRAME = pd.DataFrame(
    {
        "number": np.where(np.arange(120) % 7, np.linspace(-1, 1, 120), np.nan),
        "city": np.array(["Rome", "Paris", "Rome", None], object)[np.arange(120) % 4],
        "day": pd.date_range("2024-01-01", periods=120, freq="D"),
        "lasts": pd.to_timedelta(np.arange(120), unit="h"),
        "flag": np.arange(120) % 3 > 0,
    }
)


@pytest.mark.parametrize("make", [pd.DataFrame, pl.from_pandas, pa.Table.from_pandas])
def test_bands_of_tables_of_all_kinds(make):
    table, target = make(FRAME), np.linspace(0, 5, 120) + 2.0 * (FRAME["city"] == "Paris")
    model = VPBoostRegressor(**QUICK).fit(table, target)
    read = table.to_pandas() if isinstance(table, pa.Table) else table
    rows = typical_rows(model, read, 3)
    rows = rows if isinstance(rows, pd.DataFrame) else rows.to_pandas()
    assert len(rows) == 3
    numbers = FRAME["number"].dropna().sort_values()
    assert rows["number"].tolist() == [numbers.iloc[(len(numbers) - 1) // 2]] * 3
    assert rows["city"].tolist() == ["Rome"] * 3
    assert rows["flag"].tolist() == [True] * 3
    assert rows["day"].tolist() == [pd.Timestamp("2024-02-29")] * 3
    assert rows["lasts"].tolist() == [pd.Timedelta(hours=59)] * 3
    for column in ("number", "day", "lasts"):
        ax = plotting.plot_bands(model, table, column, target, n_points=5)
        assert len(ax.collections[-1].get_offsets()) == FRAME[column].notna().sum()
        ax.get_figure().canvas.draw()
    assert ax.get_xlabel() == "lasts, days"
    ax = plotting.plot_bands(model, table, "city", target)
    assert [label.get_text().split()[0] for label in ax.get_yticklabels()] == ["Rome", "Paris", "<missing>"]
    changed = pd.concat([rows.iloc[:1]] * 3).assign(city=np.array(["Rome", "Paris", None], object))
    changed = changed if isinstance(table, pd.DataFrame) else make(changed.reset_index(drop=True))
    np.testing.assert_allclose(ax.get_lines()[0].get_xdata(), model.predict(changed))
    low, high = model.predict_interval(changed, 0.9)
    drawn = np.array([segment[:, 0] for segment in ax.collections[0].get_segments()])
    np.testing.assert_allclose(drawn, np.stack([low, high], axis=1))
    assert sum(len(points.get_offsets()) for points in ax.collections[2:]) == 120


# --- the report -------------------------------------------------------------------------------------------------------


def section(page):
    return re.search(r"<h2>How sure is it\?</h2>(.*?)<h2>Effects", page, re.DOTALL).group(1)


def rows_of(text):
    lines = re.findall(r"<tr><th>([^<]*)</th>((?:<td>[^<]*</td>)+)</tr>", text)
    return {name: re.findall(r"<td>([^<]*)</td>", cells) for name, cells in lines}


@pytest.mark.long
@pytest.mark.slow
def test_a_report_tells_coverage_and_widths(plain, normal, tmp_path):
    for model in (plain, normal):
        text = section(plotting.report(model, X_NEW, Y_NEW, tmp_path / "r.html").read_text())
        expected = {}
        for level in (0.5, 0.9, 0.95):
            low, high = model.predict_interval(X_NEW, level)
            expected[f"{level:.0%}"] = [f"{part_within(model, level):.4g}", f"{np.mean(high - low):.4g}"]
        assert rows_of(text) == expected
        assert re.findall("alt='([^']*)'", text) == ["Calibration", "Intervals of 90% coverage"]
        assert ("CRPS" in text) == (model is normal)
    dist = normal.predict_dist(X_NEW)
    assert f"<b>{-stats.norm.logpdf(Y_NEW, dist.loc, dist.scale).mean():.4g}</b>negative log-likelihood" in text
    assert f"<b>{dist.crps(Y_NEW).mean():.4g}</b>CRPS" in text


@pytest.mark.slow
@pytest.mark.long
def test_a_report_of_laws_of_positive_numbers(tmp_path):
    model = VPBoostRegressor(distribution="lognormal", **QUICK).fit(X, np.exp(y))
    page = plotting.report(model, X_NEW, np.exp(Y_NEW), tmp_path / "r.html").read_text()
    assert "alt='Input gradients'" not in page  # they are not known
    assert f"<b>{model.predict_dist(X_NEW).crps(np.exp(Y_NEW)).mean():.4g}</b>CRPS" in page
    page = plotting.report(model, X_NEW, Y_NEW, tmp_path / "r.html").read_text()
    assert "<b>inf</b>negative log-likelihood" in page
    assert "<b>–</b>CRPS" in page


@pytest.mark.slow
def test_a_report_tells_coverage_of_every_output(pair, tmp_path):
    truth = np.stack([Y_NEW, 10 * X_NEW[:, 1]], axis=1)
    text = section(plotting.report(pair, X_NEW, truth, tmp_path / "r.html").read_text())
    found = rows_of(text)
    assert list(found) == ["first", "second"]
    low, high = pair.predict_interval(X_NEW, 0.9)
    for k, name in enumerate(found):
        assert found[name][2] == f"{part_within(pair, 0.9, truth=truth)[k]:.4g}"
        assert found[name][3] == f"{np.mean(high - low, axis=0)[k]:.4g}"
    assert re.findall("alt='([^']*)'", text) == ["Calibration of first", "Calibration of second"]


@pytest.mark.long
@pytest.mark.slow
def test_a_report_of_very_many_outputs_tells_the_extremes(tmp_path):
    truth = X @ np.random.default_rng(0).normal(size=(2, 60))
    model = VPBoostRegressor(**QUICK).fit(X, truth)
    truth[:, 7] += 1e3
    text = section(plotting.report(model, X, truth, tmp_path / "r.html").read_text())
    assert "The 10 outputs of 60 whose intervals hold the truth least often, and most often." in text
    assert len(rows_of(text)) == 20
    assert next(iter(rows_of(text))) == "7"
    assert text.count("<img ") == 2
    assert "alt='Calibration of output 7 of 60'" in text


@pytest.mark.slow
def test_a_report_tells_the_size_of_label_sets(classifier, tmp_path):
    text = section(plotting.report(classifier, X_NEW, LABELS_NEW, tmp_path / "r.html").read_text())
    sets = classifier.predict_set(X_NEW, 0.9)
    assert f"<b>{sets.sum() / 230:.4g}</b>classes in a label set of 90% coverage, on average" in text
    assert f"<b>{sets[np.arange(230), LABELS_NEW].mean():.4g}</b>of these sets hold the true class" in text
    assert "alt='Reliability of the predicted class'" in text


@pytest.mark.long
@pytest.mark.slow
def test_a_report_says_what_it_cannot_tell(unsure, tmp_path):
    text = section(plotting.report(unsure, X_NEW, Y_NEW, tmp_path / "r.html").read_text())
    assert text.strip().startswith("<p>It cannot say within which bounds the truth is: the fit has set too few rows")
    assert text.count("<") == 4  # a paragraph and a piece of code
    few = VPBoostRegressor(**QUICK, early_stopping_rounds=None).fit(X, y).calibrate(X_NEW[:5], Y_NEW[:5])
    found = rows_of(section(plotting.report(few, X_NEW, Y_NEW, tmp_path / "r.html").read_text()))
    assert found["90%"] == found["95%"] == ["–", "–"]
    assert found["50%"][0] == f"{part_within(few, 0.5):.4g}"
    labels = VPBoostClassifier(**QUICK, early_stopping_rounds=None).fit(X, LABELS)
    text = section(plotting.report(labels, X_NEW, LABELS_NEW, tmp_path / "r.html").read_text())
    assert "It cannot say which classes may be the true one" in text
    assert text.count("<img ") == 1
