import errno
import os
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from vpboost.files.atomic import _prefix, file_name, replacing, writable, write_file

pytestmark = pytest.mark.skipif(os.name != "posix", reason="links, pipes and permissions are those of POSIX")


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def mode(path):
    return stat.S_IMODE(os.stat(path).st_mode)


def as_nobody(script, *arguments):
    """Run a script with the rights of an ordinary user; return the completed process."""
    become = "import os\nif os.getuid() == 0: os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
    begin = "from vpboost.files.atomic import write_file\n" + become  # nobody may not be able to import anything
    command = [sys.executable, "-c", begin + script, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def open_folder():
    """A folder that everybody may write to; pytest's own are closed to other users."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        yield Path(folder).resolve()
        Path(folder).chmod(0o777)


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "there").mkdir()
    target, link, chain = tmp_path / "there" / "model", tmp_path / "link", tmp_path / "chain"
    target.write_bytes(b"old")
    link.symlink_to("there/model")
    chain.symlink_to(link)
    write_file(chain, b"new")
    assert link.is_symlink()
    assert chain.is_symlink()
    assert target.read_bytes() == b"new"
    assert names(tmp_path / "there") == ["model"]


def test_a_link_to_nothing_gets_its_file(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to("there/model")
    write_file(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "there" / "model").read_bytes() == b"new"
    (tmp_path / "lost").symlink_to("nowhere/model")
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*nowhere"):
        write_file(tmp_path / "lost", b"new")


def test_links_that_go_round_are_refused(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="symbolic links"):
        write_file(tmp_path / "a", b"new")
    assert names(tmp_path) == ["a", "b"]


def test_what_is_no_file_is_refused_without_opening_it(tmp_path):
    """Opening a pipe waits for a reader: the writer must not even begin."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("pipe")
    (tmp_path / "to_folder").symlink_to("folder")
    with socket.socket(socket.AF_UNIX) as listener:
        folder = os.open(tmp_path, os.O_RDONLY)
        here = os.getcwd()
        try:  # names of sockets must be short
            os.fchdir(folder)
            listener.bind("socket")
        finally:
            os.chdir(here)
            os.close(folder)
        before = names(tmp_path)
        for name in ("pipe", "link", "socket", "folder", "to_folder"):
            found = []
            thread = threading.Thread(target=lambda n=name, f=found: f.append(refusal(tmp_path / n)), daemon=True)
            thread.start()
            thread.join(10)
            assert found, f"writing to a {name} hangs"
            assert ("it is a folder" if "folder" in name else "not a regular file") in found[0]
        assert names(tmp_path) == before
    for device in ("/dev/null", "/dev/zero"):
        with pytest.raises(OSError, match="not a regular file"):
            write_file(device, b"new")


def refusal(path):
    try:
        write_file(path, b"new")
    except OSError as error:
        return str(error)
    return "written"


def test_a_standard_output_that_is_a_pipe_is_refused():
    """Its name leads to a link that no file system knows."""
    script = "from vpboost.files.atomic import write_file\nwrite_file('/dev/stdout', b'new')"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "not a regular file" in found.stderr


def test_permissions_are_kept(tmp_path):
    path = tmp_path / "model"
    seen = []
    for permissions in (0o600, 0o640, 0o644):
        path.write_bytes(b"old")
        path.chmod(permissions)
        with replacing(path) as temporary:
            seen.append(mode(temporary))
            temporary.write_bytes(b"new")
        assert mode(path) == permissions
    assert seen == [0o600, 0o640, 0o644]


def test_a_temporary_file_is_never_more_open(tmp_path, monkeypatch):
    path = tmp_path / "model"
    path.write_bytes(b"old")
    path.chmod(0o600)
    created, really_open = [], os.open

    def watched(name, flags, permissions=0o777):
        if flags & os.O_CREAT:
            created.append(permissions)
        return really_open(name, flags, permissions)

    monkeypatch.setattr(os, "open", watched)
    old = os.umask(0)
    try:
        write_file(path, b"new")
    finally:
        os.umask(old)
    assert created == [0o600]
    assert mode(path) == 0o600


def test_another_group_gets_nothing(tmp_path, monkeypatch):
    """Where the old group cannot be kept, the file is open to one's own group no more than to everybody."""

    def refuse(*_):
        raise PermissionError

    monkeypatch.setattr(os, "chown", refuse)
    path = tmp_path / "model"
    for before, after in ((0o660, 0o600), (0o664, 0o644)):
        path.write_bytes(b"old")
        path.chmod(before)
        write_file(path, b"new")
        assert mode(path) == after


def test_new_files_follow_the_umask(tmp_path):
    for umask in (0o022, 0o077):
        old = os.umask(umask)
        try:
            write_file(tmp_path / str(umask), b"new")
        finally:
            os.umask(old)
        assert mode(tmp_path / str(umask)) == 0o666 & ~umask


def test_write_protected_files_and_folders_are_refused(open_folder):
    path = open_folder / "model"
    path.write_bytes(b"old")
    path.chmod(0o444)
    found = as_nobody("import sys; write_file(sys.argv[1], b'new')", path)
    assert f"PermissionError: {path} cannot be written: it is write-protected" in found.stderr
    assert path.read_bytes() == b"old"
    open_folder.chmod(0o555)
    found = as_nobody("import sys; write_file(sys.argv[1], b'new')", open_folder / "other")
    assert f"other cannot be written: the folder {open_folder} is write-protected" in found.stderr
    assert names(open_folder) == ["model"]


def test_the_group_of_a_shared_file_is_kept(open_folder):
    """A file of somebody else's, open to all, is replaced by one's own with the same permissions."""
    path = open_folder / "model"
    path.write_bytes(b"old")
    path.chmod(0o666)
    found = as_nobody("import sys; write_file(sys.argv[1], b'new')", path)
    assert not found.returncode, found.stderr
    assert path.read_bytes() == b"new"
    assert mode(path) == 0o666


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=f"there is no folder {tmp_path / 'nowhere'}"):
        write_file(tmp_path / "nowhere" / "model", b"new")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        write_file(tmp_path / "file" / "model", b"new")


@pytest.mark.parametrize("when", ["writing", "flushing", "replacing"])
def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, when):
    path = tmp_path / "model"
    path.write_bytes(b"old")

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    if when == "writing":
        monkeypatch.setattr(Path, "write_bytes", full)
    else:
        monkeypatch.setattr(os, {"flushing": "fsync", "replacing": "replace"}[when], full)
    with pytest.raises(OSError, match="No space left"):
        write_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["model"]


def test_an_interruption_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "model"
    path.write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt), replacing(path):
        raise KeyboardInterrupt
    assert names(tmp_path) == ["model"]


def test_a_folder_that_cannot_be_flushed_is_no_failure(tmp_path, monkeypatch):
    """The file is in its place by then."""
    really = os.fsync

    def only_files(opened):
        if stat.S_ISDIR(os.fstat(opened).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")
        really(opened)

    monkeypatch.setattr(os, "fsync", only_files)
    write_file(tmp_path / "model", b"new")
    assert (tmp_path / "model").read_bytes() == b"new"


def test_a_full_disk_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "model"
    path.write_bytes(b"old")
    script = (
        "import resource, signal, sys\n"
        "from vpboost.files.atomic import write_file\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "write_file(sys.argv[1], b'x' * 100_000)\n"
    )
    found = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=False)
    assert "OSError: [Errno 27] File too large" in found.stderr
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["model"]


def test_leftovers_of_the_dead_are_deleted_and_those_of_the_living_kept(tmp_path):
    path = tmp_path / "model"
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    prefix = _prefix(path)
    kept = [f"{prefix}{os.getppid()}-1.part", f"{prefix}x-1.part", f"{prefix}{10**30}-1.part", f"{prefix}{dead.pid}-1"]
    deleted = [f"{prefix}{dead.pid}-1.part", f"{prefix}{dead.pid}-2.part"]
    other = f"{_prefix(tmp_path / 'other')}{dead.pid}-1.part"
    for name in (*kept, *deleted, other):
        (tmp_path / name).write_bytes(b"left")
    write_file(path, b"new")
    assert names(tmp_path) == sorted([*kept, other, "model"])


def test_a_killed_writer_leaves_something_and_the_next_one_deletes_it(tmp_path):
    path = tmp_path / "model"
    script = (
        "import os, sys\n"
        "from vpboost.files.atomic import replacing\n"
        "with replacing(sys.argv[1]) as temporary:\n"
        "    temporary.write_bytes(b'half')\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", script, str(path)], check=False)
    assert len(names(tmp_path)) == 1
    write_file(path, b"new")
    assert names(tmp_path) == ["model"]


def test_threads_do_not_disturb_each_other(tmp_path):
    path = tmp_path / "model"
    contents = [bytes([i]) * 10_000 for i in range(40)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda content: write_file(path, content), contents))
    assert path.read_bytes() in contents
    assert names(tmp_path) == ["model"]


@pytest.mark.parametrize("name", ["m" * 255, "ü" * 127, "-", ".hidden", "with space\n", "\udcff\udcfe"])
def test_odd_and_long_names(tmp_path, name):
    write_file(tmp_path / name, b"old")
    write_file(tmp_path / name, b"new")
    assert names(tmp_path) == [name]
    assert (tmp_path / name).read_bytes() == b"new"


def test_long_names_that_begin_alike_do_not_share_temporary_files(tmp_path):
    with replacing(tmp_path / ("m" * 200 + "1")) as first, replacing(tmp_path / ("m" * 200 + "2")) as second:
        assert first != second


def test_too_long_a_name(tmp_path):
    with pytest.raises(OSError, match="name too long"):
        write_file(tmp_path / ("m" * 256), b"new")
    assert names(tmp_path) == []


class Place:
    def __init__(self, path):
        self.path = path

    def __fspath__(self):
        return str(self.path)


def test_paths_of_any_type(tmp_path, monkeypatch):
    place = tmp_path / "model"
    for path in (place, str(place), os.fsencode(place), Place(place)):
        write_file(path, b"new")
        assert writable(path) == tmp_path / "model"
        (tmp_path / "model").unlink()
    monkeypatch.chdir(tmp_path)
    write_file("model", b"new")
    write_file(Path("model"), b"newer")
    assert names(tmp_path) == ["model"]


@pytest.mark.parametrize(
    "path", [None, 3, True, 1.5, ["model"], b"", "", "a\0b", bytearray(b"model"), "a\ud800"], ids=ascii
)
def test_what_is_no_path_is_named(path):
    with pytest.raises((TypeError, ValueError), match="file must be the name of a file"):
        file_name(path, "file")
    with pytest.raises((TypeError, ValueError), match="path must be the name of a file"):
        write_file(path, b"new")


def test_a_file_that_vanishes_or_turns_into_a_folder_while_it_is_written(tmp_path):
    path = tmp_path / "model"
    path.write_bytes(b"old")
    with replacing(path) as temporary:
        temporary.write_bytes(b"new")
        path.unlink()
    assert path.read_bytes() == b"new"
    with pytest.raises(OSError, match=r"cannot be replaced .*; the new file is kept as .*model\..*new"):
        turn_into_folder(path)
    assert [name.split(".")[-1] for name in names(tmp_path)] == ["model", "new"]


def turn_into_folder(path):
    with replacing(path):
        path.unlink()
        path.mkdir()


def test_a_current_folder_that_is_gone(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(FileNotFoundError, match="model cannot be written: the current folder is gone"):
        write_file("model", b"new")
