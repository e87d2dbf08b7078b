"""Programs carried out by NumPy against the same carried out by JAX."""

import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier, Event, Thread

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax
from threadpoolctl import threadpool_info

from vpboost import MLP, SquaredError, Training, boost
from vpboost.engine import choice, program, using
from vpboost.engine.choice import as_plain
from vpboost.engine.elementwise import UnknownOperationError
from vpboost.engine.numpy_program import CALLS, FLOW, PRIMITIVES, Program
from vpboost.numerics import lapack

RNG = np.random.default_rng(0)
X = RNG.normal(size=(4, 5)).astype("float32")
Y = RNG.normal(size=(4, 5)).astype("float32")
POSITIVE = np.abs(X) + 0.5
PART = np.tanh(X)  # in (-1, 1)
CUBE = RNG.normal(size=(3, 4, 5)).astype("float32")
WHOLE = RNG.integers(-9, 9, size=(4, 5)).astype("int32")
BITS = RNG.integers(0, 2**32, size=(4, 5), dtype=np.uint32)
FLAGS = X > 0
SQUARE = RNG.normal(size=(2, 6, 6)).astype("float32")
DEFINITE = SQUARE @ SQUARE.transpose(0, 2, 1) + np.eye(6, dtype="float32")
RIGHT = RNG.normal(size=(2, 6, 3)).astype("float32")
KEY = jax.random.key(7)

ONE_NUMBER = {
    **{"neg": X, "sign": X, "floor": X, "ceil": X, "exp": X, "exp2": X, "expm1": X, "sin": X, "cos": X, "tan": X},
    **{"log": POSITIVE, "log1p": POSITIVE, "sqrt": POSITIVE, "rsqrt": POSITIVE, "tanh": X, "sinh": X, "cosh": X},
    **{"erf": X, "erf_inv": PART, "logistic": X, "square": X, "is_finite": np.array([1, np.nan, np.inf], "f")},
}
TWO_NUMBERS = {
    **{"add": (X, Y), "sub": (X, Y), "mul": (X, Y), "div": (X, Y), "max": (X, Y), "min": (X, Y), "atan2": (X, Y)},
    **{"rem": (X, Y), "pow": (POSITIVE, Y), "eq": (WHOLE, WHOLE.T.reshape(4, 5)), "ne": (WHOLE, 0 * WHOLE)},
    **{"lt": (X, Y), "le": (X, Y), "gt": (X, Y), "ge": (X, Y), "bitwise_and": (FLAGS, Y > 0)},
    **{"bitwise_or": (WHOLE, WHOLE + 3), "bitwise_xor": (BITS, BITS >> 3), "shift_left": (BITS, BITS % 31)},
    **{"shift_right_logical": (BITS, BITS % 31)},
}
GATHERED = [
    lambda x: jnp.diagonal(x, axis1=1, axis2=2),
    lambda x: x[:, jnp.array([2, 0, 2])],
    lambda x: jnp.take_along_axis(x, jnp.array([[[1]], [[0]], [[3]]]), axis=1),
    lambda x: jnp.take(x, jnp.array([0, 9, -1]), axis=2),  # NaN where out of bounds
    lambda x: x.at[jnp.array([7, 1])].get(mode="clip"),
    lambda x: jnp.take(x[0, 0], 2) + x[0, 1].at[jnp.argmax(x[0, 0])].get(mode="fill"),  # single numbers
]
OTHERS = [
    *[(lambda x, k=k: lax.integer_pow(x, k), (POSITIVE,)) for k in (1, 2, 3, -2)],
    (lambda x: x ** jnp.arange(5), (POSITIVE,)),  # a whole-number power stays single precision
    (jnp.round, (10 * X,)),
    (jnp.logical_not, (FLAGS,)),
    (lambda x: lax.clamp(-0.5, x, 0.5), (X,)),
    (jnp.where, (FLAGS, X, Y)),
    (lambda x, y: jnp.where(x[0, 0] > 0, x, y), (X, Y)),
    (lax.stop_gradient, (X,)),
    (lambda x: jnp.copy(x) + 1, (X,)),
    (lambda x: x.astype(jnp.int32), (10 * X,)),
    (lambda x: lax.bitcast_convert_type(x, jnp.float32), (BITS >> 2,)),
    (lambda x: jax.device_put(x) * 2, (X,)),
    *[(lambda x, s=s: x.reshape(s), (CUBE,)) for s in ((60,), (5, 12), (3, 4, 5))],
    (lambda x: jnp.squeeze(x[:, :1], 1) + x[0, 0], (CUBE,)),
    (lambda x: x[:, None] * x[None], (X,)),
    (lambda x: jnp.broadcast_to(x[:, 0, None], (4, 7)), (X,)),
    (lambda x: jnp.broadcast_to(x[0], (3, 5)) + jnp.broadcast_to(x[1], (3, 5)), (X,)),  # repeated on both sides
    (lambda x: jnp.transpose(x, (2, 0, 1)), (CUBE,)),
    (lambda x: x[1:, ::2, 4:1:-1], (CUBE,)),
    (lambda x, k: lax.dynamic_slice(x, (k, 1), (2, 3)), (X, np.int32(3))),
    (lambda x, y, k: lax.dynamic_update_slice(x, y[:2, :3], (k, 4)), (X, Y, np.int32(1))),
    (lambda x: jnp.pad(x, ((1, 0), (2, 3)), constant_values=7.0), (X,)),
    (lambda x, y: jnp.concatenate([x, y], axis=1), (X, Y)),
    (lambda x, y: jnp.stack([x, y], axis=1), (X, Y)),
    (lambda x: jnp.split(x, [1, 3], axis=1), (X,)),
    (lambda x: x + jnp.arange(5), (X,)),
    (lambda x: jnp.flip(x, (0, 2)), (CUBE,)),
    *[(function, (CUBE,)) for function in GATHERED],
    *[(lambda x, f=f: f(x, axis=(0, 2)), (CUBE,)) for f in (jnp.sum, jnp.max, jnp.min, jnp.prod)],
    *[(lambda x, f=f: f(x, axis=1), (FLAGS,)) for f in (jnp.all, jnp.any, jnp.sum)],
    *[(lambda x, f=f: f(x, axis=1), (CUBE,)) for f in (jnp.cumsum, jnp.cumprod, jnp.argmax, jnp.argmin)],
    (lambda x: lax.cumsum(x, axis=0, reverse=True), (CUBE,)),
    (lambda x, y: (x @ y.T, x.T @ y, (x @ y.T).T), (X, Y)),
    (lambda x, y: (x[:, :1] @ y[:1]).T, (X, Y)),  # a product over one number
    (lambda x, y: jnp.einsum("abc,bd->dac", x, y), (CUBE, X)),
    (lambda x, y: jnp.einsum("abc,adc->bda", x, y[:, ::-1]), (CUBE, CUBE)),
    (lambda x, y: jnp.einsum("abc,abc->", x, y), (CUBE, CUBE)),
    (lambda m, x: lax.dot_general(m, x, (((0,), (0,)), ((), ())), preferred_element_type=jnp.float32), (FLAGS, X)),
    (lambda a: jnp.linalg.cholesky(a), (DEFINITE,)),
    (lambda a: jnp.linalg.cholesky(a), (-DEFINITE,)),  # NaN
    (lambda a: jnp.linalg.qr(a[:, :, :2]), (DEFINITE,)),
    (lambda a: jnp.linalg.qr(a[:, :, :2], "complete"), (DEFINITE,)),
    (lambda a: lax.linalg.cholesky(a[0], symmetrize_input=False), (DEFINITE,)),
    *[
        (
            lambda a, b, t=t: lax.linalg.triangular_solve(a, b, left_side=True, lower=True, transpose_a=t),
            (DEFINITE, RIGHT),
        )
        for t in (False, True)
    ],
    (lambda a: jnp.linalg.eigvalsh(a), (DEFINITE,)),
    (lambda a: (jnp.abs(jnp.linalg.eigh(a)[1]), jnp.linalg.eigh(a)[0]), (DEFINITE,)),
    (lambda a, b: lax.rem(a, b), (WHOLE, WHOLE.T.reshape(4, 5))),  # divisors 0 among them
    (lambda a: lax.rem(a, jnp.uint32(0)) + lax.rem(a, jnp.uint32(7)), (BITS,)),
    (lambda k: jax.random.randint(k, (3, 4), -2, 9), (KEY,)),
    (lambda k: jax.random.bits(k, (3, 4)), (KEY,)),
    (lambda k: jax.random.bits(k, (3,), jnp.uint8), (KEY,)),
    (lambda k: jax.random.uniform(jax.random.split(k, 3)[1], (5, 2), minval=-2.0), (KEY,)),
    (lambda k: jax.vmap(lambda j: jax.random.uniform(jax.random.fold_in(k, j), (4,)))(jnp.arange(3)), (KEY,)),
    (lambda k: jax.random.key_data(jnp.stack([k, jax.random.fold_in(k, 3)])[1:]), (KEY,)),
    (lambda b: jax.random.bits(jax.random.wrap_key_data(b[0, :2], impl="threefry2x32"), (5,)), (BITS,)),
    # what earlier versions got wrong
    (lambda x: jnp.sum(jnp.where(x[0, 0] > -9, 1.0, x)) + jnp.where(x[0, 0] > 9, x, 0.0), (X,)),
    (lambda x: x.astype(jnp.int8), (np.array([300.0, -300.0, np.nan, np.inf, 1.7], "f"),)),
    (lambda x: x.astype(jnp.uint32), (np.array([-1.0, 5e9, 3.9], "f"),)),
    (lambda x: x.astype(jnp.int32), (np.array([3e9, -3e9, 2147483520.0], "f"),)),
    (lambda a: lax.transpose(a @ a.T, (0, 1)), (X,)),
    (lambda a, b: a[:, :0] @ b[:0], (X, Y)),
    (lambda a, b: lax.linalg.triangular_solve(a, b, left_side=True, lower=True), (DEFINITE * np.eye(6, k=-1), RIGHT)),
    (lambda a: jnp.linalg.eigvalsh(a), (DEFINITE * np.array([1, np.nan], "f")[:, None, None],)),
    (lambda x: jax.random.uniform(KEY, (3,)) + x[0, 0], (X,)),  # a key of the program itself
    # loops, branches and programs that call others
    (lambda x: lax.scan(lambda c, r: (jnp.tanh(c + r), c * r), x[0], x), (X,)),
    (lambda x: lax.scan(lambda c, r: (0.5 * c + r, c), x[0], x, reverse=True), (X,)),
    (lambda x: lax.while_loop(lambda c: jnp.sum(c) < 50, lambda c: 1.5 * c + x[0], POSITIVE[0] + x[1] ** 2), (X,)),
    (jax.vmap(lambda r: lax.while_loop(lambda c: c < 50, lambda c: 2 * c, r)), (POSITIVE[0],)),
    *[(lambda x, k=k: lax.cond(x[0, 0] > k, jnp.sin, jnp.cos, x), (X,)) for k in (-9, 9)],
    (lambda x: lax.switch(jnp.argmax(x[0]), [jnp.sin, jnp.cos, jnp.exp, jnp.tanh, jnp.abs], x), (X,)),
    (lambda x: jax.grad(lambda z: jnp.sum(jax.nn.softplus(z) + jax.nn.relu(z) * jax.nn.silu(z)))(x), (X,)),
    (lambda x: jax.grad(lambda z: jnp.sum(jax.checkpoint(jnp.sin)(z)))(x), (X,)),
    (lambda x: lapack.cholesky(x[:1]), (DEFINITE,)),
    (lambda x, b: lapack.solve_factored(lapack.cholesky(x), b), (DEFINITE, RIGHT)),
    (lambda x: jax.nn.logsumexp(x, axis=-1) - jax.nn.softmax(x)[:, 0], (X,)),
    (
        lambda a, b: jax.scipy.sparse.linalg.cg(lambda v: a[0] @ v, b[0, :, 0], tol=1e-6, maxiter=30)[0],
        (DEFINITE, RIGHT),
    ),
    (lambda x: jnp.tile(jnp.float32(3.0), 2) + jnp.eye(2), (X,)),  # nothing depends on the input
]
CASES = [
    *[(getattr(lax, name), (x,)) for name, x in ONE_NUMBER.items()],
    *[(lax.abs, (X,)), (lax.bitwise_not, (WHOLE,))],
    *[(getattr(lax, name), pair) for name, pair in TWO_NUMBERS.items()],
    *OTHERS,
]


def equations(jaxpr):
    """Yield the names of all operations of a program, those of inner programs included."""
    for eqn in jaxpr.eqns:
        yield eqn.primitive.name
        for value in jax.tree.leaves(list(eqn.params.values()), is_leaf=lambda v: hasattr(v, "jaxpr")):
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from equations(inner)


@pytest.mark.parametrize("case", range(len(CASES)))
def test_numpy_does_what_jax_does(case):
    function, args = CASES[case]
    with np.errstate(all="ignore"):
        found = Program(jax.make_jaxpr(function)(*args))(*[as_plain(arg) for arg in args])
    expected = jax.tree.leaves(function(*map(jnp.asarray, args)))
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert np.shape(one) == other.shape
        assert np.asarray(one).dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-6)


@given(
    st.sets(st.integers(0, 2), min_size=1),
    st.lists(st.integers(-6, 9), min_size=1, max_size=4),
    st.sampled_from(["fill", "clip"]),
    st.booleans(),
)
def test_gathers_of_any_axes(axes, places, mode, turned):
    places = np.array(places, "int32")

    def some(x):
        index = tuple(jnp.asarray(places) if axis in axes else slice(None, None, 1 + axis) for axis in range(3))
        return (jnp.transpose(x, (2, 0, 1)) if turned else x).at[index].get(mode=mode)

    found = Program(jax.make_jaxpr(some)(CUBE))(CUBE)
    np.testing.assert_array_equal(found[0], some(jnp.asarray(CUBE)))


def test_every_operation_is_tested():
    names = {name for function, args in CASES for name in equations(jax.make_jaxpr(function)(*args).jaxpr)}
    # what JAX writes in other ways nowadays, and what its first version that is supported does not have
    unused = {"expand_dims", "closed_call", "custom_vjp_call", "reduce_prod", "stack"}
    assert {*PRIMITIVES, *FLOW, *CALLS} - names - unused == {"gathered places"}  # half of a gather


def test_random_bits_are_the_same_bits():
    keys = jax.random.split(jax.random.key(123), (2, 3))
    for function in (
        lambda k: jax.random.key_data(jax.vmap(jax.vmap(lambda one: jax.random.split(one, (2, 2))))(k)),
        lambda k: jax.vmap(jax.vmap(lambda one: jax.random.bits(one, (7, 3))))(k),
        lambda k: jax.vmap(jax.vmap(lambda one: jax.random.uniform(one, (9,))))(k),
    ):
        (found,) = Program(jax.make_jaxpr(function)(keys))(as_plain(keys))
        np.testing.assert_array_equal(found, function(keys))


@pytest.mark.slow
@pytest.mark.long
@given(st.integers(0, 10**6))
def test_memory_is_never_written_over_too_early(seed):
    """Random programs in a loop, arrays large enough for shared memory, with views, fixed inputs, carried values."""
    rng = np.random.default_rng(seed)
    arrays = rng.uniform(-1, 1, size=(4, 40, 40))
    unary = [
        jnp.tanh, jnp.copy, lax.stop_gradient, lambda a: jnp.copy(a.reshape(20, 80)).reshape(40, 40),
        lambda a: lax.bitcast_convert_type(lax.bitcast_convert_type(a, jnp.int64), jnp.float64),
        lambda a: jnp.where(a[0, 0] > 0, a, 0.5), lambda a: a.T, lambda a: a[::-1], lambda a: 0.5 * a,
        lambda a: a.reshape(20, 80).reshape(40, 40),
    ]  # fmt: skip
    binary = [jnp.add, jnp.subtract, jnp.multiply, jnp.maximum, lambda a, b: (a @ b).T / 40, lambda a, b: a @ b / 40]
    plan = [(rng.integers(16), *rng.integers(1 << 30, size=2)) for _ in range(rng.integers(3, 25))]
    results = rng.integers(1 << 30, size=3)

    def step(carry, extra, fixed):
        known = [*carry, fixed, extra]
        for kind, a, b in plan:
            left, right = known[a % len(known)], known[b % len(known)]
            known.append(unary[kind](left) if kind < 10 else binary[kind - 10](left, right))
        first, second, seen = (known[-1 - r % len(known)] for r in results)
        return (jnp.tanh(first), second / (1 + jnp.max(jnp.abs(second)))), seen

    def whole(a, b, fixed, series):
        return lax.scan(lambda c, s: step(c, s * jnp.ones((40, 40)), fixed), (a, b), series)

    with jax.enable_x64(True):
        args = (*arrays[:3], arrays[3, 0, :5])
        found = Program(jax.make_jaxpr(whole)(*args))(*args)
        expected = jax.tree.leaves(whole(*args))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-9)


@pytest.mark.parametrize("name", ["tanh", "dot_general", "scan", "while", "jit"])
def test_a_primitive_of_another_name_is_left_to_xla(name, monkeypatch):
    """A later JAX may call it otherwise, or have it no more: slower, but not wrong."""
    x = np.random.default_rng(0).uniform(-1, 1, (60, 2))
    options = {"loss": SquaredError(), "featurizer": partial(MLP, width=3), "training": Training(max_steps=5)}
    expected = boost(x, x[:, :1], n_learners=2, **options, engine="xla").ensemble.predict(x)
    for known in (PRIMITIVES, CALLS, FLOW):
        monkeypatch.delitem(known, name, raising=False)
    monkeypatch.setattr(choice, "_programs", {})
    found = boost(x, x[:, :1], n_learners=2, **options, engine="numpy").ensemble.predict(x)
    assert None in choice._programs.values()  # some program was left to XLA
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_what_numpy_cannot_do_is_compiled():
    calls = []

    @program
    def sorts(x):
        calls.append(isinstance(x, jax.core.Tracer))
        return jnp.sort(x)

    with pytest.raises(UnknownOperationError, match="sort"):
        Program(jax.make_jaxpr(jnp.sort)(X[0]))
    with using("numpy"):
        for _ in range(3):
            found = sorts(X[0])
    assert isinstance(found, jax.Array)
    np.testing.assert_array_equal(found, np.sort(X[0]))
    assert calls == [True, True]  # once to find out, once to compile


def test_threads_trace_a_program_once():
    traced, together = [], Barrier(4)

    @program
    def double(x):
        traced.append(x)
        time.sleep(0.05)  # so that others come meanwhile
        return 2 * x

    def call(_):
        together.wait(20)
        with using("numpy"):
            return double(X)

    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(call, range(4)):
            np.testing.assert_array_equal(found, 2 * X)
    assert len(traced) == 1


def test_a_program_keeps_structure_and_is_traced_once():
    traced = []

    @program
    def double(pair, name):
        traced.append(name)
        return {"array": 2 * pair[0], "key": jax.random.fold_in(pair[1], 1), "name": name, "none": None}

    key = jax.random.key(3)
    with using("numpy"):
        for factor in (1.0, 3.0):
            found = double((factor * X, key), "a name")
            np.testing.assert_allclose(found["array"], 2 * factor * X)
            assert isinstance(found["array"], np.ndarray)
            np.testing.assert_array_equal(*[jax.random.key_data(k) for k in (found["key"], jax.random.fold_in(key, 1))])
            assert found["name"] == "a name"
            assert found["none"] is None
    assert traced == ["a name"]
    assert isinstance(double((X, key), "a name")["array"], jax.Array)


def blas_threads():
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


def test_programs_may_run_side_by_side():
    """Each run has its own memory; linear algebra has one thread until the last of them is done."""
    before = blas_threads()
    walk = program(lambda x: lax.scan(lambda c, _: (jnp.tanh(c @ c.T @ c / 90 + 0.1), jnp.sum(c)), x, None, length=40))
    starts = RNG.normal(size=(6, 60, 60)).astype("float32")

    def run(x):
        with using("numpy"):
            return walk(x), blas_threads()

    alone = [run(x) for x in starts]
    assert blas_threads() == before
    with ThreadPoolExecutor(3) as pool:
        together = list(pool.map(run, starts))
    assert blas_threads() == before
    for (one, n), (other, m) in zip(alone, together, strict=True):
        assert n == m == [1] * len(before)
        for left, right in zip(one, other, strict=True):
            np.testing.assert_array_equal(left, right)


def test_threads_may_leave_in_any_order():
    before, first_in, first_out = blas_threads(), Event(), Event()

    def first():
        with using("numpy"):
            first_in.set()
            second_in.wait()
        first_out.set()

    second_in, thread = Event(), Thread(target=first)
    thread.start()
    first_in.wait()
    with using("numpy"):
        second_in.set()
        first_out.wait()
        assert blas_threads() == [1] * len(before)
    thread.join()
    assert blas_threads() == before
    with pytest.raises(KeyboardInterrupt), using("numpy"):
        raise KeyboardInterrupt
    assert blas_threads() == before


@pytest.mark.parametrize(
    "function",
    [
        lambda x: jnp.sort(x) + 1,
        lambda x: x // 2 + x.astype(jnp.int32) % 3,
        lambda x: (x > 0).astype(jnp.bool_) @ (x > 1) + x,
        lambda x: jnp.max(x[:0], initial=3.0) + x,
        lambda x: (
            lax.scan(lambda k, _: (jax.random.fold_in(k, 1), k), jax.random.key(0), None, length=3)[0] is None or x
        ),
        lambda x: jax.random.uniform(jax.random.key(0, impl="rbg")) + x,
        lambda x: jnp.asarray(2.0)[()] * jnp.take(jnp.sum(x), jnp.array([0, 0])),
    ],
)
def test_odd_operations_are_done_by_either(function):
    """What NumPy would do in another way is compiled."""
    with using("numpy"):
        found = program(function)(X[0])
    np.testing.assert_allclose(found, function(jnp.asarray(X[0])), rtol=1e-6)


def test_effects_and_errors_are_not_lost():
    seen = []

    def noisy(x):
        jax.debug.callback(lambda value: seen.append(float(value)), x[0])
        return 2 * x

    with using("numpy"):
        np.testing.assert_allclose(program(noisy)(X[0]), 2 * X[0])
    jax.effects_barrier()
    assert seen == [float(X[0, 0])]


def test_results_do_not_share_memory_with_the_program():
    constant = program(lambda x: (jnp.arange(4.0), x + 1))
    with using("numpy"):
        with pytest.raises(ValueError, match="read-only"):
            constant(X)[0][:] = 7
        np.testing.assert_array_equal(constant(X)[0], np.arange(4))


def test_modules_with_functions_of_their_own_are_told_apart():
    class Scaled(eqx.Module):
        function: object = eqx.field(static=True)

        def __call__(self, x):
            return self.function(x)

    apply = program(lambda module, x: module(x))
    with using("numpy"):
        np.testing.assert_allclose(apply(Scaled(jnp.sin), X), np.sin(X), rtol=1e-6)
        np.testing.assert_allclose(apply(Scaled(jnp.cos), X), np.cos(X), rtol=1e-6)
        np.testing.assert_allclose(apply(Scaled(partial(jnp.multiply, 2.0)), X), 2 * X)
