"""How a process dies with its parent. It imports next to nothing: it is what a process does first."""

import ctypes
import os
import signal
import sys

#: prctl: the signal that a process gets when its parent dies.
PR_SET_PDEATHSIG = 1


def die_with(parent: int) -> None:
    """Have this process killed when its parent dies, as far as the system can do that."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it was too late
        os._exit(1)
