"""Draw the pictures of docs/how-it-works.md from real fits of a curve of one input.

python docs/draw_method.py
"""

from functools import partial
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from gallery_look import LOOK

from vpboost import MLP, SquaredError, Training, TrustRegion, boost

FOLDER = Path(__file__).parent / "images"
BLUE, ORANGE, GREY = "#2563a8", "#d9822b", "#8a8f98"
LINE = np.linspace(-1, 1, 400)[:, None]


def curve(x: np.ndarray) -> np.ndarray:
    """Return the truth."""
    return np.sin(6 * x[:, 0]) * np.exp(x[:, 0]) / 1.5


def points(n: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Return noisy points of the curve."""
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(-1, 1, size=(n, 1)), axis=0)
    return x, curve(x) + 0.12 * rng.normal(size=n)


def fit(n_learners: int = 10, max_steps: int = 200, **options: Any) -> Any:
    """Boost learners of three features."""
    x, y = points()
    training = Training(max_steps=max_steps, method=options.pop("method", "vp"))
    region = TrustRegion(reg_lambda=1e-3, rate=options.pop("rate", 0.5))
    return boost(
        *(x, y),
        loss=SquaredError(),
        featurizer=partial(MLP, width=options.pop("width", 3), depth=0),
        n_learners=n_learners,
        training=training,
        trust_region=region,
        engine="numpy",
        seed=options.pop("seed", 1),
    )


def draw_stages() -> None:
    """Draw the sum of the first few learners, and what is left."""
    (x, y), ensemble = points(), fit().ensemble
    staged = ensemble.staged_predict(LINE)[..., 0]
    at_points = ensemble.staged_predict(x)[..., 0]
    figure, axes = plt.subplots(2, 3, figsize=(9.6, 4.6), sharex=True, sharey="row", height_ratios=[2, 1])
    for column, number in enumerate((1, 3, 10)):
        above, below = axes[:, column]
        above.plot(x, y, ".", color=GREY)
        above.plot(LINE, staged[number], color=BLUE, linewidth=2)
        above.set_title(f"{number} learner{'s' if number > 1 else ''}")
        below.axhline(0, color=GREY, linewidth=0.8)
        below.plot(x, y - at_points[number], ".", color=ORANGE)
    axes[0, 0].set_ylabel("data, prediction")
    axes[1, 0].set_ylabel("what is left")
    figure.savefig(FOLDER / "stages.png")


def draw_features() -> None:
    """Draw the features of one learner, and the sum of them that fits best."""
    (x, y), found = points(), fit(n_learners=1, rate=1.0, width=4, max_steps=300, seed=3)
    featurizer, weights = found.ensemble.unstack()[0]
    features = np.stack([np.asarray(featurizer(row)) for row in LINE.astype(np.float32)])
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 3.4))
    left.plot(LINE, features[:, :4])
    left.set_title("four features of x: where they bend is θ")
    right.plot(x, y, ".", color=GREY, label="data")
    for number in range(4):
        part = features[:, number] * np.asarray(weights)[number, 0]
        right.plot(LINE, part, linewidth=0.9, alpha=0.5)
    right.plot(LINE, found.ensemble.predict(LINE)[:, 0], color=BLUE, linewidth=2.5, label="their best sum, by W")
    right.set(title="each times its weight, and the sum", ylim=(-3, 4))
    right.legend(frameon=False)
    figure.savefig(FOLDER / "features.png")


def draw_projection() -> None:
    """Draw the error of one learner by the steps of its training, with weights solved for and with weights nudged."""
    steps, seeds = [1, 2, 5, 10, 20, 50, 100, 200, 400], range(5)
    figure, ax = plt.subplots(figsize=(6.4, 3.4))
    for method, colour, name in (("gd", ORANGE, "weights nudged"), ("vp", BLUE, "weights solved for at every step")):
        losses = [
            [fit(1, n, method=method, rate=1.0, width=6, seed=seed).history[0].loss for n in steps] for seed in seeds
        ]
        ax.loglog(steps, np.transpose(losses), color=colour, alpha=0.25, linewidth=0.8)
        ax.loglog(steps, np.median(losses, axis=0), "o-", color=colour, label=name)
    ax.set(
        xlabel="steps of training",
        ylabel="error on the training points",
        title="one learner, five starts, and the median",
    )
    ax.legend(frameon=False)
    figure.savefig(FOLDER / "projection.png")


def draw_trust_region() -> None:
    """Draw a loss, its parabola, a step that is too long and one that is not."""
    at, t = -1.6, np.linspace(-3, 5, 400)

    def loss(s: Any) -> Any:
        return np.sqrt(1 + s**2)

    slope, bend = at / loss(at), loss(at) ** -3
    model = loss(at) + slope * (t - at) + bend * (t - at) ** 2 / 2
    figure, ax = plt.subplots(figsize=(6.8, 3.6))
    ax.plot(t, loss(t), color=BLUE, linewidth=2, label="loss")
    ax.plot(t, model, color=ORANGE, linestyle="--", label="its parabola at the present model")
    ax.plot(at, loss(at), "ko")
    for penalty, name, place in ((0.0, "first try", (-118, 2)), (0.35, "larger λ_w", (-52, 48))):
        step = -slope / (bend + penalty)
        new = at + step
        promised = -(slope * step + bend * step**2 / 2)
        ratio = (loss(at) - loss(new)) / promised
        ax.plot([new, new], [loss(new), loss(at) - promised], color=GREY, linewidth=1)
        ax.plot(new, loss(new), "o", color=BLUE)
        ax.plot(new, loss(at) - promised, "o", color=ORANGE, markerfacecolor="white")
        ax.annotate(f"{name}: ρ = {ratio:.2f}", (new, loss(new)), xytext=place, textcoords="offset points")
    ax.set(ylim=(-0.9, 4.9), xlabel="along the step", ylabel="loss", xticks=[])
    ax.legend(frameon=False, loc="lower left")
    figure.savefig(FOLDER / "trust-region.png")


if __name__ == "__main__":
    plt.rcParams.update(LOOK)
    FOLDER.mkdir(exist_ok=True)
    for draw in (draw_stages, draw_features, draw_projection, draw_trust_region):
        draw()
