"""Programs that JAX compiled, kept on disk and kept in check."""

import contextlib
import hashlib
import os
import platform
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import jax


def cache_compilation(folder: str | Path | None = None) -> Path:
    """Keep compiled programs on disk, so that the first fit of the next process need not compile them again.

    Call it before the first fit. It sets JAX's own compilation cache, for the whole process.

    Parameters
    ----------
    folder : str or Path, optional
        Where to keep them; it must be yours alone, for what is in it is run. By default a folder of this kind of
        processor under ``vpboost`` in the user's cache folder (``XDG_CACHE_HOME``, or ``.cache`` in the home folder),
        from which the oldest programs are deleted when there are more than 200 MB of them.

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
    if folder is None:
        delete_oldest(path)
    jax.config.update("jax_compilation_cache_dir", str(path))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    return path


def cache_unless_set() -> None:
    """Keep programs where the process is ours, as on the command line, if JAX has no folder and ours can be used."""
    if getattr(jax.config, "jax_compilation_cache_dir", None) is None:
        with contextlib.suppress(OSError, RuntimeError):  # no home folder, or one that cannot be written to
            folder = default_folder()
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with tempfile.TemporaryFile(dir=folder) as file:
                file.write(b"can be written to")
            cache_compilation()


def default_folder() -> Path:
    """Return a folder of the user's for this kind of processor: others may share the home folder."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        facts = next(line for line in lines if line.startswith(("flags", "Features")))
    except (OSError, StopIteration):  # not Linux
        facts = platform.processor()
    name = hashlib.sha256(f"{platform.machine()} {facts}".encode()).hexdigest()[:12]
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vpboost" / name


def delete_oldest(folder: Path, most_bytes: int = 200_000_000) -> None:
    """Delete the oldest files of a folder until the rest take no more than so many bytes."""
    with contextlib.suppress(FileNotFoundError):  # another process deletes as well
        for file in sorted(folder.iterdir(), key=lambda file: file.stat().st_mtime, reverse=True):
            most_bytes -= file.stat().st_size
            if most_bytes < 0:
                file.unlink()


#: What XLA is asked for where a program takes longer to compile than to run: no optimisation, kernels made directly.
QUICK = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}


@cache
def quick_options() -> dict[str, Any]:
    """Return options for quick compilation; none if this version of XLA does not know them all."""
    try:
        jax.jit(lambda x: x, compiler_options=QUICK).lower(0.0).compile()
    except jax.errors.JaxRuntimeError:
        return {}
    return QUICK


#: Above so many memory maps, compiled programs are forgotten: each takes dozens, and Linux allows a process 65,530.
MOST_MAPS = 40_000


def forget_programs_if_many(most_maps: int = MOST_MAPS) -> None:
    """Drop JAX's compiled programs when they take so many memory maps that the process would soon be killed."""
    try:
        with open("/proc/self/maps", "rb") as maps:
            n_maps = sum(1 for _ in maps)
    except OSError:  # not Linux, no such limit
        return
    if n_maps > most_maps:
        jax.clear_caches()
