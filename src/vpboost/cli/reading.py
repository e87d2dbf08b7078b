"""Tables in files and streams, read with pandas and looked over for the usual mishaps."""

import codecs
import csv
import gzip
import io
import math
import os
import re
import sys
import zlib
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from .errors import CommandError
from .outputs import FOREIGN, PARQUET
from .tables import NUMBER, pd

#: What may separate the fields of a line.
DELIMITERS = (",", ";", "\t", "|")
#: A text file's header must end within so many bytes.
HEAD_BYTES = 4 << 20
#: How much of a text table is looked at to guess the memory that it needs, in so many places.
SAMPLE, PLACES = 1 << 16, 20
#: How a gzip file begins.
GZIP = b"\x1f\x8b"


class Format(NamedTuple):
    """How a text table is written; None is found out."""

    delimiter: str | None = None
    decimal: str = "."
    missing: list[str] | None = None
    text: tuple[str, ...] = ()  #: columns whose fields stay as they are written: 01 is not 1
    keep: str = ""  #: what no column may lose, to be written again: its "text" as it is, or its "type"

    def reading(self, *columns: str) -> "Format":
        """Return the format with these columns read as text."""
        return self._replace(text=columns)

    @classmethod
    def of(cls, options: Any) -> "Format":
        """Return what the command line says."""
        delimiter = {"\\t": "\t", "tab": "\t"}.get(options.delimiter, options.delimiter)
        for name, value in (("--delimiter", delimiter), ("--decimal", options.decimal)):
            if value is not None and (len(value) != 1 or not value.isascii() or value in '"\r\n'):
                raise CommandError(f"{name} takes one ASCII character, no quote and no line break, got {value!r}")
        if delimiter == options.decimal:
            raise CommandError(f"--delimiter and --decimal are both {delimiter!r}; they must differ")
        return cls(delimiter, options.decimal, options.missing)


def read_table(path: str, form: Format, content: io.BytesIO | None = None) -> Any:
    """Return a table, or the ``content`` of one that was :func:`piped`, as a data frame; or raise ``CommandError``."""
    file = Path(path)
    ending = Path(file.name.lower().removesuffix(".gz")).suffix
    if ending in FOREIGN or (ending in PARQUET and file.suffix.lower() == ".gz"):
        raise CommandError(f"{path} is neither CSV nor Parquet; save it as one of these")
    if ending in PARQUET:
        if not file.is_file():
            raise CommandError(f"{path} is not a regular file; Parquet cannot be read from a pipe")
        return checked(read_parquet(file, form), path)
    content = content or piped(path)
    if content is not None:
        return read_text(content, "standard input" if path == "-" else path, form)
    with open(file, "rb") as stream:
        packed = stream.read(2) == GZIP
        stream.seek(0)
        if packed:
            return read_text(in_memory(stream, path), path, form)
        check_memory(memory_of(stream, file.stat().st_size), path)
        return read_text(stream, path, form)


def piped(path: str) -> io.BytesIO | None:
    """Return what comes from standard input or a pipe, which can be read only once; None for a file."""
    if path == "-":
        if sys.stdin is None:  # closed by who started us
            raise CommandError("standard input is closed; give the name of a file")
        return in_memory(sys.stdin.buffer, "standard input")
    if Path(path).is_file():
        return None
    with open(path, "rb") as stream:
        return in_memory(stream, path)


def read_parquet(file: Path, form: Format) -> Any:
    """Return a Parquet file as a data frame."""
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise CommandError("Parquet files need pyarrow: pip install 'vpboost[parquet]'") from error
    try:
        facts = parquet.read_metadata(file)
        check_memory(16 * facts.num_rows * facts.num_columns, str(file))
        check_unique(facts.schema.to_arrow_schema().names, str(file))
        return read_batches(parquet, file, form)
    except CommandError:
        raise
    except Exception as error:  # pyarrow's own kinds
        raise CommandError(f"{file} is not a Parquet file: {error}") from error


def in_memory(stream: BinaryIO, name: str) -> io.BytesIO:
    """Return all that a stream holds, unpacked if it is gzip; raise an error when there is no room for it."""
    content = read_within(stream, name)
    packed = content.read(2) == GZIP
    content.seek(0)
    try:
        if packed:
            with gzip.GzipFile(fileobj=content) as unpacked:
                content = read_within(unpacked, name)
        check_memory(memory_of(content, content.getbuffer().nbytes), name)
        return content
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise CommandError(f"{name} is a damaged gzip file: {error}") from error


def read_within(stream: Any, name: str) -> io.BytesIO:
    """Return all that a stream holds, which together with the table made of it must fit the memory of this machine."""
    content, most = io.BytesIO(), free_memory() / 5
    while part := stream.read(1 << 20):
        content.write(part)
        if content.tell() > most:
            check_memory(5 * content.tell(), name)
    content.seek(0)
    return content


def memory_of(stream: BinaryIO, size: int) -> int:
    """Return about how much memory a text table of this size takes, by samples of it: empty fields take most."""
    samples = []
    for place in range(PLACES):
        stream.seek(place * max(size - SAMPLE, 0) // (PLACES - 1))
        samples.append(stream.read(SAMPLE))
    stream.seek(0)
    marks = b",", b";", b"\t", b"|", b"\n"
    densest = max(sum(map(sample.count, marks)) / len(sample) for sample in samples) if size else 0
    return int((2 + 24 * densest) * size)


def read_batches(parquet: Any, file: Path, form: Format) -> Any:
    """Return the rows of a Parquet file, read a few at a time: its size says nothing of the memory that they take."""
    import pyarrow

    opened, batches, used = parquet.ParquetFile(file), [], 0
    for batch in opened.iter_batches(1024):
        batches.append(batch)
        used += sum(getattr(column, "indices", column).nbytes for column in batch.columns)  # levels are shared
        check_memory(2 * used, str(file))  # beside what they take already
    table = pyarrow.Table.from_batches(batches, opened.schema_arrow)
    for place, field in enumerate(table.schema if form.keep != "type" else ()):
        if pyarrow.types.is_binary(field.type) or pyarrow.types.is_large_binary(field.type):  # text without a mark
            try:
                table = table.set_column(place, field.name, table.column(place).cast("string"))
            except pyarrow.ArrowInvalid as error:
                raise CommandError(f"column {field.name!r} of {file} holds bytes that are not text") from error
    whole = [field.name.strip() for field in table.schema if pyarrow.types.is_integer(field.type)]
    frame = table.to_pandas(
        types_mapper=pd.ArrowDtype if form.keep == "type" else None,
        integer_object_nulls=bool(form.keep or set(whole) & set(form.text)),  # else pandas makes floats of them
    )
    named = [name for name in frame.index.names if name is not None]
    return frame.reset_index(named) if named else frame


def check_memory(needed: int, name: str) -> None:
    """Refuse a table that is far too large for the memory of this machine."""
    free = free_memory()
    if needed > free:
        raise CommandError(
            f"{name} needs about {needed / 1e9:.1f} GB of memory or more and {free / 1e9:.1f} GB are free; leave out "
            "columns, take a sample of the rows, or convert it to Parquet and train from Python: "
            "fit('table.parquet', 'target') reads it in parts"
        )


def free_memory() -> float:
    """Return how many bytes of memory are free; without bound if nobody knows."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable")) * 1024
    except (OSError, StopIteration):
        pages = os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 0
        return pages * os.sysconf("SC_PAGE_SIZE") / 2 if pages > 0 else math.inf


def read_text(stream: BinaryIO, name: str, form: Format) -> Any:
    """Return a text table as a data frame; the stream can be read again from its beginning."""
    delimiter = form.delimiter
    try:
        head = read_head(stream, name)
        check_characters(stream, name)
        delimiter = delimiter or find_delimiter(head)
        raw = form.keep == "text"
        spaced = raw and not has_spaced_quotes(stream, delimiter)
        header, row = first_rows(head, delimiter, not spaced)
        check_header(header, row, name)
        text: Any = str if raw else {column: str for column in header if column.strip() in form.text}
        frame = pd.read_csv(
            stream, sep=delimiter, decimal=form.decimal, low_memory=False, index_col=False, skipinitialspace=not spaced,
            na_values=["", *form.missing] if form.missing else None, keep_default_na=not form.missing,
            dtype=text, na_filter=not raw, skip_blank_lines=len(header) > 1,  # in one column, they are missing values
            dtype_backend="numpy_nullable" if form.keep == "type" else pd.api.extensions.no_default,
        )  # fmt: skip
        frame = checked(frame if raw else with_long_numbers(frame, form.text), name)
        return frame.set_axis(header, axis=1) if raw else frame  # pandas gives names to columns without
    except UnicodeDecodeError as error:
        raise CommandError(f"{name} is not UTF-8 text; save it with that encoding") from error
    except (csv.Error, pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        raise CommandError(
            f"{name} cannot be read as a table with delimiter {delimiter!r}: {str(error).strip()}; mend that line, "
            "quote fields that contain the delimiter, or give --delimiter"
        ) from error


def with_long_numbers(frame: Any, text: Collection[str]) -> Any:
    """Return a table with its longest whole numbers as such, which pandas before 3.0 leaves as text; ``text`` stays.

    >>> with_long_numbers(pd.DataFrame({"a": ["9" * 20, None], "b": ["9" * 20, "x"]}, dtype=object), ())["a"][0]
    99999999999999999999
    """
    for place, name in enumerate(frame.columns):
        column = frame.iloc[:, place]
        present = column.dropna() if column.dtype == object and name.strip() not in text else column[:0]
        if len(present) and present.map(is_whole).all():
            frame.isetitem(place, column.map(int, na_action="ignore").astype(object))
    return frame


def is_whole(value: Any) -> bool:
    """Say whether a value is a text that stands for a whole number, not too long a one for Python."""
    return isinstance(value, str) and re.fullmatch(r"\s*[-+]?[0-9]{1,4300}\s*", value) is not None


def check_characters(stream: BinaryIO, name: str) -> None:
    """Raise an error if there are NUL characters: pandas before 3.1 ends fields there; leave the stream in place."""
    start, line = stream.tell(), 1
    stream.seek(0)
    while part := stream.read(1 << 20):
        place = part.find(b"\0")
        if place >= 0:
            line += part.count(b"\n", 0, place)
            raise CommandError(f"{name} is not a text file: line {line} has a NUL character; give CSV or Parquet")
        line += part.count(b"\n")
    stream.seek(start)


def read_head(stream: BinaryIO, name: str) -> str:
    """Return the beginning of a text file, and leave the stream there: behind blank lines before its header."""
    stream.seek(0)
    head = stream.read(HEAD_BYTES)
    whole = len(head) < HEAD_BYTES
    if b"\0" in head:
        raise CommandError(f"{name} is not a text file; give CSV or Parquet")
    rest = re.sub(rb"\A(?:\xef\xbb\xbf)?(?:[ \t]*[\r\n])*", b"", head)
    stream.seek(len(head) - len(rest))
    text = codecs.getincrementaldecoder("utf-8")().decode(rest, final=whole)
    if not text.strip():
        raise CommandError(f"{name} is empty")
    if not whole and not re.search(r"[\r\n]", text):
        raise CommandError(f"{name} has no line break in its first {HEAD_BYTES >> 20} MB; is it a table?")
    return text


def find_delimiter(head: str) -> str:
    """Return what separates the fields of the first line.

    >>> find_delimiter("a;b;c")
    ';'
    """
    header = re.split(r"[\r\n]", head, maxsplit=1)[0]
    return max(DELIMITERS, key=re.sub(r'"[^"]*"', "", header).count)


def has_spaced_quotes(stream: BinaryIO, delimiter: str) -> bool:
    """Say whether quoted fields have spaces before them, which cannot be kept then; leave the stream where it is."""
    start, mark = stream.tell(), re.escape(delimiter.encode())
    spaced = re.compile(rb'(?:\A|[\r%b]) +(?:"(?:"")*(?!")|(?:"")+(?= *(?:[\r\n%b]|\Z)))' % (mark, mark))
    found = any(map(spaced.search, stream))
    stream.seek(start)
    return found


def first_rows(head: str, delimiter: str, skip: bool) -> tuple[list[str], list[str]]:
    """Return the fields of the header and of the row after it; ``skip`` spaces before them."""
    before = csv.field_size_limit(HEAD_BYTES)  # by default 128 KB, which texts may well exceed
    try:
        reader = csv.reader(io.StringIO(head, newline=""), delimiter=delimiter, skipinitialspace=skip)
        rows = (row for row in reader if "".join(row).strip() or len(row) > 1)  # pandas skips empty lines, too
        return next(rows, []), next(rows, [])
    finally:
        csv.field_size_limit(before)


def check_header(names: list[str], row: list[str], name: str) -> None:
    """Raise :class:`CommandError` if the first line does not name the columns of the second."""
    check_unique([n for n in names if n.strip()], name)
    if all(re.fullmatch(NUMBER, n.strip()) for n in names):
        raise CommandError(f"{name} begins with numbers, not with the names of its columns; add a header line")
    if len(row) > len(names):
        raise CommandError(
            f"{name} has {len(names)} names in its header and {len(row)} fields in its first row; mend the header, "
            "quote fields that contain the delimiter, or give --delimiter"
        )


def checked(frame: Any, name: str) -> Any:
    """Return a table that has rows and columns, and names that are texts."""
    if not len(frame.columns):
        raise CommandError(f"{name} has no columns")
    if not len(frame):
        raise CommandError(f"{name} has a header but no rows")
    frame.columns = [str(column).strip() for column in frame.columns]
    check_unique(list(frame.columns), name)
    return frame.reset_index(drop=True)


def check_unique(names: list[str], name: str) -> None:
    """Raise :class:`CommandError` if two columns have the same name, but for spaces around it."""
    twice = [n for n, count in Counter(n.strip() for n in names).items() if count > 1]
    if twice:
        raise CommandError(f"{name} has more than one column {twice[0]!r}; rename them")
