"""A fit on a cluster, as the client sees it: rows to their places, processes, stages, and the end."""

import contextlib
import logging
import pickle
import time
import uuid
import warnings
from pathlib import Path
from typing import Any

import cloudpickle
from distributed import Client, Future

from ..distributed import rows_of
from .conversation import Conversation
from .errors import GRACE, SILENCE, Failure, WorkerError, first_cause
from .handover import placed
from .parts import NO_MEMORY, Field, chosen_workers, fields_of, moves, workers_of
from .relay import Listener
from .worker import begin, choose_address, fill, hear, open_place, rows_between, train

log = logging.getLogger("vpboost")


def fit_on_cluster(
    client: Client,
    estimator: Any,
    collections: dict[str, Any],
    listener: Listener,
    n_workers: int | None = None,
    resume_from: Any = None,
) -> Any:
    """Return a plain estimator fitted to Dask's collections."""
    checkpoint = None if resume_from is None else Path(resume_from).read_bytes()
    fields = fields_of(client, collections)
    workers = chosen_workers(client, fields, n_workers)
    talk = Conversation(client, f"vpboost-{uuid.uuid4().hex}", workers)
    order = {
        **{"size": len(workers), "estimator": cloudpickle.dumps(estimator), "checkpoint": checkpoint},
        **{"callbacks": listener.for_process(), "wants": listener.wants},
        "resume_from": None if resume_from is None else str(resume_from),
    }
    tasks: list[Future] = []
    try:
        open_places(talk, fields)
        filled = send_rows(talk, fields)
        tasks = start_training(talk, filled, order)
        del fields, filled  # the workers need not keep partitions whose rows are in place
        let_begin(talk, tasks)
        model = follow(talk, tasks, listener)
    except Failed as failed:
        raise error_of(failed.args[0], talk, listener) from None
    finally:
        talk.end("the client has ended the fit")
        for task in tasks:  # one for a worker that is gone would wait for it for ever
            task.release()
        listener.close()
    fitted, told = pickle.loads(model)
    for category, message in told:
        warnings.warn(message, category, stacklevel=3)
    return fitted


class Failed(Exception):
    """The fit has failed, of this cause."""


def open_places(talk: Conversation, fields: dict[str, Field]) -> None:
    """Have every worker make room for the rows of its process, and begin to watch them."""
    layouts = {name: field.layout for name, field in fields.items()}
    runs = {name: rows_of(field.n_rows, len(talk.workers)) for name, field in fields.items()}
    for rank in range(len(talk.workers)):
        n_rows = {name: run[rank][1] - run[rank][0] for name, run in runs.items()}
        try:
            talk.ask(rank, open_place, *placed(layouts, n_rows))
        except MemoryError:  # which names the worker
            raise
        except Exception as error:
            raise Failed(Failure(rank, "lost", f"it cannot take part ({error!r})")) from error
    talk.start()


def send_rows(talk: Conversation, fields: dict[str, Field]) -> list[list[Future]]:
    """Have the rows of every process written to its file; return the tasks that do so, by rank."""
    filled: list[list[Future]] = [[] for _ in talk.workers]
    for name, field in fields.items():
        holders = talk.client.who_has(field.futures)
        for move in moves(field.lengths, rows_of(field.n_rows, len(talk.workers))):
            filled[move.rank].append(send(talk, name, field, move, holders))
    return filled


def send(talk: Conversation, name: str, field: Field, move: Any, holders: dict) -> Future:
    """Have rows of a partition written to the file of a process."""
    client, to, part = talk.client, talk.workers[move.rank], field.futures[move.partition]
    rows = move.rows
    whole = rows == (0, field.lengths[move.partition])
    if not whole and to not in holders.get(part.key, ()):  # no more is to travel than is needed
        part = client.submit(rows_between, part, *rows, pure=False)
        rows = (0, rows[1] - rows[0])
    return client.submit(
        fill, talk.fit, move.rank, name, move.at, part, rows,
        workers=[to], allow_other_workers=False, pure=False, retries=0,
    )  # fmt: skip


def start_training(talk: Conversation, filled: list[list[Future]], order: dict[str, Any]) -> list[Future]:
    """Return one task for each process, which runs on its worker and nowhere else."""
    without = {**order, "checkpoint": None}  # process 0 reads it for all
    return [
        talk.client.submit(
            train, talk.fit, rank, without if rank else order, filled[rank],
            workers=[worker], allow_other_workers=False, pure=False, retries=0, priority=100,
            key=f"vpboost-fit-{rank}-{talk.fit}",
        )
        for rank, worker in enumerate(talk.workers)
    ]  # fmt: skip


def let_begin(talk: Conversation, tasks: list[Future]) -> None:
    """Wait until all have their rows and a thread to run in, then let the processes begin."""
    due = time.monotonic() + SILENCE
    while not all(state == "waiting" for state in talk.states):
        check(talk, tasks)
        time.sleep(0.05)
        talk.look()
        if time.monotonic() > due:
            check_paused(talk)
            late = [talk.workers[rank] for rank, state in enumerate(talk.states) if state != "waiting"]
            log.warning("the fit waits for %s: rows are on their way, or other tasks run there", ", ".join(late))
            due = time.monotonic() + SILENCE
    try:
        answers = [*talk.ask_all(begin, talk.ask(0, choose_address))]
    except Exception as error:
        answers = [error]
    for rank, answer in enumerate(answers):
        if answer is not None:
            raise Failed(Failure(rank, "lost", f"it could not be told to begin ({answer!r})"))


def check_paused(talk: Conversation) -> None:
    """Raise ``Failed`` if a worker does not do anything more."""
    _, paused = workers_of(talk.client)
    for rank, worker in enumerate(talk.workers):
        if worker in paused:
            raise Failed(Failure(rank, "lost", f"it is paused, {NO_MEMORY}"))


def follow(talk: Conversation, tasks: list[Future], listener: Listener) -> bytes:
    """Call callbacks after every stage until all processes are done; return the model."""
    told, answered, answer, stopping = 0, 0, None, False
    while True:
        check(talk, tasks)
        try:
            if all(task.done() for task in tasks):
                model, first, left = tasks[0].result()
                for data in left[told - first :]:
                    listener.heard(data)
                return model
            for data in hear_stages(talk, told, answer):
                told += 1
                ends = listener.heard(data)
                if listener.wants == "state":
                    answered, answer = told, (told, ends or stopping)
        except KeyboardInterrupt:
            # as in a plain fit: the stages so far are a model; who cannot wait for the end of the next asks again
            if stopping or not listener.stages:
                raise
            stopping, answer = True, (answered + 1, True)
            warnings.warn(
                f"fit interrupted after {listener.stages} stages; it ends with the next, and the model of them is kept",
                UserWarning,
                stacklevel=4,
            )


def hear_stages(talk: Conversation, told: int, answer: tuple[int, bool] | None) -> list[bytes]:
    """Answer process 0, and return what it tells within a second."""
    try:
        news = talk.ask(0, hear, told, answer, 1.0)
    except (OSError, TimeoutError):  # whether the worker is lost, the conversation finds out
        news = []
    if not news:
        time.sleep(0.02)  # the process may have ended, and others not yet
    return news


def check(talk: Conversation, tasks: list[Future]) -> None:
    """Raise ``Failed`` if a worker is lost, or a process has failed; a moment later, when others have told, too."""
    if not failures(talk, tasks):
        return
    until = time.monotonic() + GRACE
    while time.monotonic() < until:
        talk.look()
        found = failures(talk, tasks)
        if len(found) == len(tasks) or first_cause(found).kind in ("lost", "killed"):
            break
        time.sleep(0.2)
    raise Failed(first_cause(failures(talk, tasks)))


def failures(talk: Conversation, tasks: list[Future]) -> list[Failure]:
    """Return what has gone wrong so far."""
    found = list(talk.lost.values())
    for rank, task in enumerate(tasks):
        if rank in talk.lost or not task.done():
            continue
        if task.status == "finished":
            result = task.result()
            found += [result] if isinstance(result, Failure) else []
        elif task.status == "error":
            error = task.exception()
            found.append(Failure(rank, "error", repr(error), as_bytes(error)))
        else:
            found.append(Failure(rank, "lost", f"its task was {task.status}"))
    return found


def as_bytes(error: BaseException | None) -> bytes | None:
    """Return an error pickled, if it can be."""
    with contextlib.suppress(Exception):
        return cloudpickle.dumps(error)
    return None


def error_of(failure: Failure, talk: Conversation, listener: Listener) -> BaseException:
    """Return the error to raise: that of the process, or one that names the worker and says what to do."""
    worker, size = talk.workers[failure.rank], len(talk.workers)
    if failure.kind == "error" and failure.error is not None:
        with contextlib.suppress(Exception):
            error = pickle.loads(failure.error)
            error.add_note(f"on worker {worker}")
            return error
    after = f" after stage {listener.stages - 1}" if listener.stages else ""
    place = f"worker {worker} (process {failure.rank} of {size})"
    workers = [worker]
    if talk.client.status != "running":
        failure = Failure(0, "lost", f"its scheduler is gone, the client is {talk.client.status}")
        place, workers = "the cluster", []
    what = {
        "lost": f"{place} was lost{after}: {failure.text}",
        "killed": f"the process of {place} died{after}: it {failure.text}",
    }.get(failure.kind, f"{place} failed{after}: {failure.text}")
    if listener.checkpoint is not None:
        advice = f"fit again with resume_from={listener.checkpoint!r} to go on from the last checkpoint"
    else:
        advice = "fit again; with a vpboost.callbacks.Checkpoint, resume_from goes on from where it was"
    return WorkerError(f"{what}. The fit has ended on all workers; {advice}, on the workers that are there.", workers)
