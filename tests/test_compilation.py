import os
import subprocess
import sys
from types import SimpleNamespace

import jax
import numpy as np
import pytest

import vpboost
from vpboost.engine import compilation, kept, program, using

FIT = """
import sys, jax, numpy as np, vpboost
from functools import partial
print(vpboost.cache_compilation(sys.argv[1]))
compiled = []
def note(name, *seconds, **facts):
    if name.endswith("backend_compile_duration"):
        compiled.append(name)
jax.monitoring.register_event_duration_secs_listener(note)
x = np.linspace(-1, 1, 40)[:, None]
fit = vpboost.boost(x, x[:, 0] ** 2, loss=vpboost.SquaredError(), featurizer=partial(vpboost.MLP, width=3),
                    n_learners=1, training=vpboost.Training(max_steps=3))
print(fit.history[0].loss, len(compiled), jax.config.jax_compilation_cache_dir)
"""
LAZY = """
import sys, vpboost
assert not {"jax", "sklearn", "scipy", "rich", "matplotlib", "pandas"} & set(sys.modules), "imported too early"
assert "boost" in dir(vpboost)
assert vpboost.callbacks.Checkpoint and vpboost.losses.Quantile(0.9)
assert vpboost.VPBoostRegressor().n_estimators == "auto"
assert not {"matplotlib", "optuna"} & set(sys.modules)
try:
    vpboost.nothing
except AttributeError as error:
    assert "vpboost attribute nothing" in str(error)
else:
    raise AssertionError("no error")
"""


def run(code, *arguments, env=None):
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=env).stdout


@pytest.mark.slow
def test_names_are_imported_when_asked_for():
    run(LAZY)
    assert len(set(vpboost.__all__)) == len(vpboost.__all__) > 30
    assert {"VPBoostRegressor", "boost", "callbacks", "load_model", "__version__"} <= set(vpboost.__all__)
    assert all(getattr(vpboost, name) is not None for name in vpboost.__all__)


@pytest.mark.slow
def test_a_second_process_finds_the_programs_of_the_first(tmp_path):
    folder = tmp_path / "programs"
    without = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    first, second = (run(FIT, str(folder), env=without).split() for _ in range(2))
    assert first[0] == second[0] == str(folder)
    assert first[1] == second[1], "the same loss"
    n_kept = len(list(folder.iterdir()))
    assert n_kept >= 5
    assert int(first[2]) - int(second[2]) == n_kept, "no program was compiled again"
    assert first[3] == second[3] == "None", "JAX's own settings are the user's"
    for file in folder.iterdir():  # whatever is in the files
        file.write_bytes(file.read_bytes()[:-7] + b"damaged")
    assert run(FIT, str(folder), env=without).split()[1:3] == first[1:3]
    assert run(FIT, str(folder), env=without).split()[2] == second[2], "they have been mended"


def test_programs_are_forgotten_when_they_are_many(monkeypatch):
    calls = []
    monkeypatch.setattr(jax, "clear_caches", lambda: calls.append(1))
    compilation.forget_programs_if_many()
    assert not calls
    compilation.forget_programs_if_many(most_maps=1)
    assert calls == [1]


def test_options_that_xla_does_not_know_are_left_out(monkeypatch):
    assert compilation.quick_options() == compilation.QUICK
    monkeypatch.setattr(compilation, "QUICK", {"xla_no_such_option": True})
    assert compilation.quick_options.__wrapped__() == {}


@pytest.fixture
def nowhere(monkeypatch):
    """No folder that the user has told, and no cache of JAX's."""
    settings = jax.config
    settings.update("jax_enable_compilation_cache", False)
    monkeypatch.setattr(kept, "_told", [])
    kept.usable.cache_clear()
    yield
    kept.usable.cache_clear()
    settings.update("jax_enable_compilation_cache", True)


def test_the_default_folder_is_of_the_user_and_the_processor(monkeypatch, tmp_path, nowhere):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    here = kept.default_folder()
    assert here.parent == tmp_path / "vpboost"
    assert here == kept.default_folder()
    monkeypatch.setattr(kept.platform, "machine", lambda: "another")
    assert here != kept.default_folder()
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(kept.Path, "home", lambda: tmp_path / "me")
    assert kept.default_folder().parent == tmp_path / "me" / ".cache" / "vpboost"


def test_programs_are_kept_only_where_nobody_else_may_write(monkeypatch, tmp_path, nowhere):
    monkeypatch.setenv("VPBOOST_CACHE", str(tmp_path / "mine"))
    assert kept.folder() == tmp_path / "mine"
    assert (tmp_path / "mine").stat().st_mode & 0o777 == 0o700
    for value in ("off", "0", "OFF"):
        monkeypatch.setenv("VPBOOST_CACHE", value)
        assert kept.folder() is None
    (tmp_path / "ours").mkdir()
    (tmp_path / "ours").chmod(0o777)
    (tmp_path / "a file").write_text("")
    for name in ("ours", "a file", "a file/below"):
        monkeypatch.setenv("VPBOOST_CACHE", str(tmp_path / name))
        assert kept.folder() is None
    monkeypatch.delenv("VPBOOST_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert kept.folder() == kept.default_folder()


def test_a_file_is_whole_or_not_read(tmp_path):
    path = tmp_path / "program"
    assert kept.read(path) is None
    kept.write(path, b"machine code")
    assert kept.read(path) == b"machine code"
    assert [file.name for file in tmp_path.iterdir()] == ["program"]
    data = path.read_bytes()
    for damaged in (data[:-1], data[:10], b"", data + b"x", bytes([data[0] ^ 1]) + data[1:]):
        path.write_bytes(damaged)
        assert kept.read(path) is None


def test_the_oldest_programs_are_deleted_when_they_take_too_much(tmp_path):
    names = [*(f"{letter}{kept.PROGRAM}" for letter in "abcd"), f"left{kept.UNFINISHED}", "the user's own"]
    for age, name in enumerate(names):
        (tmp_path / name).write_bytes(bytes(100))
        os.utime(tmp_path / name, (1e9 - age, 1e9 - age))
    kept.delete_oldest(tmp_path, most_bytes=250)
    assert sorted(file.name for file in tmp_path.iterdir()) == [*names[:2], names[-1]]


def test_a_name_tells_all_that_machine_code_depends_on(monkeypatch):
    name = kept.name_of("program", {}, "1")
    assert name == kept.name_of("program", {}, "1")
    assert len({name, kept.name_of("other", {}, "1"), kept.name_of("program", {"a": 1}, "1"),
                kept.name_of("program", {}, "2")}) == 4  # fmt: skip
    monkeypatch.setenv("XLA_FLAGS", "--something")
    assert name != kept.name_of("program", {}, "1")
    monkeypatch.undo()
    monkeypatch.setattr(kept, "processor", lambda: "another")
    assert name != kept.name_of("program", {}, "1")


def test_a_kept_program_gives_what_jax_gives(monkeypatch, tmp_path, nowhere):
    def work(key, settings, x, scale):
        noise = jax.random.normal(key, x.shape)
        return {"sum": x @ x.T + noise @ x.T, "same": settings, "scale": scale}

    x = np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32)
    args = jax.random.key(3), "static", x, jax.numpy.float32(2.0)
    monkeypatch.setenv("VPBOOST_CACHE", "off")
    plain = program(work)(*args)
    monkeypatch.setenv("VPBOOST_CACHE", str(tmp_path / "programs"))
    for _ in range(3):  # compiled, known, and read from disk
        found = program(work)(*args)
        assert found["same"] == "static"
        np.testing.assert_array_equal(found["sum"], plain["sum"])
        assert found["scale"] == 2
    assert len(list((tmp_path / "programs").iterdir())) == 1
    inside = jax.jit(lambda x: program(work)(args[0], "static", x, args[3])["sum"])(x)  # part of a larger program
    np.testing.assert_allclose(inside, plain["sum"], rtol=1e-5)


def test_a_program_from_disk_that_does_not_run_is_compiled_anew():
    def broken(arrays):
        raise jax.errors.JaxRuntimeError("NOT_FOUND: no such function")

    compiled = []

    def compile_again():
        compiled.append(1)
        return lambda arrays: [array + 1 for array in arrays]

    program_on_disk = kept.OnTrial(broken, compile_again)
    assert [program_on_disk([1.0]), program_on_disk([2.0])] == [[2.0], [3.0]]
    assert compiled == [1]


def test_programs_are_left_to_jax_where_it_keeps_them(monkeypatch, tmp_path, nowhere):
    monkeypatch.setenv("VPBOOST_CACHE", str(tmp_path))
    assert kept.folder() == tmp_path
    monkeypatch.setattr(kept.jax, "config", SimpleNamespace(
        jax_enable_compilation_cache=True, jax_compilation_cache_dir="somewhere"
    ))  # fmt: skip
    assert kept.folder() is None


def test_an_error_while_compiling_is_told_every_time(monkeypatch, tmp_path, nowhere):
    monkeypatch.setenv("VPBOOST_CACHE", str(tmp_path))

    def fails(x):
        raise ValueError("no such thing")

    failing = program(fails)
    for _ in range(2):
        with pytest.raises(ValueError, match="no such thing"):
            failing(np.ones(3))


def test_a_program_that_calls_back_into_python_is_not_kept(monkeypatch, tmp_path, nowhere):
    """Another process would look for the function at an address of this one, and crash."""
    monkeypatch.setenv("VPBOOST_CACHE", str(tmp_path))
    seen = []

    def talks(x):
        jax.debug.callback(seen.append, x[0])
        return 2 * x

    def asks(x):
        return jax.pure_callback(lambda x: np.asarray(x) + 1, x, x)

    x = jax.numpy.ones(3)
    for _ in range(2):
        assert program(talks)(x)[0] == program(asks)(x)[0] == 2
    jax.effects_barrier()
    assert len(seen) == 2
    assert not list(tmp_path.iterdir())


def test_numbers_of_other_types_are_other_programs(monkeypatch, tmp_path, nowhere):
    monkeypatch.setenv("VPBOOST_CACHE", str(tmp_path))
    times = program(lambda x, n: x * n)
    for engine in ("xla", "numpy"):
        with using(engine):
            found = [times(jax.numpy.ones(2, int), n).dtype.kind for n in (1, 1.0, True)]
            assert found == ["i", "f", "i"]


DEVICES = """
import jax, jax.numpy as jnp, numpy as np, vpboost
from vpboost.engine import program
first, second = jax.devices()
double = program(lambda x: 2 * x)
for device in (first, second, first):
    with jax.default_device(device):
        assert double(np.ones(2)).devices() == double(jnp.ones(2)).devices() == {device}
assert double(np.ones(2)).devices() == {first}
"""


@pytest.mark.slow
def test_another_device_may_be_the_default(tmp_path):
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2", "VPBOOST_CACHE": str(tmp_path)}
    run(DEVICES, env={name: value for name, value in os.environ.items() if not name.startswith("JAX_")} | flags)
    assert list(tmp_path.iterdir())


def test_a_disk_that_is_full_or_gone_does_no_harm(monkeypatch, tmp_path, nowhere):
    place = tmp_path / "programs"
    monkeypatch.setenv("VPBOOST_CACHE", str(place))

    def full(*paths):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(kept.os, "replace", full)
        assert program(lambda x: x + 1)(np.ones(2))[0] == 2
    assert place.exists()
    assert not list(place.iterdir()), "no part of a file is left"
    place.rmdir()
    assert program(lambda x: x + 2)(np.ones(2))[0] == 3
