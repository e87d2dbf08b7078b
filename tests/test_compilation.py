import os
import subprocess
import sys

import jax
import pytest

import vpboost
from vpboost.engine import compilation

FIT = """
import sys, jax, numpy as np, vpboost
from functools import partial
print(vpboost.cache_compilation(sys.argv[1]))
misses = []
def note(name, **facts):
    if name.endswith("cache_misses"):
        misses.append(name)
jax.monitoring.register_event_listener(note)
x = np.linspace(-1, 1, 40)[:, None]
fit = vpboost.boost(x, x[:, 0] ** 2, loss=vpboost.SquaredError(), featurizer=partial(vpboost.MLP, width=3),
                    n_learners=1, training=vpboost.Training(max_steps=3))
print(fit.history[0].loss, len(misses))
"""
LAZY = """
import sys, vpboost
assert not {"jax", "sklearn", "scipy", "rich", "matplotlib", "pandas"} & set(sys.modules), "imported too early"
assert "boost" in dir(vpboost)
assert vpboost.callbacks.Checkpoint and vpboost.losses.Quantile(0.9)
assert vpboost.VPBoostRegressor().n_estimators == "auto"
assert not {"matplotlib", "optuna"} & set(sys.modules)
try:
    vpboost.nothing
except AttributeError as error:
    assert "vpboost attribute nothing" in str(error)
else:
    raise AssertionError("no error")
"""


def run(code, *arguments):
    return subprocess.run([sys.executable, "-c", code, *arguments], check=True, capture_output=True, text=True).stdout


@pytest.mark.slow
def test_names_are_imported_when_asked_for():
    run(LAZY)
    assert len(set(vpboost.__all__)) == len(vpboost.__all__) > 30
    assert {"VPBoostRegressor", "boost", "callbacks", "load_model", "__version__"} <= set(vpboost.__all__)
    assert all(getattr(vpboost, name) is not None for name in vpboost.__all__)


@pytest.mark.slow
def test_a_second_process_finds_the_programs_of_the_first(tmp_path):
    first, second = (run(FIT, str(tmp_path / "programs")).split() for _ in range(2))
    assert first[0] == second[0] == str(tmp_path / "programs")
    assert first[1] == second[1], "the same loss"
    assert int(first[2]) > 5
    assert int(second[2]) == 0, "nothing was compiled again"


def test_programs_are_forgotten_when_they_are_many(monkeypatch):
    calls = []
    monkeypatch.setattr(jax, "clear_caches", lambda: calls.append(1))
    compilation.forget_programs_if_many()
    assert not calls
    compilation.forget_programs_if_many(most_maps=1)
    assert calls == [1]


def test_options_that_xla_does_not_know_are_left_out(monkeypatch):
    assert compilation.quick_options() == compilation.QUICK
    monkeypatch.setattr(compilation, "QUICK", {"xla_no_such_option": True})
    assert compilation.quick_options.__wrapped__() == {}


def test_the_default_folder_is_of_the_user_and_the_processor(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    here = compilation.default_folder()
    assert here.parent == tmp_path / "vpboost"
    assert here == compilation.default_folder()
    monkeypatch.setattr(compilation.platform, "machine", lambda: "another")
    assert here != compilation.default_folder()
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(compilation.Path, "home", lambda: tmp_path / "me")
    assert compilation.default_folder().parent == tmp_path / "me" / ".cache" / "vpboost"


def test_the_oldest_programs_are_deleted_when_they_take_too_much(tmp_path):
    for age, name in enumerate("abcd"):
        (tmp_path / name).write_bytes(bytes(100))
        os.utime(tmp_path / name, (1e9 - age, 1e9 - age))
    compilation.delete_oldest(tmp_path, most_bytes=250)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a", "b"]


TRAIN = """
import sys, jax
from vpboost.cli.main import main
sys.exit(main(["train", sys.argv[1], "--target", "y", "-o", sys.argv[2], "--quiet", "--n-estimators", "1",
               "--max-steps", "2", "--encoding", "plain", "--set", "inherit=0", "--set", "engine=xla"]))
"""


@pytest.mark.slow
@pytest.mark.long
def test_the_command_line_keeps_programs_unless_told_where(tmp_path):
    table = tmp_path / "table.csv"
    table.write_text("x,y\n" + "".join(f"{i},{i * i}\n" for i in range(30)))
    environment = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}

    def train(**more):
        command = [sys.executable, "-c", TRAIN, str(table), str(tmp_path / "model")]
        subprocess.run(command, check=True, env=environment | more)

    train(XDG_CACHE_HOME=str(tmp_path / "mine"))
    assert len(list((tmp_path / "mine" / "vpboost").glob("*/*"))) > 5
    train(XDG_CACHE_HOME=str(tmp_path / "none"), JAX_COMPILATION_CACHE_DIR=str(tmp_path / "told"))
    assert any((tmp_path / "told").iterdir())
    assert not (tmp_path / "none").exists()
    train(XDG_CACHE_HOME=str(table))  # no folder: trains all the same
