"""predict --keep: fields and columns come out as they went in."""

import csv
import datetime
import decimal
import gzip
import io
import os
import sys
import tempfile
import threading

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from test_cli import QUICK, fail, run, succeed
from test_cli_tables import train, write


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model of one column ``a``."""
    folder = tmp_path_factory.mktemp("model")
    rows = "".join(f"{i},{i % 7}.5\n" for i in range(60))
    assert run("train", write(folder / "t.csv", "a,y\n" + rows), "--target", "y", "-o", folder / "m", *QUICK) == 0
    return folder / "m"


def kept(capsys, model, table, *more):
    """Return the rows of the CSV that keeps those of a table, its header first, without the predictions."""
    printed = succeed(capsys, "predict", model, table, "--keep", *more)
    rows = list(csv.reader(io.StringIO(printed, newline="")))
    assert all(float(row[-1]) for row in rows[1:])
    assert len(pd.read_csv(io.BytesIO(printed.encode()))) == len(rows) - 1
    return [row[:-1] for row in rows]


def test_carriage_returns_in_fields_and_names_are_quoted(tmp_path, model, capsys):
    table = write(tmp_path / "t.csv", 'a,"no\rte"\n1,"x\ry"\n2,"x\r\ny"\n3,"\n"\n')
    expected = [["a", "no\rte"], ["1", "x\ry"], ["2", "x\r\ny"], ["3", "\n"]]
    assert kept(capsys, model, table) == expected
    succeed(capsys, "predict", model, table, "--keep", "-o", tmp_path / "p.tsv.gz")
    found = pd.read_csv(tmp_path / "p.tsv.gz", sep="\t", dtype=str)
    assert [list(found)[:2], *found.iloc[:, :2].to_numpy().tolist()] == expected
    texts = pd.DataFrame({"a": np.arange(60), "y": ["u\rv", "w"] * 30})
    texts.to_parquet(tmp_path / "t.parquet")
    train(capsys, tmp_path / "t.parquet")
    found = succeed(capsys, "predict", tmp_path / "m", tmp_path / "t.parquet", "--probabilities")
    found = pd.read_csv(io.BytesIO(found.encode()))
    assert list(found) == ["predicted_y", "probability_u\rv", "probability_w"]
    assert len(found) == 60
    assert set(found["predicted_y"]) <= {"u\rv", "w"}


def test_fields_and_names_keep_their_spaces_and_may_be_empty(tmp_path, model, capsys):
    table = write(tmp_path / "t.csv", ' a, b ,,\n  1, x,  ,"5"" wide"\n2 ,"p, ""q""", NA,\n')
    expected = [[" a", " b ", "", ""], ["  1", " x", "  ", '5" wide'], ["2 ", 'p, "q"', " NA", ""]]
    assert kept(capsys, model, table) == expected
    for quoted in ('"p, q"', '""', '"""p, q"""'):
        table = write(tmp_path / "t.csv", f"a, b\n1, x\n2, {quoted}\n")
        assert kept(capsys, model, table) == [["a", "b"], ["1", "x"], ["2", next(csv.reader([quoted]))[0]]]


COLUMNS = {
    "id": pa.array([2**53 + 1, None, 3]),
    "small": pa.array([1, None, 3], pa.uint8()),
    "single": pa.array([0.1, None, 3], pa.float32()),
    "truth": pa.array([True, None, False]),
    "text": pa.array(["01", None, " x"], pa.large_string()),
    "bytes": pa.array([b"01", None, b"x"]),
    "level": pa.array(["u", None, "v"]).dictionary_encode(),
    "day": pa.array([datetime.date(2024, 3, 1), None, datetime.date(1500, 1, 1)]),
    "moment": pa.array([datetime.datetime(2024, 3, 1, 12), None, None], pa.timestamp("us", "Europe/Berlin")),
    "price": pa.array([decimal.Decimal("1.50"), None, decimal.Decimal("2.00")]),
    "list": pa.array([[1, 2], None, []]),
    "null": pa.nulls(3),
}


def test_parquet_columns_keep_their_types(tmp_path, model, capsys):
    table = pa.table({"a": [1, None, 3], **COLUMNS})
    pq.write_table(table, tmp_path / "t.parquet")
    succeed(capsys, "predict", model, tmp_path / "t.parquet", "--keep", "-o", tmp_path / "p.parquet")
    found = pq.read_table(tmp_path / "p.parquet")
    assert found.column_names == [*table.column_names, "predicted_y"]
    for name in table.column_names:
        assert found.schema.field(name).type == table.schema.field(name).type, name
        assert found[name].to_pylist() == table[name].to_pylist(), name
    rows = kept(capsys, model, tmp_path / "t.parquet")
    first = "1,9007199254740993,1,0.1,True,01,01,u,2024-03-01,2024-03-01 13:00:00+01:00,1.50,[1 2],"
    assert ",".join(rows[1]) == first
    assert rows[2] == [""] * len(rows[0])


def test_kept_parquet_files_can_be_read_again(tmp_path, model, capsys):
    """Pandas' notes in the file must not name types that pandas itself cannot make."""
    frame = pd.DataFrame({"a": range(3), "level": pd.Categorical(["u", "v", None]), "list": [[1], [], None]})
    frame["parts"], frame["month"] = [{"p": 1}] * 3, pd.period_range("2024-01", periods=3, freq="M")
    frame["y"] = [0.5, 1.5, 2.5]
    frame.to_parquet(tmp_path / "t.parquet")
    succeed(capsys, "predict", model, tmp_path / "t.parquet", "--keep", "-o", tmp_path / "p.parquet")
    found = pd.read_parquet(tmp_path / "p.parquet")
    pd.testing.assert_frame_equal(found[["a", "level", "month", "y"]], frame[["a", "level", "month", "y"]])
    assert [None if v is None else list(v) for v in found["list"]] == [[1], [], None]
    assert list(found["parts"]) == [{"p": 1}] * 3
    assert "r2" in succeed(capsys, "evaluate", model, tmp_path / "p.parquet")


def test_whole_numbers_of_a_csv_stay_such_beside_missing_ones(tmp_path, model, capsys):
    table = write(tmp_path / "t.csv", f"a,id,b\n1,{2**53 + 1},true\n2,,\n")
    succeed(capsys, "predict", model, table, "--keep", "-o", tmp_path / "p.parquet")
    found = pq.read_table(tmp_path / "p.parquet")
    assert found["id"].to_pylist() == [2**53 + 1, None]
    assert found["b"].to_pylist() == [True, None]
    assert pd.read_parquet(tmp_path / "p.parquet")["id"][0] == 2**53 + 1


def test_piped_tables_are_kept_without_temporary_files(tmp_path, model, capsys, monkeypatch):
    """Which a process that is killed would leave behind."""
    expected = kept(capsys, model, write(tmp_path / "t.csv", "a,b\n1,x\n"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    for content in (b"a,b\n1,x\n", gzip.compress(b"a,b\n1,x\n")):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
        assert kept(capsys, model, "-") == expected
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_text, args=("a,b\n1,x\n",))
    writer.start()
    assert kept(capsys, model, tmp_path / "pipe") == expected
    writer.join()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a,b\n1,x,y,z\n")))
    assert "standard input has 2 names" in fail(capsys, "predict", model, "-", "--keep")
    monkeypatch.setattr(sys, "stdin", None)
    assert "standard input is closed" in fail(capsys, "predict", model, "-", "--keep")
