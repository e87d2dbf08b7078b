"""Files written whole or not at all, and never in place of something that is not a file."""

import contextlib
import hashlib
import os
import socket
import stat
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
    try:
        # new from the start with the old file's permissions: nobody may read what nobody could read before
        opened = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666 if old is None else 0o600)
        os.close(opened)
        if old is not None:
            with contextlib.suppress(OSError, AttributeError):  # only root gives files away, and only on POSIX
                os.chown(temporary, old.st_uid, old.st_gid)
            os.chmod(temporary, stat.S_IMODE(old.st_mode))
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if os.name == "posix":  # the new name itself must survive a power cut
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def write_file(path: Any, data: bytes) -> None:
    """Write a file so that, whatever happens, either the old content or the whole new one is there."""
    with replacing(path) as temporary:
        temporary.write_bytes(data)


def writable(path: Any) -> Path:
    """Return the file that a path stands for, links resolved; raise ``OSError`` if a file cannot be put there."""
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        raise FileNotFoundError(f"{path} cannot be written: there is no folder {target.parent}")
    if target.is_dir():
        raise IsADirectoryError(f"{path} cannot be written: it is a folder")
    if os.path.lexists(target):
        if not stat.S_ISREG(target.stat().st_mode):
            raise OSError(f"{path} cannot be written: it is not a regular file")
        if not os.access(target, os.W_OK):
            raise PermissionError(f"{path} cannot be written: it is write-protected")
    return target


def _prefix(target: Path) -> str:
    """Return how the names of temporary files of this machine for ``target`` begin (names must not grow too long)."""
    host = hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]
    return f".{target.name.encode()[:180].decode(errors='ignore')}.{host}-"


def _delete_leftovers(target: Path, own: Path) -> None:
    """Delete temporary files for ``target`` whose processes are gone."""
    if os.name != "posix":
        return
    prefix = _prefix(target)
    with contextlib.suppress(OSError):  # a folder that cannot be listed
        for file in os.scandir(target.parent):
            if file.name.startswith(prefix) and file.name.endswith(".part"):
                process = file.name.removeprefix(prefix).split("-")[0]
                if file.name == own.name or (process.isdecimal() and not _runs(int(process))):
                    with contextlib.suppress(FileNotFoundError):
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
