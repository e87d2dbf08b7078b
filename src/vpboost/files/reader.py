"""Checked access to what a file says: every entry is asked for once, and nothing may be left over."""

from typing import Any

import numpy as np

from .container import ModelFileError, brief


class Reader:
    """The JSON object and the arrays of a file, each entry checked when it is taken out."""

    def __init__(self, content: dict[str, Any], arrays: dict[str, np.ndarray], name: str):
        self.content, self.arrays, self.name = dict(content), dict(arrays), name

    def entry(self, name: str, *kinds: Any) -> Any:
        """Take out an entry, of one of these types exactly (None for null)."""
        if name not in self.content:
            raise ModelFileError(f"{self.name} does not say {brief(name)}")
        value = self.content.pop(name)
        self.require(type(value) in kinds or (value is None and None in kinds), f"says {name} = {brief(value)}")
        return value

    def count(self, name: str, most: int = 1 << 48) -> int:
        """Take out a whole number from 0 to ``most``."""
        value = self.entry(name, int)
        self.require(0 <= value <= most, f"says {name} = {brief(value)}, allowed are 0 to {most}")
        return value

    def texts(self, name: str, length: int) -> list[str] | None:
        """Take out a list of so many texts, or null."""
        value = self.entry(name, list, None)
        if value is not None:
            self.require(len(value) == length and all(type(v) is str for v in value), f"has {name} that do not fit")
        return value

    def array(self, name: str, shape: tuple[int | None, ...], kind: str = "f", finite: bool = True) -> np.ndarray:
        """Take out an array of this shape (None allows any length) and kind; of finite numbers unless told."""
        if name not in self.arrays:
            raise ModelFileError(f"{self.name} has no array {brief(name)}")
        value = self.arrays.pop(name)
        fits = len(shape) == value.ndim and all(n in (None, m) for n, m in zip(shape, value.shape, strict=True))
        self.require(fits, f"has array {brief(name)} of shape {brief(value.shape)}, expected is {shape}")
        self.require(value.dtype.kind == kind, f"has array {brief(name)} of type {value.dtype}")
        if finite:
            self.require(bool(np.isfinite(value).all()), f"has NaN or infinite numbers in array {brief(name)}")
        return value

    def doubles(self, name: str, shape: tuple[int | None, ...]) -> np.ndarray:
        """Take out an array of finite numbers in double precision."""
        value = self.array(name, shape)
        self.require(value.dtype == np.float64, f"has array {brief(name)} of type {value.dtype}")
        return value

    def prefixed(self, prefix: str) -> dict[str, np.ndarray]:
        """Take out all arrays whose name begins so, under the rest of their names."""
        names = [name for name in self.arrays if name.startswith(prefix)]
        return {name.removeprefix(prefix): self.arrays.pop(name) for name in names}

    def require(self, sound: bool, fault: str) -> None:
        """Raise an error that names the file and the fault, unless all is well."""
        if not sound:
            raise ModelFileError(f"{self.name} {fault}")

    def finish(self) -> None:
        """Raise an error if anything was not asked for."""
        left = sorted([*self.content, *self.arrays])
        self.require(not left, f"has entries that do not belong there: {', '.join(map(brief, left[:5]))}")
