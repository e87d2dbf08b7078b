"""The constructor's parameters in files; objects that predictions do not need are left out."""

from typing import Any

import numpy as np

from ..checks import plain_number
from .container import brief
from .describe import describe_factory, factory_of
from .reader import Reader

#: Stands for a parameter that is an object: featurizer, loss or distribution, which the file describes elsewhere.
OBJECT = {"object": True}
#: Parameters that go with a featurizer given by its name only.
OF_NAMED_FEATURIZERS = ("width", "depth", "activation", "weight_scale")


def stored_parameters(parameters: dict[str, Any], custom: bool) -> tuple[dict[str, Any], list[str]]:
    """Return the constructor's parameters as JSON, and the names of those that JSON cannot hold.

    ``custom`` says that the featurizer is the user's own, which whoever loads the file has to pass.
    """
    stored: dict[str, Any] = {}
    dropped = []
    for name, value in parameters.items():
        value = plain_number(value)
        if is_scalar(value):
            stored[name] = value
        elif name == "featurizer" and describe_factory(value) is not None:
            stored[name] = {"factory": describe_factory(value)}
        elif name in ("loss", "distribution") or (name == "featurizer" and custom):
            stored[name] = OBJECT
        elif name == "dtype":  # a type of NumPy's
            stored[name] = np.dtype(value).name
        elif name == "class_weight" and is_plain_dict(value):
            stored[name] = {"pairs": [[plain_number(k), float(v)] for k, v in value.items()]}
        else:
            dropped.append(name)
    return stored, dropped


def loaded_parameters(reader: Reader, defaults: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Return the constructor's parameters; those not saved keep their defaults."""
    stored, dropped = reader.entry("parameters", dict), reader.entry("not_saved", list)
    named = [*stored, *(name for name in dropped if type(name) is str)]
    reader.require(len(named) == len(stored) + len(dropped) == len(set(named)), "names a parameter twice")
    # a later version may have more parameters than the one that wrote the file, but not fewer
    unknown = brief(sorted(set(named) - set(defaults)))
    reader.require(set(named) <= set(defaults), f"has unknown parameters {unknown}")
    parameters = {}
    for name, value in stored.items():
        if name in given and value == OBJECT:
            parameters[name] = given[name]
        elif name == "featurizer" and isinstance(value, dict) and set(value) == {"factory"}:
            parameters[name] = factory_of(value["factory"], None, nested=True)
        elif name == "class_weight" and isinstance(value, dict):
            pairs: Any = value.get("pairs")
            sound = isinstance(pairs, list) and all(isinstance(p, list) and len(p) == 2 for p in pairs)
            reader.require(sound and all(is_scalar(v) for p in pairs for v in p), "has odd class weights")
            parameters[name] = dict(pairs)
        else:
            reader.require(is_scalar(value), f"has a parameter {brief(name)} that is no number or text")
            parameters[name] = value
    dtype = parameters.get("dtype", "auto")
    reader.require(dtype in ("auto", "float32", "float64"), f"has a parameter dtype = {brief(dtype)}")
    if given["featurizer"] is not None:
        if isinstance(parameters.get("featurizer"), str):  # by name, with an activation of the user's own
            parameters = {name: value for name, value in parameters.items() if name not in OF_NAMED_FEATURIZERS}
        parameters["featurizer"] = given["featurizer"]
    return parameters


def is_scalar(value: Any) -> bool:
    """Say whether a value is one that JSON holds: a finite number, a text, true, false or null."""
    return (
        value is None or isinstance(value, str | bool | int) or (isinstance(value, float) and bool(np.isfinite(value)))
    )


def is_plain_dict(value: Any) -> bool:
    """Say whether a value maps numbers or texts to numbers."""
    if not isinstance(value, dict):
        return False
    numbers = all(isinstance(plain_number(v), bool | int | float) and np.isfinite(float(v)) for v in value.values())
    return numbers and all(is_scalar(plain_number(key)) for key in value)
