"""
A sensor table with everything in it
====================================

Numbers, categories, dates, missing values and noise: a table as it comes. Give it to ``fit`` as it is.
"""

# %%
# The data are made up: power drawn by cooling units at three sites, every four hours for half a year. It depends on the
# temperature, the hour, the day of the week and the site; a sensor drifts; one temperature in twelve is missing.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from vpboost import VPBoostRegressor, plotting

rng = np.random.default_rng(0)
n = 1100
when = pd.date_range("2024-01-01", periods=n, freq="4h")
site = rng.choice(["harbour", "hill", "valley"], n, p=[0.5, 0.3, 0.2])
season = 12 - 10 * np.cos(2 * np.pi * when.day_of_year / 365)
temperature = season + 4 * np.sin(2 * np.pi * (when.hour - 9) / 24) + rng.normal(0, 2, n)
base = pd.Series(site).map({"harbour": 20.0, "hill": 14.0, "valley": 26.0}).to_numpy()
working = np.where(when.day_of_week < 5, 6.0, 0.0) * np.exp(-((when.hour - 13) ** 2) / 30)
drift = 0.02 * np.arange(n) / 6  # of the power meter, kW a day
power = base + 8 * np.log1p(np.exp((temperature - 16) / 3)) + working + drift + rng.normal(0, 1.0, n)
power = np.asarray(power)

humidity = rng.uniform(30, 90, n)  # has nothing to do with it
table = pd.DataFrame({"when": when, "site": site, "temperature": temperature.round(1), "humidity": humidity})
table.loc[rng.random(n) < 1 / 12, "temperature"] = np.nan
print(table.head())

# %%
# Fit
# ---
# Nothing to prepare: the date becomes a trend and its place in the day, the week and the year; the site becomes three
# columns; where the temperature is missing, a column says so. Rows are held out at random here; to forecast, hold out
# the last ones.

order = rng.permutation(n)
train, test = order[:850], order[850:]
model = VPBoostRegressor(n_chains=1).fit(table.iloc[train], power[train])
print(f"R² {model.score(table.iloc[test], power[test]):.3f}")
residual = power[test] - model.predict(table.iloc[test])
known = table.iloc[test]["temperature"].notna().to_numpy()
print(f"error: {residual[known].std():.2f} kW, where the temperature is missing {residual[~known].std():.2f} kW")
print("the noise put in: 1.00 kW")

# %%
# What it has learnt
# ------------------
# Partial dependence on a number, a category and a date; and predictions against the truth.

figure, axes = plt.subplots(2, 2, figsize=(10, 6.4))
for ax, column in zip(axes.flat, ("temperature", "site", "when"), strict=False):
    plotting.plot_partial_dependence(model, table.iloc[test], column, ax=ax)
plotting.plot_predictions(model, table.iloc[test], power[test], ax=axes[1, 1])
axes[1, 0].tick_params(axis="x", labelrotation=30)
plt.show()

# %%
# How important is each column?
# -----------------------------
# ``feature_importances_`` goes by derivatives, so it says nothing of categories and only half the truth of dates: for
# decisions, permute.

from sklearn.inspection import permutation_importance

permuted = permutation_importance(model, table.iloc[test], power[test], n_repeats=5, random_state=0)
figure, ax = plt.subplots(figsize=(5.6, 2.8))
ax.barh(table.columns, permuted.importances_mean, xerr=permuted.importances_std, color="#2563a8")
ax.set(xlabel="R² lost when the column is shuffled")
plt.show()

assert model.score(table.iloc[test], power[test]) > 0.9

# sphinx_gallery_thumbnail_number = 1
