"""Break fits on a Dask cluster in every way that clusters break, for real, and see what is left.

    python tests/kill_dask.py --kills 20 --output benchmarks/results/dask_faults.json  # about half an hour

or piece by piece, with ``--only`` and ``--add``, which keeps what the file has.

Each case says how long it took from the fault to the error, whether anything hung, whether a process was left behind
(orphans), whether the checkpoint was lost, and whether the model of the fit that went on has the same bits as that of a
fit left in peace.
"""

import argparse
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as Late
from pathlib import Path

import dask.array as da
import numpy as np
from distributed import Client, LocalCluster

import vpboost.files.checkpoint
from vpboost.callbacks import Checkpoint
from vpboost.dask import VPBoostClassifier, VPBoostRegressor, WorkerError
from vpboost.dask.process import START
from vpboost.dask.worker import known_fits

#: Nothing may take longer than this; what does hangs.
HANGS = 150
OPTIONS = {"n_estimators": 40, "max_steps": 30, "width": 6, "encoding": "plain", "inherit": 0.5, "max_features": 1.0}
OPTIONS |= {"n_chains": 1, "early_stopping_rounds": None}

#: What workers begun here, and processes of theirs, have in their environment.
MARK = os.environ.setdefault("VPBOOST_KILL_DASK", uuid.uuid4().hex)

#: A client of its own, to be interrupted or killed.
CLIENT = """
import sys, numpy as np
from distributed import Client
sys.path.insert(0, sys.argv[2])
import kill_dask
with Client(sys.argv[1]) as client:
    def tell(progress):
        print("stage", progress.stage, flush=True)
    try:
        model = kill_dask.fit(client, callbacks=[tell], n_estimators=2000)
        print("kept", model.n_iter_, flush=True)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""


def table(n=6000, seed=0):
    """Return inputs and targets in partitions of very different sizes, one of them empty."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, 5))
    y = np.sin(3 * X[:, 0]) * X[:, 1] + X[:, 2] ** 2
    sizes = (n // 100, 0, n // 2, n // 4, n - n // 100 - n // 2 - n // 4)
    return da.from_array(X, chunks=(sizes, 5)), da.from_array(y, chunks=n // 3), X


def fit(client, resume_from=None, **options):
    X, y, _ = table()
    return VPBoostRegressor(**{**OPTIONS, **options}, client=client).fit(X, y, resume_from=resume_from)


def processes():
    """Return the processes that workers of clusters begun here have started."""
    found, mark = [], START.splitlines()[-2].encode()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state = (folder / "stat").read_text().rsplit(")", 1)[1].split()[0]
            ours = MARK.encode() in (folder / "environ").read_bytes() and mark in (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if ours and state != "Z":
            found.append(int(folder.name))
    return found


def orphans(seconds=15.0):
    """Return how many processes are left when they have had time to end."""
    until = time.monotonic() + seconds
    while (left := processes()) and time.monotonic() < until:
        time.sleep(0.1)
    return len(left)


def bits(model):
    ensemble = model.to_local().boosted_.ensemble
    return b"".join(
        np.asarray(leaf).tobytes() for leaf in [ensemble.constant, ensemble.weights, model.predict(table()[2])]
    )


class Cluster:
    """A cluster of real processes, with nannies that start workers anew."""

    def __init__(self, n_workers=2, **options):
        self.n_workers = n_workers
        self.options = {"threads_per_worker": 1, "dashboard_address": ":0", **options}
        self._start()

    def _start(self):
        self.cluster = LocalCluster(n_workers=self.n_workers, **self.options)
        self.client = Client(self.cluster)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.client.close()
        self.cluster.close()

    def workers(self, seconds=60):
        """Return the processes of the workers by their addresses, once all are there."""
        until = time.monotonic() + seconds
        while len(found := self.run(os.getpid)) < self.n_workers:
            if time.monotonic() > until:  # a nanny that is short of time may give up; that is not ours to test
                self.__exit__()
                self._start()
            time.sleep(0.2)
        return found

    def children(self):
        """Return the processes that the workers have started for fits, by the workers' addresses."""
        found = self.run(known_fits)
        return {address: fits[0][2] for address, fits in found.items() if fits and fits[0][2] is not None}

    def run(self, function):
        """Return what a function gives on each worker that answers."""
        return self.client.run(function, on_error="ignore")


def attempt(function):
    """Return what a function gives or raises, or "hangs"."""
    pool = ThreadPoolExecutor(1)
    future = pool.submit(function)
    pool.shutdown(wait=False)
    try:
        return future.result(HANGS)
    except Late:
        return "hangs"
    except Exception as error:
        return error


class Fault:
    """Kills something at a moment of a fit, in seconds or when an event is set, and notes when it did."""

    def __init__(self, cluster, moment, target, number=signal.SIGKILL, rng=None, strike=None):
        self.cluster, self.moment, self.target = cluster, moment, target
        self.strike = strike or (lambda pid: os.kill(pid, number))
        self.rng, self.at, self.victim, self.pid = rng or random.Random(0), None, None, None
        self.thread = threading.Thread(target=self._strike, daemon=True)
        self.thread.start()

    def _strike(self):
        if isinstance(self.moment, threading.Event):
            self.moment.wait()
        else:
            time.sleep(self.moment)
        victims = self.cluster.run(os.getpid) if self.target == "worker" else self.cluster.children()
        if victims:
            self.victim = self.rng.choice(sorted(victims))
            self.pid, self.at = victims[self.victim], time.monotonic()
            self.strike(self.pid)


def random_kills(count, rng, folder):
    """Kill workers, and processes of theirs, at random moments; go on from the checkpoint until the fit is done.

    Half of the moments are in the whole fit, most of which is spent on starting; the others are stages.
    """
    rows = []
    with Cluster() as cluster:
        for _ in range(2):  # the second time, all is imported
            began = time.monotonic()
            whole = bits(fit(cluster.client))
            length = time.monotonic() - began
        killed = 0
        while killed < count:
            checkpoint = folder / f"checkpoint-{killed}"
            row = {"case": "", "seconds": 0.0, "hangs": 0, "orphans": 0, "lost": 0, "unequal": 0, "unnamed": 0}
            target = ("worker", "process")[killed % 2]
            cluster.workers()
            stage, reached = rng.randrange(1, OPTIONS["n_estimators"]), threading.Event()
            fault = Fault(cluster, rng.uniform(0, length) if killed % 4 < 2 else reached, target, rng=rng)

            def watch(progress, stage=stage, reached=reached):
                if progress.stage >= stage:
                    reached.set()

            callbacks = [Checkpoint(checkpoint, every=1), watch]
            found = attempt(lambda callbacks=callbacks: fit(cluster.client, callbacks=callbacks))
            ended = time.monotonic()
            reached.set()
            fault.thread.join()
            if fault.at is None or fault.at > ended:
                continue  # it was done before
            killed += 1
            row["case"], row["seconds"] = f"SIGKILL of a {target}", ended - fault.at
            row["hangs"] = int(isinstance(found, str))
            row["orphans"] = orphans()
            if isinstance(found, WorkerError):
                row["unnamed"] = int(fault.victim not in str(found))
            elif isinstance(found, Exception):
                row["unnamed"] = 1
                print(repr(found), file=sys.stderr)
            row["stages"], row["workers"] = stages_of(checkpoint), len(cluster.run(os.getpid))  # those that are there
            again = attempt(lambda c=checkpoint: fit(cluster.client, resume_from=c if c.exists() else None))
            row["unequal"] = int(isinstance(again, str | Exception) or bits(again) != whole)
            if isinstance(again, Exception):
                row["lost"] = 1
                print(repr(again), file=sys.stderr)
            rows.append(row)
            print(row, "" if not isinstance(found, Exception) else str(found)[:100], flush=True)
    return rows


def stages_of(checkpoint):
    """Return how many stages a checkpoint holds."""
    if not checkpoint.exists():
        return 0
    return len(vpboost.files.checkpoint.read_facts(checkpoint).scores)


def one(case, cluster, function, check):
    """Return the row of a case: ``check`` says whether what came of it is as it should be."""
    began = time.monotonic()
    found = attempt(function)
    seconds = time.monotonic() - began
    row = {"case": case, "seconds": seconds, "hangs": int(isinstance(found, str)), "orphans": orphans()}
    row["wrong"] = int(not check(found))
    if row["wrong"]:
        print(case, repr(found), file=sys.stderr)
    row["said"] = str(found)[:200] if isinstance(found, Exception) else ""
    print(row, flush=True)
    return row


def shapes():
    """Cases of partitions, and of fits one after the other and at the same time."""
    rows = []
    with Cluster() as cluster:
        client = cluster.client
        whole = bits(fit(client))
        rows.append(one("one fit after the other", cluster, lambda: bits(fit(client)), lambda found: found == whole))

        def both():
            with (
                Client(cluster.cluster.scheduler_address, set_as_default=False) as other,
                ThreadPoolExecutor(2) as pool,
            ):
                return [bits(model) for model in pool.map(fit, (client, other))]

        rows.append(one("two fits at once, of two clients", cluster, both, lambda found: found == [whole, whole]))
        X, _, values = table()
        labels = (values[:, 0] > values[:, 1]).astype(int)
        order = np.argsort(labels, kind="stable")

        def sorted_classes():
            y = da.from_array(labels[order], chunks=X.chunks[0])
            options = {**OPTIONS, "n_estimators": 6}
            model = VPBoostClassifier(**options, client=client).fit(da.from_array(values[order], chunks=X.chunks), y)
            return (model.predict(values[order]) == labels[order]).mean()

        rows.append(one("partitions with one class only", cluster, sorted_classes, lambda found: found > 0.8))

        def uneven():
            sizes = (50, 0, 5000, len(values) - 5050)
            y = table()[1].rechunk((sizes,))
            return bits(VPBoostRegressor(**OPTIONS, client=client).fit(da.from_array(values, chunks=(sizes, 5)), y))

        rows.append(one("partitions of 0, 50 and 5000 rows", cluster, uneven, lambda found: found == whole))

        def bad_target():
            X, y, _ = table()
            y = da.where(da.arange(len(values)) == 5000, np.nan, y)
            return VPBoostRegressor(**OPTIONS, client=client).fit(X, y)

        rows.append(one("a NaN in y", cluster, bad_target, lambda found: "Input y contains NaN" in str(found)))
        rows.append(one("a wrong setting", cluster, lambda: fit(client, width=-1), lambda found: "width" in str(found)))

        def on_one_worker():
            X, y, _ = table()
            first = sorted(cluster.workers())[0]
            held = client.persist([X, y], workers=[first])
            return bits(VPBoostRegressor(**OPTIONS, client=client).fit(*held))

        rows.append(one("all data on one worker", cluster, on_one_worker, lambda found: found == whole))

        def joins():
            timer = threading.Timer(3.0, cluster.cluster.scale, [3])
            timer.start()
            found = bits(fit(client))
            timer.join()
            return found

        rows.append(one("a worker joins late", cluster, joins, lambda found: found == whole))
        three = one("three workers, then", cluster, lambda: fit(client).n_iter_, is_whole)
        rows.append(three)
    return rows


def memory():
    """Workers, and processes of theirs, without memory."""
    rows = []
    with Cluster(memory_limit="700MB") as cluster:
        X = da.random.random((2_000_000, 100), chunks=(20_000, 100))  # the workers put them on disk

        def large():
            return VPBoostRegressor(**OPTIONS, client=cluster.client).fit(X, X[:, 0])

        rows.append(one("workers without memory", cluster, large, lambda found: isinstance(found, MemoryError)))
        cluster.workers()
        rows.append(one("a fit after that", cluster, lambda: fit(cluster.client).n_iter_, is_whole))
        Fault(cluster, 3.0, "process", strike=lambda pid: resource.prlimit(pid, resource.RLIMIT_AS, (1 << 29, 1 << 29)))
        starved = one("a process without memory", cluster, lambda: fit(cluster.client, n_estimators=5000), is_named)
        rows += [
            starved,
            one("a fit after that", cluster, lambda: fit(cluster.client).n_iter_, is_whole),
        ]
    return rows


def is_whole(n_stages):
    return n_stages == OPTIONS["n_estimators"]


def is_named(found):
    return isinstance(found, WorkerError) and found.workers[0] in str(found)


def clients():
    """Ctrl-C on the client, once and twice; a client that dies."""
    rows = []
    with Cluster() as cluster:
        for case, numbers, expected in (
            ("Ctrl-C on the client: the model is kept", [signal.SIGINT], "kept"),
            ("Ctrl-C twice: it ends at once", [signal.SIGINT, signal.SIGINT], "interrupted"),
            ("a client that dies", [signal.SIGKILL], ""),
        ):
            command = [sys.executable, "-c", CLIENT, cluster.cluster.scheduler_address, str(Path(__file__).parent)]
            client = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            for line in client.stdout:
                if line.startswith("stage 3"):
                    break
            began = time.monotonic()
            for number in numbers:
                client.send_signal(number)
                time.sleep(0.01)
            said = client.communicate(timeout=HANGS)[0].splitlines()[-1:] or [""]
            left = orphans(75)
            row = {"case": case, "seconds": time.monotonic() - began, "hangs": 0, "orphans": left}
            row["wrong"] = int(not said[0].startswith(expected))
            time.sleep(1.5)  # workers look at the clock every second
            row["wrong"] += sum(len(fits) for fits in cluster.run(known_fits).values())
            row["said"] = said[0]
            print(row, flush=True)
            rows.append(row)
        rows.append(one("a fit after that", cluster, lambda: fit(cluster.client).n_iter_, is_whole))
    return rows


def frozen():
    """A worker that is there but does not move."""
    rows = []
    with Cluster() as cluster:
        fault = Fault(cluster, 8.0, "worker", signal.SIGSTOP)
        found = one(
            "a worker that is frozen", cluster, lambda: fit(cluster.client, n_estimators=5000),
            lambda found: isinstance(found, WorkerError) and fault.victim in str(found),
        )  # fmt: skip
        os.kill(fault.pid, signal.SIGCONT)
        rows.append({**found, "orphans": orphans(60)})
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=["kills", "shapes", "memory", "clients", "frozen"])
    parser.add_argument("--output", type=Path)
    parser.add_argument("--add", action="store_true", help="add to what the output has")
    options = parser.parse_args()
    rng, rows = random.Random(options.seed), []
    with tempfile.TemporaryDirectory() as folder:
        # processes compile the same programs again and again
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", f"{folder}/jax")
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
        cases = {
            "kills": lambda: random_kills(options.kills, rng, Path(folder)),
            "shapes": shapes,
            "memory": memory,
            "clients": clients,
            "frozen": frozen,
        }
        for name, case in cases.items():
            if options.only in (None, name):
                rows += case()
    bad = ("hangs", "orphans", "lost", "unequal", "unnamed", "wrong")
    print({name: sum(row.get(name, 0) for row in rows) for name in bad}, "of", len(rows))
    print("longest:", max(row["seconds"] for row in rows))
    if options.output:
        before = json.loads(options.output.read_text()) if options.add and options.output.exists() else []
        rows = before + [{**row, "seconds": round(row["seconds"], 2)} for row in rows]
        here = str(Path(__file__).parents[1]) + os.sep  # where that is, is nobody's business
        options.output.write_text(json.dumps(rows, indent=1).replace(here, "") + "\n")


if __name__ == "__main__":
    main()
