"""Mutation testing: small changes to the code, one at a time, each of which some test should notice.

    python tests/mutate.py                                  # all four parts of docs/mutation.md; hours
    python tests/mutate.py src/vpboost/core/reduced.py      # one file
    python tests/mutate.py --list                           # the changes, without trying them

Survivors are printed, and all verdicts kept in benchmarks/results/mutation.json; a run goes on where the last one
ended, as long as the file is the same. Tools that start a process for every change take half a minute for each, most of
it for JAX: here a worker keeps JAX and the programs that it has compiled, and imports only library and tests afresh.
"""

import argparse
import ast
import contextlib
import copy
import hashlib
import io
import json
import os
import selectors
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "mutation.json"
LOSS_TESTS = ["test_formulas.py", "test_losses.py", "test_missing_targets.py", "test_quantiles.py"]
#: What is mutated, and the tests that should notice, the quickest first.
TARGETS = {
    "core/trust_region.py": ["test_formulas_region.py", "test_trust_region.py", "test_boosting.py"],
    "core/reduced.py": ["test_formulas_reduced.py", "test_reduced.py", "test_boosting.py"],
    "core/boosting.py": ["test_boosting.py"],
    "losses/curvature.py": ["test_formulas.py", "test_losses.py", "test_reduced.py"],
    "losses/base.py": LOSS_TESTS,
    "losses/regression.py": LOSS_TESTS,
    "losses/classification.py": LOSS_TESTS,
    "losses/custom.py": LOSS_TESTS,
    "losses/observed.py": ["test_formulas.py", "test_missing_targets.py", "test_losses.py"],
    "losses/likelihoods.py": ["test_formulas_laws.py", "test_likelihoods.py", "test_missing_targets.py"],
}
#: A change may make a loop endless: what takes longer than this has been noticed.
LONGEST, MUTANTS_PER_WORKER = 300.0, 40
#: Tests that count compilations, which a worker that has compiled before does not do again.
COUNTING = ("inputs_of_any_width_share_what_follows_training", "one_compiled_program_serves_all_stages")

SWAPS: dict[type, type] = {
    **{ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Pow: ast.Mult, ast.Mod: ast.Mult},
    **{ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.And: ast.Or, ast.Or: ast.And, ast.FloorDiv: ast.Mult},
    **{ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq},
    **{ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In},
}
NAMES = {"maximum": "minimum", "minimum": "maximum", "max": "min", "min": "max", "any": "all", "all": "any"}


# --- the changes ----------------------------------------------------------------------------------------------------


def places(tree: ast.Module) -> Iterator[tuple[ast.AST, str, int]]:
    """Yield what may be changed: a node, the kind of change, and which of several."""
    for node in sorted(inside(tree), key=lambda n: (getattr(n, "lineno", 0), getattr(n, "col_offset", 0))):
        if isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in SWAPS:
            yield node, "operator", 0
        elif isinstance(node, ast.Compare):
            yield from ((node, "comparison", i) for i, op in enumerate(node.ops) if type(op) in SWAPS)
        elif isinstance(node, ast.UnaryOp):
            yield node, "sign", 0
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
            yield node, "number", 0
        elif isinstance(node, ast.Attribute) and node.attr in NAMES:
            yield node, "name", 0
        elif isinstance(node, ast.If | ast.IfExp):
            yield node, "condition", 0
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            yield node, "call", 0


def inside(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that tests could notice: no annotations, decorators, messages or declarations of fields."""
    for name, value in ast.iter_fields(tree):
        if name in ("annotation", "returns", "decorator_list", "bases"):
            continue
        for node in value if isinstance(value, list) else [value]:
            if not isinstance(node, ast.AST) or isinstance(
                node, ast.Raise | ast.JoinedStr | ast.Import | ast.ImportFrom
            ):
                continue
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "eqx.field":
                continue
            if isinstance(node, ast.Assign) and ast.unparse(node.value).startswith(("Float[", "Int[")):
                continue
            yield node
            yield from inside(node)


def change(node: Any, kind: str, which: int) -> None:
    """Change a node."""
    if kind == "operator":
        node.op = SWAPS[type(node.op)]()
    elif kind == "comparison":
        node.ops[which] = SWAPS[type(node.ops[which])]()
    elif kind == "sign":
        node.op, node.operand = ast.Not(), ast.UnaryOp(ast.Not(), node.operand)  # for `not`; the others, below
    elif kind == "number":
        value = node.value
        node.value = not value if isinstance(value, bool) else value + 1 if isinstance(value, int) else 2 * value or 1.0
    elif kind == "name":
        node.attr = NAMES[node.attr]
    elif kind == "condition":
        node.test = ast.UnaryOp(ast.Not(), node.test)
    else:
        node.value = ast.Constant(None)


class WithoutSign(ast.NodeTransformer):
    """Leave a sign, a `not` or a `~` out."""

    def __init__(self, node: ast.AST):
        self.node = node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        """Return what the sign stands before."""
        return node.operand if node is self.node else self.generic_visit(node)


def mutants(path: Path) -> list[dict[str, Any]]:
    """Return all changes to a file: where, what, and the source with it."""
    source, found = path.read_text(), []
    lines, n_places = source.splitlines(), len(list(places(ast.parse(source))))
    for number in range(n_places):
        tree = copy.deepcopy(ast.parse(source))
        node, kind, which = list(places(tree))[number]
        line = node.lineno  # type: ignore[attr-defined]
        before = ast.unparse(node.test if kind == "condition" else node)  # type: ignore[attr-defined]
        if kind == "sign":
            tree = WithoutSign(node).visit(tree)
            after = ast.unparse(node.operand)  # type: ignore[attr-defined]
        else:
            change(node, kind, which)
            after = ast.unparse(node.test if kind == "condition" else node)  # type: ignore[attr-defined]
        text = f"{kind}: {before[:90]} -> {after[:90]}"
        where = f"{lines[line - 1].strip()}"
        name = hashlib.sha256(f"{number} {where} {text}".encode()).hexdigest()[:12]
        found.append({"id": name, "line": line, "change": text, "source": ast.unparse(ast.fix_missing_locations(tree))})
    return found


# --- the worker -----------------------------------------------------------------------------------------------------


def work() -> None:
    """Try one change after the other: a line of JSON in, a line out."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    source = Path(sys.argv[2])
    sys.path[:0] = [str(source), str(ROOT / "tests"), str(ROOT)]
    sys.path = [entry for entry in sys.path if entry != str(ROOT / "src")]
    os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
    import pytest

    for module in ("jax", "equinox", "optax", "sklearn.base", "scipy.stats", "scipy.optimize", "hypothesis", "pandas"):
        __import__(module)
    meta = list(sys.meta_path)
    for line in sys.stdin:
        job, began = json.loads(line), time.time()
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None) or ""
            if name.split(".")[0] == "vpboost" or file.startswith(str(ROOT / "tests")):
                del sys.modules[name]
        sys.meta_path[:] = meta
        (source / "vpboost" / job["file"]).write_text(job["source"])
        changed = 1_000_000_000 + job["number"]  # another time for every change: compiled files go by it
        os.utime(source / "vpboost" / job["file"], (changed, changed))
        options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-o", "addopts=", "--assert=plain"]
        options += [f"--deselect=tests/test_boosting.py::test_{name}" for name in COUNTING]
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()):
            code = pytest.main([*options, "-m", "not slow", *job["tests"]])
        failed = next((text for text in out.getvalue().splitlines() if text.startswith(("FAILED", "ERROR"))), "")
        reply = {"code": int(code), "seconds": round(time.time() - began, 1), "by": failed[:120]}
        replies.write(json.dumps(reply) + "\n")
        replies.flush()


class Worker:
    """A worker process with a copy of the sources of its own."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        shutil.copytree(ROOT / "src", self.folder / "src")
        command = [sys.executable, __file__, "--worker", str(self.folder / "src")]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, text=True)
        self.done = 0

    def ask(self, job: dict[str, Any]) -> dict[str, Any] | None:
        """Return the answer to a job, or None if it took too long or the worker died."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.done += 1
        self.process.stdin.write(json.dumps({**job, "number": self.done}) + "\n")
        self.process.stdin.flush()
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            if not selector.select(LONGEST):
                return None
        line = self.process.stdout.readline()
        return json.loads(line) if line else None

    def end(self) -> None:
        """Stop the process and delete its sources."""
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def verdicts_of(file: str, known: dict[str, Any], quick: bool, every: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Try the changes of a file that are not known yet; yield the verdicts."""
    path = ROOT / "src" / "vpboost" / file
    original = path.read_text()
    tests = [f"tests/{name}" for name in TARGETS[file] if (ROOT / "tests" / name).exists()][: 1 if quick else None]
    worker = None
    for mutant in mutants(path)[::every]:
        if mutant["id"] in known:
            continue
        if worker is None or worker.done > MUTANTS_PER_WORKER:
            if worker is not None:
                worker.end()
            worker = Worker()
            check = worker.ask({"file": file, "source": original, "tests": tests[:1]})
            assert check is not None
            assert check["code"] == 0, f"the tests fail without a change: {check}"
        answer = worker.ask({"file": file, "source": mutant["source"], "tests": tests})
        if answer is None:
            worker.end()
            worker, answer = None, {"code": 1, "seconds": LONGEST, "by": "time or crash"}
        facts = {"line": mutant["line"], "change": mutant["change"]}
        yield mutant["id"], {**facts, "killed": answer["code"] != 0, "by": answer["by"], "seconds": answer["seconds"]}
    if worker is not None:
        worker.end()


def main() -> None:
    """Try what is asked for and print the survivors."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", help="files under src/vpboost (default: all four parts)")
    parser.add_argument("--list", action="store_true", help="only list the changes")
    parser.add_argument(
        "--quick", action="store_true", help="ask the first file of tests only; --again asks the others"
    )
    parser.add_argument("--every", type=int, default=1, help="only every n-th change; later runs try the others")
    parser.add_argument("--again", action="store_true", help="try survivors once more")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where verdicts are kept")
    asked = parser.parse_args()
    names = [str(Path(file).resolve().relative_to(ROOT / "src" / "vpboost")) for file in asked.files] or list(TARGETS)
    kept = json.loads(asked.results.read_text()) if asked.results.exists() else {}
    for file in names:
        there = {mutant["id"]: mutant for mutant in mutants(ROOT / "src" / "vpboost" / file)}
        if asked.list:
            print("\n".join(f"{file}:{m['line']} {m['change']}" for m in there.values()))
            continue
        found = {name: verdict for name, verdict in kept.get(file, {}).items() if name in there}
        if asked.again:
            found = {name: verdict for name, verdict in found.items() if verdict["killed"]}
        for name, verdict in verdicts_of(file, found, asked.quick, asked.every):
            found[name] = verdict
            kept[file] = {name: found[name] for name in there if name in found}
            asked.results.write_text(json.dumps(kept, indent=1) + "\n")
            if not verdict["killed"]:
                print(f"survived  {file}:{verdict['line']}  {verdict['change']}", flush=True)
        killed = sum(verdict["killed"] for verdict in found.values())
        print(f"{file}: {killed} of {len(found)} killed ({killed / max(len(found), 1):.1%})", flush=True)


if __name__ == "__main__":
    work() if "--worker" in sys.argv[1:2] else main()
