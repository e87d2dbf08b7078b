"""Draw docs/architecture.svg: the packages in the layers of pyproject.toml, and which of them import which.

    python docs/draw_architecture.py

Arrows are the imports that the code has, read by grimp; one is left out where others already lead there.
"""

import tomllib
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "architecture.svg"
WIDTH, HEIGHT, BOX, GAP = 760, 30, 150, 28
#: What each package is for, in a few words (docs/architecture.md says more), and where its box stands. (Checks of
#: arguments, which most packages import, and the demonstration's data are left out.)
WORDS = {
    "cli": ("the command vpboost", 300),
    "export": ("ONNX, NumPy", 80),
    "plotting": ("pictures, report", 480),
    "estimators": ("fit and predict", 380),
    "callbacks": ("after every stage", 380),
    "files": ("models, checkpoints", 300),
    "core": ("the method", 180),
    "tables": ("tables to arrays", 560),
    "featurizers": ("z(x)", 290),
    "losses": ("loss, g, H", 40),
    "numerics": ("blocks, LAPACK", 160),
    "engine": ("XLA or NumPy", 20),
    "predictor": ("a model in NumPy", 480),
}


def layers() -> list[list[str]]:
    """Return the packages in their layers, the highest first, without those that say nothing of the architecture."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    named = [[name.strip() for name in layer.split(":")] for layer in contracts[0]["layers"]]
    return [kept for layer in named if (kept := [name for name in layer if name in WORDS])]


def imports() -> dict[str, set[str]]:
    """Return the packages that each package imports, but for those that these import in turn."""
    graph, names = grimp.build_graph("vpboost"), [name for layer in layers() for name in layer]
    found: dict[str, set[str]] = {name: set() for name in names}
    for module in graph.modules:
        importer = module.split(".")[1] if "." in module else ""
        for imported in graph.find_modules_directly_imported_by(module):
            package = imported.split(".")[1] if "." in imported else ""
            if importer in found and package in found and importer != package:
                found[importer].add(package)
    reached = {name: set(found[name]) for name in names}
    for name in reversed(names):  # those below are complete
        for other in found[name]:
            reached[name] |= reached[other]
    return {
        name: {other for other in found[name] if not any(other in reached[via] for via in found[name])}
        for name in names
    }


def draw() -> str:
    """Return the picture."""
    places: dict[str, tuple[int, int]] = {}
    for row, layer in enumerate(layers()):
        places |= {name: (WORDS[name][1], row * (HEIGHT + GAP) + 4) for name in layer}
    height = max(y for _, y in places.values()) + HEIGHT + 4
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif">',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#789"/></marker></defs>',
    ]
    for name, others in imports().items():
        x, y = places[name]
        for number, other in enumerate(sorted(others, key=lambda one: places[one])):
            to_x, to_y = places[other]
            begin = x + BOX * (number + 1) / (len(others) + 1)
            end = min(max(to_x + BOX / 2 + (begin - to_x - BOX / 2) / 4, to_x + 8), to_x + BOX - 8)
            lines.append(
                f'<path d="M{begin:.0f} {y + HEIGHT:.0f}L{end:.0f} {to_y:.0f}" stroke="#789" fill="none" '
                'marker-end="url(#tip)"/>'
            )
    for name, (x, y) in places.items():
        lines += [
            f'<rect x="{x:.0f}" y="{y:.0f}" width="{BOX}" height="{HEIGHT}" rx="5" fill="#eef3f8" stroke="#456"/>',
            f'<text x="{x + BOX / 2:.0f}" y="{y + 13:.0f}" font-size="12" font-weight="bold" text-anchor="middle">'
            f"{name}</text>",
            f'<text x="{x + BOX / 2:.0f}" y="{y + 25:.0f}" font-size="9.5" fill="#456" text-anchor="middle">'
            f"{WORDS[name][0]}</text>",
        ]
    return "\n".join([*lines, "</svg>"]) + "\n"


if __name__ == "__main__":
    PICTURE.write_text(draw())
