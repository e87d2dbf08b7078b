"""How many rows a step of training should see of many: the rule of ``plan.PARTS_OF_MANY``.

    VPBOOST_DATA=path/to/data python benchmarks/batches.py            # a quarter of an hour; goes on if stopped
    python benchmarks/batches.py --table                              # what is stored, in Markdown

Profiles are fixed; fits differ in ``batch_size``. Rows of covertype, electricity and Higgs are outside the test parts
of ``benchmarks/tables.py``, seed 0; "made up" is that of ``benchmarks/processes.py``. Log-loss of rows that no fit has
seen, and processor time. Results: ``benchmarks/results/batches.json``.
"""

import argparse
import json
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from budgets import judged
from portfolio import Parts
from processes import rows_between
from tables import data_folder, load
from vpboost.estimators.portfolio import PORTFOLIO

RESULTS = Path(__file__).parent / "results" / "batches.json"
SIZES = 2048, 4096, 8192, 16_384
PLAIN, QUANTILE, SPLINE = (
    next(p for p in PORTFOLIO if (p.encoding, p.max_features, p.tree_depth) == (encoding, 1.0, 0))
    for encoding in ("plain", "quantile", "spline")
)


def covertype() -> tuple[np.ndarray, np.ndarray]:
    data = np.load(data_folder() / "covertype.npz", allow_pickle=False)
    rows = np.random.default_rng(0).permutation(len(data["y"]))[: round(0.85 * len(data["y"]))]
    return np.hstack([data["Xnum"], data["Xbin"]]).astype(np.float32)[rows], data["y"][rows]


def table(name: str) -> tuple[np.ndarray, np.ndarray]:
    parts = load(name, data_folder()).parts
    X, y = (np.concatenate([parts[part][k] for part in ("train", "val")]) for k in range(2))
    return X, y


#: Rows, where they come from, how many are learnt from, the profile, stages at the most.
CASES: dict[str, tuple[Callable[[], tuple[np.ndarray, np.ndarray]], int, Any, int | str]] = {
    "electricity, 25,000": (partial(table, "electricity"), 25_000, SPLINE, "auto"),
    "Higgs, 37,000": (partial(table, "higgs"), 37_000, QUANTILE, "auto"),
    "covertype, 12,000": (covertype, 12_000, SPLINE, "auto"),
    "covertype, 25,000": (covertype, 25_000, SPLINE, "auto"),
    "covertype, 42,000": (covertype, 42_000, SPLINE, "auto"),
    "covertype, 300,000, 40 stages": (covertype, 300_000, SPLINE, 40),
    "made up, 100,000": (partial(rows_between, 0, 200_000), 100_000, PLAIN, "auto"),
    "made up, 300,000": (partial(rows_between, 0, 400_000), 300_000, PLAIN, "auto"),
    "made up, 1,000,000": (partial(rows_between, 0, 1_100_000), 1_000_000, PLAIN, "auto"),
}


def parts_of(case: str) -> tuple[str, Parts]:
    """Return the kind of a case and its rows to learn from, to validate and to judge by."""
    rows, n, *_ = CASES[case]
    X, y = rows()
    ends = n + (len(X) - n) // 3, min(len(X), n + 100_000)
    cuts = [slice(0, n), slice(n, ends[0]), slice(*ends)]
    return "multiclass" if rows is covertype else "binary", Parts(*[(X[cut], y[cut]) for cut in cuts])


def markdown(found: dict[str, dict[str, Any]]) -> str:
    """Return log-losses, and seconds of the processor."""
    lines = ["| | " + " | ".join(f"{size:,}" for size in SIZES) + " |", "|---" * (len(SIZES) + 1) + "|"]
    for case, row in found.items():
        cells = [f"{one['judge']:.4f} ({one['cost']:.0f} s)" if (one := row.get(str(size))) else "" for size in SIZES]
        lines.append(f"| {case} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="Log-loss against the rows of a step.")
    parser.add_argument("--only", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--table", action="store_true", help="run nothing, show what is stored")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    found = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for case in () if options.table else options.only:
        kind, parts = parts_of(case)
        *_, profile, stages = CASES[case]
        for size in SIZES:
            row = found.setdefault(case, {})
            if str(size) not in row:
                given = profile.parameters() | {"batch_size": size, "n_estimators": stages}
                row[str(size)] = judged(kind, parts, given, 0)
                RESULTS.write_text(json.dumps(found, indent=1) + "\n")
                print(case, size, row[str(size)], flush=True)
    print(markdown(found))


if __name__ == "__main__":
    main()
