"""Categories in tables to predict: known levels in other spellings, and unknown ones."""

import datetime
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import csv
from pyarrow import parquet as pq

from test_cli import QUICK, run, succeed
from test_cli_tables import train
from vpboost import load_model
from vpboost.cli.tables import as_known_levels

pytestmark = pytest.mark.filterwarnings("default:none of the values")


def matched(values, levels):
    """Return what the command line makes of values of a category that has these levels."""
    with warnings.catch_warnings(action="ignore"):
        return as_known_levels(pd.Series(values, dtype=object), tuple(levels)).tolist()


def test_an_unknown_text_is_not_the_only_level_that_is_no_number(tmp_path, capsys):
    table = pd.DataFrame({"a": np.arange(120) % 7, "code": ["1", "2", "X"] * 40, "y": [0.5, 3.5, 10.5] * 40})
    table.to_csv(tmp_path / "t.csv", index=False)
    train(capsys, tmp_path / "t.csv", "--categorical", "code")
    new = pd.DataFrame({"a": [0] * 5, "code": ["X", "unknown", "7", "3_0", "nan?"]})
    new.to_csv(tmp_path / "n.csv", index=False)
    succeed(capsys, "predict", tmp_path / "m", tmp_path / "n.csv", "-o", tmp_path / "p.csv")
    found = pd.read_csv(tmp_path / "p.csv").iloc[:, 0].to_numpy()
    np.testing.assert_allclose(found, load_model(tmp_path / "m").predict(new), rtol=1e-6)
    assert np.ptp(found[1:]) == 0
    assert abs(found[0] - found[1]) > 1


def test_numbers_match_by_value_and_by_nothing_else():
    levels = ["30", "1.5", "infinity", "9007199254740992", "x"]
    assert matched(["30.0", 30, 30.0, "030", "3e1", " 30", "1.50"], levels) == [*["30"] * 6, "1.5"]
    unknown = ["3_0", "inf", "nan", "٣٠", "9007199254740993", "y", "0x1e", "1" * 5000]
    assert matched(unknown, levels) == unknown
    assert matched(["1.0", "01"], ["1", "01", "2"]) == ["1.0", "01"], "which of 1 and 01 it means nobody knows"


def test_levels_are_the_same_in_csv_and_parquet(tmp_path, capsys):
    """True and false, moments, and numbers of single precision are written differently there."""
    n = np.arange(120)
    moments = pd.to_datetime(["2024-01-01 10:00:00", "2024-01-01", "2023-05-01 12:30:00.5"], format="ISO8601")
    for column in (
        pd.Series(n % 3 > 0),
        pd.Series(moments[n % 3]),
        pd.Series(np.array([0.1, 0.7, 16777.123], np.float32)[n % 3]),
    ):
        table = pd.DataFrame({"a": n % 7, "c": column, "y": np.array([1.5, 9.5, -4.5])[n % 3]})
        table.to_parquet(tmp_path / "t.parquet")
        texts = column.map({True: "true", False: "false"}) if column.dtype == bool else column.astype(str)
        table.assign(c=texts).to_csv(tmp_path / "t.csv", index=False)
        found = []
        for trained in ("t.csv", "t.parquet"):
            train(capsys, tmp_path / trained, "--categorical", "c")
            for name in ("t.csv", "t.parquet"):
                assert run("predict", tmp_path / "m", tmp_path / name, "-o", tmp_path / "p.csv") == 0
                assert capsys.readouterr().err == ""
                found.append(pd.read_csv(tmp_path / "p.csv").iloc[:, 0].to_numpy())
        assert np.ptp(found[0]) > 1
        np.testing.assert_allclose(found, found[:1] * 4, atol=1e-5)


def test_levels_in_other_spellings():
    assert matched([True, "FALSE"], ["true", "false", "x"]) == ["true", "false"]
    assert matched(["TRUE"], ["true", "True"]) == ["TRUE"]
    assert matched(["2024-01-01T10:00:00", "2024-02-30"], ["2024-01-01 10:00", "x"]) == [
        "2024-01-01 10:00",
        "2024-02-30",
    ]
    assert matched(["2024-01-01 12:00:00+02:00"], ["2024-01-01T10:00:00"]) == ["2024-01-01T10:00:00"]
    assert matched([datetime.time(12, 30)], ["12:30:00.000000"]) == ["12:30:00.000000"]
    times = ["12:30", "00:00:00.5", "00:00:00.500001"]
    assert matched(["12:30:00.000", "00:00:00.500", "00:00:00.500001000"], times) == times
    assert matched(["00:00:00.05", "12:30:01", "12:3"], times) == ["00:00:00.05", "12:30:01", "12:3"]
    assert matched([float(np.float32(0.1)), 0.3], ["0.1", "0.30000001192092896"]) == ["0.1", "0.30000001192092896"]
    others = [1234567936, 1234567.25, 0.1000000014901161]
    assert matched(others, ["1234567900", "1234567.2", "0.1"]) == list(map(str, others))


def test_validation_tables_are_matched_as_those_to_predict(tmp_path, capsys):
    """And warned of, if nothing matches."""
    n = np.arange(60)
    command = ["train", tmp_path / "t.csv", "--target", "y", "--categorical", "c", "--quiet", *QUICK, "-o"]

    def validation_loss(trained, values):
        for name, levels in (("t.csv", trained), ("v.csv", values)):
            table = pd.DataFrame(
                {"a": n % 7, "c": np.array(levels, object)[n % 3], "y": np.array([1.5, 9.5, -4.5])[n % 3]}
            )
            table.to_csv(tmp_path / name, index=False)
        assert run(*command, tmp_path / "m", "--validation", tmp_path / "v.csv") == 0
        return float(load_model(tmp_path / "m").best_score_), capsys.readouterr().err

    levels = ["1", "true", "2024-03-01"]
    expected = validation_loss(levels, levels)
    assert validation_loss(levels, ["1.0", "True", "2024-03-01 00:00:00"]) == expected == (expected[0], "")
    other, printed = validation_loss(levels, ["u", "v", "w"])
    assert "warning: none of the values of column 'c', such as 'u', is a level of training: '1'" in printed
    assert other > expected[0]


def test_whole_numbers_beside_missing_ones_are_levels_without_rounding(tmp_path, capsys):
    """In Parquet files without notes for pandas."""
    n, levels = np.arange(90), [2**60 + 1, 2**60 + 2, None]
    table = pa.table({"a": n % 7, "b": [None, 1, 2] * 30, "c": levels * 30, "y": np.array([1.5, 9.5, -4.5])[n % 3]})
    pq.write_table(table, tmp_path / "t.parquet")
    csv.write_csv(table, tmp_path / "t.csv")
    model = train(capsys, tmp_path / "t.parquet", "--categorical", "c", "--validation", tmp_path / "t.parquet")
    assert [category.levels for category in model.input_encoder_.categories_] == [(*map(str, levels[:2]), "<missing>")]
    found = [succeed(capsys, "predict", tmp_path / "m", tmp_path / name) for name in ("t.parquet", "t.csv")]
    assert found[0] == found[1]
    kept = succeed(capsys, "predict", tmp_path / "m", tmp_path / "t.parquet", "--keep")
    assert kept.splitlines()[1].startswith(f"0,,{levels[0]},1.5,")


def test_decimal_commas_in_categories(tmp_path, capsys):
    """--decimal is the mark of all numbers there."""
    levels, n = ["36", "36,5", "37,25"], np.arange(90)
    table = pd.DataFrame({"a": n % 7, "c": np.array(levels)[n % 3], "y": np.array([1.5, 9.5, -4.5])[n % 3]})
    table.to_csv(tmp_path / "t.csv", index=False, sep=";", decimal=",")
    comma = ["--decimal", ","]
    train(capsys, tmp_path / "t.csv", "--categorical", "c", *comma)
    expected = succeed(capsys, "predict", tmp_path / "m", tmp_path / "t.csv", *comma)
    for values in (["36,0", "36,50", "37,250"], ["36.0", "36.5", "37.25"]):
        table.assign(c=np.array(values)[n % 3]).to_csv(tmp_path / "n.csv", index=False, sep=";", decimal=",")
        assert succeed(capsys, "predict", tmp_path / "m", tmp_path / "n.csv", *comma) == expected
    table.assign(c=np.array([36, 36.5, 37.25])[n % 3]).to_parquet(tmp_path / "n.parquet")
    assert succeed(capsys, "predict", tmp_path / "m", tmp_path / "n.parquet", *comma) == expected
    assert matched(["36,0", "36,5"], ["36", "36.5"]) == ["36,0", "36,5"], "without it, commas mark nothing"


def test_a_column_without_any_known_level_is_warned_of(tmp_path, capsys):
    table = pd.DataFrame({"a": np.arange(90) % 7, "c": ["u", "v", None] * 30, "y": [1.5, 9.5, -4.5] * 30})
    table.to_csv(tmp_path / "t.csv", index=False)
    train(capsys, tmp_path / "t.csv")
    for values, warned in ((["U", "V", None], True), (["U", "v", None], False), ([None] * 3, False)):
        pd.DataFrame({"a": [1, 2, 3], "c": values}).to_csv(tmp_path / "n.csv", index=False)
        assert run("predict", tmp_path / "m", tmp_path / "n.csv") == 0
        printed = capsys.readouterr()
        assert len(printed.out.splitlines()) == 4
        assert ("warning: none of the values of column 'c', such as 'U', is a level" in printed.err) == warned
