"""The commonest learners by C, which hatch_build.py compiles. Without it, other backends do the same."""

from .cuts import NOTHING, Cut, Questions, best_cuts
from .learner import Dense, Descent, train
from .library import ACTIVATIONS, ROWS, is_available, n_cores, vector_bytes, with_tiny_flushed
from .stage import Network, features, predictions, sums

__all__ = [
    "ACTIVATIONS", "NOTHING", "ROWS", "Cut", "Dense", "Descent", "Network", "Questions", "best_cuts", "features",
    "is_available", "n_cores", "predictions", "sums", "train", "vector_bytes", "with_tiny_flushed",
]  # fmt: skip
