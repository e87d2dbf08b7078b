"""Scripts in a process of their own, compiled as users' programs are rather than as the rest of the suite."""

import os
import subprocess
import sys

import jax

#: What JAX calls the compilation of a program.
COMPILED = "/jax/core/compile/backend_compile_duration"


def run_as_users_do(script, *arguments):
    """Run a script without the suite's settings of XLA and JAX, warnings (not of short fits) errors; return output."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("XLA_", "JAX_"))}
    command = [sys.executable, "-W", "error", "-W", "ignore:all n_estimators", "-c", script, *arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert result.returncode == 0, result.stderr
    return result.stdout


def compilations(function):
    """Return how many programs XLA compiles, or fetches from disk, during a call."""
    names = []
    jax.monitoring.register_event_duration_secs_listener(lambda name, _, **more: names.append(name))
    try:
        function()
    finally:
        jax.monitoring.clear_event_listeners()
    return names.count(COMPILED)
