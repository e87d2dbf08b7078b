"""Programs of JAX carried out by NumPy, without compilation: for small tables, where compiling takes longest."""

from .engine import ENGINES, is_array, program, using

__all__ = ["ENGINES", "is_array", "program", "using"]
