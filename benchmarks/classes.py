"""The cost of a stage against the number of classes: θ trained on the Hessian of softmax, and on its majorant.

    python benchmarks/classes.py            # two minutes; writes benchmarks/results/classes.json

Made-up data of 4,000 rows and 16 inputs, width 16, 20 steps a learner; the last of three stages is timed.
The Hessian is left out above 100 classes, where it takes minutes.
"""

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from vpboost import MLP, MulticlassCrossEntropy, Training, TrustRegion, boost

RESULTS = Path(__file__).parent / "results" / "classes.json"
CLASSES = (2, 3, 5, 10, 26, 100, 300, 1000)
MOST_FOR_HESSIAN = 100
#: What the estimators do with as many classes, and the method of the paper.
WAYS: dict[str, dict[str, Any]] = {
    "majorant": {"majorant": True, "cg_tol": 1e-3},
    "majorant, sketched": {"majorant": True, "cg_tol": 1e-3, "sketch": 32},
    "Hessian": {},
}


def stage(n_classes: int, way: str) -> dict[str, float]:
    """Return the seconds of a stage, and the loss after three."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(n_classes, 16))
    labels = rng.integers(n_classes, size=4000)
    x = np.tanh(centres[labels] + 0.7 * rng.normal(size=(4000, 16)))
    fit = boost(
        x, labels, loss=MulticlassCrossEntropy(n_classes), featurizer=partial(MLP, width=16), n_learners=3,
        training=Training(max_steps=20, **WAYS[way]), trust_region=TrustRegion(rate=0.3),
    )  # fmt: skip
    return {"seconds": fit.history[-1].seconds, "loss": float(fit.history[-1].loss)}


def main() -> None:
    found: dict[str, dict[str, dict[str, float]]] = {way: {} for way in WAYS}
    for n_classes in CLASSES:
        for way in WAYS:
            if (way == "Hessian" and n_classes > MOST_FOR_HESSIAN) or (way.endswith("sketched") and n_classes < 64):
                continue
            found[way][str(n_classes)] = {name: round(value, 4) for name, value in stage(n_classes, way).items()}
            print(n_classes, way, found[way][str(n_classes)], flush=True)
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    for way, by_classes in found.items():
        large = [(int(n), facts["seconds"]) for n, facts in by_classes.items() if int(n) >= 10]
        classes, seconds = np.log(large).T
        slope = np.polyfit(classes, seconds, 1)[0]
        print(way, "slope of log time by log classes, from ten on:", round(float(slope), 2))


if __name__ == "__main__":
    main()
