"""Files written whole or not at all, and never in place of something that is not a file."""

import contextlib
import errno
import hashlib
import os
import socket
import stat
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def replacing(path: Any) -> Iterator[Path]:
    """Give the path of an empty temporary file, which takes the place of ``path`` if all goes well.

    Whatever happens, either the old content or the whole new one is there. A symbolic link stays, and the file that it
    points to is replaced; an existing file keeps its permissions. What other processes of this machine, killed while
    writing the same file, left behind is deleted.

    Raises
    ------
    OSError
        If there is no such folder, or if there is something at the path that is not a regular file (a folder, a pipe,
        a device) or may not be written to.
    """
    target = writable(path)
    temporary = target.with_name(f"{_prefix(target)}{os.getpid()}-{threading.get_ident()}.part")
    _delete_leftovers(target, temporary)
    old = target.stat() if target.exists() else None
    # closed to others until it has the old file's permissions: nobody may read what nobody could read before
    os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666 if old is None else 0o600))
    try:
        if old is not None:
            _give_permissions(temporary, old)
        yield temporary
        _flush(temporary, os.O_WRONLY)
        _put_in_place(temporary, target)
    except BaseException as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            error = OSError(f"{target} cannot be written: {error.strerror}")
        with contextlib.suppress(OSError):  # the first error counts
            temporary.unlink()
        raise error
    if os.name == "posix":  # the new name itself must survive a power cut
        with contextlib.suppress(OSError):  # not every file system can do this, and the file is there already
            _flush(target.parent, os.O_RDONLY)


def _put_in_place(temporary: Path, target: Path) -> None:
    """Let a finished file take the place of another; where that is not possible, keep it beside it and say so."""
    try:
        os.replace(temporary, target)
    except OSError as error:  # mounted as a file, or another user's in a shared folder
        opened, kept = tempfile.mkstemp(".new", f"{target.name.encode()[:180].decode(errors='ignore')}.", target.parent)
        os.close(opened)
        try:
            os.replace(temporary, kept)
        except OSError:
            os.unlink(kept)
            raise error from None
        raise OSError(f"{target} cannot be replaced ({error.strerror}); the new file is kept as {kept}") from error


def write_file(path: Any, data: bytes) -> None:
    """Write a file so that, whatever happens, either the old content or the whole new one is there."""
    with replacing(path) as temporary:
        temporary.write_bytes(data)


def writable(path: Any) -> Path:
    """Return the file that a path stands for, links resolved; raise ``OSError`` if a file cannot be put there."""
    name = file_name(path)
    try:
        target = Path(os.path.realpath(name))
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{name} cannot be written: the current folder is gone") from error
    if not target.parent.is_dir():
        raise FileNotFoundError(f"{name} cannot be written: there is no folder {target.parent}")
    try:
        facts = os.stat(name)
    except FileNotFoundError:  # nothing there, or a link to nothing
        facts = None
    if facts is not None and stat.S_ISDIR(facts.st_mode):
        raise IsADirectoryError(f"{name} cannot be written: it is a folder")
    if facts is not None and not stat.S_ISREG(facts.st_mode):
        raise OSError(f"{name} cannot be written: it is not a regular file")
    if facts is not None and not os.access(target, os.W_OK):
        raise PermissionError(f"{name} cannot be written: it is write-protected")
    if os.name == "posix" and not os.access(target.parent, os.W_OK | os.X_OK):
        raise PermissionError(f"{name} cannot be written: the folder {target.parent} is write-protected")
    return target


def file_name(path: Any, argument: str = "path", kind: str = "file") -> str:
    """Return a path as text; raise an error that names the argument if it cannot be one."""
    if not isinstance(path, str | bytes | os.PathLike):
        raise TypeError(f"{argument} must be the name of a {kind} (text or Path), got {path!r:.60}")
    name = os.fsdecode(path)
    try:
        sound = bool(name) and b"\0" not in os.fsencode(name)
    except UnicodeEncodeError:  # halves of characters
        sound = False
    if not sound:
        raise ValueError(f"{argument} must be the name of a {kind}, got {name!r:.60}")
    return name


def _give_permissions(temporary: Path, old: os.stat_result) -> None:
    """Give a file the permissions of an old one, and its owner and group where that is allowed."""
    mode = old.st_mode & 0o777
    if hasattr(os, "chown"):  # on POSIX
        try:
            os.chown(temporary, old.st_uid, old.st_gid)
        except OSError:  # only root gives files away; a group is another matter
            try:
                os.chown(temporary, -1, old.st_gid)
            except OSError:  # another group must not get what was meant for the old one
                mode = mode & 0o707 | (mode & 0o007) << 3
    os.chmod(temporary, mode)


def _flush(path: Path, how: int) -> None:
    """Wait until a file, or a folder's list of names, is on the disk."""
    opened = os.open(path, how)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _prefix(target: Path) -> str:
    """Return how the names of temporary files of this machine for ``target`` begin (names must not grow too long)."""
    machine = socket.gethostname()
    with contextlib.suppress(OSError):  # containers may share a name and a folder, but count processes by themselves
        machine += os.readlink("/proc/self/ns/pid")
    name = os.fsencode(target.name)
    mark = hashlib.sha256(machine.encode() + b"/" + name).hexdigest()[:8]
    return f".{name[:160].decode(errors='ignore')}.{mark}-"


def _delete_leftovers(target: Path, own: Path) -> None:
    """Delete temporary files for ``target`` whose processes are gone."""
    if os.name != "posix":
        return
    prefix = _prefix(target)
    with contextlib.suppress(OSError), os.scandir(target.parent) as files:  # a folder that cannot be listed
        for file in files:
            if file.name.startswith(prefix) and file.name.endswith(".part"):
                process = file.name.removeprefix(prefix).split("-")[0]
                gone = process.isascii() and process.isdecimal() and not _runs(int(process))
                if file.name == own.name or gone:
                    with contextlib.suppress(OSError):  # deleted by another, or another's
                        os.unlink(file.path)


def _runs(process: int) -> bool:
    """Say whether a process of this number runs."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # somebody else's
        return True
    return True
