"""Parameters on their way out: they go on working, and say so, for as long as docs/releasing.md promises.

>>> @deprecated_parameters(since="0.3", until="0.5", n_stages="n_learners")
... def grow(n_learners=10):
...     return n_learners
>>> import warnings
>>> with warnings.catch_warnings(record=True) as caught:
...     warnings.simplefilter("always")
...     grow(n_stages=3)
3
>>> print(caught[0].message)
grow: the parameter n_stages is deprecated since vpboost 0.3 and will go in 0.5; use n_learners
"""

import functools
import inspect
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple, ParamSpec, TypeVar

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class Deprecated(NamedTuple):
    """What a function says of its deprecated parameters, as its attribute ``deprecated_parameters``."""

    since: str
    until: str
    replacements: dict[str, str | None]


def deprecated_parameters(
    *, since: str, until: str, **replacements: str | None
) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
    """Let a function take parameters that it will not have for ever, with a ``FutureWarning``.

    Parameters
    ----------
    since : str
        The version that began to warn.
    until : str
        The version that will not know the parameters any more.
    **replacements : str or None
        By the deprecated parameter: the name of the one that takes its value, which the function has in its place; or
        None for one that the function still has, and that will go without a replacement.

    Notes
    -----
    It works on functions, methods and constructors. Of an estimator, decorate ``set_params``, too. The warning is a
    ``FutureWarning`` and not a ``DeprecationWarning``, which Python hides from those who call from their own modules.
    """

    def decorate(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        signature = inspect.signature(function)
        check_replacements(function, signature, replacements)

        @functools.wraps(function)
        def with_warnings(*args: Any, **kwargs: Any) -> Result:
            # bound as far as it goes: what is wrong with a call is for the function itself to say
            given = positional(signature, args) | kwargs.keys()
            for old, new in replacements.items():
                if old not in given:
                    continue
                warn(function, old, new, since, until)
                if new is not None:
                    if new in given:
                        raise TypeError(
                            f"{named(function)}: {old} is the old name of {new}; give one of them, not both"
                        )
                    kwargs[new] = kwargs.pop(old)
            return function(*args, **kwargs)

        with_warnings.deprecated_parameters = Deprecated(since, until, dict(replacements))  # type: ignore[attr-defined]
        return with_warnings

    return decorate


def check_replacements(function: Any, signature: inspect.Signature, replacements: dict[str, str | None]) -> None:
    """Raise ``TypeError`` where the decorator and the function's parameters do not fit together."""
    takes_all = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in signature.parameters.values())
    for old, new in replacements.items():
        if new is not None and old in signature.parameters:
            raise TypeError(f"{named(function)} still has {old}, which {new} was to replace")
        if (new or old) not in signature.parameters and not takes_all:
            raise TypeError(f"{named(function)} has no parameter {new or old}")


def positional(signature: inspect.Signature, args: tuple[Any, ...]) -> set[str]:
    """Return the names of the parameters that are given by place."""
    kinds = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    names = [name for name, parameter in signature.parameters.items() if parameter.kind in kinds]
    return set(names[: len(args)])


def named(function: Any) -> str:
    """Return what to call a function in a message: of a constructor, its class."""
    name: str = function.__qualname__
    return name.removesuffix(".__init__").split("<locals>.")[-1]


def warn(function: Any, old: str, new: str | None, since: str, until: str) -> None:
    """Say that a parameter will go."""
    instead = "nothing takes its place" if new is None else f"use {new}"
    message = f"the parameter {old} is deprecated since vpboost {since} and will go in {until}; {instead}"
    warnings.warn(f"{named(function)}: {message}", FutureWarning, stacklevel=3)
