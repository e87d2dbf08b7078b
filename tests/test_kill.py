import random

import pytest

import kill_fits


@pytest.mark.long
@pytest.mark.slow
def test_a_killed_fit_resumes_to_the_same_bits(tmp_path, monkeypatch):
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    assert kill_fits.kill_fits(1, "quick", random.Random(0), tmp_path) == 1


def test_a_killed_save_leaves_a_whole_file(tmp_path):
    assert len(kill_fits.kill_saves(4, random.Random(0), tmp_path)) >= 1
