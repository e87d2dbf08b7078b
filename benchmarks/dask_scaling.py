"""Fits on a Dask cluster of this machine beside ``xgboost.dask``: time, error and memory by the number of workers.

    python benchmarks/dask_scaling.py --rows 400000 --workers 1 2 4

Every worker has one thread, and starts one process. Memory is the most that each process had at a time; what grows with
its share of the table is told from what does not by tables of two sizes.
"""

import argparse
import json
import os
import threading
import time
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
from distributed import Client, LocalCluster
from xgboost import dask as dxgb

from vpboost.dask import VPBoostRegressor
from vpboost.dask.worker import known_fits

COLUMNS, CHUNK = 20, 25_000
RESULTS = Path(__file__).parent / "results" / "dask_scaling.json"


def part(rows: np.ndarray) -> np.ndarray:
    """Return inputs of a block of rows, drawn by its number: a smooth function of some of the columns, with noise."""
    rng = np.random.default_rng(int(rows[0, 0]))
    return rng.uniform(-1, 1, size=(len(rows), COLUMNS)).astype(np.float32)


def target(X: np.ndarray) -> np.ndarray:
    noise = np.random.default_rng(int(1e6 * abs(X[0, 0]))).normal(size=len(X)) * 0.1
    y = np.sin(np.pi * X[:, 0] * X[:, 1]) + 2 * (X[:, 2] - 0.5) ** 2 + X[:, 3] + 0.5 * np.cos(4 * X[:, 4])
    return (y + noise).astype(np.float32)


def table(n_rows: int, seed: int = 0) -> tuple[da.Array, da.Array]:
    """Return inputs and targets that the workers make."""
    numbers = da.arange(seed, seed + n_rows, chunks=CHUNK)[:, None]
    X = numbers.map_blocks(part, dtype=np.float32, chunks=(numbers.chunks[0], (COLUMNS,)))
    return X, X.map_blocks(target, dtype=np.float32, drop_axis=1)


class Watch:
    """Notes the most memory that processes have had, in MB."""

    def __init__(self, client: Client):
        self.client, self.processes, self.over = client, dict[int, float](), threading.Event()
        self.workers = dict.fromkeys(client.run(os.getpid).values(), 0.0)
        self.before = {pid: peak(pid, "VmRSS") for pid in self.workers}
        self.thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> "Watch":
        self.thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self.over.set()
        self.thread.join()

    def _look(self) -> None:
        while not self.over.wait(0.2):
            for fits in self.client.run(known_fits).values():
                for _, _, pid in fits:
                    if pid is not None:
                        self.processes[pid] = max(self.processes.get(pid, 0.0), peak(pid, "VmHWM"))
            for pid in self.workers:
                self.workers[pid] = max(self.workers[pid], peak(pid, "VmRSS"))

    def found(self) -> dict[str, float]:
        """Return the largest process, and how much a worker grew at the most."""
        grown = [most - self.before[pid] for pid, most in self.workers.items()]
        return {"process_mb": max(self.processes.values(), default=0.0), "worker_grew_mb": max(grown)}


def peak(pid: int, what: str) -> float:
    """Return a line of what Linux tells of a process, in MB; 0 if it is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{what}:")), 0.0)


def vpboost_fit(client: Client, X: da.Array, y: da.Array, options: dict[str, Any]) -> Any:
    return VPBoostRegressor(**options, client=client).fit(X, y)


def xgboost_fit(client: Client, X: da.Array, y: da.Array, options: dict[str, Any]) -> Any:
    model = dxgb.DaskXGBRegressor(n_estimators=300, learning_rate=0.1, tree_method="hist", **options)
    model.client = client
    return model.fit(X, y)


def measure(name: str, fit: Callable, client: Client, n_rows: int, **options: Any) -> dict[str, Any]:
    """Return what a fit takes, and its error on rows that it has not seen."""
    X, y = client.persist(list(table(n_rows)))
    test = [np.asarray(one) for one in client.compute(list(table(50_000, seed=10**9)), sync=True)]
    with Watch(client) as watch:
        began = time.perf_counter()
        model = fit(client, X, y, options)
        seconds = time.perf_counter() - began
    local = model.to_local() if hasattr(model, "to_local") else model.get_booster()
    error = float(np.sqrt(np.mean((predict(local, test[0]) - test[1]) ** 2)))
    workers = len(client.nthreads())
    share = n_rows * (COLUMNS + 1) * 4 / workers / 2**20
    row = {"model": name, "workers": workers, "rows": n_rows, "seconds": seconds, "rmse": error, "share_mb": share}
    row |= watch.found() | {"stages": getattr(local, "n_iter_", None), "bits": mark(local, test[0])}
    print({key: round(value, 4) if isinstance(value, float) else value for key, value in row.items()}, flush=True)
    return row


def predict(model: Any, X: np.ndarray) -> np.ndarray:
    return model.inplace_predict(X) if hasattr(model, "inplace_predict") else model.predict(X)


def mark(model: Any, X: np.ndarray) -> str:
    """Return a short mark of the bits of predictions, by which models can be told apart."""
    return f"{zlib.crc32(predict(model, X[:1000]).tobytes()):08x}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--stages", type=int, default=60)
    parser.add_argument("--output", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore", message="all n_estimators")
    options = {"n_estimators": arguments.stages, "learning_rate": 0.2, "encoding": "plain"}
    options |= {"inherit": 0.8, "max_features": 1.0, "early_stopping_rounds": None}
    rows = []
    for n_workers in arguments.workers:
        cluster = LocalCluster(n_workers=n_workers, threads_per_worker=1, dashboard_address=":0", memory_limit=0)
        with cluster, Client(cluster) as client:
            for n_rows in (arguments.rows // 4, arguments.rows):
                rows.append(measure("vpboost", vpboost_fit, client, n_rows, **options))
                rows.append(measure("xgboost", xgboost_fit, client, n_rows))
    arguments.output.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
