"""The paper's experiments: ``python -m experiments.task1`` and so on; ``python -m experiments`` for all of them."""
