"""Tables in files, read with pandas and looked over for the usual mishaps."""

import csv
import io
import re
import shlex
import sys
from collections import Counter
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from .main import CommandError

try:
    import pandas as pd
except ImportError as error:
    raise CommandError("tables are read with pandas, which is not installed: pip install 'vpboost[cli]'") from error

#: What may separate the fields of a line.
DELIMITERS = (",", ";", "\t", "|")
#: A text column with more levels than this, most of them of a single row, is taken for an identifier.
MOST_LEVELS = 100


class Format(NamedTuple):
    """How a text table is written; None is found out."""

    delimiter: str | None = None
    decimal: str = "."
    missing: list[str] | None = None

    @classmethod
    def of(cls, options: Any) -> "Format":
        """Return what the command line says."""
        delimiter = {"\\t": "\t", "tab": "\t"}.get(options.delimiter, options.delimiter)
        for name, value in (("--delimiter", delimiter), ("--decimal", options.decimal)):
            if value is not None and len(value) != 1:
                raise CommandError(f"{name} takes one character, got {value!r}")
        return cls(delimiter, options.decimal, options.missing)


def read_table(path: str, form: Format) -> Any:
    """Return a table as a data frame; raise :class:`CommandError` if it cannot be one."""
    if path == "-":
        content = sys.stdin.buffer.read()
        return read_csv(io.BytesIO(content), io.BytesIO(content), "standard input", form)
    file = Path(path)
    if not file.is_file():
        raise CommandError(f"{path} does not exist" if not file.exists() else f"{path} is not a file")
    if file.suffix.lower() in (".parquet", ".pq"):
        return checked(read_parquet(file), path)
    if file.suffix.lower() in (".xls", ".xlsx", ".ods", ".json", ".feather", ".arrow"):
        raise CommandError(f"{path} is neither CSV nor Parquet; save it as one of these")
    check_memory(file)
    with open(file, "rb") as stream:
        return read_csv(file, stream, path, form)


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


def read_csv(source: Any, stream: BinaryIO, name: str, form: Format) -> Any:
    """Return a text table as a data frame; ``stream`` shows how it begins."""
    lines = (line for line in stream if line.strip(b"\xef\xbb\xbf \t\r\n"))
    first, second = next(lines, b""), next(lines, b"")
    if not first:
        raise CommandError(f"{name} is empty")
    if b"\0" in first + second:
        raise CommandError(f"{name} is not a text file; give CSV or Parquet")
    delimiter = form.delimiter
    try:
        texts = [first.decode("utf-8-sig"), second.decode("utf-8")]
        delimiter = delimiter or find_delimiter(texts[0])
        fields = [next(csv.reader([text], delimiter=delimiter, skipinitialspace=True), []) for text in texts]
        check_header(fields[0], fields[1], name)
        frame = pd.read_csv(
            source, sep=delimiter, decimal=form.decimal, low_memory=False, index_col=False, skipinitialspace=True,
            na_values=form.missing, keep_default_na=not form.missing, encoding="utf-8-sig",
        )  # fmt: skip
        return checked(frame, name)
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
    return max(DELIMITERS, key=re.sub(r'"[^"]*"', "", header).count)


def check_header(names: list[str], row: list[str], name: str) -> None:
    """Raise :class:`CommandError` if the first line does not name the columns of the second."""
    twice = [n for n, count in Counter(n.strip() for n in names).items() if count > 1 and n]
    if twice:
        raise CommandError(f"{name} has more than one column {twice[0]!r}; rename them")
    if all(re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", n.strip()) for n in names):
        raise CommandError(f"{name} begins with numbers, not with the names of its columns; add a header line")
    if len(row) > len(names):
        raise CommandError(
            f"{name} has {len(names)} names in its header and {len(row)} fields in its first row; mend the header, "
            "quote fields that contain the delimiter, or give --delimiter"
        )


def checked(frame: Any, name: str) -> Any:
    """Return a table that has rows, and names that are texts."""
    if not len(frame):
        raise CommandError(f"{name} has a header but no rows")
    frame.columns = [str(column).strip() for column in frame.columns]
    return frame.reset_index(drop=True)


def take_columns(frame: Any, wanted: list[str], name: str) -> Any:
    """Return some columns of a table; raise :class:`CommandError` naming those it lacks."""
    missing = [column for column in wanted if column not in frame.columns]
    if missing:
        have = ", ".join(map(repr, frame.columns[:12])) + (", ..." if len(frame.columns) > 12 else "")
        hint = "; is the delimiter right? give --delimiter" if len(frame.columns) == 1 else ""
        raise CommandError(f"{name} has no column {', '.join(map(repr, missing[:5]))}; it has {have}{hint}")
    return frame[wanted]


def check_inputs(frame: Any, categorical: list[str]) -> Any:
    """Return the input columns for training, those named as categories made objects; complain of mishaps.

    Columns of text are categories by themselves.
    """
    frame = frame.copy()
    for name in frame.columns:
        column, ignore = frame[name], f"--ignore {shlex.quote(name)}"
        if name in categorical:
            frame[name] = column.astype(object)
        elif column.isna().all():
            raise CommandError(f"column {name!r} is empty; leave it out with {ignore}")
        elif pd.api.types.is_datetime64_any_dtype(column) or pd.api.types.is_timedelta64_dtype(column):
            raise CommandError(
                f"column {name!r} holds dates; make numbers of them (days, hours), or leave it out: {ignore}"
            )
        elif name == "Unnamed: 0" and is_number(column) and (column.to_numpy() == np.arange(len(column))).all():
            raise CommandError(f"the first column has no name and counts the rows; leave it out with {ignore}")
        elif not is_number(column):
            check_text(column, name, "or read them all as categories with --categorical " + shlex.quote(name))
            check_levels(column, name)
        elif np.isinf(column.to_numpy(dtype=float, na_value=np.nan)).any():
            raise CommandError(f"column {name!r} has infinite values; empty them, which means missing")
    return frame


def known_inputs(frame: Any, categorical: set[int], name: str) -> Any:
    """Return the input columns for prediction, in the types of training; ``categorical`` are numbers of columns."""
    frame = frame.copy()
    for j, column in enumerate(frame.columns):
        values = frame[column]
        if j in categorical:
            frame[column] = values.astype(object)
        elif not is_number(values):
            true_or_false = values.dropna().map(type).eq(bool).all()
            if not true_or_false:
                check_text(values, column, "which mean missing")
                raise CommandError(f"column {column!r} of {name} holds text; the model was trained on numbers there")
            frame[column] = values.astype(float)
    return frame


def is_number(column: Any) -> bool:
    """Say whether a column holds numbers or true and false."""
    return pd.api.types.is_numeric_dtype(column) or pd.api.types.is_bool_dtype(column)


def check_text(column: Any, name: str, way_out: str) -> None:
    """Raise :class:`CommandError` if a text column seems to be one of numbers."""
    present = column.dropna().astype(str)
    commas = present[present.str.fullmatch(r"[-+]?\d*,\d+")]
    if len(commas) > 0.1 * len(present):
        raise CommandError(f"column {name!r} seems to have decimal commas ({commas.iloc[0]!r}); give --decimal ,")
    wrong = pd.to_numeric(present, errors="coerce").isna().to_numpy()
    if 0 < wrong.mean() < 0.5:
        row, value = int(present.index[wrong][0]), present[wrong].iloc[0]
        raise CommandError(
            f"column {name!r} holds numbers, but {int(wrong.sum())} of {len(present)} values are not, the first "
            f"{value!r} in row {row + 1}; mend or empty them, {way_out}"
        )


def check_levels(column: Any, name: str) -> None:
    """Raise :class:`CommandError` if a text column seems to hold identifiers."""
    present, quoted = column.dropna().astype(str), shlex.quote(name)
    if present.nunique() > max(MOST_LEVELS, len(present) / 2):
        raise CommandError(
            f"column {name!r} has {present.nunique()} different texts in {len(present)} rows, like an identifier; "
            f"leave it out with --ignore {quoted}, or keep it with --categorical {quoted}"
        )


def write_table(frame: Any, path: str) -> None:
    """Write a data frame as CSV or Parquet, or as CSV to standard output."""
    if path == "-":
        frame.to_csv(sys.stdout, index=False)
    elif Path(path).suffix.lower() in (".parquet", ".pq"):
        frame.to_parquet(path, index=False)
    else:
        frame.to_csv(path, index=False)
