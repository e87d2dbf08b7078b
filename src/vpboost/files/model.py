"""A fitted estimator in one file, and back.

The file holds numbers and names only (see :mod:`vpboost.files.container`); everything in it is checked before an
estimator is built from it, so that a file from a stranger can do no harm. Files of format version 1 stay readable.
"""

import re
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._version import __version__
from ..boosting import Boosted, Record
from ..ensemble import Ensemble
from .atomic import write_file
from .container import ModelFileError, check_version, pack, read_file, unpack
from .describe import (
    describe_factory,
    describe_featurizer,
    describe_loss,
    factory_of,
    fill,
    is_custom,
    loss_of,
    named_arrays,
    template,
)
from .encoder import encoder_from, encoder_parts, scaler_from, scaler_parts
from .reader import Reader

FORMAT, VERSION = "vpboost model", 1
#: Stands for a parameter that is an object: the featurizer or the loss, which the file describes elsewhere.
OBJECT = {"object": True}
#: How the entries of the history are stored.
KINDS = {"stage": "i", "solves": "i", "accepted": "b"}
DTYPES = {"i": np.int64, "b": np.bool_, "f": np.float64}


def save_model(estimator: Any, path: Any) -> None:
    """Write a fitted estimator to one file; a crash while writing leaves the old file as it was.

    Parameters
    ----------
    estimator : VPBoostRegressor or VPBoostClassifier
        A fitted estimator.
    path : str or Path
        The file, replaced if it exists.

    Notes
    -----
    Featurizers and losses of your own are not stored: whoever loads the file has to pass them to :func:`load_model`.
    Nor are callbacks and optimiser, metric or random-state objects, which predictions do not need.
    """
    content, arrays = to_parts(estimator)
    dropped = [name for name in content["not_saved"] if name != "callbacks"]
    if dropped:
        warnings.warn(
            f"{path} does not hold the parameter(s) {', '.join(dropped)}, which are objects; set them again before the "
            "loaded model is fitted again (its predictions do not depend on them)",
            UserWarning,
            stacklevel=3,
        )
    write_file(path, pack(content, arrays))


def load_model(path: Any, *, featurizer: Any = None, loss: Any = None) -> Any:
    """Return the estimator that :func:`save_model` wrote; it predicts the same bits.

    Parameters
    ----------
    path : str or Path
        The file.
    featurizer, loss : optional
        The model's own featurizer factory and loss, where it has such (as given to its constructor).

    Raises
    ------
    ModelFileError
        If the file is damaged, of another format, or not sound in any other way; the message says what is wrong.

    Examples
    --------
    >>> import numpy as np, tempfile, vpboost
    >>> X = np.random.default_rng(0).uniform(size=(100, 2))
    >>> model = vpboost.VPBoostRegressor(n_estimators=3).fit(X, X[:, 0] * X[:, 1])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model.save_model(f"{folder}/model.vpboost")
    ...     again = vpboost.load_model(f"{folder}/model.vpboost")
    >>> np.array_equal(again.predict(X), model.predict(X))
    True
    """
    return from_bytes(read_file(path), str(path), featurizer, loss)


def from_bytes(data: bytes, name: str, featurizer: Any = None, loss: Any = None) -> Any:
    """Return the estimator in the bytes of a file that errors call ``name``."""
    content, arrays = unpack(data, name)
    check_version(content, name, FORMAT, VERSION)
    return from_parts(Reader(content, arrays, name), featurizer, loss)


def estimator_classes() -> dict[str, type]:
    """Return the estimators by name (imported late: they import this module)."""
    from ..estimators import VPBoostClassifier, VPBoostRegressor

    return {"VPBoostRegressor": VPBoostRegressor, "VPBoostClassifier": VPBoostClassifier}


def to_parts(model: Any) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return a fitted estimator as JSON and arrays."""
    kind = type(model).__name__
    if type(model) not in estimator_classes().values() or not hasattr(model, "boosted_"):
        raise TypeError(f"save_model needs a fitted VPBoostRegressor or VPBoostClassifier, got {kind}")
    boosted, ensemble = model.boosted_, model.boosted_.ensemble
    learners = describe_featurizer(ensemble.featurizers) if ensemble.n_learners else None
    parameters, dropped = stored_parameters(model.get_params(deep=False), learners is not None and is_custom(learners))
    encoder, encoder_arrays = encoder_parts(model.input_encoder_)
    scaler, scaler_arrays = scaler_parts(model.target_scaler_)
    classes, class_type = stored_classes(model)
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
        **{"status": boosted.status, "best_iteration": model.best_iteration_},
    }
    arrays = {
        **{"constant": ensemble.constant, "weights": ensemble.weights, "importances": model.feature_importances_},
        **{f"theta.{name}": leaf for name, leaf in named_arrays(ensemble.featurizers).items()},
        **history_arrays(boosted.history),
        **{"scores": np.array(model.evals_result_["validation"], float), "best_score": np.array(model.best_score_)},
        "race.scores": np.array(list(model.race_.values()), float),
        "reg_lambda": np.array(boosted.reg_lambda),
        **encoder_arrays,
        **scaler_arrays,
    }
    return content, {name: np.asarray(array) for name, array in arrays.items()}


def stored_parameters(parameters: dict[str, Any], custom: bool) -> tuple[dict[str, Any], list[str]]:
    """Return the constructor's parameters as JSON, and the names of those that JSON cannot hold.

    ``custom`` says that the featurizer is the user's own, which whoever loads the file has to pass.
    """
    stored: dict[str, Any] = {}
    dropped = []
    for name, value in parameters.items():
        value = value.item() if isinstance(value, np.generic) else value
        if value is None or isinstance(value, str | bool | int) or (isinstance(value, float) and np.isfinite(value)):
            stored[name] = value
        elif name == "featurizer" and describe_factory(value) is not None:
            stored[name] = {"factory": describe_factory(value)}
        elif name == "loss" or (name == "featurizer" and custom):
            stored[name] = OBJECT
        elif name == "dtype":
            stored[name] = np.dtype(value).name
        elif name == "class_weight":
            stored[name] = {"pairs": [[np.asarray(k).item(), float(v)] for k, v in value.items()]}
        else:
            dropped.append(name)
    return stored, dropped


def stored_classes(model: Any) -> tuple[list | None, str | None]:
    """Return a classifier's classes as JSON and their NumPy type."""
    if not hasattr(model, "classes_"):
        return None, None
    values = model.classes_.tolist()
    if model.classes_.dtype.kind == "O" and not all(type(value) is str for value in values):
        raise TypeError("classes that are neither numbers nor text cannot be saved; encode y first")
    return values, "object" if model.classes_.dtype.kind == "O" else model.classes_.dtype.str


def from_parts(reader: Reader, featurizer: Any, loss: Any) -> Any:
    """Return the estimator that a file's parts describe, after checking all of them."""
    kinds = estimator_classes()
    reader.entry("library", str)
    kind = reader.entry("kind", str)
    reader.require(kind in kinds, f"holds a {kind!r}, which this version does not know")
    description, dtype = reader.entry("featurizer", dict, None), reader.entry("dtype", str)
    reader.require(dtype in ("float32", "float64"), f"is in precision {dtype!r}")
    loss_object = loss_of(reader.entry("loss", dict), loss)
    if description is not None:
        factory_of(description, featurizer)  # is a featurizer of the user's own missing?
    given = {"featurizer": featurizer, "loss": loss if callable(loss) else loss_object}
    model = kinds[kind](**loaded_parameters(reader, kinds[kind]().get_params(deep=False), given))
    check_model(reader, model._check_settings)
    load_target(reader, model)
    model.loss_, expected = loss_object, check_model(reader, lambda: model._resolve_loss(loss_object))
    reader.require(bool(expected[0] == loss_object), f"is a {kind} with the loss {type(loss_object).__name__}")
    n_raw = model.n_outputs_ if kind == "VPBoostRegressor" else 1 if len(model.classes_) == 2 else len(model.classes_)
    model.target_scaler_ = scaler_from(reader, model.n_outputs_ if kind == "VPBoostRegressor" else 1)
    reader.require(model.target_scaler_.kind == expected[1], "scales its targets as its loss does not allow")
    load_inputs(reader, model)
    load_history(reader, model)
    with jax.enable_x64(dtype == "float64"):
        ensemble = load_ensemble(reader, model.input_encoder_, description, featurizer, dtype, n_raw)
    accepted = int(model.history_["accepted"].sum())
    reader.require(ensemble.n_learners == accepted, f"has {ensemble.n_learners} learners and accepted {accepted}")
    history = [Record(*entry) for entry in zip(*(model.history_[n].tolist() for n in Record._fields), strict=True)]
    reg_lambda = float(reader.array("reg_lambda", ()))
    model.boosted_ = Boosted(ensemble, history, reader.entry("status", str), reg_lambda)
    model._begun_with = model._binding_settings()
    model._keep(
        reader.count("best_iteration", ensemble.n_learners), float(reader.array("best_score", (), finite=False))
    )
    reader.finish()
    return model


def check_model(reader: Reader, action: Callable[[], Any]) -> Any:
    """Do something with what a file says; turn the errors that users get for bad parameters into errors of the file."""
    try:
        return action()
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise ModelFileError(f"{reader.name} has parameters that do not go together: {error}") from error


def loaded_parameters(reader: Reader, defaults: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Return the constructor's parameters; those not saved keep their defaults."""
    stored, dropped = reader.entry("parameters", dict), reader.entry("not_saved", list)
    named = [*stored, *(name for name in dropped if type(name) is str)]
    reader.require(len(named) == len(stored) + len(dropped) == len(set(named)), "names a parameter twice")
    # a later version may have more parameters than the one that wrote the file, but not fewer
    reader.require(set(named) <= set(defaults), f"has unknown parameters {sorted(set(named) - set(defaults))[:5]}")
    parameters = {}
    for name, value in stored.items():
        if name in given and value == OBJECT:
            parameters[name] = given[name]
        elif name == "featurizer" and isinstance(value, dict) and set(value) == {"factory"}:
            parameters[name] = factory_of(value["factory"], None, nested=True)
        elif name == "class_weight" and isinstance(value, dict):
            pairs: Any = value.get("pairs")
            sound = isinstance(pairs, list) and all(isinstance(p, list) and len(p) == 2 for p in pairs)
            reader.require(sound and all(is_scalar(v) for p in pairs for v in p), "has odd class weights")
            parameters[name] = dict(pairs)
        else:
            reader.require(is_scalar(value), f"has a parameter {name!r} that is no number or text")
            parameters[name] = value
    dtype = parameters.get("dtype", "float32")
    reader.require(dtype in ("float32", "float64"), f"has a parameter dtype = {dtype!r}")
    if given["featurizer"] is not None:
        parameters["featurizer"] = given["featurizer"]
    return parameters


def is_scalar(value: Any) -> bool:
    """Say whether a JSON value is a number, a text, true, false or null."""
    return value is None or type(value) in (str, bool, int, float)


def load_target(reader: Reader, model: Any) -> None:
    """Set what an estimator knows about its targets."""
    classes, class_type = reader.entry("classes", list, None), reader.entry("class_type", str, None)
    single = reader.entry("single_output", bool, None)
    if hasattr(model, "class_weight"):  # a classifier
        reader.require(classes is not None and len(classes) >= 2 and single is None, "is a classifier without classes")
        same = {type(value) for value in classes} in ({str}, {int}, {float}, {bool})
        reader.require(same and classes == sorted(set(classes)), "has classes that are not in order")
        known = class_type is not None and re.fullmatch(r"object|[<>|=][biuf]\d{1,2}|[<>]U\d{1,9}", class_type)
        reader.require(bool(known), f"has classes of type {class_type!r}")
        try:
            model.classes_ = np.array(classes, dtype=object if class_type == "object" else None)
            if class_type != "object":
                text = model.classes_.dtype.kind == "U"
                model.classes_ = model.classes_ if text else model.classes_.astype(class_type)
        except (TypeError, ValueError, OverflowError) as error:
            raise ModelFileError(f"{reader.name} has classes of type {class_type!r}: {error}") from error
        reader.require(model.classes_.tolist() == classes, "has classes that do not fit their type")
        n_targets = 1
    else:
        reader.require(classes is None and class_type is None and single is not None, "is a regressor with classes")
        n_targets = reader.arrays.get("target.shift", np.zeros(1)).size
        reader.require(n_targets >= 1, "has no outputs")
        reader.require(n_targets == 1 or not single, "has several outputs and says it has one")
        model.single_output_, model.n_outputs_ = single, n_targets
    model.target_names_ = reader.texts("target_names", n_targets)


def load_inputs(reader: Reader, model: Any) -> None:
    """Set what an estimator knows about its inputs."""
    encoder = encoder_from(reader)
    model.input_encoder_ = encoder
    model.kinds_ = encoder.kinds() if encoder.categories_ or encoder.times_ else None
    model.n_features_in_ = reader.count("n_features_in")
    names = reader.texts("feature_names", model.n_features_in_)
    if names is not None:
        model.feature_names_in_ = np.array(names, dtype=object)
    table = len(encoder.shape_) == 1
    n_inputs = len(encoder.numeric_) + len(encoder.categories_) if table else encoder.shape_[0]
    reader.require(model.n_features_in_ == n_inputs, "says otherwise how many columns there are than its preprocessing")
    n_importances = n_inputs if table else int(np.prod(encoder.shape_, dtype=object))
    model._importances = reader.doubles("importances", (n_importances,))


def load_history(reader: Reader, model: Any) -> None:
    """Set the history of the fit: profile, race, stages and scores."""
    model.profile_, model.seed_ = (
        profile_from(reader, reader.entry("profile", list)),
        reader.count("seed", (1 << 63) - 1),
    )
    reader.require(model.profile_.encoding == model.input_encoder_.encoding, "has another encoding than its profile")
    raced = [profile_from(reader, value) for value in reader.entry("race", list)]
    scores = reader.array("race.scores", (len(raced),), finite=False)
    model.race_ = dict(zip(raced, scores.tolist(), strict=True))
    model.history_ = {name: np.array(values) for name, values in history_from(reader).items()}
    n_stages = len(model.history_["stage"])
    validation = reader.array("scores", (None,), finite=False).tolist()
    reader.require(len(validation) in (0, n_stages), "has scores for another number of stages")
    model.n_iter_ = n_stages
    model.evals_result_ = {"training": model.history_["loss"].tolist(), "validation": validation}


def profile_from(reader: Reader, value: Any) -> Any:
    """Return the profile that a JSON value stands for."""
    from ..estimators.portfolio import Profile, check_choices

    sound = isinstance(value, list) and len(value) == 3 and type(value[0]) is str and value[0] != "auto"
    sound = sound and type(value[1]) in (int, float) and (value[2] is None or type(value[2]) in (int, float))
    reader.require(sound, "has a profile that makes no sense")
    check_model(reader, lambda: check_choices(*value))
    return Profile(*value)


def history_arrays(history: list[Record]) -> dict[str, np.ndarray]:
    """Return the history of a fit as arrays, one per entry of its records."""
    columns = zip(*history, strict=True) if history else [()] * len(Record._fields)
    return {
        f"history.{name}": np.array(column, DTYPES[KINDS.get(name, "f")])
        for name, column in zip(Record._fields, columns, strict=True)
    }


def history_from(reader: Reader) -> dict[str, list]:
    """Return the history of a fit, a list per entry of its records."""
    n_stages = len(reader.arrays.get("history.stage", np.zeros(0)).reshape(-1))
    return {
        name: reader.array(f"history.{name}", (n_stages,), KINDS.get(name, "f"), finite=False).tolist()
        for name in Record._fields
    }


def load_ensemble(
    reader: Reader, encoder: Any, description: Any, featurizer: Any, dtype: str, n_outputs: int
) -> Ensemble:
    """Return the ensemble."""
    constant, weights = reader.array("constant", (n_outputs,)), reader.array("weights", (None, None, n_outputs))
    theta = reader.prefixed("theta.")
    reader.require(not len(weights) or weights.shape[1] > 0, "has learners without features")
    reader.require({constant.dtype, weights.dtype} == {np.dtype(dtype)}, f"is not in {dtype} throughout")
    reader.require((description is None) == (len(weights) == 0), "has learners without a featurizer or the reverse")
    if description is None:
        reader.require(weights.shape[1] == 0 and not theta, "has arrays of learners but no learners")
        return Ensemble.stack(jnp.asarray(constant), [])
    input_shape = (len(encoder.sources_),) if len(encoder.shape_) == 1 else encoder.shape_
    module = template(factory_of(description, featurizer), input_shape, dtype)
    for name, array in theta.items():
        reader.require(array.shape[:1] == (len(weights),), f"has array {name!r} for another number of learners")
        reader.require(bool(np.isfinite(array).all()), f"has NaN or infinite numbers in array {name!r}")
    ensemble = Ensemble(jnp.asarray(constant), fill(module, theta), jnp.asarray(weights))
    try:
        jax.eval_shape(ensemble, jax.ShapeDtypeStruct(input_shape, dtype))
    except Exception as error:  # shapes that do not go together
        raise ModelFileError(f"{reader.name} has weights that do not fit its featurizer: {error}") from error
    return ensemble
