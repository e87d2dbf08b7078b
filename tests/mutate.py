"""Mutation testing: small changes to the code, one at a time, each of which some test should notice.

    python tests/mutate.py                                  # all four parts of docs/mutation.md; hours
    python tests/mutate.py src/vpboost/core/reduced.py      # one file
    python tests/mutate.py --list                           # the changes, without trying them
    python tests/mutate.py --sample 40 --seed 1             # forty changes of each file, drawn at random
    python tests/mutate.py --again --sample 0               # survivors once more
    python tests/mutate.py --table                          # the tables of docs/mutation.md

Survivors are printed, and all verdicts kept in benchmarks/results/mutation.json; a run goes on where the last one
ended, but for lines that are not the same any more. A survivor that changes nothing gets a ``why`` there, by hand.
Tools that start a process for every change take half a minute for each, most of it for JAX: here each change is tried
in a fork of a process that has imported JAX, and programs that have been compiled before are taken from files.
"""

import argparse
import ast
import copy
import hashlib
import json
import os
import pickle
import random
import resource
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "mutation.json"
LOSS_TESTS = ["test_formulas.py", "test_formulas_newton.py", "test_losses.py", "test_missing_targets.py"]
#: What is mutated, and the tests that should notice, the quickest first.
TARGETS = {
    "core/trust_region.py": ["test_formulas_region.py", "test_trust_region.py", "test_boosting.py"],
    "core/reduced.py": ["test_formulas_reduced.py", "test_reduced.py", "test_boosting.py"],
    "core/boosting.py": ["test_formulas_boosting.py", "test_boosting.py"],
    "losses/curvature.py": ["test_formulas.py", "test_losses.py", "test_reduced.py"],
    "losses/base.py": LOSS_TESTS,
    "losses/regression.py": [*LOSS_TESTS, "test_quantiles.py"],
    "losses/classification.py": LOSS_TESTS,
    "losses/custom.py": ["test_formulas_newton.py", "test_formulas.py", "test_losses.py"],
    "losses/observed.py": ["test_formulas.py", "test_missing_targets.py", "test_losses.py"],
    "losses/likelihoods.py": ["test_formulas_laws.py", "test_likelihoods.py", "test_missing_targets.py"],
}
#: A change may make a loop endless: what takes so many times the work of the tests without it, and so many seconds
#: more, is ended, and noticed. Seconds are those of processors: a machine that is busy, or pauses, changes no verdict.
LONGEST, TIMES = 30.0, 5.0
#: Tests that count compilations: whether a program is compiled or taken from a file depends on what was tried before.
COUNTING = ("test_inputs_of_any_width_share_what_follows_training", "test_one_compiled_program_serves_all_stages")
#: What every change needs and none changes.
MODULES = (
    *("pytest", "jax", "equinox", "optax", "hypothesis", "pandas", "scipy.stats", "scipy.optimize"),
    *("sklearn.base", "sklearn.model_selection", "sklearn.preprocessing", "rich.progress", "rich.live"),
    *("beartype.claw", "jaxtyping._import_hook", "_hypothesis_pytestplugin", "_pytest.doctest"),
)
#: Plugins that the tests do not need.
PLUGINS = ("cacheprovider", "xdist", "cov", "benchmark", "anyio", "junitxml")

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
    """Return all changes to a file: where, what, and what :func:`source_of` needs."""
    source, found = path.read_text(), []
    lines, tree = source.splitlines(), ast.parse(source)
    everything = list(places(tree))
    kept, seen = pickle.dumps((tree, everything)), Counter[str]()
    for number, (node, kind, which) in enumerate(everything):
        line = node.lineno  # type: ignore[attr-defined]
        shown: Any = node.test if kind == "condition" else node  # type: ignore[attr-defined]
        before = ast.unparse(shown)
        if kind == "sign":
            after = ast.unparse(node.operand)  # type: ignore[attr-defined]
        else:
            changed = copy.deepcopy(node)
            change(changed, kind, which)
            after = ast.unparse(changed.test if kind == "condition" else changed)  # type: ignore[attr-defined]
        text = f"{kind}: {before[:90]} -> {after[:90]}"
        what = f"{lines[line - 1].strip()} {text}"
        seen[what] += 1  # not the number of the change: verdicts are to outlast changes elsewhere in the file
        name = hashlib.sha256(f"{seen[what]} {what}".encode()).hexdigest()[:12]
        found.append({"id": name, "line": line, "change": text, "kept": kept, "number": number})
    return found


def source_of(mutant: dict[str, Any]) -> str:
    """Return the source of a file with a change."""
    tree, everything = pickle.loads(mutant["kept"])
    node, kind, which = everything[mutant["number"]]
    if kind == "sign":
        tree = WithoutSign(node).visit(tree)
    else:
        change(node, kind, which)
    return ast.unparse(ast.fix_missing_locations(tree))


# --- the worker -----------------------------------------------------------------------------------------------------


class WithoutSlow:
    """Leave out slow tests, but for those of formulas, and tests that count compilations."""

    def pytest_collection_modifyitems(self, items: list) -> None:
        """Keep what is wanted."""
        items[:] = [
            item
            for item in items
            if item.path.name.startswith("test_formulas") or not item.get_closest_marker("slow")
            if not item.name.startswith(COUNTING)
        ]


def work() -> None:
    """Try one change after the other, each in a fork of this process: a line of JSON in, a line out.

    JAX is imported before, and starts its threads after forking. Programs compiled for another change are taken from
    files.
    """
    source = Path(sys.argv[2])
    sys.path[:0] = [str(source), str(ROOT / "tests"), str(ROOT)]
    sys.path = [entry for entry in sys.path if entry != str(ROOT / "src")]
    os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".pytest_cache" / "jax"))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
    for module in MODULES:
        __import__(module)
    for number, line in enumerate(sys.stdin):
        job = json.loads(line)
        (source / "vpboost" / job["file"]).write_text(job["source"])
        changed = 1_000_000_000 + number  # another time for every change: compiled files go by it
        os.utime(source / "vpboost" / job["file"], (changed, changed))
        with tempfile.TemporaryFile("w+") as out:
            child = os.fork()
            if not child:
                resource.setrlimit(resource.RLIMIT_CPU, (job["longest"], job["longest"]))
                os.dup2(out.fileno(), 1)
                os.dup2(out.fileno(), 2)
                os._exit(verdict_of(job["tests"]))
            _, status, used = os.wait4(child, 0)
            code = os.waitstatus_to_exitcode(status)
            seconds = round(used.ru_utime + used.ru_stime, 1)
            out.seek(0)
            failed = next((text for text in out.read().splitlines() if text.startswith(("FAILED", "ERROR"))), "")
        by = failed[:120] or ("time or crash" if code else "")
        print(json.dumps({"code": code, "seconds": seconds, "by": by}), flush=True)


def verdict_of(tests: list[str]) -> int:
    """Run tests, up to the first that fails."""
    import pytest

    options = ["-x", "-q", "--assert=plain", "--tb=no", *(f"-pno:{name}" for name in PLUGINS)]
    try:
        return int(pytest.main([*options, *tests], plugins=[WithoutSlow()]))
    except BaseException:
        return 3
    finally:
        sys.stdout.flush()


class Worker:
    """A worker process with a copy of the sources of its own."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        shutil.copytree(ROOT / "src", self.folder / "src")
        command = [sys.executable, __file__, "--worker", str(self.folder / "src")]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, text=True)

    def ask(self, job: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to a job."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def end(self) -> None:
        """Stop the process and delete its sources."""
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def verdicts_of(
    file: str, todo: list[dict[str, Any]], quick: bool, seconds: dict[str, float]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Try changes of a file; yield the verdicts. ``seconds`` are those of tests that have passed without a change."""
    path = ROOT / "src" / "vpboost" / file
    tests = [f"tests/{name}" for name in TARGETS[file] if not quick or name.startswith("test_formulas")]
    worker, source = Worker(), ast.unparse(ast.parse(path.read_text()))
    try:
        for name in tests:
            if name not in seconds:
                check = worker.ask({"file": file, "source": source, "tests": [name], "longest": 3600})
                assert check["code"] == 0, f"the tests fail without a change: {check}"
                seconds[name] = check["seconds"]
        longest = int(LONGEST + TIMES * sum(seconds[name] for name in tests))
        for mutant in todo:
            answer = worker.ask({"file": file, "source": source_of(mutant), "tests": tests, "longest": longest})
            facts = {"line": mutant["line"], "change": mutant["change"], "killed": answer["code"] != 0}
            yield mutant["id"], {**facts, "by": answer["by"], "seconds": answer["seconds"]}
    finally:
        worker.end()


def table(kept: dict[str, dict[str, Any]]) -> Iterator[str]:
    """Yield the tables of docs/mutation.md: scores with sampling errors, and survivors with ``why`` they survive."""
    yield "| file | changes | tried | noticed | of no effect | score | score of changes with an effect |"
    yield "|---|---|---|---|---|---|---|"
    counts = []
    for file in TARGETS:
        there = {mutant["id"] for mutant in mutants(ROOT / "src" / "vpboost" / file)}
        n_changes, verdicts = len(there), [kept[file][name] for name in there & set(kept.get(file, {}))]
        noticed = sum(verdict["killed"] for verdict in verdicts)
        counts.append((n_changes, len(verdicts), noticed, sum("why" in verdict for verdict in verdicts)))
        yield row(f"`{file}`", [counts[-1]])
    yield row("`losses` together", [count for file, count in zip(TARGETS, counts, strict=True) if "losses" in file])
    yield row("all", counts)
    yield "\n| change | why nothing notices |\n|---|---|"
    for file in TARGETS:
        for mutant in mutants(ROOT / "src" / "vpboost" / file):
            verdict = kept.get(file, {}).get(mutant["id"], {"killed": True})
            if not verdict["killed"]:
                change = verdict["change"].replace("|", "\\|")
                yield f"| `{file}`, line {mutant['line']}, {change} | {verdict.get('why', '**not explained**')} |"


def row(name: str, counts: list[tuple[int, int, int, int]]) -> str:
    """Return a line of the table for files taken together, each with the weight that its changes have."""
    changes, tried, noticed, idle = (sum(column) for column in zip(*counts, strict=True))
    scores = []
    for without in (False, True):
        mean = variance = weight = 0.0
        for n_changes, n_tried, n_noticed, n_idle in counts:
            n = n_tried - n_idle * without
            size = n_changes * n / max(n_tried, 1)  # as many of the changes not tried are taken to have no effect
            share = n_noticed / max(n, 1)
            # one added to each side: of a sample in which all are noticed, the others need not be
            likely = (n_noticed + 1) / (n + 2)
            left = max(1 - n_tried / n_changes, 0.0)
            weight, mean = weight + size, mean + size * share
            variance += size**2 * likely * (1 - likely) / max(n, 1) * left
        error = f" ± {196 * variance**0.5 / weight:.1f}" if variance else ""
        scores.append(f"{100 * mean / weight:.1f}{error} %")
    return f"| {name} | {changes} | {tried} | {noticed} | {idle} | {' | '.join(scores)} |"


def main() -> None:
    """Try what is asked for and print the survivors."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", help="files under src/vpboost (default: all four parts)")
    parser.add_argument("--list", action="store_true", help="only list the changes")
    parser.add_argument("--quick", action="store_true", help="ask the tests of formulas only; --again asks the others")
    parser.add_argument("--sample", type=int, help="only so many changes of each file, drawn at random by --seed")
    parser.add_argument("--seed", type=int, default=0, help="of the sample; 0 unless told")
    parser.add_argument("--again", action="store_true", help="try survivors once more")
    parser.add_argument("--table", action="store_true", help="only print the tables of docs/mutation.md")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where verdicts are kept")
    asked = parser.parse_args()
    names = [str(Path(file).resolve().relative_to(ROOT / "src" / "vpboost")) for file in asked.files] or list(TARGETS)
    kept = json.loads(asked.results.read_text()) if asked.results.exists() else {}
    seconds: dict[str, float] = {}
    if asked.table:
        print("\n".join(table(kept)))
        return
    for file in names:
        there = {mutant["id"]: mutant for mutant in mutants(ROOT / "src" / "vpboost" / file)}
        if asked.list:
            print("\n".join(f"{file}:{m['line']} {m['change']}" for m in there.values()))
            continue
        found = {name: verdict for name, verdict in kept.get(file, {}).items() if name in there}
        n_drawn = len(there) if asked.sample is None else min(asked.sample, len(there))
        drawn = random.Random(asked.seed).sample(list(there), n_drawn)
        todo = [name for name in drawn if name not in found]
        if asked.again:
            todo = [name for name, verdict in found.items() if not verdict["killed"]] + todo
        for name, verdict in verdicts_of(file, [there[name] for name in todo], asked.quick, seconds) if todo else ():
            why = found.get(name, {}).get("why")
            found[name] = verdict if verdict["killed"] or why is None else {**verdict, "why": why}
            kept[file] = {name: found[name] for name in there if name in found}
            asked.results.write_text(json.dumps(kept, indent=1) + "\n")
            if not verdict["killed"]:
                print(f"survived  {file}:{verdict['line']}  {verdict['change']}", flush=True)
        killed = sum(verdict["killed"] for verdict in found.values())
        print(f"{file}: {killed} of {len(found)} killed ({killed / max(len(found), 1):.1%})", flush=True)


if __name__ == "__main__":
    work() if "--worker" in sys.argv[1:2] else main()
