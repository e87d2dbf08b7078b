"""The experiments' methods against independent oracles, the protocol's resumption, and every command in quick mode."""

import json
import re
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experiments import boosting, claims, grownet, networks, pictures, report, scaling, study, tables, timing
from experiments.data import Parts
from experiments.problems import PROBLEMS
from experiments.protocol import Fitted, Method, Point, always, between, thinned
from experiments.runner import METHODS, run
from sklearn.linear_model import LogisticRegression

from vpboost import BinaryCrossEntropy, MulticlassCrossEntropy, SquaredError

pytestmark = pytest.mark.slow

RNG = np.random.default_rng(0)


@pytest.mark.slow
@pytest.mark.long
def test_capacities_are_the_paper_s():
    expected = {"task1": 570, "task2": 185, "task3": 10 * (52 + 25), "cdr": 35_040, "mnist": 7635, "higgs": 25_625}
    shapes = {"cdr": ((55,), 72), "mnist": ((28, 28), 10), "higgs": ((28,), 1), "task3": ((2,), 5)}
    for name, size in expected.items():
        problem = PROBLEMS[name]
        shape, n_outputs = shapes.get(name, ((2,), 1))
        assert problem.n_learners * networks.capacity(problem, problem.width, shape, n_outputs) == size
        width = networks.matched_width(problem, shape, n_outputs)
        assert abs(networks.capacity(problem, width, shape, n_outputs) - size) < 0.06 * size
        n_trees, depth = problem.trees
        assert abs(n_outputs * n_trees * (2**depth - 1) - size) < 0.2 * size


def test_measures():
    raw, target = RNG.normal(size=(40, 3)), RNG.integers(0, 3, 40)
    chances = np.exp(raw) / np.exp(raw).sum(axis=1, keepdims=True)
    found = PROBLEMS["task3"].measure(raw + 1e3, target)
    np.testing.assert_allclose(found["loss"], -np.log(chances[np.arange(40), target]).mean(), rtol=1e-9)
    assert found["accuracy"] == np.mean(raw.argmax(axis=1) == target)
    binary = (target > 0).astype(int)
    found = PROBLEMS["task2"].measure(raw[:, :1], binary)
    chance = 1 / (1 + np.exp(-raw[:, 0]))
    np.testing.assert_allclose(found["loss"], -np.log(np.where(binary == 1, chance, 1 - chance)).mean(), rtol=1e-9)
    field = RNG.normal(size=(40, 3))
    found = PROBLEMS["cdr"].measure(raw, field)
    np.testing.assert_allclose(found["loss"], np.mean((raw - field) ** 2))
    np.testing.assert_allclose(found["r2"], 1 - np.sum((raw - field) ** 2) / np.sum((field - field.mean(axis=0)) ** 2))


@pytest.mark.parametrize("kind", ["binary", "multiclass", "regression"])
def test_newton_solves_for_the_linear_weights(kind, x64):
    z = jnp.asarray(RNG.normal(size=(5, 300)))
    reg, n_outputs = 1e-2, {"binary": 1, "multiclass": 3, "regression": 2}[kind]
    labels = np.argmax(np.asarray(z[:3].T) + RNG.gumbel(size=(300, 3)), axis=1)
    loss, y = {
        "binary": (BinaryCrossEntropy(), jnp.asarray(labels == 0, float)[:, None]),
        "multiclass": (MulticlassCrossEntropy(3), jnp.asarray(labels)),
        "regression": (SquaredError(), jnp.asarray(RNG.normal(size=(300, 2)))),
    }[kind]
    start = jnp.zeros((5, n_outputs))
    found = networks.newton(loss, z, y, jnp.zeros(n_outputs), start, jnp.asarray(reg), 15)
    if kind == "regression":
        expected = np.linalg.solve(z @ z.T / 300 + reg * np.eye(5), z @ y / 300)
    else:
        model = LogisticRegression(C=1 / (300 * reg), fit_intercept=False, tol=1e-10, max_iter=1000)
        expected = model.fit(z.T, labels == 0 if kind == "binary" else labels).coef_.T
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.slow
@pytest.mark.long
def test_newton_by_conjugate_gradients_lowers_the_gradient(x64):
    z, y = jnp.asarray(RNG.normal(size=(60, 400))), jnp.asarray(RNG.integers(0, 5, 400))
    loss, reg = MulticlassCrossEntropy(5), jnp.asarray(1e-2)

    def value(weights):
        return jnp.mean(loss.value(z.T @ weights, y)) + 0.5 * reg * jnp.sum(weights**2)

    found = networks.newton(loss, z, y, jnp.zeros(5), jnp.zeros((60, 5)), reg, 15)
    assert jnp.linalg.norm(jax.grad(value)(found)) < 1e-4


def test_grownet_s_model_is_exact_for_squared_error(x64):
    x, y = jnp.asarray(RNG.normal(size=(50, 3))), jnp.asarray(RNG.normal(size=(50, 2)))
    learners = grownet.initial(jax.random.key(0), 3, 3, 4, 2)
    loss, constant = SquaredError(), jnp.array([0.3, -0.2])
    two = grownet.first(learners, 2)
    hidden, before = grownet.predict(two, constant, x)
    new = jax.tree.map(lambda array: array[2], learners)._replace(rate=jnp.asarray(1.0))
    model = grownet.quadratic_model(new, loss, (x, y, hidden, before))
    after = grownet.predict(learners._replace(rate=learners.rate.at[2].set(1.0)), constant, x)[1]
    np.testing.assert_allclose(model, jnp.mean(loss.value(after, y)) - jnp.mean(loss.value(before, y)), rtol=1e-9)


def small(kind):
    x = RNG.normal(size=(120, 2))
    curve = np.sin(2 * x[:, 0]) * x[:, 1]
    y = {"task1": curve, "task2": (curve > 0).astype(int), "task3": np.digitize(curve, [-0.6, -0.2, 0.2, 0.6])}[kind]
    return Parts(x[:60], y[:60], x[60:90], y[60:90], x[90:], y[90:])


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("task", ["task1", "task2", "task3"])
def test_trust_region_trees_never_raise_the_training_loss(task):
    problem = PROBLEMS[task]._replace(trees=(12, 3))
    fitted = METHODS["trboost"].fit(problem, small(task), {"mu": 1e-3, "reg_lambda": 1e-3}, 0)
    losses = [point.train for point in fitted.curve]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < 0.5 * losses[0]
    train = problem.measure(fitted.predict(small(task).x_train), small(task).y_train)["loss"]
    assert any(np.isclose(train, loss, rtol=1e-4) for loss in losses) or train > losses[-1]


def noisy(problem, parts, config, seed):
    """Fit nothing: the loss depends on the configuration alone."""
    return Fitted(lambda x: np.full((len(x), 1), np.log(config["a"]) + 0.01 * seed), 1.0, 3, [Point(1, 0.5, 2.0, 3.0)])


FAKE = Method("fake", "a fake", always({"a": between(0.1, 10.0)}), noisy)


def stored(folder, *steps):
    problem = PROBLEMS["task1"]
    for n_trials, n_seeds in steps:
        store = study.Store(folder, problem, FAKE)
        study.tune(problem, FAKE, store, n_trials, lambda text: None)
        study.confirm_leader(problem, FAKE, store, lambda text: None)
        study.rerun(problem, FAKE, store, n_seeds, lambda text: None)
    return json.loads((folder / "task1" / "fake.json").read_text())


def test_a_study_that_was_stopped_goes_on_to_the_same_results(tmp_path):
    whole = stored(tmp_path / "whole", (14, 3))
    parts = stored(tmp_path / "parts", (3, 1), (14, 2), (14, 3))
    assert [len(whole[kind]) for kind in ("trials", "seeds")] == [14, 3]
    assert parts["trials"] == whole["trials"]
    assert parts["config"] == whole["config"]
    assert parts["seeds"] == whole["seeds"]  # those of the earlier, worse configuration are gone
    best = min(whole["trials"], key=lambda trial: trial["loss"])
    assert abs(np.log(best["config"]["a"])) < 0.5  # the target's mean is about zero


def test_a_loss_that_is_no_number_is_the_worst(tmp_path):
    def broken(problem, parts, config, seed):
        return Fitted(lambda x: np.full((len(x), 1), np.nan), 1.0, 0, [])

    method = FAKE._replace(fit=broken)
    store = study.Store(tmp_path, PROBLEMS["task1"], method)
    study.tune(PROBLEMS["task1"], method, store, 2, lambda text: None)
    assert all(trial["loss"] == study.WORST for trial in store.trials)


def test_results_of_other_settings_are_not_mixed(tmp_path):
    stored(tmp_path, (2, 1))
    with pytest.raises(ValueError, match="other settings"):
        study.Store(tmp_path, PROBLEMS["task1"].quick(), FAKE)


def test_a_lucky_configuration_does_not_win(tmp_path):
    def lucky(problem, parts, config, seed):  # the better on the tuning seed, the worse on others
        shift = config["a"] if seed == study.TUNING_SEED else 10 / config["a"]
        return Fitted(lambda x: np.full((len(x), 1), shift), 1.0, 1, [])

    method = FAKE._replace(fit=lucky)
    store = study.Store(tmp_path, PROBLEMS["task1"], method)
    study.tune(PROBLEMS["task1"], method, store, 12, lambda text: None)
    tuned = min(store.trials, key=lambda trial: trial["loss"])["config"]
    study.confirm_leader(PROBLEMS["task1"], method, store, lambda text: None)
    assert store.winner()["a"] > tuned["a"]
    assert len(store.losses(store.winner())) == 1 + PROBLEMS["task1"].finals


def test_a_network_that_diverges_keeps_its_best_record():
    fitted = METHODS["network"].fit(
        PROBLEMS["task1"].quick(), small("task1"), {"step_size": 1e30, "reg_lambda": 0.0}, 0
    )
    assert np.isfinite(fitted.predict(small("task1").x_val)).all()


def test_thinned_curves_keep_their_end():
    points = [Point(i, i, i, i) for i in range(205)]
    assert thinned(points, 40)[-1] == points[-1]
    assert 40 <= len(thinned(points, 40)) <= 42
    assert thinned(points[:7], 40) == points[:7]


def test_time_to_a_loss_and_the_comparison():
    gd, vp = [[1.0, 9.0], [2.0, 4.0]], [[0.5, 4.0], [3.0, 1.0]]
    assert scaling.seconds_to(vp, 4.0) == 0.5
    assert scaling.seconds_to(vp, 0.5) == float("inf")
    row = scaling.comparison({"7": [{"gd": gd, "vp": vp, "vp_sketch": gd}]})[7]["vp"]
    assert (row["speedup"], row["loss_ratio"], row["total_seconds"]) == (4.0, 4.0, 3.0)


def test_trials_of_other_parameters_are_refused(tmp_path):
    store = study.Store(tmp_path, PROBLEMS["task1"], METHODS["vp"])
    store.add("trials", {"config": {"step_size": 0.1}, "loss": 1.0})
    with pytest.raises(ValueError, match=r"vp.json has trials of other parameters, step_size: move it away"):
        study.Store(tmp_path, PROBLEMS["task1"], METHODS["vp"])


def test_verdicts():
    low, high = np.array([1.0, 1.1, 0.9]), np.array([2.0, 2.2, 1.9])
    assert [claims.better(low, high, "loss"), claims.better(high, low, "loss")] == ["yes", "no"]
    assert [claims.better(low, high, "auc"), claims.better(low, np.array([1.1, 1.0, 0.95]), "loss")] == ["no", "open"]
    assert claims.all_of(["yes", "open", "no"]) == "no"


@pytest.mark.parametrize(("n_vp", "n_rival", "held"), [(10, 10, "yes"), (13, 10, "yes"), (13, 9, "not run")])
def test_verdicts_compare_the_seeds_that_all_have(tmp_path, n_vp, n_rival, held):
    (tmp_path / "task1").mkdir()
    for method, n, loss in (("vp", n_vp, 1.0), ("gd", n_rival, 2.0)):
        # seeds beyond the tenth would turn the verdict
        seeds = [{"seed": i, "test": {"loss": loss if i <= 10 else 1e3}} for i in range(1, n + 1)]
        (tmp_path / "task1" / f"{method}.json").write_text(json.dumps({"method": method, "seeds": seeds}))
    titles = {"vp": "VPBoost", "gd": "GDBoost"}
    verdict = claims.judge(tmp_path, "a claim", "task1", ("vp",), ("gd",), "loss", titles)
    assert verdict.held == held
    assert verdict.numbers == ("not all seeds" if held == "not run" else "VPBoost 1, GDBoost 2")


def test_unknown_methods_are_refused(capsys):
    with pytest.raises(SystemExit):
        run(["task1"], ["--methods", "nonsense"])
    assert "vp_start_end" in capsys.readouterr().err


#: Every kind of method on every kind of loss, but not what differs in settings only: most of the time is compilation.
QUICK = {
    "task1": ["gd", "vp_more", "network", "network_vp", "grownet", "xgboost", "trboost", "lightgbm_free"],
    "task2": ["vp_back", "network_vp", "xgboost_free", "trboost", "catboost_free"],
    "task3": ["vp", "network_vp", "xgboost", "trboost", "lightgbm_free"],
}


@pytest.mark.parametrize(
    "task", [pytest.param(task, marks=pytest.mark.long) if task in ("task2", "task3") else task for task in QUICK]
)
def test_quick_mode(tmp_path, task, capsys):
    options = ["--quick", "--results", str(tmp_path), "--trials", "1", "--seeds", "2", "--methods", *QUICK[task]]
    run([task], options)
    assert "mean over seeds ±" in capsys.readouterr().out
    found = tables.load(tmp_path, task)
    assert set(found) == set(QUICK[task])
    for content in found.values():
        row = tables.statistics(content)
        assert np.isfinite(row["loss"][0])
        assert (row["trials"], row["seeds"]) == (1, 2)
    path = tmp_path / task / f"{QUICK[task][0]}.json"
    written = path.stat().st_mtime_ns
    run([task], options)  # nothing is left to do
    assert path.stat().st_mtime_ns == written


@pytest.mark.long
def test_quick_pictures_timing_and_scaling(tmp_path, capsys):
    for task in ("task1", "task2", "task3"):
        (tmp_path / task).mkdir()
        shutil.copy(study.RESULTS / task / "xgboost.json", tmp_path / task)
    for module in (pictures, timing, scaling):
        module.main(["--quick", "--results", str(tmp_path)])
    with np.load(tmp_path / "task3" / "pictures.npz", allow_pickle=False) as file:
        assert file["xgboost"].shape == (pictures.SIDE**2, 5)
    times = json.loads((tmp_path / "timing.json").read_text())
    assert all(len(times[task]["xgboost"]["runs"]) == 2 for task in ("task1", "task2", "task3"))
    rows = scaling.comparison(json.loads((tmp_path / "scaling.json").read_text()))
    assert set(rows) == {1, 8}
    assert "GDBoost's final loss" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.long
def test_the_report_draws_and_tells_what_is_stored(tmp_path):
    page = tmp_path / "results.md"
    page.write_text(
        "".join(f"<!-- begin {name} -->\nto be replaced\n<!-- end {name} -->\n" for name in ("tasks", "claims"))
    )
    report.main(["--page", str(page)])
    text = page.read_text()
    assert "to be replaced" not in text
    assert "| VPBoost |" in text
    assert "VPBoost has the lowest loss among boosting methods on task1" in text
    drawn = {path.name for path in (tmp_path / "results").iterdir()}
    assert drawn == {path.name for path in (report.PAGE.parent / "results").iterdir()}


@pytest.mark.slow
@pytest.mark.long
def test_the_committed_page_shows_the_committed_results():
    page = report.PAGE.read_text()
    assert report.filled(page, report.texts(study.RESULTS)) == page
    linked = set(re.findall(r"\(results/([\w-]+\.png)\)", page))
    assert linked == {path.name for path in (report.PAGE.parent / "results").iterdir()}


def test_matched_trees_have_the_paper_s_sizes():
    assert [PROBLEMS[name].trees for name in ("mnist", "cdr", "higgs")] == [(20, 5), (18, 5), (200, 7)]
    assert len(boosting.METHODS) == 8


def test_a_method_goes_on_from_the_winner_of_another(tmp_path):
    best = stored(tmp_path, (14, 1))["config"]["a"]
    space = {"a": between(0.1, 10.0), "b": between(0.1, 10.0)}
    more = FAKE._replace(name="more", space=always(space), after="fake", begin={"b": 2.0})
    for method in (more, more._replace(name="kept", keep=True)):
        store = study.Store(tmp_path, PROBLEMS["task1"], method)
        study.tune(PROBLEMS["task1"], method, store, 4, lambda text: None)
        tried = [trial["config"] for trial in store.trials]
        assert tried[0] == {"a": best, "b": 2.0}
        assert len({config["b"] for config in tried}) == 4
        assert len({config["a"] for config in tried}) == (1 if method.keep else 4)
