"""MLflow: fits and models logged to a store on disk, and loaded back without a pickle."""

import math
import warnings

import numpy as np
import pytest

import vpboost
from models import QUICK, same
from vpboost import VPBoostClassifier, VPBoostRegressor

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of its own dependencies
    mlflow = pytest.importorskip("mlflow", reason="the mlflow extra is not installed")

# a store of files is enough here, and quick; MLflow would rather have a database
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]

RNG = np.random.default_rng(0)
X = RNG.normal(size=(80, 3))
Y = np.stack([X[:, 0] * X[:, 1], X[:, 2]], axis=1)


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch):
    """A store of this test alone."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri(f"file://{tmp_path}/runs")
    mlflow.set_registry_uri(f"file://{tmp_path}/runs")
    yield tmp_path
    while mlflow.active_run():
        mlflow.end_run()


def metrics_of(run, name):
    return [(metric.step, metric.value) for metric in mlflow.MlflowClient().get_metric_history(run.info.run_id, name)]


@pytest.fixture
def model():
    return VPBoostRegressor(**QUICK).fit(X, Y, X_val=X[:20], y_val=Y[:20])


def test_a_fit_is_logged(model):
    with mlflow.start_run() as run:
        vpboost.mlflow.log_fit(model)
    logged = mlflow.get_run(run.info.run_id).data
    assert logged.params["width"] == "3"
    assert logged.params["chosen.encoding"] == "plain"
    assert "callbacks" not in logged.params
    assert logged.metrics["best_score"] == model.best_score_
    assert logged.metrics["best_iteration"] == model.best_iteration_
    assert logged.tags["vpboost.version"] == vpboost.__version__
    assert metrics_of(run, "loss") == list(enumerate(model.history_["loss"].tolist()))
    assert metrics_of(run, "validation_score") == list(enumerate(model.evals_result_["validation"]))


def test_stages_are_logged_as_they_are_done_and_once():
    with mlflow.start_run() as run:
        logger = vpboost.mlflow.StageLogger()
        model = VPBoostRegressor(**QUICK, callbacks=[logger]).fit(X, Y, X_val=X[:20], y_val=Y[:20])
        assert metrics_of(run, "loss") == list(enumerate(model.history_["loss"].tolist()))
        vpboost.mlflow.log_fit(model)
    assert metrics_of(run, "validation_score") == list(enumerate(model.evals_result_["validation"]))
    assert mlflow.get_run(run.info.run_id).data.params["n_estimators"] == "3"


def test_what_is_not_finite_is_left_out(model):
    model.history_["ratio"][1] = -math.inf
    model.evals_result_["validation"] = []
    with mlflow.start_run() as run:
        vpboost.mlflow.log_fit(model)
    assert [step for step, _ in metrics_of(run, "ratio")] == [0, 2]
    assert metrics_of(run, "validation_score") == []


def test_a_store_that_fails_does_not_end_the_fit(store):
    logger = vpboost.mlflow.StageLogger(run_id="0" * 32)
    with pytest.warns(UserWarning, match="stages are no longer logged, the fit goes on") as caught:
        model = VPBoostRegressor(**QUICK, callbacks=[logger]).fit(X, Y)
    assert model.n_iter_ == 3
    assert len([one for one in caught if "no longer logged" in str(one.message)]) == 1


def test_a_logged_model_comes_back_the_same(model, store):
    with mlflow.start_run():
        logged = vpboost.mlflow.log_model(model, name="surrogate", example=X[:5])
    same(vpboost.mlflow.load_model(logged.model_uri), model, X)
    generic = mlflow.pyfunc.load_model(logged.model_uri)
    np.testing.assert_array_equal(generic.predict(X), model.predict(X))
    same(generic.get_raw_model(), model, X)
    files = {path.name for path in store.rglob("*") if path.is_file()}
    assert "model.vpboost" in files
    assert not any(name.endswith((".pkl", ".pickle", ".joblib", ".cloudpickle")) for name in files)


def test_registered_models_are_found_by_name(model):
    vpboost.mlflow.log_model(model, registered_model_name="surrogate")
    same(vpboost.mlflow.load_model("models:/surrogate/1"), model, X)


def test_text_columns_and_probabilities(tmp_path):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"size": X[:, 0], "colour": np.where(X[:, 1] > 0, "red", "blue")})
    model = VPBoostClassifier(**QUICK).fit(frame, np.where(X[:, 0] + (X[:, 1] > 0) > 0, "yes", "no"))
    vpboost.mlflow.save_model(model, tmp_path / "saved", example=frame[:5], method="predict_proba")
    generic = mlflow.pyfunc.load_model(str(tmp_path / "saved"))
    np.testing.assert_array_equal(generic.predict(frame), model.predict_proba(frame))
    labels = mlflow.pyfunc.load_model(str(tmp_path / "saved"), model_config={"method": "predict"})
    np.testing.assert_array_equal(labels.predict(frame), model.predict(frame))
    assert [column.name for column in generic.metadata.signature.inputs] == ["size", "colour"]


def test_mistakes_are_named(model, tmp_path):
    with pytest.raises(ValueError, match=r"method must be one of .* got 'predict_proba'"):
        vpboost.mlflow.save_model(model, tmp_path / "saved", method="predict_proba")
    vpboost.mlflow.save_model(model, tmp_path / "saved")
    with pytest.raises(FileExistsError, match="exists already"):
        vpboost.mlflow.save_model(model, tmp_path / "saved")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match=r"no model of vpboost's: there is no model.vpboost"):
        vpboost.mlflow.load_model(tmp_path / "empty")
    with pytest.raises(ValueError, match="method must be one of"):
        mlflow.pyfunc.load_model(str(tmp_path / "saved"), model_config={"method": "__reduce__"})
