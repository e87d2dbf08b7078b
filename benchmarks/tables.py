"""Real tables, default settings: VPBoost and its peers, five splits and seeds, one fit at a time.

    VPBOOST_DATA=path/to/data python benchmarks/tables.py             # an hour or two; goes on if stopped
    python benchmarks/tables.py --table                               # what is stored already, in Markdown

Every model gets the same 70/15/15 split, drawn anew with each seed (CDR and Higgs have published test rows), and stops
early on the validation part; two threads; nothing else should run. The first fit of VPBoost to a table includes
compilation. R² is averaged over outputs. Results are stored one by one in ``benchmarks/results/tables.json``. Needs
``vpboost[benchmarks]``.
"""

import argparse
import json
import os
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
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


def load(name: str, folder: Path, seed: int = 0) -> Split:
    data = np.load(folder / f"{name}.npz", allow_pickle=False)
    if name == "higgs":
        test = data["source"] == list(data["source_names"]).index("h2o_test_5k")
        rest = np.random.default_rng(seed).permutation(np.flatnonzero(~test))
        cut = round(0.85 * len(rest))
        rows = {"train": rest[:cut], "val": rest[cut:], "test": np.flatnonzero(test)}
        return Split("binary", {k: (data["X"][i], data["y"][i]) for k, i in rows.items()})
    if name == "adult":
        X, X_test = (np.hstack([data[f"Xnum_{part}"], data[f"Xcat_{part}"]]) for part in ("train", "test"))
        train, val = np.split(np.random.default_rng(seed).permutation(len(X)), [round(0.85 * len(X))])
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
    order = np.random.default_rng(seed).permutation(len(X))
    cuts = np.split(order, [round(0.7 * len(X)), round(0.85 * len(X))])
    kind = "binary" if name in ("magic", "electricity") else "regression"
    kind = "multiclass" if name in ("satimage", "penbased", "covertype") else kind
    return Split(kind, {k: (X[i], y[i]) for k, i in zip(("train", "val", "test"), cuts, strict=True)})


def vpboost(kind: str, parts: dict, seed: int) -> Any:
    model = (VPBoostRegressor if kind == "regression" else VPBoostClassifier)(random_state=seed)
    return model.fit(*parts["train"], X_val=parts["val"][0], y_val=parts["val"][1])


def xgboost(kind: str, parts: dict, seed: int) -> Any:
    import xgboost as xgb

    model = xgb.XGBRegressor if kind == "regression" else xgb.XGBClassifier
    return model(n_estimators=TREES, early_stopping_rounds=ROUNDS, n_jobs=THREADS, random_state=seed).fit(
        *parts["train"], eval_set=[parts["val"]], verbose=False
    )


class PerOutput:
    """One LightGBM model per output."""

    def __init__(self, models: list):
        self.models = models

    def predict(self, X: np.ndarray) -> np.ndarray:
        return np.stack([model.predict(X) for model in self.models], axis=1)


def lightgbm(kind: str, parts: dict, seed: int) -> Any:
    import lightgbm as lgb

    def one(y_train: np.ndarray, y_val: np.ndarray) -> Any:
        model = lgb.LGBMRegressor if kind == "regression" else lgb.LGBMClassifier
        return model(n_estimators=TREES, n_jobs=THREADS, verbose=-1, random_state=seed).fit(
            parts["train"][0],
            y_train,
            eval_set=[(parts["val"][0], y_val)],
            callbacks=[lgb.early_stopping(ROUNDS, verbose=False)],
        )

    y_train, y_val = parts["train"][1], parts["val"][1]
    if y_train.ndim == 1:
        return one(y_train, y_val)
    return PerOutput([one(y_train[:, k], y_val[:, k]) for k in range(y_train.shape[1])])


def catboost(kind: str, parts: dict, seed: int) -> Any:
    import catboost as cb

    options = {"iterations": TREES, "early_stopping_rounds": ROUNDS, "thread_count": THREADS, "verbose": False}
    options |= {"allow_writing_files": False, "random_seed": seed}
    if kind != "regression":
        model = cb.CatBoostClassifier(**options)
    else:
        many = parts["train"][1].ndim == 2
        model = cb.CatBoostRegressor(**options, loss_function="MultiRMSE" if many else "RMSE")
    return model.fit(*parts["train"], eval_set=parts["val"])


def hist_gradient_boosting(kind: str, parts: dict, seed: int) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    (X, y), (X_val, y_val) = parts["train"], parts["val"]
    options = {"max_iter": TREES, "early_stopping": True, "n_iter_no_change": ROUNDS, "random_state": seed}
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


def mlp(kind: str, parts: dict, seed: int) -> Any:
    from sklearn.compose import TransformedTargetRegressor
    from sklearn.neural_network import MLPClassifier, MLPRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    options = {"early_stopping": True, "max_iter": 1000, "random_state": seed}
    network = MLPRegressor(**options) if kind == "regression" else MLPClassifier(**options)
    model = make_pipeline(StandardScaler(), network)
    if kind == "regression":
        model = TransformedTargetRegressor(model, transformer=StandardScaler())
    X, y = (np.concatenate([parts["train"][i], parts["val"][i]]) for i in (0, 1))  # it splits by itself
    return model.fit(X, y)


MODELS: dict[str, Callable[[str, dict, int], Any]] = {
    "vpboost": vpboost,
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
#: Models that take minutes on a table, and are run there with one seed.
SLOW = {"cdr": ("catboost",), "mtr_oes97": ("catboost",)}
#: Tables that nobody looked at when the defaults were chosen.
UNSEEN = ("uci_boston", "uci_wine_red", "mtr_jura", "mtr_oes97", "satimage", "penbased")
#: A table of mostly one-hot columns, on which defaults were far behind trees when this was written.
ONE_HOT = ("adult",)


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
    parser.add_argument("--only", nargs="+", default=[*TABLES, *UNSEEN, *ONE_HOT], choices=(*TABLES, *UNSEEN, *ONE_HOT))
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--table", action="store_true", help="run nothing, show what is stored")
    options = parser.parse_args()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if not options.table:
        run(options, results)
    print(markdown(results))


def run(options: argparse.Namespace, results: dict) -> None:
    """Run what is not stored yet, seeds outermost."""
    folder = data_folder()
    for seed, name in product(range(options.seeds), options.only):
        split = load(name, folder, seed)
        for label in options.models:
            stored = results.setdefault(name, {}).setdefault(label, {})
            if str(seed) in stored or (seed and label in SLOW.get(name, ())):
                continue
            began = time.perf_counter()
            model = MODELS[label](split.kind, split.parts, seed)
            found = {"seconds": time.perf_counter() - began, **evaluate(split.kind, model, *split.parts["test"])}
            stored[str(seed)] = {key: float(f"{value:.6g}") for key, value in found.items()}
            print(name, label, seed, stored[str(seed)], flush=True)
            RESULTS.write_text(json.dumps(results, indent=0) + "\n")


def markdown(results: dict) -> str:
    """Return means over seeds, spreads of VPBoost's, seconds, and how often each model is first."""
    heading = ["table", *MODELS, "± of VPBoost", *(f"{label}, s" for label in MODELS)]
    lines, ranks = ["| " + " | ".join(heading) + " |", "|---" * len(heading) + "|"], []
    for name, row in results.items():
        metric = metric_of(name, "binary" if "log_loss" in next(iter(row["vpboost"].values())) else "regression")
        scores = {label: [one[metric] for one in row[label].values()] for label in MODELS if row.get(label)}
        means = {label: float(np.mean(values)) for label, values in scores.items()}
        order = sorted(means, key=means.__getitem__, reverse=metric != "log_loss")
        cells = [
            ("**{:.4f}**" if label == order[0] else "{:.4f}").format(means[label]) if label in means else "–"
            for label in MODELS
        ]
        times = [
            f"{np.median([one['seconds'] for one in row[label].values()]):.2g}" if row.get(label) else "–"
            for label in MODELS
        ]
        lines.append(
            "| " + " | ".join([f"{name} ({metric})", *cells, f"{np.std(scores['vpboost']):.4f}", *times]) + " |"
        )
        ranks.append([order.index(label) + 1 if label in order else np.nan for label in MODELS])
    mean, first = np.nanmean(ranks, axis=0), np.sum(np.array(ranks) == 1, axis=0)
    lines.append(
        "| mean rank (first on) | " + " | ".join(f"{m:.2f} ({f})" for m, f in zip(mean, first, strict=True)) + " |"
    )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
