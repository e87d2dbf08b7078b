"""Checks that many arguments share: errors name the argument, the value got and what is allowed."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from .suggest import did_you_mean


def is_number(value: Any) -> bool:
    """Say whether a value is a real number: True, False and NaN are none."""
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool) and value == value


def is_whole(value: Any) -> bool:
    """Say whether a value is a whole number, True and False excluded."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def check_count(name: str, value: Any, least: int = 1) -> int:
    """Return ``value`` if it is a whole number of at least ``least``; raise ``ValueError`` naming it otherwise."""
    if not is_whole(value) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}")
    return int(value)


def check_between(name: str, value: Any, low: float, high: float, allowed: str, hint: str = "") -> None:
    """Raise ``ValueError`` unless ``value`` is a number between two others; ``allowed`` says so in words."""
    if not is_number(value) or not low < value < high:
        raise ValueError(f"{name} must be {allowed}, got {value!r}{hint}")


def check_one_of(name: str, value: Any, allowed: Iterable[str]) -> None:
    """Raise ``ValueError`` unless ``value`` is one of the names allowed."""
    allowed = list(allowed)
    if not isinstance(value, str) or value not in allowed:
        hint = did_you_mean(value, allowed)
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}{hint}")


def plain_number(value: Any) -> Any:
    """Return NumPy's numbers, as grids of parameters hold them, as Python's."""
    scalar = isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0)
    return value.item() if scalar else value
