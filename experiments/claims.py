"""The paper's claims, and this library's goals, held against stored results."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.stats import t

from .scaling import comparison
from .study import SEEDS
from .tables import SCORES, load

VARIANTS = ("vp_start", "vp_end", "vp_start_end", "vp")
BOOSTED = ("gd", "vp_start", "vp_end", "vp_start_end", "xgboost")
MATCHED = (*BOOSTED, "grownet", "trboost", "network", "network_vp")
ALL_BOOSTED = (*BOOSTED, "vp", "gd_more", "grownet", "trboost")
#: The scores beside the loss in the paper's tables.
SCORED = {
    "task1": ("r2",),
    "task2": ("auc", "accuracy"),
    "task3": ("auc", "accuracy"),
    "mnist": ("auc", "accuracy"),
    "cdr": ("r2",),
    "higgs": ("auc",),
}
#: The claims, the problem, who is to be better than whom, and in what.
CLAIMS: list[tuple[str, str, Sequence[str], Sequence[str], str]] = [
    *(
        (f"VPBoost has the lowest loss among boosting methods on {problem}", problem, ("vp",), BOOSTED, "loss")
        for problem in SCORED
    ),
    *(
        (f"VPBoost has the best {SCORES[name]} among boosting methods on {problem}", problem, ("vp",), BOOSTED, name)
        for problem, names in SCORED.items()
        for name in names
    ),
    ("every VP variant is better than GDBoost on task1", "task1", VARIANTS, ("gd",), "loss"),
    ("every VP variant is better than GDBoost on task2", "task2", VARIANTS, ("gd",), "loss"),
    *(
        (f"Full NN+VP is better than Full NN on {problem}", problem, ("network_vp",), ("network",), "loss")
        for problem in ("task1", "task2", "task3")
    ),
    *(
        (f"VPBoost is better than Full NN on {problem}", problem, ("vp",), ("network",), "loss")
        for problem in ("task1", "task2", "task3")
    ),
    ("VPBoost is better than Full NN+VP on task1", "task1", ("vp",), ("network_vp",), "loss"),
    *(
        (f"Full NN+VP is better than VPBoost on {problem}", problem, ("network_vp",), ("vp",), "loss")
        for problem in ("task2", "task3")
    ),
]
GOALS: list[tuple[str, str, Sequence[str], Sequence[str], str]] = [
    *(
        (
            f"with our additions, the lowest loss of all matched boosters on {name}",
            name,
            ("vp_more",),
            ALL_BOOSTED,
            "loss",
        )
        for name in SCORED
    ),
    ("MNIST: accuracy of VPBoost above every matched rival", "mnist", ("vp",), MATCHED, "accuracy"),
    ("the same with our additions", "mnist", ("vp_more",), MATCHED, "accuracy"),
    ("Higgs: loss with our additions below matched XGBoost", "higgs", ("vp_more",), ("xgboost",), "loss"),
    ("Higgs: AUC with our additions above matched XGBoost", "higgs", ("vp_more",), ("xgboost",), "auc"),
]
#: Test errors are to be below these.
LIMITS = [
    ("cdr", "vp", 0.05),
    ("cdr", "vp_more", 0.05),
    ("cdr_published", "vp", 0.05),
    ("cdr_published", "vp_more", 0.05),
]
LIMITS += [("task1", "vp_back", 2e-5)]


WORDS = {"yes": "held", "no": "**did not hold**", "open": "undecided", "not run": "not run"}


class Verdict(NamedTuple):
    """A claim, whether it held, and the numbers."""

    claim: str
    held: str  #: "yes", "no", "open" (within what the seeds vary) or "not run"
    numbers: str


def scores(results: Path, problem: str, name: str) -> dict[str, np.ndarray]:
    """Return a test score over the seeds by method."""
    return {
        method: np.array([seed["test"][name] for seed in content["seeds"]])
        for method, content in load(results, problem).items()
    }


def better(one: np.ndarray, other: np.ndarray, name: str) -> str:
    """Say whether one method is better than another on the same seeds: a paired t test at 5 %, else "open"."""
    gap = other - one if name == "loss" else one - other
    if len(gap) < 2:
        return "open"
    limit = t.ppf(0.975, len(gap) - 1) * gap.std(ddof=1) / np.sqrt(len(gap))
    return "open" if abs(gap.mean()) <= limit else "yes" if gap.mean() > 0 else "no"


def all_of(verdicts: list[str]) -> str:
    """Return the verdict on several claims together."""
    return "no" if "no" in verdicts else "open" if "open" in verdicts else "yes"


def judge(
    results: Path,
    claim: str,
    problem: str,
    methods: Sequence[str],
    rivals: Sequence[str],
    name: str,
    titles: dict[str, str],
) -> Verdict:
    """Say whether all of some methods are better than all of some rivals."""
    found = scores(results, problem, name)
    if missing := [titles[m] for m in (*methods, *rivals) if m not in found]:
        return Verdict(claim, "not run", f"without {', '.join(missing)}")
    n_seeds = [len(found[m]) for m in (*methods, *rivals)]
    if min(n_seeds) < min(max(n_seeds), SEEDS):
        return Verdict(claim, "not run", "not all seeds")
    found = {m: values[: min(n_seeds)] for m, values in found.items()}  # those that all have
    held = all_of([better(found[m], found[r], name) for m in methods for r in rivals])
    best = (min if name == "loss" else max)(rivals, key=lambda m: found[m].mean())
    return Verdict(claim, held, ", ".join(f"{titles[m]} {found[m].mean():.4g}" for m in (*methods, best)))


def scaling_verdicts(results: Path) -> list[Verdict]:
    """Judge what is claimed of many outputs."""
    first, second = "VPBoost is sooner at GDBoost's final loss at every number of outputs", "beyond 128 outputs"
    path = results / "scaling.json"
    if not path.exists():
        return [Verdict(first, "not run", ""), Verdict(second, "not run", "")]
    rows = comparison(json.loads(path.read_text()))
    found = []
    for method, title in (("vp", ""), ("vp_sketch", ", on 16 combinations of outputs")):
        speedups = {n: rows[n][method]["speedup"] for n in sorted(rows)}
        numbers = ", ".join(f"{speedup:.2g}× at {n:,}" for n, speedup in speedups.items())
        found.append(Verdict(first + title, "yes" if min(speedups.values()) > 1 else "no", numbers))
        beyond = [n for n in speedups if n >= 128]
        enough = max(1.0, 0.9 * speedups[beyond[0]]) if beyond else np.inf  # a lead that is none cannot hold
        held = "yes" if min((speedups[n] for n in beyond), default=0.0) >= enough else "no"
        numbers = ", ".join(
            f"{speedups[n]:.1f}× (MSE ratio {rows[n][method]['loss_ratio']:.3g}) at {n:,}" for n in beyond
        )
        found.append(Verdict(f"{second} this speedup holds within a tenth, or widens{title}", held, numbers))
    return found


def below_goal(results: Path, problem: str, method: str, limit: float, titles: dict[str, str]) -> Verdict:
    """Say whether an error is as low as it is to be."""
    claim, found = f"{problem}: test MSE of {titles[method]} below {limit}", scores(results, problem, "loss")
    if method not in found:
        return Verdict(claim, "not run", "")
    return Verdict(claim, "yes" if found[method].mean() < limit else "no", f"{found[method].mean():.3g}")


def no_worse(results: Path, problem: str, titles: dict[str, str]) -> Verdict:
    """Say whether going back does no harm: only a loss that is higher by more than chance counts."""
    claim = f"{problem}: going back is no worse than our additions without it"
    verdict = judge(results, claim, problem, ("vp_back",), ("vp_more",), "loss", titles)
    return verdict._replace(held="yes") if verdict.held == "open" else verdict


def scaled_table(results: Path, titles: dict[str, str]) -> str:
    """Return, in Markdown, the paper's claims with the scale of initial weights tuned for all network methods, too."""

    def scaled(methods: Sequence[str]) -> tuple[str, ...]:
        return tuple(name if name == "xgboost" else f"{name}_scaled" for name in methods)

    lines = ["| claim | as in the paper | initial scale tuned | means over seeds |", "|---|---|---|---|"]
    for claim, problem, methods, rivals, name in CLAIMS:
        if problem not in ("task1", "task2", "task3", "cdr"):
            continue
        before = judge(results, claim, problem, methods, rivals, name, titles)
        after = judge(results, claim, problem, scaled(methods), scaled(rivals), name, titles)
        lines.append(f"| {claim} | {WORDS[before.held]} | {WORDS[after.held]} | {after.numbers} |")
    return "\n".join(lines)


def claims_table(results: Path, titles: dict[str, str]) -> str:
    """Return the paper's claims in Markdown."""
    return table([*(judge(results, *claim, titles=titles) for claim in CLAIMS), *scaling_verdicts(results)])


def goals_table(results: Path, titles: dict[str, str]) -> str:
    """Return this library's goals in Markdown."""
    limits = [below_goal(results, *limit, titles) for limit in LIMITS]
    back = [no_worse(results, problem, titles) for problem in (*SCORED, "cdr_published")]
    return table([*limits, *(judge(results, *goal, titles=titles) for goal in GOALS), *back])


def table(verdicts: list[Verdict]) -> str:
    """Return verdicts in Markdown."""
    lines = ["| claim | here | means over seeds |", "|---|---|---|"]
    return "\n".join(lines + [f"| {v.claim} | {WORDS[v.held]} | {v.numbers} |" for v in verdicts])
