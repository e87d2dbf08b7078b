"""Compiled programs kept on disk, so that the next process need not compile them again.

XLA turns a program into machine code, which takes a second or more, and can write that down and read it back. It is
kept under the hash of all that it depends on: the program as XLA sees it, the options, the versions, the processor.
JAX has such a cache, too, but one for the whole process, which is the user's to set; this one is of our programs alone.
"""

import contextlib
import hashlib
import os
import platform
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jaxlib

#: Names the folder of programs, or turns keeping them off: "off".
VARIABLE = "VPBOOST_CACHE"
#: Bytes that all programs may take; those used least recently are deleted.
MOST_BYTES = 300_000_000
DIGEST_BYTES = hashlib.sha256().digest_size
#: How names of files end that are ours, and may be deleted: the user may have told a folder with other files in it.
PROGRAM, UNFINISHED = ".vpboost-program", ".vpboost-unfinished"

_told: list[Path] = []  #: the folder that the user has told, if any


def cache_compilation(folder: str | Path | None = None) -> Path:
    """Choose where compiled programs are kept, so that the first fit of the next process need not compile them again.

    They are kept without this, in a folder of this kind of processor under ``vpboost`` in the user's cache folder
    (``XDG_CACHE_HOME``, or ``.cache`` in the home folder); at most 300 MB of them, the oldest are deleted. The
    environment variable ``VPBOOST_CACHE`` names another folder, too, or keeps none: ``VPBOOST_CACHE=off``. If JAX has a
    compilation cache (``JAX_COMPILATION_CACHE_DIR``), it is left to JAX.

    Parameters
    ----------
    folder : str or Path, optional
        Where to keep them; it must be yours alone, for what is in it is run. By default the folder above.

    Returns
    -------
    Path
        The folder.

    Examples
    --------
    >>> import vpboost
    >>> folder = vpboost.cache_compilation()  # doctest: +SKIP
    """
    path = default_folder() if folder is None else Path(folder).expanduser()
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    _told[:] = [path]
    usable.cache_clear()
    return path


def default_folder() -> Path:
    """Return a folder of the user's for this kind of processor: others may share the home folder."""
    name = hashlib.sha256(processor().encode()).hexdigest()[:12]
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vpboost" / name


def processor() -> str:
    """Return what machine code depends on."""
    return f"{platform.machine()} {abilities()}"


@cache
def abilities() -> str:
    """Return what the processor is able to do."""
    try:
        with open("/proc/cpuinfo") as lines:
            return next(line for line in lines if line.startswith(("flags", "Features")))
    except (OSError, StopIteration):  # not Linux
        return platform.processor()


def folder() -> Path | None:
    """Return where programs are kept; None where they are not: turned off, or no folder that is the user's alone.

    Nor where JAX keeps them already: what it reads from disk cannot be written down again.
    """
    settings: Any = jax.config
    if settings.jax_enable_compilation_cache and settings.jax_compilation_cache_dir is not None:
        return None
    if _told:
        return _told[0]
    told = os.environ.get(VARIABLE, "")
    if told.lower() in ("off", "0", "no", "false"):
        return None
    with contextlib.suppress(RuntimeError):  # no home folder
        path = Path(told).expanduser() if told else default_folder()
        return path if usable(path) else None
    return None


@cache
def usable(path: Path) -> bool:
    """Make the folder if need be; say whether it can be written to, by this user only."""
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        facts = path.stat()
        with tempfile.TemporaryFile(dir=path) as file:
            file.write(b"can be written to")
    except OSError:
        return False
    return not hasattr(os, "getuid") or (facts.st_uid == os.getuid() and not facts.st_mode & 0o022)


Compiled = Callable[[Sequence[Any]], list[Any]]


def compiled(lowered: Any, options: dict[str, Any]) -> Compiled | None:
    """Return a lowered program, from disk if it is there, as a function of a list of arrays; None if it cannot be kept.

    The program must keep arguments that it does not use, and must be for the first device. One that calls back into
    Python (``jax.debug.print`` in a user's loss, say) is of this process alone: another one would crash.
    """
    place, device, text = folder(), jax.devices()[0], lowered.as_text()
    if place is None or device.platform != "cpu" or "callback" in text:
        return None
    path = place / name_of(text, options, device.client.platform_version)

    def compile_and_keep() -> Compiled:
        executable = lowered.compile(options or None).runtime_executable()
        with contextlib.suppress(Exception):  # a disk that is full, a program that cannot be written down
            write(path, executable.serialize())
        return carried_out_by(executable)

    data = read(path)
    if data is not None:
        # whatever is wrong with it, it can be compiled again
        with contextlib.suppress(Exception):
            executable = device.client.deserialize_executable(data, executable_devices=[device])
            return OnTrial(carried_out_by(executable), compile_and_keep)
    return compile_and_keep()


class OnTrial:
    """A program from disk: if its first run fails, it is compiled anew."""

    def __init__(self, run: Compiled, otherwise: Callable[[], Compiled]):
        self.run, self.otherwise, self.tried = run, otherwise, False

    def __call__(self, arrays: Sequence[Any]) -> list[Any]:
        if self.tried:
            return self.run(arrays)
        try:
            results = jax.block_until_ready(self.run(arrays))
        except jax.errors.JaxRuntimeError:
            self.run = self.otherwise()
            results = self.run(arrays)
        self.tried = True
        return results


def name_of(text: str, options: dict[str, Any], version: str) -> str:
    """Return the name of a program: a hash of all that its machine code depends on."""
    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    facts = jax.__version__, jaxlib.__version__, version, processor(), threads, os.environ.get("XLA_FLAGS", "")
    about = repr((facts, sorted(options.items())))
    return hashlib.sha256(f"{about}\n{text}".encode()).hexdigest() + PROGRAM


def carried_out_by(executable: Any) -> Compiled:
    """Return the function of arrays that an executable for one device is."""

    def run(arrays: Sequence[Any]) -> list[Any]:
        results = executable.execute_sharded(list(arrays)).disassemble_into_single_device_arrays()
        return [parts[0] for parts in results]

    return run


def read(path: Path) -> bytes | None:
    """Return what was written to a file, if it is there and whole; it then counts as used."""
    with contextlib.suppress(OSError):
        data = path.read_bytes()
        digest, data = data[:DIGEST_BYTES], data[DIGEST_BYTES:]
        if hashlib.sha256(data).digest() == digest:
            os.utime(path)
            return data
    return None


def write(path: Path, data: bytes) -> None:
    """Write a file whole or not at all, and delete old ones where there are too many."""
    with tempfile.NamedTemporaryFile(dir=path.parent, suffix=UNFINISHED, delete=False) as file:
        try:
            file.write(hashlib.sha256(data).digest() + data)
            file.close()
            os.replace(file.name, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(file.name)
            raise
    delete_oldest(path.parent)


def delete_oldest(folder: Path, most_bytes: int = MOST_BYTES) -> None:
    """Delete the oldest programs of a folder until the rest take no more than so many bytes."""
    with contextlib.suppress(OSError):  # another process deletes as well
        ours = [file for file in folder.iterdir() if file.suffix in (PROGRAM, UNFINISHED)]
        for file in sorted(ours, key=lambda file: file.stat().st_mtime, reverse=True):
            most_bytes -= file.stat().st_size
            if most_bytes < 0:
                file.unlink()
