import numpy as np
import pytest

from vpboost import VPBoostClassifier, VPBoostRegressor
from vpboost.callbacks import Checkpoint, EarlyStopping
from vpboost.checkpoint import CheckpointError, read_facts
from vpboost.files.container import pack, unpack
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
    often = Checkpoint(tmp_path / "fit", every=1000, seconds=1e-9)
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
    assert len(whole.race_) == 2


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
        (shorten("theta.featurizer.featurizer.layers.0.weight"), "for other learners"),
        (shorten("scores"), "array 'scores' of shape"),
        (shorten("weights"), "does not hold the learners that it accepted"),
        (lambda content, arrays: arrays["weights"].fill(np.nan), "NaN or infinite"),
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
