"""Run by test_devices.py with four devices of the processor: prints what came of fits on some of them, as JSON."""

import hashlib
import json
import sys
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from vpboost import MLP, MulticlassCrossEntropy, SquaredError, Training, VPBoostRegressor, boost, refit, retrain
from vpboost.numerics.blocks import block_map, block_sum, known_everywhere, largest
from vpboost.numerics.devices import added_in_pairs, mesh_of, n_shares, put

rng = np.random.default_rng(0)
x = rng.normal(size=(601, 3))
y = np.sin(x[:, 0]) + x[:, 1] * x[:, 2]
several = np.stack([y, -2 * y, y**2], axis=1)
classes = (x[:, 0] > 0).astype(int) + (x[:, 1] > 0.3)
weight = rng.uniform(size=len(x))
learner = partial(MLP, width=4)


def mark(values):
    """Return a short name of the very bits of arrays."""
    leaves = [np.ascontiguousarray(leaf) for leaf in jax.tree.leaves(values) if hasattr(leaf, "shape")]
    return hashlib.sha256(b"".join(leaf.tobytes() for leaf in leaves)).hexdigest()[:12]


def fitted(target, loss, devices, **training):
    """Return marks and the losses of a fit."""
    given = {"loss": loss, "featurizer": learner, "n_learners": 2, "sample_weight": weight}
    found = boost(x, target, **given, training=Training(**training), validation=(x[:99], target[:99]), devices=devices)
    ensemble = found.ensemble
    return mark((ensemble.featurizers, ensemble.weights)), found.history[-1].loss, found.history[-1].validation_loss


CASES = {
    "all rows": (y, SquaredError(), {"max_steps": 8}),
    "batches": (y, SquaredError(), {"max_steps": 8, "batch_size": 512}),
    "sketch": (several, SquaredError(), {"max_steps": 8, "sketch": 2}),
    "classes": (classes, MulticlassCrossEntropy(3), {"max_steps": 8}),
    "conjugate gradients": (classes, MulticlassCrossEntropy(3), {"max_steps": 5, "solver": "cg", "majorant": True}),
    "candidates": (y, SquaredError(), {"max_steps": 5, "candidates": 2, "method": "vp_end"}),
}


def sums(devices):
    """Return how far a sum over blocks on devices is from that of NumPy, and whether a map returns what it should."""
    mesh = mesh_of(devices)
    blocks = rng.normal(size=(2 * n_shares(devices), 5, 64)).astype("f")
    with jax.set_mesh(mesh):
        lies = put(mesh, blocks)
        total = jax.jit(lambda b: block_sum(lambda one: one @ one.T, b))(lies)
        mapped = jax.jit(lambda b: block_map(jnp.sin, b))(lies)
    dense = np.einsum("bir,bjr->ij", *[blocks.astype(float)] * 2)
    return float(np.abs(np.asarray(total) - dense).max() / dense.max()), mark(mapped) == mark(
        np.asarray(jnp.sin(blocks))
    )


def merges(devices):
    """Say whether what devices merge is what NumPy finds: sums in pairs to the bit, blocks in order, maxima."""
    mesh = mesh_of(devices)
    blocks = rng.normal(size=(n_shares(devices), 7)).astype("f")
    with jax.set_mesh(mesh):
        lies = put(mesh, blocks)
        total = jax.jit(lambda b: block_sum(lambda one: one, b))(lies)
        whole = jax.jit(known_everywhere)(lies)
        highest = jax.jit(lambda b: largest(lambda some: jnp.max(some, axis=0), b))(lies)
        lies = put(mesh, np.where(np.arange(7) == 3, np.nan, blocks).astype("f"))
        holes = jax.jit(lambda b: largest(lambda some: jnp.max(some, axis=0), b))(lies)
    each = [part.data for part in total.addressable_shards]  # all devices have the same
    parts = blocks.reshape(devices, -1, 7)
    pairs = added_in_pairs(jnp.stack([added_in_pairs(jnp.asarray(part)) for part in parts]))
    return [
        {mark(one) for one in each} == {mark(pairs)},
        mark(whole) == mark(blocks),
        mark(highest) == mark(blocks.max(axis=0)),
        np.flatnonzero(np.isnan(holes)).tolist() == [3],
    ]


def quick_results():
    """Return what continuous integration has time for."""
    on = {"all rows": (None, 1, 4), "batches": (1, 4)}
    found = {name: {str(d): fitted(*CASES[name][:2], d, **CASES[name][2]) for d in on[name]} for name in on}
    many = np.repeat(x, 60, axis=0)  # so many that several devices get some
    ensemble = boost(
        x, y, loss=SquaredError(), featurizer=learner, n_learners=1, training=Training(max_steps=1)
    ).ensemble
    found["predictions"] = [mark(ensemble.predict(many, devices)) for devices in (None, 3, "all")]
    found["merges"] = {str(d): merges(d) for d in (1, 2, 3, 4)}
    return found | {"sums": {str(d): sums(d) for d in (1, 2, 3, 4)}}


def results():
    """Return everything that the tests look at."""
    found = {"sums": {str(d): sums(d) for d in (1, 2, 3, 4)}}
    for name, (target, loss, training) in CASES.items():
        on = (None, 1, 2, 4, 3) if name in ("all rows", "classes") else (1, 2, 4)
        found[name] = {str(d): fitted(target, loss, d, **training) for d in on}
    first = boost(x, y, loss=SquaredError(), featurizer=learner, n_learners=2, training=Training(max_steps=5)).ensemble
    again = Training(max_steps=5, step_size=0.01)
    found["refit"] = {str(d): mark(refit(first, x, y, loss=SquaredError(), devices=d).weights) for d in (1, 2)}
    rounds = {"training": again, "rounds": 1, "validation": (x[:99], y[:99])}
    found["retrain"] = {str(d): mark(retrain(first, x, y, loss=SquaredError(), devices=d, **rounds)) for d in (1, 2)}
    spread = jax.device_put(x[:600], NamedSharding(jax.make_mesh((4,), ("any",)), PartitionSpec("any")))
    found["spread inputs"] = [
        mark(boost(rows, y[:600], loss=SquaredError(), featurizer=learner, n_learners=1, devices=d).ensemble)
        for rows, d in ((spread, None), (np.asarray(spread), 4))
    ]
    fixed = {"encoding": "plain", "inherit": 0.8, "max_features": 1.0, "n_estimators": 3}
    found["estimator"] = {str(d): mark(VPBoostRegressor(**fixed, devices=d).fit(x, y).predict(x)) for d in (1, "all")}
    return found


if __name__ == "__main__":
    print(json.dumps(quick_results() if "--quick" in sys.argv else results()))
