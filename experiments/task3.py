"""Task 3: five level sets of the peaks function. ``python -m experiments.task3 [--quick]``."""

from .runner import run

if __name__ == "__main__":
    run(["task3"])
