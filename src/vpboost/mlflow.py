"""MLflow: log a fit and its model, and load the model back. Needs ``pip install 'vpboost[mlflow]'``.

A logged model holds the safe file that ``save_model`` writes, and no pickle: it may come from a stranger. It loads as
the estimator that it was (:func:`load_model`), or as any other model of MLflow's (``mlflow.pyfunc.load_model``).

    with mlflow.start_run():
        model = VPBoostRegressor(callbacks=[vpboost.mlflow.StageLogger()]).fit(X, y)  # stages as they are done
        vpboost.mlflow.log_fit(model)  # parameters, profile, results, and the stages, if they have not been logged
        logged = vpboost.mlflow.log_model(model, name="model", example=X[:5])
    again = vpboost.mlflow.load_model(logged.model_uri)
"""

import math
import sys
import time
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ._version import __version__
from .callbacks import Progress
from .estimators import load_model as load_file

#: The name of the flavour, of the file inside a logged model, and what a generic model may be asked for.
FLAVOR, FILE, METHODS = "vpboost", "model.vpboost", ("predict", "predict_proba")
#: Entries of the history that are logged for every stage.
STAGE_METRICS = ("loss", "ratio", "reg_lambda", "alignment", "seconds")
#: What MLflow takes at once, and the longest text of a parameter that is worth having.
MOST_METRICS, LONGEST_TEXT = 1000, 250


def _mlflow() -> ModuleType:
    """Return MLflow with the parts that are used here."""
    try:
        import mlflow
        import mlflow.artifacts
        import mlflow.models
        import mlflow.pyfunc
    except ImportError as error:
        raise ImportError("logging needs mlflow: pip install 'vpboost[mlflow]'") from error
    return mlflow


# --- a fit --------------------------------------------------------------------------------------------------------


class StageLogger:
    """A callback that logs every stage to the active run, or to one of that number, while the fit goes on.

    Metrics are those of :func:`log_fit`. A server that cannot be reached does not end the fit: a warning says so, and
    nothing more is logged.

    Parameters
    ----------
    run_id : str, optional
        The run; by default the active one, or a new one.
    """

    def __init__(self, run_id: str | None = None):
        _mlflow()
        self.run_id = run_id
        self._silent = False

    def after_stage(self, progress: Progress) -> None:
        """Log the stage."""
        if progress.stage == 0:
            self._silent = False
        if self._silent:
            return
        mlflow, found = _mlflow(), {name: float(getattr(progress.record, name)) for name in STAGE_METRICS}
        try:
            run = self.run_id or (mlflow.active_run() or mlflow.start_run()).info.run_id
            _log_stages(mlflow, run, [{**found, "validation_score": float(progress.score)}], progress.stage)
        except mlflow.MlflowException as error:
            self._silent = True
            warnings.warn(f"stages are no longer logged, the fit goes on: {error}", UserWarning, stacklevel=2)


def log_fit(model: Any, run_id: str | None = None, stages: bool = True) -> None:
    """Log a fitted estimator's parameters, what was chosen, its results, and the metrics of every stage.

    Parameters
    ----------
    model : VPBoostRegressor or VPBoostClassifier
        A fitted estimator.
    run_id : str, optional
        The run; by default the active one, or a new one.
    stages : bool, default=True
        Whether to log the stages, too; of a fit with a :class:`StageLogger` among its callbacks they are left out.
    """
    mlflow = _mlflow()
    check_is_fitted(model)
    run = run_id or (mlflow.active_run() or mlflow.start_run()).info.run_id
    client, entities = mlflow.MlflowClient(), mlflow.entities
    settings = {name: value for name, value in model.get_params(deep=False).items() if name != "callbacks"}
    chosen = {f"chosen.{name}": value for name, value in model.profile_._asdict().items()}
    params = [entities.Param(name, _brief(value)) for name, value in {**settings, **chosen}.items()]
    tags = [entities.RunTag("vpboost.version", __version__), entities.RunTag("vpboost.ended", model.boosted_.status)]
    results = {
        **{"best_score": model.best_score_, "best_iteration": model.best_iteration_, "n_iter": model.n_iter_},
        **{"n_chains": model.n_chains_, "fit_seconds": float(np.sum(model.history_["seconds"]))},
    }
    metrics = [entities.Metric(*pair, _now(), 0) for pair in _finite(results).items()]
    client.log_batch(run, metrics=metrics, params=params, tags=tags)
    if stages and not any(isinstance(callback, StageLogger) for callback in model.callbacks or []):
        scores = model.evals_result_["validation"] or [math.nan] * model.n_iter_
        rows = [
            {**{name: float(model.history_[name][stage]) for name in STAGE_METRICS}, "validation_score": float(score)}
            for stage, score in enumerate(scores)
        ]
        _log_stages(mlflow, run, rows, 0)


def _log_stages(mlflow: Any, run: str, stages: list[dict[str, float]], first: int) -> None:
    """Log the metrics of some stages in a row."""
    metrics = [
        mlflow.entities.Metric(name, value, _now(), step)
        for step, found in enumerate(stages, first)
        for name, value in _finite(found).items()
    ]
    for start in range(0, len(metrics), MOST_METRICS):
        mlflow.MlflowClient().log_batch(run, metrics=metrics[start : start + MOST_METRICS])


def _finite(metrics: dict[str, Any]) -> dict[str, float]:
    """Leave out what is NaN or infinite, such as the ratio of a rejected learner: not every store takes it."""
    return {name: float(value) for name, value in metrics.items() if math.isfinite(value)}


def _brief(value: Any) -> str:
    text = str(getattr(value, "__qualname__", value))
    return text if len(text) <= LONGEST_TEXT else text[: LONGEST_TEXT - 3] + "..."


def _now() -> int:
    return round(1000 * time.time())


# --- a model --------------------------------------------------------------------------------------------------------


def save_model(
    model: Any,
    path: Any,
    mlflow_model: Any = None,
    *,
    example: Any = None,
    signature: Any = None,
    method: str = "predict",
    training_rows: bool = True,
) -> None:
    """Write a fitted estimator as a model of MLflow's, a folder.

    Parameters
    ----------
    model : VPBoostRegressor or VPBoostClassifier
        A fitted estimator.
    path : str or Path
        The folder, which must not exist or be empty.
    mlflow_model : mlflow.models.Model, optional
        What to add the flavour to; MLflow gives it when a model is logged.
    example : array or data frame, optional
        A few rows of X, from which the signature is inferred. They are not stored.
    signature : mlflow.models.ModelSignature, optional
        The signature itself.
    method : {"predict", "predict_proba"}, default="predict"
        What ``mlflow.pyfunc.load_model(...).predict`` calls.
    training_rows : bool, default=True
        See ``save_model`` of the estimators.
    """
    mlflow = _mlflow()
    if method not in METHODS or not hasattr(model, method):
        raise ValueError(f"method must be one of {METHODS} and the model must have it, got {method!r}")
    folder = Path(path)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileExistsError(f"{folder} exists already; a model is written to a new folder")
    folder.mkdir(parents=True, exist_ok=True)
    model.save_model(folder / FILE, training_rows)
    entry = mlflow.models.Model() if mlflow_model is None else mlflow_model
    if example is not None and signature is None:
        signature = mlflow.models.infer_signature(example, getattr(model, method)(example))
    if signature is not None:
        entry.signature = signature
    (folder / "requirements.txt").write_text(f"vpboost[mlflow]=={__version__}\n")
    python = ".".join(map(str, sys.version_info[:3]))
    (folder / "python_env.yaml").write_text(f"python: {python}\ndependencies:\n- -r requirements.txt\n")
    mlflow.pyfunc.add_to_model(
        entry, __name__, data=FILE, python_env="python_env.yaml", model_config={"method": method}
    )
    entry.add_flavor(FLAVOR, vpboost_version=__version__, data=FILE, estimator=type(model).__name__)
    entry.save(str(folder / "MLmodel"))


def log_model(model: Any, name: str = "model", registered_model_name: str | None = None, **options: Any) -> Any:
    """Log a fitted estimator as a model of the active run, or of a new one; return MLflow's description of it.

    Parameters
    ----------
    model : VPBoostRegressor or VPBoostClassifier
        A fitted estimator.
    name : str, default="model"
        What to call it.
    registered_model_name : str, optional
        Also make it a version of this registered model.
    **options
        Those of :func:`save_model`, and of ``mlflow.models.Model.log``.

    Returns
    -------
    mlflow.models.model.ModelInfo
        Among others ``model_uri``, for :func:`load_model`.
    """
    mlflow = _mlflow()
    check_is_fitted(model)
    this = sys.modules[__name__]
    return mlflow.models.Model.log(
        None, this, name=name, registered_model_name=registered_model_name, model=model, **options
    )


def load_model(model_uri: Any, *, featurizer: Any = None, loss: Any = None) -> Any:
    """Return the estimator of a logged or saved model.

    Parameters
    ----------
    model_uri : str or Path
        What ``log_model`` returned as ``model_uri``, "models:/name/1", "runs:/number/model", or a folder.
    featurizer, loss : optional
        The model's own, as for :func:`vpboost.load_model`.
    """
    folder = Path(_mlflow().artifacts.download_artifacts(artifact_uri=str(model_uri)))
    if not (folder / FILE).is_file():
        raise FileNotFoundError(f"{model_uri} holds no model of vpboost's: there is no {FILE} in it")
    return load_file(folder / FILE, featurizer=featurizer, loss=loss)


class Generic:
    """An estimator as MLflow's generic models are called."""

    def __init__(self, model: Any, method: str):
        self.model = model
        self.method = method

    def predict(self, model_input: Any, params: Any = None) -> Any:
        """Predict rows."""
        return getattr(self.model, self.method)(model_input)

    def get_raw_model(self) -> Any:
        """Return the estimator itself."""
        return self.model


def _load_pyfunc(path: str, model_config: Any = None) -> Generic:
    """Return a generic model; MLflow calls this with the file inside a model's folder."""
    method = (model_config or {}).get("method", "predict")
    if method not in METHODS:
        raise ValueError(f"method must be one of {METHODS}, got {method!r}")
    return Generic(load_file(path), method)
