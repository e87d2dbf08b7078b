"""Pages are true: their code runs, their links lead somewhere, their pictures and examples are there."""

import re
import shlex
from pathlib import Path

import pytest

from processes import run_as_users_do
from vpboost.cli.main import main

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
GENERATED = "_build", "auto_examples", "generated"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"] + [
    path for path in sorted(DOCS.rglob("*.md")) if not set(GENERATED) & set(path.parts)
]
EXAMPLES = sorted((ROOT / "examples").rglob("*.py"))


def name_of(path):
    return str(path.relative_to(ROOT))


def blocks(path, language):
    return re.findall(rf"^ *```{language}\n(.*?)^ *```", path.read_text(), re.DOTALL | re.MULTILINE)


def with_blocks(language):
    return [pytest.param(path, id=name_of(path)) for path in PAGES if blocks(path, language)]


RUN = """
import os, sys, tempfile
import matplotlib
matplotlib.use("agg")
from test_pages import ROOT, blocks
for name in sys.argv[1:]:
    os.chdir(tempfile.mkdtemp())  # where its files disturb nobody
    scope = {"__name__": "page"}
    for block in blocks(ROOT / name, "python"):
        exec(compile(block, name, "exec"), scope)
    if name == "README.md":
        assert scope["prediction"].shape == (100, 2)
        assert scope["slopes"].shape == (100, 2, 3)
        assert scope["model"].score(scope["X"][400:], scope["y"][400:]) > 0.999
    print("done:", name)
"""


@pytest.mark.slow
@pytest.mark.parametrize("part", range(3))
def test_python_on_pages_runs(part, monkeypatch):
    """As users run it, in three processes; what fails says on which page."""
    elsewhere = "docs/connections.md"  # test_connections.py: it needs other libraries
    names = [name_of(path) for path in PAGES if blocks(path, "python") and name_of(path) != elsewhere][part::3]
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    assert [line for line in run_as_users_do(RUN, *names).splitlines() if line.startswith("done:")] == [
        f"done: {name}" for name in names
    ]


@pytest.fixture(scope="module")
def houses():
    """Return the table that the pages' commands read, small and quick to fit."""
    pd, np = pytest.importorskip("pandas"), pytest.importorskip("numpy")
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"area": rng.uniform(40, 200, 90), "district": rng.choice(["centre", "north"], 90)})
    return table.assign(price=2000 * table["area"] + 1e4 * (table["district"] == "centre") + rng.normal(0, 1e3, 90))


@pytest.mark.parametrize("path", with_blocks("sh"))
def test_commands_on_pages_run(path, tmp_path, monkeypatch, houses):
    """Commands of vpboost are carried out; of make, pip and python, what they name must exist."""
    monkeypatch.chdir(tmp_path)
    for name in ("houses.csv", "new.csv", "test.csv"):
        houses.to_csv(name, index=False)
    for line in "".join(blocks(path, "sh")).splitlines():
        program, *arguments = shlex.split(line, comments=True) or ["make"]
        if program == "vpboost":
            quick = ["--n-estimators", "3", "--quiet"] if arguments[0] == "train" else []
            assert main([*arguments, *quick]) in (None, 0), line
        elif program == "make":
            targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
            assert set(arguments) <= set(targets), line
        else:
            assert program in ("pip", "python"), line
            scripts = [one for one in arguments if one.endswith(".py")]
            assert all((ROOT / script).exists() for script in scripts), line


def anchors(path):
    """Return the anchors of a page's headings, as code hosts and the site make them."""
    text = re.sub(r"^ *```.*?^ *```", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", re.sub(r"[`*]", "", title).lower()).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_links_lead_somewhere(path):
    """Links to other sites are for ``make linkcheck``, which needs a network."""
    text = re.sub(r"^ *```(?!\{).*?^ *```", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
    for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "", text)):
        if re.match(r"https?://|mailto:", target):
            continue
        file, _, anchor = target.partition("#")
        found = (path.parent / file).resolve() if file else path
        assert found.exists(), f"{target} does not exist"
        assert not anchor or anchor in anchors(found), f"{target}: no such heading"


def test_every_page_is_in_a_table_of_contents():
    listed = set()
    for path in PAGES:
        for tree in re.findall(r"```\{toctree\}\n(.*?)```", path.read_text(), re.DOTALL):
            entries = [re.sub(r".*<(.*)>", r"\1", line) for line in tree.splitlines() if line and line[0] != ":"]
            listed |= {(path.parent / f"{entry}.md").resolve() for entry in entries}
    assert {path for path in PAGES if DOCS in path.parents} - listed == {DOCS / "index.md"}


@pytest.mark.parametrize("path", EXAMPLES, ids=name_of)
def test_examples_have_a_title_and_a_picture_and_are_listed(path):
    """That they run is shown by ``make docs``."""
    text = path.read_text()
    assert re.match(r'"""\n(.+)\n=+\n', text)
    assert "plt.show()" in text
    assert "\nassert " in text
    assert name_of(path) in (DOCS / "examples.md").read_text()


def test_the_gallery_is_complete():
    assert len(EXAMPLES) >= 10
    assert {path.parent.name for path in EXAMPLES} == {
        path.parent.name for path in (ROOT / "examples").glob("*/GALLERY_HEADER.rst")
    }
