"""
Sensitivity from exact derivatives
==================================

Which inputs matter? Sobol indices answer by variances and take tens of thousands of evaluations. Derivatives answer by
slopes, and a smooth model has them exactly. Here are both, beside each other, and beside the truth.
"""

# %%
# Ishigami's function is the usual test: three inputs, of which the third acts only together with the first. Its Sobol
# indices are known in closed form. Two hundred runs are all that the model sees.

import matplotlib.pyplot as plt
import numpy as np

from vpboost import VPBoostRegressor

A, B = 7.0, 0.1


def ishigami(x):
    return np.sin(x[:, 0]) + A * np.sin(x[:, 1]) ** 2 + B * x[:, 2] ** 4 * np.sin(x[:, 0])


rng = np.random.default_rng(0)
X = rng.uniform(-np.pi, np.pi, size=(200, 3))
model = VPBoostRegressor(n_chains=1, n_estimators=60, learning_rate=0.3).fit(X, ishigami(X))
fresh = rng.uniform(-np.pi, np.pi, size=(2000, 3))
print("R² on fresh points:", model.score(fresh, ishigami(fresh)))

# %%
# Sobol indices of the model
# --------------------------
# Saltelli's scheme: two samples, and for each input one in which only its column is exchanged. That takes five samples
# of 8,000 points: nothing for the model, a week for many a simulation.

n = 8000
one, other = rng.uniform(-np.pi, np.pi, size=(2, n, 3))
f_one, f_other = model.predict(one), model.predict(other)
variance = np.var(np.concatenate([f_one, f_other]))
first, total = np.empty(3), np.empty(3)
for i in range(3):
    mixed = one.copy()
    mixed[:, i] = other[:, i]
    f_mixed = model.predict(mixed)
    first[i] = np.mean(f_other * (f_mixed - f_one)) / variance
    total[i] = np.mean((f_one - f_mixed) ** 2) / (2 * variance)

# %%
# Derivative-based measures
# -------------------------
# The mean square of each slope bounds the total index from above: for an input spread evenly over an interval of length
# L, the bound is L²/π² times that mean over the variance. A few hundred points are enough, because slopes at each point
# are exact.

slopes = model.input_gradient(fresh[:500])
bound = (2 * np.pi) ** 2 / np.pi**2 * np.mean(slopes**2, axis=0) / variance

# %%
# And the truth
# -------------

v1, v2 = 0.5 * (1 + B * np.pi**4 / 5) ** 2, A**2 / 8
v13 = B**2 * np.pi**8 * (1 / 18 - 1 / 50)
true_first = np.array([v1, v2, 0]) / (v1 + v2 + v13)
true_total = np.array([v1 + v13, v2, v13]) / (v1 + v2 + v13)

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4))
place, names = np.arange(3), ["x₁", "x₂", "x₃"]
left.bar(place - 0.2, first, 0.18, label="first order, model", color="#2563a8")
left.bar(place, total, 0.18, label="total, model", color="#d9822b")
left.plot(place - 0.2, true_first, "k_", markersize=16, label="exact")
left.plot(place, true_total, "k_", markersize=16)
left.set(xticks=place, xticklabels=names, title="Sobol indices")
left.legend(frameon=False)
right.bar(place, bound, 0.4, color="#5b8c5a", label="bound by slopes")
right.plot(place, true_total, "k_", markersize=26, label="exact total index")
right.set(xticks=place, xticklabels=names, title="derivative-based bound on the total index")
right.legend(frameon=False)
plt.show()

# %%
# Where does an input matter?
# ---------------------------
# An index is one number for the whole cube. Slopes are known everywhere: those by x₃ are large at either end of its
# range, and there only, which no index can tell.

figure, axes = plt.subplots(1, 3, figsize=(10, 3), sharey=True)
slopes = model.input_gradient(fresh)
for i, ax in enumerate(axes):
    points = ax.scatter(fresh[:, i], slopes[:, i], c=fresh[:, 0], s=5, cmap="coolwarm")
    ax.set(xlabel=names[i], title=f"∂f/∂{names[i]}")
figure.colorbar(points, ax=axes, label="x₁")
plt.show()

assert np.abs(total - true_total).max() < 0.1
assert (bound > true_total - 0.1).all()
