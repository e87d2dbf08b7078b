"""No fit waits for ever; the whole of it is in stress_threads.py."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).parent / "stress_threads.py"


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(
    ("threads", "cores"),
    [(1, 2), *(pytest.param(*pair, marks=pytest.mark.long) for pair in ((2, 2), (1, 1), (2, 1), (4, 1), (4, 2)))],
)
def test_fits_of_many_classes_and_outputs_end(threads, cores):
    if cores > len(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else [0]):
        pytest.skip("needs two cores")
    command = [sys.executable, str(SCRIPT), f"--threads={threads}", f"--cores={cores}", "--classes"]
    if (threads, cores) == (1, 2):  # a race, which has threads of its own
        command += ["26", "--no-outputs"]
    elif (threads, cores) == (2, 2):
        command += ["128", "200", "1000", "--no-race"]
    else:
        command += ["200", "--no-race", "--no-outputs"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("has ended") == threads
