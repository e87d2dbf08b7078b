"""One of several processes of test_distributed.py: fits with its own rows, and prints what came of it as JSON.

Arguments: the number of this process, how many there are, a free port, a folder, and the cases.
"""

import hashlib
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pandas as pd

from vpboost import VPBoostClassifier, VPBoostRegressor, distributed
from vpboost.callbacks import Checkpoint
from vpboost.distributed import fitting
from vpboost.tables import frames

N = 403
FIXED = {"encoding": "plain", "inherit": 0.8, "max_features": 1.0, "width": 4, "max_steps": 5}


def table():
    """Return a data frame with text, dates and holes, and a target."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(N, 3)), columns=list("abc"))
    frame["kind"] = np.where(frame["a"] > 0, "hot", "cold")
    frame.loc[N - 2 :, "kind"] = "rare"  # one process has never seen it
    frame.loc[3, "b"] = np.nan
    frame["day"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, N), "D")
    return frame, np.sin(frame["a"]).to_numpy() + frame["c"].to_numpy() ** 2


def regression(mine, folder):
    X, y = table()
    seen = []
    model = VPBoostRegressor(**FIXED, n_estimators=3, callbacks=[lambda progress: seen.append(progress.stage)])
    distributed.fit(model, X[mine].reset_index(drop=True), y[mine])
    low, high = model.predict_interval(X, coverage=0.8)
    assert (low <= high).all()
    return {**told(model.predict(X)), "seen": seen, "levels": model.input_encoder_.categories_[0].levels}


def race(mine, folder):
    X, y = table()
    y = np.stack([y, -y], axis=1)
    y[::5, 1] = np.nan
    model = VPBoostRegressor(n_estimators=3, width=4, max_steps=5, n_chains=2, distribution="normal")
    distributed.fit(model, X[mine].reset_index(drop=True), y[mine], np.linspace(1, 2, N)[mine])
    assert model.n_chains_ == 2
    return {**told(model.predict(X)), "profile": str(model.profile_)}


def classes(mine, folder):
    X, y = table()
    order = np.argsort(y, kind="stable")  # each process has seen some of the classes
    X, labels = X.iloc[order], np.array(["low", "middle", "high"])[np.digitize(y[order], [0.2, 1.5])]
    own = [X[mine].reset_index(drop=True), labels[mine]]
    model = VPBoostClassifier(**FIXED, n_estimators=3, class_weight="balanced", eval_metric="error")
    distributed.fit(model, *own, X_val=own[0], y_val=own[1])
    return {**told(model.predict_proba(X)), "classes": model.classes_.tolist(), "score": model.best_score_}


def wrong(mine, folder):
    """Errors of one process are errors of all, and none waits for ever; the processes can go on."""
    X, y = table()
    X, y, last = X[mine].reset_index(drop=True), y[mine], mine.stop == N
    labels, weight = (y > 0).astype(int), np.ones(len(y))
    dates = np.array(["2020-01-01", "2020-01-02"], "datetime64[D]")
    Path(folder, "garbage").write_bytes(b"garbage" * 99)
    narrow, half = {"X_val": X, "y_val": y}, {**FIXED, "width": 8}
    cases = {
        "columns": (VPBoostRegressor, FIXED, (X[["a"]] if last else X, y), {}),
        "names": (VPBoostRegressor, FIXED, (X.rename(columns={"c": "C"}) if last else X, y), {}),
        "order": (VPBoostRegressor, FIXED, (X[["b", "a", "c", "kind", "day"]] if last else X, y), {}),
        "kinds": (VPBoostRegressor, FIXED, (X.assign(kind=1.5) if last else X, y), {}),
        "target": (VPBoostRegressor, FIXED, (X, y * np.nan if last else y), {}),
        "shape": (VPBoostRegressor, FIXED, (X, y[:, None] if last else y), {}),
        "rows": (VPBoostRegressor, FIXED, (X, y[1:] if last else y), {}),
        "empty": (VPBoostRegressor, FIXED, (X[:0] if last else X, y[:0] if last else y), {}),
        "few": (VPBoostRegressor, FIXED, (X[:1] if last else X, y[:1] if last else y), {}),
        "weights": (VPBoostRegressor, FIXED, (X, y, 0 * weight if last else weight), {}),
        "labels": (VPBoostClassifier, FIXED, (X, np.where(labels, "p", "n").astype(object) if last else labels), {}),
        "validation": (VPBoostRegressor, FIXED, (X, y), narrow if last else {}),
        "half of it": (VPBoostRegressor, FIXED, (X, y), {"y_val": y}),
        "checkpoint": (VPBoostRegressor, FIXED, (X, y), {"resume_from": f"{folder}/none"} if last else {}),
        "garbage": (VPBoostRegressor, FIXED, (X, y), {"resume_from": f"{folder}/garbage"}),
        "setting": (VPBoostRegressor, half if last else FIXED, (X, y), {}),
        "estimator": (VPBoostRegressor if last else VPBoostClassifier, FIXED, (X, labels), {}),
        "dates": (VPBoostClassifier, FIXED, (X, dates[labels] if last else labels), {}),
        "nothing": (nothing if last else VPBoostRegressor, FIXED, (X, y), {}),
        "weights of classes": (VPBoostClassifier, {**FIXED, "class_weight": {0: 1, 1: 1 + last}}, (X, labels), {}),
        "levels": (VPBoostRegressor, FIXED, (X.assign(kind=many_levels(len(X), last)), y), {}),
    }
    found = {}
    for name, (kind, settings, given, others) in cases.items():
        try:
            distributed.fit(kind(**settings, n_estimators=2), *given, **others)
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}"
    return {"errors": found}


def nothing(**settings):
    """Return what is no estimator."""


def many_levels(n, last):
    """Return a column that has too many levels for all processes together, and not for any of them."""
    frames.MOST_LEVELS_AT_ALL = 300
    return pd.Categorical([f"{'late' if last else 'early'} {i}" for i in range(n)])


def odd(mine, folder):
    """What differs from process to process, and makes no difference."""
    X, y = table()
    X["kind"] = X["kind"].astype(object)
    X.loc[N // 2 - 20 :, "kind"] = None  # the last process sees no text
    given = X[mine].reset_index(drop=True), y[mine], np.linspace(1e150, 4e150, N)[mine]
    model = distributed.fit(VPBoostRegressor(**FIXED, n_estimators=3), *given)
    return {**told(model.predict(X)), "kinds": model.kinds_}


def unequal(mine, folder):
    """The last process has eight rows, and none to spare from any share."""
    X, y = table()
    if mine != slice(0, N):
        mine = slice(N - 8, N) if mine.stop == N else slice(0, N - 8)
    settings = {**FIXED, "early_stopping_rounds": 50}
    model = distributed.fit(VPBoostRegressor(**settings, n_estimators=20), X[mine].reset_index(drop=True), y[mine])
    return {"validated": len(model.evals_result_["validation"]), "score": model.score(X, y)}


def apart(mine, folder):
    """A process that fails alone and goes on to another fit must not be given the answers of this one."""
    X, y = table()
    given = X[mine].reset_index(drop=True), y[mine]
    found, marks, agree = [], [], fitting.agree
    for attempt in range(2):
        if attempt == 0 and mine.stop == N:
            fitting.agree = lambda *args: 1 / 0
        try:
            marks.append(told(distributed.fit(VPBoostRegressor(**FIXED, n_estimators=2), *given).predict(X)))
        except Exception as error:
            found.append(f"{type(error).__name__}: {error}")
        fitting.agree = agree
    return {"errors": found, "mark": marks}


def pressed(mine, folder):
    """Ctrl-C in one process ends the fit in all of them with the next stage, and the model is kept."""
    X, y = table()
    given = X[mine].reset_index(drop=True), y[mine]
    found = {}
    for victim in ("first", "last"):
        begun = Path(folder) / f"begun {victim}"
        signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever the tests were started by

        def press(begun=begun):
            while not begun.exists():
                time.sleep(0.05)
            os.kill(os.getpid(), signal.SIGINT)

        if (victim == "last") == (mine.stop == N):
            threading.Thread(target=press, daemon=True).start()
        settings = {**FIXED, "early_stopping_rounds": None, "callbacks": [lambda progress, to=begun: to.touch()]}
        model = distributed.fit(VPBoostRegressor(**settings, n_estimators=3000), *given)
        found[victim] = {**told(model.predict(X)), "stages": model.n_iter_, "status": model.boosted_.status}
    return found


def measured(mine, folder):
    """A metric of the user's is asked in the first process only; one that fails there is an error in all."""
    X, y = table()
    X, y, first = X[mine].reset_index(drop=True), y[mine], mine.start == 0

    def metric(y, prediction):
        if not first:
            raise RuntimeError("not here")
        return float(np.abs(y - prediction).mean())

    def failing(y, prediction):
        raise RuntimeError("no metric")

    settings = {**FIXED, "n_estimators": 2}
    model = distributed.fit(VPBoostRegressor(**settings, eval_metric=metric), X, y, X_val=X, y_val=y)
    try:
        distributed.fit(VPBoostRegressor(**settings, eval_metric=failing), X, y, X_val=X, y_val=y)
    except RuntimeError as error:
        return {"score": model.best_score_, "error": f"{type(error).__name__}: {error}"}


def lost(mine, folder):
    """The last process is killed after a few stages; the first one finds out, with a checkpoint behind it."""
    X, y = table()

    def die(progress):
        if progress.stage == 3 and os.environ.get("DIES"):
            os.kill(os.getpid(), signal.SIGKILL)

    model = VPBoostRegressor(**FIXED, n_estimators=6, callbacks=[Checkpoint(f"{folder}/state", every=2), die])
    goes_on = {"resume_from": f"{folder}/state"} if os.environ.get("RESUME") else {}
    distributed.fit(model, X[mine].reset_index(drop=True), y[mine], **goes_on)
    return told(model.predict(X))


def told(predictions):
    """Return a mark of the very bits of predictions."""
    return {"mark": hashlib.sha256(np.ascontiguousarray(predictions).tobytes()).hexdigest()[:12]}


if __name__ == "__main__":
    rank, count, port, folder, *cases = sys.argv[1:]
    rank, count = int(rank), int(count)
    if count > 1:
        distributed.initialize(f"127.0.0.1:{port}", count, rank, initialization_timeout=120, heartbeat_timeout=30)
    run = slice(*distributed.rows_of(N, count)[rank])
    for case in cases:
        print(json.dumps({case: globals()[case](run, folder)}), flush=True)
