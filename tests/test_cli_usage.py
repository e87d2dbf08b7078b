"""Wrong usage, near misses, losses with a number, and reports about the right rows."""

import re

import numpy as np
import pandas as pd
import pytest

import vpboost.plotting
from test_cli import QUICK, fail, run, succeed
from vpboost import load_model


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A table of 240 rows, with a number ``y``, a count ``n`` and a class ``k`` to learn."""
    path = tmp_path_factory.mktemp("tables") / "t.csv"
    x = np.arange(240)
    frame = {"a": x, "price": np.cos(x), "y": np.sin(x) + (x % 5), "n": x % 3, "k": np.where(x % 40, "u", "v")}
    pd.DataFrame(frame).to_csv(path, index=False)
    return path


def usage(capsys, *arguments):
    """Return the message of a command that is used wrongly."""
    with pytest.raises(SystemExit) as end:
        run(*arguments)
    assert end.value.code == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1, "one line"
    return printed.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "vpboost: error: the following arguments are required: COMMAND; see vpboost --help"),
        (["trian", "t.csv"], "invalid choice: 'trian' .*; did you mean 'train'\\? see vpboost --help"),
        (["train", "t.csv"], "vpboost train: error: .* required: --target; see vpboost train --help"),
        (["train", "t.csv", "--targt", "y"], "unknown option --targt; did you mean '--target'\\? see vpboost train"),
        (["train", "t.csv", "--targt=y"], "unknown option --targt; did you mean '--target'\\?"),
        (["predict", "m", "t.csv", "--frobnicate"], "vpboost predict: error: unknown option --frobnicate; see"),
        (["train", "-t.csv", "--target", "y"], r"unknown option -t.csv; write a file or column of that name as ./-t"),
        (["train", "a b.csv", "c.csv", "--target", "y"], "what is 'c.csv'\\?"),
        (["train", "t.csv", "--target", "y", "--task", "regresion"], "did you mean 'regression'\\?"),
        (["train", "t.csv", "--target", "y", "--seed", "-1"], "--seed: must be a whole number from 0 .* got '-1'"),
        (["train", "t.csv", "--target", "y", "--seed", str(2**70)], "--seed: must be a whole number from 0"),
        (["train", "t.csv", "--target", "y", "--seed", "٣"], "--seed: must be a whole number from 0"),
        (["train", "t.csv", "--target", "y", "--time-limit", "0"], "--time-limit: must be a positive number"),
        (["train", "t.csv", "--target", "y", "--time-limit", "-1"], "--time-limit: must be a positive number"),
        (["train", "t.csv", "--target", "y", "--time-limit", "nan"], "--time-limit: must be a positive number"),
        (["train", "t.csv", "--target", "y", "--time-limit", "1h"], "must be a positive number of seconds, got '1h'"),
        (["train", "t.csv", "--target", "y", "--n-estimators", "1\n2"], "invalid int value"),
        (["demo", "--seed", "-1"], "vpboost demo: error: argument --seed"),
    ],
)
def test_wrong_usage_is_one_line(capsys, arguments, message):
    printed = usage(capsys, *arguments)
    assert re.search(message, printed), printed


def test_values_that_look_like_options(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "-t.csv").write_text("-x,--y\n" + "".join(f"{i},{i % 7}.5\n" for i in range(60)))
    succeed(capsys, "train", "--target=--y", "-o=-m", *QUICK, "--", "-t.csv")
    assert "1 (-x)" in succeed(capsys, "inspect", "./-m")


def test_near_misses(table, tmp_path, capsys):
    command = ["train", table, "-o", tmp_path / "m", *QUICK]
    assert "no column 'pric'; it has" in (printed := fail(capsys, *command, "--target", "pric"))
    assert "did you mean 'price'?" in printed
    assert "did you mean 'price'?" in fail(capsys, *command, "--target", "y", "--ignore", "prices")
    printed = fail(capsys, *command, "--target", "y", "--set", "learning_rat=0.1")
    assert "has no such parameter; did you mean 'learning_rate'?" in printed
    assert "is given twice, or beside --width" in fail(
        capsys, *command, "--target", "y", "--width", "3", "--set=width=4"
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--ignore", "y"], "'y' is given as --target and as --ignore"),
        (["--weight", "y"], "'y' is given as --target and as --weight"),
        (["--categorical", "y"], "'y' is given as --target and as --categorical"),
        (["--ignore", "a", "--categorical", "a"], "'a' is given as --ignore and as --categorical"),
        (["--weight", "n", "--categorical", "n"], "'n' is given as --weight and as --categorical"),
        (["--categorical", "zzz"], "no column 'zzz'"),
        (["--set", "=3"], "--set takes NAME=VALUE, got '=3'"),
        (["--n-estimators", "0"], "n_estimators must be a whole number of at least 1, got 0"),
        (["--delimiter", "é"], "takes one ASCII character"),
        (["--delimiter", '"'], "no quote and no line break"),
        (["--delimiter", ",", "--decimal", ","], "are both ','"),
    ],
)
def test_contradictions(table, tmp_path, capsys, options, message):
    assert message in fail(capsys, "train", table, "--target", "y", "-o", tmp_path / "m", *QUICK, *options)


def test_numbers_that_cannot_be_used(tmp_path, capsys):
    path = tmp_path / "t.csv"
    command = ["train", path, "--target", "y", "-o", tmp_path / "m", *QUICK, "--skip-missing-target"]
    for bad, message in {
        "1,2,\n1,2,inf": "target 'y' must hold finite numbers, got inf in row 92",
        "1,2,\n1,-2,3": "--weight 'w' must hold finite numbers of at least 0, got -2 in row 92",
        "1,2,\n1,,3": "--weight 'w' must hold finite numbers of at least 0, got none in row 92",
        "1,2,\nx,2,3": "column 'a' holds numbers, but 1 of 91 values are not, the first 'x' in row 92",
    }.items():
        path.write_text("a,w,y\n" + "".join(f"{i},1,{i}.5\n" for i in range(90)) + bad + "\n")
        assert message in fail(capsys, *command, "--weight", "w")


def test_quantiles_and_powers(table, tmp_path, capsys):
    command = ["train", table, "--ignore", "k", "-o", tmp_path / "m", "--quiet", *QUICK]
    coverage = []
    for level in (0.1, 0.9):
        succeed(capsys, *command, "--target", "y", "--quantile", level)
        model = load_model(tmp_path / "m")
        assert model.loss_.level == level
        frame = pd.read_csv(table)
        coverage.append((frame["y"] < model.predict(frame[["a", "price", "n"]])).mean())
    assert coverage[0] < 0.4
    assert coverage[1] > 0.6
    succeed(capsys, *command, "--target", "y", "--quantile", 0.3, "--loss", "quantile")
    succeed(capsys, *command, "--target", "n", "--tweedie-power", 1.2)
    assert load_model(tmp_path / "m").loss_.power == 1.2
    succeed(capsys, *command, "--target", "n", "--loss", "poisson")
    assert not hasattr(load_model(tmp_path / "m"), "classes_"), "counts, though few"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--quantile", "1.5"], "--quantile: level must be in (0, 1), got 1.5"),
        (["--quantile", "nan"], "--quantile: level must be in (0, 1), got nan"),
        (["--tweedie-power", "2"], "--tweedie-power: power must be in (1, 2), got 2.0"),
        (["--quantile", "0.5", "--loss", "poisson"], "--quantile 0.5 goes with --loss quantile alone"),
        (["--quantile", "0.5", "--tweedie-power", "1.5"], "goes with --loss quantile alone"),
        (["--quantile", "0.5", "--task", "classification"], "--quantile is for regressions"),
        (["--loss", "poisson", "--task", "classification"], "--loss poisson is for regressions"),
        (["--loss", "quantile:0.9"], "(for a level give --quantile), got 'quantile:0.9'; did you mean 'quantile'?"),
        (["--set", "loss=0.9"], "--loss must be one of squared_error, pseudo_huber, quantile"),
        (["--set", "loss=quantle"], "did you mean 'quantile'?"),
    ],
)
def test_losses_that_make_no_sense(table, tmp_path, capsys, options, message):
    command = ["train", table, "--target", "y", "--ignore", "k", "-o", tmp_path / "m", *QUICK]
    assert message in fail(capsys, *command, *options)


@pytest.fixture
def reports(monkeypatch):
    """What is reported, instead of pages."""
    calls = []

    def report(model, X, y, path, title="", about="the data given"):
        path.write_text("page")
        calls.append((X, y, about))

    monkeypatch.setattr(vpboost.plotting, "report", report)
    return calls


def test_reports_are_about_rows_held_out(table, tmp_path, capsys, reports, monkeypatch):
    given = {}

    def spy(self, X, y, sample_weight=None, *, fit=vpboost.VPBoostClassifier.fit, **more):
        given.update(X=X, y=y, w=sample_weight, **more)
        return fit(self, X, y, sample_weight, **more)

    monkeypatch.setattr(vpboost.VPBoostClassifier, "fit", spy)
    page = tmp_path / "r.html"
    command = ["train", table, "--target", "k", "--weight", "n", "-o", tmp_path / "m", "--report", page, *QUICK]
    succeed(capsys, *command)
    X, y, about = reports.pop()
    assert about == "rows held out from training, which chose the stage to stop at"
    assert X is given["X_val"]
    assert len(X) == len(y) == len(given["sample_weight_val"]) == 36
    assert sorted([*given["X"]["a"], *X["a"]]) == list(range(240))
    assert set(given["y"]) == {"u", "v"}
    assert page.read_text() == "page"
    succeed(capsys, *command)
    assert reports.pop()[0].equals(X), "the same rows again"
    succeed(capsys, *command, "--validation", table)
    X, _, about = reports.pop()
    assert (len(X), about) == (240, f"the rows of {table}, which chose the stage to stop at")
    succeed(capsys, *command, "--validation", table, "--set", "early_stopping_rounds=none")
    assert reports.pop()[2] == f"the rows of {table}"
    succeed(capsys, *command, "--set", "early_stopping_rounds=none")
    X, _, about = reports.pop()
    assert (len(X), about) == (240, "the rows trained on (expect larger errors on new ones)")
    assert "validation_fraction must be" in fail(capsys, *command, "--validation-fraction", "nan")


def test_reports_of_few_rows_and_of_evaluation(table, tmp_path, capsys, reports):
    few = tmp_path / "few.csv"
    pd.read_csv(table).head(40).to_csv(few, index=False)
    command = ["train", few, "--target", "y", "--target", "price", "-o", tmp_path / "m", *QUICK]
    succeed(capsys, *command, "--report", tmp_path / "r.html")
    assert reports.pop()[2] == "the rows trained on (expect larger errors on new ones)"
    succeed(capsys, "evaluate", tmp_path / "m", table, "--report", tmp_path / "r.html")
    assert reports.pop()[2] == f"the rows of {table}"


def test_a_report_that_fails_comes_after_the_model(table, tmp_path, capsys, monkeypatch):
    def report(*_, **__):
        raise ValueError("no page")

    monkeypatch.setattr(vpboost.plotting, "report", report)
    (tmp_path / "r.html").write_text("old")
    command = ["train", table, "--target", "y", "-o", tmp_path / "m", *QUICK, "--report", tmp_path / "r.html"]
    assert run(*command) == 1
    printed = capsys.readouterr()
    assert "model written to" in printed.out
    assert "no page" in printed.err
    assert (tmp_path / "r.html").read_text() == "old"


@pytest.mark.slow
@pytest.mark.long
def test_pages_say_what_they_are_about(table, tmp_path, capsys):
    page = tmp_path / "r.html"
    command = ["train", table, "--target", "y", "-o", tmp_path / "m", *QUICK, "--report", page]
    succeed(capsys, *command)
    assert "<h2>Metrics on rows held out from training, which chose the stage to stop at</h2>" in page.read_text()
    succeed(capsys, "evaluate", tmp_path / "m", table, "--report", page)
    assert f"<h2>Metrics on the rows of {table}</h2>" in page.read_text()
