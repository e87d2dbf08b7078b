"""Tables in files, read with pandas and looked over for the usual mishaps."""

import csv
import io
import sys
from pathlib import Path
from typing import Any

from .main import CommandError

try:
    import pandas as pd
except ImportError as error:
    raise CommandError("tables are read with pandas, which is not installed: pip install 'vpboost[cli]'") from error

#: What may separate the fields of a line.
DELIMITERS = (",", ";", "\t", "|")
#: A text column with more levels than this, most of them of a single row, is taken for an identifier.
MOST_LEVELS = 100


def read_table(path: str, delimiter: str | None = None, decimal: str = ".") -> Any:
    """Return a table as a data frame; raise :class:`CommandError` if it cannot be one."""
    if path == "-":
        content = sys.stdin.buffer.read()
        return read_csv(io.BytesIO(content), content[: 1 << 16], "standard input", delimiter, decimal)
    file = Path(path)
    if not file.is_file():
        raise CommandError(f"{path} does not exist" if not file.exists() else f"{path} is not a file")
    if file.suffix.lower() in (".parquet", ".pq"):
        return checked(read_parquet(file), path)
    if file.suffix.lower() in (".xls", ".xlsx", ".ods", ".json", ".feather", ".arrow"):
        raise CommandError(f"{path} is neither CSV nor Parquet; save it as one of these")
    check_memory(file)
    with open(file, "rb") as stream:
        begin = stream.read(1 << 16)
    return read_csv(file, begin, path, delimiter, decimal)


def read_parquet(file: Path) -> Any:
    """Return a Parquet file as a data frame."""
    try:
        return pd.read_parquet(file)
    except ImportError as error:
        raise CommandError("Parquet files need pyarrow: pip install 'vpboost[parquet]'") from error
    except Exception as error:  # pyarrow's own kinds
        raise CommandError(f"{file} is not a Parquet file: {error}") from error


def check_memory(file: Path) -> None:
    """Refuse a text file that is far too large for the memory of this machine."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable")) * 1024
    except (OSError, StopIteration):
        return
    needed = 4 * file.stat().st_size
    if needed > free:
        raise CommandError(
            f"{file} needs about {needed / 1e9:.1f} GB of memory and {free / 1e9:.1f} GB are free; leave out columns, "
            "take a sample of the rows, or convert it to Parquet and train from Python: fit('table.parquet', 'target') "
            "reads it in parts"
        )


def read_csv(source: Any, begin: bytes, name: str, delimiter: str | None, decimal: str) -> Any:
    """Return a text table as a data frame; ``begin`` is how it begins."""
    if not begin.strip():
        raise CommandError(f"{name} is empty")
    if b"\0" in begin:
        raise CommandError(f"{name} is not a text file; give CSV or Parquet")
    try:
        first = begin.decode("utf-8-sig", "strict" if len(begin) < 1 << 16 else "ignore").splitlines()[0]
        delimiter = delimiter or find_delimiter(first)
        check_header(next(csv.reader([first], delimiter=delimiter)), name)
        return checked(pd.read_csv(source, sep=delimiter, decimal=decimal, low_memory=False), name)
    except UnicodeDecodeError as error:
        raise CommandError(f"{name} is not UTF-8 text; save it with that encoding") from error
    except (pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        raise CommandError(
            f"{name} cannot be read as a table with delimiter {delimiter!r}: {error}; mend that line, quote fields "
            "that contain the delimiter, or give --delimiter"
        ) from error


def find_delimiter(header: str) -> str:
    """Return what separates the fields of a header.

    >>> find_delimiter("a;b;c")
    ';'
    """
    return max(DELIMITERS, key=header.count)


def check_header(names: list[str], name: str) -> None:
    """Raise :class:`CommandError` if the first line does not name the columns."""
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        raise CommandError(f"{name} has more than one column {twice[0]!r}; rename them")
    try:
        [float(n) for n in names]
    except ValueError:
        return
    raise CommandError(f"{name} begins with numbers, not with the names of its columns; add a header line")


def checked(frame: Any, name: str) -> Any:
    """Return a table that has rows."""
    if not len(frame):
        raise CommandError(f"{name} has a header but no rows")
    frame.columns = [str(column) for column in frame.columns]
    return frame


def take_columns(frame: Any, wanted: list[str], name: str) -> Any:
    """Return some columns of a table; raise :class:`CommandError` naming those it lacks."""
    missing = [column for column in wanted if column not in frame.columns]
    if missing:
        have = ", ".join(map(str, frame.columns[:12])) + (", ..." if len(frame.columns) > 12 else "")
        hint = "; is the delimiter right? give --delimiter" if len(frame.columns) == 1 else ""
        raise CommandError(f"{name} has no column {', '.join(map(repr, missing[:5]))}; it has {have}{hint}")
    return frame[wanted]


def check_inputs(frame: Any, categorical: list[str]) -> Any:
    """Return the input columns, those named as categories made text; complain of numbers mixed with text.

    Columns of text are categories by themselves.
    """
    frame = frame.copy()
    for name in frame.columns:
        column = frame[name]
        if name in categorical:
            frame[name] = column.astype(object).where(column.isna(), column.astype(str))
        elif column.isna().all():
            raise CommandError(f"column {name!r} is empty; leave it out with --ignore {name}")
        elif not is_number(column):
            check_text(column, name)
    return frame


def is_number(column: Any) -> bool:
    """Say whether a column holds numbers or true and false."""
    return pd.api.types.is_numeric_dtype(column) or pd.api.types.is_bool_dtype(column)


def check_text(column: Any, name: str) -> None:
    """Raise :class:`CommandError` if a text column seems to be one of numbers, or of identifiers."""
    present = column.dropna().astype(str)
    commas = present[present.str.fullmatch(r"[-+]?\d*,\d+")]
    if len(commas) > 0.1 * len(present):
        raise CommandError(f"column {name!r} seems to have decimal commas ({commas.iloc[0]!r}); give --decimal ,")
    wrong = pd.to_numeric(present, errors="coerce").isna()
    if wrong.mean() < 0.5:
        row, value = wrong.idxmax(), present[wrong.idxmax()]
        raise CommandError(
            f"column {name!r} holds numbers, but {int(wrong.sum())} of {len(present)} values are not, the first "
            f"{value!r} in row {row + 1}; mend or empty them, or read them all as categories with --categorical {name}"
        )
    if present.nunique() > max(MOST_LEVELS, len(present) / 2):
        raise CommandError(
            f"column {name!r} has {present.nunique()} different texts in {len(present)} rows, like an identifier; "
            f"leave it out with --ignore {name}, or keep it with --categorical {name}"
        )


def write_table(frame: Any, path: str) -> None:
    """Write a data frame as CSV or Parquet, or as CSV to standard output."""
    if path == "-":
        frame.to_csv(sys.stdout, index=False)
    elif Path(path).suffix.lower() in (".parquet", ".pq"):
        frame.to_parquet(path, index=False)
    else:
        frame.to_csv(path, index=False)
