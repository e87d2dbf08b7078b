"""A fitted estimator from a file.

Everything in the file is checked before an estimator is built from it, so that a file from a stranger can do no harm.
Files of format version 1 stay readable.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .. import predictor
from ..core.data import SAMPLE_ROWS
from ..core.ensemble import Ensemble
from ..core.records import Boosted, Record
from ..files.classes import classes_from
from ..files.container import ModelFileError, brief, check_version, shortened, unpack
from ..files.describe import check_size, factory_of, fill_stacked, loss_of, named_arrays, template
from ..files.encoder import encoder_from, scaler_from
from ..files.evidence import conformity_from, evidence_from
from ..files.history import history_from, profile_values
from ..files.parameters import loaded_parameters
from ..files.reader import Reader
from ..files.spread import spread_from
from .portfolio import MOST_CHAINS, profile_from
from .spread import FAMILIES, Spread

FORMAT, VERSION = "vpboost model", 1
#: Most numbers that a trial works on: inputs times learners, of convolutions times the size of their kernels.
MOST_WORK = 1 << 25
#: Most rows of a fit that tell ignorance: their cube is the work.
MOST_EVIDENCE = 1000


def model_from(data: bytes, name: str, kinds: dict[str, type], *, featurizer: Any = None, loss: Any = None) -> Any:
    """Return the estimator, of one of these classes, in the bytes of a file that errors call ``name``."""
    content, arrays = unpack(data, name)
    check_version(content, name, FORMAT, VERSION)
    return from_parts(Reader(content, arrays, name), kinds, featurizer, loss)


def from_parts(reader: Reader, kinds: dict[str, type], featurizer: Any, loss: Any) -> Any:
    """Return the estimator that a file's parts describe, after checking all of them."""
    reader.entry("library", str)
    kind = reader.entry("kind", str)
    reader.require(kind in kinds, f"holds a {brief(kind)}, which this version does not know")
    description, dtype = reader.entry("featurizer", dict, None), reader.entry("dtype", str)
    reader.require(dtype in ("float32", "float64"), f"is in precision {brief(dtype)}")
    loss_object = loss_of(reader.entry("loss", dict), loss)
    if description is not None:
        factory_of(description, featurizer)  # is a featurizer of the user's own missing?
    given = {"featurizer": featurizer, "loss": loss if callable(loss) else loss_object, "distribution": loss_object}
    dropped = reader.content.get("not_saved", [])
    model = kinds[kind](**loaded_parameters(reader, kinds[kind]().get_params(deep=False), given))
    check_model(reader, model._check_settings)
    load_target(reader, model)
    model.loss_, expected = loss_object, check_model(reader, lambda: model._resolve_loss(loss_object))
    reader.require(bool(expected[0] == loss_object), f"is a {kind} with the loss {type(loss_object).__name__}")
    n_raw = (
        model.n_outputs_ * loss_object.n_parameters
        if kind == "VPBoostRegressor"
        else 1
        if len(model.classes_) == 2
        else len(model.classes_)
    )
    model.target_scaler_ = scaler_from(reader, model.n_outputs_ if kind == "VPBoostRegressor" else 1)
    reader.require(model.target_scaler_.kind == expected[1], "scales its targets as its loss does not allow")
    load_inputs(reader, model)
    load_spread(reader, model)
    load_history(reader, model)
    model._rows_seen = reader.count("rows_seen", SAMPLE_ROWS) if "rows_seen" in reader.content else 2
    reader.require(model._rows_seen > 0, "has learners that were built from no rows")
    with jax.enable_x64(dtype == "float64"):
        ensemble = load_ensemble(reader, model, description, featurizer, dtype, n_raw)
        with_first = reader.entry("with_first", bool) if "others" in reader.content else True
        others = load_chains(reader, ensemble) if "others" in reader.content else []
    accepted = int(model.history_["accepted"].sum())
    reader.require(ensemble.n_learners == accepted, f"has {ensemble.n_learners} learners and accepted {accepted}")
    history = [Record(*entry) for entry in zip(*(model.history_[n].tolist() for n in Record._fields), strict=True)]
    reg_lambda = float(reader.array("reg_lambda", (), finite=False))
    reader.require(reg_lambda >= 0, f"says λ_w = {reg_lambda}")
    model.boosted_ = Boosted(ensemble, history, reader.entry("status", str), reg_lambda)
    # files of earlier versions do not say
    model._validated_on = reader.entry("validated_on", str, None) if "validated_on" in reader.content else None
    if "file_columns" in reader.content:
        model._file_columns = reader.texts("file_columns", model.n_features_in_)
    # what is not stored may be set again before the model is fitted further
    model._begun_with = {name: text for name, text in model._binding_settings().items() if name not in dropped}
    best = reader.count("best_iteration", ensemble.n_learners), float(reader.array("best_score", (), finite=False))
    load_errors(reader, model)
    model._keep(*best, others, with_first)
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


def load_spread(reader: Reader, model: Any) -> None:
    """Set what a predictive distribution has besides its location, if the model has one."""
    family = FAMILIES.get(model.distribution) if isinstance(getattr(model, "distribution", None), str) else None
    reader.require(
        (family is not None) == ("spread" in reader.content), "has a distribution, or none, against its word"
    )
    if family is not None:
        encoder = model.input_encoder_
        n_inputs = encoder.n_plain if len(encoder.shape_) == 1 else 0
        model._spread = Spread(*spread_from(reader, n_inputs + model.n_outputs_, model.n_outputs_))
        reader.require(type(model._spread.likelihood) is family.likelihood, "has another distribution than it says")


def load_errors(reader: Reader, model: Any) -> None:
    """Set what an estimator knows of its errors; files of earlier versions do not say."""
    if hasattr(model, "class_weight"):
        model._conformity = conformity_from(reader, 1)
        if "temperature" in reader.content:
            model._temperature = reader.entry("temperature", float)
            reader.require(1e-3 < model._temperature < 1e3, f"has the temperature {model._temperature:g}")
        return
    model._conformity = conformity_from(reader, model.n_outputs_)
    if len(model.input_encoder_.shape_) == 1:
        model._evidence = evidence_from(reader, model.input_encoder_.n_plain, model.n_outputs_, MOST_EVIDENCE)


def load_history(reader: Reader, model: Any) -> None:
    """Set the history of the fit: profile, race, stages and scores."""
    stored = profile_values(reader, reader.entry("profile", list))
    model.profile_ = check_model(reader, lambda: profile_from(stored))
    model.seed_ = reader.count("seed", (1 << 63) - 1)
    reader.require(model.profile_.encoding == model.input_encoder_.encoding, "has another encoding than its profile")
    values = [profile_values(reader, value) for value in reader.entry("race", list)]
    raced = check_model(reader, lambda: [profile_from(one) for one in values])
    scores = reader.array("race.scores", (len(raced),), finite=False)
    model.race_ = dict(zip(raced, scores.tolist(), strict=True))
    model.history_ = {name: np.array(values) for name, values in history_from(reader).items()}
    n_stages = len(model.history_["stage"])
    validation = reader.array("scores", (None,), finite=False)
    reader.require(len(validation) in (0, n_stages), "has scores for another number of stages")
    model.n_iter_ = n_stages
    model.evals_result_ = {"training": model.history_["loss"].tolist(), "validation": validation.tolist()}


def load_ensemble(
    reader: Reader, model: Any, description: Any, featurizer: Any, dtype: str, n_outputs: int
) -> Ensemble:
    """Return the ensemble of a model that knows its inputs."""
    encoder = model.input_encoder_
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
    module = template(factory, (model._rows_seen, *input_shape), dtype)
    ensemble = Ensemble(jnp.asarray(constant), fill_stacked(reader, module, theta, len(weights)), jnp.asarray(weights))
    try:
        jax.eval_shape(ensemble, jax.ShapeDtypeStruct(input_shape, dtype))
    except Exception as error:  # shapes that do not go together
        raise ModelFileError(f"{reader.name} has weights that do not fit its featurizer: {shortened(error)}") from error
    return ensemble


def load_chains(reader: Reader, first: Ensemble) -> list[Ensemble]:
    """Return the chains beside the first, of the same architecture."""
    lengths, dtype = reader.entry("others", list), first.constant.dtype
    sound = 0 < len(lengths) <= MOST_CHAINS and all(type(n) is int and 0 <= n < 1 << 31 for n in lengths)
    reader.require(sound and first.n_learners > 0, f"has chains of {brief(lengths)} learners")
    constants, total = reader.array("others.constant", (len(lengths), first.n_outputs)), sum(lengths)
    reader.require(constants.dtype == dtype, f"is not in {dtype} throughout")
    if not total:
        return [Ensemble.stack(jnp.asarray(constant), []) for constant in constants]
    weights = reader.array("others.weights", (total, *first.weights.shape[1:]))
    reader.require(weights.dtype == dtype, f"is not in {dtype} throughout")
    one = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype) if eqx.is_array(leaf) else leaf, first.featurizers
    )
    learners = fill_stacked(reader, one, reader.prefixed("others.theta."), total)
    whole, ends = Ensemble(jnp.asarray(constants[0]), learners, jnp.asarray(weights)), np.cumsum(lengths).tolist()
    return [
        Ensemble(jnp.asarray(constant), *whole.part(slice(end - n, end))) if n else Ensemble.stack(constant, [])
        for constant, n, end in zip(constants, lengths, ends, strict=True)
    ]


def check_predictions(reader: Reader, model: Any) -> None:
    """Raise an error if a model's numbers are so large that it predicts none for ordinary inputs."""
    constant, weights = (np.asarray(array) for array in (model.ensemble_.constant, model.ensemble_.weights))
    with np.errstate(all="ignore"):
        most = np.abs(weights).sum(axis=(0, 1)) + np.abs(constant)  # of features up to one
        sound = np.isfinite(1e6 * most).all()
        raw = np.concatenate([most[None], trial(model, constant, weights)])
        # an exponential may well be large far away from the mean; near it there must be some room
        known = raw if model.target_scaler_.kind != "log" else raw[1:2] + 20
        sound &= np.isfinite(raw).all() and np.isfinite(model._from_raw(known)).all()
    reader.require(bool(sound), "has numbers so large that its predictions are not finite")


def trial(model: Any, constant: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return raw predictions for mean inputs and for some far away, in the model's precision; none if it takes long.

    Nor are there any for featurizers of the user's own, which only JAX can evaluate.
    """
    encoder, none = model.input_encoder_, np.zeros((0, len(constant)), constant.dtype)
    if model._light is None:
        return none
    shape = encoder.shape_ if len(encoder.shape_) > 1 else (len(encoder.sources_),)
    theta = {name: np.asarray(leaf) for name, leaf in named_arrays(model.ensemble_.featurizers).items()}
    kernels = [leaf[0, 0, 0].size for name, leaf in theta.items() if "convolutions" in name and leaf.ndim == 5]
    if np.prod(shape, dtype=float) * len(weights) * max(kernels, default=1) > MOST_WORK:
        return none
    x = np.stack([np.full(shape, value, constant.dtype) for value in (0, 8, -8)])
    return predictor.ensemble(constant, weights, model._light.description, theta, x)
