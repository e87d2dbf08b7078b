import io
import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from vpboost import load_model
from vpboost.cli.main import main

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
    assert described["arrays"]["weights"]["dtype"] == "float32"


def test_classification_several_targets_and_other_formats(folder, capsys):
    options = ["--ignore", "price", "--ignore", "rent", "-o", folder / "sold.vpboost"]
    out = succeed(
        capsys,
        "train",
        folder / "houses.parquet",
        "--target",
        "sold",
        *options,
        *QUICK,
        "--report",
        folder / "report.html",
    )
    assert "classification of sold: 300 rows, 3 columns" in out
    assert "<h2>Metrics" in (folder / "report.html").read_text()
    out = succeed(capsys, "predict", folder / "sold.vpboost", folder / "new.csv", "--probabilities")
    assert out.splitlines()[0] == "predicted_sold,probability_no,probability_yes"
    assert "auc" in succeed(
        capsys, "evaluate", folder / "sold.vpboost", folder / "houses.csv", "--report", folder / "e.html"
    )
    both = ["--target", "price", "--target", "rent", "--ignore", "sold", "-o", folder / "both.vpboost"]
    succeed(capsys, "train", folder / "semicolon.csv", "--decimal", ",", *both, *QUICK)
    out = succeed(capsys, "predict", folder / "both.vpboost", folder / "new.csv")
    assert out.splitlines()[0] == "predicted_price,predicted_rent"
    assert "r2 of rent" in succeed(capsys, "evaluate", folder / "both.vpboost", folder / "houses.csv")


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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("a,b,y\n", "has a header but no rows"),
        ("1,2,3\n4,5,6\n", "begins with numbers, not with the names of its columns; add a header line"),
        ("a,a,y\n1,2,3\n", "more than one column 'a'"),
        ("a b y\n1 2 3\n", "no column 'y'; it has a b y; is the delimiter right"),
        ("a,b,z\n1,2,3\n", "no column 'y'; it has a, b, z"),
        ("a,y\n1,2\n3,4,5\n6,7,8,9\n", "cannot be read as a table with delimiter ','.*line"),
        (
            "a,y\n1,2\n2,3\nabc,4\n5,6\n",
            "column 'a' holds numbers, but 1 of 4 values are not, the first 'abc' in row 3",
        ),
        ("a;y\n1,5;2\nx;3\n2,5;1\n2;3\n1;3\n", "decimal commas \\('1,5'\\); give --decimal ,"),
        ("a,y\n1,2\n2,\n", "1 rows without a target, the first row 2.*--skip-missing-target"),
        ("y\n1\n2\n", "no columns left to learn from"),
        ("a,y\n,1\n,2\n", "column 'a' is empty; leave it out with --ignore a"),
        (b"a,y\n\xff\xfe,2\n", "not UTF-8"),
        (b"\x89PNG\x00\x00", "not a text file"),
        ("a,y\n" + "".join(f"id{i},{i}.5\n" for i in range(300)), "like an identifier; leave it out with --ignore a"),
        ("a,y\n" + "".join(f"{i},x{i % 3}\n" for i in range(30)) + "1,\n", "without a target"),
    ],
)
def test_bad_tables(tmp_path, capsys, text, message):
    path = bad(tmp_path, "table.csv", text)
    printed = fail(capsys, "train", path, "--target", "y", "-o", tmp_path / "model")
    assert not (tmp_path / "model").exists()
    import re

    assert re.search(message, printed), printed


def test_bad_requests(folder, model, tmp_path, capsys):
    assert "does not exist" in fail(capsys, "train", tmp_path / "no.csv", "--target", "y")
    assert "save it as one of these" in fail(capsys, "train", bad(tmp_path, "t.xlsx", "x"), "--target", "y")
    assert "not a Parquet file" in fail(capsys, "train", bad(tmp_path, "t.parquet", "x"), "--target", "y")
    assert "cannot read" in fail(capsys, "predict", tmp_path / "no.vpboost", folder / "new.csv")
    assert "checksum" in fail(capsys, "inspect", bad(tmp_path, "m.vpboost", model.read_bytes()[:-1] + b"x"))
    assert "not a vpboost file" in fail(capsys, "inspect", folder / "houses.csv")
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
    assert "for classification" in fail(capsys, "train", *houses, "--class-weight", "balanced", "-o", tmp_path / "m")
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
