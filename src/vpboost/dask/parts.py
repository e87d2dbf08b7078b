"""Dask's collections as partitions of known length, and which rows of which go to which process."""

import contextlib
import time
from collections.abc import Iterator
from statistics import median
from typing import Any, NamedTuple

import dask.array as da
from dask.base import is_dask_collection
from dask.core import flatten
from distributed import Client, Future, futures_of, wait

from .errors import SILENCE, WorkerError
from .handover import Layout, layout_of
from .worker import describe_part

#: A process has at least so many rows, if there are enough for several.
LEAST_ROWS = 128
#: Why Dask pauses a worker, and what to do about it.
NO_MEMORY = "for want of memory (use more workers, or X of type float32)"


class Field(NamedTuple):
    """X, or y, and so on: its partitions, how many rows each has, and how they are handed over."""

    futures: list[Future]
    lengths: list[int]
    layout: Layout

    @property
    def n_rows(self) -> int:
        """Rows in all."""
        return sum(self.lengths)


class Move(NamedTuple):
    """Rows of a partition that go to a process."""

    partition: int
    rows: tuple[int, int]  #: of the partition
    rank: int
    at: int  #: the first of them among the rows of the process


def check_collection(name: str, value: Any) -> Any:
    """Return a collection whose partitions hold whole rows; raise ``TypeError`` for what is none."""
    if isinstance(value, da.Array):
        if value.ndim < 1:
            raise TypeError(f"{name} must have rows, got an array without any dimension")
        return value.rechunk(dict.fromkeys(range(1, value.ndim), -1)) if value.ndim > 1 else value
    if is_dask_collection(value) and hasattr(value, "npartitions") and hasattr(value, "dtypes"):
        return value
    if is_dask_collection(value) and hasattr(value, "npartitions") and hasattr(value, "dtype"):
        return value
    raise TypeError(
        f"{name} must be a Dask array, data frame or series, got {type(value).__name__}; make one of it "
        "(dask.array.from_array, dask.dataframe.from_pandas), or use the plain estimator of vpboost"
    )


def fields_of(client: Client, collections: dict[str, Any]) -> dict[str, Field]:
    """Have the collections computed by the workers, and return what their partitions hold."""
    names, held = list(collections), client.persist(list(collections.values()))
    futures = {name: partitions(one) for name, one in zip(names, held, strict=True)}
    del held
    described = {name: client.map(describe_part, futures[name], pure=False) for name in names}
    wait_for(client, [future for parts in described.values() for future in parts])
    fields = {}
    for name in names:
        found = client.gather(described[name])
        layout = layout_of(found, name, inputs=name.startswith("X"))
        fields[name] = Field(futures[name], [part.n_rows for part in found], layout)
    check_lengths(fields)
    return fields


def partitions(collection: Any) -> list[Future]:
    """Return the partitions of a persisted collection, in order."""
    by_key = {future.key: future for future in futures_of(collection)}
    keys = list(flatten(collection.__dask_keys__(), container=list))
    if all(key in by_key for key in keys):
        return [by_key[key] for key in keys]
    # a data frame gives its tasks other names when it is optimised; the number of the partition stays
    numbered = {key[1]: future for key, future in by_key.items()}
    return [numbered[key[1]] for key in keys]


def check_lengths(fields: dict[str, Field]) -> None:
    """Raise ``ValueError`` if fields that go together have other numbers of rows, or none."""
    for inputs, others in (("X", ("y", "sample_weight")), ("X_val", ("y_val", "sample_weight_val"))):
        if inputs not in fields:
            continue
        n = fields[inputs].n_rows
        if not n:
            raise ValueError(f"Found {inputs} with 0 rows in all its {len(fields[inputs].lengths)} partitions.")
        for name in others:
            if name in fields and fields[name].n_rows != n:
                raise ValueError(f"{inputs} and {name} must have as many rows, got {n} and {fields[name].n_rows}")


def wait_for(client: Client, futures: list[Future]) -> None:
    """Wait for tasks that may run anywhere; raise an error if nothing moves, for want of memory or of workers."""
    done, since = -1, time.monotonic()
    while True:
        with contextlib.suppress(TimeoutError):
            wait(futures, timeout=2)
            return
        now = sum(future.done() for future in futures)
        if now != done:
            done, since = now, time.monotonic()
        if time.monotonic() - since > SILENCE:
            running, stuck = workers_of(client)
            if not running and not stuck:
                raise WorkerError(f"the cluster has had no worker for {SILENCE:.0f} seconds")
            if not running:
                raise WorkerError(f"all workers are paused, {NO_MEMORY}: {', '.join(stuck)}", stuck)


def workers_of(client: Client) -> tuple[list[str], list[str]]:
    """Return the workers that run, and those that are there but paused."""
    states = {
        address: info.get("status", "running")
        for address, info in client.scheduler_info(n_workers=-1)["workers"].items()
    }
    return [a for a, state in states.items() if state == "running"], [a for a, s in states.items() if s != "running"]


def chosen_workers(client: Client, fields: dict[str, Field], n_workers: int | None) -> list[str]:
    """Return the workers that take part, those with the first rows first, so that most rows stay where they are."""
    X = fields["X"]
    able, _ = workers_of(client)
    if not able:
        raise WorkerError("the cluster has no worker that runs")
    holders = client.who_has(X.futures)
    held: dict[str, list[int]] = {address: [] for address in able}
    for place, future in enumerate(X.futures):
        for address in holders.get(future.key, ()):
            held.get(address, []).append(place)
    count = min(len(able), n_workers or len(able), max(X.n_rows // LEAST_ROWS, 1))
    if "X_val" in fields:  # each process needs one
        count = min(count, fields["X_val"].n_rows)
    most = sorted(able, key=lambda a: (-sum(X.lengths[place] for place in held[a]), a))[:count]
    return sorted(most, key=lambda a: (median(held[a]) if held[a] else len(X.futures), a))


def moves(lengths: list[int], runs: list[tuple[int, int]]) -> Iterator[Move]:
    """Yield which rows of which partition go to which process, where ``runs`` are the rows of the processes."""
    begin = 0
    for place, length in enumerate(lengths):
        for rank, (first, last) in enumerate(runs):
            low, high = max(first, begin), min(last, begin + length)
            if low < high:
                yield Move(place, (low - begin, high - begin), rank, low - first)
        begin += length
