"""Text tables: decimal marks, and empty lines."""

import io

import numpy as np
import pandas as pd
import pytest

from test_cli import fail, succeed
from test_cli_tables import train, write


def test_decimal_points_beside_decimal_commas_are_an_error(tmp_path, capsys):
    def complaint(rows, *more):
        table = write(tmp_path / "t.csv", "a;b;y\n" + "".join(f"{i},5;{row}\n" for i, row in enumerate(rows)))
        return fail(capsys, "train", table, "--target", "y", "-o", tmp_path / "m", "--decimal", ",", *more)

    printed = complaint([f"-0.{i % 9};{i % 7},5" for i in range(60)])
    assert "column 'b' seems to have decimal points ('-0.0'); give --decimal ., or write one mark everywhere" in printed
    printed = complaint([f"{'2.5' if i == 7 else i % 9};{i % 7},5" for i in range(60)])
    assert "column 'b' holds numbers, but 1 of 60 values are not, the first '2.5' in row 8" in printed
    printed = complaint([f"{'x' if i == 7 else i % 9},5;{i % 7},5" for i in range(60)])
    assert "column 'b' holds numbers, but 1 of 60 values are not, the first 'x,5' in row 8" in printed
    assert "column 'y' seems to have decimal points" in complaint([f"{i % 9},5;{i % 7}.5" for i in range(60)])


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_an_empty_line_of_one_column_is_a_missing_value(tmp_path, capsys, monkeypatch, end):
    train(capsys, write(tmp_path / "t.csv", "a,y\n" + "".join(f"{i},{i % 7}.5\n" for i in range(60))))
    expected = succeed(capsys, "predict", tmp_path / "m", write(tmp_path / "n.csv", 'a\n1\n""\n3\n'))
    assert len(set(expected.splitlines())) == 4
    for lines in ("a|1||3|", "a|1||3", "||a|1||3|", "\ufeff||a|1|  |3|"):
        table = write(tmp_path / "n.csv", lines.replace("|", end))
        assert succeed(capsys, "predict", tmp_path / "m", table) == expected
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(table.read_bytes())))
        assert succeed(capsys, "predict", tmp_path / "m", "-") == expected
        kept = pd.read_csv(
            io.StringIO(succeed(capsys, "predict", tmp_path / "m", table, "--keep")), skipinitialspace=True
        )
        np.testing.assert_array_equal(kept["a"], [1, np.nan, 3])
        assert kept["predicted_y"].notna().all()
    several = write(tmp_path / "n.csv", "a,b||1,|||3,||".replace("|", end))
    assert len(succeed(capsys, "predict", tmp_path / "m", several).splitlines()) == 3
