"""Same seed, same machine: identical bits, on one core and on two, in new processes."""

import hashlib
import os
from functools import partial

import numpy as np
import pytest

from processes import run_as_users_do
from vpboost import MLP, MulticlassCrossEntropy, SquaredError, Training, boost

pytestmark = pytest.mark.slow

SCRIPT = """
import hashlib, os, sys
os.sched_setaffinity(0, [int(core) for core in sys.argv[1].split(",")])
from functools import partial
import numpy as np
from vpboost import MLP, MulticlassCrossEntropy, ResNet, SquaredError, Training, boost, datasets
digest = hashlib.sha256()
wide = np.random.default_rng(0).normal(size=(3000, 20))
mixed = np.tanh(wide @ np.random.default_rng(1).normal(size=(20, 40)))
for x, y, loss, factory, options in [
    (wide, mixed, SquaredError(), partial(ResNet, width=32), {}),
    (wide, wide[:, 0] ** 2, SquaredError(), partial(MLP, width=48, depth=1), {"batch_size": 2500, "candidates": 2}),
    (wide, np.argmax(wide[:, :10], axis=1), MulticlassCrossEntropy(), partial(MLP, width=32), {}),
]:
    fit = boost(x, y, loss=loss, featurizer=factory, n_learners=2, training=Training(max_steps=15, **options), seed=3)
    digest.update(fit.ensemble.predict(x).tobytes() + np.asarray(fit.ensemble.weights).tobytes())
print(digest.hexdigest())
"""


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system cannot pin a process to cores")
def test_same_bits_on_one_core_and_on_two():
    """Wide networks, many outputs, mini-batches, and a coupled system large enough for conjugate gradients."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        pytest.skip("this machine has one core")
    assert run_as_users_do(SCRIPT, str(cores[0])) == run_as_users_do(SCRIPT, f"{cores[0]},{cores[1]}")


@pytest.mark.parametrize(("loss", "y"), [(SquaredError(), "real"), (MulticlassCrossEntropy(), "class")])
def test_same_seed_same_bits_and_other_seed_other_bits(loss, y):
    x = np.random.default_rng(0).normal(size=(1500, 3))
    target = x[:, 0] * x[:, 1] if y == "real" else np.digitize(x[:, 0], [-0.5, 0.5])

    def digest(seed):
        fit = boost(
            x,
            target,
            loss=loss,
            featurizer=partial(MLP, width=5),
            n_learners=2,
            training=Training(max_steps=20),
            seed=seed,
        )
        return hashlib.sha256(fit.ensemble.predict(x).tobytes()).hexdigest()

    assert digest(0) == digest(0)
    assert digest(0) != digest(1)
