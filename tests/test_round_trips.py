"""Whatever fit accepts can be saved, and what was saved can be loaded: by load_model and by the NumPy predictor."""

import datetime
import enum
import warnings
from functools import partial

import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
import polars as pl
import pytest

import vpboost
from models import same
from vpboost import MLP, ModelFileError, VPBoostClassifier, VPBoostRegressor, load_model, losses
from vpboost.files.classes import classes_from, stored_classes
from vpboost.files.container import MOST_HEADER_BYTES, pack, unpack
from vpboost.files.reader import Reader
from vpboost.predictor import Predictor

pytestmark = pytest.mark.slow

QUICK = {"n_estimators": 2, "max_steps": 2, "engine": "numpy", "encoding": "plain"}
X = np.random.default_rng(0).normal(size=(40, 2))
Y = X[:, 0] + X[:, 1]


def labels(values, dtype=None):
    return np.array(values, dtype)[np.arange(40) % len(values)]


def alike(model, again, inputs):
    """The two predict the same, and say the same about themselves. (``same`` asks for more, which takes longer.)"""
    for name in ("predict", "predict_proba"):
        if hasattr(model, name):
            np.testing.assert_array_equal(getattr(again, name)(inputs), getattr(model, name)(inputs))
    for name in ("best_score_", "evals_result_", "profile_", "seed_", "target_names_", "n_features_in_"):
        np.testing.assert_equal(getattr(again, name), getattr(model, name))
    for name, values in model.history_.items():
        np.testing.assert_array_equal(again.history_[name], values)
    np.testing.assert_array_equal(again.feature_importances_, model.feature_importances_)
    np.testing.assert_array_equal(
        getattr(again, "feature_names_in_", np.zeros(0)), getattr(model, "feature_names_in_", np.zeros(0))
    )


def through_a_file(model, path, inputs, **own):
    model.save_model(path)
    again = load_model(path, **own)
    alike(model, again, inputs)
    if model._light is not None:
        found, expected = Predictor(path).predict(inputs), model.predict(inputs)
        if hasattr(model, "classes_"):
            np.testing.assert_array_equal(found, expected)
        else:
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    return again


LABELS = {
    "large uint64": labels([2**63 + 5, 2**64 - 1, 3], np.uint64),
    "smallest and largest int64": labels([-(2**63), 2**63 - 1]),
    "negative": labels([-5, 3, -7]),
    **{kind: labels([1, 2], kind) for kind in ("i1", "i2", ">i4", "u1", "u2", "f2", "f4", "f8", "U5", ">U5")},
    "negative zero": labels([-0.0, 1.0]),
    "bool": labels([True, False]),
    **{f"dates in {unit}": labels(["2020-01-01", "1821-05-06"], f"M8[{unit}]") for unit in ("Y", "D", "s", "us", "ns")},
    "dates of old": labels([-(10**15), 3], "M8[s]"),
    "durations": labels([1, 5, -3], "m8[25s]"),
    "durations without a unit": labels([1, 5], "m8"),
    "text": labels(["ç", "", "\U0001f600", 'quo"te\\']),
    "lone surrogates": labels(["a\ud800", "\udcff", "b"]),
    "lone surrogates as objects": labels(["a\ud800", "\udcff", "b"], object),
    "zeros within": labels(["a\0b", "c", "a"]),
    "zeros at the end": labels(["a\0", "a", "c\0\0"], object),
    "a long text": labels(["a" * 10_000, "b"]),
    "NumPy's text as objects": np.array([np.str_("a"), np.str_("b")] * 20, object),
    "line ends": labels(["a\n", "\r", "\u2028"]),
    "pandas categories": pd.Series(["a", "b"] * 20, dtype="category", name="kind"),
    "pandas text": pd.Series(["a", "b"] * 20, dtype="string"),
    "pandas dates": pd.Series(pd.to_datetime(["2020-01-01", "2021-01-01"] * 20)),
    "pandas Int64": pd.Series([1, 2] * 20, dtype="Int64"),
    "pandas boolean": pd.Series([True, False] * 20, dtype="boolean"),
    "polars text": pl.Series("kind", ["a", "b"] * 20),
    "polars categories": pl.Series(["a", "b"] * 20, dtype=pl.Categorical),
    "polars dates": pl.Series([datetime.date(2020, 1, 1), datetime.date(2021, 1, 1)] * 20),
    "a list": ["a", "b"] * 20,
}


@pytest.mark.parametrize("name", LABELS)
def test_labels(tmp_path, name):
    model = VPBoostClassifier(**QUICK, width=3).fit(X, LABELS[name])
    again = through_a_file(model, tmp_path / "model", X)
    assert again.classes_.dtype.kind == model.classes_.dtype.kind
    if model.classes_.dtype.kind not in "U":
        assert again.classes_.dtype == model.classes_.dtype
    assert again.predict(X)[0] == model.predict(X)[0]


def test_labels_that_a_classifier_may_hold_some_day(tmp_path):
    """scikit-learn refuses these as targets; a file can hold them."""
    model = VPBoostClassifier(**QUICK, width=3).fit(X, labels([0, 1]))
    for classes in ([1, 2], [1, 2.5], [False, True], [-1.5, 10**30], [b"a\xff", b"b"]):
        for kind in (object, None):
            model.classes_ = np.array(classes, kind)
            if model.classes_.dtype.kind in "bifSO" and not (kind is object and isinstance(classes[0], bytes)):
                again = through_a_file(model, tmp_path / "model", X)
                assert again.classes_.dtype == model.classes_.dtype
    model.classes_ = np.array([1, 2], np.longdouble)
    assert through_a_file(model, tmp_path / "model", X).classes_.tolist() == [1.0, 2.0]
    long = np.array(["a" * 3_000_000, "b"])  # as an array of text, 24 MB
    values, kind = stored_classes(long)
    assert (values, kind) == (long.tolist(), "object")
    assert classes_from(Reader({}, {}, "model"), values, kind).dtype == object
    with pytest.raises(ModelFileError, match="has classes of type '<U9': they are too long"):
        classes_from(Reader({}, {}, "model"), values, "<U9")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (datetime.date(2020, 1, 1), r"class datetime.date\(2020, 1, 1\) of type date cannot be saved; encode y"),
        (b"bytes", "class b'bytes' of type bytes cannot be saved"),
        (1j, "class 1j of type complex cannot be saved"),
        ((1, 2), r"class \(1, 2\) of type tuple cannot be saved"),
    ],
)
def test_labels_that_cannot_be_saved_are_named_before_anything_is_written(tmp_path, value, message):
    model = VPBoostClassifier(**QUICK, width=3).fit(X, labels([0, 1]))
    model.classes_ = np.empty(2, object)
    model.classes_[:] = [value, value]
    (tmp_path / "model").write_bytes(b"old")
    with pytest.raises(TypeError, match=message):
        model.save_model(tmp_path / "model")
    assert (tmp_path / "model").read_bytes() == b"old"


PARAMETERS = {
    "NumPy's numbers": {
        **{
            "n_estimators": np.int64(2),
            "max_steps": np.int32(2),
            "width": np.int8(3),
            "learning_rate": np.float32(0.3),
        },
        **{"reg_lambda": np.float32(1e-3), "inherit": np.float16(0.5), "max_features": np.float32(0.5)},
        **{"random_state": np.uint32(7), "verbose": np.int64(0), "tol": np.float64(1e-3), "candidates": np.int64(2)},
    },
    "NumPy's text": {"featurizer": np.str_("rbf"), "encoding": np.str_("quantile")},
    "early stopping": {
        "early_stopping_rounds": np.int64(3),
        "validation_fraction": np.float64(0.2),
        "eval_metric": "mae",
    },
    "all columns": {"max_features": None},
    "a large seed": {"random_state": 2**31 + 5},
    "a step size": {"step_size": 0.01, "optimizer": "sgd", "batch_size": 10},
    "double precision": {"dtype": np.float64, "width": 3},
    "an array of precision": {"dtype": np.dtype("float32")},
    **{name: {"featurizer": name} for name in ("mlp", "resnet", "rbf", "fourier", "bspline")},
    "a factory": {"featurizer": partial(MLP, width=3, init_scale=2.0)},
    "another activation": {"activation": "sin", "depth": 1, "width": 2},
    "one wide layer": {"featurizer": partial(MLP, width=3, depth=0, n_features=7)},
    **{name: {"loss": name} for name in ("pseudo_huber", "quantile", "poisson", "gamma", "tweedie")},
    "pseudo-Huber": {"loss": losses.PseudoHuber(0.3)},
    "a quantile": {"loss": losses.Quantile(0.9, 0.2)},
    "Tweedie": {"loss": losses.Tweedie(1.7)},
    "hardly any λ": {"reg_lambda": 1e-60, "gamma_up": 1e30, "rho_accept": 0.5, "rho_small": 0.9},
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters(tmp_path, name):
    model = VPBoostRegressor(**{**QUICK, **PARAMETERS[name]}).fit(X, np.exp(Y))
    again = through_a_file(model, tmp_path / "model", X)
    for key, value in model.get_params().items():
        if key not in ("featurizer", "dtype", "loss") or isinstance(value, str):
            assert getattr(again, key) == value
    np.testing.assert_array_equal(again.fit(X, np.exp(Y)).predict(X), model.predict(X))


OBJECTS = {
    "optimizer": {"optimizer": optax.adam(0.01)},
    "random_state": {"random_state": np.random.RandomState(3)},
    "eval_metric": {"eval_metric": lambda y, p: int(np.abs(y - p).mean() > 3), "early_stopping_rounds": 2},
}


@pytest.mark.parametrize("name", OBJECTS)
def test_objects_that_predictions_do_not_need(tmp_path, name):
    model = VPBoostRegressor(**QUICK, width=3, **OBJECTS[name]).fit(X, Y)
    with pytest.warns(UserWarning, match=f"does not hold the parameter.s. {name}, which are objects"):
        through_a_file(model, tmp_path / "model", X)


@pytest.mark.parametrize(
    ("weights", "kept"),
    [
        ({np.int64(0): np.float32(2), np.int64(1): 1}, {0: 2.0, 1: 1.0}),
        ({0: True, 1: 3}, {0: 1.0, 1: 3.0}),
        ({0: 1.0, 1: 2.0, "absent": 3.0}, {0: 1.0, 1: 2.0, "absent": 3.0}),
        ("balanced", "balanced"),
        ({0: 1.0, 1: 2.0, datetime.date(2020, 1, 1): 3.0}, None),
        ({0: 1.0, 1: 2.0, (1, 2): 3.0}, None),
        ({0: 1.0, 1: 2.0, 2: float("nan")}, None),
    ],
)
def test_class_weights(tmp_path, weights, kept):
    model = VPBoostClassifier(**QUICK, width=3, class_weight=weights).fit(X, labels([0, 1]))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert through_a_file(model, tmp_path / "model", X).class_weight == kept
    assert [str(warning.message).count("(s) class_weight") for warning in caught] == ([] if kept else [1])


@pytest.mark.parametrize("name", ["", " ", "X", "\ud800", "a" * 100_000, "\0", "ç\U0001f600", '"}'], ids=ascii)
def test_names_of_columns_and_targets(tmp_path, name):
    frame = pd.DataFrame({"first": X[:, 0], "other": X[:, 1], "kind": ["red", None] * 20})
    frame.columns = pd.Index([name, "other", "kind"], dtype=object)
    model = VPBoostRegressor(**QUICK, width=3).fit(frame, pd.Series(Y, name=name))
    again = through_a_file(model, tmp_path / "model", frame)
    assert list(again.feature_names_in_) == [name, "other", "kind"]
    assert again.target_names_ == [name]


FRAMES = {
    "categories": pd.DataFrame({"a": pd.Series(["x", None, "y", "x"] * 10, dtype="category"), "b": X[:, 0]}),
    "whole numbers as categories": pd.DataFrame({"a": pd.Series([1, 2, None, 1] * 10, dtype="category")}),
    "odd levels": pd.DataFrame({"a": pd.Series(["\ud800", "", "\0", "<missing>"] * 10, dtype=object), "b": X[:, 0]}),
    "nullable": pd.DataFrame(
        {"a": pd.array([1, None, 3, 4] * 10, "Int64"), "b": pd.array([True, None] * 20, "boolean")}
    ),
    "all missing": pd.DataFrame({"a": np.full(40, np.nan), "b": X[:, 0], "c": [None] * 40}),
    "constant": pd.DataFrame({"a": np.full(40, 7.0), "b": X[:, 0], "c": np.full(40, -1e305)}),
    "huge and tiny": pd.DataFrame({"a": 1e200 * X[:, 0], "b": 1e-200 * X[:, 1], "c": 1e9 + X[:, 0]}),
    "polars": pl.DataFrame({"a": ["x", None, "y", "x"] * 10, "b": X[:, 0], "c": [True, False] * 20}),
    "polars categories": pl.DataFrame({"a": pl.Series(["x", None, "y", "x"] * 10, dtype=pl.Categorical), "b": X[:, 0]}),
}


@pytest.mark.parametrize("encoding", ["plain", "quantile", "spline", "fine"])
@pytest.mark.parametrize("name", FRAMES)
def test_frames(tmp_path, name, encoding):
    model = VPBoostRegressor(**{**QUICK, "encoding": encoding}, width=3).fit(FRAMES[name], Y)
    through_a_file(model, tmp_path / "model", FRAMES[name])


TARGETS = {
    "several outputs": np.stack([Y, -Y, Y**2], axis=1),
    "one output in a column": Y[:, None],
    "a frame": pd.DataFrame({"a": Y, "": -Y}),
    "constant": np.full(40, 3.0),
    "zeros": np.zeros(40),
    "constant and huge": np.full(40, 1e299),
    "huge": 1e200 * Y,
    "tiny": 1e-200 * Y,
    "far from zero": 1e9 + Y,
    "whole numbers": np.arange(40),
    "truth values": Y > 0,
}


@pytest.mark.parametrize("name", TARGETS)
def test_targets(tmp_path, name):
    model = VPBoostRegressor(**QUICK, width=3).fit(X, TARGETS[name], sample_weight=np.linspace(0, 5, 40))
    through_a_file(model, tmp_path / "model", X)


def test_images(tmp_path):
    images = np.random.default_rng(0).normal(size=(30, 6, 5))
    factory = partial(vpboost.ConvNet, kernels=(2,), pools=(2,), channels=(2,))
    for featurizer in (factory, "mlp"):
        model = VPBoostClassifier(**QUICK, featurizer=featurizer).fit(images, np.arange(30) % 3)
        through_a_file(model, tmp_path / "model", images)


def test_an_activation_of_ones_own(tmp_path):
    model = VPBoostRegressor(**QUICK, width=3, depth=1, activation=jnp.arctan).fit(X, Y)
    with pytest.warns(UserWarning, match="does not hold the parameter.s. activation"):
        model.save_model(tmp_path / "model")
    own = partial(MLP, width=3, depth=1, activation=jnp.arctan)
    alike(model, load_model(tmp_path / "model", featurizer=own), X)


def test_odd_numbers_about_the_fit(tmp_path):
    """Old fits may have ended with an infinite λ_w, with ratios of −∞ or without a score."""
    model = VPBoostRegressor(**QUICK, width=3).fit(X, Y)
    record = model.boosted_.history[-1]._replace(ratio=-np.inf, validation_loss=np.nan, reg_lambda=np.inf)
    model.boosted_ = model.boosted_._replace(history=[model.boosted_.history[0], record], reg_lambda=np.inf)
    model.history_ = {name: np.array([getattr(r, name) for r in model.boosted_.history]) for name in record._fields}
    model.best_score_ = np.float32("nan")
    again = through_a_file(model, tmp_path / "model", X)
    assert again.boosted_.reg_lambda == np.inf
    assert again.boosted_.history[-1].ratio == -np.inf


def test_a_model_without_learners_of_every_kind(tmp_path):
    for model in (VPBoostRegressor(**QUICK, width=3), VPBoostRegressor(**QUICK, width=3, loss="poisson")):
        model.fit(X, np.ones(40))
        same(model, through_a_file(model, tmp_path / "model", X), X)


def test_a_model_that_could_not_be_loaded_is_not_saved(tmp_path):
    model = VPBoostRegressor(**QUICK, width=3).fit(X, Y)
    (tmp_path / "model").write_bytes(b"old")
    model.target_scaler_.scale_ = np.array([np.inf])
    with pytest.raises(
        ValueError, match=r"this model cannot be saved: .*NaN or infinite numbers in array 'target.scale'"
    ):
        model.save_model(tmp_path / "model")
    assert (tmp_path / "model").read_bytes() == b"old"


def test_a_description_that_nobody_could_read_is_not_written():
    with pytest.raises(ValueError, match="this is too large for a file: names, categories"):
        pack({"levels": ["x" * 1000] * (MOST_HEADER_BYTES // 1000)}, {})
    with pytest.raises(ValueError, match="and 1048576 lists"):
        pack({"levels": [[]] * (1 << 20)}, {})
    content, _ = unpack(pack({"a": np.float32(0.5), "b": [np.int8(3), np.True_]}, {}), "numbers")
    assert content == {"a": 0.5, "b": [3, True]}
    with pytest.raises(TypeError, match="of type complex128 cannot be saved"):
        pack({"a": np.complex128(1)}, {})


def test_labels_that_are_texts_of_an_enumeration(tmp_path):
    class Colour(str, enum.Enum):  # noqa: UP042  (whose str() is its name)
        RED = "r"
        BLUE = "b"

    y = np.array([Colour.RED, Colour.BLUE] * 20, dtype=object)
    table = np.random.default_rng(0).normal(size=(40, 2))
    model = VPBoostClassifier(n_estimators=2, max_steps=3, width=3).fit(table, y)
    model.save_model(tmp_path / "m")
    assert set(load_model(tmp_path / "m").predict(table)) <= {"r", "b"}
    assert load_model(tmp_path / "m").predict(table).tolist() == [colour.value for colour in model.predict(table)]
