"""Class labels in files: values that JSON can hold, and the NumPy type that they had."""

import re
from typing import Any

import numpy as np

from .container import ModelFileError, brief, shortened
from .reader import Reader

#: Types of labels: anything, truth values and numbers, text, bytes, dates and durations.
TYPES = re.compile(r"object|[<>|=][biuf]\d{1,2}|[<>]U\d{1,9}|\|S\d{1,9}|[<>][mM]8(\[\d{0,6}[YMWDhmsnpfau]s?\])?")
#: Labels of text all take the room of the longest; where that is more bytes than this, they are kept as objects.
MOST_BYTES = 16 << 20


def stored_classes(classes: np.ndarray | None) -> tuple[list | None, str | None]:
    """Return a classifier's classes as JSON and their type; dates are whole numbers of their unit."""
    if classes is None:
        return None, None
    kind = classes.dtype.kind
    if kind in "mM":
        return classes.astype(np.int64).tolist(), classes.dtype.str
    if kind == "S":
        return [value.decode("latin-1") for value in classes.tolist()], classes.dtype.str
    if kind == "f" and classes.dtype.itemsize > 8 and (classes.astype(float) == classes).all():
        classes = classes.astype(float)  # not every machine has longer ones
    values = [plain_label(value) for value in classes.tolist()]
    as_objects = kind == "O" or (kind == "U" and classes.nbytes > MOST_BYTES)
    return values, "object" if as_objects else classes.dtype.str


def plain_label(value: Any) -> Any:
    """Return a label as JSON holds it; raise ``TypeError`` if it cannot."""
    value = value.item() if isinstance(value, np.generic) else value
    for kind in (bool, str, int, float):
        if isinstance(value, kind):
            return str.__str__(value) if kind is str else kind(value)  # an Enum of texts would give its name
    raise TypeError(
        f"class {brief(value)} of type {type(value).__name__} cannot be saved; encode y as text or numbers before fit"
    )


def classes_from(reader: Reader, values: list, kind: str | None) -> np.ndarray:
    """Return the classes that a file lists, of the type that it names."""
    reader.require(kind is not None and TYPES.fullmatch(kind) is not None, f"has classes of type {brief(kind)}")
    found = {type(value) for value in values}
    same = found == {str} or (bool(found) and found <= {bool, int, float} and (len(found) == 1 or kind == "object"))
    reader.require(same and values == sorted(set(values)), "has classes that are not in order")
    try:
        with np.errstate(all="ignore"):  # numbers too large for their type are found below
            classes = as_array(values, str(kind))
        reader.require(stored_classes(classes)[0] == values, "has classes that do not fit their type")
    except (TypeError, ValueError, OverflowError) as error:
        raise ModelFileError(f"{reader.name} has classes of type {brief(kind)}: {shortened(error)}") from error
    return classes


def as_array(values: list, kind: str) -> np.ndarray:
    """Return labels as an array; the lengths that types of text claim are not believed."""
    if kind[1] not in "US":
        return np.array(values, dtype=kind)
    longest = max(map(len, values))
    if longest * len(values) * 4 > MOST_BYTES:
        raise ValueError("they are too long")
    return np.array([value.encode("latin-1") for value in values] if kind[1] == "S" else values)
