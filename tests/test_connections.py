"""The blocks of docs/connections.md run, one after the other, as far as the libraries are installed."""

import importlib.util
import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[1] / "docs" / "connections.md").read_text()
SECTIONS = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
DATA = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL).group(1)
NEEDED = {"MLflow": "mlflow", "Optuna": "optuna", "SHAP, with columns of text": "shap", "Notebooks": "sklearn"}


def test_every_block_is_run():
    with_code = {title for title, text in SECTIONS.items() if "```python" in text}
    assert with_code == set(NEEDED)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("title", NEEDED)
def test_blocks_run(title, tmp_path, monkeypatch):
    if importlib.util.find_spec(NEEDED[title]) is None:
        pytest.skip(f"{NEEDED[title]} is not installed")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file://{tmp_path}/runs")
    scope = {}
    for code in (DATA, *re.findall(r"```python\n(.*?)```", SECTIONS[title], re.DOTALL)):
        exec(compile(code, "connections.md", "exec"), scope)
