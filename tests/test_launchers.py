"""Launchers on docs/distributed.md start processes that find one model: the very bits of a fit begun by hand."""

import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys

import pytest

from test_pages import DOCS, blocks

pytestmark = [pytest.mark.slow, pytest.mark.long]

#: Rows of a process, as the snippets on the page make them up, and the model of all.
TRAIN = """
import os
import jax, numpy as np
from vpboost import VPBoostRegressor, distributed
{initialize}
X = np.random.default_rng(jax.process_index()).uniform(-1, 1, size=(1000, 3))
models = [distributed.fit(VPBoostRegressor(n_estimators=5), X, X[:, 0] * X[:, 1])]
count = jax.process_count()
"""
#: What a script prints of its models in the end.
TELL = """
import hashlib, json, numpy as np
rows = np.random.default_rng(9).uniform(-1, 1, size=(500, 3))
marks = [hashlib.sha256(model.predict(rows).tobytes()).hexdigest() for model in models]
print("\\n" + json.dumps({"count": count, "marks": marks}), flush=True)
"""
#: What launchers set, and must not come from the machine that tests run on.
FOREIGN = ("SLURM_", "OMPI_", "PMIX_", "KUBERNETES_")


def free_port(first=0):
    """Return a free port, one of the 4,096 highest if ``first`` is the first of these."""
    for port in range(first, first + 4096) if first else [0]:
        with socket.socket() as free:
            try:
                free.bind(("", port))
            except OSError:
                continue
            return free.getsockname()[1]
    pytest.skip("no free port")


def start(script, *before, **environment):
    """Start a script under a launcher, with these variables."""
    mine = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    command = [*before, sys.executable, "-W", "ignore", str(script)]
    return subprocess.Popen(command, env={**mine, **environment}, **pipes)


def told(running):
    """Return how many processes the scripts were, and marks of their models."""
    counts, marks = set(), []
    try:
        for process in running:
            out, err = process.communicate(timeout=300)
            assert process.returncode == 0, err
            for line in out.splitlines():
                if line.startswith('{"count"'):
                    found = json.loads(line)
                    counts.add(found["count"])
                    marks += found["marks"]
    finally:
        for process in running:
            process.kill()
            process.communicate()
    return counts, marks


def script_with(folder, initialize):
    path = folder / "train.py"
    path.write_text(TRAIN.format(initialize=initialize) + TELL)
    return path


@pytest.fixture(scope="module")
def by_hand(tmp_path_factory):
    """Return the mark of the model of two processes begun by hand."""
    line = f'distributed.initialize("127.0.0.1:{free_port()}", 2, int(os.environ["RANK"]))'
    path = script_with(tmp_path_factory.mktemp("by hand"), line)
    counts, marks = told([start(path, RANK=str(rank)) for rank in range(2)])
    assert counts == {2}
    assert len(marks) == 2
    assert marks[0] == marks[1]
    return marks[0]


def test_variables_of_slurm(tmp_path, by_hand):
    """As srun sets them; JAX makes a port of the job's number."""
    path, first = script_with(tmp_path, "distributed.initialize()"), 65536 - 4096
    common = {"SLURM_JOB_ID": str(free_port(first) - first), "SLURM_STEP_NODELIST": "localhost", "SLURM_NTASKS": "2"}
    running = [start(path, **common, SLURM_PROCID=str(rank), SLURM_LOCALID=str(rank)) for rank in range(2)]
    assert told(running) == ({2}, [by_hand] * 2)


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="mpirun of Open MPI is not installed")
@pytest.mark.parametrize(
    "line",
    [
        "distributed.initialize()",
        'distributed.initialize("127.0.0.1:{port}", int(os.environ["OMPI_COMM_WORLD_SIZE"]), '
        'int(os.environ["OMPI_COMM_WORLD_RANK"]))',
    ],
)
def test_open_mpi(tmp_path, by_hand, line):
    version = subprocess.run(["mpirun", "--version"], capture_output=True, text=True).stdout
    if "Open MPI" not in version or ("Open MPI) 4" not in version and "COMM_WORLD" not in line):
        pytest.skip("JAX knows Open MPI 4 only")
    root = ["--allow-run-as-root"] if os.getuid() == 0 else []
    command = ["mpirun", *root, "--oversubscribe", "-n", "2"]
    path = script_with(tmp_path, line.replace("{port}", str(free_port())))
    assert told([start(path, *command)]) == ({2}, [by_hand] * 2)


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_torchrun(tmp_path, by_hand):
    where = f"f\"{{os.environ['MASTER_ADDR']}}:{free_port()}\""
    line = f'{where}, int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])'
    path = script_with(tmp_path, f"distributed.initialize({line})")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--no-python"]
    assert told([start(path, *command)]) == ({2}, [by_hand] * 2)


@pytest.mark.parametrize("library", ["ray", "pyspark"])
def test_snippets_on_the_page(tmp_path, by_hand, library):
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    if library == "pyspark" and shutil.which("java") is None:
        pytest.skip("Spark needs java, which is not installed")
    (snippet,) = [block for block in blocks(DOCS / "distributed.md", "py") if f"import {library}\n" in block]
    path = tmp_path / "script.py"
    path.write_text(snippet + TELL)
    known = {"PYSPARK_PYTHON": sys.executable, "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0"}
    assert told([start(path, **known)]) == ({2}, [by_hand] * 2)
