"""What goes wrong, and how it is shown."""


class CommandError(Exception):
    """Something the user can mend; shown without a traceback."""


def printable(text: str) -> str:
    """Return a text without characters that would command the terminal.

    >>> printable("a" + chr(27) + "[31mb")
    'a?[31mb'
    """
    return "".join(c if c.isprintable() or c == "\n" else "?" for c in text)


def message(error: BaseException) -> str:
    """Return an error's message, fit to be printed, however long the name or value that it repeats."""
    text = str(error) or type(error).__name__
    return printable(text if len(text) <= 2000 else f"{text[:1200]} ... {text[-600:]}")
