"""
Error bars
==========

Three ways to say how sure a prediction is: bounds that hold the truth as often as asked, noise apart from ignorance,
and a whole distribution for each row.
"""

# %%
# One input, so that all can be seen. The noise grows to the right, and there is a gap without any data.

import matplotlib.pyplot as plt
import numpy as np

from vpboost import VPBoostRegressor, plotting

rng = np.random.default_rng(1)


def data(n):
    x = rng.uniform(0, 10, n)
    x = x[(x < 4) | (x > 6)]
    return x[:, None], np.sin(x) + 0.05 * x * rng.normal(size=len(x))


X, y = data(350)
X_test, y_test = data(1500)
line = np.linspace(-2, 12, 300)[:, None]

model = VPBoostRegressor(n_chains=2).fit(X, y)

# %%
# Bounds, and ignorance
# ---------------------
# ``predict_interval`` has the same width everywhere: it promises coverage on average over rows like those of training,
# and knows nothing of gaps. ``return_std`` does: ignorance grows where there are no data.

low, high = model.predict_interval(line, coverage=0.9)
mean, noise, ignorance = model.predict_uncertainty(line)
std = np.hypot(noise, ignorance)

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8))
left.plot(X, y, ".", color="grey", markersize=3)
left.plot(line, mean, color="#2563a8")
left.fill_between(
    line[:, 0], mean - 1.64 * std, mean + 1.64 * std, alpha=0.2, color="#d9822b", label="return_std × 1.64"
)
left.fill_between(line[:, 0], low, high, alpha=0.3, color="#2563a8", label="predict_interval, 90 %")
left.set(xlabel="x", ylim=(-4, 4), title="bounds for rows, and for places without any")
left.legend(frameon=False, loc="lower left")
right.axvspan(4, 6, color="grey", alpha=0.15)
right.axvspan(-2, 0, color="grey", alpha=0.15)
right.axvspan(10, 12, color="grey", alpha=0.15)
right.plot(line, noise, label="noise")
right.plot(line, ignorance, label="ignorance")
right.set(xlabel="x (grey: no data)", title="the two parts of return_std", ylim=(0, None))
right.legend(frameon=False)
plt.show()

# %%
# A distribution for each row
# ---------------------------
# The noise is not the same everywhere. ``distribution="normal"`` learns its size as a function of the inputs.

law_model = VPBoostRegressor(distribution="normal", n_chains=2).fit(X, y)
law = law_model.predict_dist(line)
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8))
left.plot(X, y, ".", color="grey", markersize=3)
for coverage, shade in ((0.9, 0.2), (0.5, 0.3)):
    left.fill_between(line[:, 0], *law.interval(coverage), alpha=shade, color="#2563a8", label=f"{coverage:.0%}")
left.set(xlabel="x", xlim=(0, 10), ylim=(-3, 3), title='distribution="normal"')
left.legend(frameon=False)
right.plot(line, law.std(), label="learnt")
right.plot(line, 0.05 * line, "k--", linewidth=1, label="true")
right.set(xlabel="x", xlim=(0, 10), ylim=(0, 0.8), title="standard deviation of the noise")
right.legend(frameon=False)
plt.show()

# %%
# May it be that sure?
# --------------------
# On rows that it has not seen: how often do intervals hold the truth? Points on the diagonal are right. And the
# numbers:

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8))
plotting.plot_calibration(law_model, X_test, y_test, ax=left)
plotting.plot_interval_widths(law_model, X_test, y_test, coverage=0.9, ax=right)
plt.show()

low, high = model.predict_interval(X_test, coverage=0.9)
within = (low <= y_test) & (y_test <= high)
model.calibrate(*data(300))
low, high = model.predict_interval(X_test, coverage=0.9)
calibrated = (low <= y_test) & (y_test <= high)
law = law_model.predict_dist(X_test)
low, high = law.interval(0.9)
print(f"intervals of the fit itself: {within.mean():.3f} within; after calibrate: {calibrated.mean():.3f}")
print(f"distribution: {np.mean((low <= y_test) & (y_test <= high)):.3f} within, CRPS {law.crps(y_test).mean():.3f}")

assert abs(calibrated.mean() - 0.9) < 0.06
assert ignorance[150] > 3 * ignorance[100]

# sphinx_gallery_thumbnail_number = 1
