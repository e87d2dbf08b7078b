"""What vpboost.dask does without a cluster: rows handed over, moves, callbacks relayed, lazy predictions."""

import os
import pickle
import queue
import subprocess
import sys
import time

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import vpboost
from models import QUICK
from vpboost.callbacks import Checkpoint, EarlyStopping, Progress, TimeBudget
from vpboost.dask import VPBoostClassifier, VPBoostRegressor, WorkerError
from vpboost.dask.errors import Failure, first_cause
from vpboost.dask.handover import RowFile, describe, layout_of, placed
from vpboost.dask.parts import Move, check_collection, moves
from vpboost.dask.process import Process
from vpboost.dask.relay import Listener, Relay, Saves, callbacks_of
from vpboost.dask.taking import take_over

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, size=(200, 3))
Y = np.sin(3 * X[:, 0]) * X[:, 1]


def handed_over(parts, name="X"):
    """Return partitions as the process sees them."""
    described = [describe(part) for part in parts]
    layout = layout_of(described, name, inputs=name == "X")
    fields, n_bytes = placed({name: layout}, {name: sum(one.n_rows for one in described)})
    rows, at = RowFile(fields, n_bytes), 0
    for part in parts:
        rows.write(name, at, part)
        at += len(part)
    taken = take_over(os.dup(rows.descriptor), fields, rows.pieces)[name]
    rows.close()
    rows.write(name, 0, parts[0])  # a task that comes too late harms nobody
    return taken


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "bool", "datetime64[s]", "U3", object])
@pytest.mark.parametrize("shape", [(), (3,), (2, 4)])
def test_arrays_arrive_as_they_were(dtype, shape):
    whole = RNG.integers(0, 2, size=(20, *shape)).astype(dtype)
    taken = handed_over([whole[:3], whole[3:3], whole[3:]], "y")
    assert taken.dtype == whole.dtype
    np.testing.assert_array_equal(taken, whole)


@pytest.mark.parametrize(("dtype", "becomes"), [("int32", "float64"), ("float16", "float64"), ("float32", "float32")])
def test_inputs_become_the_floats_that_a_fit_would_make_of_them(dtype, becomes):
    taken = handed_over([X[:5].astype(dtype), X[5:].astype(dtype)])
    assert taken.dtype == becomes
    np.testing.assert_array_equal(taken, X.astype(dtype))


def test_plain_columns_are_not_copied():
    taken = handed_over([pd.DataFrame(X, columns=list("abc")), pd.DataFrame(X, columns=list("abc"))])
    assert list(taken.columns) == ["a", "b", "c"]
    assert np.shares_memory(taken.to_numpy(), taken["b"].to_numpy())
    assert not taken.to_numpy().flags.writeable
    np.testing.assert_array_equal(taken, np.concatenate([X, X]))


def test_frames_arrive_as_they_were():
    frame = pd.DataFrame(
        {
            "number": [1.5, np.nan, 3],
            "whole": [1, 2, 3],
            "when": pd.to_datetime(["2020-01-01", None, "2022-03-04"]),
            "text": ["a", None, "b"],
            "level": pd.Categorical(["x", "y", None]),
            "nullable": pd.array([1, None, 3], dtype="Int64"),
        }
    )
    parts = [frame.iloc[:2], frame.iloc[:0], frame.iloc[2:]]
    parts[0] = parts[0].assign(level=parts[0]["level"].cat.set_categories(["y", "x"]))  # as partitions may have them
    taken = handed_over(parts)
    assert isinstance(taken["level"].dtype, pd.CategoricalDtype)
    assert str(taken["nullable"].dtype) == "Int64"
    assert taken["when"].dtype.kind == "M"
    expected = frame.assign(level=frame["level"].astype(object), whole=frame["whole"].astype(float))
    pd.testing.assert_frame_equal(taken.assign(level=taken["level"].astype(object)), expected)


@pytest.mark.parametrize("values", [[1, 2, 3], ["a", "b", "a"], [True, False, True]])
def test_series_keep_their_names(values):
    series = pd.Series(values, name="height")
    pd.testing.assert_series_equal(handed_over([series[:1], series[1:]], "y"), series)


def test_partitions_must_be_alike():
    with pytest.raises(ValueError, match="X must have partitions of the same columns, got"):
        layout_of([describe(X), describe(X[:, :2])], "X", inputs=True)
    with pytest.raises(TypeError, match="partitions must be NumPy arrays or pandas data frames, got list"):
        describe([1])


def test_rows_go_to_the_processes_in_order():
    lengths, runs = [1, 0, 100, 9], [(0, 55), (55, 110)]
    assert list(moves(lengths, runs)) == [
        Move(0, (0, 1), 0, 0),
        Move(2, (0, 54), 0, 1),
        Move(2, (54, 100), 1, 0),
        Move(3, (0, 9), 1, 46),
    ]


def test_what_is_not_of_dask_is_refused():
    for value in (X, X.tolist(), pd.DataFrame(X)):
        with pytest.raises(TypeError, match="X must be a Dask array, data frame or series, got"):
            check_collection("X", value)
    assert check_collection("X", da.from_array(X, chunks=(50, 2))).numblocks == (4, 1)


def test_the_cause_is_told_from_what_followed():
    peer, killed, lost = Failure(0, "peer", "gloo"), Failure(1, "killed", "signal 9"), Failure(2, "lost", "left")
    assert first_cause([peer, killed]) is killed
    assert first_cause([peer, killed, lost]) is lost
    error = pickle.loads(pickle.dumps(WorkerError("what", ["tcp://1"])))
    assert (str(error), error.workers) == ("what", ["tcp://1"])


# --- callbacks --------------------------------------------------------------------------------------------------------


def relayed(callbacks, wants=None):
    """Fit with callbacks that are called at the other end of a pipe, as it were; return the model and the listener."""
    listener, answers = Listener(callbacks, verbose=0), queue.SimpleQueue()

    class Connection:
        def send(self, message):
            answer = listener.heard(message[1])
            if listener.wants == "state":
                answers.put(answer)

    relay = Relay(Connection(), answers, wants or listener.wants)
    near = pickle.loads(listener.for_process())
    options = {**QUICK, "n_estimators": 8, "callbacks": callbacks_of(near, relay)}
    return vpboost.VPBoostRegressor(**options).fit(X, Y, X_val=X[:50], y_val=Y[:50]), listener


def test_callbacks_of_the_client_see_what_those_of_a_plain_fit_see(tmp_path):
    seen, plain = [], []
    model, listener = relayed(
        [seen.append, lambda progress: progress.stage == 4, Checkpoint(tmp_path / "far", every=5)]
    )
    callbacks = [plain.append, lambda progress: progress.stage == 4, Checkpoint(tmp_path / "near", every=5)]
    again = vpboost.VPBoostRegressor(**{**QUICK, "n_estimators": 8}, callbacks=callbacks)
    again.fit(X, Y, X_val=X[:50], y_val=Y[:50])
    assert model.n_iter_ == again.n_iter_ == listener.stages == 5
    assert isinstance(seen[0], Progress)
    for ours, theirs in zip(seen, plain, strict=True):
        assert ours.record._replace(seconds=0) == theirs.record._replace(seconds=0)
        assert (ours.score, ours.n_estimators) == (theirs.score, theirs.n_estimators)
        np.testing.assert_array_equal(ours.ensemble.predict(X), theirs.ensemble.predict(X))
    # a checkpoint written by the client is that of the fit
    for name in ("far", "near"):
        resumed = vpboost.VPBoostRegressor(**{**QUICK, "n_estimators": 8})
        resumed.fit(X, Y, X_val=X[:50], y_val=Y[:50], resume_from=tmp_path / name)
        assert resumed.n_iter_ == 8


def test_callbacks_that_need_no_client_are_called_beside_the_fit():
    stopping = EarlyStopping(rounds=1, min_delta=0.5)
    model, listener = relayed([stopping, TimeBudget(1000)])
    assert listener.wants == "record"
    assert model.n_iter_ == 2
    assert stopping.best_stage_ == 0
    assert stopping.best_score_ == model.evals_result_["validation"][0]


def test_double_precision_is_kept(tmp_path):
    listener, answers, kinds = Listener([lambda p: kinds.append(p.ensemble.constant.dtype)], 0), queue.SimpleQueue(), []

    class Connection:
        def send(self, message):
            answers.put(listener.heard(message[1]))

    relay = Relay(Connection(), answers, "state")
    vpboost.VPBoostRegressor(**QUICK, dtype="float64", callbacks=[Saves(), relay]).fit(X, Y)
    assert set(kinds) == {np.dtype("float64")}


# --- estimators -------------------------------------------------------------------------------------------------------


def learnt(kind, plain):
    """Return an estimator for Dask with what a plain one has learnt."""
    model = kind(**plain.get_params())
    model._take(plain)
    return model


def test_estimators_follow_the_conventions():
    model = VPBoostRegressor(n_estimators=7, client=None, n_workers=3)
    assert model.get_params()["n_workers"] == 3
    assert clone(model).get_params() == model.get_params()
    assert pickle.loads(pickle.dumps(model)).n_estimators == 7
    model.set_params(n_estimators=9)
    assert model._plain_params()["n_estimators"] == 9
    assert set(model._plain_params()) == set(vpboost.VPBoostRegressor().get_params())
    with pytest.raises(TypeError, match="unexpected keyword argument 'estimators'"):
        VPBoostClassifier(estimators=3)


def test_what_is_not_supported_is_named():
    lazy, target = da.from_array(X, chunks=50), da.from_array(Y, chunks=50)
    for options, arguments, error, message in (
        ({"warm_start": True}, {}, ValueError, "warm_start=True is not for fits by several processes"),
        ({"n_workers": 0}, {}, ValueError, "n_workers must be a whole number of at least 1, or None, got 0"),
        ({"n_estimators": -1}, {}, ValueError, "n_estimators must be"),
        ({"client": 3}, {}, TypeError, "client must be a dask.distributed.Client, got int"),
        ({}, {"dy": lazy}, ValueError, "dy is not supported on Dask"),
        ({}, {"X_val": lazy}, ValueError, "X_val and y_val must be given together"),
        ({}, {"eval_set": lazy}, ValueError, "eval_set must be one pair"),
        ({}, {}, ValueError, "no Dask client is there: start one"),
    ):
        with pytest.raises(error, match=message):
            VPBoostRegressor(**options).fit(lazy, target, **arguments)


def test_predictions_of_arrays_are_lazy():
    model = vpboost.VPBoostRegressor(**QUICK).fit(X, Y)
    far, lazy = learnt(VPBoostRegressor, model), da.from_array(X, chunks=((150, 0, 50), (2, 1)))
    predicted = far.predict(lazy)
    assert (predicted.shape, predicted.dtype, predicted.chunks) == ((200,), np.float64, ((150, 0, 50),))
    np.testing.assert_allclose(predicted.compute(), model.predict(X), rtol=1e-12)
    np.testing.assert_array_equal(far.predict(X), model.predict(X))
    two = learnt(VPBoostRegressor, vpboost.VPBoostRegressor(**QUICK).fit(X, np.stack([Y, -Y], axis=1)))
    assert two.predict(lazy).shape == (200, 2)
    np.testing.assert_allclose(two.predict(lazy).compute(), two.predict(X), rtol=1e-12)
    unknown = lazy[lazy[:, 0] > 0]
    np.testing.assert_allclose(two.predict(unknown).compute(), two.predict(X[X[:, 0] > 0]), rtol=1e-12)
    with pytest.raises(ValueError, match="return_std=True is not supported on Dask"):
        far.predict(lazy, return_std=True)
    with pytest.raises(TypeError, match="X must not be Dask's here"):
        far.predict_interval(lazy)


def test_predictions_of_frames_are_lazy_and_keep_the_index():
    frame = pd.DataFrame(X, columns=list("abc"), index=np.arange(200) + 7)
    labels = pd.Series(np.where(Y > 0, "up", "down"), index=frame.index)
    model = vpboost.VPBoostClassifier(**QUICK).fit(frame, labels)
    far, lazy = learnt(VPBoostClassifier, model), dd.from_pandas(frame, npartitions=3)
    proba = far.predict_proba(lazy)
    assert list(proba.columns) == ["down", "up"]
    pd.testing.assert_frame_equal(
        proba.compute(), pd.DataFrame(model.predict_proba(frame), index=frame.index, columns=["down", "up"])
    )
    assert far.predict(lazy).compute().tolist() == model.predict(frame).tolist()
    assert far.decision_function(lazy).compute().index[0] == 7
    np.testing.assert_allclose(far.predict_log_proba(lazy).compute(), model.predict_log_proba(frame))


def test_the_plain_estimator_has_the_same_file(tmp_path):
    model = vpboost.VPBoostRegressor(**QUICK).fit(X, Y)
    far = learnt(VPBoostRegressor, model)
    assert type(far.to_local()) is vpboost.VPBoostRegressor
    far.save_model(tmp_path / "far")
    model.save_model(tmp_path / "near")
    assert (tmp_path / "far").read_bytes() == (tmp_path / "near").read_bytes()
    np.testing.assert_array_equal(vpboost.load_model(tmp_path / "far").predict(X), model.predict(X))
    with pytest.raises(Exception, match="not fitted"):
        VPBoostRegressor().to_local()


# --- processes --------------------------------------------------------------------------------------------------------


def test_a_process_ends_with_its_worker(tmp_path):
    """The worker here is a script that starts a process which waits for a peer that never comes, and is killed."""
    script = """
import os, sys, time
from vpboost.dask.handover import RowFile
from vpboost.dask.process import Process
order = {"rank": 1, "size": 2, "address": "127.0.0.1:1", "fields": {}, "pieces": {}, "wants": "record"}
process = Process({**order, "callbacks": b"", "estimator": b"", "checkpoint": None}, RowFile({}, 0), 1)
print(process.pid, flush=True)
time.sleep(600)
"""
    worker = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    pid = int(worker.stdout.readline())
    assert os.path.exists(f"/proc/{pid}") or sys.platform != "linux"
    worker.kill()
    worker.wait()
    worker.stdout.close()
    assert gone(pid, 10)


def gone(pid, seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


def test_the_end_of_a_process_is_told(monkeypatch):
    monkeypatch.setattr("vpboost.dask.process.START", "import sys; sys.exit('no such luck')")
    process = Process({"checkpoint": None}, RowFile({}, 0), 1)
    what, failure = process.hear(20)
    assert (what, failure.kind) == ("failed", "killed")
    assert failure.text == "ended with code 1; it said last:\nno such luck"
    process.end()
    process.close()


def test_dask_is_not_imported_with_the_package():
    script = "import sys, vpboost; vpboost.VPBoostRegressor; assert not {'dask', 'distributed'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)
    light = "import sys, vpboost.dask.worker; assert 'jax' not in sys.modules"  # workers keep their state clean
    subprocess.run([sys.executable, "-c", light], check=True)
