import json
import subprocess
import sys
from functools import partial

import jax.numpy as jnp
import numpy as np
import onnxruntime
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models import same
from vpboost import MLP, ConvNet, VPBoostClassifier, VPBoostRegressor, load_model, losses
from vpboost.export import to_numpy, to_onnx
from vpboost.export.graph import Graph
from vpboost.featurizers import activations
from vpboost.files.container import pack, unpack
from vpboost.predictor import ACTIVATIONS, Predictor

QUICK = {"n_estimators": 4, "max_steps": 5}
LOSSES = {
    **{"squared_error": None, "pseudo_huber": losses.PseudoHuber(0.5), "quantile": losses.Quantile(0.9, 0.1)},
    **{"poisson": "poisson", "gamma": "gamma", "tweedie": losses.Tweedie(1.3)},
}


def table(n=90, seed=0):
    X = np.random.default_rng(seed).normal(size=(n, 3)) * [1, 1e-3, 1e4] + [0, 0.5, 3e5]
    X[::9, 1] = np.nan
    return X


def run_onnx(path, inputs):
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, inputs), strict=True))


def close(found, expected, tolerance=1e-5):
    size = np.abs(expected).max() or 1.0  # squares of huge numbers would overflow
    found, expected = found / size, expected / size
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * np.std(expected))


def compare(model, X, folder, dtype="float32", inputs=None):
    """ONNX, NumPy and the loaded model against the estimator itself, on the same inputs."""
    inputs = {"X": X.astype(dtype)} if inputs is None else inputs
    seen = X.astype(dtype).astype(float) if isinstance(X, np.ndarray) else X
    found = run_onnx(to_onnx(model, folder / "model.onnx", dtype), inputs)
    to_numpy(model, folder)
    plain = Predictor(folder / "model.vpboost")
    own = model.loss_ if isinstance(model.loss_, losses.CustomLoss) else None
    same(model, load_model(folder / "model.vpboost", loss=own), seen)
    tolerance = 1e-5 if dtype == "float32" or model.dtype == "float32" else 1e-10
    if hasattr(model, "classes_"):
        close(found["probabilities"], model.predict_proba(seen), tolerance)
        close(plain.predict_proba(seen), model.predict_proba(seen), tolerance)
        np.testing.assert_array_equal(found["label"], model.predict(seen))
        np.testing.assert_array_equal(plain.predict(seen), model.predict(seen))
    else:
        assert found["prediction"].shape == model.predict(seen).shape
        close(found["prediction"], model.predict(seen), tolerance)
        close(plain.predict(seen), model.predict(seen), tolerance)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(
    ("featurizer", "loss"), list(zip(["mlp", "resnet", "rbf", "fourier", "bspline", "mlp"], LOSSES, strict=True))
)
@settings(max_examples=1)  # every featurizer and every loss in every run; what goes with them varies
@given(
    encoding=st.sampled_from(["plain", "quantile", "spline", "fine"]),
    n_outputs=st.sampled_from([0, 1, 3]),
    max_features=st.sampled_from([None, 0.5]),
    dtype=st.sampled_from(["float32", "float64"]),
)
def test_exported_regressors(tmp_path_factory, featurizer, loss, encoding, n_outputs, max_features, dtype):
    y = np.random.default_rng(1).gamma(2.0, size=90 if n_outputs == 0 else (90, n_outputs))
    options = {"featurizer": featurizer, "loss": LOSSES[loss], "encoding": encoding, "max_features": max_features}
    model = VPBoostRegressor(**QUICK, **options, dtype=dtype).fit(table(), y)
    folder = tmp_path_factory.mktemp("export")
    compare(model, table(seed=3), folder, dtype)
    assert vars(load_model(folder / "model.vpboost").loss_) == vars(model.loss_)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_exported_activations(tmp_path, activation, dtype):
    graph = Graph(dtype)
    x = graph.input("X", dtype, ["rows"])
    graph.output("y", activations.ACTIVATIONS[activation].onnx(graph, x), dtype, ["rows"])
    (tmp_path / "model.onnx").write_bytes(graph.model("activation", {}).SerializeToString())
    values = np.concatenate([np.linspace(-30, 30, 301), [-1e3, 1e3]]).astype(dtype)
    found = run_onnx(tmp_path / "model.onnx", {"X": values})["y"]
    tolerance = 1e-5 if dtype == "float32" else 1e-12
    np.testing.assert_allclose(found, ACTIVATIONS[activation](values.astype(float)), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("labels", [[3, 7, 11], ["no", "ç"], [False, True]])
def test_exported_classifiers(tmp_path, labels):
    y = np.array(labels)[np.arange(90) % len(labels)]
    model = VPBoostClassifier(**QUICK, class_weight={labels[0]: 2.0, labels[1]: 1.0}).fit(table(), y)
    compare(model, table(seed=3), tmp_path)
    again = load_model(tmp_path / "model.vpboost")
    assert again.classes_.dtype == model.classes_.dtype
    assert again.get_params() == model.get_params()


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(("featurizer", "shape"), [("convnet", (2, 15, 14)), ("resnet", (16, 17))])
def test_exported_image_models(tmp_path, shape, featurizer):
    images = np.random.default_rng(0).normal(size=(40, *shape))
    factory = partial(ConvNet, kernels=(3, 2), pools=(2, 2), channels=(2, 3), strides=(2, 1))
    factory = factory if featurizer == "convnet" else featurizer
    model = VPBoostClassifier(**QUICK, featurizer=factory).fit(images, np.arange(40) % 3)
    compare(model, images, tmp_path)
    if featurizer == "convnet":
        with pytest.raises(ValueError, match="dtype='float64' is not for the ConvNet"):
            to_onnx(model, tmp_path / "model.onnx", "float64")


@pytest.mark.parametrize("columns", [["size", "colour", "on"], ["colour"]])
def test_exported_models_of_categories(tmp_path, columns):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"size": rng.normal(size=60), "colour": ["red", "blue", None] * 20, "on": [1.0, 0.0] * 30})
    model = VPBoostRegressor(**QUICK).fit(frame[columns], frame["size"] + frame["on"])
    new = pd.DataFrame({"size": [0.5, np.nan, 0.1], "colour": ["green", "red", None], "on": [0.0, 1.0, 1.0]})[columns]
    inputs = {"colour": new["colour"].fillna("<missing>").to_numpy(object)[:, None]}
    if len(columns) > 1:
        inputs["X"] = new[["size", "on"]].to_numpy("float32")
    compare(model, new, tmp_path, inputs=inputs)


def categories(names):
    """A frame with numbers and a categorical column of each name, and a model of it."""
    frame = pd.DataFrame(
        {f"column {i}": np.array(["red", "blue", "green"])[(np.arange(60) // (i + 1)) % 3] for i in range(len(names))}
    )
    frame.insert(0, "size", np.arange(60.0))
    frame.columns = pd.Index(["size", *names], dtype=object)
    target = frame["size"] + sum((frame.iloc[:, i + 1] == "red") * 20.0 * (i + 1) for i in range(len(names)))
    return frame, VPBoostRegressor(**QUICK, engine="numpy", width=3).fit(frame, target)


@pytest.mark.parametrize(
    ("names", "inputs"),
    [
        (["X"], ["category X"]),
        ([""], ["category"]),
        (["prediction"], ["category prediction"]),
        (["label", "probabilities"], ["category label", "category probabilities"]),
        (["vpboost/constant_0"], ["category vpboost/constant_0"]),
        (["cast_0", "rows"], ["cast_0", "rows"]),
        (["X", "category X"], ["category X 2", "category X"]),
        (["category X", "X", "category X 2"], ["category X", "category X 3", "category X 2"]),
        (["", " ", "category"], ["category 2", " ", "category"]),
        (["a\ud800", "a\udfff", "a?"], ["category a?", "category a? 2", "a?"]),
        (["a\0b", "a"], ["category a?b", "a"]),
        (["x" * 50_000, "ç\U0001f600", "a\nb"], ["x" * 50_000, "ç\U0001f600", "a\nb"]),
    ],
    ids=ascii,
)
def test_columns_may_have_any_name(tmp_path, names, inputs):
    frame, model = categories(names)
    session = onnxruntime.InferenceSession(to_onnx(model, tmp_path / "model.onnx"), providers=["CPUExecutionProvider"])
    assert [i.name for i in session.get_inputs()] == ["X", *inputs]
    columns = json.loads(session.get_modelmeta().custom_metadata_map["columns"])
    assert columns == {"X": ["size"], **dict(zip(inputs, names, strict=True))}
    given = {i: frame.iloc[:, j + 1].to_numpy(object)[:, None] for j, i in enumerate(inputs)}
    close(session.run(None, {"X": frame.iloc[:, :1].to_numpy("float32"), **given})[0], model.predict(frame))


def test_levels_and_labels_that_onnx_cannot_hold(tmp_path):
    frame, model = categories(["colour"])
    frame["colour"] = pd.Series(["\ud800", "blue"] * 30, dtype=object)
    model.fit(frame, frame["size"])
    with pytest.raises(ValueError, match=r"level of column 'colour' '\\ud800' is not valid text"):
        to_onnx(model, tmp_path / "model.onnx")
    classifier = VPBoostClassifier(**QUICK, engine="numpy", width=3).fit(table(), np.array(["a", "b\ud800"] * 45))
    with pytest.raises(ValueError, match=r"class 'b\\ud800' is not valid text"):
        to_onnx(classifier, tmp_path / "model.onnx")
    classifier.classes_ = np.array([b"a", b"b"])
    with pytest.raises(TypeError, match=r"classes of type \|S1 cannot be exported"):
        to_onnx(classifier, tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("labels", "exported"),
    [
        (np.array([3, 2**63 + 5, 2**64 - 1], np.uint64), np.array([3, 2**63 + 5, 2**64 - 1], np.uint64)),
        (np.array([3, 2**62], np.uint64), np.array([3, 2**62])),
        (np.array(["2020-01-01", "2021-05-06"], "M8[D]"), np.array(["2020-01-01", "2021-05-06"])),
        (np.array([1, 5], "m8[s]"), np.array([1, 5])),
        (np.array([-1, 2], "f4"), np.array([-1.0, 2.0])),
        (np.array(["a", "b c"], object), np.array(["a", "b c"])),
        (np.array([-3, 100], "i1"), np.array([-3, 100])),
    ],
)
def test_labels_of_other_types(tmp_path, labels, exported):
    model = VPBoostClassifier(**QUICK, engine="numpy", width=3).fit(table(), labels[np.arange(90) % len(labels)])
    found = run_onnx(to_onnx(model, tmp_path / "model.onnx"), {"X": table().astype("float32")})["label"]
    chosen = np.searchsorted(model.classes_, model.predict(table().astype("float32")))
    np.testing.assert_array_equal(found, exported[chosen])


def test_places_of_exported_models(tmp_path):
    model = VPBoostRegressor(**QUICK, engine="numpy", width=3).fit(table(), table()[:, 0])
    for wrong in (None, 3):
        with pytest.raises(TypeError, match="path must be the name of a file"):
            to_onnx(model, wrong)
        with pytest.raises(TypeError, match="folder must be the name of a folder"):
            to_numpy(model, wrong)
    assert to_onnx(model, bytes(tmp_path / "model.onnx"), "float64") == tmp_path / "model.onnx"
    (tmp_path / "predictor.py").symlink_to(tmp_path / "elsewhere.py")
    to_numpy(model, tmp_path)
    assert (tmp_path / "predictor.py").is_symlink()
    assert "class Predictor" in (tmp_path / "elsewhere.py").read_text(encoding="utf-8")


def test_single_precision_and_large_offsets(tmp_path):
    X = 1.7e9 + 1000 * np.random.default_rng(0).normal(size=(90, 1))
    model = VPBoostRegressor(**QUICK).fit(X, np.sin(X[:, 0] / 1000))
    with pytest.warns(UserWarning, match="column 'column_0' varies little beside its mean.*use dtype='float64'"):
        to_onnx(model, tmp_path / "model.onnx")
    compare(model, X, tmp_path, "float64")


@pytest.mark.parametrize("size", [1e200, 1e-200])
def test_numbers_beyond_single_precision(tmp_path, size):
    X, options = table(), {**QUICK, "engine": "numpy", "width": 3}
    large = VPBoostRegressor(**options).fit(X * [size, 1, 1], X[:, 0])
    with pytest.warns(UserWarning, match="column 'column_0' has numbers that float32 cannot hold: use dtype='float64'"):
        to_onnx(large, tmp_path / "model.onnx")
    compare(large, X * [size, 1, 1], tmp_path, "float64")
    model = VPBoostRegressor(**options).fit(X, size * X[:, 0])
    with pytest.warns(UserWarning, match="predictions are numbers that float32 cannot hold: use dtype='float64'"):
        to_onnx(model, tmp_path / "model.onnx")
    compare(model, X, tmp_path, "float64")


def test_the_predictor_refuses_what_the_estimator_refuses(tmp_path):
    frame = pd.DataFrame(
        {"size": np.arange(60.0), "rooms": np.arange(60) % 4, "day": pd.date_range("2020", periods=60)}
    )
    frame["rooms"] = frame["rooms"].astype("category")
    frame["day"] = frame["day"].dt.floor("20D")
    model = VPBoostRegressor(**QUICK).fit(frame, frame["size"])
    to_numpy(model, tmp_path)
    plain = Predictor(tmp_path / "model.vpboost")
    close(plain.predict(frame), model.predict(frame))
    close(plain.predict(frame[["day", "size", "rooms"]]), model.predict(frame))
    missing = pd.DataFrame({"size": pd.array([1, None, 3], "Int64"), "rooms": [1, None, 3], "day": frame["day"][:3]})
    missing["day"] = missing["day"].astype("datetime64[s]")
    missing["rooms"] = missing["rooms"].astype(object)
    close(plain.predict(missing), model.predict(missing))
    with pytest.raises(ValueError, match="X has no column 'day'"):
        plain.predict(frame[["size", "rooms"]])
    with pytest.raises(ValueError, match=r"X must be rows of 3 columns, got shape \[3\]"):
        plain.predict(frame.to_numpy(dtype=object)[0])
    numbers = VPBoostRegressor(**QUICK).fit(table(), table()[:, 0])
    to_numpy(numbers, tmp_path)
    plain = Predictor(tmp_path / "model.vpboost")
    with pytest.raises(ValueError, match=r"rows of shape \[3\], got \[1\]"):
        plain.predict(np.zeros((2, 1)))
    with pytest.raises(ValueError, match="infinite values"):
        plain.predict(np.full((2, 3), np.inf))
    content, arrays = unpack((tmp_path / "model.vpboost").read_bytes(), "model")
    (tmp_path / "model.vpboost").write_bytes(pack({**content, "version": 2}, arrays))
    with pytest.raises(ValueError, match="of version 2, not a model of version 1"):
        Predictor(tmp_path / "model.vpboost")


def test_a_model_without_learners(tmp_path):
    compare(VPBoostRegressor(**QUICK).fit(table(), np.full(90, 3.0)), table(), tmp_path)


def test_the_numpy_predictor_needs_nothing_else(tmp_path):
    """It runs in a process that has no site packages but NumPy's folder, with vpboost and JAX out of reach."""
    model = VPBoostClassifier(**QUICK).fit(table(), np.arange(90) % 3)
    to_numpy(model, tmp_path)
    script = (
        "import json, sys, numpy as np\n"
        "for name in ('jax', 'vpboost', 'scipy', 'sklearn', 'safetensors'): sys.modules[name] = None\n"
        "from predictor import Predictor\n"
        "X = np.array(json.load(sys.stdin), float)\n"
        "print(json.dumps(Predictor('model.vpboost').predict_proba(X).tolist()))\n"
    )
    found = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        input=json.dumps(np.where(np.isnan(table()), None, table()).tolist()),
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    close(np.array(json.loads(found.stdout)), model.predict_proba(table()))
    damaged = bytearray((tmp_path / "model.vpboost").read_bytes())
    damaged[-1] ^= 1
    (tmp_path / "model.vpboost").write_bytes(damaged)
    with pytest.raises(ValueError, match="is damaged"):
        Predictor(tmp_path / "model.vpboost")


def test_what_cannot_be_exported_is_refused(tmp_path):
    own = VPBoostRegressor(**QUICK, featurizer=partial(MLP, activation=jnp.arctan)).fit(table(), table()[:, 0])
    for export in (to_onnx, to_numpy):
        with pytest.raises(TypeError, match="of your own cannot be exported"):
            export(own, tmp_path / "model")
        with pytest.raises(TypeError, match="needs a fitted VPBoostRegressor"):
            export(VPBoostRegressor(), tmp_path / "model")
    with pytest.raises(ValueError, match="dtype must be 'float32' or 'float64', got 'float16'"):
        to_onnx(VPBoostRegressor(**QUICK).fit(table(), table()[:, 0]), tmp_path / "model", "float16")


@pytest.mark.slow
@pytest.mark.long
def test_losses_of_your_own_can_be_exported(tmp_path):
    loss = losses.CustomLoss(lambda p, t: jnp.sum(jnp.log(jnp.cosh(p - t))), structure="diagonal")
    compare(VPBoostRegressor(**QUICK, loss=loss).fit(table(), table()[:, 0]), table(), tmp_path)


@pytest.mark.parametrize("encoding", ["plain", "quantile", "spline", "fine"])
def test_dates_and_far_inputs_in_onnx(encoding, tmp_path):
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    hours = rng.integers(0, 24 * 300, 250)
    when = np.datetime64("2023-01-01T00", "s") + (3600 * hours).astype("timedelta64[s]")
    frame = pd.DataFrame({"when": when, "x": rng.normal(size=250)})
    options = {"n_estimators": 4, "encoding": encoding, "inherit": 0.0, "max_features": None, "dtype": "float64"}
    model = VPBoostRegressor(**options).fit(frame, np.sin(hours / 24) + frame["x"])
    to_onnx(model, tmp_path / "m.onnx", dtype="float64")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    numbers = model._known_inputs(frame).numbers
    np.testing.assert_allclose(session.run(None, {"X": numbers})[0], model.predict(frame), rtol=1e-9, atol=1e-9)
    far = frame.assign(x=np.where(frame["x"] > 0, 1e30, -1e300))
    numbers = model._known_inputs(far).numbers
    np.testing.assert_allclose(session.run(None, {"X": numbers})[0], model.predict(far), rtol=1e-9, atol=1e-9)
