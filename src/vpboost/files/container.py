"""One file of named arrays and one JSON object, with a checksum over every byte.

The file is a valid safetensors file whose only metadata entry, ``vpboost``, holds the JSON object; the object's first
entry is the SHA-256 of the whole file with the digest itself read as zeros. Reading needs NumPy alone and allocates no
more than the arrays twice and some 400 MB, whatever the file claims about itself.
"""

import hashlib
import json
import math
import os
import stat
import struct
from typing import Any

import numpy as np

from .._version import __version__

#: The types that arrays may have, by safetensors' names.
DTYPES: dict[str, np.dtype] = {
    **{"F16": np.dtype("<f2"), "F32": np.dtype("<f4"), "F64": np.dtype("<f8"), "BOOL": np.dtype("bool")},
    **{f"I{8 * n}": np.dtype(f"<i{n}") for n in (1, 2, 4, 8)},
    **{f"U{8 * n}": np.dtype(f"<u{n}") for n in (1, 2, 4, 8)},
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
#: Longest JSON part that is read: a table of 100,000 columns stays below.
MOST_HEADER_BYTES = 16 << 20
NO_DIGEST = "0" * 64


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
        arrays[key], begin = read_array(body, entry, begin, f"array {key!r} of {name}")
    if begin != len(body):
        raise ModelFileError(f"{name} has {len(body) - begin} bytes that belong to no array")
    return content, arrays


def header_length(begin: bytes, size: int, name: str) -> int:
    """Return the length of a file's header, from its first eight bytes and its size."""
    if size < 8:
        raise ModelFileError(f"{name} is not a vpboost file: it has {size} bytes only")
    (length,) = struct.unpack("<Q", begin)
    if length > min(size - 8, MOST_HEADER_BYTES):
        raise ModelFileError(f"{name} is cut short or not a vpboost file: its header should have {length} bytes")
    return length


def read_array(body: memoryview, entry: Any, begin: int, what: str) -> tuple[np.ndarray, int]:
    """Return the array that a header's entry describes, which must begin at ``begin``, and where it ends."""
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise ModelFileError(f"{what} is not described by dtype, shape and data_offsets")
    dtype, shape, offsets = DTYPES.get(str(entry["dtype"])), entry["shape"], entry["data_offsets"]
    if dtype is None:
        raise ModelFileError(f"{what} has type {entry['dtype']!r}; allowed are {', '.join(DTYPES)}")
    if not is_counts(shape, most=8) or not is_counts(offsets, most=2) or len(offsets) != 2:
        raise ModelFileError(f"{what} has shape {shape!r} at {offsets!r}, which makes no sense")
    size = math.prod(shape) * dtype.itemsize
    if offsets != [begin, begin + size] or offsets[1] > len(body):
        raise ModelFileError(f"{what} has shape {shape} at bytes {offsets}, which does not fit the file")
    if dtype == np.bool_ and not set(bytes(body[offsets[0] : offsets[1]])) <= {0, 1}:
        raise ModelFileError(f"{what} has bytes that are neither true nor false")
    flat = np.frombuffer(body[offsets[0] : offsets[1]], dtype)
    return flat.reshape(shape).copy(), offsets[1]


def check_digest(data: bytes, digest: Any, name: str) -> None:
    """Raise an error unless ``digest`` is the file's checksum."""
    if not isinstance(digest, str) or len(digest) != 64 or not digest.isascii():
        raise ModelFileError(f"{name} has no checksum")
    if hashlib.sha256(data.replace(digest.encode(), NO_DIGEST.encode(), 1)).hexdigest() != digest:
        raise ModelFileError(f"{name} is damaged: its checksum does not fit its content")


def check_version(content: dict[str, Any], name: str, form: str, version: int) -> None:
    """Take format and version out of a file's JSON; raise an error if they are others."""
    found, number = content.pop("format", None), content.pop("version", None)
    if found != form:
        raise ModelFileError(f"{name} is a {found!r}, not a {form!r}")
    if number != version or type(number) is not int:
        raise ModelFileError(f"{name} is of format version {number!r}; this vpboost ({__version__}) reads {version}")


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

    try:
        value = json.loads(text.decode("utf-8"), object_pairs_hook=unique, parse_constant=refuse, parse_float=finite)
    except (ValueError, RecursionError) as error:  # of which JSON and Unicode errors are
        raise ModelFileError(f"{what} is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise ModelFileError(f"{what} is not a JSON object")
    return value


def compact(value: Any) -> str:
    """Return a value as JSON."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def is_counts(value: Any, most: int) -> bool:
    """Say whether a value is a list of at most so many whole numbers, none negative or absurdly large."""
    return isinstance(value, list) and len(value) <= most and all(type(n) is int and 0 <= n < 1 << 48 for n in value)


def read_file(path: Any) -> bytes:
    """Return a file's bytes, if it is as long as it says: the rest of a file that lies is not even read."""
    try:
        with open(path, "rb") as file:
            facts = os.fstat(file.fileno())
            if not stat.S_ISREG(facts.st_mode):
                raise ModelFileError(f"cannot read {path}: not a regular file")
            begin = file.read(8)
            begin += file.read(header_length(begin, facts.st_size, str(path)))
            entries = parse(begin[8:], f"the header of {path}").values()
            ends = [entry.get("data_offsets", [0, 0])[-1] for entry in entries if isinstance(entry, dict)]
            expected = len(begin) + max((end for end in ends if isinstance(end, int)), default=0)
            if facts.st_size != expected:
                raise ModelFileError(f"{path} has {facts.st_size} bytes; by its header it should have {expected}")
            return begin + file.read()
    except OSError as error:
        raise ModelFileError(f"cannot read {path}: {error.strerror or error}") from error
    except (TypeError, IndexError) as error:
        raise ModelFileError(f"the header of {path} does not describe arrays") from error
