"""Real tables, default settings: VPBoost (also with few large steps) and its peers, in one process, one at a time.

    VPBOOST_DATA=path/to/data python benchmarks/tables.py [--only NAME ...] [--models NAME ...]

Every model gets the same 70/15/15 split and stops early on the validation part; two threads; nothing else should run.
VPBoost is timed twice: JAX compiles its programs during the first fit of a process.
R² is averaged over outputs. Prints a table and writes ``benchmarks/results/tables.json``; needs the extra
``vpboost[benchmarks]``.
"""

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.metrics import log_loss, r2_score, roc_auc_score

from vpboost import VPBoostClassifier, VPBoostRegressor

RESULTS = Path(__file__).parent / "results" / "tables.json"
THREADS = 2
TREES = 2000
ROUNDS = 50


class Split(NamedTuple):
    """A table in three parts."""

    kind: str  #: "regression", "binary" or "multiclass"
    parts: dict[str, tuple[np.ndarray, np.ndarray]]


def load(name: str, folder: Path) -> Split:
    data = np.load(folder / f"{name}.npz", allow_pickle=False)
    if name == "higgs":
        test = data["source"] == list(data["source_names"]).index("h2o_test_5k")
        rest = np.random.default_rng(0).permutation(np.flatnonzero(~test))
        cut = round(0.85 * len(rest))
        rows = {"train": rest[:cut], "val": rest[cut:], "test": np.flatnonzero(test)}
        return Split("binary", {k: (data["X"][i], data["y"][i]) for k, i in rows.items()})
    if name == "adult":
        X, X_test = (np.hstack([data[f"Xnum_{part}"], data[f"Xcat_{part}"]]) for part in ("train", "test"))
        train, val = np.split(np.random.default_rng(0).permutation(len(X)), [round(0.85 * len(X))])
        y = data["y_train"]
        return Split(
            "binary", {"train": (X[train], y[train]), "val": (X[val], y[val]), "test": (X_test, data["y_test"])}
        )
    if "X_train" in data:
        return Split("regression", {k: (data[f"X_{k}"], data[f"y_{k}"]) for k in ("train", "val", "test")})
    X = np.hstack([data["Xnum"], data["Xbin"]]) if name == "covertype" else data["X"]
    y = next(data[key] for key in ("C", "Y2", "Y", "y") if key in data)
    if name == "cdr":
        rows = {k: data[f"idx_{k}_rng42"] for k in ("train", "val", "test")}
        return Split("regression", {k: (X[i], y[i]) for k, i in rows.items()})
    order = np.random.default_rng(0).permutation(len(X))
    cuts = np.split(order, [round(0.7 * len(X)), round(0.85 * len(X))])
    kind = "binary" if name in ("magic", "electricity") else "regression"
    kind = "multiclass" if name in ("satimage", "penbased", "covertype") else kind
    return Split(kind, {k: (X[i], y[i]) for k, i in zip(("train", "val", "test"), cuts, strict=True)})


def vpboost(kind: str, parts: dict, seed: int = 0, **options: Any) -> Any:
    model = (VPBoostRegressor if kind == "regression" else VPBoostClassifier)(random_state=seed, **options)
    return model.fit(*parts["train"], X_val=parts["val"][0], y_val=parts["val"][1])


def vpboost_quick(kind: str, parts: dict) -> Any:
    """Few large steps, as the guide advises where time matters more than the last digits."""
    return vpboost(kind, parts, learning_rate=0.3, n_estimators=30)


def xgboost(kind: str, parts: dict) -> Any:
    import xgboost as xgb

    model = xgb.XGBRegressor if kind == "regression" else xgb.XGBClassifier
    return model(n_estimators=TREES, early_stopping_rounds=ROUNDS, n_jobs=THREADS).fit(
        *parts["train"], eval_set=[parts["val"]], verbose=False
    )


class PerOutput:
    """One LightGBM model per output."""

    def __init__(self, models: list):
        self.models = models

    def predict(self, X: np.ndarray) -> np.ndarray:
        return np.stack([model.predict(X) for model in self.models], axis=1)


def lightgbm(kind: str, parts: dict) -> Any:
    import lightgbm as lgb

    def one(y_train: np.ndarray, y_val: np.ndarray) -> Any:
        model = lgb.LGBMRegressor if kind == "regression" else lgb.LGBMClassifier
        return model(n_estimators=TREES, n_jobs=THREADS, verbose=-1).fit(
            parts["train"][0],
            y_train,
            eval_set=[(parts["val"][0], y_val)],
            callbacks=[lgb.early_stopping(ROUNDS, verbose=False)],
        )

    y_train, y_val = parts["train"][1], parts["val"][1]
    if y_train.ndim == 1:
        return one(y_train, y_val)
    return PerOutput([one(y_train[:, k], y_val[:, k]) for k in range(y_train.shape[1])])


def catboost(kind: str, parts: dict) -> Any:
    import catboost as cb

    options = {"iterations": TREES, "early_stopping_rounds": ROUNDS, "thread_count": THREADS, "verbose": False}
    options["allow_writing_files"] = False
    if kind != "regression":
        model = cb.CatBoostClassifier(**options)
    else:
        many = parts["train"][1].ndim == 2
        model = cb.CatBoostRegressor(**options, loss_function="MultiRMSE" if many else "RMSE")
    return model.fit(*parts["train"], eval_set=parts["val"])


def hist_gradient_boosting(kind: str, parts: dict) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    (X, y), (X_val, y_val) = parts["train"], parts["val"]
    options = {"max_iter": TREES, "early_stopping": True, "n_iter_no_change": ROUNDS}
    if kind != "regression":
        return HistGradientBoostingClassifier(**options).fit(X, y, X_val=X_val, y_val=y_val)
    if y.ndim == 1:
        return HistGradientBoostingRegressor(**options).fit(X, y, X_val=X_val, y_val=y_val)
    return PerOutput(
        [
            HistGradientBoostingRegressor(**options).fit(X, y[:, k], X_val=X_val, y_val=y_val[:, k])
            for k in range(y.shape[1])
        ]
    )


def mlp(kind: str, parts: dict) -> Any:
    from sklearn.compose import TransformedTargetRegressor
    from sklearn.neural_network import MLPClassifier, MLPRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    options = {"early_stopping": True, "max_iter": 1000, "random_state": 0}
    network = MLPRegressor(**options) if kind == "regression" else MLPClassifier(**options)
    model = make_pipeline(StandardScaler(), network)
    if kind == "regression":
        model = TransformedTargetRegressor(model, transformer=StandardScaler())
    X, y = (np.concatenate([parts["train"][i], parts["val"][i]]) for i in (0, 1))  # it splits by itself
    return model.fit(X, y)


MODELS: dict[str, Callable[[str, dict], Any]] = {
    "vpboost": vpboost,
    "vpboost_quick": vpboost_quick,
    "catboost": catboost,
    "lightgbm": lightgbm,
    "xgboost": xgboost,
    "hgb": hist_gradient_boosting,
    "mlp": mlp,
}
TABLES = (
    "uci_kin8nm", "uci_concrete", "evans_airfoil", "uci_yacht", "uci_naval", "uci_energy", "uci_power",
    "tab_california", "mtr_enb", "mtr_wq", "cdr", "magic", "electricity", "higgs",
)  # fmt: skip
#: Tables that nobody looked at when the defaults were chosen.
UNSEEN = ("uci_boston", "uci_wine_red", "mtr_jura", "mtr_oes97", "satimage", "penbased")


def data_folder() -> Path:
    """Return the folder of the tables."""
    if "VPBOOST_DATA" not in os.environ:
        raise SystemExit("set VPBOOST_DATA to the folder that holds the .npz tables")
    return Path(os.environ["VPBOOST_DATA"])


def metric_of(name: str, kind: str) -> str:
    """Return the score that a table is judged by."""
    return "r2" if kind == "regression" else "auc" if name == "higgs" else "log_loss"


def evaluate(kind: str, model: Any, X: np.ndarray, y: np.ndarray) -> dict[str, float]:
    if kind == "multiclass":
        return {"log_loss": float(log_loss(y, model.predict_proba(X)))}
    if kind == "binary":
        p = model.predict_proba(X)[:, 1]
        return {"log_loss": float(log_loss(y, p)), "auc": float(roc_auc_score(y, p))}
    prediction = model.predict(X)
    found = {"r2": float(r2_score(y, prediction)), "mse": float(np.mean((y - prediction) ** 2))}
    if y.ndim == 2:
        found["r2_worst_output"] = float(r2_score(y, prediction, multioutput="raw_values").min())
        found["r2_best_output"] = float(r2_score(y, prediction, multioutput="raw_values").max())
    if y.ndim == 2 and np.all(np.any(y != 0, axis=1)):
        errors = np.linalg.norm(prediction - y, axis=1) / np.linalg.norm(y, axis=1)
        found["relative_error"] = float(errors.mean())
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="VPBoost beside its peers on real tables, default settings.")
    parser.add_argument("--only", nargs="+", default=[*TABLES, *UNSEEN], choices=(*TABLES, *UNSEEN))
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--seeds", type=int, help="print VPBoost's scores with so many seeds, and write nothing")
    options = parser.parse_args()
    folder = data_folder()
    if options.seeds:
        for name in options.only:
            print(name, *scores_by_seed(name, load(name, folder), options.seeds))
        return
    console, results = Console(), json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in options.only:
        split = load(name, folder)
        for label in options.models:
            began = time.perf_counter()
            model = MODELS[label](split.kind, split.parts)
            seconds = time.perf_counter() - began
            found = {**evaluate(split.kind, model, *split.parts["test"]), "seconds": seconds}
            if label.startswith("vpboost"):  # once more, now that JAX has compiled what it needs
                began = time.perf_counter()
                MODELS[label](split.kind, split.parts)
                found["seconds_again"] = time.perf_counter() - began
            results.setdefault(name, {})[label] = found
            console.print(name, label, {k: float(f"{v:.4g}") for k, v in found.items()})
            RESULTS.parent.mkdir(exist_ok=True)
            RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    console.print(summary(results))


def scores_by_seed(name: str, split: Split, n_seeds: int) -> list[float]:
    """Return VPBoost's test score with each seed: how much of a score is luck."""
    models = (vpboost(split.kind, split.parts, seed) for seed in range(n_seeds))
    scores = (evaluate(split.kind, model, *split.parts["test"]) for model in models)
    return [round(score[metric_of(name, split.kind)], 4) for score in scores]


def summary(results: dict) -> Table:
    table = Table(title="Test R² (log-loss of classifiers, AUC for higgs), and seconds")
    table.add_column("table")
    for label in MODELS:
        table.add_column(label, justify="right")
        table.add_column("s", justify="right")
    table.add_column("vpboost again, s", justify="right")
    for name, row in results.items():
        metric = metric_of(name, "binary" if "log_loss" in next(iter(row.values())) else "regression")
        cells = [(f"{row[m][metric]:.4f}", f"{row[m]['seconds']:.1f}") if m in row else ("–", "–") for m in MODELS]
        again = row.get("vpboost", {}).get("seconds_again")
        table.add_row(name, *(text for pair in cells for text in pair), "–" if again is None else f"{again:.1f}")
    return table


if __name__ == "__main__":
    main()
