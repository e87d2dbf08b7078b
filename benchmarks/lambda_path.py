"""λ_w of every stage chosen from a path of values by validation loss, without further training: whether it helps.

    VPBOOST_DATA=path/to/data python benchmarks/lambda_path.py --chains 4

Each learner is trained as ever; then its linear weights are solved for with λ_w times 1, 10, ... 10⁴, and those that
validate best are added. One chain, or several, of the profile for small noisy tables, two seeds; scores on rows that
neither fit nor validation have seen, and no test part (see ``benchmarks/portfolio.py``).
"""

import argparse
import warnings
from typing import Any

import numpy as np

from portfolio import CANDIDATES, SEEDS, options_of, parts_of, score
from vpboost import VPBoostRegressor
from vpboost.core import boosting

PATH = (1.0, 10.0, 100.0, 1e3, 1e4)
PROBLEMS = ("uci_boston", "mtr_jura", "uci_wine_red", "mtr_wq", "uci_concrete", "friedman 300 0.3")
assess_and_add = boosting.assess_and_add


def by_validation(learner: Any, tracked: list, derivatives: Any, loss: Any, reg: Any, *others: Any) -> Any:
    """Assess a learner with each λ_w of the path; keep what validates best, and λ_w of the first for the next stage."""
    found = [assess_and_add(learner, tracked, derivatives, loss, reg * factor, *others) for factor in PATH]
    losses = [float(boosting.mean_loss(loss, *sets[1].labelled)) for _, sets in found]
    chosen.append(int(np.argmin(losses)))
    verdict, sets = found[chosen[-1]]
    following = found[0][0].next_lambda
    return verdict.__class__(verdict.trial, verdict.accepted, verdict.reg_lambda, following, verdict.solves), sets


chosen: list[int] = []


def main() -> None:
    parser = argparse.ArgumentParser(description="λ_w of every stage by validation loss.")
    parser.add_argument("--chains", type=int, default=1)
    chains = parser.parse_args().chains
    warnings.simplefilter("ignore")
    ratios = []
    for problem in PROBLEMS:
        for seed in SEEDS:
            kind, parts = parts_of(problem, seed)
            options = {**options_of(CANDIDATES["quantile half"], len(parts.fit[0])), "random_state": seed}
            options["n_chains"], scores, stages = chains, [], []
            for step in (assess_and_add, by_validation):
                setattr(boosting, "assess_and_add", step)  # noqa: B010
                model = VPBoostRegressor(**options).fit(*parts.fit, X_val=parts.val[0], y_val=parts.val[1])
                scores.append(score(kind, model, *parts.judge))
                stages.append(model.n_iter_)
            ratios.append(scores[1] / scores[0])
            told = [f"{score:.4f} ({n} stages)" for score, n in zip(scores, stages, strict=True)]
            print(f"{problem} {seed}: {told[0]}, with the path {told[1]}", flush=True)
    used = np.bincount(chosen, minlength=len(PATH)) / len(chosen)
    print(f"geometric mean of the ratios {np.exp(np.mean(np.log(ratios))):.3f}; chosen how often: {used.round(2)}")


if __name__ == "__main__":
    main()
