"""Columns of data frames become what they hold: numbers, dates, spans of time, categories, or an error."""

import datetime
import decimal
import fractions

import numpy as np
import pytest

from oracles import central_difference
from vpboost import VPBoostRegressor, load_model
from vpboost.predictor import Predictor, level_name, seconds
from vpboost.tables.encoder import InputEncoder
from vpboost.tables.encodings import Cycles
from vpboost.tables.frames import is_frame, names_of, read_table

pd, pl, pa = pytest.importorskip("pandas"), pytest.importorskip("polars"), pytest.importorskip("pyarrow")

DAYS = np.random.default_rng(0).integers(0, 2000, 300)
START = datetime.datetime(2015, 1, 1)
MOMENTS = [START + datetime.timedelta(days=int(day)) for day in DAYS]
NUMPY = np.array(MOMENTS, dtype="datetime64[us]")
SECONDS = (NUMPY - np.datetime64(0, "s")) / np.timedelta64(1, "s")
PLAIN = {"n_estimators": 20, "learning_rate": 0.5, "encoding": "plain", "inherit": 0.0, "max_features": None}

DATES = {
    "pandas": lambda: pd.DataFrame({"d": NUMPY}),
    "pandas, in seconds": lambda: pd.DataFrame({"d": NUMPY.astype("datetime64[s]")}),
    "pandas, zone": lambda: pd.DataFrame({"d": pd.to_datetime(NUMPY).tz_localize("UTC").tz_convert("Asia/Tokyo")}),
    "pandas, Arrow type": lambda: pd.DataFrame({"d": pd.Series(NUMPY).astype("timestamp[ns][pyarrow]")}),
    "pandas, periods": lambda: pd.DataFrame({"d": pd.PeriodIndex(pd.to_datetime(NUMPY), freq="D")}),
    "objects": lambda: pd.DataFrame({"d": pd.Series(MOMENTS, dtype=object)}),
    "objects, zone": lambda: pd.DataFrame(
        {"d": pd.Series([m.replace(tzinfo=datetime.UTC) for m in MOMENTS], dtype=object)}
    ),
    "dates": lambda: pd.DataFrame({"d": pd.Series([m.date() for m in MOMENTS], dtype=object)}),
    "polars": lambda: pl.DataFrame({"d": MOMENTS}),
    "polars, dates": lambda: pl.DataFrame({"d": [m.date() for m in MOMENTS]}),
    "Arrow": lambda: pa.table({"d": NUMPY}),
    "Arrow, dates": lambda: pa.table({"d": [m.date() for m in MOMENTS]}),
}
SPANS = {
    "pandas": lambda: pd.DataFrame({"d": NUMPY - NUMPY[0]}),
    "objects": lambda: pd.DataFrame({"d": pd.Series([m - MOMENTS[0] for m in MOMENTS], dtype=object)}),
    "polars": lambda: pl.DataFrame({"d": [m - MOMENTS[0] for m in MOMENTS]}),
    "Arrow": lambda: pa.table({"d": NUMPY - NUMPY[0]}),
}
WHOLE = [int(day) for day in DAYS]
NUMBERS = {
    "objects": lambda: pd.DataFrame({"d": pd.Series(WHOLE, dtype=object)}),
    "decimals": lambda: pd.DataFrame({"d": [decimal.Decimal(day) for day in WHOLE]}),
    "fractions": lambda: pd.DataFrame({"d": [fractions.Fraction(day) for day in WHOLE]}),
    "NumPy's": lambda: pd.DataFrame({"d": pd.Series([np.int16(day) for day in WHOLE], dtype=object)}),
    "pandas, Arrow type": lambda: pd.DataFrame({"d": pd.array(WHOLE, dtype="int64[pyarrow]")}),
    "polars, decimals": lambda: pl.DataFrame({"d": [decimal.Decimal(day) for day in WHOLE]}),
    "Arrow": lambda: pa.table({"d": WHOLE}),
    "Arrow, decimals": lambda: pa.table({"d": [decimal.Decimal(day) for day in WHOLE]}),
}


@pytest.mark.parametrize(
    ("make", "kind", "expected"),
    [
        *[pytest.param(make, "datetime", SECONDS, id=f"dates, {name}") for name, make in DATES.items()],
        *[pytest.param(make, "timedelta", SECONDS - SECONDS[0], id=f"spans, {name}") for name, make in SPANS.items()],
        *[pytest.param(make, "number", DAYS, id=f"numbers, {name}") for name, make in NUMBERS.items()],
    ],
)
def test_columns_become_what_they_hold(make, kind, expected):
    table = read_table(make())
    assert (table.kinds, table.texts) == ([kind], {})
    np.testing.assert_allclose(table.numbers[:, 0], expected, rtol=1e-12)
    again = read_table(make(), [kind])
    np.testing.assert_array_equal(again.numbers, table.numbers)


@pytest.mark.parametrize("missing", [None, np.nan, pd.NaT, pd.NA])
def test_missing_values_of_any_spelling(missing):
    frame = pd.DataFrame(
        {
            "date": pd.Series([*MOMENTS[:2], missing], dtype=object),
            "span": pd.Series([datetime.timedelta(1), missing, datetime.timedelta(2)], dtype=object),
            "number": pd.Series([missing, 1, True], dtype=object),
            "text": pd.Series(["a", missing, "b"], dtype=object),
            "nothing": pd.Series([missing] * 3, dtype=object),
        }
    )
    table = read_table(frame)
    assert table.kinds == ["datetime", "timedelta", "number", "category", "number"]
    np.testing.assert_array_equal(np.isnan(table.numbers), [[0, 0, 1, 1], [0, 1, 0, 1], [1, 0, 0, 1]])
    assert table.texts[3].tolist() == ["a", "<missing>", "b"]
    blank = frame.assign(**{name: pd.Series([missing] * 3, dtype=object) for name in frame})
    assert np.isnan(read_table(blank, table.kinds).numbers).all()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([[1, 2], [3]], "'c' of X holds values of type list, which cannot be a feature"),
        ([{"a": 1}, None], "holds values of type dict"),
        ([object(), object()], "holds values of type object"),
        ([1j, 2j], "holds values of type complex"),
        ([10**400, 1], "'c' has a value that is not a number in double precision"),
        ([np.inf, 1.0], "'c' has infinite values"),
        ([decimal.Decimal("Infinity"), decimal.Decimal(1)], "'c' has infinite values"),
    ],
)
def test_what_cannot_be_a_feature(values, message):
    column = pd.Series(values, dtype=object if values[0] == 10**400 else None)  # which pandas 2 would not guess
    frame = pd.DataFrame({"t": ["a", "b"], "c": column})
    with pytest.raises(ValueError, match=message):
        VPBoostRegressor().fit(frame, [0.0, 1.0])


def test_columns_must_stay_what_they_were():
    frame = pd.DataFrame({"d": NUMPY, "n": DAYS, "s": NUMPY - NUMPY[0]})
    model = VPBoostRegressor(**PLAIN).fit(frame, DAYS)
    for name, values, message in [
        ("d", DAYS, "'d' held dates in training"),
        ("n", NUMPY, "'n' was numeric in training"),
        ("s", ["x"] * 300, "'s' held spans of time in training"),
        ("n", ["1"] * 300, "'n' was numeric in training"),
    ]:
        with pytest.raises(ValueError, match=message):
            model.predict(frame.assign(**{name: values}))
    with pytest.raises(ValueError, match="X must be a data frame with the columns of training"):
        model.predict(np.zeros((2, 3)))


@pytest.mark.parametrize("kind", ["pandas", "polars", "Arrow", "objects"])
def test_a_function_of_the_date_is_learnt(kind):
    """Dates used to be one category each: R² of 0.002 where the same dates as numbers gave 0.999997."""
    frame, y = DATES[kind](), np.sin(DAYS / 300)
    fresh = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "Arrow": pa.table, "objects": pd.DataFrame}[kind]
    model = VPBoostRegressor(**PLAIN).fit(frame, y)
    assert model.kinds_ == ["datetime"]
    between = fresh({"d": NUMPY + np.timedelta64(12, "h")})
    truth = np.sin((DAYS + 0.5) / 300)
    assert model.score(between, truth) > 0.999


def test_numpy_dates_and_lists_of_columns():
    y = np.sin(DAYS / 300)
    model = VPBoostRegressor(**PLAIN).fit(NUMPY[:, None].astype("datetime64[s]"), y)
    np.testing.assert_allclose(model.predict(NUMPY[:, None]), model.predict(NUMPY[:, None].astype("datetime64[ns]")))
    assert model.score(NUMPY[:, None], y) > 0.999


def test_cycles_are_those_that_the_data_show():
    hour, day = 3600.0, 86_400.0
    hourly = Cycles.fit(np.arange(0, 30 * day, hour), mean=15 * day, scale=5 * day)
    assert len(hourly.frequencies) == 2  # day and week, no year
    daily = Cycles.fit(np.arange(0, 700 * day, day), mean=350 * day, scale=200 * day)
    assert len(daily.frequencies) == 2  # week and year: all are at midnight
    times = np.array([0.0, 100 * day + 5 * hour])
    values = (times - 15 * day) / (5 * day)
    angles = 2 * np.pi * times[:, None] / [day, 7 * day]
    np.testing.assert_allclose(hourly(values), np.concatenate([np.sin(angles), np.cos(angles)], axis=1), atol=1e-9)
    for j in range(4):
        numeric = [central_difference(lambda v, j=j: hourly(v)[0, j], np.array([v]), step=1e-6)[0] for v in values]
        np.testing.assert_allclose(hourly.slope(values)[:, j], numeric, rtol=1e-5, atol=1e-5)


def test_cycles_help_where_they_are_there(tmp_path):
    rng = np.random.default_rng(0)
    hours = rng.integers(0, 24 * 365, 1200)
    when = np.datetime64("2023-01-01T00", "h") + hours.astype("timedelta64[h]")
    y = np.sin(2 * np.pi * hours / 24) + 0.5 * (hours // 24 % 7 >= 5)
    frame = pd.DataFrame({"when": when, "noise": rng.normal(size=1200)})
    model = VPBoostRegressor(**PLAIN, dtype="float64").fit(frame[:900], y[:900])
    assert model.score(frame[900:], y[900:]) > 0.9
    model.save_model(tmp_path / "m")
    again, alone = load_model(tmp_path / "m"), Predictor(tmp_path / "m")
    np.testing.assert_array_equal(again.predict(frame), model.predict(frame))
    assert again.kinds_ == model.kinds_ == ["datetime", "number"]
    np.testing.assert_allclose(alone.predict(frame), model.predict(frame), rtol=1e-9, atol=1e-9)
    gradient = model.input_gradient(frame[:5])[:, 0]  # per second
    later, earlier = (frame[:5].assign(when=frame["when"][:5] + pd.Timedelta(s, "s")) for s in (60, -60))
    np.testing.assert_allclose(gradient, (model.predict(later) - model.predict(earlier)) / 120, rtol=1e-3, atol=1e-9)


@pytest.mark.slow
@pytest.mark.long
def test_identifiers_are_refused_unless_meant():
    names = [f"customer {i}" for i in range(300)]
    frame = pd.DataFrame({"id": names, "x": DAYS})
    with pytest.raises(ValueError, match=r"column 'id' of X has 300 different texts in 300 rows, like an identifier"):
        VPBoostRegressor().fit(frame, DAYS)
    VPBoostRegressor(n_estimators=1).fit(frame.astype({"id": "category"}), DAYS)
    many = pd.DataFrame({"id": pd.Categorical([str(i) for i in range(10_001)])})
    with pytest.raises(ValueError, match="column 'id' of X has 10001 different values; at most 10000"):
        VPBoostRegressor().fit(many, np.arange(10_001.0))


def test_odd_tables():
    lazy = pl.DataFrame({"d": DAYS}).lazy()
    with pytest.raises(TypeError, match="X must be an array or a data frame, got LazyFrame: collect it first"):
        VPBoostRegressor().fit(lazy, DAYS)
    twice = pd.DataFrame(np.zeros((300, 2)), columns=["a", "a"])
    for frame in (twice, twice.astype(object), pa.Table.from_arrays([pa.array(DAYS)] * 2, ["a", "a"])):
        with pytest.raises(ValueError, match="X has more than one column 'a'; rename them"):
            VPBoostRegressor().fit(frame, DAYS)
    with pytest.raises(ValueError, match="0 sample"):
        VPBoostRegressor().fit(pa.table({"a": pa.array([], pa.float64())}), [])


def test_arrow_tables_are_tables(tmp_path):
    text = pa.array(["a", "b", None] * 100)
    table = pa.table({"n": DAYS, "c": text, "k": text.dictionary_encode(), "flag": pa.array([True, None, False] * 100)})
    y = DAYS / 2000 + np.array([0, 1, 2] * 100)
    assert is_frame(table)
    assert names_of(table) == ["n", "c", "k", "flag"]
    model = VPBoostRegressor(**PLAIN).fit(table, pa.chunked_array([y]))
    assert model.kinds_ == ["number", "category", "category", "number"]
    assert model.score(table, y) > 0.99
    np.testing.assert_allclose(model.predict(table.to_pandas()), model.predict(table))
    pair = VPBoostRegressor(**PLAIN).fit(table, pa.table({"p": y, "q": -y}))
    assert pair.target_names_ == ["p", "q"]
    assert pair.predict(table).shape == (300, 2)
    numbers = VPBoostRegressor(**PLAIN).fit(table.select(["n"]), y)
    np.testing.assert_array_equal(numbers.predict(pd.DataFrame({"n": DAYS})), numbers.predict(table.select(["n"])))


def test_seconds():
    assert seconds(datetime.time(1, 2, 3, 500_000)) == 3723.5
    assert seconds(np.timedelta64(1500, "ms")) == 1.5
    assert seconds(datetime.date(1970, 1, 2)) == 86_400
    assert np.isnan(seconds(None))


def test_encoders_know_the_kinds_of_columns():
    table = read_table(DATES["pandas"]())
    encoder = InputEncoder("spline").fit(table, np.ones(300))
    assert encoder.kinds() == ["datetime"]
    assert set(encoder.sources_) == {0}


@pytest.mark.slow
@pytest.mark.long
def test_large_frames_are_fitted(monkeypatch):
    """Above so many rows arrays are not copied; tables of several kinds always are."""
    for module in ("tables.encoder", "tables.rows", "estimators.parts"):
        monkeypatch.setattr(f"vpboost.{module}.MANY_ROWS", 100)
    frame = pd.DataFrame({"d": NUMPY, "c": ["a", "b", "c"] * 100})
    for options in (PLAIN, {"n_estimators": 2}):
        model = VPBoostRegressor(**options).fit(frame, DAYS)
        assert np.isfinite(model.predict(frame)).all()


def test_rare_levels_of_large_frames_are_learnt(monkeypatch):
    monkeypatch.setattr("vpboost.tables.encoder.MANY_ROWS", 10)
    levels, numbers = np.array(["common"] * 300, dtype=object), np.arange(300.0)
    for row in range(0, 300, 30):
        levels[row], numbers[row + 1] = f"rare {row}", np.nan
    table = read_table(pd.DataFrame({"c": levels, "n": numbers}))
    encoder = InputEncoder().fit(table, np.ones(300))
    assert len(encoder.categories_[0].levels) == 11
    assert encoder.missing_.tolist() == [0]


def test_levels_of_one_row_in_thousands_are_as_if_unseen():
    levels = np.array(["common", "other"] * 1500, dtype=object)
    levels[:2], levels[2:5] = "twice", "thrice"
    frame = pd.DataFrame({"c": levels, "n": np.arange(3000.0)})
    encoder = InputEncoder().fit(read_table(frame), np.ones(3000))
    assert encoder.categories_[0].levels == ("common", "other", "thrice")
    encoded = encoder.transform(read_table(frame))
    assert encoded[:, 1:].sum(axis=1).tolist() == [0, 0] + [1] * 2998
    weighed = InputEncoder().fit(read_table(frame), np.where(levels == "twice", 9.0, 1.0))
    assert "twice" in weighed.categories_[0].levels
    few = InputEncoder().fit(read_table(frame[:2000]), np.ones(2000))
    assert few.categories_[0].levels == ("common", "other", "thrice", "twice")


def test_equal_rows_of_a_level_are_not_rare():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"g": rng.choice(["a", "b"], 3000), "x": rng.normal(size=3000)})
    frame.loc[:299, ["g", "x"]] = "special", 0.0
    y = np.where(frame["g"] == "special", 5.0, frame["x"])
    model = VPBoostRegressor(**PLAIN | {"n_estimators": 5, "learning_rate": 0.5}).fit(frame, y)
    assert model.input_encoder_.categories_[0].levels == ("a", "b", "special")
    assert abs(model.predict(frame[:1])[0] - 5) < 0.5


def test_a_column_whose_levels_are_all_rare_keeps_them():
    frame = pd.DataFrame({"id": pd.Categorical([f"u{i}" for i in range(2100)])})
    model = VPBoostRegressor(**PLAIN | {"n_estimators": 1}).fit(frame, np.arange(2100.0))
    assert len(model.input_encoder_.categories_[0].levels) > 1000


@pytest.mark.parametrize(
    "levels",
    [
        [pd.Timedelta(days=12, seconds=j) for j in range(4)],
        [pd.Timedelta(hours=3, milliseconds=10 * j) for j in range(4)],
        [text.encode("latin-1") for text in "éèêü"],
    ],
)
def test_categories_that_differ_stay_apart(levels):
    column = pd.Series([levels[j % 4] for j in range(300)])
    table = read_table(pd.DataFrame({"g": pd.Categorical(column)}))
    assert len(set(table.texts[0])) == 4
    if isinstance(levels[0], bytes):
        assert level_name(b"caf\xc3\xa9") == "café"
    else:
        assert level_name(pd.Timedelta(hours=1)) == "3600 s"


def test_dates_where_numbers_were_and_missing_ones():
    numbers = VPBoostRegressor(**PLAIN).fit(pd.DataFrame({"d": DAYS}), DAYS)
    for other in (pd.DataFrame({"d": NUMPY}), pa.table({"d": NUMPY})):
        with pytest.raises(ValueError, match="was numeric in training, got values of type datetime64"):
            numbers.predict(other)
    with pytest.raises(ValueError, match="column 0 was numeric in training, got values of type datetime64"):
        VPBoostRegressor(**PLAIN).fit(DAYS[:, None], DAYS).predict(NUMPY[:, None])
    dates = VPBoostRegressor(**PLAIN).fit(pd.DataFrame({"d": NUMPY}), DAYS)
    missing = [dates.predict(pd.DataFrame({"d": [value]})) for value in (None, np.nan, pd.NaT)]
    np.testing.assert_array_equal(missing, missing[:1] * 3)
    decimals = pd.DataFrame({"d": pd.Series([decimal.Decimal(1), pd.NA, decimal.Decimal(3)] * 100, dtype=object)})
    model = VPBoostRegressor(**PLAIN).fit(decimals, DAYS)
    assert np.isfinite(model.predict(decimals)).all()


def test_arrays_of_dates_alone(tmp_path):
    model = VPBoostRegressor(**PLAIN, dtype="float64").fit(NUMPY[:, None], np.sin(DAYS / 300))
    assert model.kinds_ == ["datetime"]
    model.save_model(tmp_path / "m")
    np.testing.assert_array_equal(load_model(tmp_path / "m").predict(NUMPY[:, None]), model.predict(NUMPY[:, None]))
    for unit in ("s", "ns"):
        times = NUMPY[:, None].astype(f"datetime64[{unit}]")
        np.testing.assert_allclose(Predictor(tmp_path / "m").predict(times), model.predict(times), atol=1e-9)


def test_masked_arrays():
    table, y = np.random.default_rng(0).normal(size=(300, 2)), DAYS / 2000
    mask = np.zeros((300, 2), bool)
    mask[::3, 0] = True
    missing = np.where(mask, np.nan, table)
    masked = np.ma.masked_array(table, mask)
    expected = VPBoostRegressor(**PLAIN).fit(missing, y).predict(missing)
    np.testing.assert_array_equal(VPBoostRegressor(**PLAIN).fit(masked, y).predict(masked), expected)
    times = np.ma.masked_array(NUMPY[:, None], np.arange(300)[:, None] % 7 == 0)
    dates = VPBoostRegressor(**PLAIN).fit(times, y)
    np.testing.assert_array_equal(dates.predict(times.astype("datetime64[s]")), dates.predict(times))
    assert dates.kinds_ == ["datetime"]
    hidden = np.ma.masked_array(y, mask[:, 0])
    for given in ({"y": hidden}, {"y": y, "sample_weight": np.ma.masked_array(np.ones(300), mask[:, 0])}):
        with pytest.raises(ValueError, match="has masked values; leave these rows out"):
            VPBoostRegressor(**PLAIN).fit(table, **given)


def test_tables_of_every_make():
    """Each used to end in a deep error, or to be read by position."""
    plain = {"a": DAYS.astype(float), "c": ["u", "v", None] * 100}
    frame = pd.DataFrame(plain)
    expected = VPBoostRegressor(**PLAIN).fit(frame, DAYS).predict(frame)
    batch = pa.record_batch(plain)
    model = VPBoostRegressor(**PLAIN).fit(batch, DAYS)
    np.testing.assert_array_equal(model.predict(batch), expected)
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(batch.select(["c", "a"]))
    sparse = pd.DataFrame({"a": pd.arrays.SparseArray(np.where(DAYS > 1000, DAYS, np.nan))})
    dense = pd.DataFrame({"a": np.where(DAYS > 1000, DAYS, np.nan)})
    found = VPBoostRegressor(**PLAIN).fit(sparse, DAYS).predict(sparse)
    np.testing.assert_array_equal(found, VPBoostRegressor(**PLAIN).fit(dense, DAYS).predict(dense))
    dates = pd.DataFrame({"d": pd.Series([m.date() for m in MOMENTS], dtype="date32[pyarrow]")})
    assert VPBoostRegressor(**PLAIN).fit(dates, np.sin(DAYS / 300)).score(dates, np.sin(DAYS / 300)) > 0.99
    nothing = pd.DataFrame({"a": DAYS, "t": pd.Series([None] * 300, dtype="string")})
    model = VPBoostRegressor(**PLAIN).fit(nothing, DAYS)
    assert model.kinds_ == ["number", "category"]
    assert np.isfinite(model.predict(nothing.assign(t="new"))).all()
    nested = pl.DataFrame({"a": DAYS, "b": [[1.0, 2.0]] * 300}, schema_overrides={"b": pl.Array(pl.Float64, 2)})
    with pytest.raises(ValueError, match="column 'b' of X holds values of type"):
        VPBoostRegressor(**PLAIN).fit(nested, DAYS)
    with pytest.raises(ValueError, match="X has no columns"):
        VPBoostRegressor(**PLAIN).fit(pd.DataFrame(index=range(300)), DAYS)


@pytest.mark.parametrize("make", [pl.Series, pa.array, lambda v: pd.Series(v, dtype=object)])
def test_targets_that_are_decimals(make):
    y = [decimal.Decimal(int(day)) for day in DAYS]
    model = VPBoostRegressor(**PLAIN).fit(DAYS[:, None], make(y))
    np.testing.assert_array_equal(
        model.predict([[5]]), VPBoostRegressor(**PLAIN).fit(DAYS[:, None], DAYS).predict([[5]])
    )


def test_levels_that_are_dates_are_the_same_in_every_type():
    days = [datetime.date(2020, 1, 1 + i % 3) for i in range(300)]
    as_dates = pd.DataFrame({"c": pd.Categorical(days)})
    model = VPBoostRegressor(**PLAIN).fit(as_dates, np.arange(300) % 3)
    for other in (pd.to_datetime(days), pd.to_datetime(days).tz_localize("UTC"), np.array(days, "datetime64[D]")):
        found = model.predict(pd.DataFrame({"c": pd.Categorical(other)}))
        np.testing.assert_array_equal(found, model.predict(as_dates))
    texts = read_table(pd.DataFrame({"c": ["NaT", "<NA>", None, "a"] * 75})).texts[0]
    assert set(texts) == {"NaT", "<NA>", "<missing>", "a"}


def test_labels_that_are_missing_or_mixed():
    from vpboost import VPBoostClassifier

    for labels, message in [
        (["a", "b", None] * 100, "y has missing labels; leave these rows out"),
        (["a", "b", pd.NA] * 100, "y has missing labels"),
        (["a", "b", 3] * 100, "y must have labels of one type, got int, str"),
    ]:
        with pytest.raises(ValueError, match=message):
            VPBoostClassifier().fit(DAYS[:, None], np.array(labels, dtype=object))


def test_levels_are_the_same_in_every_type():
    flags = np.arange(300) % 2 == 0
    model = VPBoostRegressor(**PLAIN).fit(pd.DataFrame({"c": pd.Categorical(flags)}), flags.astype(float))
    expected = model.predict(pd.DataFrame({"c": pd.Categorical(flags)}))
    for other in (pd.array(flags, dtype="boolean"), pd.array(flags, dtype="bool[pyarrow]"), flags):
        np.testing.assert_array_equal(model.predict(pd.DataFrame({"c": other})), expected)
    large = 2**60 + np.arange(300) % 3
    model = VPBoostRegressor(**PLAIN).fit(pd.DataFrame({"c": pd.Categorical(large)}), large % 7)
    expected = model.predict(pd.DataFrame({"c": pd.Categorical(large)}))
    for other in (pd.DataFrame({"c": pd.array(large, dtype="Int64")}), pl.DataFrame({"c": large})):
        np.testing.assert_array_equal(model.predict(other), expected)
    from vpboost import VPBoostClassifier

    labels = pd.array([5, 2**60, 2**60 + 1] * 100, dtype="Int64")
    assert VPBoostClassifier(n_estimators=1).fit(DAYS[:, None], labels).classes_.tolist() == [5, 2**60, 2**60 + 1]


def test_periods_by_the_predictor_alone(tmp_path):
    frame = pd.DataFrame({"p": pd.PeriodIndex(pd.to_datetime(NUMPY), freq="D"), "x": DAYS / 100})
    model = VPBoostRegressor(**PLAIN, dtype="float64").fit(frame, np.sin(DAYS / 300))
    model.save_model(tmp_path / "m")
    np.testing.assert_allclose(Predictor(tmp_path / "m").predict(frame), model.predict(frame), atol=1e-9)
    masked = np.ma.masked_array(np.random.default_rng(0).normal(size=(300, 2)), np.arange(600).reshape(300, 2) % 5 == 0)
    model = VPBoostRegressor(**PLAIN, dtype="float64").fit(masked, DAYS)
    model.save_model(tmp_path / "m")
    np.testing.assert_allclose(Predictor(tmp_path / "m").predict(masked), model.predict(masked), rtol=1e-9)
