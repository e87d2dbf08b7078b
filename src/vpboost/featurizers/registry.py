"""One place to ask about a featurizer. Each declares beside its class what the rest of the library has to know of it.

Estimators then build it by name, files store it, and exports write it down; :func:`register` is all it takes.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from .. import predictor
from ..suggest import did_you_mean
from .base import Factory


@dataclass(frozen=True)
class Kind:
    """What there is to know about a kind of featurizer."""

    build: Callable  #: the class
    name: str  #: for the parameter ``featurizer`` of the estimators
    takes: dict[str, str]  #: which of their width, depth, activation and weight_scale it takes, and what it calls them
    options: Callable[[Any], dict[str, Any]]  #: its options but the activation, read off a module (or a stack of them)
    plain: Callable  #: NumPy: (options, arrays by name, inputs side by side) to features. A function whose text can be
    #: exported: it may use NumPy as ``np`` and what :mod:`vpboost.predictor` has, nothing else.
    onnx: Callable  #: ONNX: (graph, inputs side by side, options, arrays by name) to features
    of_images: bool = False  #: ONNX then gives it images as they are, and expects (rows, features)
    periodic: bool = False  #: large inputs are then evaluated in double precision
    quick_in_numpy: bool = False  #: NumPy then predicts more rows than a few
    largest: dict[str, float] = field(default_factory=dict)  #: what the numbers of an array may reach in a file
    check: Callable[[dict[str, Any], tuple[int, ...]], None] | None = None  #: of options and input shape in a file


#: Kinds of featurizers by the names of their classes.
KINDS: dict[str, Kind] = {}


def register(kind: Kind) -> None:
    """Make a kind of featurizer known to estimators, files and exports."""
    KINDS[kind.build.__name__] = kind
    predictor.FEATURES[kind.build.__name__] = kind.plain


def kind_of(build: Any) -> Kind | None:
    """Return the kind of a class of featurizers; None for one of the user's own."""
    kind = KINDS.get(getattr(build, "__name__", ""))
    return kind if kind is not None and kind.build is build else None


def takes(name: str, option: str) -> bool:
    """Say whether the kind of this name takes an option of the estimators."""
    return any(kind.name == name and option in kind.takes for kind in KINDS.values())


def named_factory(name: str, given: dict[str, Any], width: int) -> Factory:
    """Return the factory of a kind by its name with the options given; ``width`` is the default for one."""
    kinds = {kind.name: kind for kind in KINDS.values()}
    if name not in kinds:
        hint = did_you_mean(name, kinds)
        raise ValueError(f"featurizer must be one of {sorted(kinds)} or a factory, got {name!r}{hint}")
    takes = kinds[name].takes
    for option in given:
        if option not in takes:
            raise ValueError(f"{option} does not apply to featurizer={name!r}; leave it None")
    if "width" in takes:
        given = {"width": width, **given}
    return partial(kinds[name].build, **{takes[option]: value for option, value in given.items()})
