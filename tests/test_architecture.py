"""docs/architecture.md is true of the code."""

import ast
import importlib.util
import re
from pathlib import Path

import pytest
from importlinter.application.use_cases import lint_imports
from importlinter.configuration import configure

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src" / "vpboost").rglob("*.py"))
PAGE = (ROOT / "docs" / "architecture.md").read_text()
#: What users need not have installed, and why a function may import it: see the extras in pyproject.toml.
OPTIONAL = {"matplotlib", "mlflow", "onnx", "optuna", "pandas", "polars", "pyarrow"}
#: Modules of ours that need one of these to be imported.
NEED_THEM = {"graph"}


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_picture_is_that_of_the_code():
    drawing = load(ROOT / "docs" / "draw_architecture.py")
    assert drawing.PICTURE.read_text() == drawing.draw(), "run python docs/draw_architecture.py"
    arrows = drawing.imports()
    assert arrows["core"] == {"losses", "featurizers"}
    assert not arrows["predictor"]


def test_contracts_of_imports_are_kept(monkeypatch, capsys):
    configure()
    monkeypatch.chdir(ROOT)
    assert lint_imports(config_filename="pyproject.toml"), capsys.readouterr().out


def test_every_package_has_its_paragraph():
    packages = {path.name for path in (ROOT / "src" / "vpboost").iterdir() if (path / "__init__.py").exists()}
    modules = {path.stem for path in (ROOT / "src" / "vpboost").glob("*.py") if not path.stem.startswith("_")}
    described = set(re.findall(r"\*\*`(\w+)`\*\*", PAGE))
    assert packages | modules == described


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`((?:\w+[./])+\w+(?:\.py)?)`", PAGE)) - {"pyproject.toml"}))
def test_names_on_the_page_exist(name):
    if name.endswith(".py") and "/" in name:
        assert any((ROOT / folder / name).exists() for folder in (".", "src/vpboost"))
        return
    parts = name.removesuffix(".py").split(".")
    places = [ROOT / "src" / "vpboost", ROOT / "src" / "vpboost" / "estimators", ROOT / "src" / "vpboost" / "engine"]
    found = [place for place in places for end in ("", ".py") if (place / (parts[0] + end)).exists()]
    if not found:  # a class or function
        assert any(f"class {parts[0]}" in path.read_text() for path in SOURCES)
        return
    text = " ".join(path.read_text() for path in SOURCES if parts[0] in path.parts or path.stem in parts)
    known = {path.stem for path in SOURCES}
    assert all(part in known or re.search(rf"(def|class) {part}\b", text) for part in parts[1:])


def late_imports(path):
    """Return what functions of a file import: (line, module, names)."""
    for function in ast.walk(ast.parse(path.read_text())):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for node in ast.walk(function):
                if isinstance(node, ast.Import):
                    yield from ((node.lineno, alias.name.split(".")[0], []) for alias in node.names)
                elif isinstance(node, ast.ImportFrom):
                    yield node.lineno, (node.module or "").split(".")[0], [alias.name for alias in node.names]


def test_functions_import_optional_dependencies_only():
    """The command line imports late for another reason: its help comes at once (see test_cli.py)."""
    found = {
        f"{path.name}:{line} {module}"
        for path in SOURCES
        if "cli" not in path.parts
        for line, module, _ in late_imports(path)
        if module not in OPTIONAL | NEED_THEM
    }
    assert not found


def test_files_are_short():
    """But for the predictor, which is exported as one file."""
    most = {"predictor.py": 550}
    lengths = {path.name: len(path.read_text().splitlines()) for path in SOURCES}
    assert {name: n for name, n in lengths.items() if n > most.get(name, 400)} == {}
