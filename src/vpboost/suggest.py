"""What a misspelt name may have meant; without NumPy, for the command line to start quickly."""

import difflib
from collections.abc import Iterable
from typing import Any


def did_you_mean(word: Any, known: Iterable[str]) -> str:
    """Return the end of an error message that suggests the known name most like ``word``, or nothing.

    >>> did_you_mean("learning_rat", ["width", "learning_rate"])
    "; did you mean 'learning_rate'?"
    >>> did_you_mean("n_trees", ["width", "learning_rate"])
    ''
    """
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.7) if isinstance(word, str) else []
    return f"; did you mean {close[0]!r}?" if close else ""
