"""Draw docs/images/smooth-and-trees.png, the first picture of README and site, by the example that tells of it.

python docs/draw_front_page.py
"""

import runpy
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from gallery_look import LOOK

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "images" / "smooth-and-trees.png"


if __name__ == "__main__":
    plt.rcParams.update(LOOK | {"font.size": 15})  # to be read on a phone, too
    runpy.run_path(str(ROOT / "examples" / "inside" / "plot_smooth_and_trees.py"))
    plt.figure(1).savefig(PICTURE, dpi=110)
