"""The paper's claims, held against stored results."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .scaling import comparison
from .tables import load

BOOSTED = ("gd", "vp_start", "vp_end", "vp_start_end", "vp", "xgboost")
PROBLEMS = ("task1", "task2", "task3", "mnist", "cdr", "higgs")


class Verdict(NamedTuple):
    """A claim, whether it held, and the numbers."""

    claim: str
    held: str  #: "yes", "no" or "open": within what the seeds vary
    numbers: str


def losses(results: Path, problem: str) -> dict[str, np.ndarray]:
    """Return the test losses over seeds by method."""
    return {
        method: np.array([seed["test"]["loss"] for seed in content["seeds"]])
        for method, content in load(results, problem).items()
    }


def lower(one: np.ndarray, other: np.ndarray) -> str:
    """Say whether one method's losses are lower than another's; "open" within two standard errors of the means."""
    gap = other.mean() - one.mean()
    error = np.sqrt(one.var() / len(one) + other.var() / len(other))
    return "open" if abs(gap) < 2 * error else "yes" if gap > 0 else "no"


def all_of(verdicts: list[str]) -> str:
    """Return the verdict on several claims together."""
    return "no" if "no" in verdicts else "open" if "open" in verdicts else "yes"


def shown(found: dict[str, np.ndarray], titles: dict[str, str]) -> str:
    """Return methods and mean losses in words."""
    return ", ".join(f"{titles[m]} {values.mean():.3g}" for m, values in found.items())


def lowest(results: Path, problem: str, titles: dict[str, str]) -> Verdict:
    """VPBoost has the lowest loss among the boosting methods."""
    found = losses(results, problem)
    rivals = {m: found[m] for m in BOOSTED if m in found and m != "vp"}
    best = min(rivals, key=lambda m: rivals[m].mean())
    pair = {"vp": found["vp"], best: rivals[best]}
    held = all_of([lower(found["vp"], values) for values in rivals.values()])
    return Verdict(f"VPBoost has the lowest loss among boosting methods on {problem}", held, shown(pair, titles))


def variants(results: Path, problem: str, titles: dict[str, str]) -> Verdict:
    """Every variant with variable projection beats GDBoost."""
    found = losses(results, problem)
    chosen: dict[str, np.ndarray] = {
        m: found[m] for m in ("gd", "vp_start", "vp_end", "vp_start_end", "vp") if m in found
    }
    held = all_of([lower(values, found["gd"]) for m, values in chosen.items() if m != "gd"])
    return Verdict(f"every VP variant is better than GDBoost on {problem}", held, shown(chosen, titles))


def pair(results: Path, problem: str, one: str, other: str, titles: dict[str, str]) -> Verdict:
    """One method beats another."""
    found = losses(results, problem)
    claim = f"{titles[one]} is better than {titles[other]} on {problem}"
    return Verdict(claim, lower(found[one], found[other]), shown({one: found[one], other: found[other]}, titles))


def faster(results: Path) -> Verdict:
    """VPBoost reaches GDBoost's final loss sooner at every number of outputs."""
    rows = comparison(json.loads((results / "scaling.json").read_text()))
    speedups = {n: rows[n]["vp"]["speedup"] for n in sorted(rows)}
    held = "yes" if min(speedups.values()) > 1 else "no"
    numbers = ", ".join(f"{speedup:.1f}× at {n:,}" for n, speedup in speedups.items())
    return Verdict("VPBoost is faster to GDBoost's final loss at every number of outputs", held, numbers)


def growing(results: Path) -> Verdict:
    """The advantage does not narrow beyond the paper's range."""
    rows = comparison(json.loads((results / "scaling.json").read_text()))
    beyond = [n for n in sorted(rows) if n >= 128]
    speedups = {n: max(rows[n][m]["speedup"] for m in ("vp", "vp_sketch")) for n in beyond}
    held = "yes" if min(speedups.values()) >= speedups[128] else "no"
    numbers = ", ".join(
        f"{value:.1f}× at {n:,} (MSE ratio {rows[n]['vp']['loss_ratio']:.3g})" for n, value in speedups.items()
    )
    return Verdict(
        "beyond 128 outputs the advantage holds or widens (here: the better of VPBoost with and without combinations)",
        held,
        numbers,
    )


def check(results: Path, titles: dict[str, str]) -> list[Verdict]:
    """Return the verdict on every claim whose results are stored."""
    claims: list[Callable[[], Verdict]] = [partial(lowest, results, p, titles) for p in PROBLEMS]
    claims += [partial(variants, results, p, titles) for p in ("task1", "task2")]
    claims += [partial(pair, results, p, "network_vp", "network", titles) for p in ("task1", "task2", "task3")]
    claims += [partial(pair, results, "task1", "vp", "network_vp", titles)]
    claims += [partial(faster, results), partial(growing, results)]
    found = []
    for claim in claims:
        try:
            found.append(claim())
        except (KeyError, FileNotFoundError, ValueError):
            continue  # not run yet
    return found


def claims_table(results: Path, titles: dict[str, str]) -> str:
    """Return the claims in Markdown."""
    words = {"yes": "held", "no": "**did not hold**", "open": "undecided"}
    lines = ["| claim | here | mean test losses |", "|---|---|---|"]
    lines += [f"| {v.claim} | {words[v.held]} | {v.numbers} |" for v in check(results, titles)]
    return "\n".join(lines)
