import pickle

import numpy as np
import pandas as pd
import pytest

from vpboost import VPBoostClassifier, VPBoostRegressor, load_model
from vpboost.core.data import prepare
from vpboost.estimators import base, choosing, parts
from vpboost.estimators.portfolio import profiles
from vpboost.losses import SquaredError
from vpboost.numerics.blocks import Layout
from vpboost.numerics.rows import Rows, chunks
from vpboost.predictor import Predictor
from vpboost.tables import encoder
from vpboost.tables import rows as table_rows
from vpboost.tables.streams import read_stream

QUICK = {"n_estimators": 3, "max_steps": 10, "width": 4}


def table(n=500, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3)).astype(np.float32)
    return X, X[:, 0] ** 2 - X[:, 1]


@pytest.fixture
def little_is_much(monkeypatch):
    """Treat tables of more than 100 rows as too large to copy, and let few of them race."""
    for module in (encoder, table_rows, parts, base):
        monkeypatch.setattr(module, "MANY_ROWS", 100)
    monkeypatch.setattr(parts, "MOST_SORTED", 50)


def test_rows_are_fetched_when_asked_for():
    X, _ = table(20)
    rows = Rows(X, np.array([4, 2, 9]), encode=lambda part: np.hstack([part, part]))
    assert rows.shape == (3, 6)
    assert rows.ndim == 2
    np.testing.assert_array_equal(rows[1:], np.hstack([X[[2, 9]]] * 2))
    np.testing.assert_array_equal(rows[np.array([2, 0])], np.hstack([X[[9, 4]]] * 2))
    np.testing.assert_array_equal(np.concatenate(list(chunks(X, 7))), X)


def test_blocks_of_a_source_are_those_of_its_array(tmp_path):
    X, y = table(70)
    on_disk = np.memmap(tmp_path / "x.bin", np.float32, "w+", shape=X.shape)
    on_disk[:] = X
    for source in (on_disk, Rows(X)):
        found, expected = (prepare(x, y, SquaredError(), batch_size=20, seed=3) for x in (source, X))
        np.testing.assert_array_equal(found.x, expected.x)
    shuffled = np.moveaxis(np.asarray(expected.x), 1, 2).reshape(-1, 3)[:70]
    assert {tuple(row) for row in shuffled} == {tuple(row) for row in X}, "every row, in another order"
    assert np.any(shuffled != X)
    np.testing.assert_array_equal(np.asarray(expected.sample(70)), shuffled)
    with pytest.raises(ValueError, match="x has values too large"):
        prepare(Rows(np.where(X > 2, np.inf, X)), y, SquaredError())


def test_arrays_for_jax_are_aligned():
    blocks = Layout.for_rows(70, 32).split_inputs(table(70)[0], np.float32)
    assert blocks.ctypes.data % 64 == 0


@pytest.mark.parametrize("estimator", [VPBoostRegressor, VPBoostClassifier])
def test_large_tables_are_fitted_and_predicted_in_parts(little_is_much, monkeypatch, estimator):
    X, y = table()
    X[::50, 2] = np.nan
    target = y if estimator is VPBoostRegressor else (y > 0).astype(int)
    monkeypatch.setattr(choosing, "RACE_ROWS", ((200, 60), (200, 60)))
    model = estimator(**QUICK, learning_rate=0.5).fit(X, target)
    assert {p._replace(max_steps=10, learning_rate=0.5) for p in profiles(model, X.shape)} <= set(model.race_)
    assert model.score(X, target) > 0.5
    few = np.concatenate([model.predict(X[i : i + 100]) for i in range(0, 500, 100)])
    np.testing.assert_allclose(model.predict(X), few, rtol=1e-4, atol=1e-4)


def test_a_large_table_gives_the_model_of_a_small_one(little_is_much, monkeypatch):
    """What differs is only that the encoder sees a sample: here, every row."""
    X, y = table()
    options = {**QUICK, "encoding": "quantile", "inherit": 0.0, "max_features": 1.0}
    monkeypatch.setattr(encoder, "random_rows", lambda n, about: np.arange(n))
    in_parts = VPBoostRegressor(**options).fit(X, y)
    halves = VPBoostRegressor(**{**options, "n_estimators": 1}, warm_start=True).fit(X, y)
    np.testing.assert_array_equal(halves.set_params(n_estimators=3).fit(X, y).predict(X), in_parts.predict(X))
    for module in (encoder, table_rows, parts, base):
        monkeypatch.setattr(module, "MANY_ROWS", 10**6)
    np.testing.assert_allclose(in_parts.predict(X), VPBoostRegressor(**options).fit(X, y).predict(X), rtol=1e-5)


def test_few_weighted_rows_of_a_large_table_are_all_used(little_is_much):
    X, y = table()
    weight = np.zeros(500)
    weight[1::20] = 1.0
    rows, weight, _ = parts.canonical_rows(X, y[:, None], weight)
    assert len(rows) == len(weight) == 25


@pytest.mark.slow
@pytest.mark.long
def test_files_and_iterators_are_tables(tmp_path):
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")

    X, y = table(300)
    expected = VPBoostRegressor(**QUICK).fit(X, y).predict(X)
    content = pa.table({**{f"x{j}": X[:, j] for j in range(3)}, "target": y})
    parquet.write_table(content, tmp_path / "t.parquet", row_group_size=77)
    with pa.OSFile(str(tmp_path / "t.arrow"), "wb") as sink, pa.ipc.new_file(sink, content.schema) as writer:
        writer.write_table(content, max_chunksize=100)
    for name in ("t.parquet", "t.arrow"):
        found = VPBoostRegressor(**QUICK).fit(str(tmp_path / name), "target")
        np.testing.assert_array_equal(found.predict(X), expected)
    held_out = {"X_val": tmp_path / "t.parquet", "y_val": "target"}
    assert VPBoostRegressor(**QUICK).fit(X, y, **held_out).best_iteration_ == 3
    with pytest.raises(TypeError, match="X must be an array or a data frame, got str; read it first"):
        found.predict("t.parquet")
    batches = ((X[i : i + 64], y[i : i + 64]) for i in range(0, 300, 64))
    np.testing.assert_array_equal(VPBoostRegressor(**QUICK).fit(batches, None).predict(X), expected)
    inputs, targets, names = read_stream(tmp_path / "t.parquet", ["target", "x2"])
    assert names == ["x0", "x1"]
    assert inputs.shape == (300, 2)
    np.testing.assert_array_equal(targets, np.stack([y, X[:, 2]], axis=1))


def test_bad_streams_get_clear_errors(tmp_path):
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")

    parquet.write_table(pa.table({"a": [1.0, 2.0], "word": ["x", "y"]}), tmp_path / "t.parquet")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 nothing")
    X, y = table(10)
    for given, target, message in [
        (tmp_path / "t.parquet", "b", "y='b' is not a column of .*; it has 'a', 'word'"),
        (tmp_path / "t.parquet", None, "y must name the target column"),
        (tmp_path / "t.parquet", "a", "column 'word' of .* is not numeric"),
        (tmp_path / "t.parquet", ["a", "word"], "has no columns besides the target"),
        (tmp_path / "broken.parquet", "a", "is not a Parquet or Arrow file"),
        (iter([]), None, "X has no rows"),
        (iter([X]), None, "must yield pairs"),
        (iter([(X, y[:3])]), None, r"as many rows as its y, got shapes \(10, 3\) and \(3,\)"),
        (iter([(X, y), (X[:, :2], y)]), None, r"rows of one shape, got \(3,\) and \(2,\)"),
        (iter([(X, y)]), y, "y must be None when X is an iterator"),
    ]:
        with pytest.raises(ValueError, match=message):
            read_stream(given, target)
    with pytest.raises(FileNotFoundError, match="there is no such file"):
        VPBoostRegressor().fit("nowhere.parquet", "y")


def test_validation_files_are_read_by_name(tmp_path):
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")

    X, y = table(300)
    content = pa.table({**{f"x{j}": X[:, j] for j in range(3)}, "target": y})
    parquet.write_table(content, tmp_path / "t.parquet")
    parquet.write_table(content.select(["x2", "target", "x0", "x1"]), tmp_path / "turned.parquet")
    parquet.write_table(content.select(["x2", "target", "x0"]), tmp_path / "less.parquet")
    fits = [
        VPBoostRegressor(**QUICK).fit(tmp_path / "t.parquet", "target", X_val=tmp_path / name, y_val="target")
        for name in ("t.parquet", "turned.parquet")
    ]
    assert fits[0].evals_result_ == fits[1].evals_result_
    with pytest.raises(ValueError, match="input 'x1' is not a column of"):
        VPBoostRegressor(**QUICK).fit(tmp_path / "t.parquet", "target", X_val=tmp_path / "less.parquet", y_val="target")


@pytest.mark.parametrize("kind", ["datetime64[s]", "complex128", "U3"])
def test_batches_must_be_numbers(kind):
    batch = np.zeros((50, 2)).astype(kind)
    with pytest.raises(ValueError, match="each batch of X must hold numbers, got values of type"):
        VPBoostRegressor(**QUICK).fit(iter([(batch, np.arange(50.0))]), None)


def test_iterators_may_use_their_memory_again():
    X, y = table(300)
    expected = VPBoostRegressor(**QUICK).fit(X, y).predict(X)

    def batches():
        rows, target = np.empty((50, 3)), np.empty(50)
        for i in range(0, 300, 50):
            rows[:], target[:] = X[i : i + 50], y[i : i + 50]
            yield rows, target

    np.testing.assert_array_equal(VPBoostRegressor(**QUICK).fit(batches(), None).predict(X), expected)
    masked = np.ma.masked_array(y, np.arange(300) == 3)
    with pytest.raises(ValueError, match="must have no masked values"):
        VPBoostRegressor(**QUICK).fit(iter([(X, masked)]), None)


@pytest.mark.filterwarnings("ignore:X has feature names")
def test_columns_of_a_file_are_known_by_name(tmp_path):
    pd, pa = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")

    X, y = table(300)
    content = pa.table({**{f"x{j}": X[:, j] for j in range(3)}, "target": y, "__index_level_0__": y})
    parquet.write_table(content, tmp_path / "t.parquet")
    parquet.write_table(content.select(["x2", "target", "x0", "x1"]), tmp_path / "turned.parquet")
    model = VPBoostRegressor(**QUICK, warm_start=True).fit(tmp_path / "t.parquet", "target")
    assert model.n_features_in_ == 3
    frame = pd.DataFrame({f"x{j}": X[:, j].astype("float32") for j in (2, 0, 1)})
    np.testing.assert_array_equal(model.predict(frame), model.predict(X.astype("float32")))
    with pytest.raises(ValueError, match="X must have the columns of the file"):
        model.predict(frame.rename(columns={"x0": "z"}))
    straight = VPBoostRegressor(**{**QUICK, "n_estimators": 5}).fit(tmp_path / "t.parquet", "target").predict(X)
    model.set_params(n_estimators=5).fit(tmp_path / "turned.parquet", "target")
    np.testing.assert_array_equal(model.predict(X), straight)


@pytest.mark.parametrize("again", ["load", "pickle"])
def test_models_of_files_know_their_columns_again(tmp_path, again):
    X, y = table(150)
    frame = pd.DataFrame(X, columns=list("abc")).assign(t=y)
    frame[["b", "t", "c", "a"]].to_parquet(tmp_path / "1.parquet")
    frame.to_parquet(tmp_path / "2.parquet")
    model = VPBoostRegressor(**QUICK, warm_start=True, early_stopping_rounds=None).fit(tmp_path / "1.parquet", "t")
    model.save_model(tmp_path / "model")
    other = load_model(tmp_path / "model") if again == "load" else pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(other.predict(frame[["a", "b", "c"]]), model.predict(frame[["c", "b", "a"]]))
    plain = Predictor(tmp_path / "model").predict(frame[["a", "b", "c"]])
    np.testing.assert_allclose(plain, model.predict(frame[["a", "b", "c"]]), rtol=1e-6)
    longer = [one.set_params(n_estimators=5).fit(tmp_path / "2.parquet", "t") for one in (other, model)]
    np.testing.assert_array_equal(*(one.predict(frame[["a", "b", "c"]]) for one in longer))


def test_batches_must_be_alike():
    X, y = table(40)
    frame = pd.DataFrame(X, columns=list("abc"))
    for second in ((frame[["c", "a", "b"]], y), (frame, y.astype(str)), (frame.to_numpy(), y)):
        with pytest.raises(ValueError, match="batches must have columns and targets alike"):
            read_stream(iter([(frame, y), second]), None)
    assert read_stream(iter([(frame, y), (frame, y.astype(int))]), None)[0].shape == (80, 3)
