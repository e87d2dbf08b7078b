"""Rows shared out over devices: sums against NumPy, and the same bits whatever the number of devices is."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vpboost import MLP, SquaredError, VPBoostRegressor, boost
from vpboost.core.shared import prepare_shared
from vpboost.numerics.blocks import SharedLayout
from vpboost.numerics.devices import added_in_pairs, halved, mesh_of, n_shares

SCRIPT = Path(__file__).with_name("on_devices.py")


@given(st.integers(0, 10_000), st.sampled_from([1, 2, 3, 4, 6, 8, 16, 24]))
def test_runs_of_rows_are_nearly_equal_and_complete(n_rows, n_parts):
    sizes = np.diff([0, *halved(n_rows, n_parts)])
    assert sizes.sum() == n_rows
    assert sizes.min() >= n_rows // n_parts - 1
    assert sizes.max() <= -(-n_rows // n_parts) + 1


@given(st.integers(0, 10_000), st.sampled_from([2, 4, 8, 16]))
def test_a_half_has_the_same_runs_as_the_whole(n_rows, n_processes):
    whole = halved(n_rows, 16)
    parts, begin = [], 0
    for end in halved(n_rows, n_processes):
        parts += [begin + place for place in halved(end - begin, 16 // n_processes)]
        begin = end
    assert parts == whole


@given(st.lists(st.integers(-1000, 1000), min_size=1, max_size=40))
def test_sums_in_pairs_are_sums(numbers):
    assert float(added_in_pairs(jnp.array(numbers, jnp.float32))) == sum(numbers)


def test_sums_in_pairs_add_neighbours_first():
    big = 2.0**26  # to which single precision cannot add 1
    assert float(added_in_pairs(jnp.array([big, -big, 1.0, 1.0], jnp.float32))) == 2.0
    assert float(added_in_pairs(jnp.array([big, 1.0, -big, 1.0], jnp.float32))) == 0.0


@given(st.integers(16, 300), st.integers(1, 3), st.booleans())
def test_rows_in_shares_come_back_in_their_order(n_rows, blocks_each, shuffled):
    ends = halved(n_rows, 16)
    longest = int(np.diff([0, *ends]).max())
    order = np.concatenate(
        [np.random.default_rng(0).permutation(np.arange(b, e)) for b, e in zip([0, *ends], ends, strict=False)]
    )
    layout = SharedLayout(ends, blocks_each, -(-longest // blocks_each), order if shuffled else None)
    rows = np.arange(n_rows) * 1.5
    assert (layout.merge(layout.split(rows)) == rows).all()
    inputs = layout.split_inputs(rows[:, None], np.float64)
    assert (inputs[:, 0] == layout.split(rows)).all()


def test_weights_of_shared_rows_sum_to_one_and_padding_weighs_nothing():
    rng = np.random.default_rng(0)
    weight = rng.uniform(1, 1e6, size=77)
    given = rng.normal(size=(77, 2)), rng.normal(size=77), SquaredError(), weight
    data = prepare_shared(*given, dtype=np.float32, mesh=mesh_of(1))
    assert float(jnp.sum(data.weight)) == pytest.approx(1, abs=1e-6)
    np.testing.assert_allclose(data.rows_of(data.weight), weight / weight.sum(), rtol=1e-6)


@pytest.mark.parametrize("devices", [0, -1, 10_000, "some", [], [1], True, 2.0])
def test_devices_that_are_none_are_an_error(devices):
    with pytest.raises(ValueError, match="devices must be"):
        mesh_of(devices)


def test_devices_go_with_xla():
    with pytest.raises(ValueError, match="devices go with engine='xla'"):
        boost(np.zeros((20, 1)), np.zeros(20), loss=SquaredError(), featurizer=MLP, engine="numpy", devices=1)
    with pytest.raises(ValueError, match="devices go with engine='xla'"):
        VPBoostRegressor(engine="numpy", devices=1).fit(np.zeros((20, 1)), np.zeros(20))


def test_shares_suit_any_number_of_devices():
    for devices in range(1, 70):
        assert n_shares(devices) >= 16
        assert n_shares(devices) % devices == 0


def on_four_devices(*options):
    """Return what came of fits on four devices, in a process of their own: JAX counts devices once."""
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=4"
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, str(SCRIPT), *options]
    run = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=900)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.splitlines()[-1])


@pytest.mark.slow
def test_sums_and_models_on_four_devices():
    found = on_four_devices("--quick")
    for error, same in found["sums"].values():  # against NumPy
        assert error < 1e-6
        assert same
    for right in found["merges"].values():
        assert all(right), found["merges"]
    for case in ("all rows", "batches"):
        assert found[case]["1"] == found[case]["4"]  # the very bits
    assert len(set(found["predictions"])) == 1
    np.testing.assert_allclose(found["all rows"]["1"][1:], found["all rows"]["None"][1:], rtol=5e-3)


@pytest.mark.slow
@pytest.mark.long
def test_everything_has_the_same_bits_on_one_two_and_four_devices():
    found = on_four_devices()
    for case in ("all rows", "batches", "sketch", "classes", "conjugate gradients", "candidates"):
        assert found[case]["1"] == found[case]["2"] == found[case]["4"], case
    for case in ("all rows", "classes"):  # other shares change a model by rounding only
        for devices in ("1", "3"):
            np.testing.assert_allclose(found[case][devices][1:], found[case]["None"][1:], rtol=5e-3)
    for what in ("refit", "retrain", "estimator"):
        assert len(set(found[what].values())) == 1, what
    spread, told = found["spread inputs"]  # inputs that are spread choose their devices
    assert spread == told


def test_one_device_is_the_default():
    assert mesh_of(None) is None
    assert mesh_of(1).size == 1
    assert mesh_of(jax.local_devices()[:1]).size == 1
