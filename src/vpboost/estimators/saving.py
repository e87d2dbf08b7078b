"""A fitted estimator in one file; :mod:`vpboost.estimators.restoring` reads it back.

The file holds numbers and names only (see :mod:`vpboost.files.container`).
"""

import warnings
from typing import Any

import numpy as np

from .._version import __version__
from ..core.ensemble import Ensemble
from ..files.atomic import file_name, writable, write_file
from ..files.classes import stored_classes
from ..files.container import ModelFileError, pack
from ..files.describe import describe_featurizer, describe_loss, is_custom, named_arrays
from ..files.encoder import encoder_parts, scaler_parts
from ..files.evidence import conformity_arrays, evidence_parts
from ..files.history import history_arrays
from ..files.parameters import stored_parameters
from ..files.spread import spread_parts
from .restoring import FORMAT, VERSION, model_from


def save_model(estimator: Any, path: Any, training_rows: bool = True) -> None:
    """Write a fitted estimator to one file; a crash while writing leaves the old file as it was.

    Parameters
    ----------
    estimator : VPBoostRegressor or VPBoostClassifier
        A fitted estimator.
    path : str or Path
        The file, replaced if it exists.
    training_rows : bool, default=True
        Whether the file of a regressor holds rows of the fit (see ``BaseVPBoost.save_model``).

    Notes
    -----
    Featurizers and losses of your own are not stored: whoever loads the file has to pass them to :func:`load_model`.
    Nor are callbacks and optimiser, metric or random-state objects, which predictions do not need.
    """
    writable(path)  # known before anything is done
    content, arrays = to_parts(estimator, training_rows)
    data = pack(content, arrays)
    check_readable(estimator, content, data)
    dropped = [name for name in content["not_saved"] if name != "callbacks"]
    if dropped:
        warnings.warn(
            f"{file_name(path)} does not hold the parameter(s) {', '.join(dropped)}, which are objects; set them again "
            "before the loaded model is fitted again (its predictions do not depend on them)",
            UserWarning,
            stacklevel=3,
        )
    write_file(path, data)


def check_readable(estimator: Any, content: dict[str, Any], data: bytes) -> None:
    """Raise ``ValueError`` if a file could not be loaded: better now than when the estimator is gone."""
    if content["featurizer"] is not None and is_custom(content["featurizer"]):
        return  # only whoever loads the file knows the featurizer
    loss = estimator.loss_ if content["loss"]["type"] == "custom" else None
    try:
        model_from(data, "the file", {content["kind"]: type(estimator)}, loss=loss)
    except ModelFileError as error:
        raise ValueError(f"this model cannot be saved: {error}") from error


def to_parts(model: Any, training_rows: bool = True) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return a fitted estimator as JSON and arrays, with what tells ignorance or without."""
    kind = type(model).__name__
    ours = type(model).__module__.startswith("vpboost.estimators.")  # what a subclass adds would be lost
    if not ours or not hasattr(model, "boosted_"):
        raise TypeError(f"save_model needs a fitted VPBoostRegressor or VPBoostClassifier, got {kind}")
    boosted, ensemble = model.boosted_, model.boosted_.ensemble
    learners = describe_featurizer(ensemble.featurizers) if ensemble.n_learners else None
    parameters, dropped = stored_parameters(model.get_params(deep=False), learners is not None and is_custom(learners))
    encoder, encoder_arrays = encoder_parts(model.input_encoder_)
    scaler, scaler_arrays = scaler_parts(model.target_scaler_)
    spread = None if getattr(model, "_spread", None) is None else spread_parts(*model._spread)
    evidence, evidence_arrays = evidence_parts(getattr(model, "_evidence", None) if training_rows else None)
    classes, class_type = stored_classes(getattr(model, "classes_", None))
    content = {
        **{"format": FORMAT, "version": VERSION, "library": __version__, "kind": kind},
        **{"parameters": parameters, "not_saved": dropped, "dtype": str(ensemble.constant.dtype)},
        "featurizer": learners,
        **{"loss": describe_loss(model.loss_), "encoder": encoder, "target": scaler},
        **{"classes": classes, "class_type": class_type, "single_output": getattr(model, "single_output_", None)},
        "n_features_in": int(model.n_features_in_),
        "feature_names": [str(n) for n in model.feature_names_in_] if hasattr(model, "feature_names_in_") else None,
        "target_names": model.target_names_,
        **{"profile": list(model.profile_), "race": [list(profile) for profile in model.race_], "seed": model.seed_},
        **{"status": boosted.status, "best_iteration": model.best_iteration_, "validated_on": model._validated_on},
        **{"file_columns": model._file_columns, "rows_seen": model._rows_seen},
        **({} if spread is None else {"spread": spread[0]}),
        **({"temperature": model._temperature} if model._temperature != 1 else {}),
        **evidence,
        **({"others": [o.n_learners for o in model._others], "with_first": model._with_first} if model._others else {}),
    }
    arrays = {
        **{
            "constant": ensemble.constant,
            "weights": ensemble.weights,
            "importances": np.asarray(model.feature_importances_, float),
        },
        **{f"theta.{name}": leaf for name, leaf in named_arrays(ensemble.featurizers).items()},
        **(arrays_of_chains(model._others) if model._others else {}),
        **history_arrays(boosted.history),
        **{
            "scores": np.array(model.evals_result_["validation"], float),
            "best_score": np.array(model.best_score_, float),
        },
        "race.scores": np.array(list(model.race_.values()), float),
        "reg_lambda": np.array(boosted.reg_lambda, float),
        **encoder_arrays,
        **scaler_arrays,
        **({} if spread is None else spread[1]),
        **conformity_arrays(model._conformity),
        **evidence_arrays,
    }
    return content, {name: np.asarray(array) for name, array in arrays.items()}


def arrays_of_chains(chains: list[Ensemble]) -> dict[str, Any]:
    """Return the arrays of the chains beside the first, those of their learners one after the other."""
    arrays: dict[str, Any] = {"others.constant": np.stack([np.asarray(chain.constant) for chain in chains])}
    full = [chain for chain in chains if chain.n_learners]
    if full:
        arrays["others.weights"] = np.concatenate([np.asarray(chain.weights) for chain in full])
        theta = [named_arrays(chain.featurizers) for chain in full]
        joined = {name: np.concatenate([np.asarray(one[name]) for one in theta]) for name in theta[0]}
        arrays |= {f"others.theta.{name}": array for name, array in joined.items()}
    return arrays
