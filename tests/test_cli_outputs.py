"""Files that the commands write: never over what they read, whole or not at all, and in the format of their name."""

import gzip
import os
import subprocess
import sys
import tempfile
import warnings

import numpy as np
import pandas as pd
import pytest

from test_cli import QUICK, fail, run, succeed


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with a table ``t.csv`` and a model ``m.vpboost``, which no test changes."""
    folder = tmp_path_factory.mktemp("made")
    x = np.arange(60)
    pd.DataFrame({"a": x, "b": x % 4, "y": np.sin(x)}).to_csv(folder / "t.csv", index=False)
    assert run("train", folder / "t.csv", "--target", "y", "-o", folder / "m.vpboost", "--quiet", *QUICK) == 0
    return folder


@pytest.fixture
def files(made, tmp_path, monkeypatch):
    """A fresh folder, the current one, with copies of table and model and other names of both."""
    for name in ("t.csv", "m.vpboost"):
        (tmp_path / name).write_bytes((made / name).read_bytes())
    (tmp_path / "v.csv").write_bytes((made / "t.csv").read_bytes())
    os.link(tmp_path / "t.csv", tmp_path / "hard.csv")
    os.symlink("t.csv", tmp_path / "soft.csv")
    os.symlink("nothing-yet", tmp_path / "soft")
    monkeypatch.chdir(tmp_path)
    return tmp_path


TRAIN = ["train", "t.csv", "--target", "y"]


@pytest.mark.parametrize(
    "arguments",
    [
        [*TRAIN, "-o", "t.csv"],
        [*TRAIN, "-o", "./t.csv"],
        [*TRAIN, "-o", "hard.csv"],
        [*TRAIN, "-o", "soft.csv"],
        [*TRAIN, "--report", "t.csv"],
        [*TRAIN, "--checkpoint", "t.csv"],
        [*TRAIN, "--validation", "v.csv", "-o", "v.csv"],
        [*TRAIN, "-o", "x", "--report", "x"],
        [*TRAIN, "-o", "x", "--checkpoint", "../{folder}/x"],
        [*TRAIN, "-o", "soft", "--report", "nothing-yet"],
        ["predict", "m.vpboost", "t.csv", "-o", "m.vpboost"],
        ["predict", "m.vpboost", "t.csv", "-o", "t.csv"],
        ["predict", "m.vpboost", "soft.csv", "-o", "hard.csv"],
        ["evaluate", "m.vpboost", "t.csv", "--report", "m.vpboost"],
        ["evaluate", "m.vpboost", "t.csv", "--report", "t.csv"],
        ["inspect", "m.vpboost", "--plot", "m.vpboost"],
        ["export", "m.vpboost", "-o", "m.vpboost"],
    ],
)
def test_outputs_are_neither_inputs_nor_each_other(files, capsys, monkeypatch, arguments):
    import vpboost.cli.reading

    monkeypatch.setattr(vpboost.cli.reading, "read_table", lambda *_: pytest.fail("read before the check"))
    before = {name: (files / name).read_bytes() for name in ("t.csv", "v.csv", "m.vpboost")}
    printed = fail(capsys, *(argument.format(folder=files.name) for argument in arguments))
    assert "the same file" in printed
    assert {name: (files / name).read_bytes() for name in before} == before


def test_standard_input_is_an_input_too(files, made):
    with open("t.csv", "rb") as table:
        found = vpboost("predict", "m.vpboost", "-", "-o", "t.csv", stdin=table)
    assert found.returncode == 1
    assert "the same file" in found.stderr
    assert (files / "t.csv").read_bytes() == (made / "t.csv").read_bytes()
    assert "-o -: give the name of a file" in vpboost("train", "-", "--target", "y", "-o", "-").stderr
    assert "only once" in vpboost("train", "-", "--target", "y", "--validation", "-").stderr


def test_numpy_exports_spare_files_that_are_not_exports(files, capsys):
    succeed(capsys, "export", "m.vpboost", "--to", "numpy", "-o", "new")
    succeed(capsys, "export", "m.vpboost", "--to", "numpy", "-o", "new")
    (files / "mine").mkdir()
    (files / "mine" / "predictor.py").write_text("print('mine')\n")
    assert "predictor.py exists" in fail(capsys, "export", "m.vpboost", "--to", "numpy", "-o", "mine")
    assert not (files / "mine" / "model.vpboost").exists()
    (files / "other").mkdir()
    (files / "other" / "model.vpboost").write_bytes(b"another model")
    assert "model.vpboost exists" in fail(capsys, "export", "m.vpboost", "--to", "numpy", "-o", "other")
    assert (files / "other" / "model.vpboost").read_bytes() == b"another model"
    for folder in ("t.csv", "", "-"):
        assert "is not a folder" in fail(capsys, "export", "m.vpboost", "--to", "numpy", "-o", folder)


def test_numpy_exports_spare_the_model_that_they_read(files, capsys):
    succeed(capsys, "export", "m.vpboost", "--to", "numpy", "-o", "own")
    os.link("own/model.vpboost", "link.vpboost")
    os.mkdir("odd")
    os.replace("m.vpboost", "odd/predictor.py")
    for model, folder in (("own/model.vpboost", "own"), ("link.vpboost", "own"), ("odd/predictor.py", "odd")):
        before = os.stat(model).st_ino, os.stat(model).st_mtime_ns
        assert "the same file; give another folder" in fail(capsys, "export", model, "--to", "numpy", "-o", folder)
        assert (os.stat(model).st_ino, os.stat(model).st_mtime_ns) == before


@pytest.mark.parametrize("option", ["-o", "--report", "--checkpoint"])
def test_outputs_are_checked_before_a_long_fit(files, capsys, monkeypatch, option):
    import vpboost.cli.reading

    monkeypatch.setattr(vpboost.cli.reading, "read_table", lambda *_: pytest.fail("read before the check"))
    os.mkfifo("pipe")
    for path, message in {
        "no/such/x": "no folder",
        ".": "is a folder",
        "pipe": "not a regular file",
        "x" * 300: "name too long",
        "/dev/stdout": "not a file",
        "/dev/fd/1": "not a file",
        "-": "give the name of a file",
        "": "give the name of a file",
        "\udcff.x": "not UTF-8",
    }.items():
        assert message in fail(capsys, *TRAIN, option, path), path


def test_a_model_that_cannot_be_saved_anywhere_leaves_nothing_behind(files, capsys, monkeypatch):
    import vpboost

    def save_model(self, path, training_rows):
        raise OSError(28, "No space left on device")

    (files / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(files / "temporary"))
    monkeypatch.setattr(vpboost.VPBoostRegressor, "save_model", save_model)
    assert "No space left" in fail(capsys, *TRAIN, "-o", "x", "--quiet", *QUICK)
    assert not list((files / "temporary").iterdir())


@pytest.mark.skipif(os.getuid() == 0, reason="root may write anywhere")
def test_write_protected_folders(files, capsys):
    (files / "locked").mkdir(mode=0o500)
    assert "ermission" in fail(capsys, *TRAIN, "-o", "locked/m")


def test_predictions_are_written_whole_or_not_at_all(files, capsys, monkeypatch):
    (files / "p.csv").write_text("old\n")

    def burst(self, target, *_, **__):
        with open(target, "w") as file:
            file.write("half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pd.DataFrame, "to_csv", burst)
    assert "No space left" in fail(capsys, "predict", "m.vpboost", "t.csv", "-o", "p.csv")
    assert (files / "p.csv").read_text() == "old\n"
    assert not [path for path in os.listdir(files) if path.endswith(".part")]


def test_the_ending_says_the_format(files, capsys):
    expected = pd.read_csv("t.csv")["a"].to_list()
    for name in ("p.csv", "p.txt", "p", "p.CSV", "tmp.Xy12"):
        succeed(capsys, "predict", "m.vpboost", "t.csv", "-o", name, "--keep")
        assert (files / name).read_text().startswith("a,b,y,predicted_y\n0,0,")
    for name in ("p.tsv", "p.tsv.gz"):
        succeed(capsys, "predict", "m.vpboost", "t.csv", "-o", name, "--keep")
        assert pd.read_csv(name, sep="\t")["a"].to_list() == expected
    for name in ("p.csv.gz", "p.gz"):
        succeed(capsys, "predict", "m.vpboost", "t.csv", "-o", name, "--keep")
        assert gzip.decompress((files / name).read_bytes()).startswith(b"a,b,y,predicted_y\n0,0,")
    for name in ("p.parquet", "p.pq"):
        succeed(capsys, "predict", "m.vpboost", "t.csv", "-o", name, "--keep")
        assert pd.read_parquet(name)["a"].to_list() == expected
    for name in ("p.xlsx", "p.XLS", "p.ods", "p.json", "p.feather", "p.arrow", "p.html", "p.csv.zip", "p.parquet.gz"):
        printed = fail(capsys, "predict", "m.vpboost", "t.csv", "-o", name)
        assert "-o takes .csv, .txt" in printed
        assert not (files / name).exists()


def test_a_parquet_file_without_pyarrow_names_the_extra_before_the_model_is_read(files, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    printed = fail(capsys, "predict", "v.csv", "t.csv", "-o", "p.parquet")  # which is no model
    assert "pip install 'vpboost[parquet]'" in printed
    assert not (files / "p.parquet").exists()


def test_pictures_are_written_under_the_name_given(files, capsys):
    """To a name without an ending, matplotlib would add one."""
    for name in ("p", "p.csv", "p.png.part"):
        assert f"--plot takes .jpeg, .jpg, .pdf, .png, .svg, .webp, got {name}" in fail(
            capsys, "inspect", "m.vpboost", "--plot", name
        )
    assert "--picture takes" in fail(capsys, "demo", "--picture", "p")
    assert not list(files.glob("p*"))
    assert "the model has an empty name" in fail(capsys, "inspect", "")
    assert "the table has an empty name" in fail(capsys, "predict", "m.vpboost", "")


def test_kept_columns_must_not_clash_with_predictions(files, capsys):
    succeed(capsys, "predict", "m.vpboost", "t.csv", "-o", "p.csv", "--keep")
    printed = fail(capsys, "predict", "m.vpboost", "p.csv", "--keep")
    assert "has a column 'predicted_y' already" in printed


def test_missing_inputs_are_noticed_at_once(files, capsys, monkeypatch):
    import vpboost.estimators

    monkeypatch.setattr(vpboost.estimators, "load_model", lambda *_: pytest.fail("loaded before the check"))
    assert "no.csv does not exist" in fail(capsys, "predict", "m.vpboost", "no.csv")
    assert "no.csv does not exist" in fail(capsys, *TRAIN, "--validation", "no.csv", "-o", "x")
    assert ". is a folder" in fail(capsys, "inspect", ".")


def vpboost(*arguments, **streams):
    """Run the command line in a process of its own."""
    command = [sys.executable, "-m", "vpboost", *arguments]
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
    return subprocess.run(command, text=True, check=False, timeout=120, **streams)


def shell(script):
    """Run a shell script in which ``$V`` is the command line."""
    script = f'set -o pipefail; V="{sys.executable} -m vpboost"; {script}'
    return subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_standard_output_that_cannot_be_written_to(files):
    for command in ("predict m.vpboost t.csv", "inspect m.vpboost"):
        closed = shell(f"$V {command} >&-")
        assert (closed.returncode, closed.stderr) == (1, "vpboost: standard output is closed\n")
    full = shell("$V predict m.vpboost t.csv > /dev/full")
    assert (full.returncode, full.stderr) == (1, "vpboost: standard output: No space left on device\n")


@pytest.mark.slow
@pytest.mark.long
def test_unbuffered_standard_output_is_whole_or_an_error(files):
    """Which Python writes to without looking at how much was taken."""
    pd.concat([pd.read_csv("t.csv")] * 5).to_csv("long.csv", index=False)
    whole = vpboost("predict", "m.vpboost", "long.csv").stdout
    assert 1 << 12 < len(whole) < 1 << 13, "one write, which is cut short"
    for command in ("predict m.vpboost long.csv", "inspect m.vpboost --json"):
        found = shell(f"ulimit -f 4; PYTHONUNBUFFERED=1 $V {command} > cut.txt")
        assert (found.returncode, found.stderr) == (1, "vpboost: standard output: File too large\n"), command
    found = shell("PYTHONUNBUFFERED=1 $V predict m.vpboost long.csv")
    assert (found.returncode, found.stdout, found.stderr) == (0, whole, "")


@pytest.mark.long
@pytest.mark.slow
def test_broken_pipes_and_closed_error_streams(files):
    long = pd.concat([pd.read_csv("t.csv")] * 80)
    long.to_csv("long.csv", index=False)
    found = shell("$V predict m.vpboost long.csv --keep | head -1")
    assert (found.returncode, found.stdout, found.stderr) == (141, "a,b,y,predicted_y\n", "")
    found = shell("$V predict m.vpboost nothing.csv 2>&-")
    assert (found.returncode, found.stdout) == (1, ""), "no message where the predictions belong"


def test_pipes_where_only_files_will_do(files, capsys):
    os.mkfifo("pipe.parquet")
    assert "is not a regular file" in fail(capsys, "predict", "m.vpboost", "pipe.parquet")
    os.mkdir("export")
    os.mkfifo("export/predictor.py")
    assert "is not a regular file" in fail(capsys, "export", "m.vpboost", "--to", "numpy", "-o", "export")


def test_long_names_make_short_messages(files, capsys):
    name = "n" * 3_000_000
    (files / "long.csv").write_text(f"{name},y\n1,2\n3,4\n")
    assert len(fail(capsys, "train", "long.csv", "--target", "z")) < 3000


@pytest.mark.filterwarnings("default:mind the gap")
def test_warnings_are_lines_without_places(files, capsys, monkeypatch):
    from vpboost.cli import commands

    def load(path):
        warnings.warn("mind the gap", UserWarning, stacklevel=2)
        raise ValueError("no model")

    monkeypatch.setattr(commands, "load", load)
    assert run("evaluate", "m.vpboost", "t.csv") == 1
    assert capsys.readouterr().err == "vpboost: warning: mind the gap\nvpboost: no model\n"
