"""How the estimators' defaults were chosen: one setting varied at a time, scores on the test part of real tables.

    VPBOOST_DATA=path/to/data python benchmarks/defaults.py [--only NAME ...]

Splits and scores are those of ``benchmarks/tables.py``. First every profile of the portfolio on every table, which
shows that none suits all and what the race between them would lose; then boosting rate, steps and width, on five
tables, with the profile that the race chose. Prints tables and writes ``benchmarks/results/defaults.json``.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tables import TABLES, Split, data_folder, evaluate, load, metric_of
from vpboost import VPBoostClassifier, VPBoostRegressor
from vpboost.estimators.portfolio import FALLBACK, PORTFOLIO, Profile

RESULTS = Path(__file__).parent / "results" / "defaults.json"
VARIED_ON = ("uci_concrete", "mtr_enb", "mtr_wq", "uci_kin8nm", "tab_california")
VARIED: dict[str, tuple] = {
    "learning_rate": (0.05, 0.1, 0.3),
    "max_steps": (25, 50, 100),
    "width": (8, 16, 32),
    "reg_lambda": (1e-5, 1e-4, 1e-3),
}


def score(name: str, split: Split, options: dict[str, Any]) -> tuple[float, Any]:
    """Return the test score of a model with these options, and the model."""
    model = (VPBoostRegressor if split.kind == "regression" else VPBoostClassifier)(**options)
    model.fit(*split.parts["train"], X_val=split.parts["val"][0], y_val=split.parts["val"][1])
    return evaluate(split.kind, model, *split.parts["test"])[metric_of(name, split.kind)], model


def label(profile: Profile) -> str:
    return f"{profile.encoding}, inherit {profile.inherit:g}, columns {profile.max_features:g}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Vary the estimators' defaults on real tables.")
    parser.add_argument("--only", nargs="+", default=list(TABLES), choices=TABLES)
    options = parser.parse_args()
    folder, console = data_folder(), Console()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in options.only:
        split = load(name, folder)
        row: dict[str, Any] = {}
        value, model = score(name, split, {})
        row["auto"], row["chosen"] = value, label(model.profile_)
        for profile in (*PORTFOLIO, FALLBACK):
            if profile.encoding != "spline" or split.parts["train"][0].shape[1] <= 64:
                row[label(profile)] = score(name, split, profile._asdict())[0]
        if name in VARIED_ON:
            for parameter, values in VARIED.items():
                for value in values:
                    fixed = {**model.profile_._asdict(), parameter: value}
                    row[f"{parameter}={value:g}"] = score(name, split, fixed)[0]
        results[name] = row
        console.print(name, row)
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    console.print(summary("Profiles", results, ["auto", *map(label, (*PORTFOLIO, FALLBACK))]))
    columns = [f"{p}={v:g}" for p, values in VARIED.items() for v in values]
    console.print(summary("One at a time", {n: results[n] for n in VARIED_ON if n in results}, columns))


def summary(title: str, results: dict, columns: list[str]) -> Table:
    table = Table(title=f"{title}: test R² (log-loss for magic and electricity, AUC for higgs)")
    for column in ("table", *columns):
        table.add_column(column, justify="left" if column == "table" else "right")
    for name, row in results.items():
        table.add_row(name, *(f"{row[c]:.4f}" if c in row else "–" for c in columns))
    return table


if __name__ == "__main__":
    main()
