import re
from pathlib import Path

README = (Path(__file__).parent.parent / "README.md").read_text()


def test_the_example_runs_and_learns():
    code = re.search(r"```python\n(.*?)```", README, re.DOTALL).group(1)
    scope = {}
    exec(compile(code, "README.md", "exec"), scope)
    assert scope["prediction"].shape == (100, 2)
    assert scope["slopes"].shape == (100, 2, 3)
    assert scope["model"].score(scope["X"][400:], scope["y"][400:]) > 0.999


def test_linked_files_exist():
    for path in re.findall(r"\]\(([\w./-]+)\)", README):
        assert (Path(__file__).parent.parent / path).exists(), path
