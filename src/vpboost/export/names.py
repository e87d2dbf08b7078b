"""Names of inputs and types of labels that ONNX can hold."""

from typing import Any

import numpy as np

#: Names of the input of numbers and of the outputs.
TAKEN = {"X", "prediction", "std", "low", "high", "label", "probabilities", "set"}


def input_names(names: list[str]) -> list[str]:
    """Return a name for the input of each categorical column: its own one wherever that is possible.

    A name that is taken, empty or not valid text gets "category" before it, and a number after it if need be. (A
    character that ONNX cannot hold becomes a question mark.)

    >>> input_names(["colour", "X", "", "category X"])
    ['colour', 'category X 2', 'category', 'category X']
    """
    used = TAKEN | {name for name in names if is_free(name)}
    found = []
    for name in names:
        if not is_free(name):
            begin = f"category {valid(name)}".strip()
            number = 1
            name = begin
            while name in used:
                number += 1
                name = f"{begin} {number}"
            used.add(name)
        found.append(name)
    return found


def is_free(name: str) -> bool:
    """Say whether a column's name can be that of an input."""
    return bool(name) and name == valid(name) and name not in TAKEN and not name.startswith("vpboost/")


def valid(text: str) -> str:
    """Return a text without what ONNX cannot hold: halves of characters, and zeros, which end a text in C."""
    return text.encode("utf-8", "replace").decode().replace("\0", "?")


def require_valid(texts: Any, what: str) -> list[str]:
    """Return texts, if ONNX can hold them; raise ``ValueError`` if not."""
    for text in texts:
        if text != valid(text):
            raise ValueError(f"{what} {text!r:.60} is not valid text, which ONNX cannot hold; rename it before the fit")
    return list(texts)


def label_tensor(classes: np.ndarray) -> tuple[Any, str]:
    """Return class labels as ONNX holds them, and their type: whole numbers, numbers, truth values or text."""
    if classes.dtype.kind == "O" and not any(isinstance(value, str) for value in classes):
        classes = np.array(classes.tolist())
    if classes.dtype.kind == "M":  # as ISO 8601 writes them
        classes = classes.astype(str)
    if classes.dtype.kind in "UO":
        return require_valid(classes.tolist(), "class"), "string"
    if classes.dtype.kind not in "biufm":
        raise TypeError(
            f"classes of type {classes.dtype} cannot be exported; encode y as text or numbers before the fit"
        )
    large = classes.dtype.kind == "u" and classes.max() > np.iinfo(np.int64).max
    return classes, "uint64" if large else {"b": "bool", "f": "float64"}.get(classes.dtype.kind, "int64")
