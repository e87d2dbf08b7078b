"""Fits on a cluster of real worker processes. What breaks clusters is in kill_dask.py."""

import os
import random
import signal
import threading
import time

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client, LocalCluster

import kill_dask
import vpboost
from vpboost.callbacks import Checkpoint, EarlyStopping
from vpboost.dask import VPBoostClassifier, VPBoostRegressor, WorkerError
from vpboost.dask.worker import known_fits

PLAIN = {"encoding": "plain", "inherit": 0.0, "max_features": 1.0}
SMALL = {"n_estimators": 4, "max_steps": 4, "width": 3, **PLAIN}
RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, size=(1203, 3))
Y = np.sin(3 * X[:, 0]) * X[:, 1]
#: 1 to 100, and none at all.
SIZES = (10, 0, 1000, 193)

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(scope="module")
def client():
    options = {"threads_per_worker": 1, "dashboard_address": ":0", "silence_logs": 50}
    with LocalCluster(n_workers=2, **options) as cluster, Client(cluster) as client:
        yield client
        assert kill_dask.orphans() == 0


def children(client):
    """Return the processes that workers have for fits, by the workers' addresses."""
    found = client.run(known_fits)
    return {address: fits[0][2] for address, fits in found.items() if fits and fits[0][2] is not None}


def bits(model, rows):
    return np.asarray(model.predict(rows)).tobytes()


def test_a_fit_on_workers_of_very_different_partitions(client, tmp_path):
    """The model is the same on one worker and on two; callbacks, weights and checkpoints are the client's."""
    lazy, target = da.from_array(X, chunks=(SIZES, (2, 1))), da.from_array(np.stack([Y, -Y], axis=1), chunks=(700, 1))
    weight = da.from_array(np.linspace(0.5, 1, len(X)), chunks=400)
    seen, path, stopping = [], tmp_path / "checkpoint", EarlyStopping(50)
    callbacks = [lambda progress: seen.append(progress.record), Checkpoint(path, every=2), stopping]
    model = VPBoostRegressor(**SMALL, callbacks=callbacks)
    given = {"X_val": lazy[:300], "y_val": target[:300], "sample_weight_val": weight[:300]}
    assert model.fit(lazy, target, weight, **given) is model
    assert [record.stage for record in seen] == [0, 1, 2, 3]
    assert [record.loss for record in seen] == model.history_["loss"].tolist()
    assert stopping.best_score_ == min(model.evals_result_["validation"])
    assert model.predict(lazy).shape == (1203, 2)
    np.testing.assert_allclose(model.predict(lazy).compute(), model.predict(X), rtol=1e-6, atol=1e-6)
    # another number of workers, from the middle on
    again = VPBoostRegressor(**SMALL, n_workers=1, callbacks=[lambda progress: seen.append(progress.record)])
    again.fit(lazy, target, weight, **given, resume_from=path)
    assert bits(again, X) == bits(model, X)
    model.save_model(tmp_path / "model")
    np.testing.assert_array_equal(vpboost.load_model(tmp_path / "model").predict(X), model.predict(X))
    assert not any(client.run(known_fits).values())


@pytest.mark.slow
@pytest.mark.long
def test_a_classifier_of_frames(client, capsys):
    """Categories, missing values and text; a partition with one class only; progress on the client."""
    frame = pd.DataFrame(X, columns=list("abc"))
    frame.loc[::7, "a"] = np.nan
    frame["kind"] = np.where(X[:, 1] > 0, "high", "low")
    frame["level"] = pd.Categorical(np.where(X[:, 2] > 0.5, "top", None))
    order = np.argsort(Y > 0, kind="stable")
    frame, labels = frame.iloc[order], pd.Series(np.where(Y > 0, "up", "down"), name="way").iloc[order]
    lazy = dd.from_pandas(frame.reset_index(drop=True), npartitions=3)
    target = dd.from_pandas(labels.reset_index(drop=True), npartitions=2)
    model = VPBoostClassifier(**SMALL, early_stopping_rounds=None, verbose=1, class_weight="balanced").fit(lazy, target)
    assert model.classes_.tolist() == ["down", "up"]
    assert list(model.feature_names_in_) == list(frame.columns)
    assert "stage 4 of 4" in capsys.readouterr().err
    proba = model.predict_proba(lazy)
    assert list(proba.columns) == ["down", "up"]
    np.testing.assert_allclose(proba.compute(), model.predict_proba(frame), rtol=1e-6, atol=1e-6)
    assert (model.predict(lazy).compute().to_numpy() == labels.to_numpy()).mean() > 0.7


def test_errors_of_the_data_are_those_of_a_plain_fit(client):
    lazy = da.from_array(X, chunks=300)
    with pytest.raises(ValueError, match="X and y must have as many rows, got 1203 and 1202"):
        VPBoostRegressor(**SMALL).fit(lazy, lazy[1:, 0])
    with pytest.raises(ValueError, match="Found X with 0 rows in all"):
        VPBoostRegressor(**SMALL).fit(lazy[lazy[:, 0] > 2], lazy[lazy[:, 0] > 2][:, 0])
    with pytest.raises(ZeroDivisionError):
        VPBoostRegressor(**SMALL).fit(lazy.map_blocks(lambda part: part / (0 // 0), dtype=float), lazy[:, 0])
    with pytest.raises(ValueError, match="y must") as caught:
        VPBoostRegressor(**SMALL, loss="poisson").fit(lazy, lazy[:, 0] - 5)
    assert any("on worker tcp://" in note for note in caught.value.__notes__)
    assert not any(client.run(known_fits).values())


@pytest.mark.slow
@pytest.mark.long
def test_a_process_that_is_killed_ends_the_fit_and_it_goes_on(client, tmp_path):
    lazy, target, path = da.from_array(X, chunks=300), da.from_array(Y, chunks=400), tmp_path / "checkpoint"
    options = {**SMALL, "early_stopping_rounds": None}
    killed = []

    def kill(progress):
        if progress.stage == 2:
            killed.extend(random.choice(sorted(children(client).items())))
            os.kill(killed[1], signal.SIGKILL)
            time.sleep(0.5)

    began = time.monotonic()
    with pytest.raises(WorkerError, match=r"(?s)died after stage .* signal 9 .*fit again with resume_from=") as caught:
        VPBoostRegressor(**options, callbacks=[Checkpoint(path, every=1), kill]).fit(lazy, target)
    assert time.monotonic() - began < 60
    assert killed[0] in str(caught.value)
    assert caught.value.workers == [killed[0]]
    assert kill_dask.orphans() == 0
    model = VPBoostRegressor(**options).fit(lazy, target, resume_from=path)
    assert model.n_iter_ == 4


@pytest.mark.slow
@pytest.mark.long
def test_a_worker_that_is_killed_ends_the_fit(tmp_path):
    rows = kill_dask.random_kills(2, random.Random(0), tmp_path)
    bad = ("hangs", "orphans", "lost", "unequal", "unnamed")
    assert [row for row in rows if any(row[name] for name in bad)] == []


@pytest.mark.slow
@pytest.mark.long
def test_clients_may_go_and_partitions_may_be_odd():
    rows = kill_dask.clients() + kill_dask.shapes()
    assert [row for row in rows if row["hangs"] or row["orphans"] or row["wrong"]] == []


@pytest.mark.slow
@pytest.mark.long
def test_a_cluster_of_threads_will_do():
    """Its workers live in one Python process."""
    with Client(processes=False, n_workers=2, threads_per_worker=1, dashboard_address=":0") as client:
        lazy = da.from_array(X, chunks=300)
        model = VPBoostRegressor(**SMALL, client=client, early_stopping_rounds=None).fit(lazy, lazy[:, 0])
        assert model.n_iter_ == 4
    assert threading.active_count() < 50
