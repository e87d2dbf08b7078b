"""Operations on single numbers: a NumPy function for each of JAX's primitives.

Here and in the modules beside, a builder is given an equation of a JAX program and returns the function that carries it
out.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from jax.lax import RoundingMethod
from scipy import special


class UnknownOperationError(Exception):
    """A program does something that NumPy has not been taught."""


def identity(x: Any) -> Any:
    """Return ``x``."""
    return x


#: Primitives that are one NumPy function whatever their parameters.
PLAIN: dict[str, Callable] = {
    **{"add": np.add, "add_any": np.add, "sub": np.subtract, "mul": np.multiply, "max": np.maximum, "min": np.minimum},
    **{"neg": np.negative, "abs": np.abs, "sign": np.sign, "floor": np.floor, "ceil": np.ceil, "square": np.square},
    **{"exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log1p": np.log1p, "sqrt": np.sqrt},
    **{"sin": np.sin, "cos": np.cos, "tan": np.tan, "tanh": np.tanh, "sinh": np.sinh, "cosh": np.cosh},
    **{"logistic": special.expit, "erf": special.erf, "erf_inv": special.erfinv, "atan2": np.arctan2},
    **{"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal},
    **{"gt": np.greater, "ge": np.greater_equal, "is_finite": np.isfinite},
    **{"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "not": np.invert},
    **{"shift_left": np.left_shift, "stop_gradient": identity, "copy": identity},
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "clamp": lambda low, x, high: np.minimum(np.maximum(x, low), high),
}


def divide(eqn: Any) -> Callable:
    """Divide; whole numbers round towards zero in JAX, which NumPy does not."""
    if eqn.invars[0].aval.dtype.kind != "f":
        raise UnknownOperationError("div of whole numbers")
    return np.divide


def remainder(eqn: Any) -> Callable:
    """Return the remainder of a division; that of a whole number divided by 0 is the number itself in JAX."""
    dtype = eqn.outvars[0].aval.dtype
    if dtype.kind == "f":
        return np.fmod
    if dtype.kind not in "iu":
        raise UnknownOperationError("rem of other numbers")
    return lambda a, b: np.where(b == 0, a, np.fmod(a, np.where(b == 0, 1, b).astype(dtype)))


def power(eqn: Any) -> Callable:
    """Raise to a power; NumPy would make double precision of a whole-number one."""
    dtype = eqn.outvars[0].aval.dtype
    if eqn.invars[1].aval.dtype == dtype:
        return np.power
    return lambda x, exponent: np.power(x, exponent.astype(dtype))


def integer_power(eqn: Any) -> Callable:
    """Raise to a power that belongs to the program."""
    exponent = eqn.params["y"]
    if exponent == 2:
        return np.square
    return lambda x: x**exponent


def round_number(eqn: Any) -> Callable:
    """Round to the nearest whole number."""
    if eqn.params["rounding_method"] != RoundingMethod.TO_NEAREST_EVEN:
        raise UnknownOperationError("round away from zero")
    return np.rint


def shift_right(eqn: Any) -> Callable:
    """Shift bits to the right, zeros from the left."""
    if eqn.invars[0].aval.dtype.kind != "u":
        raise UnknownOperationError("shift_right_logical of signed numbers")
    return np.right_shift


def select(eqn: Any) -> Callable:
    """Choose between two arrays, number by number or as a whole."""
    if len(eqn.invars) != 3 or eqn.invars[0].aval.dtype != bool:
        raise UnknownOperationError("select_n of several cases")
    if not eqn.invars[0].aval.shape:
        return lambda which, no, yes: yes if which else no
    return lambda which, no, yes: np.where(which, yes, no)


def convert(eqn: Any) -> Callable:
    """Change the type of the numbers; JAX makes the nearest whole number of those too large, and 0 of NaN."""
    before, dtype = eqn.invars[0].aval.dtype, np.dtype(eqn.params["new_dtype"])
    if before.kind == "f" and dtype.kind in "iu":
        if dtype.itemsize > 4:
            raise UnknownOperationError("conversion to 64-bit whole numbers")
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        return lambda x: np.nan_to_num(np.clip(x.astype(float), low, high)).astype(dtype)
    return lambda x: x.astype(dtype)


def reinterpret(eqn: Any) -> Callable:
    """Read the same bits as another type."""
    before, after = eqn.invars[0].aval.dtype, np.dtype(eqn.params["new_dtype"])
    if before.itemsize != after.itemsize:
        raise UnknownOperationError("bitcast_convert_type to another size")
    return lambda x: x.view(after)


ELEMENTWISE: dict[str, Callable] = {
    **{name: (lambda eqn, function=function: function) for name, function in PLAIN.items()},
    **{"div": divide, "rem": remainder, "pow": power, "integer_pow": integer_power},
    **{"round": round_number, "select_n": select},
    **{"shift_right_logical": shift_right, "convert_element_type": convert, "bitcast_convert_type": reinterpret},
}
