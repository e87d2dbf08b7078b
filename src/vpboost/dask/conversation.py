"""The client's side of a fit: it tells every worker that it is there, and hears when one is not."""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

from distributed import Client

from .errors import BEAT, GRACE, SILENCE, Failure
from .worker import beat, close_place


class Conversation:
    """Words between a client and the workers of one fit.

    A thread says one every few seconds, whatever the callbacks do in the meantime. It goes by way of the scheduler, for
    a client need not reach its workers.
    """

    def __init__(self, client: Client, fit: str, workers: list[str]):
        self.client, self.fit, self.workers = client, fit, workers
        self.states: list[str | None] = [None] * len(workers)  #: how each stood when it was asked last
        self.lost: dict[int, Failure] = {}  #: workers that are gone, by rank
        self._answered = [time.monotonic()] * len(workers)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._keep_on, name="vpboost tells its workers", daemon=True)

    def start(self) -> None:
        """Begin to watch, once all places are open."""
        self._thread.start()

    def ask(self, rank: int, function: Callable, *arguments: Any, seconds: float = 30.0) -> Any:
        """Return what a function gives on a worker, called with the fit, the rank and the arguments."""
        found = self.client.sync(self._ask, rank, function, arguments, seconds)
        if isinstance(found, BaseException):
            raise found
        return found

    async def _ask(self, rank: int, function: Callable, arguments: tuple, seconds: float) -> Any:
        worker, until = self.workers[rank], time.monotonic() + seconds
        asked = asyncio.ensure_future(
            self.client.run(function, self.fit, rank, *arguments, workers=[worker], on_error="return")
        )
        try:
            while not asked.done():
                await asyncio.wait([asked], timeout=0.2)
                # the scheduler tries for long to reach a worker that is gone
                if rank in self.lost or time.monotonic() > until:
                    raise TimeoutError(f"worker {worker} does not answer")
            return asked.result()[worker]
        finally:
            asked.cancel()

    def ask_all(self, function: Callable, *arguments: Any, seconds: float = 30.0) -> list[Any]:
        """Return the same for all workers, an exception for those where it fails."""
        return self.client.sync(self._ask_all, function, arguments, seconds)

    async def _ask_all(self, function: Callable, arguments: tuple, seconds: float) -> list[Any]:
        ranks = [rank for rank in range(len(self.workers)) if rank not in self.lost]
        asking = [self._ask(rank, function, arguments, seconds) for rank in ranks]
        answers = dict(zip(ranks, await asyncio.gather(*asking, return_exceptions=True), strict=True))
        return [answers.get(rank, self.lost.get(rank)) for rank in range(len(self.workers))]

    def _keep_on(self) -> None:
        while not self._over.wait(BEAT):
            self.look()

    def look(self) -> None:
        """See which workers are there."""
        states: list[Any]
        try:
            states = self.client.sync(self._look, callback_timeout=30.0)
        except Exception as error:  # the scheduler, or the client itself, is gone
            states = [error] * len(self.workers)
        now = time.monotonic()
        for rank, state in enumerate(states):
            if state is None:
                # also when it has just ended; then a task says how
                self.states[rank] = "ended"
            elif isinstance(state, str):
                self.states[rank], self._answered[rank] = state, now
            elif now - self._answered[rank] > SILENCE:
                self._lose(rank, f"it has not answered for {SILENCE:.0f} seconds ({state!r})")

    async def _look(self) -> list[Any]:
        alive = await self.client.nthreads()
        for rank, worker in enumerate(self.workers):
            if worker not in alive:
                self._lose(rank, "it has left the cluster")
        return await self._ask_all(beat, (), 5.0)

    def _lose(self, rank: int, why: str) -> None:
        self.lost.setdefault(rank, Failure(rank, "lost", why))

    def end(self, why: str) -> None:
        """Have all processes ended; workers that cannot be told end theirs when they hear nothing more."""
        self._over.set()
        try:
            self.ask_all(close_place, why, seconds=GRACE)
        except Exception:
            return
