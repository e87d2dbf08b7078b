import contextlib
import io
import json
import os
import re
import signal
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from vpboost import load_model
from vpboost.cli.interrupts import Interrupts
from vpboost.cli.main import main
from vpboost.files.container import pack, unpack

QUICK = [
    "--n-estimators",
    "4",
    "--max-steps",
    "10",
    "--encoding",
    "plain",
    "--set",
    "inherit=0",
    "--learning-rate",
    "0.5",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with tables and the models trained on them by the command line."""
    folder = tmp_path_factory.mktemp("tables")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"size": rng.normal(size=300), "age": rng.integers(0, 50, 300), "town": ["A", "B", None] * 100}
    )
    frame["price"] = np.sin(frame["size"]) + (frame["town"] == "A") + 0.01 * frame["age"]
    frame["rent"] = frame["price"] ** 2
    frame["sold"] = np.where(frame["price"] > frame["price"].median(), "yes", "no")
    frame.to_csv(folder / "houses.csv", index=False)
    frame.to_csv(folder / "semicolon.csv", index=False, sep=";", decimal=",")
    frame.to_parquet(folder / "houses.parquet")
    frame.drop(columns=["price", "rent", "sold"]).head(7).to_csv(folder / "new.csv", index=False)
    return folder


def run(*arguments):
    return main([str(argument) for argument in arguments])


def succeed(capsys, *arguments):
    code = run(*arguments)
    printed = capsys.readouterr()
    assert code == 0, printed.err
    return printed.out


def fail(capsys, *arguments):
    assert run(*arguments) == 1
    printed = capsys.readouterr().err
    assert printed.startswith("vpboost: ")
    assert "Traceback" not in printed
    return printed


@pytest.fixture(scope="module")
def model(folder):
    path = folder / "price.vpboost"
    options = ["--target", "price", "--ignore", "rent", "--ignore", "sold", "-o", path, "--quiet"]
    assert run("train", folder / "houses.csv", *options, *QUICK) == 0
    return path


def test_train_predict_evaluate_inspect(folder, model, capsys):
    out = succeed(capsys, "predict", model, folder / "new.csv")
    predictions = pd.read_csv(io.StringIO(out))
    assert list(predictions) == ["predicted_price"]
    expected = load_model(model).predict(pd.read_csv(folder / "new.csv"))
    np.testing.assert_allclose(predictions["predicted_price"], expected, rtol=1e-12)
    succeed(capsys, "predict", model, folder / "new.csv", "-o", folder / "out.parquet", "--keep")
    assert list(pd.read_parquet(folder / "out.parquet")) == ["size", "age", "town", "predicted_price"]
    found = json.loads(succeed(capsys, "evaluate", model, folder / "houses.csv", "--json"))
    assert found["r2"] > 0.8
    assert "rmse" in succeed(capsys, "evaluate", model, folder / "houses.parquet")
    text = succeed(capsys, "inspect", model, "--plot", folder / "history.png")
    assert "3 (size, age, town)" in text
    assert "1 (price)" in text
    assert (folder / "history.png").read_bytes().startswith(b"\x89PNG")
    described = json.loads(succeed(capsys, "inspect", model, "--json"))
    assert described["parameters"]["inherit"] == 0
    assert described["arrays"]["weights"]["dtype"] == f"{load_model(model).ensemble_.weights.dtype}"


def test_classification_several_targets_and_other_formats(folder, capsys):
    options = ["--ignore", "price", "--ignore", "rent", "-o", folder / "sold.vpboost"]
    out = succeed(capsys, "train", folder / "houses.parquet", "--target", "sold", *options, *QUICK)
    assert "classification of sold: 300 rows, 3 columns" in out
    out = succeed(capsys, "predict", folder / "sold.vpboost", folder / "new.csv", "--probabilities")
    assert out.splitlines()[0] == "predicted_sold,probability_no,probability_yes"
    assert "auc" in succeed(capsys, "evaluate", folder / "sold.vpboost", folder / "houses.csv")
    both = ["--target", "price", "--target", "rent", "--ignore", "sold", "-o", folder / "both.vpboost"]
    succeed(capsys, "train", folder / "semicolon.csv", "--decimal", ",", *both, *QUICK)
    out = succeed(capsys, "predict", folder / "both.vpboost", folder / "new.csv")
    assert out.splitlines()[0] == "predicted_price,predicted_rent"
    assert "r2 of rent" in succeed(capsys, "evaluate", folder / "both.vpboost", folder / "houses.csv")


@pytest.mark.slow
@pytest.mark.long
def test_validation_table_weights_time_and_checkpoint(folder, capsys):
    options = ["--target", "price", "--ignore", "rent", "--ignore", "sold", "--weight", "age", "-o", folder / "w"]
    more = ["--validation", folder / "houses.csv", "--checkpoint", folder / "state", "--time-limit", "100"]
    command = ["train", folder / "houses.csv", *options, *more, *QUICK, "--n-estimators", "12"]
    succeed(capsys, *command)
    first = load_model(folder / "w").boosted_
    assert (folder / "state").exists()
    succeed(capsys, *command)  # from stage 10 on
    again = load_model(folder / "w").boosted_
    np.testing.assert_array_equal(again.ensemble.weights, first.ensemble.weights)
    assert [r.seconds for r in again.history][:10] == [r.seconds for r in first.history][:10], "the same stages"
    assert "name another --checkpoint, to begin anew" in fail(capsys, *command, "--width", "3")


def test_export_and_pipes(folder, model, capsys, monkeypatch):
    assert succeed(capsys, "export", model, "-o", folder / "m.onnx").strip().endswith("m.onnx")
    assert "predictor.py" in succeed(capsys, "export", model, "--to", "numpy", "-o", folder / "plain")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO((folder / "new.csv").read_bytes())))
    assert len(succeed(capsys, "predict", model, "-").splitlines()) == 8


def bad(folder, name, text):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


ROWS = "".join(f"{i},{i % 7}.5\n" for i in range(90))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("\n\n", "is empty"),
        ("a,b,y\n", "has a header but no rows"),
        ("1,2,3\n4,5,6\n", "begins with numbers, not with the names of its columns; add a header line"),
        ("a,a,y\n1,2,3\n", "more than one column 'a'"),
        ("a b y\n1 2 3\n", "no column 'y'; it has 'a b y'; is the delimiter right"),
        ("a,b,z\n1,2,3\n", "no column 'y'; it has 'a', 'b', 'z'"),
        ("a,y\n1,2\n3,4,5\n6,7,8,9\n", "cannot be read as a table with delimiter ','.*line"),
        ("a,y\n0,0.1,5.5\n1,0.2,6.5\n", "2 names in its header and 3 fields in its first row"),
        (
            "a,y\n1,2\n2,3\nabc,4\n5,6\n",
            "column 'a' holds numbers, but 1 of 4 values are not, the first 'abc' in row 3",
        ),
        ("a;y\n1,5;2\nx;3\n2,5;1\n2;3\n1;3\n", r"decimal commas \('1,5'\); give --decimal ,"),
        ("a,y\n1,2\n2,\n", "1 rows without a target, the first row 2.*--skip-missing-target"),
        ("y\n1\n2\n", "no columns left to learn from"),
        ("a,y\n,1\n,2\n", "column 'a' is empty; leave it out with --ignore a"),
        ("a b,y\n,1\n,2\n", "leave it out with --ignore 'a b'"),
        ("a,y\ninf,1\n2,2\n", "column 'a' has infinite values"),
        (",a,y\n0,5,1\n1,6,2\n", "counts the rows; leave it out with --ignore 'Unnamed: 0'"),
        (b"a,y\n\xff\xfe,2\n", "not UTF-8"),
        (b"\x89PNG\x00\x00", "not a text file"),
        ("a,y\n" + "".join(f"id{i},{i}.5\n" for i in range(300)), "like an identifier; leave it out with --ignore a"),
        (
            "a,y\n" + ROWS + "3,1x.5\n",
            "column 'y' holds numbers, but 1 of 91 values are not, the first '1x.5' in row 91",
        ),
        ("a,y\n" + "".join(f"{i},name{i}\n" for i in range(300)), "300 different texts; if they are classes"),
    ],
)
def test_bad_tables(tmp_path, capsys, text, message):
    path = bad(tmp_path, "table.csv", text)
    printed = fail(capsys, "train", path, "--target", "y", "-o", tmp_path / "model")
    assert not (tmp_path / "model").exists()
    assert re.search(message, printed), printed


def test_tables_as_people_write_them(tmp_path, capsys):
    """Byte-order mark, CRLF, blank first line, spaces after the commas, delimiters inside quotes, a tab by name."""
    text = "\ufeff\r\nsize, y\r\n" + "".join(f"{i}, {i % 7}.5\r\n" for i in range(60))
    succeed(capsys, "train", bad(tmp_path, "a.csv", text), "--target", "y", "-o", tmp_path / "a", *QUICK)
    assert "1 (size)" in succeed(capsys, "inspect", tmp_path / "a")
    text = '"size, m2";"price, eur"\n' + "".join(f"{i};{i % 7}.5\n" for i in range(60))
    succeed(capsys, "train", bad(tmp_path, "b.csv", text), "--target", "price, eur", "-o", tmp_path / "b", *QUICK)
    text = "size\ty\n" + "".join(f"{i}\t{i % 7}.5\n" for i in range(60))
    table = bad(tmp_path, "c.csv", text)
    succeed(capsys, "train", table, "--target", "y", "-o", tmp_path / "c", *QUICK, "--delimiter", "\\t")
    assert "takes one ASCII character" in fail(capsys, "train", table, "--target", "y", "--delimiter", "ab")


def test_categories_keep_their_names(tmp_path, capsys):
    """Whole numbers as categories, with and without missing ones beside them; true and false; numbers as text."""
    rows = [f"{i % 3 + 1},{'True' if i % 2 else 'False'},{10 * (i % 3)}.5" for i in range(90)]
    table = bad(tmp_path, "t.csv", "k,b,y\n" + "\n".join(rows) + "\n")
    command = ["train", table, "--target", "y", "--categorical", "k", "-o", tmp_path / "m", *QUICK]
    succeed(capsys, *command, "--set", "early_stopping_rounds=none")
    whole = bad(tmp_path, "whole.csv", "k,b\n1,True\n2,False\n3,True\n")
    holes = bad(tmp_path, "holes.csv", "k,b\n1,True\n2,False\n3,True\n,\n")
    first = succeed(capsys, "predict", tmp_path / "m", whole).splitlines()
    second = succeed(capsys, "predict", tmp_path / "m", holes).splitlines()
    values = [float(line) for line in first[1:]]
    np.testing.assert_allclose([float(line) for line in second[1:4]], values, rtol=1e-9)
    assert values[0] < values[1] < values[2]
    labels = bad(tmp_path, "l.csv", "a,y\n" + "".join(f"{i},{[1, 2, 'x'][i % 3]}\n" for i in range(90)))
    command = ["train", labels, "--target", "y", "-o", tmp_path / "l", *QUICK]
    assert "or give --task classification if these are names of classes" in fail(capsys, *command)
    succeed(capsys, *command, "--task", "classification")
    some = bad(tmp_path, "some.csv", "a,y\n1,1\n2,2\n")
    assert "accuracy" in succeed(capsys, "evaluate", tmp_path / "l", some)


def test_ctrl_c_keeps_the_model(folder, tmp_path, capsys, monkeypatch):
    import vpboost.callbacks

    def interrupt(self, progress):
        if progress.record.stage == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(vpboost.callbacks.TimeBudget, "after_stage", interrupt)
    options = ["--target", "price", "--ignore", "rent", "--ignore", "sold", "-o", tmp_path / "m", "--time-limit", "9"]
    assert run("train", folder / "houses.csv", *options, *QUICK, "--n-estimators", "50") == 130
    assert "interrupted after 4 stages; the model holds those" in capsys.readouterr().err
    assert load_model(tmp_path / "m").n_iter_ == 4


def test_bad_requests(folder, model, tmp_path, capsys):
    assert "does not exist" in fail(capsys, "train", tmp_path / "no.csv", "--target", "y")
    assert "save it as one of these" in fail(capsys, "train", bad(tmp_path, "t.xlsx", "x"), "--target", "y")
    assert "not a Parquet file" in fail(capsys, "train", bad(tmp_path, "t.parquet", "x"), "--target", "y")
    assert "does not exist" in fail(capsys, "predict", tmp_path / "no.vpboost", folder / "new.csv")
    assert "checksum" in fail(capsys, "inspect", bad(tmp_path, "m.vpboost", model.read_bytes()[:-1] + b"x"))
    assert "not a vpboost file" in fail(capsys, "inspect", folder / "houses.csv")
    os.truncate(bad(tmp_path, "huge.csv", "a,y\n"), 1 << 42)  # a sparse file, which takes no room
    assert "GB of memory" in fail(capsys, "train", tmp_path / "huge.csv", "--target", "y")
    no_size = bad(tmp_path, "n.csv", "age,town\n1,A\n")
    assert "no column 'size'" in fail(capsys, "predict", model, no_size)
    text = bad(tmp_path, "text.csv", "size,age,town\nbig,1,A\n")
    assert "holds text; the model was trained on numbers there" in fail(capsys, "predict", model, text)
    houses = [folder / "houses.csv", "--target", "price"]
    assert "no such parameter" in fail(capsys, "train", *houses, "--set", "n_trees=3", "-o", tmp_path / "m")
    assert "not for the command line" in fail(capsys, "train", *houses, "--set", "callbacks=none", "-o", tmp_path / "m")
    assert "takes NAME=VALUE" in fail(capsys, "train", *houses, "--set", "n_trees", "-o", tmp_path / "m")
    assert "no folder" in fail(capsys, "train", *houses, "-o", tmp_path / "x" / "m")
    assert "learning_rate must be" in fail(capsys, "train", *houses, "--learning-rate", "7", "-o", tmp_path / "m")
    assert "no such parameter" in fail(capsys, "train", *houses, "--class-weight", "balanced", "-o", tmp_path / "m")
    assert "is given twice" in fail(capsys, "train", *houses, "--target", "price", "-o", tmp_path / "m")
    assert "weights are numbers" in fail(capsys, "train", *houses, "--weight", "town", "-o", tmp_path / "m")
    assert "no folder" in fail(capsys, "train", *houses, "--report", tmp_path / "x" / "r.html", "-o", tmp_path / "m")
    content, arrays = unpack(model.read_bytes(), "model")
    for broken in ({"kind": None}, {"featurizer": "x"}, {"feature_names": ["\x1b[31m", 1, 2]}):
        data = pack({**content, **broken}, arrays)
        code = run("inspect", bad(tmp_path, "broken.vpboost", data))
        assert code in (0, 1)
        assert "\x1b" not in "".join(capsys.readouterr())
    assert "--probabilities is for classifiers" in fail(capsys, "predict", model, folder / "new.csv", "--probabilities")
    with pytest.raises(SystemExit) as usage:
        run("train", folder / "houses.csv")
    assert usage.value.code == 2


def test_help_comes_without_jax():
    script = (
        "import sys\n"
        "from vpboost.cli.main import main\n"
        "try: main(['train', '--help'])\n"
        "except SystemExit as end: assert end.code == 0\n"
        "heavy = {'jax', 'sklearn', 'pandas', 'scipy', 'numpy', 'matplotlib'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    assert "--learning-rate" in found.stdout


def test_other_column_order_missing_texts_and_plain_terminals(folder, tmp_path, capsys):
    frame = pd.DataFrame({"a": np.arange(60.0), "k": ["NA", "EU"] * 30, "y": np.arange(60) % 7 + 0.5})
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame[["y", "k", "a"]].assign(more=1).to_csv(tmp_path / "v.csv", index=False)
    command = ["train", tmp_path / "t.csv", "--target", "y", "-o", tmp_path / "m", *QUICK]
    succeed(capsys, *command, "--validation", tmp_path / "v.csv")
    assert load_model(tmp_path / "m").input_encoder_.categories_[0].levels == ("<missing>", "EU")
    succeed(capsys, *command, "--missing", "none at all")
    assert load_model(tmp_path / "m").input_encoder_.categories_[0].levels == ("EU", "NA")
    inspect = [sys.executable, "-m", "vpboost", "inspect", str(tmp_path / "m")]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    found = subprocess.run(inspect, capture_output=True, check=False, env=environment)
    assert found.returncode == 0, found.stderr
    assert b"1 (y)" in found.stdout
    names = ",".join([*(f"column_{i}" for i in range(9000)), "column_5", "y"])
    wide = bad(tmp_path, "wide.csv", names + "\n" + ",".join(["1"] * 9002) + "\n")
    assert "more than one column 'column_5'" in fail(capsys, "train", wide, "--target", "y")


def test_a_lost_interrupt_is_raised_after_the_stage():
    before = signal.getsignal(signal.SIGINT)
    with Interrupts() as interrupts:
        interrupts.after_stage(None)
        with contextlib.suppress(KeyboardInterrupt):  # as the clean-up of others does
            signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            interrupts.after_stage(None)
    assert signal.getsignal(signal.SIGINT) is before
