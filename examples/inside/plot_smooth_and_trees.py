"""
What smooth learners see
========================

The same 300 points, fitted by smooth learners and by trees. Both predict well; only one of them has a slope.
"""

# %%
# Matlab's "peaks", a landscape of hills and hollows, at 300 random places.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.ensemble import GradientBoostingRegressor

from vpboost import VPBoostRegressor
from vpboost.datasets import peaks

rng = np.random.default_rng(0)
X = rng.uniform(-3, 3, size=(300, 2))
y = peaks(X)
# what a default fit finds out by itself, given here to be quick: no noise, so hardly any penalty and double precision
settings = {"encoding": "plain", "inherit": 0.8, "max_features": 1.0, "reg_lambda": 1e-8, "dtype": "float64"}
smooth = VPBoostRegressor(n_chains=1, learning_rate=0.3, n_estimators=60, max_steps=100, **settings).fit(X, y)
trees = GradientBoostingRegressor(n_estimators=400, max_depth=4, subsample=0.7, random_state=0).fit(X, y)

side = np.linspace(-3, 3, 121)
grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
truth = peaks(grid)
print(f"R² on a grid: smooth {smooth.score(grid, truth):.5f}, trees {trees.score(grid, truth):.5f}")

# %%
# Slopes
# ------
# ``input_gradient`` is exact. Trees are constant between their cuts; all one can do is to compare neighbouring points.


def difference(model, step=0.025):
    shift = np.array([step, 0])
    return (model.predict(grid + shift) - model.predict(grid - shift)) / (2 * step)


shift = np.array([1e-5, 0])
true_slope = (peaks(grid + shift) - peaks(grid - shift)) / 2e-5
slopes = {"truth": true_slope, "smooth learners": smooth.input_gradient(grid)[:, 0], "trees": difference(trees)}
values = {"truth": truth, "smooth learners": smooth.predict(grid), "trees": trees.predict(grid)}

figure, axes = plt.subplots(2, 3, figsize=(9.6, 6), sharex=True, sharey=True)
for column, name in enumerate(values):
    for row, (fields, limit) in enumerate(((values, 8), (slopes, 12))):
        image = axes[row, column].imshow(
            fields[name].reshape(121, 121),
            origin="lower",
            extent=(-3, 3, -3, 3),
            cmap="RdBu_r",
            vmin=-limit,
            vmax=limit,
        )
        axes[row, column].set(xticks=[], yticks=[])
        axes[row, column].spines[:].set_visible(False)
        if column == 2:
            figure.colorbar(image, ax=axes[row], shrink=0.8)
    axes[0, column].set_title(name)
axes[0, 0].plot(*X.T, "k.", markersize=2)
axes[0, 0].set_title("truth, 300 points")
axes[0, 0].set_ylabel("value")
axes[1, 0].set_ylabel("slope along x")
plt.show()

# %%
# Along one line
# --------------
# The steps of trees are where their cuts are, and those are where the data happened to lie.

line = np.stack([side, np.full(121, 1.0)], axis=1)
figure, ax = plt.subplots(figsize=(7, 3.4))
ax.plot(side, peaks(line), "k", linewidth=4, alpha=0.2, label="truth")
ax.plot(side, smooth.predict(line), color="#2563a8", label="smooth learners")
ax.plot(side, trees.predict(line), color="#d9822b", drawstyle="steps-mid", label="trees")
ax.set(xlabel="x, at y = 1", ylabel="value")
ax.legend(frameon=False)
plt.show()

relative = {name: np.std(field - true_slope) / np.std(true_slope) for name, field in slopes.items()}
print("error of the slope, over its spread:", {name: round(float(error), 3) for name, error in relative.items()})
assert relative["smooth learners"] < 0.3 < relative["trees"]
