"""The choice of a backend: XLA, which compiles a program first, NumPy, which begins at once, or C for learners."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache, partial, wraps
from threading import Event, Lock, RLock, Thread
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from threadpoolctl import ThreadpoolController

from ..native import with_tiny_flushed
from . import kept
from .compilation import also_forget, quick_options
from .elementwise import UnknownOperationError
from .numpy_program import Program
from .shapes import as_plain, is_key

ENGINES = "xla", "numpy", "native"
#: Numbers that a program works on, at the most, to be carried out by NumPy where learners are trained by C.
FEW_NUMBERS = 3_000_000
#: Numbers that a program works on, at the most, to be compiled quickly if it runs once a stage only.
ONCE_A_STAGE = 150_000
#: Programs kept for NumPy, at the most.
MOST_PROGRAMS = 256

_one_at_a_time = Lock()
_tracing = RLock()  # a program may contain another
_engine: ContextVar[str] = ContextVar("engine", default="xla")
_whole: ContextVar[bool] = ContextVar("whole", default=False)


@contextmanager
def using(engine: str) -> Iterator[None]:
    """Let programs be carried out by this engine, within the context and in this thread.

    NumPy's linear algebra then has one thread: small matrices gain nothing from more, and what comes out must not
    depend on the number of cores.
    """
    token, of_rows = _engine.set(engine), _whole.set(False)
    try:
        if engine != "xla":
            with single_threaded, np.errstate(all="ignore"):
                yield
        else:
            yield
    finally:
        _engine.reset(token)
        _whole.reset(of_rows)


def leave_to_numpy() -> None:
    """Let programs of any size be carried out by NumPy until the context of :func:`using` ends.

    For data whose rows are all in one block, so that few calls do all the work.
    """
    _whole.set(True)


def is_native() -> bool:
    """Say whether learners are trained by C, if it knows their kind."""
    return _engine.get() == "native"


def at_hand(array: np.ndarray) -> Any:
    """Return an array that many programs will work on where the backend reads it fastest."""
    return jax.device_put(array) if _engine.get() == "xla" else array


def block_unit(engine: str) -> int | None:
    """Return the unit of blocks of rows (see :class:`vpboost.numerics.blocks.Layout`) that suits a backend.

    NumPy gains nothing by blocks of similar sizes; programs of XLA serve data of similar sizes.
    """
    return 1 if engine == "numpy" else None


def program(function: Callable, quick: float = 0) -> Callable:
    """Return the function as a program for either engine; what NumPy cannot do is compiled all the same.

    Arrays among the arguments, and in them, are what the program works on; anything else belongs to the program. Where
    they hold no more than ``quick`` numbers, it is compiled quickly and runs slowly.
    """
    thoroughly = eqx.filter_jit(function)

    @wraps(function)
    def run(*args: Any) -> Any:
        engine = _engine.get()
        if engine != "xla":
            leaves, structure = jax.tree.flatten(args)
            arrays = [leaf for leaf in leaves if is_array(leaf)]
            few = engine == "numpy" or _whole.get() or sum([array.size for array in arrays]) <= FEW_NUMBERS
            interpreted = _interpreted(function, leaves, structure) if few else None
            if interpreted is not None:
                try:
                    return interpreted.of(arrays)
                except Exception as error:
                    raise RuntimeError(f"NumPy cannot carry out {function.__name__}; use engine='xla'") from error
        quickly = bool(quick) and n_numbers(args) <= quick
        executable = _executable(function, args, quickly)
        if executable is not None:
            return executable(args)
        return (_compiled_quickly(function) if quickly else thoroughly)(*args)

    return run


def _compiled_quickly(function: Callable) -> Callable:
    with _one_at_a_time:  # profiles race side by side, and must not compile it twice
        return _quick_jit(function)


@cache
def _quick_jit(function: Callable) -> Callable:
    options: Any = {"compiler_options": quick_options()}  # not known before XLA is there
    return eqx.filter_jit(function, **options)


class Carried(NamedTuple):
    """A program of one of the backends, and the structure of what it returns."""

    program: Callable[[list[Any]], Any]
    structure: Any
    static: Any

    def __call__(self, args: Any) -> Any:
        return self.of([leaf for leaf in jax.tree.leaves(args) if is_array(leaf)])

    def of(self, arrays: list[Any]) -> Any:
        """Return what the program makes of the arrays among its arguments."""
        results = jax.tree.unflatten(self.structure, self.program(arrays))
        return results if self.static is None else eqx.combine(results, self.static)


NOT_YET: Any = object()
_programs: dict[Any, Carried | None] = {}


def _interpreted(function: Callable, leaves: list, structure: Any) -> Carried | None:
    """Return the program of a function for arguments like these; None if NumPy cannot carry it out."""
    kinds = tuple([(leaf.shape, leaf.dtype, is_array) if is_array(leaf) else (type(leaf), leaf) for leaf in leaves])
    key = function, structure, kinds, jax.config.jax_enable_x64  # type: ignore[attr-defined]
    try:
        found = _programs.get(key, NOT_YET)
    except TypeError:  # something in the arguments cannot be compared
        return None
    if found is not NOT_YET:
        return found
    with _tracing:  # profiles race side by side, and need not trace it twice
        found = _programs.get(key, NOT_YET)
        if found is NOT_YET:
            found = _traced(function, leaves, structure)
            if len(_programs) >= MOST_PROGRAMS:
                _programs.clear()
            _programs[key] = found
    return found


def _traced(function: Callable, leaves: list, structure: Any) -> Carried | None:
    """Return the program of a function for arguments of this structure, like these; None if NumPy cannot."""
    kinds = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) if is_array(leaf) else leaf for leaf in leaves]
    closed, shapes, static = eqx.filter_make_jaxpr(function)(*jax.tree.unflatten(structure, kinds))
    static = static if jax.tree.leaves(static) else None
    outputs, out_structure = jax.tree.flatten(shapes)
    with suppress(UnknownOperationError):
        return Carried(by_numpy(Program(closed), outputs), out_structure, static)
    return None


def by_numpy(interpreted: Program, outputs: list) -> Callable[[list[Any]], list[Any]]:
    """Return a program for NumPy as a function of a list of arrays."""

    def run(arrays: list[Any]) -> list[Any]:
        results = with_tiny_flushed(interpreted, *[as_plain(array) for array in arrays])  # as XLA does
        return [as_result(value, kind) for value, kind in zip(results, outputs, strict=True)]

    return run


_executables: dict[Any, Future] = {}
also_forget.append(_executables.clear)


def _executable(function: Callable, args: tuple, quickly: bool) -> Carried | None:
    """Return the compiled program of a function for arguments like these; None where that is left to JAX.

    It is read from disk if an earlier process has left it there.
    """
    leaves, structure = jax.tree.flatten(args)
    if not (first_is_default() and kept.folder() and all(is_here(leaf) for leaf in leaves if is_array(leaf))):
        return None
    if not jax.sharding.get_abstract_mesh().empty:  # a program of several devices
        return None
    kinds = tuple([(jax.typeof(leaf),) if is_array(leaf) else (type(leaf), leaf) for leaf in leaves])  # 1 is not 1.0
    key = function, structure, kinds, jax.config.jax_enable_x64, quickly  # type: ignore[attr-defined]
    try:
        with _one_at_a_time:  # profiles race side by side, and must not compile it twice
            found = _executables.get(key)
            if found is None:
                if len(_executables) >= MOST_PROGRAMS:
                    _executables.clear()
                _executables[key] = mine = Future[Carried | None]()
    except TypeError:  # something in the arguments cannot be compared
        return None
    if found is not None:
        return found.result()
    try:
        mine.set_result(_compiled(function, leaves, structure, quickly))
    except BaseException as error:
        _executables.pop(key, None)
        mine.set_exception(error)
        raise
    return mine.result()


def _compiled(function: Callable, leaves: list, structure: Any, quickly: bool) -> Carried | None:
    """Compile a function for arguments of this structure with these leaves, or read it from disk."""
    made: list[Any] = []

    def flat(*arrays: Any) -> list[Any]:
        given = iter(arrays)
        filled = [next(given) if is_array(leaf) else leaf for leaf in leaves]
        results, static = eqx.partition(function(*jax.tree.unflatten(structure, filled)), eqx.is_array)
        outputs, out_structure = jax.tree.flatten(results)
        made[:] = [any(is_key(output) for output in outputs), out_structure, static]
        return outputs

    lowered = jax.jit(flat, keep_unused=True).lower(*[leaf for leaf in leaves if is_array(leaf)])
    makes_keys, *described = made
    if makes_keys:
        return None
    run = kept.compiled(lowered, quick_options() if quickly else {})
    return None if run is None else Carried(partial(on_device, run), *described)


def on_device(run: Callable[[list[Any]], list[Any]], arrays: list[Any]) -> list[Any]:
    """Carry out a compiled program, which knows no arrays of NumPy's, nor of random keys."""
    return run([jax.random.key_data(array) if is_key(array) else jax.device_put(array) for array in arrays])


def first_is_default() -> bool:
    """Say whether the first device is where arrays of NumPy's go; another may have been told."""
    told = jax.config.jax_default_device  # type: ignore[attr-defined]
    return told is None or told == jax.local_devices()[0]


def is_here(leaf: Any) -> bool:
    """Say whether an array is one of the first device, or of NumPy; not so what stands for one in a larger program."""
    if isinstance(leaf, jax.core.Tracer):
        return False
    return not isinstance(leaf, jax.Array) or leaf.devices() == {jax.local_devices()[0]}


def n_numbers(args: Any) -> int:
    """Return how many numbers there are in the arrays among arguments."""
    return sum(leaf.size for leaf in jax.tree.leaves(args) if is_array(leaf))


def is_array(leaf: Any) -> bool:
    """Say whether a program works on this."""
    kind = type(leaf)
    known = _are_arrays.get(kind)
    if known is None:  # asked a hundred times a stage, and JAX takes its time to answer
        known = _are_arrays[kind] = isinstance(leaf, jax.Array | np.ndarray | np.generic)
    return known


_are_arrays: dict[type, bool] = {}


def as_result(value: Any, kind: Any) -> Any:
    """Return what NumPy made as an array of the kind that JAX would have made."""
    return jax.random.wrap_key_data(jax.device_put(value), impl="threefry2x32") if is_key(kind) else np.asarray(value)


class SingleThreaded:
    """A context in which linear algebra has one thread in the whole process, until the last of those inside leaves.

    Only the thread that set such a limit can lift it, and threads leave in any order: so one of its own holds it.
    """

    def __init__(self) -> None:
        self.lock, self.n_inside, self.last_left = Lock(), 0, Event()
        self.holder = Thread()

    def __enter__(self) -> None:
        with self.lock:
            self.n_inside += 1
            if self.n_inside == 1:
                begun, self.last_left = Event(), Event()
                self.holder = Thread(target=self.hold, args=(begun, self.last_left), daemon=True)
                self.holder.start()
                begun.wait()

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.n_inside -= 1
            if self.n_inside == 0:
                self.last_left.set()
                self.holder.join()

    @staticmethod
    def hold(begun: Event, last_left: Event) -> None:
        """Limit the threads from one event to the other."""
        with linear_algebra().limit(limits=1, user_api="blas"):
            begun.set()
            last_left.wait()


single_threaded = SingleThreaded()


@cache
def linear_algebra() -> ThreadpoolController:
    """Return what controls the threads of NumPy's and SciPy's linear algebra."""
    return ThreadpoolController()
