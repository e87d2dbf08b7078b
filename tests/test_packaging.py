"""What is said twice about the package is said alike: requirements, extras, versions, the changelog."""

import re
import tomllib
from itertools import pairwise
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import smoke
import vpboost

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
CHANGELOG = (ROOT / "CHANGELOG.md").read_text()
#: The sections of "Keep a Changelog", in its order.
SECTIONS = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")


def yaml_of(path):
    return pytest.importorskip("yaml").safe_load((ROOT / path).read_text())


def pins(path):
    """The versions of a constraints file, by name."""
    lines = [line for line in (ROOT / path).read_text().splitlines() if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[\w.-]+==[\w.+!-]+", line) for line in lines), "name==version, nothing else"
    return {canonicalize_name(name): Version(version) for name, version in (line.split("==") for line in lines)}


def test_constraints_are_sorted_and_within_the_bounds():
    for path in ("constraints.txt", "constraints-lowest.txt"):
        names = list(pins(path))
        assert names == sorted(names), path
    for requirement in [
        Requirement(text) for group in ([PROJECT["dependencies"]], EXTRAS.values()) for one in group for text in one
    ]:
        for path in ("constraints.txt", "constraints-lowest.txt"):
            version = pins(path).get(canonicalize_name(requirement.name))
            assert version is None or version in requirement.specifier, f"{path}: {requirement}"


def test_the_lowest_versions_are_the_lower_bounds():
    lowest = pins("constraints-lowest.txt")
    tested = re.search(r'^extras="([\w,]+)"$', (ROOT / ".ci" / "lowest").read_text(), re.MULTILINE)[1].split(",")
    assert set(tested) == set(smoke.EXTRAS)
    for requirement in map(
        Requirement, [*PROJECT["dependencies"], *(text for extra in tested for text in EXTRAS[extra])]
    ):
        bound = next(Version(one.version) for one in requirement.specifier if one.operator == ">=")
        found = lowest[canonicalize_name(requirement.name)]
        assert found.release[: len(bound.release)] == bound.release, f"{requirement}, but {found} was tested"


def test_the_conda_recipe_has_the_same_requirements():
    recipe = yaml_of("conda/recipe.yaml")
    wanted = {f"{r.name} {r.specifier}": None for r in map(Requirement, PROJECT["dependencies"])}
    listed = [str(Requirement(line.replace(" ", "", 1))) for line in recipe["requirements"]["run"]]
    ours = {str(Requirement(text)) for text in wanted} | {f"python{PROJECT['requires-python']}"}
    assert set(listed) == ours
    assert recipe["about"]["summary"] == PROJECT["description"]


def test_hooks_have_the_versions_of_the_constraints():
    known = pins("constraints.txt")
    hooks = yaml_of(".pre-commit-config.yaml")["repos"][0]["hooks"]
    used = {text for hook in hooks for text in hook.get("additional_dependencies", [])}
    for name, version in (text.split("==") for text in used):
        assert known[canonicalize_name(name)] == Version(version)
    assert {"ruff-check", "codespell", "large-files", "types"} <= {hook["id"] for hook in hooks}


def test_every_extra_of_users_is_smoke_tested():
    inside = {"dev", "docs", "benchmarks", "experiments", "cuda"}  # the last needs a GPU, and gigabytes
    assert set(smoke.EXTRAS) == set(EXTRAS) - inside
    script = (ROOT / ".ci" / "release-check").read_text()
    assert set(re.search(r"\$wheel\[([\w,]+)\]", script).group(1).split(",")) == set(smoke.EXTRAS)


def test_workflows_try_the_versions_of_the_classifiers():
    jobs = yaml_of(".github/workflows/ci.yml")["jobs"]
    claimed = {c.rsplit(" ", 1)[1] for c in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", c)}
    for name in ("linux", "elsewhere"):
        assert set(jobs[name]["strategy"]["matrix"]["python"]) == claimed
    assert set(jobs["elsewhere"]["strategy"]["matrix"]["os"]) == {"macos-latest", "windows-latest"}
    publish = yaml_of(".github/workflows/release.yml")["jobs"]["publish"]
    assert publish["permissions"] == {"id-token": "write"}
    assert not any("password" in str(step) for step in publish["steps"])


def test_the_changelog_keeps_its_form():
    headings = re.findall(r"^## (.*)$", CHANGELOG, re.MULTILINE)
    assert headings[0] == "[Unreleased]"
    released = [re.fullmatch(r"\[(\d+\.\d+\.\d+)\] - (\d{4}-\d\d-\d\d)( \[YANKED\])?", line) for line in headings[1:]]
    assert all(released), headings
    assert all(Version(a[1]) > Version(b[1]) and a[2] >= b[2] for a, b in pairwise(released))
    for part in re.split(r"^## .*$", CHANGELOG, flags=re.MULTILINE)[1:]:
        sections = re.findall(r"^### (.*)$", part, re.MULTILINE)
        assert sections == [name for name in SECTIONS if name in sections], "each once, in order"


def test_the_version_is_one():
    assert Version(vpboost.__version__)
    assert (ROOT / "src" / "vpboost" / "py.typed").exists()
    assert "version" in PROJECT["dynamic"]
