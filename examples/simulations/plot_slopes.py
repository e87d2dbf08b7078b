"""
Derivatives as data
===================

Adjoint solvers and automatic differentiation return the derivatives of a response beside its value, at little extra
cost. ``fit(X, y, dy=...)`` learns from both, and a run counts for several.
"""

# %%
# A smooth function of four inputs, written in JAX so that its gradient comes for free.

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

from vpboost import VPBoostRegressor


def response(x):
    return jnp.sin(2 * x[0] + x[1]) * jnp.exp(-(x[2] ** 2)) + 0.5 * x[3] * x[1]


rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, size=(160, 4))
y = np.asarray(jax.vmap(response)(X))
dy = np.array(jax.vmap(jax.grad(response))(X))
X_test = rng.uniform(-1, 1, size=(500, 4))
y_test = np.asarray(jax.vmap(response)(X_test))

# %%
# Fit growing numbers of runs, with and without their slopes. By default a fit would choose these settings itself, from
# several, and average chains; one fixed set keeps the page quick and the comparison plain.

settings = {
    "encoding": "plain", "inherit": 0.8, "max_features": 1.0, "relevance": False, "n_chains": 1, "refit_full": False,
    "activation": "silu", "weight_scale": 0.4, "reg_lambda": 1e-8, "dtype": "float64", "engine": "numpy",
    "max_steps": 60, "learning_rate": 0.5, "n_estimators": 20,
}  # fmt: skip
runs = {"values only": [20, 40, 80, 160], "values and slopes": [10, 20, 40]}
errors = {name: [] for name in runs}
for name, sizes in runs.items():
    for n in sizes:
        slopes = dy[:n] if name == "values and slopes" else None
        model = VPBoostRegressor(**settings).fit(X[:n], y[:n], dy=slopes)
        errors[name].append(np.std(model.predict(X_test) - y_test) / np.std(y_test))
        print(f"{name}, {n} runs: error {errors[name][-1]:.4f} of the spread")

# %%
# How many runs are slopes worth? Read along a horizontal line: as many as the distance between the curves says.

figure, ax = plt.subplots(figsize=(5.6, 3.6))
for (name, sizes), marker in zip(runs.items(), "os", strict=True):
    ax.loglog(sizes, errors[name], f"{marker}-", label=name)
ax.set(xlabel="runs of the solver", ylabel="error / spread", xticks=[10, 20, 40, 80, 160])
ax.set_xticklabels(["10", "20", "40", "80", "160"])
ax.minorticks_off()
ax.legend(frameon=False)
plt.show()

# %%
# A derivative that was not computed is NaN: give what you have.

dy[:, 3] = np.nan  # the solver knows nothing about the last input
partly = VPBoostRegressor(**settings).fit(X[:40], y[:40], dy=dy[:40])
print("without one of the four slopes:", np.std(partly.predict(X_test) - y_test) / np.std(y_test))

assert errors["values and slopes"][1] < errors["values only"][0]
