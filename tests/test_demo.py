import numpy as np
import pytest

from vpboost import demo


def test_demo_prints_a_table_and_draws_a_picture(tmp_path, capsys, monkeypatch):
    quick = {name: task._replace(max_steps=20, n_learners=2) for name, task in demo.TASKS.items()}
    monkeypatch.setattr(demo, "TASKS", quick)
    picture = tmp_path / "picture.png"
    demo.main(["--picture", str(picture), "--candidates", "1"])
    printed = capsys.readouterr().out
    assert printed.count(" vp ") == 3
    assert printed.count(" gd ") == 3
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "goal"), [("task1", 1.5e-4), ("task2", 0.02), ("task3", 0.06)])
def test_tasks_reach_their_goals(name, goal):
    """One seed with fewer initialisations; benchmarks/toy_tasks.py has the mean over five of the full settings."""
    result = demo.run(name, "vp", seed=1, candidates=4)
    assert result.test_loss <= goal
    assert all(record.accepted for record in result.fit.history), "no learner lost to rejection"
    assert np.all(np.diff([record.loss for record in result.fit.history]) < 0)
    task = demo.TASKS[name]
    assert result.fit.ensemble.n_parameters == {"task1": 570, "task2": 185, "task3": 10 * (52 + 25)}[name]
    assert result.fit.ensemble.n_learners == task.n_learners
