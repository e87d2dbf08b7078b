import importlib
import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parent.parent / "docs" / "paper-map.md").read_text()
NAMES = sorted(set(re.findall(r"`(vpboost\.[\w.]+)`", PAGE)))


@pytest.mark.parametrize("name", NAMES)
def test_every_name_in_the_paper_map_exists(name):
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            found = getattr(found, part)
        return
    pytest.fail(f"{name} does not exist")


def test_the_map_names_the_papers_main_results():
    for label in (
        "eq:gbar_formula",
        "eq:hbar_formula",
        "eq:w_opt_form",
        "eq:quadratic_function",
        "eq:reduction_ratio",
        "eq:trust_region_radius_formula",
        "alg:weak_learner_training",
        "alg:trust_region_skeleton_vpboost",
        "def:cauchy_point",
    ):
        assert f"`{label}`" in PAGE
    assert len(NAMES) > 30
