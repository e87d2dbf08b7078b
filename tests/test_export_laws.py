"""Distributions, quantiles, intervals and label sets in exported models; no row of the fit in any of them."""

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from models import QUICK
from test_export import run_onnx
from vpboost import VPBoostClassifier, VPBoostRegressor, distributions, load_model, losses
from vpboost.export import to_numpy, to_onnx
from vpboost.files.container import unpack
from vpboost.predictor import Predictor, law, moments

FAMILIES = ["normal", "lognormal", "student_t", "gamma", "negative_binomial"]
OPTIONS = {**QUICK, "encoding": "quantile", "learning_rate": 0.5}


def table(n=160, seed=0):
    """Rows with holes, of columns in units of their own."""
    X = np.random.default_rng(seed).normal(size=(n, 3)) * [1, 1e-3, 1e4] + [0, 0.5, 3e5]
    X[::9, 1] = np.nan
    return X


def counts(X, seed=1):
    """Numbers from 0 on whose spread grows with the first column."""
    rng = np.random.default_rng(seed)
    mean = np.exp(0.5 * X[:, 0] + 1)
    return rng.negative_binomial(3, 3 / (3 + mean)).astype(float)


@pytest.fixture(scope="module", params=FAMILIES)
def model(request):
    """A model of each distribution; that of the normal one has two outputs."""
    X, shift = table(), 0 if request.param == "negative_binomial" else 0.5
    y = counts(X) + shift
    if request.param == "normal":
        y = np.stack([y, 1e-6 * counts(X, 2)], axis=1)
    return VPBoostRegressor(distribution=request.param, **OPTIONS).fit(X, y)


def alike(found, expected, tolerance=1e-9):
    assert np.shape(found) == np.shape(expected)
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=0)


@pytest.mark.parametrize("kind", ["Normal", "LogNormal", "StudentT", "Gamma", "NegativeBinomial"])
def test_closed_forms_are_those_of_scipy(kind):
    names = {"Gamma": ("mu", "shape"), "NegativeBinomial": ("mu", "size"), "StudentT": ("df", "loc", "scale")}
    values = dict(zip(names.get(kind, ("loc", "scale")), ([2.5, 30.0], [0.7, 1.3], [0.01, 2.0]), strict=False))
    parameters = {name: np.array(value) for name, value in values.items()}
    expected = getattr(distributions, kind)(**parameters)
    mean, std = moments(kind, parameters)
    alike(mean, expected.law.mean(), 1e-12)
    alike(std, expected.law.std(), 1e-12)
    np.testing.assert_array_equal([expected.mean(), expected.std()], [mean, std])


def test_laws_far_out_are_finite():
    scaler = "log", np.array([1e3]), np.zeros(1)
    kind, parameters = law("NegativeBinomialLikelihood", {}, scaler, np.array([[1e9]]), np.array([[1e9]]))
    assert kind == "NegativeBinomial"
    assert all(np.isfinite(value).all() for value in (*parameters.values(), *moments(kind, parameters)))


def test_the_predictor_knows_the_distribution(model, tmp_path):
    to_numpy(model, tmp_path)
    plain, X = Predictor(tmp_path / "model.vpboost"), table(seed=3)
    expected = model.predict_dist(X)
    alike(plain.predict(X), model.predict(X))
    alike(plain.predict_std(X), expected.std())
    parameters = plain.predict_parameters(X)
    assert list(parameters) == list(vars(expected))
    for name, value in parameters.items():
        alike(value, getattr(expected, name))
    for coverage in (0.5, 0.9):
        for found, end in zip(plain.predict_interval(X, coverage), model.predict_interval(X, coverage), strict=True):
            alike(found, end)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-9), ("float32", 1e-4)])
def test_onnx_knows_the_distribution(model, tmp_path, dtype, tolerance):
    X = table(seed=3).astype(dtype)
    found = run_onnx(to_onnx(model, tmp_path / "m.onnx", dtype, coverage=0.8), {"X": X})
    X = X.astype(float)
    assert list(found) == ["prediction", "std", "low", "high"]
    alike(found["prediction"], model.predict(X), tolerance)
    alike(found["std"], model.predict_dist(X).std(), tolerance)
    low, high = model.predict_interval(X, 0.8)
    size = np.abs(high - low)
    assert (np.abs(found["low"] - low) <= tolerance * size).all()
    assert (np.abs(found["high"] - high) <= tolerance * size).all()
    assert list(run_onnx(to_onnx(model, tmp_path / "m.onnx", dtype), {"X": X.astype(dtype)})) == ["prediction", "std"]


def test_narrow_lognormal_distributions_in_onnx(tmp_path):
    """Of σ² = 1e-10, say, e^σ² − 1 has few digits: one has to be careful."""
    X, rng = table(), np.random.default_rng(0)
    model = VPBoostRegressor(distribution="lognormal", **OPTIONS).fit(X, np.exp(1e-5 * rng.normal(size=len(X))))
    found = run_onnx(to_onnx(model, tmp_path / "m.onnx", "float64"), {"X": X})
    assert found["std"].max() < 1e-4
    alike(found["std"], model.predict_dist(X).std())
    expected = model.predict_dist(X)
    alike(found["std"], expected.mean() * expected.scale, 1e-8)  # as of a normal law, up to σ²


@pytest.mark.parametrize("options", [{}, {"loss": "poisson"}, {"loss": losses.Quantile(0.7)}])
def test_intervals_without_a_distribution(options, tmp_path):
    X = table()
    model = VPBoostRegressor(**OPTIONS, **options).fit(X[:100], np.stack([counts(X), counts(X, 2)], axis=1)[:100])
    model.calibrate(X[100:], np.stack([counts(X), counts(X, 2)], axis=1)[100:], np.linspace(0, 2, 60))
    to_numpy(model, tmp_path)
    plain = Predictor(tmp_path / "model.vpboost")
    exported = run_onnx(to_onnx(model, tmp_path / "m.onnx", "float64", 0.9), {"X": X})
    assert list(exported) == ["prediction", "low", "high"]
    for end, found, other in zip(model.predict_interval(X), plain.predict_interval(X), ("low", "high"), strict=True):
        np.testing.assert_allclose(found, end, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(exported[other], end, rtol=1e-9, atol=1e-9)
    for wrong in (plain.predict_std, plain.predict_parameters):
        with pytest.raises(ValueError, match="the model predicts no distribution"):
            wrong(X)


@pytest.mark.parametrize("distribution", [None, "normal"])
def test_bounds_that_hold_all_outputs_at_once(distribution, tmp_path):
    """Outputs of different sizes, one of them with holes: those of a row with all its targets tell the bounds."""
    X = table()
    y = np.stack([counts(X), 1e-6 * counts(X, 2), 1e3 * counts(X, 3)], axis=1)
    y[::3, 1] = np.nan
    model = VPBoostRegressor(distribution=distribution, **OPTIONS).fit(X[:100], y[:100]).calibrate(X[100:], y[100:])
    to_numpy(model, tmp_path)
    plain, X = Predictor(tmp_path / "model.vpboost"), table(seed=3)
    exported = run_onnx(to_onnx(model, tmp_path / "m.onnx", "float64", 0.8, simultaneous=True), {"X": X})
    expected, single = model.predict_interval(X, 0.8, simultaneous=True), model.predict_interval(X, 0.8)
    assert (np.subtract(*expected) < np.subtract(*single)).all(), "wider than those of each output alone"
    size = expected[1] - expected[0]
    for found in (plain.predict_interval(X, 0.8, simultaneous=True), (exported["low"], exported["high"])):
        for end, known in zip(found, expected, strict=True):
            assert (np.abs(end - known) <= 1e-9 * size).all()
    message = "coverage=0.98 needs the errors of 49 rows with all their targets"
    with pytest.raises(ValueError, match=message):
        plain.predict_interval(X, 0.98, simultaneous=True)
    with pytest.raises(ValueError, match=message):
        to_onnx(model, tmp_path / "n.onnx", coverage=0.98, simultaneous=True)
    with pytest.raises(ValueError, match="simultaneous=True is for the intervals of a regressor"):
        to_onnx(model, tmp_path / "n.onnx", simultaneous=True)
    assert not (tmp_path / "n.onnx").exists()


@pytest.mark.parametrize("size", [1e200, 1e-200])
@pytest.mark.parametrize("distribution", [None, "normal"])
def test_intervals_of_numbers_beyond_single_precision(distribution, size, tmp_path):
    X = table()
    model = VPBoostRegressor(distribution=distribution, **OPTIONS).fit(X, size * counts(X))
    found = run_onnx(to_onnx(model, tmp_path / "m.onnx", "float64", 0.9), {"X": X})
    low, high = model.predict_interval(X)
    np.testing.assert_allclose(found["low"] / size, low / size, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found["high"] / size, high / size, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("n_outputs", [1, 2])
def test_several_quantiles(n_outputs, tmp_path):
    X = table()
    y = counts(X) if n_outputs == 1 else np.stack([counts(X), 1e3 * counts(X, 2)], axis=1)
    model = VPBoostRegressor(loss=losses.Quantile([0.45, 0.5, 0.55]), **OPTIONS).fit(X, y)
    raw = np.asarray(model._raw(X)).reshape(len(X), n_outputs, 3)
    assert (np.diff(raw) < 0).any(), "some cross before they are put in order"
    found = run_onnx(to_onnx(model, tmp_path / "m.onnx", "float64"), {"X": X})
    assert (np.diff(found["prediction"]) >= 0).all()
    np.testing.assert_allclose(found["prediction"], model.predict(X), rtol=1e-9, atol=1e-9)
    to_numpy(model, tmp_path)
    plain = Predictor(tmp_path / "model.vpboost")
    np.testing.assert_allclose(plain.predict(X), model.predict(X), rtol=1e-9, atol=1e-9)
    with pytest.raises(ValueError, match="knows no errors of rows that were not trained on"):
        plain.predict_interval(X)
    with pytest.raises(ValueError, match="quantiles are bounds themselves"):
        to_onnx(model, tmp_path / "n.onnx", coverage=0.9)
    assert not (tmp_path / "n.onnx").exists()


@pytest.mark.parametrize("n_classes", [2, 3])
def test_label_sets(n_classes, tmp_path):
    X = table(300)
    y = np.array(["a", "b", "c"])[np.minimum(counts(X).astype(int), n_classes - 1)]
    model = VPBoostClassifier(**OPTIONS).fit(X[:200], y[:200]).calibrate(X[200:], y[200:])
    assert model._temperature != 1
    to_numpy(model, tmp_path)
    X = table(300, seed=3)  # calibration rows may be at the very edge of a set
    plain = Predictor(tmp_path / "model.vpboost")
    exported = run_onnx(to_onnx(model, tmp_path / "m.onnx", "float64", 0.8), {"X": X})
    assert list(exported) == ["label", "probabilities", "set"]
    expected = model.predict_set(X, 0.8)
    assert 0 < expected.mean() < 1
    np.testing.assert_array_equal(plain.predict_set(X, 0.8), expected)
    np.testing.assert_array_equal(exported["set"], expected)
    with pytest.raises(ValueError, match="this is for a VPBoostRegressor; the model is a VPBoostClassifier"):
        plain.predict_interval(X)
    with pytest.raises(ValueError, match=r"coverage must be in \(0, 1\), got 1.5"):
        plain.predict_set(X, 1.5)
    with pytest.raises(ValueError, match=r"coverage=0.999 needs the errors of 999 rows"):
        plain.predict_set(X, 0.999)


@pytest.mark.slow
@pytest.mark.long
def test_likelihoods_of_your_own(tmp_path):
    """Of these, the location is exported."""
    own = losses.CustomLikelihood(lambda p, t: p[1] + (t - p[0]) ** 2 * np.exp(1) ** (-2 * p[1]) / 2, 2)
    X = table()
    model = VPBoostRegressor(distribution=own, n_chains=1, **OPTIONS).fit(X, X[:, 0])
    found = run_onnx(to_onnx(model, tmp_path / "m.onnx", "float64"), {"X": X})
    assert list(found) == ["prediction"]
    np.testing.assert_allclose(found["prediction"], model.predict(X), rtol=1e-9, atol=1e-9)


@pytest.mark.slow
@pytest.mark.long
def test_categories_and_images(tmp_path):
    """Categories are known to the spread, of images only the location is."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"size": rng.normal(size=200), "low": ["red", "blue"] * 100})
    y = frame["size"] + np.where(frame["low"] == "red", 1.0, 0.1) * rng.normal(size=200)
    model = VPBoostRegressor(distribution="normal", **OPTIONS).fit(frame, y)
    to_numpy(model, tmp_path)
    std = Predictor(tmp_path / "model.vpboost").predict_std(frame)
    alike(std, model.predict_dist(frame).std())
    assert std[::2].mean() > 2 * std[1::2].mean()
    inputs = {"X": frame[["size"]].to_numpy(), "category low": frame[["low"]].to_numpy(object)}
    alike(run_onnx(to_onnx(model, tmp_path / "m.onnx", "float64", 0.9), inputs)["std"], std)
    images = rng.normal(size=(80, 4, 4))
    options = {**QUICK, "encoding": "auto", "max_features": None, "n_chains": 1}
    model = VPBoostRegressor(distribution="normal", **options).fit(images, images[:, 0, 0] + rng.normal(size=80))
    to_numpy(model, tmp_path)
    alike(Predictor(tmp_path / "model.vpboost").predict_std(images), model.predict_dist(images).std())
    found = run_onnx(to_onnx(model, tmp_path / "m.onnx", "float64"), {"X": images})
    alike(found["std"], model.predict_dist(images).std())


# --- rows of the fit --------------------------------------------------------------------------------------------------


def test_files_without_rows_of_the_fit(tmp_path):
    X, secret = table(), 123456.789012345
    y = counts(X)
    y[0] = secret
    model = VPBoostRegressor(**OPTIONS).fit(X, y)
    model.save_model(tmp_path / "with")
    model.save_model(tmp_path / "without", training_rows=False)
    to_numpy(model, tmp_path / "plain")
    to_onnx(model, tmp_path / "m.onnx", "float64", 0.9)
    bits = np.float64(secret).tobytes()
    assert bits in (tmp_path / "with").read_bytes()
    for path in ("without", "plain/model.vpboost", "m.onnx"):
        assert bits not in (tmp_path / path).read_bytes(), path
    for path in ("without", "plain/model.vpboost"):
        content, arrays = unpack((tmp_path / path).read_bytes(), path)
        assert not [name for name in (*content, *arrays) if "evidence" in name]
        again = load_model(tmp_path / path)
        np.testing.assert_array_equal(again.predict(X), model.predict(X))
        np.testing.assert_array_equal(again.predict_interval(X), model.predict_interval(X))
        with pytest.raises(ValueError, match="saved with training_rows=False, or earlier; use predict_interval"):
            again.predict(X, return_std=True)
    load_model(tmp_path / "with").predict(X, return_std=True)
    with pytest.raises(ValueError, match="training_rows must be True or False, got 'no'"):
        model.save_model(tmp_path / "without", training_rows="no")
    VPBoostClassifier(**QUICK).fit(X, y > 2).save_model(tmp_path / "classes", training_rows=False)


def test_the_distribution_needs_numpy_alone(model, tmp_path):
    to_numpy(model, tmp_path)
    script = (
        "import json, sys, numpy as np\n"
        "for name in ('jax', 'vpboost', 'scipy', 'sklearn'): sys.modules[name] = None\n"
        "from predictor import Predictor\n"
        "model, X = Predictor('model.vpboost'), np.array(json.load(sys.stdin), float)\n"
        "print(json.dumps([model.predict_std(X).tolist(), model.predict_interval(X, 0.5)[0].tolist()]))\n"
    )
    X = table()[:20]
    text = json.dumps(np.where(np.isnan(X), None, X).tolist())
    found = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, input=text, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr
    std, low = map(np.array, json.loads(found.stdout))
    alike(std, model.predict_dist(X).std())
    alike(low, model.predict_interval(X, 0.5)[0])
