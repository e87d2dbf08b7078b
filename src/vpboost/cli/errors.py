"""What goes wrong, and how it is shown."""


class CommandError(Exception):
    """Something the user can mend; shown without a traceback."""


def printable(text: str) -> str:
    """Return a text without characters that would command the terminal.

    >>> printable("a" + chr(27) + "[31mb")
    'a?[31mb'
    """
    return "".join(c if c.isprintable() or c == "\n" else "?" for c in text)
