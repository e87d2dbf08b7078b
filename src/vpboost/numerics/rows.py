"""Tables that are too large to copy: rows fetched a part at a time.

A *source of rows* is anything with ``shape`` and ``source[rows]``, where ``rows`` is a slice or an array of numbers:
NumPy arrays and memory maps, and the classes here.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

#: Tables with more rows than this are not copied when rows are selected or encoded.
MANY_ROWS = 200_000


class Rows:
    """Rows of another source, in some order, fetched when asked for; ``encode`` may turn them into other columns."""

    def __init__(self, source: Any, index: np.ndarray | None = None, encode: Any = None):
        self.source, self.index, self.encode = source, index, encode
        self.shape = (len(source) if index is None else len(index), *np.shape(self[:1])[1:])

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> np.ndarray:
        found = self.source[rows if self.index is None else self.index[rows]]
        return found if self.encode is None else self.encode(found)

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)


def chunks(source: Any, size: int = 65_536) -> Iterator[np.ndarray]:
    """Yield a source's rows a part at a time."""
    for begin in range(0, max(len(source), 1), size):
        yield source[begin : begin + size]
