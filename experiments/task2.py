"""Task 2: the two arms of a Swiss roll. ``python -m experiments.task2 [--quick]``."""

from .runner import run

if __name__ == "__main__":
    run(["task2"])
