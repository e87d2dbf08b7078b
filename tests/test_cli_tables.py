"""Tables as they come: packed, from pipes, with odd texts, dates and types."""

import csv
import datetime
import decimal
import gzip
import io
import os
import re
import sys
import threading

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from test_cli import QUICK, fail, run, succeed
from vpboost import load_model

ROWS = "".join(f"{i},{i % 7}.5\n" for i in range(60))


def train(capsys, table, *more):
    """Train a small model on a table and return it."""
    output = table.with_name("m")
    succeed(capsys, "train", table, "--target", "y", "-o", output, "--quiet", *QUICK, *more)
    return load_model(output)


def write(path, text):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model of one column ``a``."""
    folder = tmp_path_factory.mktemp("model")
    assert run("train", write(folder / "t.csv", "a,y\n" + ROWS), "--target", "y", "-o", folder / "m", *QUICK) == 0
    return folder / "m"


def test_gzip(tmp_path, model, capsys, monkeypatch):
    plain = ("a\n" + "".join(f"{i}\n" for i in range(9))).encode()
    expected = succeed(capsys, "predict", model, write(tmp_path / "t.csv", plain))
    for name, content in {
        "t.csv.gz": gzip.compress(plain),
        "t.gz": gzip.compress(plain[:5]) + gzip.compress(plain[5:]),
        "t": gzip.compress(plain),
        "not-packed.csv.gz": plain,
    }.items():
        assert succeed(capsys, "predict", model, write(tmp_path / name, content)) == expected
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(gzip.compress(plain))))
    assert succeed(capsys, "predict", model, "-") == expected
    cut = write(tmp_path / "cut.csv.gz", gzip.compress(plain)[:-9])
    assert "cut.csv.gz is a damaged gzip file" in fail(capsys, "predict", model, cut)
    torn = bytearray(gzip.compress(plain))
    torn[12] ^= 255
    assert "damaged gzip file" in fail(capsys, "predict", model, write(tmp_path / "torn.gz", bytes(torn)))


def test_gzip_bombs_and_endless_streams(tmp_path, model, capsys, monkeypatch):
    import vpboost.cli.reading

    monkeypatch.setattr(vpboost.cli.reading, "free_memory", lambda: 30e6)
    bomb = write(tmp_path / "t.csv.gz", gzip.compress(b"a\n" + b"1\n" * 20_000_000))
    assert bomb.stat().st_size < 100_000
    assert "t.csv.gz needs about 0.0 GB of memory or more" in fail(capsys, "predict", model, bomb)
    assert "/dev/zero needs about" in fail(capsys, "predict", model, "/dev/zero")
    table = pa.table({"a": pa.array(np.zeros(5_000_000))})
    pq.write_table(table, tmp_path / "t.parquet")
    assert (tmp_path / "t.parquet").stat().st_size < 1_000_000
    assert "t.parquet needs about 0.1 GB" in fail(capsys, "predict", model, tmp_path / "t.parquet")


def test_pipes_are_read_once(tmp_path, model, capsys):
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_text, args=("a\n1\n2\n",))
    writer.start()
    assert len(succeed(capsys, "predict", model, tmp_path / "pipe").splitlines()) == 3
    writer.join()


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("a,y\r" + ROWS.replace("\n", "\r"), ["a"]),
        ("\ufeffa,y\n" + ROWS, ["a"]),
        ('\ufeff"a","y"\n' + ROWS, ["a"]),
        ('"two\nlines",y\n' + ROWS, ["two\nlines"]),
        ("a\ty\n" + ROWS.replace(",", "\t"), ["a"]),
    ],
)
def test_headers(tmp_path, capsys, text, columns):
    assert list(train(capsys, write(tmp_path / "t.csv", text)).feature_names_in_) == columns


def test_long_fields_and_lines(tmp_path, capsys):
    texts = ["x" * 200_000, "short"]
    rows = "".join(f"{texts[i % 2]},{i % 7}.5\n" for i in range(60))
    assert train(capsys, write(tmp_path / "t.csv", "a,y\n" + rows)).input_encoder_.categories_[0].levels[0] == "short"
    assert csv.field_size_limit() == 131_072
    name = "n" * 200_000
    assert train(capsys, write(tmp_path / "t.csv", f"{name},y\n" + ROWS)).feature_names_in_[0] == name
    endless = write(tmp_path / "t.csv", b"a,y" * 2_000_000)
    assert "no line break in its first 4 MB" in fail(capsys, "train", endless, "--target", "y")
    open_quote = write(tmp_path / "t.csv", b'"a,y\n' + ROWS.encode() * 20_000)
    assert "cannot be read as a table" in fail(capsys, "train", open_quote, "--target", "y")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"a,y\n1,2\n" + b"\0" * 10 + b",3\n", "not a text file"),
        (b"a,y\n" + b"1,2\n" * 1_100_000 + b"\0,3\n", "line 1100002 has a NUL character"),
        ("a,y\n1,2\n3\udc80".encode("utf-8", "surrogateescape"), "not UTF-8"),
        ("a,y\n1,2\n".encode("utf-16"), "not a text file|not UTF-8"),
        ("a,\ny,1\n", "no column 'y'"),
        (",\n1,2\n", "no column 'y'"),
    ],
)
def test_more_bad_tables(tmp_path, capsys, text, message):
    printed = fail(capsys, "train", write(tmp_path / "t.csv", text), "--target", "y", "-o", tmp_path / "m")
    assert re.search(message, printed), printed


def inputs(monkeypatch, *arguments):
    """Run a command that ends where the estimator is given its inputs, and return them."""
    from vpboost import VPBoostRegressor

    class Given(Exception):
        pass

    def fit(self, X, *_, **__):
        raise Given(X)

    monkeypatch.setattr(VPBoostRegressor, "fit", fit)
    with pytest.raises(Given) as given:
        run("train", "--traceback", *arguments)
    return given.value.args[0]


def test_iso_dates_are_dates(tmp_path, monkeypatch):
    day = pd.date_range("2024-03-01", periods=240, freq="7h").to_series(index=range(240))
    frame = pd.DataFrame(
        {
            "day": day.dt.strftime("%Y-%m-%d"),
            "spaced": day.dt.strftime("%Y-%m-%d %H:%M:%S"),
            "minute": day.dt.strftime("%Y-%m-%dT%H:%M"),
            "zulu": day.dt.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "east": day.dt.strftime("%Y-%m-%dT%H:%M:%S.500+02:00"),
            "far": ["9999-12-31", "1900-01-01"] * 120,
            "label": day.dt.strftime("%Y-%m-%d"),
            "month": day.dt.strftime("%Y-%m"),
            "y": np.arange(240.0),
        }
    )
    frame.loc[3, ["day", "zulu"]] = None
    frame.to_csv(tmp_path / "t.csv", index=False)
    X = inputs(monkeypatch, tmp_path / "t.csv", "--target", "y", "--categorical", "label")
    assert [X[name].dtype.kind for name in X] == list("MMMMMMOO")
    assert pd.isna(X["day"][3])
    np.testing.assert_array_equal(X["spaced"], day)
    np.testing.assert_array_equal(X["zulu"].drop(3), day.drop(3))
    np.testing.assert_array_equal(X["east"], day - pd.Timedelta("1h59min59.5s"))
    assert X["far"].dt.year.unique().tolist() == [9999, 1900]
    assert X["label"][0] == "2024-03-01"


def test_times_of_parquet_files_stay(tmp_path, monkeypatch):
    day = pd.date_range("2024-03-01", periods=60)
    frame = pd.DataFrame({"day": day, "zoned": day.tz_localize("UTC"), "wait": day - day[0], "date": day.date})
    frame.assign(y=np.arange(60.0)).to_parquet(tmp_path / "t.parquet")
    X = inputs(monkeypatch, tmp_path / "t.parquet", "--target", "y")
    assert [X[name].dtype.kind for name in X] == list("MMmM")


def test_dates_that_are_not(tmp_path, capsys):
    def complaint(values, *more):
        table = write(tmp_path / "t.csv", "a,y\n" + "".join(f"{v},{i}.5\n" for i, v in enumerate(values)))
        return fail(capsys, "train", table, "--target", "y", "-o", tmp_path / "m", *more)

    days = [f"2024-03-{1 + i % 28:02d}" for i in range(60)]
    assert "'a' holds dates, but 1 of 60 values are not, the first 'soon' in row 8" in complaint(
        [*days[:7], "soon", *days[8:]]
    )
    assert "first '2024-02-30' in row 60; mend or empty them, or read them all as categories" in complaint(
        [*days[:59], "2024-02-30"]
    )
    slashed = [f"{1 + i % 12:02d}/{1 + i % 28:02d}/{1900 + i}" for i in range(300)]
    assert "like dates ('01/01/1900'); write dates as 2024-03-01" in complaint(slashed)
    table = write(tmp_path / "t.csv", "a,y\n" + "".join(f"{i},{day}\n" for i, day in enumerate(days)))
    printed = fail(capsys, "train", table, "--target", "y", "--task", "regression", "-o", tmp_path / "m")
    assert "target 'y' holds dates; a regression needs numbers" in printed


def test_known_times():
    """Prediction reads columns in the kinds of training."""
    from vpboost.cli.errors import CommandError
    from vpboost.cli.tables import known_inputs

    def read(values, kind):
        return known_inputs(pd.DataFrame({"a": values}), [kind], "new.csv")["a"]

    day = np.datetime64("2024-03-01T12:30")
    assert read(["2024-03-01 12:30", None], "datetime")[0] == day
    assert read(pd.to_datetime(["2024-03-01 12:30"]), "datetime")[0] == day
    assert read([np.nan, np.nan], "datetime").dtype.kind == "M"
    assert read(["1 days 02:00:00", None], "timedelta")[0] == pd.Timedelta("26h")
    assert read(pd.to_timedelta(["26h"]), "timedelta")[0] == pd.Timedelta("26h")
    assert read([np.nan], "timedelta").dtype.kind == "m"
    message = (
        "column 'a' of new.csv holds dates, but 1 of 2 values are not, the first 'x' in row 2; .* 2024-03-01 12:30"
    )
    with pytest.raises(CommandError, match=message):
        read(["2024-03-01", "x"], "datetime")
    for values in ([3], pd.to_timedelta(["26h"])):
        with pytest.raises(CommandError, match="holds dates, but 1 of 1 values are not"):
            read(values, "datetime")
    with pytest.raises(CommandError, match="holds lengths of time, but 1 of 1"):
        read(["x"], "timedelta")
    with pytest.raises(CommandError, match="holds dates; the model was trained on numbers"):
        read(pd.to_datetime(["2024-03-01"]), "number")


def test_dates_from_training_to_prediction(tmp_path, capsys):
    days = pd.date_range("2020-01-01", periods=260).strftime("%Y-%m-%d")
    table = pd.DataFrame({"day": days, "y": np.sin(np.arange(260) / 20)})
    table.to_csv(tmp_path / "t.csv", index=False)
    assert train(capsys, tmp_path / "t.csv").input_encoder_.times_ == {0: "datetime"}
    table.iloc[:5].assign(day=pd.to_datetime(days[:5])).to_parquet(tmp_path / "new.parquet")
    table.iloc[:5].to_csv(tmp_path / "new.csv", index=False)
    first = succeed(capsys, "predict", tmp_path / "m", tmp_path / "new.csv")
    assert len(first.splitlines()) == 6
    assert succeed(capsys, "predict", tmp_path / "m", tmp_path / "new.parquet") == first


@pytest.mark.filterwarnings("default:none of the values")
def test_validation_tables_have_the_kinds_of_training(tmp_path, capsys):
    """A small one may have an empty column, or one that looks like something else."""
    table = write(tmp_path / "t.csv", "a,k,y\n" + "".join(f"{i},{'uv'[i % 2]},{i % 7}.5\n" for i in range(60)))
    small = write(tmp_path / "v.csv", "a,k,y\n,1,2.5\n,2,3.5\n")
    train(capsys, table, "--validation", small)
    wrong = write(tmp_path / "w.csv", "a,k,y\nx,u,2.5\n")
    command = ["train", table, "--target", "y", "-o", tmp_path / "m", *QUICK, "--validation", wrong]
    assert "column 'a' of" in fail(capsys, *command)


def test_numbers_of_other_types(tmp_path, monkeypatch, capsys):
    table = write(tmp_path / "t.csv", "a,y\n" + "".join(f"{10**25 + i},{i}.5\n" for i in range(60)))
    assert inputs(monkeypatch, table, "--target", "y")["a"].dtype == float
    huge = write(tmp_path / "h.csv", f"a,y\n{'9' * 400},1.5\n" + ROWS)
    assert "too large" in fail(capsys, "train", huge, "--target", "y", "-o", tmp_path / "m")
    numbers = [decimal.Decimal(i) / 4 for i in range(60)]
    frame = pd.DataFrame({"a": numbers, "y": numbers, "w": numbers})
    frame.to_parquet(tmp_path / "t.parquet")
    X = inputs(monkeypatch, tmp_path / "t.parquet", "--target", "y", "--weight", "w")
    assert X["a"].to_list() == [i / 4 for i in range(60)]


def test_long_numbers_keep_their_digits(tmp_path, model, capsys):
    """Identifiers are kept beside predictions as they are."""
    table = write(tmp_path / "t.csv", f"id,a\n{10**25 + 1},1\n{10**25 + 2},2\n")
    assert f"\n{10**25 + 1},1," in succeed(capsys, "predict", model, table, "--keep")


def test_odd_parquet_files(tmp_path, capsys):
    y = [i / 2 for i in range(60)]
    for values in ([[1, 2]] * 60, [{"p": 1, "q": None}] * 60):
        pq.write_table(pa.table({"a": values, "y": y}), tmp_path / "t.parquet")
        printed = fail(capsys, "train", tmp_path / "t.parquet", "--target", "y", "-o", tmp_path / "m")
        assert "column 'a' holds lists or structures" in printed
    double = pa.Table.from_arrays([pa.array(y), pa.array(y), pa.array(y)], names=["a", "a", "y"])
    pq.write_table(double, tmp_path / "t.parquet")
    assert "more than one column 'a'" in fail(capsys, "train", tmp_path / "t.parquet", "--target", "y")
    pq.write_table(pa.table({}), tmp_path / "t.parquet")
    assert "has no columns" in fail(capsys, "train", tmp_path / "t.parquet", "--target", "y")
    pq.write_table(pa.table({" a": y, "a ": y, "y": y}), tmp_path / "t.parquet")
    assert "more than one column 'a'" in fail(capsys, "train", tmp_path / "t.parquet", "--target", "y")
    pq.write_table(pa.table({"a": [datetime.time(i % 24) for i in range(60)], "y": y}), tmp_path / "t.parquet")
    model = train(capsys, tmp_path / "t.parquet")
    assert model.input_encoder_.times_ == {0: "timedelta"}
    model.save_model(tmp_path / "m")
    succeed(capsys, "predict", tmp_path / "m", tmp_path / "t.parquet", "-o", tmp_path / "p.csv")


def test_folders_and_standard_input_that_is_closed(tmp_path, model, capsys, monkeypatch):
    assert "is a folder" in fail(capsys, "predict", model, tmp_path)
    monkeypatch.setattr(sys, "stdin", None)
    assert "standard input is closed" in fail(capsys, "predict", model, "-")


def test_the_same_row_is_read_alike_in_every_file(tmp_path, capsys):
    """A column's type was guessed anew from each file: 01 among letters is text, alone it was the number 1."""
    codes = ["01", "A", "1.50", "TRUE"] * 60
    table = pd.DataFrame({"a": np.arange(240) % 7, "code": codes, "y": [5.0, 1.0, -3.0, 9.0] * 60})
    table.to_csv(tmp_path / "t.csv", index=False)
    train(capsys, tmp_path / "t.csv")
    succeed(capsys, "predict", tmp_path / "m", tmp_path / "t.csv", "-o", tmp_path / "p.csv")
    whole = pd.read_csv(tmp_path / "p.csv").iloc[:, 0].to_numpy()
    for first in range(4):
        table.iloc[first::4].to_csv(tmp_path / "some.csv", index=False)
        succeed(capsys, "predict", tmp_path / "m", tmp_path / "some.csv", "-o", tmp_path / "q.csv")
        np.testing.assert_allclose(pd.read_csv(tmp_path / "q.csv").iloc[:, 0], whole[first::4])
    numbers = pd.DataFrame({"code": ["01", "1", "002"] * 80, "y": [1.5, 2.5, 3.5] * 80})
    numbers.to_csv(tmp_path / "n.csv", index=False)
    model = train(capsys, tmp_path / "n.csv", "--categorical", "code")
    assert model.input_encoder_.categories_[0].levels == ("002", "01", "1")


def test_kept_columns_are_written_as_they_were(tmp_path, capsys, monkeypatch):
    (tmp_path / "t.csv").write_text("id,x,note,y\n" + "".join(f"00{i},{i}.10,NA,{i}.5\n" for i in range(60)))
    train(capsys, tmp_path / "t.csv", "--ignore", "id", "--ignore", "note")
    succeed(capsys, "predict", tmp_path / "m", tmp_path / "t.csv", "--keep", "-o", tmp_path / "p.csv")
    expected = (tmp_path / "p.csv").read_text()
    assert expected.splitlines()[8].startswith("007,7.10,NA,7.5,")
    with open(tmp_path / "t.csv", "rb") as table:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(table))
        succeed(capsys, "predict", tmp_path / "m", "-", "--keep", "-o", tmp_path / "q.csv")
    assert (tmp_path / "q.csv").read_text() == expected


def test_named_indices_in_parquet_are_columns(tmp_path, capsys):
    frame = pd.DataFrame({"a": np.arange(60.0), "b": np.arange(60.0) ** 2, "y": np.arange(60) / 7})
    frame.set_index("a").to_parquet(tmp_path / "t.parquet")
    assert set(train(capsys, tmp_path / "t.parquet").feature_names_in_) == {"a", "b"}


def test_labels_too_large_for_numbers(tmp_path, capsys):
    (tmp_path / "t.csv").write_text("a,y\n" + "".join(f"{i},{['5', '1e20', '7'][i % 3]}\n" for i in range(60)))
    printed = fail(capsys, "train", tmp_path / "t.csv", "--target", "y", "--task", "classification")
    assert "labels too large to be told apart as numbers" in printed


def test_text_of_type_binary_in_parquet(tmp_path, capsys):
    table = {"c": [b"x", b"y"] * 40, "y": [1.0, 2.5] * 40}
    pq.write_table(pa.table(table), tmp_path / "t.parquet")
    assert train(capsys, tmp_path / "t.parquet").input_encoder_.categories_[0].levels == ("x", "y")
    pq.write_table(pa.table({**table, "c": [b"\xff", b"y"] * 40}), tmp_path / "t.parquet")
    assert "holds bytes that are not text" in fail(capsys, "train", tmp_path / "t.parquet", "--target", "y")


def test_numbers_as_categories_in_any_spelling(tmp_path, capsys):
    table = pd.DataFrame({"g": [1, 2, 3] * 80, "y": [1.5, 9.5, -4.5] * 80})
    for written in (table, table.astype({"g": float})):
        written.to_csv(tmp_path / "t.csv", index=False)
        train(capsys, tmp_path / "t.csv", "--categorical", "g")
        found = []
        for other in (table, table.astype({"g": float})):
            other.to_csv(tmp_path / "o.csv", index=False)
            other.to_parquet(tmp_path / "o.parquet")
            for name in ("o.csv", "o.parquet"):
                succeed(capsys, "predict", tmp_path / "m", tmp_path / name, "-o", tmp_path / "p.csv")
                found.append(pd.read_csv(tmp_path / "p.csv").iloc[:, 0].to_numpy())
        assert np.ptp(found[0]) > 1
        np.testing.assert_allclose(found, found[:1] * 4)


def test_empty_fields_stay_missing_beside_other_marks(tmp_path, capsys):
    (tmp_path / "t.csv").write_text("b,y\n" + "".join(f"{['?', '', i][i % 3]},{i}.5\n" for i in range(90)))
    encoder = train(capsys, tmp_path / "t.csv", "--missing", "?").input_encoder_
    assert encoder.categories_ == []
    assert len(encoder.missing_) == 1
