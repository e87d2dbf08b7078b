"""
The trust region at work
========================

Each stage promises how much the loss will fall, and is believed only as far as it proves right. What the theory of
convergence asks of learners can be seen at every stage.
"""

# %%
# The paper's third problem, five classes that are slices of a landscape, with the paper's settings but a small penalty
# λ_w: weights overshoot, and the trust region has something to do.

from functools import partial

import matplotlib.pyplot as plt
import numpy as np

from vpboost import MLP, MulticlassCrossEntropy, Training, TrustRegion, boost
from vpboost.datasets import task3

data = task3(n_train=500)
common = {
    "loss": MulticlassCrossEntropy(5), "featurizer": partial(MLP, width=8, depth=1), "n_learners": 10,
    "training": Training(max_steps=150), "validation": (data.x_val, data.y_val),
}  # fmt: skip
paper = boost(data.x_train, data.y_train, trust_region=TrustRegion.paper(reg_lambda=1e-8), **common)
ours = boost(data.x_train, data.y_train, trust_region=TrustRegion(reg_lambda=1e-8), **common)

# %%
# Promises kept
# -------------
# ρ is what the loss lost over what was promised. At one, the quadratic model is right; below zero, the loss would have
# risen. The paper rejects such a learner (crosses: its training is lost). This library raises λ_w and solves for its
# linear weights again, which costs next to nothing, until the promise is kept.


def column(fit, name):
    return np.array([getattr(record, name) for record in fit.history], dtype=float)


figure, axes = plt.subplots(2, 2, figsize=(10, 6), sharex=True)
for line, (fit, name) in zip(axes, ((paper, "the paper's"), (ours, "with re-solving")), strict=True):
    accepted, stage = column(fit, "accepted") == 1, np.arange(1, len(fit.history) + 1)
    ratio = np.clip(column(fit, "ratio"), -1.5, 2)
    line[0].axhspan(-1.6, 0, color="crimson", alpha=0.08)
    line[0].axhline(1, color="grey", linewidth=0.8)
    line[0].plot(stage[accepted], ratio[accepted], "o", label="accepted")
    line[0].plot(stage[~accepted], ratio[~accepted], "x", color="crimson", label="rejected")
    line[0].set(ylabel="ρ", ylim=(-1.6, 2.1), title=f"{name}: promises")
    line[0].legend(frameon=False)
    line[1].semilogy(stage, column(fit, "loss"), "o-", label="training loss")
    line[1].semilogy(stage, column(fit, "reg_lambda"), "s-", color="#d9822b", label="λ_w")
    line[1].set(title=f"{name}: loss and λ_w")
    line[1].legend(frameon=False)
for ax in axes[1]:
    ax.set_xlabel("stage")
plt.show()

# %%
# What the theory asks
# --------------------
# *Alignment*: the part of the gradient that a learner's features can follow; it must stay away from zero.
# *Sufficient decrease*: a learner's promised reduction must not be much smaller than that of the Cauchy point, a step
# straight down the gradient. *Radius*: a learner may not be larger than Δ = ‖A‖‖w‖, and by construction it is not.

figure, axes = plt.subplots(1, 3, figsize=(11, 3.2))
stage = np.arange(1, len(ours.history) + 1)
axes[0].plot(stage, column(ours, "alignment"), "o-")
axes[0].set(ylim=(0, None), title="gradient alignment (VP1)")
axes[1].semilogy(stage, column(ours, "model_reduction"), "o-", label="learner")
axes[1].semilogy(stage, column(ours, "cauchy_reduction"), "s--", label="Cauchy point")
axes[1].set(title="promised reduction")
axes[1].legend(frameon=False)
axes[2].semilogy(stage, column(ours, "radius"), "s--", color="#d9822b", label="radius Δ")
axes[2].semilogy(stage, column(ours, "step_norm"), "o-", label="size of the learner")
axes[2].set(title="the trust region")
axes[2].legend(frameon=False)
for ax in axes:
    ax.set_xlabel("stage")
plt.show()

# %%
# And what came of it
# -------------------

side = np.linspace(-3, 3, 150)
grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
figure, axes = plt.subplots(1, 2, figsize=(8, 3.8))
for ax, (fit, name) in zip(axes, ((paper, "the paper's"), (ours, "with re-solving")), strict=True):
    label = fit.ensemble.predict(grid).argmax(axis=1).reshape(150, 150)
    ax.imshow(label, origin="lower", extent=(-3, 3) * 2, cmap="viridis")
    right = np.mean(fit.ensemble.predict(data.x_test).argmax(axis=1) == data.y_test)
    ax.set(xticks=[], yticks=[], title=f"{name}: {right:.0%} right")
plt.show()

accepted = column(ours, "accepted") == 1
assert (np.diff(column(ours, "loss")) <= 1e-6).all()
assert (column(ours, "step_norm")[accepted] <= column(ours, "radius")[accepted] * 1.001).all()
