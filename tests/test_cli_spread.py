"""Distributions, intervals, quantiles and label sets on the command line."""

import io
import json

import numpy as np
import onnxruntime
import pandas as pd
import pytest

from test_cli import QUICK, fail, run, succeed
from test_cli_usage import usage
from vpboost import load_model

NO_RACE = ["--engine", "numpy", "--set", "max_features=none", "--set", "n_chains=1"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a table, and a model of each kind."""
    folder, rng = tmp_path_factory.mktemp("spread"), np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=200), "b": rng.normal(size=200)})
    frame["y"] = frame["a"] + np.exp(0.5 * frame["b"]) * rng.normal(size=200)
    frame["z"] = np.exp(0.3 * frame["y"])
    frame["k"] = np.where(frame["y"] > 0, "u", "v")
    frame.to_csv(folder / "t.csv", index=False)
    frame[["a", "b"]].head(9).to_csv(folder / "new.csv", index=False)
    for name, options in {
        "normal": ["--target", "y", "--target", "z", "--ignore", "k", "--distribution", "normal"],
        "counts": ["--target", "n", "--distribution", "negative_binomial"],
        "plain": ["--target", "y", "--ignore", "z", "--ignore", "k"],
        "bare": ["--target", "y", "--ignore", "z", "--ignore", "k", "--no-training-rows"],
        "levels": ["--target", "y", "--target", "z", "--ignore", "k", "--quantiles", "0.1,0.5,0.9"],
        "classes": ["--target", "k", "--ignore", "y", "--ignore", "z"],
    }.items():
        table = folder / "t.csv"
        if name == "counts":
            table = folder / "n.csv"
            frame[["a", "b"]].assign(n=rng.poisson(frame["z"])).to_csv(table, index=False)
        assert run("train", table, *options, "-o", folder / name, "--quiet", *QUICK, *NO_RACE) == 0
    return folder


def predict(capsys, folder, name, *options):
    """Return what the command line predicts, the estimator, and the rows."""
    found = pd.read_csv(io.StringIO(succeed(capsys, "predict", folder / name, folder / "new.csv", *options)))
    return found, load_model(folder / name), pd.read_csv(folder / "new.csv")


def test_intervals_and_standard_deviations_of_several_targets(folder, capsys):
    found, model, X = predict(capsys, folder, "normal", "--interval", "0.8", "--std")
    expected = ["predicted_y", "predicted_z", "y_low", "z_low", "y_high", "z_high", "y_std", "z_std"]
    assert list(found) == expected
    low, high = model.predict_interval(X, 0.8)
    values = np.concatenate([model.predict(X), low, high, model.predict_dist(X).std()], axis=1)
    np.testing.assert_allclose(found, values, rtol=1e-12)


def test_intervals_that_hold_all_targets_at_once(folder, tmp_path, capsys):
    found, model, X = predict(capsys, folder, "normal", "--interval", "0.8", "--simultaneous")
    assert list(found) == ["predicted_y", "predicted_z", "y_low", "z_low", "y_high", "z_high"]
    bounds = model.predict_interval(X, 0.8, simultaneous=True)
    np.testing.assert_allclose(found.iloc[:, 2:], np.concatenate(bounds, axis=1), rtol=1e-12)
    command = ["export", folder / "normal", "-o", tmp_path / "m.onnx", "--dtype", "float64", "--simultaneous"]
    succeed(capsys, *command, "--coverage", "0.8")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(["low", "high"], {"X": X.to_numpy()}), bounds, rtol=1e-9)
    assert "--simultaneous goes with --coverage, of a regressor" in fail(capsys, *command)
    command[1] = folder / "classes"
    assert "--simultaneous goes with --coverage, of a regressor" in fail(capsys, *command, "--coverage", "0.8")
    assert "--simultaneous is for ONNX" in fail(capsys, *command, "--to", "numpy")
    for name in ("normal", "classes"):
        command = ["predict", folder / name, folder / "new.csv", "--simultaneous"]
        assert "--simultaneous goes with --interval" in fail(capsys, *command)


def test_what_models_without_a_distribution_know(folder, capsys):
    found, model, X = predict(capsys, folder, "plain", "--std", "--interval", "0.5")
    assert list(found) == ["predicted_y", "y_low", "y_high", "y_std"]
    np.testing.assert_allclose(found["y_std"], model.predict(X, return_std=True)[1], rtol=1e-12)
    found, model, X = predict(capsys, folder, "bare", "--interval", "0.5")
    np.testing.assert_allclose(found["y_high"], model.predict_interval(X, 0.5)[1], rtol=1e-12)
    printed = fail(capsys, "predict", folder / "bare", folder / "new.csv", "--std")
    assert "--std: how sure the model is" in printed
    assert "training_rows=False" in printed
    printed = fail(capsys, "predict", folder / "plain", folder / "new.csv", "--interval", "0.9999")
    assert "--interval 0.9999: coverage=0.9999 needs the errors of 9999 rows" in printed


def test_several_quantiles(folder, capsys):
    found, model, X = predict(capsys, folder, "levels")
    assert list(found) == [f"predicted_{name}_{level}" for name in "yz" for level in (0.1, 0.5, 0.9)]
    np.testing.assert_allclose(found, model.predict(X).reshape(9, -1), rtol=1e-12)
    measured = json.loads(succeed(capsys, "evaluate", folder / "levels", folder / "t.csv", "--json"))
    frame = pd.read_csv(folder / "t.csv")
    error = frame[["y", "z"]].to_numpy()[:, :, None] - model.predict(frame[["a", "b"]])
    levels = np.array([0.1, 0.5, 0.9])
    expected = np.where(error > 0, levels * error, (levels - 1) * error).mean()
    assert measured["pinball_loss"] == pytest.approx(expected)
    assert measured["below 0.1"] < 0.3 < measured["below 0.5"] < 0.7 < measured["below 0.9"]
    assert "--std: a model of quantiles has no standard deviation" in fail(
        capsys, "predict", folder / "levels", folder / "new.csv", "--std"
    )


def test_label_sets(folder, capsys):
    found, model, X = predict(capsys, folder, "classes", "--set", "0.8", "--probabilities")
    assert list(found) == ["predicted_k", "probability_u", "probability_v", "set_u", "set_v"]
    np.testing.assert_array_equal(found[["set_u", "set_v"]], model.predict_set(X, 0.8))
    measured = json.loads(succeed(capsys, "evaluate", folder / "classes", folder / "t.csv", "--json"))
    frame = pd.read_csv(folder / "t.csv")
    held = model.predict_set(frame[["a", "b"]])[np.arange(200), (frame["k"] == "v").astype(int)]
    assert measured["coverage_90"] == pytest.approx(held.mean())


def test_what_is_asked_of_the_wrong_model(folder, capsys):
    for name, option, message in (
        ("classes", ["--interval", "0.9"], "--interval is for regressors; the model is a classifier; give --set"),
        ("classes", ["--std"], "--std is for regressors; the model is a classifier; give --probabilities"),
        ("plain", ["--set", "0.9"], "--set is for classifiers; the model is a regressor; give --interval"),
        ("plain", ["--probabilities"], "--probabilities is for classifiers; the model is a regressor"),
    ):
        assert message in fail(capsys, "predict", folder / name, folder / "new.csv", *option)
    for option in ("--interval", "--set"):
        for wrong in ("90", "0", "nan", "x"):
            printed = usage(capsys, "predict", folder / "plain", folder / "new.csv", option, wrong)
            assert f"must be a number between 0 and 1, such as 0.9, got '{wrong}'" in printed


def test_evaluation_of_distributions(folder, capsys):
    frame = pd.read_csv(folder / "n.csv")
    model = load_model(folder / "counts")
    measured = json.loads(succeed(capsys, "evaluate", folder / "counts", folder / "n.csv", "--json"))
    law, y = model.predict_dist(frame[["a", "b"]]), frame["n"].to_numpy()
    assert measured["nll"] == pytest.approx(-law.law.logpmf(y).mean())
    assert measured["crps"] == pytest.approx(law.crps(y).mean())
    low, high = model.predict_interval(frame[["a", "b"]], 0.9)
    assert measured["coverage_90"] == pytest.approx(((low <= y) & (y <= high)).mean())
    printed = succeed(capsys, "evaluate", folder / "normal", folder / "t.csv")
    assert [line.split()[0] for line in printed.splitlines()][-3:] == ["coverage_90", "nll", "crps"]
    assert "nll" not in succeed(capsys, "evaluate", folder / "plain", folder / "t.csv")


def test_what_a_file_says_of_errors(folder, capsys):
    model = load_model(folder / "normal")
    printed = succeed(capsys, "inspect", folder / "normal")
    assert "distribution:  normal\n" in printed
    assert f"intervals by:  errors of {len(model._conformity.scores)} rows not trained on\n" in printed
    assert f"rows inside:   {len(model._evidence.rows)} of the training table, encoded, with their targets\n" in printed
    printed = succeed(capsys, "inspect", folder / "bare")
    assert "intervals by:" in printed
    assert "rows inside" not in printed
    assert "distribution" not in printed


def test_exports_with_intervals(folder, tmp_path, capsys):
    succeed(capsys, "export", folder / "normal", "-o", tmp_path / "m.onnx", "--coverage", "0.9")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    assert [output.name for output in session.get_outputs()] == ["prediction", "std", "low", "high"]
    command = ["export", folder / "normal", "--to", "numpy", "-o", tmp_path / "plain", "--coverage", "0.9"]
    assert "--coverage is for ONNX" in fail(capsys, *command)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--distribution", "norml"], "did you mean 'normal'?"),
        (
            ["--distribution", "normal", "--loss", "poisson"],
            "normal brings its own loss; leave out --loss",
        ),
        (["--distribution", "gamma", "--quantile", "0.5"], "brings its own loss; leave out --quantile"),
        (["--distribution", "normal", "--task", "classification"], "--distribution is for regressions"),
        (["--distribution", "lognormal"], "y must be positive"),
        (["--quantiles", "0.9,0.1"], "--quantiles: level must rise"),
        (["--quantiles", "0.1,2"], "--quantiles: level must be in (0, 1), got 2"),
        (["--quantiles", "0.1,0.9", "--quantile", "0.5"], "goes with --loss quantile alone"),
    ],
)
def test_settings_that_do_not_go_together(folder, tmp_path, capsys, options, message):
    command = ["train", folder / "t.csv", "--target", "y", "--ignore", "k", "-o", tmp_path / "m", *QUICK]
    assert message in fail(capsys, *command, *options)


def test_levels_that_are_no_numbers(folder, capsys):
    printed = usage(capsys, "train", folder / "t.csv", "--target", "y", "--quantiles", "0.1;0.9")
    assert "must be numbers with commas between them, such as 0.05,0.5,0.95, got '0.1;0.9'" in printed
