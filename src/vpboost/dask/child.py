"""The process that a worker starts: it takes rows over, fits them with the others, and dies with its worker."""

import os
import pickle
import queue
import sys
import threading
import traceback
import warnings
from multiprocessing.connection import Connection
from typing import Any

import cloudpickle
import jax

from .. import distributed
from .errors import Failure
from .relay import Relay, callbacks_of
from .taking import take_over


def main(descriptor: int) -> None:
    """Do what the worker at the other end of a connection says."""
    connection = Connection(descriptor)
    try:
        order = connection.recv()
    except EOFError:
        os._exit(1)
    answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=listen, args=(connection, answers), daemon=True).start()
    message: tuple[str, Any]
    try:
        message = "done", train(order, Relay(connection, answers, order["wants"]))
    except BaseException as error:
        traceback.print_exc()
        message = "failed", failure_of(error, order)
    connection.send(message)
    if message[0] == "done":
        jax.distributed.shutdown()  # waits for the others, which may need this process until they are done, too
    sys.stderr.flush()
    os._exit(0)  # nothing that is left may keep it


def listen(connection: Connection, answers: "queue.SimpleQueue[Any]") -> None:
    """Receive answers; end the process when the worker is gone."""
    while True:
        try:
            answers.put(connection.recv())
        except (EOFError, OSError):
            os._exit(1)


def train(order: dict[str, Any], relay: Relay) -> bytes | None:
    """Fit, and return the model (of process 0; all have the same) with the warnings that there were, pickled."""
    rank = order["rank"]
    data = take_over(order["rows"], order["fields"], order["pieces"])
    distributed.initialize(order["address"], order["size"], rank)
    estimator = pickle.loads(order["estimator"])
    estimator.callbacks = callbacks_of(pickle.loads(order["callbacks"]), relay)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        warnings.simplefilter("default", UserWarning)
        X, y, weight = data.pop("X"), data.pop("y"), data.pop("sample_weight", None)
        fitted = distributed.fit(estimator, X, y, weight, **data, resume_from=path_of(order))
    fitted.callbacks = None
    told = [(warning.category, str(warning.message)) for warning in caught]
    return cloudpickle.dumps((fitted, told)) if rank == 0 else None


def path_of(order: dict[str, Any]) -> str | None:
    """Return the path of the checkpoint; only process 0 has one that it can read, and it does so for all."""
    return f"/dev/fd/{order['checkpoint']}" if order["checkpoint"] is not None else order["resume_from"]


def failure_of(error: BaseException, order: dict[str, Any]) -> Failure:
    """Return an error in a form that can be sent; one of JAX's is most likely about another process that is gone."""
    text = f"{type(error).__name__}: {error}"
    elsewhere = type(error).__module__.startswith("jax") or type(error).__name__ == "ProcessError"
    kind = "peer" if elsewhere else "error"
    if order["resume_from"] is not None:  # as the user knows it
        known = str(path_of(order)), order["resume_from"]
        text, error.args = text.replace(*known), tuple(str(one).replace(*known) for one in error.args)
    try:
        error.add_note(f"in process {order['rank']} of {order['size']}:\n{traceback.format_exc()}")
        data = cloudpickle.dumps(error)
        pickle.loads(data)
    except Exception:
        return Failure(-1, kind, text)
    return Failure(-1, kind, text, data)
