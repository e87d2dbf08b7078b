import jax
import pytest


@pytest.fixture
def x64():
    """Run a test in double precision, without touching JAX's global configuration."""
    with jax.enable_x64(True):
        yield
