"""How long default fits take, beside CatBoost and LightGBM: new processes, programs kept on disk or not, fits again.

    VPBOOST_DATA=path/to/data python benchmarks/fit_times.py --label "what is measured"   # half an hour
    python benchmarks/fit_times.py --table                                                # what is stored, in Markdown
    python benchmarks/fit_times.py --picture docs/fit-times.png

Each model has processes of its own, one at a time, and two threads; nothing else should run. Imports are not timed.
VPBoost fits in a process with an empty folder of programs (*cold*), once more in the same process (*again*), and in
another process that finds the programs (*warm*); *race* is the part of *again* that the choice of a profile takes. The
split is that of ``benchmarks/tables.py``, seed 0; all stop early on its validation part. Results go to
``benchmarks/results/fit_times.json``. Needs ``vpboost[benchmarks]``.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from processes import rows_between
from tables import MODELS, Split, data_folder, evaluate, load, metric_of

RESULTS = Path(__file__).parent / "results" / "fit_times.json"
#: One output, 3,000 to 60,000 rows; below 3,000; several classes; several outputs.
GROUPS = {
    "3,000 to 60,000 rows": (
        "uci_kin8nm", "uci_power", "tab_california", "magic", "electricity", "higgs", "adult",
    ),
    "below 3,000 rows": (
        "uci_yacht", "uci_boston", "uci_energy", "uci_concrete", "evans_airfoil", "uci_wine_red",
    ),
    "several classes": ("satimage", "penbased", "covertype", "mnist", "hundred"),
    "several outputs": ("mtr_jura", "mtr_enb", "mtr_wq", "cdr", "uci_naval"),
    "a million rows": ("million",),
}  # fmt: skip
#: Peers of a table, where they are not the same as of others: CatBoost takes minutes on some.
PEERS = {name: ("lightgbm",) for name in ("cdr", "mnist", "hundred")} | {"million": ("lightgbm", "xgboost")}


def table(name: str) -> Split:
    """Return a table in three parts; three of them are not files of their own."""
    if name == "million":  # 28 columns, two classes
        return cut("binary", *rows_between(0, 1_200_000), 1_000_000)
    if name == "hundred":
        rng = np.random.default_rng(0)
        centres = rng.normal(size=(100, 20))
        y = rng.integers(0, 100, 14_000)
        X = np.tanh(centres[y] + 0.6 * rng.normal(size=(14_000, 20))) @ rng.normal(size=(20, 20))
        return cut("multiclass", X, y, 10_000)
    if name == "mnist":
        data = np.load(data_folder() / "mnist.npz", allow_pickle=False)
        rows = np.random.default_rng(0).permutation(len(data["x_train"]))[:14_000]
        return cut(
            "multiclass", data["x_train"][rows].reshape(14_000, -1) / np.float32(255), data["y_train"][rows], 10_000
        )
    split = load(name, data_folder())
    if name == "covertype":
        parts = {k: (X[:n], y[:n]) for (k, (X, y)), n in zip(split.parts.items(), (42_000, 9_000, 60_000), strict=True)}
        return Split("multiclass", parts)
    return split


def cut(kind: str, X: np.ndarray, y: np.ndarray, n: int) -> Split:
    """Return the first ``n`` rows to learn from, half of the rest to validate and half to test."""
    middle = (n + len(X)) // 2
    return Split(kind, {"train": (X[:n], y[:n]), "val": (X[n:middle], y[n:middle]), "test": (X[middle:], y[middle:])})


def fit(label: str, name: str, n_fits: int) -> dict[str, Any]:
    """Fit a model to a table some times; return seconds and what came of it. Runs in a process of its own."""
    split = table(name)
    if label == "vpboost":
        import vpboost.estimators  # noqa: F401
    else:
        __import__(label)
    seconds: list[float] = []
    choice: list[float] = []
    with timed(choice) if label == "vpboost" else nullcontext():
        for _ in range(n_fits):
            began = time.perf_counter()
            model = MODELS[label](split.kind, split.parts, 0)
            seconds.append(round(time.perf_counter() - began, 3))
    score = evaluate(split.kind, model, *split.parts["test"])[metric_of(name, split.kind)]
    found = {"seconds": seconds, "score": float(f"{score:.6g}")}
    if label == "vpboost":
        found |= {"stages": model.n_iter_, "chains": model.n_chains_, "profile": repr(model.profile_)}
        found["race"] = round(choice[-1] / seconds[-1], 3)
    return found


def timed(seconds: list[float]) -> Any:
    """Return a context in which the choice of a profile tells how long it took."""
    from vpboost.estimators.choosing import Choosing

    choose = Choosing._choose_profile

    def watched(*args: Any) -> Any:
        began = time.perf_counter()
        chosen = choose(*args)
        seconds.append(time.perf_counter() - began)
        return chosen

    return mock.patch.object(Choosing, "_choose_profile", watched)


def in_new_process(label: str, name: str, n_fits: int, folder: str) -> dict[str, Any]:
    """Return what :func:`fit` returns in a process whose programs are kept in a folder."""
    command = [sys.executable, __file__, "--fit", label, name, str(n_fits)]
    environment = {**os.environ, "VPBOOST_CACHE": folder}
    printed = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    return json.loads(printed.splitlines()[-1])


def measure(name: str, peers: Sequence[str]) -> dict[str, Any]:
    """Return times and scores of VPBoost and its peers on a table."""
    with tempfile.TemporaryDirectory() as folder:
        first = in_new_process("vpboost", name, 2, folder)
        warm = in_new_process("vpboost", name, 1, folder)
    (cold, again), found = first.pop("seconds"), {}
    found["vpboost"] = {"cold": cold, "warm": warm["seconds"][0], "again": again, **first}
    for peer in peers:
        other = in_new_process(peer, name, 1, "off")
        found[peer] = {"seconds": other["seconds"][0], "score": other["score"]}
    return found


def markdown(results: dict[str, Any]) -> str:
    """Return the last label's numbers beside the peers'."""
    lines = []
    for group, names in GROUPS.items():
        lines += [
            "",
            f"| {group} | cold | warm | again | race | CatBoost | LightGBM | score | CatBoost's | LightGBM's |",
        ]
        lines.append("|---" * 10 + "|")
        ratios = []
        for name in names:
            if name not in results:
                continue
            row = results[name]
            ours = list(row["vpboost"].values())[-1]
            peers = [row.get(peer, {}) for peer in ("catboost", "lightgbm")]
            times = [ours["cold"], ours["warm"], ours["again"], *(peer.get("seconds") for peer in peers)]
            scores = [ours["score"], *(peer.get("score") for peer in peers)]
            cells = ["–" if t is None else f"{t:.1f}" for t in times] + [
                "–" if s is None else f"{s:.4f}" for s in scores
            ]
            cells.insert(3, f"{ours['race']:.0%}" if "race" in ours else "")
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
            if times[3]:
                ratios.append([t / times[3] for t in times[:3]])
        if ratios:
            means = np.exp(np.mean(np.log(ratios), axis=0))
            lines.append(
                "| over CatBoost's, geometric mean | " + " | ".join(f"{m:.2f}" for m in means) + " |" + " |" * 6
            )
    return "\n".join(lines)


def picture(results: dict[str, Any], path: str) -> None:
    """Draw the first fits of each label, and CatBoost's, table by table."""
    import matplotlib.pyplot as plt

    names = [name for group in GROUPS.values() for name in group if name in results]
    labels = list(dict.fromkeys(label for name in names for label in results[name]["vpboost"]))
    figure, axes = plt.subplots(figsize=(8, 0.27 * len(names) + 1), layout="constrained")
    places = np.arange(len(names))[::-1]
    for k, label in enumerate(labels):
        cold = [results[name]["vpboost"].get(label, {}).get("cold", np.nan) for name in names]
        axes.plot(cold, places, "o", color=f"C{k}", label=f"VPBoost, {label}")
    catboost = [results[name].get("catboost", {}).get("seconds", np.nan) for name in names]
    axes.plot(catboost, places, "|", color="black", markersize=12, markeredgewidth=2, label="CatBoost")
    axes.set(xscale="log", xlabel="seconds of a first fit", yticks=places, yticklabels=names)
    axes.grid(axis="x", which="both", alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=110)


def main() -> None:
    everything = [name for names in GROUPS.values() for name in names]
    parser = argparse.ArgumentParser(description="Fit times beside peers, default settings.")
    parser.add_argument("--only", nargs="+", default=everything, choices=everything)
    parser.add_argument("--label", default="now", help="what this version of VPBoost is called among the results")
    parser.add_argument("--table", action="store_true", help="run nothing, show what is stored")
    parser.add_argument("--picture", metavar="FILE", help="run nothing, draw what is stored")
    parser.add_argument("--fit", nargs=3, metavar=("MODEL", "TABLE", "FITS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.fit:
        label, name, n_fits = options.fit
        print(json.dumps(fit(label, name, int(n_fits))))
        return
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if options.picture:
        picture(results, options.picture)
        return
    for name in options.only if not options.table else ():
        row = results.setdefault(name, {"vpboost": {}})
        peers = PEERS.get(name, ("catboost", "lightgbm"))
        found = measure(name, [peer for peer in peers if peer not in row])
        row["vpboost"].pop(options.label, None)  # the last one is what is shown
        row["vpboost"][options.label] = found.pop("vpboost")
        row |= found
        print(name, {**row, "vpboost": row["vpboost"][options.label]}, flush=True)
        RESULTS.write_text(json.dumps(results, indent=0) + "\n")
    print(markdown(results))


if __name__ == "__main__":
    main()
