"""The backends that carry out programs of JAX: XLA, which compiles them, and NumPy, which begins at once.

There is a third for the training of some learners, C (see :mod:`vpboost.native`).

The rest of the library marks programs (:func:`program`) and chooses a backend (:func:`using`); it need not know more.
"""

from .choice import ENGINES, ONCE_A_STAGE, at_hand, block_unit, is_array, is_native, leave_to_numpy, program, using
from .compilation import forget_programs_if_many, quick_options
from .kept import cache_compilation

__all__ = [
    "ENGINES", "ONCE_A_STAGE", "at_hand", "block_unit", "cache_compilation", "forget_programs_if_many", "is_array",
    "is_native", "leave_to_numpy", "program", "quick_options", "using",
]  # fmt: skip
