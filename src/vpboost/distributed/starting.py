"""How processes find each other, and which rows each of them should hold."""

import jax

from ..checks import check_count
from ..numerics.devices import halved

#: Seconds after which a process that does not answer is given up, and those to wait for all to begin.
SILENCE, PATIENCE = 60, 300


def initialize(
    coordinator_address: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    *,
    initialization_timeout: int = PATIENCE,
    heartbeat_timeout: int = SILENCE,
) -> None:
    """Let this process take part; each process calls this once, before anything else that uses JAX.

    It is ``jax.distributed.initialize`` with time limits that suit a fit. A process alone need not call it.

    Parameters
    ----------
    coordinator_address : str, optional
        "host:port" of process 0, a free port of which is used. Under Slurm, Open MPI 4 and on TPUs, JAX finds out
        itself what is left out here.
    num_processes, process_id : int, optional
        How many processes there are, and which of them this is, from 0.
    initialization_timeout : int, default=300
        Seconds to wait for all processes to begin.
    heartbeat_timeout : int, default=60
        Seconds after which a process that is silent counts as lost; all others then end.
    """
    if coordinator_address is not None and ":" not in str(coordinator_address):
        raise ValueError(f"coordinator_address must be 'host:port', got {coordinator_address!r}")
    if num_processes is not None:
        check_count("num_processes", num_processes)
    try:
        jax.distributed.initialize(
            coordinator_address,
            num_processes,
            process_id,
            initialization_timeout=initialization_timeout,
            heartbeat_timeout_seconds=heartbeat_timeout,
        )
    except ValueError as error:
        if None not in (coordinator_address, num_processes, process_id):
            raise
        raise ValueError(
            f"JAX has found no launcher that it knows ({str(error).rstrip('.')}); give coordinator_address, "
            "num_processes and process_id"
        ) from error


def rows_of(n_rows: int, num_processes: int) -> list[tuple[int, int]]:
    """Return the first row of each process and the one after its last, out of ``n_rows`` rows in order.

    With these, the model has the same bits for 1, 2, 4, 8 and 16 processes (of as many devices each).

    >>> rows_of(13, 4)
    [(0, 4), (4, 7), (7, 10), (10, 13)]
    """
    check_count("n_rows", n_rows, 0)
    check_count("num_processes", num_processes)
    ends = halved(int(n_rows), int(num_processes))
    return list(zip([0, *ends[:-1]], ends, strict=True))
