"""Categories in tables to predict: known levels in other spellings, and unknown ones."""

import numpy as np
import pandas as pd

from test_cli import succeed
from test_cli_tables import train
from vpboost import load_model
from vpboost.cli.tables import as_known_levels


def matched(values, levels):
    """Return what the command line makes of values of a category that has these levels."""
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
