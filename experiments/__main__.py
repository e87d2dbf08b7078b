"""All experiments, one after the other: ``python -m experiments --quick``; without ``--quick``, for days."""

from . import pictures, scaling, timing
from .runner import parse, run

if __name__ == "__main__":
    options = parse("Run every experiment; a run that was stopped goes on.", None)
    run(["task1", "task2", "task3", "mnist", "cdr", "cdr_published", "higgs"])
    again = ["--results", str(options.results), *(["--quick"] if options.quick else [])]
    for module in (pictures, timing, scaling):
        module.main(again)
