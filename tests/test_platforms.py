"""No GPU here: but every program of a fit can be written down for one, and for a TPU, which what is of CPUs cannot."""

from functools import partial

import equinox as eqx
import jax
import numpy as np
import pytest

from vpboost import MLP, MulticlassCrossEntropy, SquaredError, Training, boost
from vpboost.engine import choice

X = np.random.default_rng(0).uniform(-1, 1, size=(96, 3))
LABELS = (X[:, 0] > 0).astype(int) + (X[:, 1] > 0)
CASES = {
    "one output": (SquaredError(), X[:, 0] * X[:, 1], {}),
    "many outputs, sketched": (SquaredError(), X @ np.ones((3, 8)), {"sketch": 2}),
    "classes": (MulticlassCrossEntropy(), LABELS, {}),
    "classes, conjugate gradients": (MulticlassCrossEntropy(), LABELS, {"solver": "cg"}),
    "gradient descent": (SquaredError(), X[:, 0], {"method": "gd"}),
    "batches": (SquaredError(), X[:, 0], {"batch_size": 32}),
}  # fmt: skip


def programs_of(fit, monkeypatch):
    """Return the programs that a fit calls, with what they are given: each once."""
    seen = {}

    def note(function, args, quickly):
        seen.setdefault(function.__name__, (function, args))

    monkeypatch.setattr(choice, "_executable", note)
    fit()
    return seen


@pytest.mark.parametrize("platform", ["cuda", "rocm", "tpu"])
@pytest.mark.parametrize("case", CASES)
def test_programs_are_written_down_for_other_processors(case, platform, monkeypatch):
    loss, y, given = CASES[case]
    learner = {"featurizer": partial(MLP, width=3, depth=1), "training": Training(max_steps=2, **given)}
    seen = programs_of(
        lambda: boost(X, y, loss=loss, n_learners=2, validation=(X, y), engine="xla", **learner), monkeypatch
    )
    assert {"train", "assess", "update", "differentiate"} <= set(seen)
    for function, args in seen.values():
        assert "lapack" not in written(function, args, platform)
    if "solver" not in given and "method" not in given:
        assert "lapack" in written(*seen["assess"], "cpu")  # such is what would not run elsewhere


def written(function, args, platform):
    """Return a program as text for a platform."""
    arrays, others = eqx.partition(args, eqx.is_array)

    def program(arrays):
        return eqx.filter(function(*eqx.combine(arrays, others)), eqx.is_array)

    return jax.jit(program).trace(arrays).lower(lowering_platforms=(platform,)).as_text()
