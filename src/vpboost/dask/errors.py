"""What goes wrong on a cluster, and how long anybody waits for it."""

from typing import NamedTuple

#: Seconds between two words of the client to each worker.
BEAT = 2.0
#: A worker that has heard nothing from its client for so long ends its part of the fit: the client is gone.
PATIENCE = 45.0
#: A worker that has not answered the client for so long is given up.
SILENCE = 60.0
#: After a first failure, the client waits so long for others, to tell what came first from what followed.
GRACE = 5.0
#: A process that is done may take so long to say goodbye to the others.
GOODBYE = 10.0


class WorkerError(RuntimeError):
    """A fit that ended because of a worker, or of the process that it had started.

    Attributes
    ----------
    workers : list of str
        The addresses of the workers at fault.
    """

    def __init__(self, message: str, workers: list[str] | None = None):
        super().__init__(message, workers or [])
        self.workers = workers or []

    def __str__(self) -> str:
        return str(self.args[0])


class Failure(NamedTuple):
    """How one process of a fit ended before it was done."""

    rank: int
    kind: str  #: one of the keys of URGENCY
    text: str
    error: bytes | None = None  #: what the process raised, pickled: its class may be known to the client only


#: What is told of several failures: the one that others followed from.
URGENCY = {"lost": 0, "killed": 1, "error": 2, "peer": 3, "aborted": 4, "ended": 5}


def first_cause(failures: list[Failure]) -> Failure:
    """Return the failure that the others followed from, as far as can be told."""
    return min(failures, key=lambda failure: (URGENCY[failure.kind], failure.rank))
