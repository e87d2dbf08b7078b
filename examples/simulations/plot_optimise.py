"""
Optimise through the model
==========================

A fitted model is a smooth function with exact derivatives, so any optimiser that asks for gradients can use it. We
look for the lightest beam that is stiff and strong enough, from 300 runs of a program that knows neither.
"""

# %%
# The program returns three numbers for a hollow box beam of given width, height, wall and length: its mass, how far its
# end bends under a load, and the largest stress. One model predicts all three.

import jax
import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import minimize

from vpboost import VPBoostRegressor

LOW, HIGH = np.array([4.0, 4.0, 0.2, 100.0]), np.array([12.0, 16.0, 1.0, 200.0])  # cm
NAMES = ["width", "height", "wall", "length"]


def beam(design):
    width, height, wall, length = design.T
    area = 2 * wall * (width + height - 2 * wall)
    inertia = (width * height**3 - (width - 2 * wall) * (height - 2 * wall) ** 3) / 12
    load = 2_000.0  # newton
    bending = load * length**3 / (3 * 7e6 * inertia)
    stress = load * length * height / (2 * inertia) / 100
    return np.stack([2.7e-3 * area * length, bending, stress], axis=1)  # kg, cm, MPa


rng = np.random.default_rng(0)
X = rng.uniform(LOW, HIGH, size=(300, 4))
y = np.log(beam(X))  # all three are positive and span decades
model = VPBoostRegressor(n_chains=1, n_estimators=80, learning_rate=0.3).fit(X[:250], y[:250])
print("R² on other runs:", model.score(X[250:], y[250:]))

# %%
# Minimise
# --------
# At least 150 cm long, bending less than 0.8 cm, stress below 120 MPa. ``as_jax`` is the model as a JAX function of one
# design; ``jax.jacobian`` differentiates it, and SLSQP does the rest.

LIMIT = np.log(np.array([0.8, 120.0]))
with jax.enable_x64(True):
    function = model.as_jax()
    value, slope = jax.jit(function), jax.jit(jax.jacobian(function))
    path = []
    found = minimize(
        lambda d: float(value(d)[0]),
        x0=np.array([8.0, 8.0, 0.8, 150.0]),
        jac=lambda d: np.asarray(slope(d)[0]),
        bounds=[*zip(LOW[:3], HIGH[:3], strict=True), (150.0, 150.0)],
        constraints={
            "type": "ineq",
            "fun": lambda d: LIMIT - np.asarray(value(d)[1:]),
            "jac": lambda d: -np.asarray(slope(d)[1:]),
        },
        callback=lambda d: path.append(d.copy()),
        method="SLSQP",
    )
promised, true = np.exp(model.predict(found.x[None])[0]), beam(found.x[None])[0]
print(f"{found.message} after {found.nit} steps")
print("design:", dict(zip(NAMES, found.x.round(2).tolist(), strict=True)))
print("model:  mass {:.2f} kg, bends {:.3f} cm, {:.1f} MPa".format(*promised))
print("truth:  mass {:.2f} kg, bends {:.3f} cm, {:.1f} MPa".format(*true))

# %%
# The way there
# -------------
# Mass over height and wall, at the width and length found; outside the white line the beam is too weak. The optimiser
# comes down to the edge of what is allowed, as it should. Always run the real program once at the end.

height, wall = np.meshgrid(np.linspace(LOW[1], HIGH[1], 60), np.linspace(LOW[2], HIGH[2], 60))
grid = np.stack([np.full(height.size, found.x[0]), height.ravel(), wall.ravel(), np.full(height.size, 150.0)], axis=1)
predicted = model.predict(grid)
excess = np.max(predicted[:, 1:] - LIMIT, axis=1).reshape(height.shape)

figure, ax = plt.subplots(figsize=(6, 4))
filled = ax.contourf(height, wall, np.exp(predicted[:, 0]).reshape(height.shape), 20, cmap="viridis")
ax.contour(height, wall, excess, [0], colors="white", linewidths=2)
ax.contourf(height, wall, excess, [0, excess.max()], colors="white", alpha=0.45)
steps = np.array([[8.0, 8.0, 0.8, 150.0], *path])
ax.plot(steps[:, 1], steps[:, 2], "o-", color="#d9822b", markersize=4, clip_on=False)
ax.plot(*found.x[1:3], "*", color="crimson", markersize=16, clip_on=False, zorder=5)
ax.set(xlabel="height, cm", ylabel="wall, cm", title="mass; pale: too weak; line: the optimiser's way")
figure.colorbar(filled, label="kg")
plt.show()

assert found.success
assert np.abs(promised / true - 1).max() < 0.05
