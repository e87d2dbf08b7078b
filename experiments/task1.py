"""Task 1: regression of an oscillating function on the unit square. ``python -m experiments.task1 [--quick]``."""

from .runner import run

if __name__ == "__main__":
    run(["task1"])
