"""Higgs: signal or background, 28 columns. ``python -m experiments.higgs [--quick]``."""

from .runner import run

if __name__ == "__main__":
    run(["higgs"])
