"""A model file and the Python file that predicts with it, needing NumPy alone."""

import inspect
from pathlib import Path
from typing import Any

from .. import predictor
from ..files.atomic import file_name, write_file
from ..files.describe import describe_featurizer, is_custom, kind_described


def to_numpy(model: Any, folder: Any) -> list[Path]:
    """Write ``model.vpboost`` and ``predictor.py`` into a folder: all that predictions need, besides NumPy.

    There, ``Predictor("model.vpboost").predict(X)`` gives the predictions of ``model``, in double precision;
    ``predict_proba``, ``predict_set`` and ``predict_interval`` are as the estimator's, ``predict_std`` and
    ``predict_parameters`` are of the distribution that it predicts. No row of the fit is in the files.

    Parameters
    ----------
    model : VPBoostRegressor or VPBoostClassifier
        A fitted estimator with a featurizer of this library.
    folder : str or Path
        The folder, made if it does not exist.

    Returns
    -------
    list of Path
        The two files.
    """
    folder = Path(file_name(folder, "folder", "folder"))
    check_known(model)
    folder.mkdir(parents=True, exist_ok=True)
    saved, script = folder / "model.vpboost", folder / "predictor.py"
    model.save_model(saved, training_rows=False)
    write_file(script, script_for(model).encode())
    return [saved, script]


def script_for(model: Any) -> str:
    """Return the text of the predictor, with the features of a kind that was registered from elsewhere."""
    text = Path(predictor.__file__).read_text()
    if not model.ensemble_.n_learners:
        return text
    kind = kind_described(describe_featurizer(model.ensemble_.featurizers))
    if kind.plain.__module__ == predictor.__name__:
        return text
    if not kind.plain.__name__.isidentifier():
        raise TypeError(f"the NumPy form of {kind.build.__name__} must be a function with a name: its text is exported")
    return f"{text}\n\n{inspect.getsource(kind.plain)}\n\nFEATURES[{kind.build.__name__!r}] = {kind.plain.__name__}\n"


def check_known(model: Any) -> None:
    """Raise ``TypeError`` if a model has a featurizer of the user's own, which only JAX can evaluate."""
    if not hasattr(model, "ensemble_"):
        raise TypeError(f"export needs a fitted VPBoostRegressor or VPBoostClassifier, got {type(model).__name__}")
    if model.ensemble_.n_learners and is_custom(describe_featurizer(model.ensemble_.featurizers)):
        raise TypeError("featurizers and activations of your own cannot be exported; use those of vpboost by name")
