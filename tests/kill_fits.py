"""Kill fits and saves at random moments, without warning, and see that nothing is lost but time.

    python tests/kill_fits.py --count 20

A killed fit goes on from its checkpoint until it is done; its model must have the same bits as that of a fit left in
peace. A killed save must leave the old file or the new one.
"""

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from vpboost.files.atomic import write_file
from vpboost.files.container import unpack

FIT = """
import os, sys, numpy as np
import vpboost
from vpboost import VPBoostClassifier, VPBoostRegressor
from vpboost.callbacks import Checkpoint
kind, folder = sys.argv[1:3]
checkpoint, model = (os.path.join(folder, name) for name in ("checkpoint", "model"))
vpboost.cache_compilation(os.path.join(folder, "..", "cache"))
X = np.random.default_rng(0).normal(size=(400, 3))
y = np.sin(2 * X[:, 0]) * X[:, 1]
options = dict(n_estimators=40, max_steps=20, width=6, early_stopping_rounds=15)
if kind == "quick":  # without a race between profiles
    options.update(encoding="plain", inherit=0.5, max_features=1.0)
if kind == "classifier":
    estimator, y = VPBoostClassifier(**options), np.digitize(y, [-0.2, 0.2])
else:
    estimator = VPBoostRegressor(**options)
estimator.set_params(callbacks=[Checkpoint(checkpoint, every=1)])
print("fitting", flush=True)
estimator.fit(X, y, resume_from=checkpoint if os.path.exists(checkpoint) else None)
estimator.save_model(model)
"""

SAVE = """
import sys, itertools, numpy as np
from vpboost.files.atomic import write_file
from vpboost.files.container import pack
print("saving", flush=True)
for i in itertools.count():
    write_file(sys.argv[1], pack({"i": i}, {"a": np.full(300_000, float(i))}))
"""


def start(script, *arguments):
    process = subprocess.Popen(
        [sys.executable, "-c", script, *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    process.stdout.readline()  # it has begun
    process.stdout.close()
    return process


def numbers(path):
    """All numbers of a model but the seconds that stages took, which no two fits share."""
    content, arrays = unpack(Path(path).read_bytes(), str(path))
    return content, {name: array.tobytes() for name, array in arrays.items() if name != "history.seconds"}


def kill_fits(count, kind, rng, folder):
    """Kill fits at random moments and let them go on; return how many were killed before they were done."""
    whole, pieces = folder / "whole", folder / "pieces"
    for place in (whole, pieces):
        place.mkdir()
    for _ in range(2):  # the second time compiled, to know how long it takes
        (whole / "checkpoint").unlink(missing_ok=True)
        began = time.monotonic()
        assert start(FIT, kind, str(whole)).wait() == 0
    length, killed = time.monotonic() - began, 0
    while killed < count:
        process = start(FIT, kind, str(pieces))
        try:
            assert process.wait(rng.uniform(0, length)) == 0
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            killed += 1
            continue
        assert numbers(pieces / "model") == numbers(whole / "model")
        (pieces / "checkpoint").unlink()
    assert start(FIT, kind, str(pieces)).wait() == 0
    assert numbers(pieces / "model") == numbers(whole / "model")
    return killed


def kill_saves(count, rng, folder):
    """Kill a process that saves one file after the other; what is found is always whole."""
    path, seen = folder / "saved", set()
    for _ in range(count):
        process = start(SAVE, str(path))
        while not path.exists():
            time.sleep(0.01)
        time.sleep(rng.uniform(0.05, 0.3))
        process.send_signal(signal.SIGKILL)
        process.wait()
        content, arrays = unpack(path.read_bytes(), "saved")
        assert (arrays["a"] == content["i"]).all()
        seen.add(content["i"])
    write_file(path, path.read_bytes())  # which deletes what the killed ones left behind
    assert [file.name for file in folder.iterdir()] == [path.name]
    return seen


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    for kind in ("regressor", "classifier"):
        with tempfile.TemporaryDirectory() as folder:
            print(kind, kill_fits(options.count, kind, rng, Path(folder)), "fits killed, all resumed to the same bits")
    with tempfile.TemporaryDirectory() as folder:
        kill_saves(options.count, rng, Path(folder))
        print(options.count, "saves killed, every file whole")
