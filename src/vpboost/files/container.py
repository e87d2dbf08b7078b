"""One file of named arrays and one JSON object, with a checksum over every byte.

The file is a valid safetensors file whose only metadata entry, ``vpboost``, holds the JSON object; the object's first
entry is the SHA-256 of the whole file with the digest itself read as zeros. Reading needs NumPy alone and allocates no
more than the arrays twice and some 400 MB, whatever the file claims about itself.
"""

import hashlib
import json
import math
import os
import reprlib
import stat
import struct
from typing import Any

import numpy as np

from .._version import __version__
from .atomic import file_name

#: The types that arrays may have, by safetensors' names.
DTYPES: dict[str, np.dtype] = {
    **{"F16": np.dtype("<f2"), "F32": np.dtype("<f4"), "F64": np.dtype("<f8"), "BOOL": np.dtype("bool")},
    **{f"I{8 * n}": np.dtype(f"<i{n}") for n in (1, 2, 4, 8)},
    **{f"U{8 * n}": np.dtype(f"<u{n}") for n in (1, 2, 4, 8)},
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
#: Longest JSON part that is read: a table of 100,000 columns stays below.
MOST_HEADER_BYTES = 16 << 20
#: Most objects and lists in it: small ones take up to forty times their length in memory.
MOST_BRACKETS = 1 << 20
NO_DIGEST = "0" * 64
#: How other files begin, and what to call them.
OTHERS = (
    *((bytes([0x80, protocol]), "a pickle, as joblib writes too") for protocol in range(2, 6)),
    *((b"PK\x03\x04", "a zip archive"), (b"\x1f\x8b", "compressed by gzip"), (b"\x93NUMPY", "an array saved by NumPy")),
    *((b"PAR1", "a Parquet table"), (b"ARROW1", "an Arrow table"), (b"\x89HDF", "an HDF5 file")),
    *((b"\x08" + bytes([n]) + b"\x12", "an ONNX model, which onnxruntime reads") for n in range(1, 32)),
)


class ModelFileError(ValueError):
    """A model file, or checkpoint, that cannot be read: damaged, of another version, or of another fit."""


def pack(content: dict[str, Any], arrays: dict[str, np.ndarray]) -> bytes:
    """Return the bytes of a file with this JSON object and these arrays."""
    header: dict[str, Any] = {"__metadata__": {"vpboost": compact({"checksum": NO_DIGEST, **content})}}
    chunks, begin = [], 0
    for name, array in sorted(arrays.items()):
        dtype = array.dtype.newbyteorder("<") if array.dtype.itemsize > 1 else array.dtype
        if dtype not in NAMES:
            raise TypeError(
                f"array {name!r} is of type {array.dtype}, which a file cannot hold; use {', '.join(DTYPES)}"
            )
        chunks.append(np.ascontiguousarray(array, dtype).tobytes())
        end = begin + len(chunks[-1])
        header[name] = {"dtype": NAMES[dtype], "shape": list(array.shape), "data_offsets": [begin, end]}
        begin = end
    text = compact(header).encode()
    text += b" " * (-len(text) % 8)  # arrays begin at a multiple of eight bytes
    if is_too_large(text):  # nobody could read it
        raise ValueError(
            f"this is too large for a file: names, categories and the like take {len(text)} bytes, at most "
            f"{MOST_HEADER_BYTES} are allowed, and {MOST_BRACKETS} lists; drop columns of free text, which do not help"
        )
    whole = struct.pack("<Q", len(text)) + text + b"".join(chunks)
    return whole.replace(NO_DIGEST.encode(), hashlib.sha256(whole).hexdigest().encode(), 1)


def unpack(data: bytes, name: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the JSON object and the arrays of a file's bytes; ``name`` is what errors call the file."""
    length = header_length(data[:8], len(data), name)
    header = parse(data[8 : 8 + length], f"the header of {name}")
    metadata = header.pop("__metadata__", None)
    if not isinstance(metadata, dict) or set(metadata) != {"vpboost"} or not isinstance(metadata["vpboost"], str):
        raise ModelFileError(f"{name} was not written by vpboost: its header says nothing about a model")
    content = parse(metadata["vpboost"].encode("utf-8", "surrogatepass"), f"the description in {name}")
    check_digest(data, content.pop("checksum", None), name)
    body = memoryview(data)[8 + length :]
    arrays, begin = {}, 0
    for key, entry in header.items():
        arrays[key], begin = read_array(body, entry, begin, f"array {brief(key)} of {name}")
    if begin != len(body):
        raise ModelFileError(f"{name} has {len(body) - begin} bytes that belong to no array")
    return content, arrays


def header_length(begin: bytes, size: int, name: str) -> int:
    """Return the length of a file's header, from its first bytes (eight at least, if it has them) and its size."""
    other = looks_like(begin)
    if size < 8 and not other:
        raise ModelFileError(f"{name} is not a vpboost file: it has {size} bytes only")
    (length,) = struct.unpack("<Q", begin[:8].ljust(8))
    if length > min(size - 8, MOST_HEADER_BYTES):
        if other:
            raise ModelFileError(f"{name} is not a vpboost file: it looks like {other}")
        raise ModelFileError(f"{name} is cut short or not a vpboost file: its header should have {length} bytes")
    return length


def looks_like(begin: bytes) -> str:
    """Say what kind of file begins so, if it is a well-known one."""
    for mark, kind in OTHERS:
        if begin.startswith(mark):
            return kind
    printable = begin and all(byte >= 32 or byte in b"\t\n\r\f" for byte in begin)
    return "text, a table or the like" if printable and is_text(begin) else ""


def is_text(begin: bytes) -> bool:
    """Say whether the first bytes of a file, which may end within a character, are text."""
    return any(begin[: len(begin) - cut].decode("utf-8", "replace").find("\ufffd") < 0 for cut in range(4))


def read_array(body: memoryview, entry: Any, begin: int, what: str) -> tuple[np.ndarray, int]:
    """Return the array that a header's entry describes, which must begin at ``begin``, and where it ends."""
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise ModelFileError(f"{what} is not described by dtype, shape and data_offsets")
    dtype, shape, offsets = DTYPES.get(str(entry["dtype"])), entry["shape"], entry["data_offsets"]
    if dtype is None:
        raise ModelFileError(f"{what} has type {brief(entry['dtype'])}; allowed are {', '.join(DTYPES)}")
    if not is_counts(shape, most=8) or not is_counts(offsets, most=2) or len(offsets) != 2:
        raise ModelFileError(f"{what} has shape {brief(shape)} at {brief(offsets)}, which makes no sense")
    size = math.prod(shape) * dtype.itemsize
    if offsets != [begin, begin + size] or offsets[1] > len(body):
        raise ModelFileError(f"{what} has shape {shape} at bytes {offsets}, which does not fit the file")
    if dtype == np.bool_ and size and np.frombuffer(body[offsets[0] : offsets[1]], np.uint8).max() > 1:
        raise ModelFileError(f"{what} has bytes that are neither true nor false")
    flat = np.frombuffer(body[offsets[0] : offsets[1]], dtype)
    return flat.reshape(shape).copy(), offsets[1]


def check_digest(data: bytes, digest: Any, name: str) -> None:
    """Raise an error unless ``digest`` is the file's checksum."""
    if not isinstance(digest, str) or len(digest) != 64 or not digest.isascii():
        raise ModelFileError(f"{name} has no checksum")
    place, whole = data.find(digest.encode()), memoryview(data)
    total = hashlib.sha256(whole[:place])
    total.update(NO_DIGEST.encode())
    total.update(whole[place + len(digest) :])
    if place < 0 or total.hexdigest() != digest:
        raise ModelFileError(f"{name} is damaged: its checksum does not fit its content")


def check_version(content: dict[str, Any], name: str, form: str, version: int) -> None:
    """Take format and version out of a file's JSON; raise an error if they are others."""
    found, number = content.pop("format", None), content.pop("version", None)
    if found != form:
        raise ModelFileError(f"{name} is a {brief(found)}, not a {form!r}")
    if number != version or type(number) is not int:
        raise ModelFileError(
            f"{name} is of format version {brief(number)}; this vpboost ({__version__}) reads {version}"
        )


def parse(text: bytes, what: str) -> dict[str, Any]:
    """Return a JSON object; no key twice, no NaN, no bad UTF-8, no nesting beyond Python's."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            raise ValueError("a key occurs twice")
        return found

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not JSON")

    def finite(digits: str) -> float:
        if not math.isfinite(float(digits)):
            raise ValueError(f"{digits[:40]} is too large")
        return float(digits)

    if is_too_large(text):
        raise ModelFileError(f"{what} is too large: {len(text)} bytes, {text.count(b'[')} lists")
    try:
        value = json.loads(text.decode("utf-8"), object_pairs_hook=unique, parse_constant=refuse, parse_float=finite)
    except (ValueError, RecursionError) as error:  # of which JSON and Unicode errors are
        raise ModelFileError(f"{what} is not valid JSON: {shortened(error)}") from error
    if not isinstance(value, dict):
        raise ModelFileError(f"{what} is not a JSON object")
    return value


def compact(value: Any) -> str:
    """Return a value as JSON."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False, default=plain_number)


def plain_number(value: Any) -> Any:
    """Return a number of NumPy's, which JSON cannot hold, as Python's."""
    if isinstance(value, np.generic) and value.dtype.kind in "biuf":
        return value.item()
    raise TypeError(f"{brief(value)} of type {type(value).__name__} cannot be saved")


def is_too_large(text: bytes) -> bool:
    """Say whether JSON would take too much memory."""
    return len(text) > MOST_HEADER_BYTES or text.count(b"[") + text.count(b"{") > MOST_BRACKETS


def brief(value: Any, most: int = 60) -> str:
    """Return a value as a short text, however large it is: messages must not repeat a file."""
    short = reprlib.Repr()
    short.maxstring, short.maxother, short.maxlist, short.maxtuple, short.maxlevel = most, most, 8, 8, 3
    return shortened(short.repr(value), most)


def shortened(text: Any, most: int = 300) -> str:
    """Return a text, or an error's, cut after so many characters."""
    text = str(text)
    return text if len(text) <= most else text[: most - 3] + "..."


def is_counts(value: Any, most: int) -> bool:
    """Say whether a value is a list of at most so many whole numbers, none negative or absurdly large."""
    return isinstance(value, list) and len(value) <= most and all(type(n) is int and 0 <= n < 1 << 48 for n in value)


def read_file(path: Any, argument: str = "path") -> bytes:
    """Return a file's bytes, if it is as long as it says: the rest of a file that lies is not even read."""
    try:
        name = file_name(path, argument)
    except ValueError as error:
        raise ModelFileError(str(error)) from error
    try:
        with open_file(name) as file:
            facts = os.fstat(file.fileno())
            require_file(facts.st_mode)
            size, begin = facts.st_size, file.read(512)
            length = header_length(begin, size, name)
            file.seek(8)
            entries = parse(file.read(length), f"the header of {name}").values()
            ends = [entry.get("data_offsets", [0, 0])[-1] for entry in entries if isinstance(entry, dict)]
            expected = 8 + length + max((end for end in ends if isinstance(end, int)), default=0)
            if size != expected:
                raise ModelFileError(f"{name} has {size} bytes; by its header it should have {brief(expected)}")
            file.seek(0)
            return file.read()
    except OSError as error:
        raise ModelFileError(f"cannot read {name}: {error.strerror or error}") from error
    except MemoryError as error:
        raise ModelFileError(f"cannot read {name}: it is larger than the memory") from error
    except (TypeError, IndexError, KeyError) as error:
        raise ModelFileError(f"the header of {name} does not describe arrays") from error


def open_file(name: str) -> Any:
    """Open a regular file for reading; anything else is refused before it is opened: a pipe would wait for a writer."""
    require_file(os.stat(name).st_mode)
    # should it be replaced by a pipe in between, opening it does not wait
    return open(name, "rb", opener=lambda path, flags: os.open(path, flags | getattr(os, "O_NONBLOCK", 0)))


def require_file(mode: int) -> None:
    """Raise ``OSError`` unless a mode is that of a regular file."""
    if not stat.S_ISREG(mode):
        raise OSError("it is a folder" if stat.S_ISDIR(mode) else "it is not a regular file")
