"""The worker's part of a fit: it gathers rows, starts a process that fits them, and ends it whatever happens.

What a worker holds of a fit is a :class:`Place`. The client opens it, fills it by tasks, has one task start the process
and wait for it, and speaks to it in between (``beat``, ``hear``). A place that hears no more of its client ends by
itself.
"""

import asyncio
import os
import socket
import threading
import time
from collections import deque
from typing import Any

from distributed import Worker, get_worker, secede
from distributed.comm import get_address_host

from .errors import GOODBYE, PATIENCE, Failure
from .handover import Described, Placed, RowFile, describe
from .process import Process

#: What comes of a process: the model (of process 0) and what is left to tell of stages, from which on; or a failure.
Outcome = tuple[bytes | None, int, list[bytes]] | Failure

#: What this Python process holds of fits; several workers may share a process.
_places: dict[tuple[str, int], "Place"] = {}


class Place:
    """What a worker holds of a fit."""

    def __init__(self, key: tuple[str, int], rows: RowFile):
        self.key, self.rows = key, rows
        self.heard = time.monotonic()  #: when the client said something last
        self.state = "filling"  #: "waiting" for all others to be ready, then "fitting", then "ended"
        self.address: str | None = None  #: where process 0 listens; set when all are ready
        self.news: deque[bytes] = deque()  #: what the process tells of its stages, until the client has it
        self._told = self._answered = 0  #: how many the client has, and has answered
        self.why: str | None = None  #: why the place was closed
        self.process: Process | None = None
        self._port: socket.socket | None = None
        self._lock, self._asked, self._reason = threading.Lock(), threading.Event(), ""
        threading.Thread(target=self._watch, name="vpboost watches its client", daemon=True).start()

    def _watch(self) -> None:
        """Close the place when the client asks for it, or when nothing has been heard of it for long."""
        while self.why is None:
            if self._asked.wait(1.0):
                self.close(self._reason)
            elif time.monotonic() - self.heard > PATIENCE:
                self.close(f"the client has not been heard of for {PATIENCE:.0f} seconds")

    def ask_to_close(self, why: str) -> None:
        """Have the place closed soon; the caller does not wait for the end of a process."""
        self._reason = why
        self._asked.set()

    def reserve(self, host: str) -> str:
        """Return an address for process 0; nobody else gets its port as long as the place is open."""
        self._port = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        # the process may listen there while this socket, which does not listen, keeps others away
        self._port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._port.bind(("", 0))
        port = self._port.getsockname()[1]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def train(self, order: dict[str, Any], threads: int) -> Outcome:
        """Start the process and wait for it; return the model (of process 0) and news that are left, or a failure."""
        self.state, rank = "waiting", self.key[1]
        try:
            while self.address is None:
                if self.why is not None:
                    return Failure(rank, "ended", self.why)
                time.sleep(0.01)
            with self._lock:  # not while the place is being closed
                if self.why is not None:
                    return Failure(rank, "ended", self.why)
                more = {"fields": self.rows.fields, "pieces": self.rows.pieces, "address": self.address}
                self.process = Process({**order, **more, "rank": rank}, self.rows, threads)
            self.state = "fitting"
            return self._follow(self.process, rank)
        finally:
            self.close("it is done")
            if self.process is not None:
                self.process.close()

    def catch_up(self, told: int) -> list[bytes]:
        """Forget what the client has been told; return what it has not."""
        while self._told < told and self.news:
            self.news.popleft()
            self._told += 1
        return list(self.news)

    def answer(self, number: int, ends: bool) -> None:
        """Pass on the answer to the stage of this number, once."""
        if number > self._answered and self.process is not None:
            self._answered = number
            self.process.say(ends)

    def _follow(self, process: Process, rank: int) -> Outcome:
        """Pass on what the process says, until it ends."""
        while True:
            if self.why is not None:
                return Failure(rank, "ended", self.why)
            message = process.hear(0.5)
            if message is None or self.why is not None:
                continue
            what, content = message
            if what == "stage":
                self.news.append(content)
            elif what == "done":
                process.wait(GOODBYE)
                return content, self._told, list(self.news)
            else:
                return content._replace(rank=rank)

    def close(self, why: str) -> None:
        """End the process and let go of the rows; nothing happens the second time."""
        with self._lock:
            if self.why is not None:
                return
            self.why, self.state = why, "ended"
        if self.process is not None:
            self.process.end()
        if self._port is not None:
            self._port.close()
        self.rows.close()
        _places.pop(self.key, None)


# --- what the client calls, on the worker's event loop ----------------------------------------------------------------


def open_place(fit: str, rank: int, fields: dict[str, Placed], n_bytes: int, dask_worker: Worker) -> None:
    """Make a place for so many bytes."""
    limit = dask_worker.memory_manager.memory_limit
    if limit and n_bytes > limit:
        raise MemoryError(
            f"worker {dask_worker.address} would hold {n_bytes / 1e9:.3g} GB of rows, and may use {limit / 1e9:.3g} "
            "GB; use more workers, or X of type float32"
        )
    _places[fit, rank] = Place((fit, rank), RowFile(fields, n_bytes, dask_worker.local_directory))


def choose_address(fit: str, rank: int, dask_worker: Worker) -> str:
    """Return where process 0 is to listen."""
    return _places[fit, rank].reserve(get_address_host(dask_worker.address))


def begin(fit: str, rank: int, address: str) -> None:
    """Let the process begin: all others are ready, too."""
    place = _places.get((fit, rank))
    if place is not None:
        place.address = address


def beat(fit: str, rank: int) -> str | None:
    """Hear that the client is there; return how things stand, None if nothing is known of the fit."""
    place = _places.get((fit, rank))
    if place is None:
        return None
    place.heard = time.monotonic()
    return place.state


async def hear(fit: str, rank: int, told: int, answer: tuple[int, bool] | None, wait: float) -> list[bytes]:
    """Pass an answer on to the process; return what it has told of its stages, or tells within ``wait`` seconds.

    The client has ``told`` of these already. What was lost on its way is asked for, or answered, once more.
    """
    place, until = _places.get((fit, rank)), time.monotonic() + wait
    if place is None:
        return []
    place.heard = time.monotonic()
    if answer is not None:
        place.answer(*answer)
    while not (news := place.catch_up(told)) and place.why is None and time.monotonic() < until:
        await asyncio.sleep(0.01)
    return news


def close_place(fit: str, rank: int, why: str) -> None:
    """End the process, if there is one, and forget the fit."""
    place = _places.get((fit, rank))
    if place is not None:
        place.ask_to_close(why)


# --- tasks ------------------------------------------------------------------------------------------------------------


def describe_part(part: Any) -> Described:
    """Return what a partition holds."""
    return describe(part)


def rows_between(part: Any, begin: int, end: int) -> Any:
    """Return rows of a partition."""
    return part[begin:end] if not hasattr(part, "iloc") else part.iloc[begin:end]


def fill(fit: str, rank: int, name: str, at: int, part: Any, rows: tuple[int, int]) -> None:
    """Write rows of a partition into the file of a process."""
    place = _places.get((fit, rank))
    if place is not None:  # else the fit has ended
        place.rows.write(name, at, rows_between(part, *rows))


def train(fit: str, rank: int, order: dict[str, Any], filled: list[None]) -> Outcome:
    """Fit the rows of one process; ``filled`` are the tasks that brought them."""
    worker = get_worker()
    # from here on it waits for others, which may wait for a thread of this worker: two fits at once would never end
    secede()
    place = _places.get((fit, rank))
    if place is None:
        return Failure(rank, "lost", "it has been started anew")
    return place.train(order, worker.state.nthreads)


def known_fits() -> list[tuple[str, int, int | None]]:
    """Return the fits that this process takes part in, with their ranks and processes; for tests."""
    return [(*key, None if place.process is None else place.process.pid) for key, place in _places.items()]


assert os.name == "posix", "vpboost.dask hands rows over by file descriptors, which Windows does not have"
