"""
A featurizer with physics in it
===============================

The energy of a molecule repeats itself when a bond is turned once around, and stays the same when two equal atoms are
exchanged. A featurizer that knows it needs fewer data, and is right where there are none.
"""

# %%
# A made-up energy of one angle and two distances: periodic in the angle, symmetric in the distances.

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

from vpboost import MLP, VPBoostRegressor

rng = np.random.default_rng(0)


def energy(x):
    angle, one, other = x.T
    return (
        np.cos(3 * angle) / (one * other) + (one - 1.2) ** 2 + (other - 1.2) ** 2 + 0.3 * np.cos(angle) * (one + other)
    )


def geometries(n, first=-np.pi, last=np.pi):
    return np.column_stack([rng.uniform(first, last, n), rng.uniform(0.8, 2.0, size=(n, 2))])


X = geometries(150)
X = np.column_stack([X[:, 0], np.sort(X[:, 1:], axis=1)])  # whoever made the data put the shorter distance first
y = energy(X)
X, X_val, y, y_val = X[:120], X[120:], y[:120], y[120:]

# %%
# The featurizer
# --------------
# Learners see scaled columns, less their mean and over their spread *in the rows that are trained on*. So the module
# first
# goes back to units, then to numbers that do not change under the symmetries, and a small network does the rest. Its
# arrays are trained; everything else is fixed. (Validation rows are given, so that we know which rows are trained on.)

MEAN, SPREAD = X.mean(axis=0), X.std(axis=0)


class Molecule(eqx.Module):
    network: MLP

    def __init__(self, key, rows):
        self.network = MLP(key, jax.vmap(invariants)(rows), width=16)

    def __call__(self, x):
        return self.network(invariants(x))


def invariants(x):
    angle, one, other = MEAN + SPREAD * x
    around = jnp.stack([jnp.cos(angle), jnp.sin(angle), jnp.cos(2 * angle), jnp.sin(2 * angle)])
    return jnp.concatenate([around, jnp.stack([one + other - 2.8, (one - other) ** 2, one * other - 2.0])])


settings = {
    "encoding": "plain", "inherit": 0.8, "max_features": 1.0, "n_chains": 1, "learning_rate": 0.3, "max_steps": 100,
    "n_estimators": 60, "reg_lambda": 1e-4, "dtype": "float64", "engine": "numpy",
}  # fmt: skip
informed = VPBoostRegressor(featurizer=Molecule, **settings).fit(X, y, X_val=X_val, y_val=y_val)
plain = VPBoostRegressor(**settings).fit(X, y, X_val=X_val, y_val=y_val)

# %%
# Where there are no data
# -----------------------
# Three tests: geometries like those of training; the two atoms exchanged; the bond turned once more around.

test = geometries(500)
test = np.column_stack([test[:, 0], np.sort(test[:, 1:], axis=1)])
turned = test + np.array([2 * np.pi, 0, 0])
tests = {"like training": test, "atoms exchanged": test[:, [0, 2, 1]], "turned once more": turned}
for name, points in tests.items():
    errors = [np.std(model.predict(points) - energy(points)) / np.std(y) for model in (plain, informed)]
    print(f"{name}: error over spread, plain {errors[0]:.3f}, with physics {errors[1]:.3f}")

turn = np.linspace(-2 * np.pi, 2 * np.pi, 300)
line = np.column_stack([turn, np.full(300, 1.0), np.full(300, 1.5)])
distance = np.linspace(0.8, 2, 100)
swap = np.column_stack([np.full(100, 0.5), distance, np.full(100, 1.3)])
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6))
for ax, points, at in ((left, line, turn), (right, swap, distance)):
    ax.plot(at, energy(points), "k", linewidth=4, alpha=0.2, label="truth")
    ax.plot(at, plain.predict(points), color="#d9822b", label="plain network")
    ax.plot(at, informed.predict(points), color="#2563a8", label="with physics")
left.axvspan(-np.pi, np.pi, color="grey", alpha=0.12)
left.set(xlabel="angle (grey: where data are)", ylabel="energy", ylim=(-2, 3))
right.axvspan(0.8, 1.3, color="grey", alpha=0.12)
right.set(xlabel="first distance; the second is 1.3 (grey: where data are)")
left.legend(frameon=False)
plt.show()

moved = np.abs(informed.predict(turned) - informed.predict(test)).max()
print(f"turned once more around, predictions change by {moved:.1e}")
assert moved < 1e-6
assert np.abs(informed.predict(test[:, [0, 2, 1]]) - informed.predict(test)).max() < 1e-6
