import os

# Most of the suite's time is compilation of small programs: ask XLA for less optimisation, before JAX is imported.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
# And do not compile the same program twice: the processes of a run share what they compile.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", f"{os.path.dirname(__file__)}/../.pytest_cache/jax")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

import jax
import numpy as np
import pytest
from hypothesis import settings

from models import QUICK
from vpboost import VPBoostClassifier, VPBoostRegressor
from vpboost.engine.compilation import forget_programs_if_many

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


# --- fitted estimators that tests of pictures and reports share -------------------------------------------------------

SMALL = {**QUICK, "n_estimators": 5, "max_steps": 10, "width": 4}


@pytest.fixture(scope="module")
def frame():
    pd, rng = pytest.importorskip("pandas"), np.random.default_rng(0)
    return pd.DataFrame({"a": rng.normal(size=250), "b": rng.normal(size=250), "c": ["x", "y"] * 125})


@pytest.fixture(scope="module")
def regressor(frame):
    return VPBoostRegressor(**SMALL).fit(frame, (3 * frame["a"] - frame["b"] ** 2).rename("height"))


@pytest.fixture(scope="module")
def outputs(frame):
    y = frame.assign(height=frame["a"], width=frame["b"], depth=frame["a"] * frame["b"])[["height", "width", "depth"]]
    return VPBoostRegressor(**SMALL).fit(frame, y), y


@pytest.fixture(scope="module")
def unnamed(frame):
    X = frame[["a", "b"]].to_numpy()
    return VPBoostRegressor(**SMALL).fit(X, np.outer(X[:, 0], np.arange(1, 21))), X


@pytest.fixture(scope="module")
def months(frame):
    X = frame[["a", "b"]].to_numpy()
    labels = np.digitize(X[:, 0], [-0.5, 0.5]) + 7
    return VPBoostClassifier(**SMALL).fit(X, labels), X, labels
