"""Profiles for responses without noise, or others: whether the validation scores of whole fits tell which to take.

    VPBOOST_DATA=path/to/data python benchmarks/smooth_choice.py         # half an hour; goes on if stopped
    python benchmarks/smooth_choice.py --table                           # what is stored already
    VPBOOST_DATA=path/to/data python benchmarks/smooth_choice.py --pilots   # twenty minutes: which whole fits are vain
    VPBOOST_DATA=path/to/data python benchmarks/smooth_choice.py --doubts   # an hour: where it is doubtful

Each problem is fitted twice with default settings but for the choice, which is forced. Stored are the errors on rows
that neither fit has seen, and the best validation score of each first chain. The rule takes the smooth profile where
its score is below so many times that of the other; its regret is the logarithm of the error over the better of both.
Simulations have samples of no benchmark; of tables, the test part is not read. Results are stored in
``benchmarks/results/smooth_choice.json``.

With ``--pilots``, nothing is fitted to the end. Stored in ``smooth_pilots.json`` is what the smooth profile's pilot,
the others' whole fit and the smooth one's whole fit leave unexplained of validation targets, of 100, 300 and 1,000
runs, with 1 % of noise and without, and of tables.

With ``--doubts``, where it is doubtful whether there is noise, default fits that do not try smooth profiles are set
beside some whose pilots always come to whole fits. Stored in ``smooth_doubts.json`` are the errors of both, and what
the smooth pilot leaves over what the others' pilot does, to which ``choosing.WELL_AHEAD`` is the bound.
"""

import argparse
import json
import time
from collections.abc import Iterator
from itertools import chain, product
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from portfolio import score
from problems import PROBLEMS, sample
from tables import data_folder, load
from vpboost import VPBoostRegressor
from vpboost.estimators import choosing
from vpboost.estimators import noise as noises

RESULTS = Path(__file__).parent / "results" / "smooth_choice.json"
PILOTS, DOUBTS = RESULTS.with_name("smooth_pilots.json"), RESULTS.with_name("smooth_doubts.json")
#: Problems whose responses are hard for a Gaussian process.
HARD = "sobol_g", "morris", "hartmann", "ishigami", "peaks_and_ridge", "swinging_arm", "pendulum", "welch"
TABLES = (
    "uci_yacht", "uci_energy", "mtr_enb", "cdr", "evans_airfoil", "uci_concrete", "uci_boston", "mtr_jura",
)  # fmt: skip
SEEDS = {"simulations": (5, 6), "tables": (7, 8)}
#: The leads to compare; the one in use where all rows are learnt from later is among them.
LEADS = (0.6, 0.75, 0.85, 0.9, 1.0, 1.2, 1.5, 2.0)
#: The bounds on the pilot's part over the other whole fit's to compare, above which there is no smooth whole fit.
BOUNDS = (1.2, 1.5, 1.7, 2.0, np.inf)


def cases() -> Iterator[tuple[str, int, tuple]]:
    """Yield the name, the seed, and the rows to fit and to judge by."""
    for seed in SEEDS["simulations"]:
        for name, problem in PROBLEMS.items():
            runs = sample(problem, 300, seed, 0.0)
            yield name, seed, (runs.x_train, runs.y_train, runs.x_test, runs.y_test)
    yield from table_cases()


def table_cases() -> Iterator[tuple[str, int, tuple]]:
    """Yield those of tables."""
    for name in TABLES:
        for seed in SEEDS["tables"]:
            parts = load(name, data_folder(), seed).parts
            X, y = (np.concatenate([parts[part][i] for part in ("train", "val")]) for i in (0, 1))
            fit, judge = np.split(np.random.default_rng(seed).permutation(len(X)), [round(0.8 * len(X))])
            yield name, seed, (X[fit], y[fit], X[judge], y[judge])


def run(stored: dict[str, Any]) -> None:
    """Run what is not stored yet."""
    choosing.CLEARLY, noises.LITTLE_NOISE, choosing.WORTH_TRYING = 0.0, np.inf, (np.inf, np.inf)
    for name, seed, (X, y, X_judge, y_judge) in cases():
        key = f"{name} | {seed}"
        if key in stored:
            continue
        found = {}
        for choice, lead in (("other", 0.0), ("smooth", np.inf)):
            choosing.SMOOTH_LEAD = (lead, lead)
            model = VPBoostRegressor(random_state=seed).fit(X, y)
            error = score("regression", model, X_judge, y_judge)
            found[choice] = {"error": error, "score": float(np.nanmin(model.evals_result_["validation"]))}
        stored[key] = {choice: {k: float(f"{v:.5g}") for k, v in one.items()} for choice, one in found.items()}
        print(key, stored[key], flush=True)
        RESULTS.write_text(json.dumps(stored, indent=0) + "\n")


def show(stored: dict[str, Any]) -> None:
    """Print the regret of each lead."""
    print("| lead | mean regret | worst | where |\n|---|---|---|---|")
    for lead in (0.0, *LEADS, np.inf):
        regrets = {}
        for key, one in stored.items():
            taken = "smooth" if one["smooth"]["score"] < lead * one["other"]["score"] else "other"
            regrets[key] = np.log(one[taken]["error"] / min(one[choice]["error"] for choice in one))
        worst = max(regrets, key=regrets.__getitem__)
        print(f"| {lead} | {np.mean([*regrets.values()]):.4f} | {regrets[worst]:.2f} | {worst} |")


class Seen(Exception):
    """What has been found out about a choice; there is no need to go on."""


def compared(self: Any, best: Any, smooth: Any, train: Any, held_out: Any, seed: int, refits: bool) -> None:
    """Stand for the race of smooth profiles: see all fits that may decide it."""
    planned = self._plan(smooth[0], train, held_out)
    process = noises.process_of(planned)
    if process is None or noises.is_noisy(process, noises.unexplained(best)):
        raise Seen({})
    weights = choosing.process_weights(process, planned)
    other, _ = self._weigh_columns(smooth, weights, None, train, held_out, seed)
    rival, _ = self._boosted_whole(best.plan.profile, train, held_out, None, seed)
    began = time.process_time()
    proof, _ = self._boosted_whole(other.plan.profile, train, held_out, other.plan.encoder, seed)
    runs = {"first": best, "pilot": other, "other": rival, "smooth": proof}
    facts = {"cpu": time.process_time() - began, "noise": process.noise}
    raise Seen({name: noises.unexplained(one) for name, one in runs.items()} | facts)


def run_pilots(stored: dict[str, Any]) -> None:
    """Compare pilots with whole fits where that is not stored yet."""
    setattr(choosing.Choosing, "_race_smooth", compared)  # noqa: B010
    choosing.WORTH_TRYING = (np.inf, np.inf)
    simulated = (
        (f"{name}, {n} runs, noise {noise}", seed, (runs.x_train, runs.y_train))
        for (n, seed), (name, problem), noise in product(((100, 6), (300, 5), (1000, 7)), PROBLEMS.items(), (0.0, 0.01))
        for runs in [sample(problem, n, seed, noise)]
    )
    for name, seed, (X, y, *_) in chain(table_cases(), simulated):
        key = f"{name} | {seed}"
        if key in stored:
            continue
        try:
            VPBoostRegressor(random_state=seed).fit(X, y)
            stored[key] = {}
        except Seen as seen:
            stored[key] = {name: float(f"{value:.4g}") for name, value in seen.args[0].items()}
        PILOTS.write_text(json.dumps(stored, indent=0) + "\n")


def show_pilots(stored: dict[str, Any]) -> None:
    """Print what each bound saves, and how often another profile is taken for it."""
    close = {key: one for key, one in stored.items() if one and one["pilot"] >= choosing.CLEARLY * one["first"]}
    print(f"{len(stored)} cases, {len(close)} of them decided by whole fits")
    print(
        "| bound | if there is noise above | processor time left | other choices | its part over the other's, there |"
    )
    print("|---|---|---|---|---|")
    for bound, noise in product(BOUNDS, (-1.0, noises.HINT_OF_NOISE)):
        vain = {k: one for k, one in close.items() if one["pilot"] > bound * one["other"] and one["noise"] > noise}
        time_left = sum(one["cpu"] for key, one in close.items() if key not in vain)
        ratios = [one["smooth"] / one["other"] for one in vain.values()]
        changed = [f"{ratio:.2f}" for ratio in ratios if ratio < choosing.SMOOTH_LEAD[1]]
        print(f"| {bound} | {max(noise, 0)} | {time_left:.1f} | {len(changed)} | {', '.join(changed)} |")


def run_doubts(stored: dict[str, Any]) -> None:
    """Fit with and without smooth profiles where it is doubtful and where that is not stored yet."""
    simulated = (
        (f"{name}, {n} runs, noise {noise}", seed, (runs.x_train, runs.y_train, runs.x_test, runs.y_test))
        for n, noise, name, seed in product((1000, 3000, 300), (0.0, 0.01, 0.05), HARD, SEEDS["simulations"])
        for runs in [sample(PROBLEMS[name], n, seed, noise)]
    )
    for name, seed, (X, y, X_judge, y_judge) in chain(table_cases(), simulated):
        key = f"{name} | {seed}"
        if key in stored:
            continue
        found: dict[str, float] = {}
        for choice, bound in (("before", 0.0), ("smooth", np.inf)):
            patched = mock.patch.multiple(
                choosing.Choosing, _race_smooth=noting(found, "left", 1), _weigh_columns=noting(found, "pilot")
            )
            with mock.patch.object(choosing, "WELL_AHEAD", bound), patched:
                model = VPBoostRegressor(random_state=seed).fit(X, y)
            found[choice] = score("regression", model, X_judge, y_judge)
        stored[key] = {what: float(f"{value:.4g}") for what, value in found.items()}
        print(key, stored[key], flush=True)
        DOUBTS.write_text(json.dumps(stored, indent=0) + "\n")


def noting(found: dict[str, float], name: str, given: int | None = None) -> Any:
    """Return a method of ``Choosing`` that notes what the run given to it, or else the one that it returns, leaves."""
    method = getattr(choosing.Choosing, "_race_smooth" if given else "_weigh_columns")

    def noted(self: Any, *args: Any) -> Any:
        returned = method(self, *args)
        found[name] = noises.unexplained(args[0] if given else returned[0])
        return returned

    return noted


def show_doubts(stored: dict[str, Any]) -> None:
    """Print what each bound takes, and errors over those without smooth profiles there."""
    doubtful = [one for one in stored.values() if one.get("before") != one.get("smooth")]
    print(f"{len(stored)} cases, {len(doubtful)} in which it makes a difference")
    print("| bound | smooth profiles | errors over those without | worst |\n|---|---|---|---|")
    for bound in (0.5, 0.6, 0.7, 0.8, 0.9, 1.0, np.inf):
        ratios = [one["smooth"] / one["before"] for one in doubtful if one["pilot"] < bound * one["left"]]
        if ratios:
            mean = np.exp(np.sum(np.log(ratios)) / len(doubtful))
            print(f"| {bound} | {len(ratios)} | {mean:.3f} | {max(ratios):.2f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", action="store_true", help="run nothing, show what is stored")
    parser.add_argument("--pilots", action="store_true", help="compare pilots with whole fits")
    parser.add_argument("--doubts", action="store_true", help="where it is doubtful whether there is noise")
    options = parser.parse_args()
    if options.doubts:
        doubts: dict[str, Any] = json.loads(DOUBTS.read_text()) if DOUBTS.exists() else {}
        if not options.table:
            run_doubts(doubts)
        return show_doubts(doubts)
    if options.pilots:
        pilots: dict[str, Any] = json.loads(PILOTS.read_text()) if PILOTS.exists() else {}
        if not options.table:
            run_pilots(pilots)
        return show_pilots(pilots)
    stored: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if not options.table:
        run(stored)
    show(stored)


if __name__ == "__main__":
    main()
