"""Programs that JAX compiled, kept on disk and kept in check."""

import os
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
        Where to keep them; it must be yours alone, for what is in it is run. By default ``vpboost`` in the user's cache
        folder (``XDG_CACHE_HOME``, or ``.cache`` in the home folder).

    Returns
    -------
    Path
        The folder.

    Examples
    --------
    >>> import vpboost
    >>> folder = vpboost.cache_compilation()  # doctest: +SKIP
    """
    if folder is None:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vpboost"
    path = Path(folder).expanduser()
    path.mkdir(parents=True, exist_ok=True)
    jax.config.update("jax_compilation_cache_dir", str(path))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    return path


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
