"""A JAX program (a jaxpr) as a list of NumPy calls.

Nothing is compiled: a program is ready as soon as JAX has traced it. That pays where arrays are small, for a call then
costs a few microseconds, and compilation would cost seconds.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from .algebra import ALGEBRA, eigenvalues, is_plain_product, product
from .elementwise import ELEMENTWISE, UnknownOperationError
from .shapes import SHAPES, as_plain, is_key

PRIMITIVES = {**ELEMENTWISE, **SHAPES, **ALGEBRA}
#: Primitives that only call another program, and where that is among their parameters.
CALLS = {"jit": "jaxpr", "closed_call": "call_jaxpr", "custom_jvp_call": "call_jaxpr", "custom_vjp_call": "call_jaxpr"}
CALLS |= {"remat2": "jaxpr", "custom_vmap_call": "call"}


#: Primitives that only arrange numbers in another shape if there are as many before and after.
RESHAPES = {"squeeze", "expand_dims", "broadcast_in_dim", "reduce_sum", "reduce_max", "reduce_min", "reduce_prod"}


class Operation(NamedTuple):
    """One equation, its inputs and outputs given by their places in the list of values."""

    name: str
    eqn: Any
    ins: list[int]
    outs: list[int]


class Program:
    """Calls of NumPy functions on numbered values, in order.

    Parameters
    ----------
    closed
        The ``ClosedJaxpr``.
    n_fixed : int, default=0
        So many first inputs are the same in every run: what follows from them alone is computed once, by
        :meth:`prepare`.
    """

    def __init__(self, closed: Any, n_fixed: int = 0):
        self.values: list[Any] = []
        self.operations: list[Operation] = []
        self.inputs = [self._place() for _ in closed.jaxpr.invars]
        if any(is_key(v.aval) and str(v.aval.dtype) != "key<fry>" for v in closed.jaxpr.invars):
            raise UnknownOperationError("random keys of another kind")
        self.n_fixed = n_fixed
        self.outputs = self._read_in(closed, self.inputs)
        self._drop_unneeded()
        self._turn_products()
        known = {place for place, value in enumerate(self.values) if value is not None}
        for operation in self._following(known):
            self._call(operation)(self.values)
        for place in known:
            if isinstance(self.values[place], np.ndarray):
                self.values[place].flags.writeable = False  # all runs see it
        fixed = known | set(self.inputs[:n_fixed])
        self.first_calls = [self._call(operation) for operation in self._following(fixed)]
        self.calls = [self._call(operation) for operation in self.operations]

    def __call__(self, *inputs: Any) -> list:
        """Run once."""
        return self.run(self.prepare(inputs[: self.n_fixed]), inputs[self.n_fixed :])

    def prepare(self, fixed: Sequence = ()) -> list:
        """Return fresh values, the fixed inputs and what follows from them filled in."""
        values = self.values.copy()
        values[: self.n_fixed] = fixed
        for call in self.first_calls:
            call(values)
        return values

    def run(self, values: list, inputs: Sequence) -> list:
        """Run on prepared values, given the inputs that are not fixed."""
        values[self.n_fixed : len(self.inputs)] = inputs
        for call in self.calls:
            call(values)
        return [values[place] for place in self.outputs]

    # --- reading the program ------------------------------------------------------------------------------------------

    def _place(self, value: Any = None) -> int:
        self.values.append(value)
        return len(self.values) - 1

    def _read_in(self, closed: Any, inputs: list[int]) -> list[int]:
        """Add the operations of a program, those of the programs that it calls included; return its outputs."""
        jaxpr = getattr(closed, "jaxpr", closed)
        if jaxpr.effects:
            raise UnknownOperationError("effects")
        constants = [self._place(as_plain(constant)) for constant in getattr(closed, "consts", ())]
        places = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*constants, *inputs), strict=True))

        def find(variable: Any) -> int:
            if hasattr(variable, "val"):
                return self._place(np.asarray(variable.val, variable.aval.dtype)[()])
            return places[variable]

        for eqn in jaxpr.eqns:
            name, ins = eqn.primitive.name, [find(variable) for variable in eqn.invars]
            if name in CALLS:
                outs = self._read_in(eqn.params[CALLS[name]], ins)
            elif name == "custom_linear_solve":  # several programs, of which one solves
                before = sum(eqn.params["const_lengths"][:2])
                own = ins[before : before + eqn.params["const_lengths"].solve]
                outs = self._read_in(eqn.params["jaxprs"].solve, [*own, *ins[sum(eqn.params["const_lengths"]) :]])
            else:
                if name == "gather":  # in two parts, of which the first may not change from run to run
                    self.operations.append(Operation("gathered places", eqn, ins[1:], [self._place()]))
                    ins = [ins[0], self.operations[-1].outs[0]]
                outs = [self._place() for _ in eqn.outvars]
                self.operations.append(Operation(name, eqn, ins, outs))
            places |= dict(zip(eqn.outvars, outs, strict=True))
        return [find(variable) for variable in jaxpr.outvars]

    def _drop_unneeded(self) -> None:
        wanted, kept = set(self.outputs), []
        for operation in reversed(self.operations):
            if wanted.intersection(operation.outs):
                kept.append(operation)
                wanted |= set(operation.ins)
        self.operations, self.wanted = kept[::-1], wanted

    def _following(self, places: set[int]) -> list[Operation]:
        """Take out, and return, the operations that depend on these values alone; add their results to the set."""
        taken, left = [], []
        for operation in self.operations:
            if places.issuperset(operation.ins):
                taken.append(operation)
                places.update(operation.outs)
            else:
                left.append(operation)
        self.operations = left
        return taken

    def _turn_products(self) -> None:
        """Let (A B)ᵀ be computed as Bᵀ Aᵀ: arrays of one order are faster to work on than a mixture."""
        uses = Counter(place for operation in self.operations for place in operation.ins)
        products = {o.outs[0]: o for o in self.operations if o.name == "dot_general" and is_plain_product(o.eqn)}
        turned: dict[int, Operation | None] = {}
        for operation in self.operations:
            first = products.get(operation.ins[0]) if turns(operation) else None
            if first is not None and uses[first.outs[0]] == 1 and first.outs[0] not in self.outputs:
                turned |= {id(first): first._replace(name="turned product", outs=operation.outs), id(operation): None}
        replaced = (turned.get(id(operation), operation) for operation in self.operations)
        self.operations = [operation for operation in replaced if operation is not None]

    # --- building the calls -------------------------------------------------------------------------------------------

    def _call(self, operation: Operation) -> Callable:
        """Return a function of the list of values that carries out one operation."""
        function, ins, outs = self._function(operation), operation.ins, operation.outs
        if operation.eqn.primitive.multiple_results:

            def call(values: list) -> None:
                for place, result in zip(outs, function(*[values[i] for i in ins]), strict=True):
                    values[place] = result

            return call
        out = outs[0]
        if len(ins) == 1:
            (a,) = ins

            def call(values: list) -> None:
                values[out] = function(values[a])

        elif len(ins) == 2:
            a, b = ins

            def call(values: list) -> None:
                values[out] = function(values[a], values[b])

        elif len(ins) == 3:
            a, b, c = ins

            def call(values: list) -> None:
                values[out] = function(values[a], values[b], values[c])

        else:

            def call(values: list) -> None:
                values[out] = function(*[values[i] for i in ins])

        return call

    def _function(self, operation: Operation) -> Callable:
        name, eqn = operation.name, operation.eqn
        if name in FLOW:
            return FLOW[name](eqn)
        if name == "turned product":
            return product(eqn, turned=True)
        if name == "eigh" and operation.outs[0] not in self.wanted:
            return eigenvalues(eqn, alone=True)
        if name not in PRIMITIVES:
            raise UnknownOperationError(name)
        if is_reshape(eqn):  # the cheapest way to do it
            shape = eqn.outvars[0].aval.shape
            return lambda x: x.reshape(shape)
        return PRIMITIVES[name](eqn)


def turns(operation: Operation) -> bool:
    """Say whether an operation transposes a matrix."""
    return operation.name == "transpose" and operation.eqn.params["permutation"] == (1, 0)


def is_reshape(eqn: Any) -> bool:
    """Say whether an equation only arranges the same numbers in another shape."""
    sizes = {variable.aval.size for variable in (*eqn.invars, *eqn.outvars)}
    return eqn.primitive.name in RESHAPES and len(eqn.invars) == len(sizes) == 1 and not is_key(eqn.invars[0].aval)


# --- loops and branches ----------------------------------------------------------------------------------------------


def scan(eqn: Any) -> Callable:
    """Build a loop over the first axis of some arrays."""
    p = eqn.params
    n_fixed, n_carry = p["num_consts"], p["num_carry"]
    program = Program(p["jaxpr"], n_fixed)
    order = range(p["length"])[::-1] if p["reverse"] else range(p["length"])
    stacked = [variable.aval for variable in eqn.outvars[n_carry:]]
    if any(map(is_key, stacked)):
        raise UnknownOperationError("scan that makes random keys")

    def run(*inputs: Any) -> list:
        values = program.prepare(inputs[:n_fixed])
        carry, series = list(inputs[n_fixed : n_fixed + n_carry]), inputs[n_fixed + n_carry :]
        results = [np.empty(aval.shape, aval.dtype) for aval in stacked]
        for k in order:
            found = program.run(values, [*carry, *[one[k] for one in series]])
            carry = found[:n_carry]
            for result, value in zip(results, found[n_carry:], strict=True):
                result[k] = value
        return [*carry, *results]

    return run


def while_loop(eqn: Any) -> Callable:
    """Build a loop that ends when its condition fails."""
    p = eqn.params
    n_condition, n_body = p["cond_nconsts"], p["body_nconsts"]
    condition, body = Program(p["cond_jaxpr"], n_condition), Program(p["body_jaxpr"], n_body)
    several = p["cond_jaxpr"].out_avals[0].ndim  # loops side by side, of which some may end before others

    def run(*inputs: Any) -> list:
        asked = condition.prepare(inputs[:n_condition])
        done = body.prepare(inputs[n_condition : n_condition + n_body])
        carry = list(inputs[n_condition + n_body :])
        while not several and condition.run(asked, carry)[0]:
            carry = body.run(done, carry)
        while several and np.any(going := condition.run(asked, carry)[0]):
            carry = [keep_ended(going, *pair) for pair in zip(carry, body.run(done, carry), strict=True)]
        return carry

    return run


def keep_ended(going: Any, before: Any, after: Any) -> Any:
    """Return the new values of the loops that go on and the old ones of those that have ended."""
    return np.where(going.reshape(*going.shape, *[1] * (np.ndim(after) - going.ndim)), after, before)


def cond(eqn: Any) -> Callable:
    """Build a choice between programs."""
    programs = [Program(branch) for branch in eqn.params["branches"]]

    def run(which: Any, *inputs: Any) -> list:
        return programs[min(max(int(which), 0), len(programs) - 1)](*inputs)

    return run


FLOW: dict[str, Callable] = {"scan": scan, "while": while_loop, "cond": cond}
