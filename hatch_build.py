"""Compiles the C part of vpboost when a wheel, or an editable install, is built.

Without a compiler, or with ``VPBOOST_PURE=1`` in the environment, the package is built all the same, for any machine,
and fits by NumPy and XLA, which are slower.
"""

import os
import platform
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCES = Path("src/vpboost/native")
LIBRARY = SOURCES / "_learner.so"
FLAGS = ["-O3", "-std=gnu11", "-fPIC", "-fno-math-errno", "-fno-trapping-math", "-pthread"]
#: What is compiled for each precision and size of vectors, see dense.h.
IN_VARIANTS = "learner", "stage"
REALS = {"float": 32, "double": 64}
#: Options for processors whose vectors have so many bytes.
VECTORS = {16: []}
if platform.machine().lower() in ("x86_64", "amd64"):
    VECTORS |= {32: ["-march=x86-64-v3"], 64: ["-march=x86-64-v4"]}


class BuildHook(BuildHookInterface):
    """Adds the library to a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile before the files of a wheel are collected."""
        if self.target_name != "wheel" or os.environ.get("VPBOOST_PURE") == "1":
            return
        try:
            build(Path(self.root))
        except (OSError, subprocess.CalledProcessError) as error:
            details = getattr(error, "stderr", b"") or b""
            print(f"vpboost is built without its C part: {error}\n{details.decode(errors='replace')}", file=sys.stderr)
            return
        system = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data.update(pure_python=False, tag=f"py3-none-{system}")
        build_data["artifacts"].append(LIBRARY.as_posix())


def build(root: Path) -> None:
    """Compile all variants into one library."""
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    with tempfile.TemporaryDirectory() as folder:
        objects = [Path(folder) / name for name in ("vectors.o", "tree.o")]
        for compiled in objects:
            source = root / SOURCES / f"{compiled.stem}.c"
            run([*compiler, *FLAGS, "-c", str(source), "-o", str(compiled)])
        for real, bits in REALS.items():
            for size, options in VECTORS.items():
                named = f"-DNAMED(name)=vpboost_##name##_{bits}_{size}"
                defined = [f"-DREAL={real}", f"-DREAL_BITS={bits}", f"-DBYTES={size}", named]
                for part in IN_VARIANTS:
                    objects.append(Path(folder) / f"{part}_{bits}_{size}.o")
                    source = ["-c", str(root / SOURCES / f"{part}.c"), "-o", str(objects[-1])]
                    run([*compiler, *FLAGS, *options, *defined, *source])
        # beside the old one, which may be in use
        built = root / LIBRARY.with_suffix(".new")
        run([*compiler, "-shared", "-pthread", *map(str, objects), "-lm", "-o", str(built)])
        built.replace(root / LIBRARY)


def run(command: list[str]) -> None:
    """Run a command; what it says is part of the error if it fails."""
    subprocess.run(command, check=True, capture_output=True)
