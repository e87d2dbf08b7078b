"""
Three poor fits
===============

Three models of the same table that are poor for three reasons, and the pictures that tell them apart.
"""

# %%
# A smooth function of two of five inputs, with noise. A default fit shows what is possible.

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.exceptions import ConvergenceWarning

from vpboost import VPBoostRegressor, plotting

rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, size=(700, 5))
y = np.sin(5 * X[:, 0]) + X[:, 0] * X[:, 1] + 0.3 * rng.normal(size=700)
X, X_test, y, y_test = X[:300], X[300:], y[:300], y[300:]
good = VPBoostRegressor(n_chains=1).fit(X, y)
print(f"a good fit: R² {good.score(X_test, y_test):.3f}")

# %%
# The suspects
# ------------
# Each has one mistake in it. Guess from the pictures before you read on.

plain = {"encoding": "plain", "inherit": 0.8, "max_features": 1.0, "n_chains": 1}
suspects = {
    "A": VPBoostRegressor(**(plain | {"inherit": 0.0}), width=1, depth=0, learning_rate=0.3),
    "B": VPBoostRegressor(**plain, learning_rate=0.5, max_steps=60, reg_lambda=1e-6, n_estimators=20),
    "C": VPBoostRegressor(**plain, learning_rate=0.02, n_estimators=15),
}
figure, axes = plt.subplots(1, 3, figsize=(11, 3.4))
for ax, (name, model) in zip(axes, suspects.items(), strict=True):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        model.fit(X, y)
    said = "; ".join(str(one.message).split(";")[0] for one in caught) or "nothing"
    print(f"{name}: training R² {model.score(X, y):.3f}, test R² {model.score(X_test, y_test):.3f}; it says: {said}")
    plotting.plot_training(model, ax=ax)
    ax.set_title(name)
plt.show()

# %%
# A. Too weak
# -----------
# Training and validation level off together, high up. One feature without a hidden layer that starts afresh at every
# stage cannot follow a sine. Its *alignment*, the part of what is left that a learner's features could follow, is low
# beside that of a good fit. Larger learners mend it: ``width``, ``depth``, ``max_steps``.
#
# B. Overfitted
# -------------
# Training goes on falling, validation turns up at once: large learners, added whole, with hardly any penalty. Smaller
# steps mend it: ``learning_rate``, and a larger ``reg_lambda``.
#
# C. Unfinished
# -------------
# Both are still falling when the stages run out, and the fit has said so with a ``ConvergenceWarning``. More stages
# mend
# it: ``n_estimators``, or leave both to "auto".

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.4))
for name, model in [*suspects.items(), ("good", good)]:
    left.plot(model.history_["alignment"][:30], label=name)
left.set(xlabel="stage", ylabel="alignment", title="how much of what is left a learner can follow")
left.legend(frameon=False)
plotting.plot_predictions(suspects["A"], X_test, y_test, ax=right)
right.set_title("A: predictions do not reach the extremes")
plt.show()

# %%
# :doc:`Why is my fit poor? </guide/poor-fit>` has the same three in a table, and reasons that lie in the data: wild
# targets, identifiers, too few rows.

scores = {name: model.score(X_test, y_test) for name, model in suspects.items()}
assert max(scores.values()) < good.score(X_test, y_test)
