import hashlib
import json
import os
import struct
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
import pytest
import safetensors.numpy

import fuzz_model_files
import vpboost
from models import same
from vpboost import MLP, ModelFileError, VPBoostClassifier, VPBoostRegressor, load_model
from vpboost.estimators.loading import from_bytes
from vpboost.featurizers import KINDS, SomeColumns, with_bias
from vpboost.files.atomic import write_file
from vpboost.files.container import pack, unpack
from vpboost.files.describe import (
    LOSSES,
    describe_featurizer,
    describe_loss,
    factory_of,
    fill,
    loss_of,
    named_arrays,
    template,
)
from vpboost.losses import PseudoHuber, Quantile, Tweedie

QUICK = {"n_estimators": 3, "max_steps": 4}
GOLDEN = Path(__file__).parent / "golden"


def table(n=80, d=3, seed=0):
    X = np.random.default_rng(seed).normal(size=(n, d))
    X[::9, 1] = np.nan
    return X


def round_trip(model, path, **own):
    model.save_model(path)
    return load_model(path, **own)


@pytest.mark.slow
@pytest.mark.long
def test_images_frames_and_models_without_learners(tmp_path):
    rng = np.random.default_rng(0)
    for shape in ((16, 16), (2, 14, 15)):
        images = rng.normal(size=(40, *shape))
        factory = partial(vpboost.ConvNet, kernels=(3, 2), pools=(2, 2), channels=(2, 3), strides=(2, 1))
        model = VPBoostClassifier(**QUICK, featurizer=factory).fit(images, np.arange(40) % 3)
        same(model, round_trip(model, tmp_path / "images"), images)
    frame = pd.DataFrame(
        {"size": rng.normal(size=60), "colour": (["red", "blue", None] * 20), "on": [True, False] * 30}
    )
    target = pd.Series(frame["size"].to_numpy() + frame["on"], name="price")
    model = VPBoostRegressor(**QUICK).fit(frame, target)
    again = round_trip(model, tmp_path / "frame")
    same(model, again, frame)
    assert list(again.feature_names_in_) == ["size", "colour", "on"]
    assert again.target_names_ == ["price"]
    with pytest.raises(ValueError, match="data frame"):
        again.predict(np.zeros((2, 3)))
    constant = VPBoostRegressor(**QUICK).fit(table(), np.ones(80))
    assert constant.best_iteration_ == 0
    same(constant, round_trip(constant, tmp_path / "constant"), table())


def test_a_loaded_model_can_be_fitted_further(tmp_path):
    X = table(200)
    y = np.sin(X[:, 0])
    options = {**QUICK, "encoding": "plain", "inherit": 0.5, "early_stopping_rounds": None, "warm_start": True}
    model = VPBoostRegressor(**options).fit(X, y)
    again = round_trip(model, tmp_path / "model")
    more, longer = again.set_params(n_estimators=6).fit(X, y), model.set_params(n_estimators=6).fit(X, y)
    np.testing.assert_array_equal(more.predict(X), longer.predict(X))


class Sines(eqx.Module):
    frequency: jax.Array

    def __init__(self, key, rows):
        self.frequency = jax.random.normal(key, (8, rows.shape[1]))

    def __call__(self, x):
        return jnp.sin(self.frequency @ x)


def log_cosh(prediction, target):
    return jnp.sum(jnp.log(jnp.cosh(prediction - target)))


@pytest.mark.slow
@pytest.mark.long
def test_what_the_user_wrote_must_be_passed_in(tmp_path):
    X = table()
    model = VPBoostRegressor(**QUICK, featurizer=Sines, loss=log_cosh).fit(X, X[:, 0])
    model.save_model(tmp_path / "model")
    with pytest.raises(ModelFileError, match="loss of its author's own, 'CustomLoss': pass it as loss="):
        load_model(tmp_path / "model", featurizer=Sines)
    with pytest.raises(ModelFileError, match="featurizer of its author's own, 'Sines': pass it as featurizer="):
        load_model(tmp_path / "model", loss=log_cosh)
    again = load_model(tmp_path / "model", featurizer=Sines, loss=log_cosh)
    same(model, again, X)
    assert again.get_params() == model.get_params()
    with pytest.raises(ModelFileError, match=r"not those described: missing.*layers\.0\.bias"):
        load_model(tmp_path / "model", featurizer=MLP, loss=log_cosh)
    bent = VPBoostRegressor(**QUICK, featurizer=partial(MLP, activation=jnp.arctan)).fit(X, X[:, 0])
    bent.save_model(tmp_path / "bent")
    with pytest.raises(
        ModelFileError, match=r"author's own, 'partial\(MLP, width=8, depth=2, n_features=8, activation=...\)'"
    ):
        load_model(tmp_path / "bent")
    same(bent, load_model(tmp_path / "bent", featurizer=partial(MLP, activation=jnp.arctan)), X)


def test_parameters_that_cannot_be_stored_are_named(tmp_path):
    X = table()
    model = VPBoostRegressor(**QUICK, optimizer=optax.adam(0.01), random_state=np.random.RandomState(0)).fit(X, X[:, 0])
    with pytest.warns(UserWarning, match="does not hold the parameter.s. optimizer, random_state, which are objects"):
        model.save_model(tmp_path / "model")
    again = load_model(tmp_path / "model")
    assert again.optimizer == "adam"
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    with pytest.raises(TypeError, match="fitted VPBoostRegressor or VPBoostClassifier, got dict"):
        vpboost.estimators.saving.save_model({}, tmp_path / "model")
    double = VPBoostRegressor(**QUICK, dtype=np.float64).fit(X, X[:, 0])
    assert round_trip(double, tmp_path / "double").dtype == "float64"
    with pytest.raises(ValueError, match="random_state must be from 0 to"):
        VPBoostRegressor(**QUICK, random_state=-1).fit(X, X[:, 0])


def test_options_of_factories_are_kept(tmp_path):
    X = table(200)
    factory = partial(vpboost.Fourier, n_features=6, frequency_scale=20.0)
    options = {**QUICK, "encoding": "plain", "inherit": 0.0, "early_stopping_rounds": None, "warm_start": True}
    model = VPBoostRegressor(**options, featurizer=factory).fit(X, X[:, 0])
    again = round_trip(model, tmp_path / "model")
    assert again.featurizer.keywords == factory.keywords
    more, longer = (m.set_params(n_estimators=6).fit(X, X[:, 0]) for m in (again, model))
    np.testing.assert_array_equal(more.predict(X), longer.predict(X))

    def made_up(key, rows):
        return MLP(key, rows, width=3, init_scale=2.0)

    model = VPBoostRegressor(**QUICK, featurizer=made_up).fit(X, X[:, 0])
    with pytest.warns(UserWarning, match=r"does not hold the parameter.s. featurizer"):
        model.save_model(tmp_path / "model")
    np.testing.assert_array_equal(load_model(tmp_path / "model").predict(X), model.predict(X))
    assert load_model(tmp_path / "model", featurizer=made_up).featurizer is made_up


class Picking(eqx.Module):
    """A featurizer with whole numbers inside."""

    order: jax.Array
    weight: jax.Array

    def __init__(self, key, rows):
        self.order = jnp.arange(rows.shape[1])[::-1]
        self.weight = jax.random.normal(key, (5, rows.shape[1]))

    def __call__(self, x):
        return jnp.tanh(self.weight @ x[self.order])


def test_arrays_of_other_types(tmp_path):
    X = table()
    checkpoint = vpboost.callbacks.Checkpoint(tmp_path / "state", every=1)
    model = VPBoostRegressor(**QUICK, featurizer=Picking, callbacks=[checkpoint]).fit(X, X[:, 0])
    same(model, round_trip(model, tmp_path / "model", featurizer=Picking), X)
    with pytest.raises(TypeError, match="array 'a' is of type complex128, which a file cannot hold"):
        pack({}, {"a": np.zeros(2, complex)})


@pytest.mark.parametrize("kind", ["(1,2", "(1 2),f8", "(,)i8", "|O", None, "f2"])
def test_types_of_classes_are_not_parsed_by_numpy(three_classes, kind):
    with pytest.raises(ModelFileError, match="classes of type"):
        from_bytes(resaved(three_classes, put("class_type", kind)), "model")


def test_classes_are_in_order(three_classes):
    with pytest.raises(ModelFileError, match="not in order"):
        from_bytes(resaved(three_classes, put("classes", [2, 0, 1])), "model")


def test_files_that_lie_about_their_size(saved, tmp_path):
    path = tmp_path / "model"
    path.write_bytes(saved)
    os.truncate(path, 1 << 40)  # a sparse file, which takes no room
    with pytest.raises(ModelFileError, match="by its header it should have"):
        load_model(path)
    with pytest.raises(ModelFileError, match="not a regular file"):
        load_model("/dev/zero")


def test_threads_may_save_to_one_path(saved, tmp_path):
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: write_file(tmp_path / "model", saved), range(40)))
    assert (tmp_path / "model").read_bytes() == saved
    assert len(list(tmp_path.iterdir())) == 1


def test_double_precision_without_learners(tmp_path):
    model = VPBoostRegressor(**QUICK, dtype="float64").fit(table(), np.ones(80))  # warnings are errors here
    same(model, round_trip(model, tmp_path / "model"), table())


def test_images_of_another_size_are_refused():
    images = np.random.default_rng(0).normal(size=(40, 10, 9))
    factory = partial(vpboost.ConvNet, kernels=(3, 2), pools=(2, 2), channels=(2, 3), strides=(2, 1))
    model = VPBoostClassifier(**QUICK, featurizer=factory).fit(images, np.arange(40) % 2)
    for shape in ((3, 10, 10), (3, 1, 10, 9)):
        with pytest.raises(ValueError, match=r"images of shape \(10, 9\) as in training|features"):
            model.predict(np.ones(shape))


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "model"
    VPBoostRegressor(**QUICK, encoding="quantile").fit(table(), table()[:, 0]).save_model(path)
    return path.read_bytes()


@pytest.fixture(scope="module")
def three_classes(tmp_path_factory):
    path = tmp_path_factory.mktemp("classes") / "model"
    VPBoostClassifier(**QUICK).fit(table(), np.arange(80) % 3).save_model(path)
    return path.read_bytes()


def resaved(data, change):
    """The file again, with its description and arrays changed by a function, and a right checksum."""
    content, arrays = unpack(data, "model")
    change(content, arrays)
    return pack(content, arrays)


def drop(name):
    return lambda content, arrays: (content.pop(name, None), arrays.pop(name, None))


def put(name, value):
    return lambda content, arrays: content.update({name: value})


def put_array(name, value):
    return lambda content, arrays: arrays.update({name: value})


def spoil(name, value):
    def change(content, arrays):
        arrays[name].reshape(-1)[0] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put("version", 2), "format version 2; this vpboost .* reads 1"),
        (put("format", "vpboost checkpoint"), "is a 'vpboost checkpoint', not a 'vpboost model'"),
        (drop("weights"), "has no array 'weights'"),
        (drop("loss"), "does not say 'loss'"),
        (put("hidden", 1), "entries that do not belong there: 'hidden'"),
        (put_array("more", np.zeros(3)), "entries that do not belong there: 'more'"),
        (put_array("theta.more", np.zeros(3, "f4")), "theta.*another number of learners|more"),
        (put_array("constant", np.zeros(2, "f4")), r"'constant' of shape \(2,\), expected is \(1,\)"),
        (spoil("weights", np.nan), "NaN or infinite numbers in array 'weights'"),
        (spoil("theta.featurizer.featurizer.layers.0.weight", np.inf), "NaN or infinite numbers"),
        (spoil("encoder.scale", 0.0), "scales that are not positive"),
        (spoil("encoder.extra.0.knots", 1e9), "knots that do not rise"),
        (put("best_iteration", 99), "best_iteration = 99, allowed are 0 to 3"),
        (put("kind", "os.system"), "holds a 'os.system'"),
        (put("loss", {"type": "eval", "options": {}}), "a loss 'eval', which this version does not know"),
        (put("featurizer", {"type": "Sines", "options": {}}), "a featurizer 'Sines'"),
        (put("dtype", "float64"), "is not in float64 throughout"),
        (put("n_features_in", 4), "says otherwise how many columns"),
        (put("feature_names", ["a"]), "feature_names that do not fit"),
        (put("parameters", {"n_trees": 3}), "unknown parameters"),
        (put("parameters", {"n_estimators": "abc"}), "n_estimators must be a whole number"),
        (put("parameters", {"dtype": "nonsense"}), "parameter dtype = 'nonsense'"),
        (put("profile", ["evil", -7, 1e300]), "encoding must be"),
        (put("loss", {"type": "Poisson", "options": {}}), "scales its targets as its loss does not allow"),
        (spoil("history.accepted", False), "has 3 learners and accepted 2"),
        (put_array("target.shift", np.zeros(0)), "has no outputs"),
    ],
)
def test_unsound_files_are_refused_with_a_reason(saved, change, message):
    with pytest.raises(ModelFileError, match=message):
        from_bytes(resaved(saved, change), "model")


def test_damaged_bytes_are_refused(saved, tmp_path):
    (length,) = struct.unpack("<Q", saved[:8])
    twice = saved[8 : 8 + length].rstrip().replace(b'"constant":', b'"constant":{},"constant":', 1)
    for data, message in [
        (b"", "0 bytes only"),
        (saved[:-1], "checksum does not fit"),
        (saved + b"\0", "checksum does not fit"),
        (saved[:20], "cut short"),
        (saved[:-5] + b"\x01" + saved[-4:], "checksum does not fit"),
        (b"\xff" * 100, "cut short or not a vpboost file"),
        (struct.pack("<Q", 2) + b"{}", "not written by vpboost"),
        (fuzz_model_files.with_header(saved, twice), "a key occurs twice"),
    ]:
        with pytest.raises(ModelFileError, match=message):
            from_bytes(data, "model")
    with pytest.raises(ModelFileError, match=r"cannot read .*nothing: No such file"):
        load_model(tmp_path / "nothing")
    with pytest.raises(ModelFileError, match="cannot read"):
        load_model(tmp_path)
    (tmp_path / "text").write_text("a,b\n1,2\n")
    with pytest.raises(ModelFileError, match="not a vpboost file"):
        load_model(tmp_path / "text")


def test_the_format_is_safetensors(saved):
    """Another reader of the format agrees; the checksum is that of the file with zeros in its place."""
    content, arrays = unpack(saved, "model")
    others = safetensors.numpy.load(saved)
    assert set(others) == set(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(others[name], array)
    digest = json.loads(json.loads(saved[8 : 8 + struct.unpack("<Q", saved[:8])[0]])["__metadata__"]["vpboost"])[
        "checksum"
    ]
    assert hashlib.sha256(saved.replace(digest.encode(), b"0" * 64)).hexdigest() == digest
    assert pack(content, arrays) == saved, "the same model gives the same bytes"


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.vpboost")), ids=lambda path: path.stem)
def test_files_of_version_1_stay_readable(path):
    """Written once by tests/golden/make.py; never to be written again."""
    expected = json.loads(path.with_suffix(".json").read_text())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = load_model(path)
    X = (
        np.array(expected["X"])
        if expected["columns"] is None
        else pd.DataFrame(expected["X"], columns=expected["columns"])
    )
    np.testing.assert_allclose(model._from_raw(model._raw(X)), expected["predictions"], rtol=1e-5, atol=1e-6)


def test_golden_files_are_there():
    assert len(list(GOLDEN.glob("*.vpboost"))) == 5


@pytest.mark.slow
def test_mutated_files():
    """A short run of the fuzzer."""
    outcomes = fuzz_model_files.fuzz(400, seed=1)
    assert outcomes["refused"] > 200


@pytest.mark.long
@pytest.mark.slow
def test_mutated_checkpoints(tmp_path):
    outcomes = fuzz_model_files.fuzz_checkpoints(150, 1, tmp_path)
    assert outcomes["refused"] > 100


def test_writes_are_atomic(tmp_path, monkeypatch):
    path = tmp_path / "model"
    write_file(path, b"old")
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        write_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_can_be_described(name):
    others = {"PseudoHuber": PseudoHuber(0.3), "Quantile": Quantile(0.9, 0.2), "Tweedie": Tweedie(1.7)}
    loss = others.get(name, LOSSES[name]())
    description = json.loads(json.dumps(describe_loss(loss)))
    assert loss_of(description, None) == loss


FACTORIES = {
    **{name: KINDS[name].build for name in ("MLP", "ResNet", "RBF", "Fourier", "BSpline")},
    "MLP without hidden layers": partial(MLP, depth=0, n_features=7, activation="sin"),
    "some columns": partial(SomeColumns, factory=MLP, fraction=0.5),
    "ConvNet": partial(vpboost.ConvNet, kernels=(3, 2), pools=(2, 2), channels=(2, 3), strides=(2, 1)),
}


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", FACTORIES)
def test_every_featurizer_can_be_described(name, bias):
    shape = (2, 9, 8) if name == "ConvNet" else (6,)
    rows = jax.random.normal(jax.random.key(2), (7, *shape))
    factory = with_bias(FACTORIES[name]) if bias else FACTORIES[name]
    module = factory(jax.random.key(0), rows)
    description = json.loads(json.dumps(describe_featurizer(module)))
    stacked = {key: np.asarray(leaf)[None] for key, leaf in named_arrays(module).items()}
    again = fill(template(factory_of(description, None), (2, *shape), "float32"), stacked)
    assert eqx.tree_equal(again, jax.tree.map(lambda leaf: leaf[None] if eqx.is_array(leaf) else leaf, module))
