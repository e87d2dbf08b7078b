"""
Bayesian optimisation
=====================

Each evaluation costs a day. Where to evaluate next? Where the model promises most, or where it knows least: expected
improvement weighs both, and needs a mean and a standard deviation.
"""

# %%
# Branin's function has three equal minima. Eight evaluations to begin with, ten to choose. Learners made of bumps
# ("rbf") have a mean that is flat where nothing is known, and every row counts: none is set aside. With default
# settings the mean goes on rising and falling away from the data, and the search follows it to the edges: in six
# dimensions it came less far on five functions (``benchmarks/bayesian_optimisation.py``).

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import norm, qmc

from vpboost import VPBoostRegressor

LOW, HIGH = np.array([-5.0, 0.0]), np.array([10.0, 15.0])


def branin(x):
    a, b = x.T
    return (b - 5.1 / (4 * np.pi**2) * a**2 + 5 / np.pi * a - 6) ** 2 + 10 * (1 - 1 / (8 * np.pi)) * np.cos(a) + 10


def fitted(X, y):
    model = VPBoostRegressor(featurizer="rbf", n_estimators=10, learning_rate=0.3, early_stopping_rounds=None)
    return model.fit(X, np.log(y))  # the logarithm has no single high wall


def improvement(model, points, best):
    mean, std = model.predict(points, return_std=True)
    gain = (best - mean) / std
    return std * (gain * norm.cdf(gain) + norm.pdf(gain))


X = LOW + (HIGH - LOW) * qmc.LatinHypercube(2, seed=1).random(8)
y = branin(X)
axis = np.linspace(0, 1, 50)
grid = LOW + (HIGH - LOW) * np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
for _ in range(10):
    model = fitted(X, y)
    chosen = grid[np.argmax(improvement(model, grid, np.log(y).min()))]
    X, y = np.vstack([X, chosen]), np.append(y, branin(chosen[None]))
print(f"best of {len(y)} evaluations: {y.min():.3f}; the minimum is 0.398")

# %%
# What it knows, and what it does not
# -----------------------------------
# Left, the truth with all evaluations in their order; in the middle the model's mean, right its standard deviation:
# small where it has looked, large elsewhere.

model = fitted(X, y)
mean, std = model.predict(grid, return_std=True)
figure, axes = plt.subplots(1, 3, figsize=(11, 3.5), sharey=True)
panels = (np.log(branin(grid)), "truth (log)"), (mean, "model, mean"), (std, "model, standard deviation")
for ax, (values, title) in zip(axes, panels, strict=True):
    a, b = grid.reshape(50, 50, 2).T
    filled = ax.contourf(a, b, values.reshape(50, 50).T, 20, cmap="magma" if "dev" in title else "viridis")
    figure.colorbar(filled, ax=ax)
    ax.plot(*X[:8].T, "ws", markeredgecolor="k", markersize=6)
    ax.plot(*X[8:].T, "o", color="#ff7a1a", markeredgecolor="k", markersize=6)
    ax.set_title(title)
for number, place in enumerate(X[8:], start=1):
    axes[0].annotate(str(number), place, xytext=(4, 4), textcoords="offset points", color="white", fontsize=8)
plt.show()

# %%
# How far it has come: the best value found so far, above the minimum.

figure, ax = plt.subplots(figsize=(5.4, 3.2))
ax.semilogy(np.arange(1, len(y) + 1), np.minimum.accumulate(y) - 0.397887, "o-")
ax.axvline(8.5, color="grey", linestyle=":")
ax.set(xlabel="evaluations", ylabel="best found, less the minimum", title="after the dotted line, chosen")
plt.show()

assert y.min() < 2
