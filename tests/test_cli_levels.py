"""Categories in tables to predict: known levels in other spellings, and unknown ones."""

import datetime
import warnings

import numpy as np
import pandas as pd
import pytest

from test_cli import run, succeed
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
    assert matched(["30.0", 30, 30.0, "030", "3e1", " 30", "1.50"], levels) == ["30", 30, 30.0, "30", "30", "30", "1.5"]
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
    assert matched([float(np.float32(0.1)), 0.3], ["0.1", "0.30000001192092896"]) == ["0.1", "0.30000001192092896"]
    others = [1234567936, 1234567.25, 0.1000000014901161]
    assert matched(others, ["1234567900", "1234567.2", "0.1"]) == others


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
