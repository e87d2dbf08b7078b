"""Several processes of JAX that work together: small things told to all, and errors that all of them see."""

import json
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils


#: Bytes of a message that goes out in one piece, with its length; most are as short, and waiting is what costs.
SHORT, LENGTH_BYTES = 248, 8


class ProcessError(RuntimeError):
    """An error in another process that takes part in the same work."""


def exchange(message: bytes) -> list[bytes]:
    """Return what each process has to say, in order; all of them have to call this.

    >>> exchange(b"alone")
    [b'alone']
    """
    if jax.process_count() == 1:
        return [message]
    first = gathered(len(message).to_bytes(LENGTH_BYTES, "little") + message[:SHORT], LENGTH_BYTES + SHORT)
    lengths = [int.from_bytes(row[:LENGTH_BYTES].tobytes(), "little") for row in first]
    parts = [first[:, LENGTH_BYTES:]]
    if max(lengths) > SHORT:
        parts.append(gathered(message[SHORT:], max(lengths) - SHORT))
    return [row[:n].tobytes() for row, n in zip(np.concatenate(parts, axis=1), lengths, strict=True)]


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
