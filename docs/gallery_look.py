"""How pictures of the gallery look."""

import warnings
from typing import Any

import matplotlib.pyplot as plt

LOOK = {
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.constrained_layout.use": True,
    "figure.dpi": 110,
    "font.size": 10,
}


def reset(gallery_conf: dict[str, Any], fname: str) -> None:
    """Give every example the same look, and let numbers that are none end it."""
    plt.rcdefaults()
    plt.rcParams.update(LOOK)
    warnings.filterwarnings("error", category=RuntimeWarning)
