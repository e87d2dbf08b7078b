"""Fits by one, two and four processes on one machine: time, memory and what the messages between them cost.

    python benchmarks/processes.py            # 2,000,000 × 28, strong and weak scaling, messages: some three minutes
    python benchmarks/processes.py --rows 200000

Each process is tied to one core where the system can do that. Times are those of stages after the first, which
compiles. Results go to ``benchmarks/results/processes.json``; docs/distributed.md quotes them.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).parent / "results" / "processes.json"
COLUMNS, STAGES = 28, 12


def rows_between(begin: int, end: int) -> tuple[np.ndarray, np.ndarray]:
    """Return some rows of an endless made-up table, the same for whoever asks, in chunks of 50,000."""
    parts, size = [], 50_000
    for chunk in range(begin // size, -(-end // size)):
        rng = np.random.default_rng(chunk)
        x = rng.normal(size=(size, COLUMNS)).astype(np.float32)
        logit = 2 * np.sin(x[:, 0]) + x[:, 1] * x[:, 2] + x[:, 3] - 0.5 * x[:, 4] ** 2
        y = (logit + rng.logistic(size=size) > 0).astype(np.int32)
        inside = slice(max(begin - chunk * size, 0), min(end - chunk * size, size))
        parts.append((x[inside], y[inside]))
    return np.concatenate([x for x, _ in parts]), np.concatenate([y for _, y in parts])


def work(rank: int, count: int, port: str, n_rows: int) -> None:
    """Fit as one of the processes, and print what it took."""
    from vpboost import VPBoostClassifier, distributed

    if count > 1:
        distributed.initialize(f"127.0.0.1:{port}", count, rank)
    x, y = rows_between(*distributed.rows_of(n_rows, count)[rank])
    times: list[float] = []
    fixed: dict[str, Any] = {"encoding": "plain", "inherit": 0.8, "max_features": 1.0}
    told = [lambda progress: times.append(time.perf_counter())]
    model = VPBoostClassifier(**fixed, n_estimators=STAGES, early_stopping_rounds=1000, callbacks=told)
    began = time.perf_counter()
    distributed.fit(model, x, y)
    whole = time.perf_counter() - began
    peak = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    facts = {"rank": rank, "fit": whole, "stage": float(np.median(np.diff(times))) if times else None}
    facts |= {"loss": model.evals_result_["validation"][-1], "peak MB": int(peak[0].split()[1]) / 1024}
    print(json.dumps(facts | {"table MB": x.nbytes / 2**20, "step": message_time(count)}), flush=True)


def message_time(count: int) -> dict[str, float] | None:
    """Return milliseconds of one exchange of the sums of a step, by the number of features (weights as many)."""
    if count == 1:
        return None
    import jax

    from vpboost.numerics.blocks import block_sum
    from vpboost.numerics.devices import mesh_of, n_shares, put

    mesh: Any = mesh_of("all")
    found = {}
    blocks = put(mesh, np.ones((n_shares(mesh.size) // count, 1), np.float32))
    for features in (17, 33, 65):
        size = features * features + features

        def steps(blocks: Any, size: int = size) -> Any:
            def step(total: Any, _: Any) -> tuple[Any, None]:
                return total + block_sum(lambda block: block[0] + total, blocks), None

            return jax.lax.scan(step, jax.numpy.zeros(size), None, length=200)[0]

        with jax.set_mesh(mesh):
            program = jax.jit(steps)
            jax.block_until_ready(program(blocks))
            began = time.perf_counter()
            jax.block_until_ready(program(blocks))
        found[str(features)] = (time.perf_counter() - began) / 200 * 1e3
    return found


def run(count: int, n_rows: int) -> list[dict[str, Any]]:
    """Return what each of so many processes prints, each tied to a core."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    cores, running = sorted(os.sched_getaffinity(0)), []
    for rank in range(count):
        command = [sys.executable, __file__, "--work", *map(str, (rank, count, port, n_rows))]
        core = {cores[rank % len(cores)]}
        tie = lambda core=core: os.sched_setaffinity(0, core)  # noqa: E731
        running.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=tie))
    found = []
    for process in running:
        out, _ = process.communicate()
        if process.returncode:
            raise SystemExit(f"a process failed with {process.returncode}")
        found.append(json.loads(out.splitlines()[-1]))
    return found


def main() -> None:
    """Run everything and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--work", nargs=4)
    given = parser.parse_args()
    if given.work:
        rank, count, port, n_rows = given.work
        return work(int(rank), int(count), port, int(n_rows))
    strong = {count: run(count, given.rows) for count in (1, 2)}
    weak = {count: run(count, count * given.rows // 4) for count in (1, 2, 4)}
    ratio = strong[1][0]["stage"] / strong[2][0]["stage"]
    results = {"cores": len(os.sched_getaffinity(0)), "rows": given.rows, "strong": strong, "weak": weak}
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    for name, found in (("strong", strong), ("weak", weak)):
        for count, told in found.items():
            print(f"{name:8} {count} processes: stage {told[0]['stage']:.2f} s, fit {told[0]['fit']:.1f} s", end=", ")
            print(f"loss {told[0]['loss']:.6f}, peak {max(one['peak MB'] for one in told):.0f} MB", end=", ")
            print(f"its rows {told[0]['table MB']:.0f} MB, message {told[0]['step']}")
    print(f"two processes on two cores are {ratio:.2f} times as fast as one on one")


if __name__ == "__main__":
    main()
