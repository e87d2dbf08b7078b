"""
Classes with calibrated probabilities
=====================================

When the model says 80 %, is it right in eight of ten cases? How to see it, how to mend it, and sets of classes that
hold the true one as often as you ask.
"""

# %%
# Three kinds of signal, measured by six sensors; the classes overlap, so nobody can always be right.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import log_loss

from vpboost import VPBoostClassifier, plotting

rng = np.random.default_rng(0)
names = np.array(["drift", "normal", "spike"])


def measured(n):
    label = rng.integers(3, size=n)
    phase, strength = rng.uniform(0, 2 * np.pi, n), 0.5 + rng.random(n)
    time = np.linspace(0, 1, 6)
    shape = np.stack(
        [
            strength[:, None] * time,
            0.5 * np.sin(2 * np.pi * time + phase[:, None]),
            strength[:, None] * np.exp(-((time - 0.5) ** 2) / 0.02),
        ]
    )
    return shape[label, np.arange(n)] + 0.4 * rng.normal(size=(n, 6)), names[label]


X, y = measured(400)
X_more, y_more = measured(400)  # to calibrate with
X_test, y_test = measured(1500)

# %%
# A fit that is too sure of itself
# --------------------------------
# Forty large steps without early stopping: the training rows are learnt by heart, and probabilities come out too
# near 0
# and 1. ``plot_calibration`` shows how often the predicted class was right; points below the diagonal are too sure.
#
# ``calibrate`` looks at rows that the fit has not seen and divides all logits by one number, the temperature. The most
# probable class of each row stays the same; its probability becomes honest.

model = VPBoostClassifier(n_estimators=40, learning_rate=0.3, early_stopping_rounds=None).fit(X, y)
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), sharey=True)
plotting.plot_calibration(model, X_test, y_test, ax=left)
before = log_loss(y_test, model.predict_proba(X_test))
left.set_title(f"before: log-loss {before:.3f}")

model.calibrate(X_more, y_more)
plotting.plot_calibration(model, X_test, y_test, ax=right)
after = log_loss(y_test, model.predict_proba(X_test))
right.set(title=f"after: log-loss {after:.3f}", ylabel="")
plt.show()

# %%
# A default fit, which stops early, needs it less:

default = VPBoostClassifier(n_chains=1).fit(X, y)
print(f"default fit: log-loss {log_loss(y_test, default.predict_proba(X_test)):.3f}")
default.calibrate(X_more, y_more)
print(f"calibrated:  log-loss {log_loss(y_test, default.predict_proba(X_test)):.3f}")

# %%
# Sets of classes
# ---------------
# ``predict_set`` says which classes may be the true one. Sets of 95 % hold it in 95 of 100 rows; where the model knows,
# they have one class, elsewhere two or three.

truth = np.searchsorted(default.classes_, y_test)
coverages, held, size = np.linspace(0.7, 0.98, 15), [], []
for coverage in coverages:
    sets = default.predict_set(X_test, coverage=coverage)
    held.append(sets[np.arange(len(truth)), truth].mean())
    size.append(sets.sum(axis=1).mean())
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2))
left.plot(coverages, held, "o-")
left.plot(coverages, coverages, color="grey", linewidth=1)
left.set(xlabel="asked for", ylabel="held the true class", title="coverage of sets")
right.plot(coverages, size, "o-", color="#d9822b")
right.set(xlabel="asked for", ylabel="classes in a set", title="mean size of sets")
plt.show()

assert after < before
assert np.abs(np.array(held) - coverages).max() < 0.06
