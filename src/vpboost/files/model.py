"""A fitted estimator in one file, and back.

The file holds numbers and names only (see :mod:`vpboost.files.container`); everything in it is checked before an
estimator is built from it, so that a file from a stranger can do no harm. Files of format version 1 stay readable.
"""

import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._version import __version__
from ..boosting import Boosted, Record
from ..ensemble import Ensemble
from ..losses import Loss
from .atomic import file_name, writable, write_file
from .classes import classes_from, stored_classes
from .container import ModelFileError, brief, check_version, pack, read_file, shortened, unpack
from .describe import (
    check_size,
    describe_featurizer,
    describe_loss,
    factory_of,
    fill_stacked,
    is_custom,
    loss_of,
    named_arrays,
    template,
)
from .encoder import encoder_from, encoder_parts, scaler_from, scaler_parts
from .parameters import loaded_parameters, stored_parameters
from .reader import Reader
from .trial import check_predictions

FORMAT, VERSION = "vpboost model", 1
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
    writable(path)  # known before anything is done
    content, arrays = to_parts(estimator)
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
    try:
        from_bytes(data, "the file", loss=estimator.loss_ if content["loss"]["type"] == "custom" else None)
    except ModelFileError as error:
        raise ValueError(f"this model cannot be saved: {error}") from error


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
    if featurizer is not None and not callable(featurizer):
        raise TypeError(f"featurizer must be the factory that the model was fitted with, got {brief(featurizer)}")
    if loss is not None and not (callable(loss) or isinstance(loss, Loss)):
        raise TypeError(f"loss must be the loss that the model was fitted with, got {brief(loss)}")
    data = read_file(path)
    return from_bytes(data, file_name(path), featurizer, loss)


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
    }
    arrays = {
        **{
            "constant": ensemble.constant,
            "weights": ensemble.weights,
            "importances": np.asarray(model.feature_importances_, float),
        },
        **{f"theta.{name}": leaf for name, leaf in named_arrays(ensemble.featurizers).items()},
        **history_arrays(boosted.history),
        **{
            "scores": np.array(model.evals_result_["validation"], float),
            "best_score": np.array(model.best_score_, float),
        },
        "race.scores": np.array(list(model.race_.values()), float),
        "reg_lambda": np.array(boosted.reg_lambda, float),
        **encoder_arrays,
        **scaler_arrays,
    }
    return content, {name: np.asarray(array) for name, array in arrays.items()}


def from_parts(reader: Reader, featurizer: Any, loss: Any) -> Any:
    """Return the estimator that a file's parts describe, after checking all of them."""
    kinds = estimator_classes()
    reader.entry("library", str)
    kind = reader.entry("kind", str)
    reader.require(kind in kinds, f"holds a {brief(kind)}, which this version does not know")
    description, dtype = reader.entry("featurizer", dict, None), reader.entry("dtype", str)
    reader.require(dtype in ("float32", "float64"), f"is in precision {brief(dtype)}")
    loss_object = loss_of(reader.entry("loss", dict), loss)
    if description is not None:
        factory_of(description, featurizer)  # is a featurizer of the user's own missing?
    given = {"featurizer": featurizer, "loss": loss if callable(loss) else loss_object}
    dropped = reader.content.get("not_saved", [])
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
    reg_lambda = float(reader.array("reg_lambda", (), finite=False))
    reader.require(reg_lambda >= 0, f"says λ_w = {reg_lambda}")
    model.boosted_ = Boosted(ensemble, history, reader.entry("status", str), reg_lambda)
    # files of earlier versions do not say
    model._validated_on = reader.entry("validated_on", str, None) if "validated_on" in reader.content else None
    # what is not stored may be set again before the model is fitted further
    model._begun_with = {name: text for name, text in model._binding_settings().items() if name not in dropped}
    model._keep(
        reader.count("best_iteration", ensemble.n_learners), float(reader.array("best_score", (), finite=False))
    )
    reader.finish()
    check_predictions(reader, model)
    return model


def check_model(reader: Reader, action: Callable[[], Any]) -> Any:
    """Do something with what a file says; turn the errors that users get for bad parameters into errors of the file."""
    try:
        return action()
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise ModelFileError(f"{reader.name} has parameters that do not go together: {shortened(error)}") from error


def load_target(reader: Reader, model: Any) -> None:
    """Set what an estimator knows about its targets."""
    classes, class_type = reader.entry("classes", list, None), reader.entry("class_type", str, None)
    single = reader.entry("single_output", bool, None)
    if hasattr(model, "class_weight"):  # a classifier
        reader.require(classes is not None and len(classes) >= 2 and single is None, "is a classifier without classes")
        model.classes_ = classes_from(reader, classes, class_type)
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
    validation = reader.array("scores", (None,), finite=False)
    reader.require(len(validation) in (0, n_stages), "has scores for another number of stages")
    model.n_iter_ = n_stages
    model.evals_result_ = {"training": model.history_["loss"].tolist(), "validation": validation.tolist()}


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
    n_stages = reader.arrays.get("history.stage", np.zeros(0)).size
    arrays = {
        name: reader.array(f"history.{name}", (n_stages,), KINDS.get(name, "f"), finite=False)
        for name in Record._fields
    }
    wide = all(array.dtype == DTYPES[array.dtype.kind] for array in arrays.values())
    reader.require(wide, "has a history in types other than int64, float64 and bool")  # lists take more than arrays
    reader.require(bool((arrays["stage"] == np.arange(n_stages)).all()), "has a history whose stages are not 0, 1, ...")
    return {name: array.tolist() for name, array in arrays.items()}


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
    factory = factory_of(description, featurizer)
    check_size(description, input_shape)
    module = template(factory, input_shape, dtype)
    ensemble = Ensemble(jnp.asarray(constant), fill_stacked(reader, module, theta, len(weights)), jnp.asarray(weights))
    try:
        jax.eval_shape(ensemble, jax.ShapeDtypeStruct(input_shape, dtype))
    except Exception as error:  # shapes that do not go together
        raise ModelFileError(f"{reader.name} has weights that do not fit its featurizer: {shortened(error)}") from error
    return ensemble
