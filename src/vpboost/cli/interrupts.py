"""Ctrl-C that is not lost: Python drops an exception that a signal raises inside somebody's clean-up code."""

import contextlib
import signal
from types import TracebackType
from typing import Any


class Interrupts:
    """Within this context Ctrl-C is remembered; as a callback of a fit, it raises what has not come through."""

    def __init__(self) -> None:
        self.pressed = False
        self._before: Any = None

    def __enter__(self) -> "Interrupts":
        with contextlib.suppress(ValueError):  # not the main thread, which alone hears of signals
            self._before = signal.signal(signal.SIGINT, self.press)
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def press(self, *_: Any) -> None:
        """Take note of Ctrl-C, and raise ``KeyboardInterrupt`` as usual."""
        self.pressed = True
        raise KeyboardInterrupt

    def after_stage(self, progress: Any) -> None:
        """Raise ``KeyboardInterrupt`` if one was lost."""
        if self.pressed:
            raise KeyboardInterrupt
