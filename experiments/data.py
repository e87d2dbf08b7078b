"""Data sets: from a local folder (``VPBOOST_DATA``), else downloaded once into a cache; never used when damaged."""

import gzip
import hashlib
import http.client
import os
import struct
import urllib.request
import zipfile
import zlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.progress import Progress

from vpboost.datasets import Split as Parts


class Remote(NamedTuple):
    """A file at its public home, and how long it is."""

    name: str
    url: str
    size: int


class DataError(RuntimeError):
    """A data set that is not there, or is damaged."""


MNIST_HOME = "https://ossci-datasets.s3.amazonaws.com/mnist/"
MNIST = (
    Remote("train-images-idx3-ubyte.gz", MNIST_HOME + "train-images-idx3-ubyte.gz", 9_912_422),
    Remote("train-labels-idx1-ubyte.gz", MNIST_HOME + "train-labels-idx1-ubyte.gz", 28_881),
    Remote("t10k-images-idx3-ubyte.gz", MNIST_HOME + "t10k-images-idx3-ubyte.gz", 1_648_877),
    Remote("t10k-labels-idx1-ubyte.gz", MNIST_HOME + "t10k-labels-idx1-ubyte.gz", 4_542),
)
CDR = Remote(
    "CDR_Data.mat",
    "https://raw.githubusercontent.com/hrosso710/Continuous_DNN_Surrogates_Revised/"
    "218b73f375ab1a09119aace110fd832517931a77/matlab/data/CDR_Data.mat",
    633_572,
)
HIGGS = Remote(
    "HIGGS.csv.gz", "https://archive.ics.uci.edu/ml/machine-learning-databases/00280/HIGGS.csv.gz", 2_816_407_858
)

#: SHA-256 of the numbers themselves, whatever file they came in: see :func:`fingerprint`.
FINGERPRINTS = {
    "mnist": "a6d6f7cd9df3576b625a2f75ee4544ba21bf99a2583fcca3ac7c3c7f918b4b59",
    "cdr": "4b0e57c107d1b036e6a4d37decad26bd0d3c4fb1739c84cd19298e3ef5b57cee",
    "higgs.npz": "b103023b4dc25f1bb26ea09ecc312f8a50fefb0d13409aecbbfec79a36039367",
}
#: Rows of the whole Higgs data set, and its last ones, which are for testing.
HIGGS_ROWS, HIGGS_TEST_ROWS = 11_000_000, 500_000


def fingerprint(arrays: Iterable[np.ndarray]) -> str:
    """Return the SHA-256 of some arrays: shapes and numbers as doubles."""
    total = hashlib.sha256()
    for array in arrays:
        total.update(str(array.shape).encode())
        total.update(np.ascontiguousarray(array, "<f8").tobytes())
    return total.hexdigest()


def named(found: dict[str, np.ndarray], *names: str) -> tuple[np.ndarray, ...]:
    """Return the arrays of these names."""
    if missing := [name for name in names if name not in found]:
        raise DataError(f"the file in {folder()} lacks {', '.join(missing)}: it is not the data set")
    return tuple(found[name] for name in names)


def check(name: str, arrays: Iterable[np.ndarray], where: object) -> None:
    """Raise :class:`DataError` unless the numbers are those of the data set."""
    if fingerprint(arrays) != FINGERPRINTS[name]:
        raise DataError(f"{where} is damaged or is not the {name} data: delete it, so that it can be fetched again")


def folder() -> Path | None:
    """Return the folder of local data, if one is named."""
    named = os.environ.get("VPBOOST_DATA")
    return Path(named) if named else None


def local(name: str) -> dict[str, np.ndarray] | None:
    """Return the arrays of a local file; None if there is none."""
    home = folder()
    if home is None or not (home / name).is_file():
        return None
    try:
        with open(home / name, "rb") as raw, np.load(raw, allow_pickle=False) as file:
            return dict(file)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{home / name} is damaged: {error}") from error


def downloads() -> Path:
    """Return the folder of downloads."""
    home = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "vpboost"
    home.mkdir(parents=True, exist_ok=True)
    return home


def fetch(remote: Remote) -> Path:
    """Return the local copy of a remote file: in the data folder, else downloaded whole if need be."""
    home, path = folder(), downloads() / remote.name
    for place in (path,) if home is None else (home / remote.name, path):
        if place.exists() and place.stat().st_size == remote.size:
            return place
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with urllib.request.urlopen(remote.url, timeout=60) as answer, open(part, "wb") as file, Progress() as progress:
            bar = progress.add_task(remote.name, total=remote.size)
            while chunk := answer.read(1 << 20):
                file.write(chunk)
                progress.update(bar, advance=len(chunk))
    except (OSError, http.client.HTTPException) as error:
        raise DataError(
            f"{remote.name} is neither in the folder that VPBOOST_DATA names nor could it be fetched from {remote.url} "
            f"({error}); download it by hand into {path.parent}"
        ) from error
    if part.stat().st_size != remote.size:
        raise DataError(f"{remote.url} gave {part.stat().st_size} bytes instead of {remote.size}; try again")
    part.replace(path)
    return path


def scaled(parts: Parts) -> Parts:
    """Return the parts with inputs standardised by the training part."""
    mean, spread = parts.x_train.mean(axis=0), parts.x_train.std(axis=0)
    spread = np.where(spread > 0, spread, 1)
    return parts._replace(**{name: (getattr(parts, name) - mean) / spread for name in ("x_train", "x_val", "x_test")})


def split(x: np.ndarray, y: np.ndarray, seed: int) -> Parts:
    """Return 70 % of the rows to train on, 15 % to validate and 15 % to test with, shuffled by the seed."""
    order = np.random.default_rng(seed).permutation(len(x))
    n_train, n_val = round(0.7 * len(x)), round(0.15 * len(x))
    train, val, test = np.split(order, [n_train, n_train + n_val])
    return Parts(x[train], y[train], x[val], y[val], x[test], y[test])


@cache
def mnist_arrays() -> tuple[np.ndarray, ...]:
    """Return training images and labels, test images and labels."""
    found = local("mnist.npz")
    if found is not None:
        arrays = named(found, "x_train", "y_train", "x_test", "y_test")
        where: object = folder()
    else:
        paths = [fetch(remote) for remote in MNIST]
        arrays, where = tuple(read_idx(path) for path in paths), paths[0].parent
    arrays = tuple(a.reshape(len(a), 28, 28) if a.ndim > 1 else a for a in arrays)
    check("mnist", arrays, where)
    return arrays


def read_idx(path: Path) -> np.ndarray:
    """Return the array in one of MNIST's files."""
    try:
        content = gzip.decompress(path.read_bytes())
        n_axes = content[3]
        shape = struct.unpack(f">{n_axes}I", content[4 : 4 + 4 * n_axes])
        return np.frombuffer(content[4 + 4 * n_axes :], np.uint8).reshape(shape)
    except (OSError, EOFError, ValueError, IndexError, struct.error, zlib.error) as error:
        raise DataError(f"{path} is damaged ({error}); delete it, so that it can be fetched again") from error


def mnist(seed: int) -> Parts:
    """Return 5,000 images to train on and 10,000 to validate with, of the 60,000, and the 10,000 to test with."""
    x, y, x_test, y_test = mnist_arrays()
    order = np.random.default_rng(seed).permutation(len(x))[:15_000]
    train, val = order[:5000], order[5000:]
    scale = 255.0
    return Parts(
        *(x[train] / scale, y[train].astype(int), x[val] / scale, y[val].astype(int)),
        *(x_test / scale, y_test.astype(int)),
    )


@cache
def cdr_arrays() -> tuple[np.ndarray, ...]:
    """Return the 800 inputs and outputs."""
    found = local("cdr.npz")
    if found is not None:
        arrays, where = named(found, "X", "C"), folder()
    else:
        where = fetch(CDR)
        arrays = read_mat(where)
    check("cdr", arrays, where)
    return arrays


def read_mat(path: Path) -> tuple[np.ndarray, ...]:
    """Return the inputs and outputs in the CDR file."""
    from scipy.io import loadmat

    try:
        content = loadmat(path)
        return np.asarray(content["Y"]).T, np.asarray(content["C"]).T
    except Exception as error:  # of many kinds, by what is damaged
        raise DataError(f"{path} is damaged ({error}); delete it, so that it can be fetched again") from error


def cdr(seed: int) -> Parts:
    """Return the CDR data split 70/15/15."""
    x, y = cdr_arrays()
    return scaled(split(x, y, seed))


def cdr_published(seed: int) -> Parts:
    """Return the CDR data in the published split of 400, 200 and 200 rows, whatever the seed."""
    x, y = cdr_arrays()
    # MATLAB's rng(42); randperm(800)
    order = np.argsort(np.random.RandomState(42).rand(800))
    train, val, test = np.split(order, [400, 600])
    return scaled(Parts(x[train], y[train], x[val], y[val], x[test], y[test]))


def higgs(seed: int) -> Parts:
    """Return the Higgs data: all 11 million rows if their file is there, else the 62,306 of ``higgs.npz``.

    Of the whole, the last 500,000 rows are for testing, as in the literature, and as many others to validate with; the
    small set is split 70/15/15, as everywhere.
    """
    home = folder()
    whole = next((p / HIGGS.name for p in (home, downloads()) if p is not None and (p / HIGGS.name).exists()), None)
    if whole is not None:
        return scaled(higgs_whole(whole, seed))
    found = local("higgs.npz")
    if found is None:
        return scaled(higgs_whole(fetch(HIGGS), seed))
    x, y = named(found, "X", "y")
    check("higgs.npz", (x, y), home)
    return scaled(split(x.astype(float), y.astype(int), seed))


@cache
def higgs_rows(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return inputs and labels of the whole Higgs data set."""
    x, y, i = np.empty((HIGGS_ROWS, 28), "float32"), np.empty(HIGGS_ROWS, int), -1
    try:
        with gzip.open(path, "rt") as lines:
            for i, line in enumerate(lines):
                row = np.fromstring(line, sep=",")
                x[i], y[i] = row[1:], row[0]
    except (OSError, EOFError, ValueError, IndexError, zlib.error) as error:
        raise DataError(f"{path} is damaged ({error}); delete it, so that it can be fetched again") from error
    if i + 1 != HIGGS_ROWS:
        raise DataError(f"{path} has {i + 1} rows instead of {HIGGS_ROWS}; delete it, so that it can be fetched again")
    return x, y


def higgs_whole(path: Path, seed: int) -> Parts:
    """Return the parts of the whole Higgs data set."""
    x, y = higgs_rows(path)
    rest = np.random.default_rng(seed).permutation(HIGGS_ROWS - HIGGS_TEST_ROWS)
    val, train = rest[:HIGGS_TEST_ROWS], rest[HIGGS_TEST_ROWS:]
    return Parts(x[train], y[train], x[val], y[val], x[-HIGGS_TEST_ROWS:], y[-HIGGS_TEST_ROWS:])
