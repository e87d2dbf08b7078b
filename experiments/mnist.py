"""MNIST: 5,000 handwritten digits, small convolutional learners. ``python -m experiments.mnist [--quick]``."""

from .runner import run

if __name__ == "__main__":
    run(["mnist"])
