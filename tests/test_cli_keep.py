"""predict --keep: fields and columns come out as they went in."""

import csv
import gzip
import io
import os
import sys
import tempfile
import threading

import numpy as np
import pandas as pd
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
