"""How XLA compiles programs, and how many."""

from collections.abc import Callable
from functools import cache
from typing import Any

import jax

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


#: What else forgets programs, beside JAX.
also_forget: list[Callable[[], object]] = []

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
        for forget in (jax.clear_caches, *also_forget):
            forget()
