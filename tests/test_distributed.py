"""Fits by several real processes: the same bits as by one, errors that all see, and a process that is killed."""

import itertools
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from processes import run_as_users_do
from vpboost import VPBoostRegressor, distributed

SCRIPT = Path(__file__).with_name("on_processes.py")


def start(rank, count, port, folder, *cases, **environment):
    """Start one of the processes."""
    command = [sys.executable, "-W", "ignore", str(SCRIPT), *map(str, (rank, count, port, folder)), *cases]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env={**os.environ, **environment}, **pipes)


def by(count, folder, *cases, **environment):
    """Return what each of so many processes prints."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    running = [start(rank, count, port, folder, *cases, **environment) for rank in range(count)]
    found = []
    try:
        for process in running:
            out, err = process.communicate(timeout=300)
            assert process.returncode == 0, err
            lines = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
            found.append({name: result for line in lines for name, result in line.items()})
    finally:
        for process in running:
            process.kill()
            process.communicate()
    return found


@pytest.mark.slow
def test_two_and_four_processes_find_the_model_of_one_and_fail_together(tmp_path):
    (alone,) = by(1, tmp_path, "regression")
    assert {one["regression"]["mark"] for one in by(4, tmp_path, "regression")} == {alone["regression"]["mark"]}
    first, second = by(2, tmp_path, "regression", "wrong")
    assert first["regression"]["mark"] == second["regression"]["mark"] == alone["regression"]["mark"]
    assert first["regression"]["levels"] == ["cold", "hot", "rare"]
    assert (first["regression"]["seen"], second["regression"]["seen"]) == ([0, 1, 2], [])  # callbacks of process 0
    errors = first["wrong"]["errors"], second["wrong"]["errors"]
    for name, (where, message) in WRONG.items():
        if where == "both":
            assert errors[0][name] == errors[1][name], name
            assert message in errors[0][name], name
        else:
            assert message in errors[1][name], name
            assert f"ProcessError: process 1 of 2 failed: {errors[1][name]}" == errors[0][name], name


#: What is wrong in process 1, who says so in its own words, and what these are.
WRONG = {
    "columns": ("both", "columns must be alike in all processes: process 0 has [5], process 1 has [1]"),
    "names": ("both", "process 0 has 'c' at place 2, process 1 has 'C' at place 2"),
    "order": ("both", "columns (their names) must be alike"),
    "kinds": ("both", "process 0 has 'category' at place 3, process 1 has 'number' at place 3"),
    "target": ("one", "Input y contains NaN"),
    "shape": ("both", "outputs must be alike in all processes: process 0 has '1 of 1-D y', process 1 has '1 of 2-D y'"),
    "rows": ("one", "X and y must have as many rows"),
    "empty": ("one", "0 sample(s)"),
    "few": ("both", "process 1 has 1 rows, 8 at least are needed"),
    "weights": ("one", "non-zero"),
    "labels": ("both", "kinds of labels must be alike in all processes: process 0 has 'numbers', process 1 has 'text'"),
    "validation": ("both", "validation rows, given or not, must be alike"),
    "half of it": ("both", "X_val and y_val must be given together"),
    "checkpoint": ("both", "resume_from, given or not, must be alike"),
    "garbage": ("both", "/garbage is not a vpboost file"),
    "setting": ("both", "the parameter width must be alike in all processes: process 0 has 4, process 1 has 8"),
    "estimator": ("both", "kinds of estimators must be alike"),
    "dates": ("one", "TypeError: labels must be numbers or text in fits by several processes, got datetime.date(2020"),
    "nothing": ("one", "TypeError: estimator must be a VPBoostRegressor or VPBoostClassifier, got NoneType"),
    "weights of classes": ("both", "the parameter class_weight must be alike in all processes"),
    "levels": ("both", "column 'kind' of X has 403 different values; at most 300"),
}


@pytest.mark.slow
def test_a_process_that_fails_alone_does_not_get_the_answers_of_another_fit(tmp_path):
    first, second = by(2, tmp_path, "apart")
    assert second["apart"]["errors"][0].startswith("ZeroDivisionError")
    assert first["apart"]["errors"] == ["ProcessError: process 1 of 2 failed: ZeroDivisionError: division by zero"]
    assert second["apart"]["errors"][1:] == []  # they are at the same place, and go on together
    assert first["apart"]["mark"] == second["apart"]["mark"]


@pytest.mark.slow
def test_ctrl_c_in_one_process_ends_the_fit_in_all_and_metrics_are_the_first_ones(tmp_path):
    first, second = by(2, tmp_path, "measured", "pressed")
    assert first["pressed"] == second["pressed"]
    for found in first["pressed"].values():
        assert 0 < found["stages"] < 3000
        assert found["status"] == f"interrupted after {found['stages']} stages"
    assert first["measured"]["score"] == second["measured"]["score"]
    assert first["measured"]["error"] == "RuntimeError: no metric"
    assert second["measured"]["error"] == "ProcessError: process 0 of 2 failed: RuntimeError: no metric"


@pytest.mark.slow
@pytest.mark.long
def test_what_differs_between_processes_and_does_not_matter(tmp_path):
    (alone,) = by(1, tmp_path, "odd", "unequal")
    first, second = by(2, tmp_path, "odd", "unequal")
    assert first == second
    assert first["odd"] == alone["odd"]
    assert first["odd"]["kinds"][3] == "category"
    assert first["unequal"]["validated"] == alone["unequal"]["validated"] == 20
    assert first["unequal"]["score"] == pytest.approx(alone["unequal"]["score"], abs=0.05)


@pytest.mark.slow
@pytest.mark.long
def test_races_chains_holes_and_classes_are_the_same_for_one_two_and_four_processes(tmp_path):
    found = [one for count in (1, 2, 4) for one in by(count, tmp_path, "race", "classes")]
    assert found[0]["classes"]["classes"] == ["high", "low", "middle"]
    for one in found[1:]:
        assert one == found[0]


@pytest.mark.slow
@pytest.mark.long
def test_a_killed_process_ends_the_others_and_one_process_can_go_on(tmp_path):
    (whole,) = by(1, tmp_path, "lost")
    for victim in (0, 1):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        dies = {"DIES": "yes"}
        running = [start(rank, 2, port, tmp_path, "lost", **(dies if victim == 0 else {})) for rank in range(2)]
        if victim == 1:  # callbacks are called in process 0: kill the other from here, once a checkpoint is there
            (tmp_path / "state").unlink(missing_ok=True)
            while not (tmp_path / "state").exists() and running[0].poll() is None:
                pass
            running[1].kill()
        survivor = running[1 - victim]
        _, err = survivor.communicate(timeout=90)
        running[victim].communicate(timeout=30)
        assert survivor.returncode != 0
        assert "cannot reach another one" in err or "coordination" in err.lower()
        (resumed,) = by(1, tmp_path, "lost", RESUME="yes")
        assert resumed["lost"]["mark"] == whole["lost"]["mark"]


def test_a_process_alone_may_fit(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(120, 2))
    y = X[:, 0] * X[:, 1]
    fixed = {"encoding": "plain", "inherit": 0.8, "max_features": 1.0}
    model = distributed.fit(VPBoostRegressor(n_estimators=3, **fixed), X, y)
    assert model.score(X, y) > 0.2
    model.save_model(tmp_path / "model")


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"warm_start": True}, "warm_start"), ({"engine": "numpy"}, "engine"), ({"refit_full": True}, "refit_full")],
)
def test_what_is_not_for_several_processes_is_an_error(settings, message):
    with pytest.raises(ValueError, match=message):
        distributed.fit(VPBoostRegressor(**settings), np.zeros((20, 1)), np.zeros(20))


def test_too_few_rows_are_an_error_that_says_how_many():
    with pytest.raises(ValueError, match="process 0 has 5 rows, 16 at least"):
        distributed.fit(VPBoostRegressor(), np.zeros((5, 1)), np.zeros(5))
    with pytest.raises(TypeError, match="estimator must be"):
        distributed.fit(object(), np.zeros((5, 1)), np.zeros(5))


def test_an_address_needs_a_port():
    with pytest.raises(ValueError, match="coordinator_address must be 'host:port'"):
        distributed.initialize("localhost", 1, 0)


def test_without_a_launcher_that_jax_knows_an_error_says_what_is_needed(monkeypatch):
    for name in ("SLURM_JOB_ID", "OMPI_MCA_orte_hnp_uri", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    script = """
from vpboost import distributed
try:
    distributed.initialize()
except ValueError as error:
    print(error)
"""
    found = run_as_users_do(script)
    assert "no launcher that it knows" in found
    assert "give coordinator_address, num_processes and process_id" in found


def test_rows_of_processes_cover_all_rows():
    runs = distributed.rows_of(103, 4)
    assert runs[0][0] == 0
    assert runs[-1][1] == 103
    assert all(one[1] == following[0] for one, following in itertools.pairwise(runs))
