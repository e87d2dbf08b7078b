"""CDR: a field of 72 values from 55 parameters, split at random and as published.

``python -m experiments.cdr [--quick]``.
"""

from .runner import run

if __name__ == "__main__":
    run(["cdr", "cdr_published"])
