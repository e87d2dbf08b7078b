"""
Surrogate of a field
====================

A solver computes the temperature of a plate for given parameters. We run it a few hundred times, fit one model with
all 676 grid points as outputs, and look at where the stand-in is wrong.
"""

# %%
# The solver
# ----------
# A square plate, cold at its rim, heated by a round spot. Five numbers decide: where the spot is (two), how wide it is,
# how well the left half conducts, and how strongly the plate loses heat to the air. Finite differences and a sparse
# solve: a few milliseconds here, hours in earnest.

import time

import matplotlib.pyplot as plt
import numpy as np
from scipy.sparse import diags
from scipy.sparse.linalg import spsolve

from vpboost import VPBoostRegressor

SIDE = 26
axis = np.linspace(0, 1, SIDE + 2)[1:-1]
x, y = np.meshgrid(axis, axis)


def temperature(parameters):
    spot_x, spot_y, width, conductivity, loss = parameters
    k = 1 + (conductivity - 1) / (1 + np.exp((x - 0.5) / 0.05))  # of the left half, smoothly 1 on the right
    k = np.pad(k, 1, mode="edge")
    across, up = (k[1:-1, 1:] + k[1:-1, :-1]) / 2, (k[1:, 1:-1] + k[:-1, 1:-1]) / 2  # between neighbours
    centre = across[:, 1:] + across[:, :-1] + up[1:] + up[:-1]
    east = across[:, 1:].copy()
    east[:, -1] = 0  # the rim, not the next line
    east, north = east.ravel()[:-1], up[1:-1].ravel()
    matrix = diags([centre.ravel(), -east, -east, -north, -north], [0, 1, -1, SIDE, -SIDE]) * (SIDE + 1) ** 2
    matrix = matrix + loss * diags([np.ones(SIDE**2)], [0])
    source = np.exp(-((x - spot_x) ** 2 + (y - spot_y) ** 2) / (2 * width**2))
    return spsolve(matrix.tocsc(), 100 * source.ravel())


low, high = np.array([0.2, 0.2, 0.06, 0.5, 0.0]), np.array([0.8, 0.8, 0.2, 3.0, 20.0])
rng = np.random.default_rng(0)
X = rng.uniform(low, high, size=(450, 5))
fields = np.array([temperature(row) for row in X])

# %%
# One model for all grid points
# -----------------------------
# With 64 outputs or more, learners are trained on 32 combinations of the outputs, so 676 of them hardly cost more
# than a
# few. The settings below keep this page quick; the defaults take longer and get further.

train, test = slice(0, 350), slice(350, None)
model = VPBoostRegressor(
    n_chains=1, encoding="plain", inherit=0.8, max_features=1.0, activation="silu", learning_rate=0.3, n_estimators=60
)
began = time.perf_counter()
model.fit(X[train], fields[train])
print(f"fitted in {time.perf_counter() - began:.1f} s, {model.best_iteration_} learners")

prediction = model.predict(X[test])
error = np.linalg.norm(prediction - fields[test], axis=1) / np.linalg.norm(fields[test], axis=1)
print(f"relative error of a field: median {np.median(error):.4f}, worst {error.max():.4f}")

# %%
# Error maps
# ----------
# A typical plate and the worst one. The error is drawn on its own scale: it sits where the spot is narrow and near the
# edge between the two halves, where the field bends most.

order = np.argsort(error)
figure, axes = plt.subplots(2, 3, figsize=(9, 5.4))
for line, (row, name) in zip(axes, ((order[len(order) // 2], "typical"), (order[-1], "worst")), strict=True):
    truth, guess = fields[test][row].reshape(SIDE, SIDE), prediction[row].reshape(SIDE, SIDE)
    panels = (truth, "inferno", f"solver ({name})"), (guess, "inferno", "model"), (guess - truth, "RdBu_r", "error")
    for ax, (values, colours, title) in zip(line, panels, strict=True):
        limit = np.abs(values).max()
        low_limit = -limit if title == "error" else 0
        image = ax.imshow(values, origin="lower", extent=(0, 1, 0, 1), cmap=colours, vmin=low_limit, vmax=limit)
        figure.colorbar(image, ax=ax, shrink=0.85)
        ax.set(title=title, xticks=[], yticks=[])
plt.show()

# %%
# Where it is wrong, over all plates
# ----------------------------------
# The root of the mean squared error at each grid point, and the error of each plate by the width of its spot: narrow
# spots are the hard ones, so further runs of the solver should go there.

figure, (left, right) = plt.subplots(1, 2, figsize=(8.4, 3.4))
rms = np.sqrt(np.mean((prediction - fields[test]) ** 2, axis=0)).reshape(SIDE, SIDE)
figure.colorbar(left.imshow(rms, origin="lower", extent=(0, 1, 0, 1), cmap="magma"), ax=left, shrink=0.85)
left.set(title="error by place", xlabel="x", ylabel="y")
right.semilogy(X[test, 2], error, "o", alpha=0.6)
right.set(xlabel="width of the spot", ylabel="relative error", title="error by plate")
plt.show()

assert np.median(error) < 0.05

# sphinx_gallery_thumbnail_number = 1
