"""Callbacks of a fit whose stages are done elsewhere: what process 0 tells, and how the client listens."""

import queue
from multiprocessing.connection import Connection
from typing import Any

import cloudpickle
import jax
import jax.numpy as jnp
import numpy as np

from ..callbacks import Checkpoint, EarlyStopping, Progress, ProgressDisplay, TimeBudget, ends_fit
from ..core.records import Record, Stage

#: Callbacks that process 0 calls itself, for they need to know nothing of the client; it tells how they stand.
NEAR = (EarlyStopping, TimeBudget)


class Saves(Checkpoint):
    """Stands for a checkpoint of the client's: the fit is to tell what one has to know."""

    def __init__(self) -> None:
        super().__init__("elsewhere")

    def after_stage(self, progress: Progress) -> None:
        """Leave it to the client."""


def callbacks_of(near: dict[str, Any], relay: "Relay") -> list[Any]:
    """Return the callbacks of the estimator in a process."""
    relay.near = near["callbacks"]
    return [*near["callbacks"], *([Saves()] if near["saves"] else []), relay]


class Relay:
    """A callback that tells the client of every stage and, where the client has callbacks, waits for its answer."""

    def __init__(self, connection: Connection, answers: "queue.SimpleQueue[Any]", wants: str):
        self._connection, self._answers, self._wants = connection, answers, wants
        self.near: list[Any] = []
        self._told: int | None = None  #: learners that the client knows; None before the first stage

    def after_stage(self, progress: Progress) -> bool:
        """Tell, and return what the client says."""
        note: dict[str, Any] = {
            **{"record": progress.record, "n_estimators": progress.n_estimators},
            **{"score": progress.score, "seconds": progress.seconds, "near": [vars(one) for one in self.near]},
        }
        if self._wants == "state":
            note |= self._state(progress)
        self._connection.send(("stage", cloudpickle.dumps(note)))
        if self._wants == "state":
            return bool(self._answers.get())
        return not self._answers.empty() and bool(self._answers.get())

    def _state(self, progress: Progress) -> dict[str, Any]:
        """Return what is new since the stage before; all of it in the first of a fit."""
        state = progress.state
        first = self._told is None or progress.stage == 0
        new, self._told = state.learners[0 if first else self._told :], len(state.learners)
        seen = state.validation_prediction
        found = {"learners": plain(new), "reg_lambda": plain(state.reg_lambda)}
        found["outputs"] = None if seen is None else np.shape(seen)[1]
        if first:
            found |= {"constant": plain(state.constant), "history": list(state.history), "facts": progress.facts}
        return found


def plain(tree: Any) -> Any:
    """Return a tree with arrays of NumPy's, which keep their precision wherever they are unpickled."""
    return jax.tree.map(lambda leaf: np.asarray(leaf) if isinstance(leaf, jax.Array) else leaf, tree)


def on_device(tree: Any) -> Any:
    """Return a tree with arrays of JAX's, as callbacks know them."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf) if isinstance(leaf, np.ndarray) else leaf, tree)


class Listener:
    """The client's side: it calls the user's callbacks with what process 0 tells."""

    def __init__(self, callbacks: list[Any] | None, verbose: int):
        given = list(callbacks or [])
        self._near = [callback for callback in given if isinstance(callback, NEAR)]
        self._own = [callback for callback in given if not isinstance(callback, NEAR)]
        display = [ProgressDisplay()] if verbose else []
        self._watching = [*display, *self._own]
        self.stages = 0  #: done so far
        self.checkpoint = next((str(one.path) for one in given if isinstance(one, Checkpoint)), None)
        self._saves = self.checkpoint is not None
        self._known: dict[str, Any] = {}

    @property
    def wants(self) -> str:
        """What process 0 is to tell: also the "state", and wait for an answer, or the "record" only."""
        return "state" if self._own else "record"

    def for_process(self) -> bytes:
        """Return what the processes need to know of the callbacks."""
        return cloudpickle.dumps({"callbacks": self._near, "saves": self._saves})

    def heard(self, data: bytes) -> bool:
        """Call the callbacks after a stage; return whether they end the fit."""
        note = cloudpickle.loads(data)
        for callback, state in zip(self._near, note["near"], strict=True):
            vars(callback).update(state)
        self.stages = note["record"].stage + 1
        dtype = np.asarray(note["constant"]).dtype if "constant" in note else self._known.get("dtype")
        with jax.enable_x64(dtype == np.float64):
            progress = self._progress({**note, "dtype": dtype})
            return any([ends_fit(callback, progress) for callback in self._watching])

    def _progress(self, note: dict[str, Any]) -> Progress:
        """Return what callbacks see."""
        record, score = note["record"], note["score"]
        if "constant" in note:
            self._known = {"learners": [], "history": note["history"], "constant": jnp.asarray(note["constant"])}
            self._known |= {"dtype": note["dtype"], "facts": {**note["facts"], "scores": list(note["facts"]["scores"])}}
        elif self._known:
            self._known["history"].append(record)
            self._known["facts"]["scores"].append(score)
        if not self._known:  # nobody looks at more than the record
            return Progress(bare_stage(record), note["n_estimators"], score, {}, note["seconds"])
        self._known["learners"].extend(on_device(note["learners"]))
        # the rows that validate are the processes'
        seen = None if note["outputs"] is None else np.empty((0, note["outputs"]))
        known = self._known
        state = Stage(record, known["constant"], known["learners"], known["history"], note["reg_lambda"], seen)
        return Progress(state, note["n_estimators"], score, known["facts"], note["seconds"])

    def close(self) -> None:
        """End displays."""
        for shown in (callback for callback in self._watching if isinstance(callback, ProgressDisplay)):
            shown.close()


def bare_stage(record: Record) -> Stage:
    """Return a stage of which only the record is known."""
    return Stage(record, jnp.zeros(0), [], [record], jnp.zeros(()), None)
