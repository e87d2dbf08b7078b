"""Files and streams of the commands: what is read must be there, and what is written must not be what is read."""

import contextlib
import csv
import importlib.util
import os
import re
import sys
import tempfile
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from ..files.atomic import replacing, writable
from .errors import CommandError

#: How messages call the arguments; all others are called --NAME.
CALLED = {"table": "the table", "model": "the model", "output": "-o"}
PARQUET = (".parquet", ".pq")
PICTURES = (".jpeg", ".jpg", ".pdf", ".png", ".svg", ".webp")
#: Endings of files that are neither CSV nor Parquet.
FOREIGN = {
    ".7z", ".arrow", ".avro", ".bz2", ".db", ".doc", ".docx", ".dta", ".feather", ".h5", ".hdf", ".hdf5", ".htm",
    ".html", ".ipc", ".json", ".jsonl", ".ndjson", ".npy", ".npz", ".ods", ".onnx", ".orc", ".pdf", ".pickle", ".pkl",
    ".png", ".rds", ".sas7bdat", ".sav", ".sqlite", ".sqlite3", ".svg", ".tar", ".vpboost", ".xls", ".xlsb", ".xlsm",
    ".xlsx", ".xml", ".xz", ".yaml", ".yml", ".zip", ".zst",
}  # fmt: skip


def check_files(options: Namespace) -> None:
    """Raise an error, before any long work, if files to read do not exist or files to write are others or cannot be.

    ``options.reads`` and ``options.writes`` name the options that hold paths.
    """
    reads = {called(name): getattr(options, name) for name in options.reads if getattr(options, name) is not None}
    if list(reads.values()).count("-") > 1:
        raise CommandError(f"{' and '.join(reads)} are both -; standard input can be read only once")
    for label, path in reads.items():
        check_input(label, path)
        if is_standard_output(0 if path == "-" else path):
            raise CommandError(f"standard output and {label}, {path}, are the same file; write to another one")
    seen = dict(reads)
    for name in () if getattr(options, "to", None) == "numpy" else options.writes:  # see check_folder
        label, path = called(name), getattr(options, name)
        if path is None or (path == "-" and options.command == "predict"):
            continue
        check_output(label, path)
        for other, taken in seen.items():
            if same_file(path, taken):
                raise CommandError(f"{label} {path} and {other}, {taken}, are the same file; give another {label}")
        if name in ("plot", "picture") and not path.lower().endswith(PICTURES):
            raise CommandError(f"{label} takes {', '.join(PICTURES)}, got {path}")
        seen[label] = path


def is_standard_output(path: str | int) -> bool:
    """Say whether standard output goes to this regular file."""
    try:
        return os.path.isfile(path) and os.path.samefile(path, sys.stdout.fileno())
    except (OSError, AttributeError, ValueError):  # closed, or not a file
        return False


def check_input(label: str, path: str) -> None:
    """Raise an error if there is no file, or pipe, at a path."""
    if path == "":
        raise CommandError(f"{label} has an empty name; give the name of a file")
    if path != "-" and not os.path.exists(path):
        raise CommandError(f"{path} does not exist")
    if os.path.isdir(path):
        raise CommandError(f"{path} is a folder; give the name of a file")


def called(name: str) -> str:
    """Return how messages call an argument."""
    return CALLED.get(name, f"--{name}")


def same_file(path: str, other: str) -> bool:
    """Say whether two paths, of which - is standard input, are one file, under whatever names and links."""
    try:
        return os.path.samefile(path, 0 if other == "-" else other)
    except OSError:  # one of them does not exist
        if other == "-":
            return False
    real, taken = (os.path.normcase(os.path.realpath(one)) for one in (path, other))
    if os.path.basename(real) != os.path.basename(taken):
        return False
    with contextlib.suppress(OSError):  # a folder may be mounted in two places
        return os.path.samefile(os.path.dirname(real), os.path.dirname(taken))
    return real == taken


def check_output(label: str, path: str) -> None:
    """Raise an error if a file cannot be put at a path."""
    if path in ("", "-"):
        raise CommandError(f"{label} {path}: give the name of a file")
    if re.match(r"/dev/(std(in|out|err)$|fd/)|/proc/[^/]+/fd/", os.path.abspath(path)):
        hint = "; leave it out to write to standard output" if label == "-o" else ""
        raise CommandError(f"{label} {path} is not a file{hint}")
    try:
        path.encode()  # as the names of temporary files are
        target = writable(path)
        with contextlib.suppress(FileNotFoundError):
            os.lstat(target)  # says so if the name is too long
        with tempfile.TemporaryFile(dir=target.parent):  # files are replaced: the folder must take a new one
            pass
    except OSError as error:
        reason = str(error) if error.strerror is None else f"{path} cannot be written: {error.strerror.lower()}"
        raise CommandError(f"{label} {reason}") from error
    except UnicodeEncodeError as error:
        raise CommandError(f"{label} {path} cannot be written: the name is not UTF-8") from error


def check_folder(folder: str, model: str) -> None:
    """Raise an error if an export of ``model`` to a folder would replace files that are not an earlier export."""
    from .. import predictor

    if folder in ("", "-") or (os.path.lexists(folder) and not os.path.isdir(folder)):
        raise CommandError(f"-o {folder} is not a folder; give the name of one, or of a new one")
    saved, script = Path(folder, "model.vpboost"), Path(folder, "predictor.py")
    for file in (saved, script):
        if same_file(str(file), model):
            raise CommandError(f"{file} and the model, {model}, are the same file; give another folder")
        if file.exists() and not file.is_file():
            raise CommandError(f"{file} exists and is not a regular file; give another folder")
    if script.exists() and first_line(script) != first_line(Path(predictor.__file__)):
        raise CommandError(f"{script} exists and is not vpboost's; give another folder")
    if saved.exists() and not script.exists():
        raise CommandError(f"{saved} exists and is not part of an earlier export; give another folder")


def first_line(path: Path) -> bytes:
    """Return how a file begins."""
    with open(path, "rb") as file:
        return file.readline(1000)


def table_format(path: str) -> dict[str, Any] | None:
    """Return how pandas writes the CSV file of this name, None for a Parquet file; refuse names of other formats.

    >>> table_format("a.txt"), table_format("a.parquet")
    ({'sep': ',', 'compression': None}, None)
    """
    name = Path(path).name.lower()
    ending = Path(name.removesuffix(".gz")).suffix
    packed = name.endswith(".gz")
    if ending in FOREIGN or (packed and ending in PARQUET):
        raise CommandError(
            f"-o takes .csv, .txt or .tsv (tabs), each of them also with .gz, or .parquet, got {path}; "
            "files of no such ending are CSV"
        )
    if ending in PARQUET:
        if importlib.util.find_spec("pyarrow") is None:
            raise CommandError("Parquet files need pyarrow: pip install 'vpboost[parquet]'")
        return None
    return {"sep": "\t" if ending == ".tsv" else ",", "compression": {"method": "gzip", "mtime": 1} if packed else None}


def write_table(frame: Any, path: str) -> None:
    """Write a data frame as CSV or Parquet, the whole of it or nothing, or as CSV to standard output."""
    how = {"index": False, "encoding": "utf-8"}
    if path == "-":
        with standard_output() as stream:
            binary = getattr(stream, "buffer", None)  # UTF-8 whatever the terminal's encoding
            frame.to_csv(stream if binary is None else binary, quoting=quoting_of(frame), **how)
        return
    form = table_format(path)
    with replacing(path) as temporary:
        if form is not None:
            frame.to_csv(temporary, quoting=quoting_of(frame), **how, **form)
        elif any(hasattr(dtype, "pyarrow_dtype") for dtype in frame.dtypes):
            from pyarrow import Table, parquet

            table = Table.from_pandas(frame, preserve_index=False)
            parquet.write_table(table.replace_schema_metadata(None), temporary)  # pandas cannot read all of its own
        else:
            frame.to_parquet(temporary, index=False)


def quoting_of(frame: Any) -> int:
    """Return how to quote the fields of a table: before Python 3.13, csv by itself leaves carriage returns bare."""
    texts = [frame.columns.to_series(), *(column for _, column in frame.items() if column.dtype.kind not in "biuf")]
    bare = any(text.astype(str).str.contains("\r", regex=False, na=False).any() for text in texts)
    return csv.QUOTE_NONNUMERIC if bare else csv.QUOTE_MINIMAL


@contextlib.contextmanager
def standard_output() -> Iterator[TextIO]:
    """Give standard output; everything must have been written at the end, or an error says so."""
    if sys.stdout is None:  # closed by who started us
        raise CommandError("standard output is closed")
    try:
        yield sys.stdout
        sys.stdout.flush()
    except OSError as error:
        with contextlib.suppress(OSError, ValueError):  # or Python would try again at exit, and complain
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            raise
        raise CommandError(f"standard output: {error.strerror or error}") from error
