import json

import numpy as np
import pytest
from matplotlib.figure import Figure

from processes import run_as_users_do
from vpboost.cli import demo
from vpboost.cli.main import main

pytestmark = pytest.mark.slow


def test_demo_prints_a_table_and_draws_a_picture(tmp_path, capsys, monkeypatch):
    quick = {name: task._replace(max_steps=20, n_learners=2) for name, task in demo.TASKS.items()}
    monkeypatch.setattr(demo, "TASKS", quick)
    picture = tmp_path / "picture.png"
    main(["demo", "--picture", str(picture), "--candidates", "1"])
    printed = capsys.readouterr().out
    assert printed.count(" vp ") == 3
    assert printed.count(" gd ") == 3
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_picture_that_cannot_be_finished_leaves_the_old_one(tmp_path, monkeypatch):
    def fail(self, path, **options):
        path.write_bytes(b"half a picture")
        raise OSError("disk full")

    monkeypatch.setattr(demo, "TASKS", {"task2": demo.TASKS["task2"]._replace(max_steps=2, n_learners=1)})
    monkeypatch.setattr(Figure, "savefig", fail)
    runs = [demo.run("task2", method, candidates=1) for method in ("vp", "gd")]
    picture = tmp_path / "picture.png"
    picture.write_bytes(b"old")
    with pytest.raises(OSError, match="disk full"):
        demo.draw(runs, picture)
    assert picture.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [picture]


SCRIPT = """
import json, sys
from vpboost.cli import demo
result = demo.run(sys.argv[1], "vp", seed=1, candidates=int(sys.argv[2]))
history = result.fit.history
print(json.dumps({
    "test_loss": result.test_loss,
    "losses": [record.loss for record in history],
    "accepted": [record.accepted for record in history],
    "parameters": result.fit.ensemble.n_parameters,
}))
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "candidates", "goal", "parameters"),
    [("task1", 4, 1.5e-4, 570), ("task2", 4, 0.02, 185), ("task3", 2, 0.06, 10 * (52 + 25))],
)
def test_tasks_reach_their_goals(name, candidates, goal, parameters):
    """One seed with fewer initialisations; benchmarks/toy_tasks.py has the mean over five of the full settings."""
    found = json.loads(run_as_users_do(SCRIPT, name, str(candidates)))
    assert found["test_loss"] <= goal
    assert all(found["accepted"]), "no learner lost to rejection"
    assert np.all(np.diff(found["losses"]) < 0)
    assert found["parameters"] == parameters
