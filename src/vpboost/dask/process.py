"""A process that a worker starts and ends."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from multiprocessing import Pipe
from typing import Any

from .errors import Failure
from .handover import RowFile, nameless_file

#: What the process runs. It finds modules where the worker does, those that were uploaded, too.
START = """import json, sys
sys.path[:] = json.loads(sys.argv[3])
from vpboost.dask.ending import die_with
die_with(int(sys.argv[2]))
from vpboost.dask.child import main
main(int(sys.argv[1]))"""
#: Bytes of what a process wrote to standard error that an error message shows.
LAST_WORDS = 2000
#: Where libraries look for the number of threads that they may use.
THREADS = ("PJRT_NPROC", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
#: What JAX takes for news of a cluster (of which the worker may be a job), and gRPC for a way to the others.
ELSEWHERE = ("slurm_", "ompi_", "pmi", "http_proxy", "https_proxy", "grpc_proxy", "all_proxy")


class Process:
    """A process that fits rows, in a group of its own; it dies when its worker does."""

    def __init__(self, order: dict[str, Any], rows: RowFile, threads: int):
        self._ours, theirs = Pipe()
        self._saying = threading.Lock()
        self._errors = tempfile.TemporaryFile(dir=rows.directory)  # noqa: SIM115 (as long as the process is there)
        passed = [theirs.fileno(), rows.descriptor]
        order = {**order, "rows": rows.descriptor}
        if order["checkpoint"] is not None:
            passed.append(nameless_file(rows.directory))
            with os.fdopen(os.dup(passed[-1]), "wb") as file:
                file.write(order["checkpoint"])
            order["checkpoint"] = passed[-1]
        paths = json.dumps([os.path.abspath(path) for path in sys.path])
        self._popen = subprocess.Popen(
            [sys.executable, "-c", START, str(theirs.fileno()), str(os.getpid()), paths],
            stdin=subprocess.DEVNULL,
            stderr=self._errors,
            env=environment(threads),
            pass_fds=passed,
            start_new_session=True,  # Ctrl-C in a terminal is for the client; and it can be ended with its children
        )
        theirs.close()
        for descriptor in passed[2:]:
            os.close(descriptor)
        self.say(order)

    @property
    def pid(self) -> int:
        """Number of the process."""
        return self._popen.pid

    def say(self, message: Any) -> None:
        """Send a message; what the process was told last may never arrive."""
        with self._saying, contextlib.suppress(OSError, ValueError):
            self._ours.send(message)

    def hear(self, seconds: float) -> tuple[str, Any] | None:
        """Return what the process says within so many seconds; how it ended, if it did before it was done."""
        try:
            return self._ours.recv() if self._ours.poll(seconds) else None
        except (EOFError, OSError):
            return "failed", self._post_mortem()

    def _post_mortem(self) -> Failure:
        self.wait(5.0)
        code = self._popen.poll()
        said = self.last_words()
        if code is None:
            how = "closed its connection"
        elif code < 0:
            how = f"was ended by signal {-code} ({signal.Signals(-code).name})"
            how += ": the machine may have run out of memory" if code == -signal.SIGKILL else ""
        else:
            how = f"ended with code {code}"
        # JAX ends a process by an abort when another one is gone
        kind = "aborted" if code == -signal.SIGABRT else "killed"
        return Failure(-1, kind, how + (f"; it said last:\n{said}" if said else ""))

    def last_words(self) -> str:
        """Return the end of what the process wrote to standard error."""
        try:
            size = os.fstat(self._errors.fileno()).st_size
            data = os.pread(self._errors.fileno(), LAST_WORDS, max(size - LAST_WORDS, 0))
        except (OSError, ValueError):
            return ""
        return data.decode(errors="replace").strip()

    def wait(self, seconds: float) -> None:
        """Wait for the end of the process, so many seconds at the most."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(seconds)

    def end(self) -> None:
        """Kill the process and all that it has started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._popen.pid, signal.SIGKILL)
        self._popen.wait()

    def close(self) -> None:
        """Let go of what belongs to a process that has ended."""
        self._ours.close()
        self._errors.close()


def environment(threads: int) -> dict[str, str]:
    """Return the worker's environment for a process of so many threads."""
    kept = {name: value for name, value in os.environ.items() if not name.lower().startswith(ELSEWHERE)}
    return kept | dict.fromkeys(THREADS, str(threads))
