"""
A loss of your own, with coupled outputs
========================================

Three parts of a mixture are measured, each with an error of its own; their sum is known much better. A loss that
couples the outputs says so, in three lines.
"""

# %%
# The data: fractions of three substances as smooth functions of two settings. They add up to one. What is measured is
# noisy, and for training we let one part be measured by a rougher instrument.

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

from vpboost import VPBoostRegressor

rng = np.random.default_rng(0)


def fractions(x):
    weight = np.exp(np.stack([np.sin(3 * x[:, 0]), 1.5 * x[:, 1], x[:, 0] * x[:, 1]], axis=1))
    return weight / weight.sum(axis=1, keepdims=True)


X, X_test = rng.uniform(-1, 1, size=(300, 2)), rng.uniform(-1, 1, size=(1000, 2))
SPREADS = np.array([0.02, 0.02, 0.1])
y = fractions(X) + SPREADS * rng.normal(size=(300, 3))

# %%
# The loss
# --------
# It sees *one* prediction and *one* target, vectors with an entry for each output, and returns a number. Each error
# counts by its instrument; the last term couples the outputs, since errors of the sum are known to be tiny. It is
# convex,
# as it must be; ``fit`` checks that.


def balance(prediction, target):
    misfit = (prediction - target) / SPREADS
    return 0.5e-3 * jnp.sum(misfit**2) + 0.5e-3 * ((jnp.sum(prediction) - 1) / 0.005) ** 2


settings = {"n_chains": 1, "encoding": "plain", "inherit": 0.8, "max_features": 1.0, "n_estimators": 80}
coupled = VPBoostRegressor(loss=balance, learning_rate=0.2, **settings).fit(X, y)
plain = VPBoostRegressor(learning_rate=0.2, **settings).fit(X, y)

# %%
# What it brings
# --------------
# The sums are right, and because they are, the two good instruments mend the bad one.

truth = fractions(X_test)
found = {"squared error": plain.predict(X_test), "coupled": coupled.predict(X_test)}
errors = {name: np.sqrt(np.mean((p - truth) ** 2, axis=0)) for name, p in found.items()}
sums = {name: p.sum(axis=1) for name, p in found.items()}

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6))
place = np.arange(3)
for shift, (name, error) in zip((-0.2, 0.2), errors.items(), strict=True):
    left.bar(place + shift, error, 0.36, label=name)
left.set(xticks=place, xticklabels=["first", "second", "third\n(rough instrument)"], ylabel="error against the truth")
left.legend(frameon=False)
bins = np.linspace(0.9, 1.1, 61)
for name, total in sums.items():
    right.hist(np.clip(total, 0.9, 1.1), bins, alpha=0.6, label=f"{name}: spread {total.std():.4f}")
right.set(xlabel="sum of the predicted fractions", ylabel="rows")
right.legend(frameon=False)
plt.show()

# %%
# Derivatives respect the balance, too: what one fraction gains, the others lose.

slopes = coupled.input_gradient(X_test)  # (rows, outputs, inputs)
print("mean size of a slope:", np.abs(slopes).mean().round(3))
print("of the sum of slopes:", np.abs(slopes.sum(axis=1)).mean().round(4))

assert sums["coupled"].std() < sums["squared error"].std() / 2
assert errors["coupled"][2] < errors["squared error"][2]
