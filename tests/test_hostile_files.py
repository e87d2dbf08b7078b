"""Files made to do harm, their checksums right: they are refused, or predict numbers, and take little memory."""

import json
import os
import pickle
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from vpboost import ConvNet, ModelFileError, VPBoostClassifier, VPBoostRegressor, load_model
from vpboost.estimators.loading import from_bytes
from vpboost.export import to_onnx
from vpboost.files.atomic import write_file
from vpboost.files.container import pack, unpack
from vpboost.predictor import Predictor

QUICK = {"n_estimators": 2, "max_steps": 2, "engine": "numpy"}
X = np.random.default_rng(0).normal(size=(40, 2))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile")
    regressor = VPBoostRegressor(**QUICK, width=3, encoding="quantile", max_features=0.5)
    regressor.fit(X, X[:, 0]).save_model(folder / "quantile")
    regressor.set_params(encoding="spline", dtype="float64").fit(X, X[:, 0]).save_model(folder / "spline")
    regressor.set_params(loss="poisson", dtype="float32").fit(X, np.exp(X[:, 0])).save_model(folder / "poisson")
    VPBoostClassifier(**QUICK, width=3, featurizer="resnet", activation="relu").fit(X, X[:, 0] > 0).save_model(
        folder / "resnet"
    )
    images = np.random.default_rng(0).normal(size=(20, 6, 5))
    factory = partial(ConvNet, kernels=(1,), pools=(1,), channels=(1,))
    VPBoostClassifier(**QUICK, featurizer=factory).fit(images, np.arange(20) % 2).save_model(folder / "images")
    return folder


def changed(path, change):
    content, arrays = unpack(path.read_bytes(), "model")
    change(content, arrays)
    return pack(content, arrays)


def put(name, value, index=0):
    def change(content, arrays):
        arrays[name].reshape(-1)[index] = value

    return change


def fill(name, value):
    return lambda content, arrays: arrays[name].fill(value)


LAYER = "theta.featurizer.featurizer.layers.0"
SOUND = {
    "constant mask": ("quantile", fill("encoder.constant", True)),
    "another constant mask": ("quantile", put("encoder.constant", True)),
    "huge scale": ("quantile", put("encoder.scale", 1e308)),
    "huge scale of a score": ("quantile", put("encoder.extra.0.scale", 1e308)),
    "large mean": ("quantile", put("encoder.mean", 1e9)),
    "large coefficients of a layer": ("quantile", fill(f"{LAYER}.weight", 1e30)),
}


@pytest.mark.parametrize("name", SOUND)
def test_odd_numbers_that_do_no_harm(folder, name):
    kind, change = SOUND[name]
    model = from_bytes(changed(folder / kind, change), "model")
    assert np.isfinite(model.predict(X)).all()


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        ("quantile", fill("theta.featurizer.seen", False), "a learner that sees no column"),
        ("quantile", lambda _, arrays: arrays["theta.featurizer.seen"][1].fill(False), "a learner that sees no column"),
        *(
            ("quantile", put(f"encoder.{part}scale", value), "scales that are not positive, or tiny")
            for value in (0, -1, 5e-324, 1e-310)
            for part in ("", "extra.0.")
        ),
        *(("quantile", put("target.scale", value), "scales that are not") for value in (0, -2, 5e-324)),
        *(("poisson", put("target.scale", value), "scales that are not") for value in (0, -2, 5e-324)),
        ("quantile", put("target.shift", 1e308), "means that do not fit"),
        ("quantile", put("encoder.mean", 1e308), "means that do not fit"),
        ("quantile", put("encoder.mean", -1e17), "means that do not fit"),
        ("quantile", put("encoder.extra.0.mean", 1e20), "means that do not fit"),
        *(
            (kind, put("encoder.extra.0.knots", value, index), "knots that do not rise|few or huge")
            for kind in ("quantile", "spline")
            for value, index in ((1e308, -1), (-1e308, 0), (1e9, 1), (-1e9, 1))
        ),
        (
            "spline",
            lambda _, arrays: put("encoder.extra.0.knots", arrays["encoder.extra.0.knots"][0], 1)(_, arrays),
            "rise",
        ),
        *(("quantile", fill("encoder.extra.0.coefficients", value), "normal scores") for value in (1e308, -1e5)),
        ("quantile", fill("weights", 1e38), "its predictions are not finite"),
        ("spline", fill("weights", 1e308), "its predictions are not finite"),
        ("quantile", fill("constant", 3e38), "its predictions are not finite"),
        ("resnet", fill("theta.featurizer.featurizer.opening.weight", 3e38), "its predictions are not finite"),
        ("images", fill("theta.featurizer.convolutions.0.weight", 3e38), "its predictions are not finite"),
    ],
)
def test_numbers_that_cannot_predict_are_refused(folder, kind, change, message):
    data = changed(folder / kind, change)
    with pytest.raises(ModelFileError, match=message):
        from_bytes(data, "model")


def wide_images(width, n_blocks):
    def change(content, arrays):
        content["encoder"].update(shape=[1, width], numeric=[0])
        content["n_features_in"] = 1
        content["featurizer"]["featurizer"]["options"].update(
            {name: [1] * n_blocks for name in ("kernels", "pools", "channels", "strides")}
        )
        arrays["importances"] = np.zeros(width)
        arrays["weights"] = np.zeros((2, width + 1, 1), "f4")
        for i in range(n_blocks):
            arrays[f"theta.featurizer.convolutions.{i}.weight"] = np.zeros((2, 1, 1, 1, 1), "f4")
            arrays[f"theta.featurizer.convolutions.{i}.bias"] = np.zeros((2, 1, 1, 1), "f4")

    return change


@pytest.mark.parametrize("kernels", [7, "x", None, 0.5, [], [0]])
def test_options_of_convolutions_that_make_no_sense(folder, kernels):
    data = changed(folder / "images", lambda c, _: c["featurizer"]["featurizer"]["options"].update(kernels=kernels))
    with pytest.raises(ModelFileError, match="featurizer"):
        from_bytes(data, "model")


def long_history(kind):
    def change(content, arrays):
        n = (10 << 20) // (15 * np.dtype(kind).itemsize + 17)
        for name, array in arrays.items():
            if name.startswith("history."):
                arrays[name] = np.zeros(n, kind if array.dtype == float else array.dtype)
        arrays["scores"] = np.zeros(n, kind)

    return change


def many_levels(content, arrays):
    content["encoder"]["categories"] = [{"column": 2, "levels": [f"{i:07}" for i in range(800_000)]}]


def many_arrays(content, arrays):
    arrays.update({f"theta.{i}": np.zeros((2, 0), "f4") for i in range(50_000)})


def wide_layers(content, arrays):
    content["featurizer"]["featurizer"]["featurizer"]["options"].update(width=1 << 30, n_features=1 << 30)


def deep_network(content, arrays):
    content["featurizer"]["featurizer"]["featurizer"]["options"].update(depth=999)


def bulky_json(unit, count):
    return lambda content, arrays: content.update(extra=json.loads("[" + ",".join([unit] * count) + "]"))


MEMORY = {
    "wide images": ("images", wide_images(20_000, 1)),
    "many convolutions": ("images", wide_images(2_000, 60)),
    "images that are just small enough": ("images", wide_images(2_360, 3)),
    "a long history": ("quantile", long_history("f8")),
    "a long history of short numbers": ("quantile", long_history("f2")),
    "many levels": ("quantile", many_levels),
    "many arrays": ("quantile", many_arrays),
    "wide layers": ("quantile", wide_layers),
    "a deep network": ("quantile", deep_network),
    "small lists": ("quantile", bulky_json("[]", 1_000_000)),
    "small objects": ("quantile", bulky_json('{"":0}', 1_000_000)),
    "small numbers": ("quantile", bulky_json("1.5", 3_000_000)),
    "long labels": (
        "resnet",
        lambda content, arrays: content.update(classes=["a" * 5_000_000, *map(str, range(1000))], class_type="<U9"),
    ),
}
LOAD = """
import json, os, resource, sys, time, warnings
import vpboost
warnings.simplefilter("error")

def memory():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10

folder, found = sys.argv[1], {}
for name in sorted(os.listdir(folder), key=lambda name: not name.startswith("sound")):
    before, began = memory(), time.perf_counter()
    try:
        vpboost.load_model(os.path.join(folder, name))
        said = "loaded"
    except vpboost.ModelFileError as error:
        said = str(error)
    found[name] = memory() - before, time.perf_counter() - began, said
print(json.dumps(found))
"""


@pytest.mark.slow
@pytest.mark.long
def test_small_files_take_little_memory_and_time(folder, tmp_path):
    for kind in {kind for kind, _ in MEMORY.values()}:  # what everything needs once
        (tmp_path / f"sound {kind}").write_bytes((folder / kind).read_bytes())
    for name, (kind, change) in MEMORY.items():
        (tmp_path / name).write_bytes(changed(folder / kind, change))
        assert (tmp_path / name).stat().st_size <= 20 << 20
    found = subprocess.run([sys.executable, "-c", LOAD, str(tmp_path)], capture_output=True, text=True, check=False)
    assert not found.returncode, found.stderr
    results = {name: result for name, result in json.loads(found.stdout).items() if not name.startswith("sound")}
    assert sum(megabytes for megabytes, _, _ in results.values()) < 600, results
    assert max(seconds for _, seconds, _ in results.values()) < 20, results
    assert max(len(said) for _, _, said in results.values()) < 1000, results


def test_files_of_other_kinds_are_recognised(tmp_path, folder):
    model = load_model(folder / "quantile")
    to_onnx(model, tmp_path / "onnx")
    np.savez(tmp_path / "zip.npz", X=X)
    np.save(tmp_path / "array.npy", X)
    (tmp_path / "pickle").write_bytes(pickle.dumps(model.get_params()))
    (tmp_path / "csv").write_text("größe,b\n" + "1.5,2\n" * 1000, encoding="utf-8")
    (tmp_path / "short").write_text("a,b\n")
    (tmp_path / "json").write_text(json.dumps({"a": [1, 2, 3]}))
    for name, kind in {
        **{"onnx": "an ONNX model", "zip.npz": "a zip archive", "array.npy": "an array saved by NumPy"},
        **{"pickle": "a pickle", "csv": "text", "short": "text", "json": "text"},
    }.items():
        with pytest.raises(ModelFileError, match=f"{name} is not a vpboost file: it looks like {kind}"):
            load_model(tmp_path / name)
    (tmp_path / "empty").write_bytes(b"")
    with pytest.raises(ModelFileError, match="is not a vpboost file: it has 0 bytes only"):
        load_model(tmp_path / "empty")


@pytest.mark.parametrize("path", [None, 3, 1.5, ["model"]])
def test_paths_that_are_none(path):
    with pytest.raises(TypeError, match="path must be the name of a file"):
        load_model(path)
    with pytest.raises(TypeError, match="path must be the name of a file"):
        VPBoostRegressor(**QUICK, width=3).fit(X, X[:, 0]).save_model(path)


def test_paths_to_what_is_no_file(tmp_path, folder):
    message = "path must be the name of a file, got"
    for path in ("", "a\0b", "a\ud800"):
        with pytest.raises(ModelFileError, match=message):
            load_model(path)
    with pytest.raises(ModelFileError, match=f"cannot read {tmp_path}: it is a folder"):
        load_model(tmp_path)
    with pytest.raises(ModelFileError, match="No such file"):
        load_model(tmp_path / "nowhere" / "model")
    with pytest.raises(ModelFileError, match=r"cannot read .*: Not a directory"):
        load_model(folder / "quantile" / "model")
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*nowhere"):
        load_model(folder / "quantile").save_model(tmp_path / "nowhere" / "model")
    (tmp_path / "round").symlink_to("round")
    with pytest.raises(ModelFileError, match="symbolic links"):
        load_model(tmp_path / "round")
    load_model(os.fsencode(folder / "quantile"))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
def test_loading_from_a_pipe_does_not_wait(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    found = []

    def load():
        try:
            load_model(tmp_path / "pipe")
        except ModelFileError as error:
            found.append(str(error))

    thread = threading.Thread(target=load, daemon=True)
    thread.start()
    thread.join(10)
    assert found == [f"cannot read {tmp_path / 'pipe'}: it is not a regular file"]


def test_a_model_can_be_loaded_while_it_is_replaced(tmp_path, folder):
    """Readers find one whole model or the other, and never nothing."""
    versions = [(folder / name).read_bytes() for name in ("quantile", "spline")]
    path, done = tmp_path / "model", threading.Event()
    path.write_bytes(versions[0])

    def replace():
        while not done.is_set():
            for data in versions:
                write_file(path, data)
                time.sleep(0.001)

    thread = threading.Thread(target=replace)
    thread.start()
    try:
        found = {load_model(path).profile_.encoding for _ in range(30)}
    finally:
        done.set()
        thread.join()
    assert found <= {"quantile", "spline"}
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


LONG = "x" * 100_000


@pytest.mark.parametrize(
    "change",
    [
        *(
            lambda content, arrays, n=n: content.update({n: LONG})
            for n in ("kind", "dtype", "format", "version", "seed")
        ),
        *(lambda content, arrays, n=n: content.update({n: {"type": LONG}}) for n in ("loss", "featurizer")),
        *(
            lambda content, arrays, n=n: content.update({n: {"type": "custom", "name": LONG}})
            for n in ("loss", "featurizer")
        ),
        lambda content, arrays: content.update(featurizer={"type": "MLP", "options": {LONG: LONG}}),
        lambda content, arrays: content["loss"].update(options={LONG: 3}),
        lambda content, arrays: content.update({LONG: 1}),
        lambda content, arrays: content.update(profile=[LONG, 0, 1]),
        lambda content, arrays: content.update(race=[[LONG, 0, 1]]),
        lambda content, arrays: content.update(best_iteration=int("9" * 4000)),
        lambda content, arrays: content.update(not_saved=[LONG]),
        *(
            lambda content, arrays, n=n: content["parameters"].update({n: LONG})
            for n in ("n_estimators", "encoding", "featurizer", "optimizer", "eval_metric", "dtype", LONG)
        ),
        lambda content, arrays: content["parameters"].update(featurizer={"factory": {"type": LONG}}),
        *(lambda content, arrays, n=n: content["encoder"].update({n: LONG}) for n in ("encoding", "shape", LONG)),
        lambda content, arrays: content["encoder"].update(shape=[1] * 100_000),
        lambda content, arrays: content["encoder"]["extras"][0].update(encoding=LONG),
        lambda content, arrays: content["target"].update(kind=LONG),
        lambda content, arrays: arrays.update({LONG: np.zeros(3)}),
        lambda content, arrays: arrays.update({f"theta.{LONG}": np.zeros((2, 3), "f4")}),
        lambda content, arrays: arrays.update({f"theta.{LONG}": np.zeros(3, "f4")}),
        lambda content, arrays: arrays.update(weights=np.zeros((2, 3, 1, 1, 1, 1, 1, 1), "f4")),
    ],
)
def test_messages_do_not_repeat_the_file(folder, change):
    data = changed(folder / "quantile", change)
    with pytest.raises(ModelFileError) as caught:
        from_bytes(data, "model")
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    "header",
    [
        {LONG: {"dtype": "F64", "shape": [1], "data_offsets": [0, 8]}},
        {"a": {"dtype": LONG, "shape": [1], "data_offsets": [0, 8]}},
        {"a": {"dtype": "F64", "shape": [1] * 100_000, "data_offsets": [0, 8]}},
        {"a": {"dtype": "F64", "shape": [1], "data_offsets": [LONG, 8]}},
        {"a": {"dtype": "F64", "shape": [1], "data_offsets": [0, 10**4000]}},
        {LONG: LONG},
    ],
)
def test_messages_do_not_repeat_the_header(tmp_path, folder, header):
    data = (folder / "quantile").read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    text = json.dumps({**json.loads(data[8:begin]), **header}).encode()
    path = tmp_path / "model"
    path.write_bytes(len(text).to_bytes(8, "little") + text + data[begin:])
    with pytest.raises(ModelFileError) as caught:
        load_model(path)
    assert len(str(caught.value).replace(str(path), "")) < 1000
    with pytest.raises(ModelFileError) as caught:
        from_bytes(path.read_bytes(), "model")
    assert len(str(caught.value)) < 1000


def test_what_is_passed_in_must_be_of_use(folder):
    with pytest.raises(TypeError, match="featurizer must be the factory that the model was fitted with, got 'mlp'"):
        load_model(folder / "quantile", featurizer="mlp")
    with pytest.raises(TypeError, match="loss must be the loss that the model was fitted with, got 5"):
        load_model(folder / "quantile", loss=5)


def test_a_file_larger_than_the_memory(folder, monkeypatch):
    def no_room(*_):
        raise MemoryError

    monkeypatch.setattr("vpboost.files.container.parse", no_room)
    with pytest.raises(ModelFileError, match="it is larger than the memory"):
        load_model(folder / "quantile")


def test_the_predictor_names_what_is_no_model(tmp_path, folder):
    (tmp_path / "csv").write_text("a,b\n" * 100)
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "cut").write_bytes((folder / "quantile").read_bytes()[:500])
    (tmp_path / "other").write_bytes((2).to_bytes(8, "little") + b"{}")
    for name in ("csv", "empty", "cut", "other"):
        with pytest.raises(ValueError, match=f"{name} is cut short or not a model of vpboost"):
            Predictor(tmp_path / name)


def test_parameters_that_were_spoilt_after_the_fit(tmp_path, folder):
    model = load_model(folder / "quantile").set_params(n_estimators=-1)
    with pytest.raises(ValueError, match=r"this model cannot be saved: .* n_estimators must be a whole number"):
        model.save_model(tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_a_file_that_vanishes(tmp_path, monkeypatch, folder):
    path = tmp_path / "model"
    path.write_bytes((folder / "quantile").read_bytes())
    really = os.stat

    def look_and_delete(name, **options):
        facts = really(name, **options)
        Path(path).unlink(missing_ok=True)
        return facts

    monkeypatch.setattr("vpboost.files.container.os.stat", look_and_delete)
    with pytest.raises(ModelFileError, match="No such file"):
        load_model(path)
