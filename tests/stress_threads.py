"""Fits of many classes and outputs in several threads at once, on few cores: none may wait for ever.

    python tests/stress_threads.py --threads 4 --cores 1      # one combination, in this process
    python tests/stress_threads.py --all --seconds 300        # every combination, each in a process with a time limit

Before stacks of matrices were factored one at a time (see ``vpboost.numerics.lapack``), these fits stopped each other.
The fault is jaxlib's, seen with JAX 0.10.2 on CPUs with two cores; upstream it would be reported like this:

    A batched LAPACK call (``potrf``, ``trsm``, ``syevd``, ...) blocks a thread of XLA's intra-op pool
    (``jax::ParallelBatchMap`` waits on a ``BlockingCounter``) until parts of its batch have run in that same pool. With
    as many such calls at once as the pool has threads, none of the parts ever runs. ``python min.py`` hangs:

        import jax, jax.numpy as jnp, threading
        A = jnp.eye(17) + jnp.zeros((200, 1, 1))
        def body(_, a):  # large enough for XLA to run the loop's parts in its pool
            b = [jnp.linalg.cholesky(a + i * jnp.eye(17)) for i in range(4)]
            return sum(b) / 4 @ jnp.swapaxes(sum(b) / 4, 1, 2)
        run = jax.jit(lambda a: jax.lax.fori_loop(0, 1000, body, a))
        threads = [threading.Thread(target=lambda: run(A).block_until_ready()) for _ in range(4)]
        [t.start() for t in threads]; [t.join() for t in threads]
"""

import argparse
import itertools
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np

#: What each thread fits: classes or outputs, rows.
CLASSES = {26: 260, 128: 256, 200: 400, 1000: 2000}
OUTPUTS = {200: 600}


def fit_all(thread, classes=CLASSES, race=True, outputs=True):
    """Fit every problem, briefly; some by a race of profiles."""
    from vpboost import VPBoostClassifier, VPBoostRegressor

    rng = np.random.default_rng(thread)
    short = {"n_estimators": 1, "max_steps": 20, "engine": "xla", "random_state": thread}
    fixed = {"encoding": "plain", "inherit": 0.0, "max_features": None}
    for n_classes, n_rows in classes.items():
        X, y = rng.normal(size=(n_rows, 3)), np.arange(n_rows) % n_classes
        model = VPBoostClassifier(**short, **({} if race and n_classes == 26 else fixed)).fit(X, y)
        assert model.predict_proba(X).shape == (n_rows, n_classes)
    for n_outputs, n_rows in (OUTPUTS if outputs else {}).items():
        X, y = rng.normal(size=(n_rows, 3)), rng.poisson(2, size=(n_rows, n_outputs))
        VPBoostRegressor(**short, **({} if race else fixed), loss="poisson").fit(X, y)
        VPBoostRegressor(**short, **fixed, candidates=3).fit(X, y[:, :2])
    print("thread", thread, "has ended", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--classes", type=int, nargs="*", default=list(CLASSES))
    parser.add_argument("--no-race", action="store_true")
    parser.add_argument("--no-outputs", action="store_true")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--seconds", type=float, default=300)
    options = parser.parse_args()
    if options.all:
        for threads, cores in itertools.product((1, 2, 4), (1, 2)):
            command = [sys.executable, __file__, f"--threads={threads}", f"--cores={cores}"]
            subprocess.run(command, check=True, timeout=options.seconds)
            print(f"{threads} threads on {cores} cores: ended", flush=True)
        return
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.cores])
    classes = {n: CLASSES[n] for n in options.classes}
    with ThreadPoolExecutor(options.threads) as pool:
        fit = partial(fit_all, classes=classes, race=not options.no_race, outputs=not options.no_outputs)
        list(pool.map(fit, range(options.threads)))


if __name__ == "__main__":
    main()
