"""Random fits, each checked in every way that docs/guarantees.md promises; run it after large changes.

    python tests/attack.py --count 300 --seed 1        # about ten minutes; other seeds are other cases

A case is a table (numbers, categories, dates, missing values; NumPy, pandas, polars, Arrow), a target and settings
drawn at random. Its predictions must be finite, the same for a row alone and among many, for rows in another order, for
the same table in another container, after saving, pickling and fitting again, in plain NumPy, and in two parts by warm
start; rows of weight zero must not matter. Every tenth case goes through the command line: CSV, gzip and Parquet must
give the same predictions, and --keep must change nothing. Prints what differs, and exits with 1 if anything does.
"""

import argparse
import contextlib
import io
import pickle
import signal
import sys
import tempfile
import traceback
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
from sklearn.base import clone

from vpboost import VPBoostClassifier, VPBoostRegressor, load_model
from vpboost.cli.main import main as command
from vpboost.predictor import Predictor

#: Agreement of predictions that may be made in single precision, in units of the targets' spread.
CLOSE = 3e-6
SECONDS = 180


def column(rng, n):
    """Return a column of some kind."""
    kind = rng.choice(["normal", "uniform", "whole", "heavy", "far", "text", "category", "date", "flag"])
    values = {
        "normal": lambda: rng.normal(size=n),
        "uniform": lambda: rng.uniform(-1e-3, 1e3, n),
        "whole": lambda: rng.integers(-5, 9, n),
        "heavy": lambda: rng.standard_cauchy(n),
        "far": lambda: 1e9 + rng.normal(size=n),
        "text": lambda: rng.choice(["a", "b b", "ß", "1"], n),
        "category": lambda: pd.Categorical(rng.choice(["x", "y", "z"], n)),
        "date": lambda: np.datetime64("2021-03-01T00:00:00", "us") + rng.integers(0, 900, n) * np.timedelta64(13, "h"),
        "flag": lambda: rng.random(n) < 0.4,
    }[kind]()
    values = pd.Series(values)
    if rng.random() < 0.3 and kind in ("normal", "uniform", "heavy", "text", "category", "date"):
        values[rng.random(n) < 0.1] = None
    return values


def frame_of(rng, n):
    return pd.DataFrame(
        {f"{name}": column(rng, n) for name in ["first", "second", "third", "x y"][: rng.integers(1, 5)]}
    )


def signal_of(frame):
    """Return a number for each row that depends on every column."""
    total = np.zeros(len(frame))
    for name in frame:
        codes = pd.factorize(frame[name], sort=True)[0] if frame[name].dtype.kind not in "f" else frame[name].to_numpy()
        codes = np.nan_to_num(np.asarray(codes, float))
        total += np.tanh((codes - np.median(codes)) / (np.abs(codes - np.median(codes)).mean() + 1e-9))
    return total


def target_of(rng, base):
    """Return a target, the loss for it, and whether it holds classes."""
    n, noise = len(base), 0.1 * rng.normal(size=len(base))
    kind = rng.choice(["plain", "several", "counts", "positive", "robust", "two", "more", "text"])
    if kind == "several":
        return np.stack([base + noise, base**2, 1e4 * np.sin(base)], axis=1), "squared_error", False
    if kind in ("counts", "positive"):
        rate = np.exp(0.3 * base)
        poisson = kind == "counts"
        return (
            (rng.poisson(rate) if poisson else rate * rng.gamma(3, 1 / 3, n)),
            "poisson" if poisson else "gamma",
            False,
        )
    if kind == "robust":
        return 1e-3 * (base + noise), str(rng.choice(["quantile", "pseudo_huber"])), False
    if kind in ("two", "more", "text"):
        order = np.argsort(np.argsort(base + noise))
        numbers = order * (2 if kind == "two" else 4) // n
        return (np.array(["no", "maybe", "yes", "10"])[numbers] if kind == "text" else numbers + 7), None, True
    return 50 + 3 * base + noise, "squared_error", False


def settings_of(rng, classes, loss):
    options = {
        "n_estimators": int(rng.integers(2, 5)),
        "max_steps": int(rng.integers(2, 8)),
        "featurizer": str(rng.choice(["mlp", "mlp", "resnet", "rbf", "fourier", "bspline"])),
        "encoding": str(rng.choice(["plain", "quantile", "spline", "fine"])),
        "inherit": float(rng.choice([0.0, 0.7])),
        "max_features": [1.0, 0.5, None][rng.integers(3)],
        "engine": str(rng.choice(["numpy", "native", "xla"])),
        "dtype": str(rng.choice(["float32", "float64"])),
        "early_stopping_rounds": [None, 2][rng.integers(2)],
        "learning_rate": float(rng.choice([0.3, 1.0])),
        "random_state": int(rng.integers(100)),
    }
    if options["featurizer"] in ("mlp", "resnet"):
        options["activation"] = str(rng.choice(["tanh", "gelu", "silu", "softplus", "sin", "relu"]))
    if rng.random() < 0.2:
        options["method"] = str(rng.choice(["gd", "vp_start", "vp_end", "vp_start_end"]))
    if rng.random() < 0.15:
        options["batch_size"] = 32
    if rng.random() < 0.15:
        options["candidates"] = 2
    if not classes:
        options["loss"] = loss
    return options


def containers(frame):
    """Return the same table in other containers."""
    found = {"polars": pl.from_pandas(frame), "arrow": pa.Table.from_pandas(frame, preserve_index=False)}
    if all(frame[name].dtype.kind in "biuf" for name in frame):
        found["fortran"] = np.asfortranarray(frame.to_numpy(dtype=float))
        found["list"] = frame.to_numpy(dtype=float).tolist()
    return found


class Checker:
    """Compares with what a model predicted."""

    def __init__(self, model, frame):
        self.ask = "predict_proba" if hasattr(model, "classes_") else "predict"
        self.expected = np.asarray(getattr(model, self.ask)(frame))
        self.spread = max(float(np.std(self.expected, axis=0).max()), float(np.abs(self.expected).max()) * 1e-6, 1e-12)
        self.faults = []

    def same(self, what, found, tolerance=0.0, rows=slice(None)):
        expected = self.expected[rows]
        limit = tolerance * self.spread
        if found.shape != expected.shape or not np.all(
            np.abs(found - expected) <= limit + 1e-9 * np.abs(expected) * bool(limit)
        ):
            off = np.abs(found - expected).max() / self.spread if found.shape == expected.shape else "shape"
            self.faults.append(f"{what}: off by {off} of the spread")


def check_model(rng, folder):
    """Return what is wrong with one random fit."""
    n = int(rng.integers(40, 260))
    frame = frame_of(rng, n)
    y, loss, classes = target_of(rng, signal_of(frame))
    options = settings_of(rng, classes, loss)
    kind = VPBoostClassifier if classes else VPBoostRegressor
    weight = rng.choice([0.5, 1.0, 2.0], n) if rng.random() < 0.4 else None
    model = kind(**options).fit(frame, y, sample_weight=weight)
    check = Checker(model, frame)
    if not np.isfinite(check.expected).all() or not np.isfinite(model.input_gradient(frame)).all():
        check.faults.append("predictions or gradients are not finite")

    def ask(one, table):
        return np.asarray(getattr(one, check.ask)(table))

    few = rng.permutation(n)[:3]
    check.same("rows alone", np.concatenate([ask(model, frame.iloc[[i]]) for i in few]), CLOSE, few)
    check.same("among many", ask(model, pd.concat([frame] * 9))[:n], CLOSE)
    order = rng.permutation(n)
    moved = clone(model).fit(frame.iloc[order], y[order], sample_weight=None if weight is None else weight[order])
    check.same("rows in another order", ask(moved, frame), CLOSE)
    check.same("fitted again", ask(clone(model).fit(frame, y, sample_weight=weight), frame))
    for name, table in containers(frame).items():
        check.same(f"as {name}", ask(clone(model).fit(table, y, sample_weight=weight), table), CLOSE)
    more, none = (
        pd.concat([frame, frame.iloc[:5]]),
        np.concatenate([np.ones(n) if weight is None else weight, np.zeros(5)]),
    )
    extra = clone(model).fit(more, np.concatenate([y, y[::-1][:5]]), sample_weight=none)
    check.same("rows of weight zero", ask(extra, frame), CLOSE)
    model.save_model(folder / "model")
    check.same("loaded", ask(load_model(folder / "model"), frame))
    check.same("pickled", ask(pickle.loads(pickle.dumps(model)), frame))
    plain = Predictor(folder / "model")
    found = plain.predict_proba(frame) if classes else plain.predict(frame)
    check.same("in plain NumPy", found, CLOSE)
    if options["early_stopping_rounds"] is None:
        half = clone(model).set_params(n_estimators=1, warm_start=True).fit(frame, y, sample_weight=weight)
        half.save_model(folder / "half")
        half = load_model(folder / "half") if rng.random() < 0.5 else half
        half.set_params(n_estimators=options["n_estimators"]).fit(frame, y, sample_weight=weight)
        check.same("in two parts", ask(half, frame), CLOSE)
    return check.faults, {"rows": n, "columns": [str(frame[c].dtype) for c in frame], **options}


def check_command(rng, folder):
    """Return what differs between tables of other formats on the command line."""
    n = int(rng.integers(50, 150))
    frame = frame_of(rng, n)
    y, _, classes = target_of(rng, signal_of(frame))
    table = frame.assign(target=y if y.ndim == 1 else y[:, 0])
    table.to_csv(folder / "t.csv", index=False)
    table.to_csv(folder / "t.csv.gz", index=False)
    table.to_csv(folder / "s.csv", index=False, sep=";")
    table.to_parquet(folder / "t.parquet", index=False)
    task = ["--task", "classification" if classes else "regression"]
    train = ["--target", "target", "--n-estimators", "3", "--max-steps", "3", "--encoding", "plain", "--quiet", *task]
    found = {}
    for name in ("t.csv", "t.csv.gz", "s.csv", "t.parquet"):
        run("train", folder / name, *train, "-o", folder / "m")
        run("predict", folder / "m", folder / name, "-o", folder / "p.csv")
        found[name] = pd.read_csv(folder / "p.csv").iloc[:, 0]
    faults = [f"{name} predicts otherwise than t.csv" for name, one in found.items() if not equal(one, found["t.csv"])]
    run("predict", folder / "m", folder / "t.csv", "-o", folder / "q.csv", "--keep")
    kept = pd.read_csv(folder / "q.csv", dtype=str, keep_default_na=False)
    if not kept[list(table)].equals(pd.read_csv(folder / "t.csv", dtype=str, keep_default_na=False)):
        faults.append("--keep changed the table")
    return faults, {"rows": n, "columns": [str(frame[c].dtype) for c in frame], "command": True}


def equal(one, other):
    if one.dtype.kind == "f":
        return np.allclose(one, other, rtol=1e-6, atol=1e-6 * np.std(other))
    return one.equals(other)


def run(*words):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as errors:
        code = command([str(word) for word in words])
    if code:
        raise RuntimeError(f"vpboost {words[0]} ended with {code}: {errors.getvalue()[-300:]}")


def too_slow(*_):
    raise TimeoutError(f"more than {SECONDS} s")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    signal.signal(signal.SIGALRM, too_slow)
    warnings.simplefilter("ignore")
    n_faulty = 0
    for case in range(options.count):
        rng = np.random.default_rng([options.seed, case])
        with tempfile.TemporaryDirectory() as folder:
            signal.alarm(SECONDS)
            try:
                faults, facts = (check_command if case % 10 == 9 else check_model)(rng, Path(folder))
            except Exception as error:
                faults, facts = [f"{type(error).__name__}: {error}", traceback.format_exc(limit=-3)], {}
            finally:
                signal.alarm(0)
        if faults:
            n_faulty += 1
            print(f"case {case} of seed {options.seed}: {facts}", *faults, sep="\n    ", flush=True)
    print(f"{options.count} cases, {n_faulty} with faults")
    sys.exit(bool(n_faulty))


if __name__ == "__main__":
    main()
