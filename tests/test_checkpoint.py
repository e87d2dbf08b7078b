import os
import shutil
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vpboost import VPBoostClassifier, VPBoostRegressor, load_model
from vpboost.callbacks import Checkpoint, EarlyStopping
from vpboost.featurizers import MLP, SomeColumns, WithBias
from vpboost.files.checkpoint import CheckpointError, read_checkpoint, read_facts
from vpboost.files.container import ModelFileError, pack, unpack
from vpboost.losses import Quantile

QUICK = {"n_estimators": 9, "max_steps": 5, "width": 3, "inherit": 0.5, "max_features": 0.5, "encoding": "quantile"}


class Crash:
    def __init__(self, stage):
        self.stage = stage

    def after_stage(self, progress):
        if progress.record.stage == self.stage:
            raise RuntimeError("power cut")


def data(n=250, seed=0):
    X = np.random.default_rng(seed).normal(size=(n, 3))
    return X, X[:, 0] * X[:, 1]


def crash(path, model, X, y, stage=6, every=2):
    with pytest.raises(RuntimeError, match="power cut"):
        model.set_params(callbacks=[Checkpoint(path, every=every), Crash(stage)]).fit(X, y)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", [VPBoostRegressor, VPBoostClassifier])
def test_a_resumed_fit_ends_in_the_same_bits(tmp_path, kind, dtype):
    X, y = data()
    y = y if kind is VPBoostRegressor else np.where(y > 0.2, "high", np.where(y < -0.2, "low", "middle"))
    whole = kind(**QUICK, dtype=dtype).fit(X, y)
    crash(tmp_path / "fit", kind(**QUICK, dtype=dtype), X, y)
    assert len(read_facts(tmp_path / "fit").scores) == 6
    # whatever the race would choose, the checkpoint knows
    resumed = kind(**{**QUICK, "encoding": "auto"}, dtype=dtype).fit(X, y, resume_from=tmp_path / "fit")
    predict = "predict" if kind is VPBoostRegressor else "predict_proba"
    np.testing.assert_array_equal(getattr(resumed, predict)(X), getattr(whole, predict)(X))
    assert resumed.evals_result_ == whole.evals_result_
    assert resumed.profile_ == whole.profile_
    assert [path.name for path in tmp_path.iterdir()] == ["fit"]


def test_early_stopping_remembers(tmp_path):
    X, y = data()
    y = np.random.default_rng(1).normal(size=250)  # nothing to learn
    options = {**QUICK, "n_estimators": 60, "early_stopping_rounds": 5, "learning_rate": 0.5}
    whole = VPBoostRegressor(**options).fit(X, y)
    crash(tmp_path / "fit", VPBoostRegressor(**options), X, y, stage=whole.n_iter_ - 3, every=1)
    resumed = VPBoostRegressor(**options).fit(X, y, resume_from=tmp_path / "fit")
    assert resumed.n_iter_ == whole.n_iter_ < 60
    np.testing.assert_array_equal(resumed.predict(X), whole.predict(X))


def test_checkpoints_of_other_fits_are_refused(tmp_path):
    X, y = data()
    path = tmp_path / "fit"
    crash(path, VPBoostRegressor(**QUICK), X, y)
    for options, target, message in [
        ({}, y + 1, "other data"),
        ({"reg_lambda": 1e-2}, y, "other settings"),
        ({"random_state": 5}, y, "other data|other seed"),
    ]:
        with pytest.raises(CheckpointError, match=message):
            VPBoostRegressor(**{**QUICK, **options}).fit(X, target, resume_from=path)


def test_damaged_files_are_refused(tmp_path):
    X, y = data()
    path = tmp_path / "fit"
    with pytest.raises(CheckpointError, match="cannot read"):
        read_facts(tmp_path / "nothing")
    crash(path, VPBoostRegressor(**QUICK), X, y)
    sound = path.read_bytes()
    content, arrays = unpack(sound, "fit")
    for damaged, message in [
        (b"", "not a vpboost file"),
        (sound[: len(sound) // 2], "cut short|checksum"),
        (sound[:-9] + b"\xff" + sound[-8:], "checksum"),
        (pack({**content, "version": 99}, arrays), "format version 99"),
        (pack({**content, "format": "vpboost model"}, arrays), "is a 'vpboost model', not a 'vpboost checkpoint'"),
        (b"not a checkpoint at all", "not a vpboost file"),
    ]:
        path.write_bytes(damaged)
        with pytest.raises(CheckpointError, match=message):
            VPBoostRegressor(**QUICK).fit(X, y, resume_from=path)


def test_settings_and_timing(tmp_path):
    with pytest.raises(ValueError, match="every must be a whole number of at least 1, got 0"):
        Checkpoint(tmp_path / "fit", every=0)
    with pytest.raises(ValueError, match="seconds must be positive, got 0"):
        Checkpoint(tmp_path / "fit", seconds=0)
    X, y = data()
    often = Checkpoint(tmp_path / "fit", every=np.int64(1000), seconds=1e-9)
    VPBoostRegressor(**QUICK, callbacks=[often]).fit(X, y)
    assert len(read_facts(tmp_path / "fit").scores) == 9


def test_a_fit_that_had_ended_stays_ended(tmp_path):
    X, _ = data()
    y = np.random.default_rng(1).normal(size=250)
    options = {**QUICK, "n_estimators": 60, "early_stopping_rounds": 5, "learning_rate": 0.5, "random_state": None}
    whole = VPBoostRegressor(**options, callbacks=[Checkpoint(tmp_path / "fit", every=1)]).fit(X, y)
    resumed = VPBoostRegressor(**options).fit(X, y, resume_from=tmp_path / "fit")  # the file knows the seed
    assert resumed.n_iter_ == whole.n_iter_ < 60
    np.testing.assert_array_equal(resumed.predict(X), whole.predict(X))
    with pytest.raises(ValueError, match="resume_from and going on by warm_start=True exclude each other"):
        resumed.set_params(warm_start=True).fit(X, y, resume_from=tmp_path / "fit")


def test_settings_that_are_objects_count(tmp_path):
    X, y = data()
    crash(tmp_path / "fit", VPBoostRegressor(**QUICK, loss=Quantile(0.9)), X, y)
    with pytest.raises(CheckpointError, match="other settings"):
        VPBoostRegressor(**QUICK, loss=Quantile(0.5)).fit(X, y, resume_from=tmp_path / "fit")
    VPBoostRegressor(**QUICK, loss=Quantile(0.9)).fit(X, y, resume_from=tmp_path / "fit")


def test_a_resumed_fit_remembers_the_race(tmp_path):
    X, y = data()
    options = {"n_estimators": 9, "max_steps": 5, "width": 3, "encoding": "quantile"}
    whole = VPBoostRegressor(**options).fit(X, y)
    crash(tmp_path / "fit", VPBoostRegressor(**options), X, y)
    resumed = VPBoostRegressor(**options).fit(X, y, resume_from=tmp_path / "fit")
    assert resumed.race_ == whole.race_
    assert len(whole.race_) == 3


def test_early_stopping_as_a_callback_remembers_too(tmp_path):
    X, _ = data()
    y = np.random.default_rng(1).normal(size=250)
    options = {**QUICK, "n_estimators": 60, "early_stopping_rounds": None, "learning_rate": 0.5}
    parts = {"X_val": X[:60], "y_val": y[:60]}
    whole = VPBoostRegressor(**options, callbacks=[EarlyStopping(5)]).fit(X[60:], y[60:], **parts)
    model = VPBoostRegressor(**options, callbacks=[Checkpoint(tmp_path / "fit", every=1), Crash(whole.n_iter_ - 3)])
    with pytest.raises(RuntimeError, match="power cut"):
        model.fit(X[60:], y[60:], **parts)
    resumed = VPBoostRegressor(**options, callbacks=[EarlyStopping(5)])
    assert resumed.fit(X[60:], y[60:], **parts, resume_from=tmp_path / "fit").n_iter_ == whole.n_iter_ < 60


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    path = tmp_path_factory.mktemp("checkpoint") / "fit"
    crash(path, VPBoostRegressor(**QUICK), *data())
    return path.read_bytes()


def spoil(**changes):
    return lambda content, arrays: content["facts"].update(changes)


def put_array(name, value):
    return lambda content, arrays: arrays.update({name: np.asarray(value)})


def put_number(name, value):
    def change(content, arrays):
        arrays[name].reshape(-1)[0] = value

    return change


def in_double_precision(content, arrays):
    for name, array in arrays.items():
        arrays[name] = array.astype(float) if array.dtype == np.float32 else array


def without_learners(content, arrays):
    arrays["history.accepted"][:] = False
    arrays["weights"] = arrays["weights"][:0]


def shorten(name):
    def change(content, arrays):
        arrays[name] = arrays[name][:1]

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (spoil(seed="x"), "says seed"),
        (spoil(profile=5), "says profile"),
        (spoil(profile=["evil", 1, 2]), "encoding must be"),
        (spoil(more=1), "do not belong there: 'more'"),
        (lambda content, arrays: arrays.update(more=np.zeros(2)), "do not belong there: 'more'"),
        (shorten("theta.featurizer.featurizer.layers.0.weight"), "for another number of learners"),
        (shorten("scores"), "scores for another number of stages"),
        (shorten("weights"), "does not hold the learners that it accepted"),
        (lambda content, arrays: arrays["weights"].fill(np.nan), "NaN or infinite"),
        *((put_array("reg_lambda", value), "λ_w|NaN or infinite") for value in (-1.0, np.nan, np.inf, 1e300)),
        (put_array("reg_lambda", [1.0]), "'reg_lambda' of shape"),
        (put_array("reg_lambda", 3), "'reg_lambda' of type int64"),
        (put_array("constant", np.zeros(0, "f4")), "array '(weights|constant)' of shape|not of a fit"),
        (put_array("constant", np.zeros((1, 1), "f4")), "'constant' of shape"),
        (in_double_precision, "is not of a fit in float32"),
        (put_number("history.stage", 7), "stages are not 0, 1"),
        (put_number("history.accepted", False), "does not hold the learners that it accepted"),
        (put_array("history.loss", np.zeros(6, "f4")), "types other than int64, float64 and bool"),
        (put_array("history.loss", np.zeros(5)), "'history.loss' of shape"),
        (put_number("scores", np.nan), "no score for its first stage"),
        (put_array("theta.featurizer.seen", np.zeros((6, 6), bool)), "a learner that sees no column"),
        (without_learners, "arrays of learners but no learners"),
        *((spoil(seed=value), "says seed") for value in (-1, 1 << 63, 1.0, True, None)),
        *(
            (spoil(race=value), "race|profile")
            for value in (5, [5], *([[["plain", 0.0, 1.0], score]] for score in ("x", 10**400)), [[["plain", 0.0], 1]])
        ),
        (spoil(settings={"width": 3}), "settings that are no texts"),
        (spoil(data=5), "says data"),
        (spoil(settings={}), "other settings"),
        (lambda content, arrays: content.update(status=5), "says status"),
    ],
)
def test_unsound_checkpoints_are_refused(tmp_path, checkpoint, change, message):
    X, y = data()
    path = tmp_path / "fit"
    content, arrays = unpack(checkpoint, "fit")
    change(content, arrays)
    path.write_bytes(pack(content, arrays))
    with pytest.raises(CheckpointError, match=message):
        VPBoostRegressor(**QUICK).fit(X, y, resume_from=path)


@pytest.mark.parametrize(
    ("shape", "n_outputs", "message"),
    [
        ((6, 4, 1), 2, r"'constant' of shape \(1,\), expected is \(2,\)"),
        ((6, 4, 2), 1, "'weights' of shape"),
        ((6, 5, 1), 1, "weights that do not fit its learners"),
        ((6, 0, 1), 1, "weights that do not fit its learners"),
    ],
)
def test_weights_of_other_shapes_are_refused(tmp_path, checkpoint, shape, n_outputs, message):
    """The fit knows how many outputs there are, and what goes into its learners."""
    path, row = tmp_path / "fit", jnp.zeros(6)
    path.write_bytes(checkpoint)
    inner = SomeColumns(jax.random.key(0), row[None], factory=lambda key, rows: MLP(key, rows, width=3), fraction=0.5)
    assert read_checkpoint(path, WithBias(inner), row, 1).ensemble.n_learners == 6
    content, arrays = unpack(checkpoint, "fit")
    arrays["weights"] = np.zeros(shape, "f4")
    path.write_bytes(pack(content, arrays))
    with pytest.raises(CheckpointError, match=message):
        read_checkpoint(path, WithBias(inner), row, n_outputs)


def test_what_is_no_checkpoint_is_named(tmp_path, checkpoint):
    X, y = data(40)
    model = VPBoostRegressor(n_estimators=2, max_steps=2, width=3, engine="numpy").fit(X, y)
    for wrong in (3, 1.5, ["fit"]):
        with pytest.raises(TypeError, match="resume_from must be the name of a file"):
            model.fit(X, y, resume_from=wrong)
    with pytest.raises(CheckpointError, match="resume_from must be the name of a file, got ''"):
        model.fit(X, y, resume_from="")
    with pytest.raises(CheckpointError, match="it is a folder"):
        model.fit(X, y, resume_from=tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CheckpointError, match="it is not a regular file"):
        model.fit(X, y, resume_from=tmp_path / "pipe")
    model.save_model(tmp_path / "model")
    with pytest.raises(CheckpointError, match="is a 'vpboost model', not a 'vpboost checkpoint'; it cannot be resumed"):
        model.fit(X, y, resume_from=tmp_path / "model")
    (tmp_path / "fit").write_bytes(checkpoint)
    with pytest.raises(ModelFileError, match="is a 'vpboost checkpoint', not a 'vpboost model'"):
        load_model(tmp_path / "fit")


@pytest.mark.parametrize("path", [None, 3, 1.5, ["fit"]])
def test_a_path_is_checked_before_the_fit(path):
    with pytest.raises(TypeError, match="path must be the name of a file"):
        Checkpoint(path)


class Now:
    """Does something after a stage."""

    def __init__(self, stage, action):
        self.stage, self.action = stage, action

    def after_stage(self, progress):
        if progress.record.stage == self.stage:
            self.action()


SHORT = {"n_estimators": 6, "max_steps": 2, "width": 3, "engine": "numpy", "early_stopping_rounds": None}


def fitted(*callbacks):
    """A short fit, and the warnings that it gave."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = VPBoostRegressor(**SHORT, callbacks=list(callbacks)).fit(*data(40))
    assert model.n_iter_ == 6
    return [str(warning.message) for warning in caught]


def test_a_fit_survives_a_folder_that_vanishes_and_comes_back(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    checkpoint = Checkpoint(folder / "fit", every=1)
    said = fitted(Now(2, lambda: shutil.rmtree(folder)), checkpoint, Now(4, folder.mkdir))
    assert len(said) == 1, "once, not at every stage"
    assert f"no checkpoint after stage 2, the fit goes on without: {folder / 'fit'} cannot be written" in said[0]
    assert len(read_facts(folder / "fit").scores) == 6
    assert len(fitted(Checkpoint(tmp_path / "nowhere" / "fit", every=1))) == 1


def test_a_fit_survives_a_full_disk(tmp_path, monkeypatch):
    numbers = iter([28, 28, 13, None, 28, None])  # no space, no permission

    def flaky(opened):
        number = next(numbers)
        if number:
            raise OSError(number, os.strerror(number))

    monkeypatch.setattr("vpboost.files.atomic._flush", lambda path, how: flaky(path) if how == os.O_WRONLY else None)
    said = fitted(Checkpoint(tmp_path / "fit", every=1))
    assert ["No space left" in text for text in said] == [True, False]
    assert "Permission denied" in said[1]
    assert len(read_facts(tmp_path / "fit").scores) == 6
    assert [path.name for path in tmp_path.iterdir()] == ["fit"]


def test_a_fit_survives_what_a_checkpoint_cannot_hold(tmp_path, monkeypatch):
    def refuse(*_):
        raise TypeError("array 'a' is of type complex128, which a file cannot hold")

    monkeypatch.setattr("vpboost.files.checkpoint.pack", refuse)
    said = fitted(Checkpoint(tmp_path / "fit", every=1, seconds=1e-9))
    assert len(said) == 1
    assert "which a file cannot hold" in said[0]


def test_a_model_may_take_the_place_of_its_checkpoint(tmp_path):
    X, y = data(40)
    model = VPBoostRegressor(**SHORT, max_features=np.float32(0.5), callbacks=[Checkpoint(tmp_path / "fit", every=1)])
    model.fit(X, y).save_model(tmp_path / "fit")
    np.testing.assert_array_equal(load_model(tmp_path / "fit").predict(X), model.predict(X))


def test_a_checkpoint_of_more_stages_than_wanted(tmp_path):
    X = np.random.default_rng(0).normal(size=(120, 2))
    options = {"max_steps": 3, "width": 3, "early_stopping_rounds": None}
    checkpoint = Checkpoint(tmp_path / "c", every=2)
    VPBoostRegressor(n_estimators=4, **options, callbacks=[checkpoint]).fit(X, X[:, 0])
    with pytest.raises(CheckpointError, match="holds 4 stages, more than n_estimators=2"):
        VPBoostRegressor(n_estimators=2, **options).fit(X, X[:, 0], resume_from=tmp_path / "c")
    with pytest.raises(CheckpointError, match=r"a fit with other settings \(learning_rate\)"):
        VPBoostRegressor(n_estimators=9, learning_rate=0.3, **options).fit(X, X[:, 0], resume_from=tmp_path / "c")
    same = {**options, "max_steps": np.int64(3)}
    assert VPBoostRegressor(n_estimators=5, **same).fit(X, X[:, 0], resume_from=tmp_path / "c").n_iter_ == 5
