"""Short timings, kept for every version: run it before a release, and commit what it adds to results/versions.json.

    python benchmarks/versions.py              # measure, compare with the last version on a like machine, and keep
    python benchmarks/versions.py --compare    # measure and compare only

pytest-benchmark runs benchmarks/speed. Machines differ, and so does one machine from day to day: every time is divided
by that of a fixed piece of NumPy's and SciPy's work, measured in the same run. What takes a quarter longer than in the
last entry is a slow-down, and ends the program with 1.
"""

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import jax
import numpy as np

import vpboost

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "versions.json"
#: The piece of work that others are divided by, and how much longer something may take than before.
YARDSTICK, ALLOWED = "test_yardstick", 1.25


def measured() -> dict[str, float]:
    """Run the benchmarks; return the least seconds of each, as the rest is what else the machine was doing."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "benchmark.json"
        options = ["-q", "-p", "no:xdist", "-o", "addopts=", "-o", "testpaths=", f"--benchmark-json={file}"]
        command = [sys.executable, "-m", "pytest", *options, "benchmarks/speed"]
        subprocess.run(command, cwd=ROOT, check=True, stdout=sys.stderr)
        found = json.loads(file.read_text())["benchmarks"]
    return {one["name"]: one["stats"]["min"] for one in found}


def entry_of(seconds: dict[str, float]) -> dict[str, Any]:
    """Return what is kept."""
    unit = min(value for name, value in seconds.items() if name.startswith(YARDSTICK))
    return {
        "version": vpboost.__version__,
        "date": datetime.date.today().isoformat(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "python": platform.python_version(),
        **{"jax": jax.__version__, "numpy": np.__version__, "yardstick_seconds": round(unit, 5)},
        "relative": {
            name.removeprefix("test_"): float(f"{value / unit:.3g}")
            for name, value in seconds.items()
            if not name.startswith(YARDSTICK)
        },
    }


def table(entry: dict[str, Any], last: dict[str, Any] | None) -> tuple[str, list[str]]:
    """Return the comparison as text, and what has become slower."""
    lines, slower = [f"{'what':<24}{'now':>10}{'before':>10}{'ratio':>8}"], []
    for name, now in entry["relative"].items():
        before = (last or {"relative": {}})["relative"].get(name)
        lines.append(f"{name:<24}{now:>10.3g}" + (f"{before:>10.3g}{now / before:>8.2f}" if before else ""))
        if before and now > ALLOWED * before:
            slower.append(name)
    return "\n".join(lines), slower


def main() -> int:
    """Measure, compare and keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compare", action="store_true", help="keep nothing")
    asked = parser.parse_args()
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    entry = entry_of(measured())
    like = [one for one in kept if one["machine"] == entry["machine"] and one["version"] != entry["version"]]
    text, slower = table(entry, like[-1] if like else None)
    before = like[-1]["version"] if like else "nothing"
    print(f"in units of the yardstick, {entry['yardstick_seconds']} s; before: {before}")
    print(text)
    if not asked.compare:
        kept = [one for one in kept if (one["version"], one["machine"]) != (entry["version"], entry["machine"])]
        RESULTS.write_text(json.dumps([*kept, entry], indent=1) + "\n")
    if slower:
        print(f"slower than before by more than {ALLOWED - 1:.0%}: {', '.join(slower)}")
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
