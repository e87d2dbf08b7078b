"""Which profiles of the race may go no further after a few stages: the rule of ``race.within_reach``.

    VPBOOST_DATA=path/to/data python benchmarks/races.py              # some minutes; goes on if stopped
    python benchmarks/races.py --table                                # what is stored, in Markdown

Races of default fits, in which all profiles come to the end; test parts of ``benchmarks/tables.py`` are not read. For
each rule, how often it would have left out the profile that won, and which part of the race's processor time it saves.
Results, the standing of every profile after every stage: ``benchmarks/results/races.json``.
"""

import argparse
import copy
import json
import time
import warnings
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from fit_times import table as whole_table
from tables import data_folder, load
from vpboost import VPBoostClassifier, VPBoostRegressor
from vpboost.estimators import choosing, race
from vpboost.estimators.portfolio import MANY_TO_RACE

RESULTS = Path(__file__).parent / "results" / "races.json"
FEW = (
    *("uci_yacht", "uci_boston", "uci_energy", "uci_concrete", "evans_airfoil", "uci_wine_red", "mtr_jura"),
    *("mtr_enb", "mtr_wq", "mtr_oes97", "mtr_slump", "uci_kin8nm", "uci_power", "tab_california", "magic"),
    *("satimage", "penbased", "uci_naval"),
)
MANY = "electricity", "adult", "higgs", "covertype"
STAGES, MARGINS = (2, 3, 4), (0.02, 0.03, 0.04, 0.05, 0.1, 0.2, 0.3)


class OverError(Exception):
    """The race is over; the fit is not wanted."""


def raced(name: str, seed: int) -> dict[str, Any]:
    """Return rows, seconds and the standings of all profiles in the race of a default fit."""
    split = whole_table(name) if name == "covertype" else load(name, data_folder(), seed)
    found: dict[str, Any] = {}

    def watched(runs: list, *args: Any) -> Any:
        best, _ = race.race(runs, *args)
        standings = [[standing_after(run, k + 1) for k in range(len(run.scores))] for run in runs]
        seconds = [sum(record.seconds for record in run.boosted.history) for run in runs]
        found.update(rows=runs[0].train.n_rows, won=runs.index(best), seconds=seconds, standings=standings)
        raise OverError

    model = (VPBoostRegressor if split.kind == "regression" else VPBoostClassifier)(random_state=seed)
    with (
        mock.patch.object(choosing, "race", watched),
        mock.patch.object(race, "within_reach", list),
        suppress(OverError),
    ):
        model.fit(*split.parts["train"], X_val=split.parts["val"][0], y_val=split.parts["val"][1])
    return found


def standing_after(run: Any, n_stages: int) -> float:
    """Return the standing that a run had after so many stages."""
    earlier = copy.copy(run)
    earlier.scores = run.scores[:n_stages]
    return float(f"{race.standing(earlier):.6g}")


def markdown(found: dict[str, dict[str, Any]]) -> str:
    """Return how often each rule leaves out the winner, and what it saves."""
    lines = []
    for many in (False, True):
        races = [one for one in found.values() if (one["rows"] >= MANY_TO_RACE) == many]
        title = f"{len(races)} races of {'many' if many else 'few'} rows"
        lines += ["", f"| {title} | " + " | ".join(f"{margin:.0%}" for margin in MARGINS) + " |"]
        lines.append("|---" * (len(MARGINS) + 1) + "|")
        for stage in STAGES:
            cells = [cell(races, stage, margin) for margin in MARGINS]
            lines.append(f"| after {stage} stages | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def cell(races: list[dict[str, Any]], stage: int, margin: float) -> str:
    """Return the number of winners that a rule leaves out, and the part of the time that it saves."""
    lost, saved = 0, []
    for one in races:
        now = np.array([standings[stage - 1] for standings in one["standings"]])
        kept = now <= now.min() + margin * abs(now.min())
        lost += not kept[one["won"]]
        seconds, rest = np.array(one["seconds"]), 1 - stage / len(one["standings"][0])
        saved.append(rest * seconds[~kept].sum() / seconds.sum())
    return f"{lost} lost, {np.mean(saved):.0%} saved"


def main() -> None:
    parser = argparse.ArgumentParser(description="Profiles that may leave the race early.")
    parser.add_argument("--only", nargs="+", default=[*FEW, *MANY], choices=[*FEW, *MANY])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--table", action="store_true", help="run nothing, show what is stored")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    found = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name, seed in () if options.table else product(options.only, range(options.seeds)):
        if f"{name} | {seed}" not in found:
            began = time.perf_counter()
            found[f"{name} | {seed}"] = raced(name, seed)
            RESULTS.write_text(json.dumps(found) + "\n")
            print(name, seed, f"{time.perf_counter() - began:.1f} s", flush=True)
    print(markdown(found))


if __name__ == "__main__":
    main()
