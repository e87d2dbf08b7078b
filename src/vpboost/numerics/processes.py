"""Several processes of JAX that work together: small things told to all, and errors that all of them see."""

import json
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

#: Bytes of a message that goes out in one piece, with what stands before it; most are as short, and waiting costs.
SHORT = 240
#: What stands before a message: its length, and the place where it is sent.
HEAD = struct.Struct("<QII")
#: The place of a process that has failed; its message says how.
FAILED = 2**32 - 1


class ProcessError(RuntimeError):
    """An error in another process that takes part in the same work."""


class Place:
    """How far this process has come: which work it is at, and how many messages it has sent there."""

    work, message = 0, 0
    told = False  #: of the failure of another process


def begin_work() -> None:
    """Note that work begins in which all processes take part."""
    Place.work, Place.message, Place.told = Place.work + 1, 0, False


@contextmanager
def failing_together() -> Iterator[None]:
    """Let an error in this process be one in all; the others must wait for its messages, and for nothing else."""
    try:
        yield
    except BaseException as error:
        if jax.process_count() > 1 and not Place.told and not is_loss(error):
            gather_first(f"{type(error).__name__}: {error}".encode()[:SHORT], FAILED)
        raise


def is_loss(error: BaseException) -> bool:
    """Return whether messages do not go through any more."""
    return isinstance(error, jax.errors.JaxRuntimeError) or (
        isinstance(error, ValueError | RuntimeError) and "Gloo" in str(error)
    )


def gather_first(message: bytes, place: int) -> tuple[list[tuple[int, int, int]], np.ndarray]:
    """Return heads and first bytes of the messages of all processes."""
    first = gathered(HEAD.pack(len(message), Place.work, place) + message[:SHORT], HEAD.size + SHORT)
    return [HEAD.unpack(row[: HEAD.size].tobytes()) for row in first], first[:, HEAD.size :]


def exchange(message: bytes) -> list[bytes]:
    """Return what each process has to say, in order; all of them have to call this.

    They must be at the same place: answers to another question would go unnoticed.

    >>> exchange(b"alone")
    [b'alone']
    """
    if jax.process_count() == 1:
        return [message]
    Place.message += 1
    heads, first = gather_first(message, Place.message)
    for i, (length, _, place) in enumerate(heads):
        if place == FAILED:
            Place.told = True
            raise ProcessError(
                f"process {i} of {len(heads)} failed: {first[i, :length].tobytes().decode(errors='replace')}"
            )
    check_in_step([place for _, *place in heads])
    lengths, parts = [length for length, *_ in heads], [first]
    if max(lengths) > SHORT:
        parts.append(gathered(message[SHORT:], max(lengths) - SHORT))
    return [row[:n].tobytes() for row, n in zip(np.concatenate(parts, axis=1), lengths, strict=True)]


def check_in_step(places: list[list[int]]) -> None:
    """Raise :class:`ProcessError` if processes are not at the same place."""
    if any(place != places[0] for place in places):
        found = ", ".join(f"process {i} is at message {n} of fit {work}" for i, (work, n) in enumerate(places))
        raise ProcessError(
            f"processes are not at the same place: {found}; one has failed alone, or they do not make the same calls. "
            "Start them anew"
        )


def gathered(message: bytes, size: int) -> np.ndarray:
    """Return the messages of all processes, filled up to so many bytes, one in a row."""
    padded = np.zeros(size, np.uint8)
    padded[: len(message)] = np.frombuffer(message, np.uint8)
    return np.asarray(multihost_utils.process_allgather(padded)).reshape(jax.process_count(), size)


def exchange_arrays(local: np.ndarray) -> list[np.ndarray]:
    """Return an array of each process; they differ in their first axis only."""
    parts = exchange(np.ascontiguousarray(local).tobytes())
    return [np.frombuffer(part, local.dtype).reshape(-1, *local.shape[1:]) for part in parts]


def exchange_facts(facts: Any) -> list[Any]:
    """Return facts (as JSON has them) of each process."""
    return [json.loads(part) for part in exchange(json.dumps(facts).encode())]


def by_first(work: Callable[[], Any]) -> Any:
    """Return the facts (as JSON has them) that ``work()`` returns in the first process; if it fails there, all fail."""
    told: dict[str, Any] = {}
    error: BaseException | None = None
    if jax.process_index() == 0:
        try:
            told = {"found": work()}
        except BaseException as caught:  # of whatever kind: the others are waiting
            error, told = caught, {"failed": f"{type(caught).__name__}: {caught}"}
    told = exchange_facts(told)[0]
    if error is not None:
        raise error
    if "failed" in told:
        raise ProcessError(f"process 0 of {jax.process_count()} failed: {told['failed']}")
    return told["found"]


def together(work: Callable[[], Any]) -> Any:
    """Return what ``work()`` returns, which must not wait for other processes; if it fails in one, all of them fail."""
    result: Any = None
    error: Exception | None = None
    try:
        result = work()
    except Exception as caught:
        error = caught
    if jax.process_count() == 1:
        if error is not None:
            raise error
        return result
    messages = exchange_facts(None if error is None else f"{type(error).__name__}: {error}")
    if error is not None:
        raise error
    for i, message in enumerate(messages):
        if message is not None:
            raise ProcessError(f"process {i} of {len(messages)} failed: {message}")
    return result
