import os

# Most of the suite's time is compilation of small programs: ask XLA for less optimisation, before JAX is imported.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
# And do not compile the same program twice: the processes of a run share what they compile.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", f"{os.path.dirname(__file__)}/../.pytest_cache/jax")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

import jax
import pytest
from hypothesis import settings

from vpboost.compilation import forget_programs_if_many

# compilation makes the first example slow
settings.register_profile("vpboost", deadline=None)
settings.load_profile("vpboost")


@pytest.fixture(autouse=True)
def bounded_number_of_programs():
    """Forget compiled programs when there are many: each takes memory maps, of which Linux allows 65,530 a process."""
    yield
    forget_programs_if_many(15_000)


@pytest.fixture
def x64():
    """Run a test in double precision, without touching JAX's global configuration."""
    with jax.enable_x64(True):
        yield
