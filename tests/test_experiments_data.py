"""The loaders of the experiments: local folder first, else a download that is checked, never damaged data."""

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
from experiments import data
from scipy.io import savemat

RNG = np.random.default_rng(0)
IMAGES = [
    RNG.integers(0, 255, (20, 28, 28), dtype=np.uint8),
    RNG.integers(0, 10, 20, dtype=np.uint8),
    RNG.integers(0, 255, (5, 28, 28), dtype=np.uint8),
    RNG.integers(0, 10, 5, dtype=np.uint8),
]
FIELD = RNG.normal(size=(800, 55)), RNG.normal(size=(800, 72))


def idx(array):
    return gzip.compress(bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes())


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Public homes in a folder, an empty cache, no local data; arrays of these tests count as the real ones."""
    public = tmp_path / "public"
    public.mkdir()
    monkeypatch.delenv("VPBOOST_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    remotes = []
    for remote, array in zip(data.MNIST, IMAGES, strict=True):
        (public / remote.name).write_bytes(idx(array))
        remotes.append(here(remote, public))
    savemat(public / data.CDR.name, {"Y": FIELD[0].T, "C": FIELD[1].T})
    monkeypatch.setattr(data, "MNIST", tuple(remotes))
    monkeypatch.setattr(data, "CDR", here(data.CDR, public))
    prints = {"mnist": data.fingerprint(IMAGES), "cdr": data.fingerprint(FIELD), "higgs.npz": ""}
    monkeypatch.setattr(data, "FINGERPRINTS", prints)
    forget()
    yield public
    forget()


def here(remote, folder):
    path = folder / remote.name
    return remote._replace(url=path.as_uri(), size=path.stat().st_size)


def forget():
    data.mnist_arrays.cache_clear()
    data.cdr_arrays.cache_clear()
    data.higgs_rows.cache_clear()


def test_downloads_are_parsed_and_kept(home):
    for found, expected in zip(data.mnist_arrays(), IMAGES, strict=True):
        np.testing.assert_array_equal(found, expected)
    for found, expected in zip(data.cdr_arrays(), FIELD, strict=True):
        np.testing.assert_array_equal(found, expected)
    for path in home.iterdir():
        path.unlink()
    forget()
    data.mnist_arrays()  # from the cache now
    data.cdr_arrays()


def test_what_cannot_be_had_is_an_error_that_says_where_to_get_it(home):
    for path in home.iterdir():
        path.unlink()
    with pytest.raises(data.DataError, match=r"CDR_Data.mat .*VPBOOST_DATA.*by hand"):
        data.cdr_arrays()
    with pytest.raises(data.DataError, match=r"train-images.*by hand"):
        data.mnist_arrays()


def test_a_download_that_breaks_off_is_not_used(home, monkeypatch):
    monkeypatch.setattr(data, "CDR", data.CDR._replace(size=data.CDR.size + 1))
    with pytest.raises(data.DataError, match="bytes instead of"):
        data.cdr_arrays()
    assert not (data.downloads() / data.CDR.name).exists()


@pytest.mark.parametrize("place", [0.2, 0.5, 0.9])
@pytest.mark.parametrize("name", ["CDR_Data.mat", "train-images-idx3-ubyte.gz"])
def test_a_damaged_download_is_not_used(home, name, place):
    content = bytearray((home / name).read_bytes())
    content[int(place * len(content))] ^= 0xFF
    (home / name).write_bytes(bytes(content))
    with pytest.raises(data.DataError, match="delete it"):
        data.cdr_arrays() if name.startswith("CDR") else data.mnist_arrays()


def test_local_arrays_come_first_and_are_checked(home, monkeypatch, tmp_path):
    monkeypatch.setenv("VPBOOST_DATA", str(tmp_path))
    np.savez(tmp_path / "cdr.npz", X=FIELD[0], C=FIELD[1])
    for path in home.iterdir():
        path.unlink()
    np.testing.assert_array_equal(data.cdr_arrays()[0], FIELD[0])
    whole = (tmp_path / "cdr.npz").read_bytes()
    (tmp_path / "cdr.npz").write_bytes(whole[: len(whole) // 2])
    forget()
    with pytest.raises(data.DataError, match="damaged"):
        data.cdr_arrays()
    np.savez(tmp_path / "cdr.npz", X=FIELD[0] + 1e-12, C=FIELD[1])
    with pytest.raises(data.DataError, match="is not the cdr data"):
        data.cdr_arrays()


def test_the_whole_higgs_file(monkeypatch, tmp_path):
    monkeypatch.setenv("VPBOOST_DATA", str(tmp_path))
    monkeypatch.setattr(data, "HIGGS_ROWS", 50)
    monkeypatch.setattr(data, "HIGGS_TEST_ROWS", 10)
    x, y = RNG.normal(size=(50, 28)).round(3), RNG.integers(0, 2, 50)
    rows = [",".join(f"{value:.18e}" for value in (label, *row)) for label, row in zip(y, x, strict=True)]
    path = tmp_path / "HIGGS.csv.gz"
    path.write_bytes(gzip.compress("\n".join(rows).encode() + b"\n"))
    parts = data.higgs(0)
    assert [len(part) for part in parts] == [30, 30, 10, 10, 10, 10]
    np.testing.assert_array_equal(parts.y_test, y[40:])
    mean = np.concatenate([parts.x_train]).mean(axis=0)
    np.testing.assert_allclose(mean, 0, atol=1e-5)
    path.write_bytes(gzip.compress("\n".join(rows[:-1]).encode() + b"\n"))
    forget()
    with pytest.raises(data.DataError, match="49 rows instead of 50"):
        data.higgs(0)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(data.DataError, match="damaged"):
        data.higgs(0)


def test_splits_are_disjoint_and_of_the_paper_s_sizes():
    rows = np.arange(1000)
    parts = data.split(rows, rows, 3)
    assert [len(part) for part in parts] == [700, 700, 150, 150, 150, 150]
    np.testing.assert_array_equal(np.sort(np.concatenate(parts[::2])), rows)
    assert not np.array_equal(parts.x_test, data.split(rows, rows, 4).x_test)


def test_mnist_parts_have_the_paper_s_sizes(monkeypatch):
    labels = np.arange(60_000)
    arrays = (np.zeros((60_000, 1, 1), np.uint8), labels, np.zeros((10_000, 1, 1), np.uint8), labels[:10_000])
    monkeypatch.setattr(data, "mnist_arrays", lambda: arrays)
    parts = data.mnist(1)
    assert [len(part) for part in parts] == [5000, 5000, 10_000, 10_000, 10_000, 10_000]
    assert not set(parts.y_train) & set(parts.y_val)


FOLDER = data.folder() or Path("no-data")


@pytest.mark.skipif(not (FOLDER / "cdr.npz").exists(), reason="VPBOOST_DATA names no folder with cdr.npz")
def test_the_published_split():
    forget()
    with np.load(FOLDER / "cdr.npz", allow_pickle=False) as file:
        np.testing.assert_array_equal(data.cdr_published(0).y_test, file["C"][file["idx_test_rng42"]])
        np.testing.assert_array_equal(data.cdr_published(5).y_train, file["C"][file["idx_train_rng42"]])


@pytest.mark.skipif(not (FOLDER / "mnist.npz").exists(), reason="VPBOOST_DATA names no folder with mnist.npz")
def test_the_real_images():
    forget()
    parts = data.mnist(0)
    assert parts.x_train.shape == (5000, 28, 28)
    assert parts.x_train.max() == 1
