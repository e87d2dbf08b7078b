"""The command line's way in. Nothing heavy is imported before a command runs, so that help comes at once."""

import contextlib
import io
import os
import sys
import warnings
from collections.abc import Sequence
from typing import Any

from .errors import CommandError, message
from .options import parser
from .outputs import check_files, standard_output


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return 0, 1 for an error the user can mend, 130 after Ctrl-C, 141 if the output's reader is gone.

    Wrong usage ends the process with code 2.
    """
    prepare_streams()
    options = parser().parse_args(arguments)
    try:
        check_files(options)
        with warnings.catch_warnings():
            warnings.showwarning = show_warning  # type: ignore[assignment]
            options.run(options)
        if sys.stdout is not None:
            with standard_output():  # what is still in its buffer must not fail unseen
                pass
    except KeyboardInterrupt:
        print("vpboost: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader has gone, which is its right; the code is that of a program killed by it
        return 141
    except (CommandError, ValueError, TypeError, ImportError, OSError, MemoryError) as error:
        if options.traceback:
            raise
        print(f"vpboost: {message(error)}", file=sys.stderr)
        return 1
    except Exception as error:
        if options.traceback:
            raise
        what = f"{type(error).__name__}: {message(error)}"
        print(f"vpboost: something unforeseen: {what} (--traceback shows where)", file=sys.stderr)
        return 1
    return 0


def show_warning(text: Warning | str, *_: Any) -> None:
    """Print a warning as a line of its own, without the place in the code."""
    with contextlib.suppress(OSError):
        print(f"vpboost: warning: {message(text) if isinstance(text, Warning) else text}", file=sys.stderr)


def prepare_streams() -> None:
    """See to it that messages can be printed, and only where they belong."""
    if sys.stderr is None:  # closed by who started us; print would take standard output instead
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115  (for as long as the process runs)
    if isinstance(getattr(sys.stdout, "buffer", None), io.RawIOBase):  # PYTHONUNBUFFERED: it may take less than all
        sys.stdout = open(sys.stdout.fileno(), "w", encoding=sys.stdout.encoding, closefd=False)  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # names may have letters that the terminal has not
