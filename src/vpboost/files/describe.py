"""Featurizers and losses as JSON descriptions, and back.

A description names one of this library's classes and its options; nothing else can be built from it. What the user
wrote is described as ``{"type": "custom", ...}`` and has to be handed over by whoever loads the file.
"""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .. import losses
from ..featurizers import KINDS, Factory, Kind, SomeColumns, WithBias, kind_of
from ..featurizers.activations import ACTIVATIONS, Activation
from ..featurizers.trees import DEEPEST, WithTree, untrained_tree, without_tree
from .container import ModelFileError, brief, shortened
from .reader import Reader

LOSSES: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        *(losses.SquaredError, losses.PseudoHuber, losses.Quantile, losses.Poisson, losses.Gamma, losses.Tweedie),
        *(losses.BinaryCrossEntropy, losses.MulticlassCrossEntropy),
        *(losses.NormalLikelihood, losses.StudentTLikelihood, losses.GammaLikelihood),
        losses.NegativeBinomialLikelihood,
    )
}
#: Layers of a network, and blocks of a convolutional one, at the most: a description must not make its reader work for
#: long.
MOST_LAYERS, MOST_BLOCKS = 1000, 64
#: Quantiles that a model predicts, at the most.
MOST_LEVELS = 10_000


def describe_featurizer(module: Any) -> dict[str, Any]:
    """Return the description of a featurizer."""
    if type(module) is WithBias:
        return {"type": "WithBias", "featurizer": describe_featurizer(module.featurizer)}
    if type(module) is SomeColumns:
        return {"type": "SomeColumns", "featurizer": describe_featurizer(module.featurizer)}
    if type(module) is WithTree:
        inner = describe_featurizer(module.featurizer)
        return {"type": "WithTree", "featurizer": inner, "depth": int(module.bias.shape[-1])}
    name, kind = type(module).__name__, kind_of(type(module))
    if kind is None:
        return {"type": "custom", "name": name}
    options, activation = kind.options(module), getattr(module, "activation", None)
    if activation is None:
        return {"type": name, "options": options}
    if isinstance(activation, Activation):
        return {"type": name, "options": {**options, "activation": activation.name}}
    known = ", ".join(f"{key}={value}" for key, value in options.items())
    return {"type": "custom", "name": f"partial({name}, {known}, activation=...)"}


def describe_factory(factory: Any) -> dict[str, Any] | None:
    """Return the description of one of this library's factories with its options; None for any other."""
    options = factory.keywords if isinstance(factory, partial) and not factory.args else {}
    kind = kind_of(factory.func if isinstance(factory, partial) else factory)
    if kind is None or (isinstance(factory, partial) and factory.args):
        return None
    name = kind.build.__name__
    plain = {key: list(value) if isinstance(value, tuple) else value for key, value in options.items()}
    try:
        return {"type": name, "options": check_options(plain, name)}
    except ModelFileError:
        return None


def is_custom(description: dict[str, Any]) -> bool:
    """Say whether a description, or what it is made of, leaves something to the user."""
    inner = description.get("featurizer")
    return description.get("type") == "custom" or (isinstance(inner, dict) and is_custom(inner))


def factory_of(description: Any, custom: Factory | None, nested: bool = False) -> Factory:
    """Return a factory of the featurizers that a description stands for; ``custom`` builds what it leaves open."""
    if not isinstance(description, dict) or not isinstance(description.get("type"), str):
        raise ModelFileError(f"the featurizer is described by {brief(description)}")
    kind = description["type"]
    if kind in ("WithBias", "SomeColumns") and set(description) == {"type", "featurizer"}:
        if nested and kind == "WithBias":
            raise ModelFileError("the featurizer's description has a bias inside")
        inner = factory_of(description["featurizer"], custom, nested=True)
        if kind == "SomeColumns":
            if isinstance(inner, partial) and inner.func is SomeColumns:
                raise ModelFileError("the featurizer's description chooses columns twice")
            return partial(SomeColumns, factory=inner, fraction=1.0)
        return lambda key, rows: WithBias(inner(key, rows))
    if kind == "WithTree" and set(description) == {"type", "featurizer", "depth"}:
        depth, inner = description["depth"], description["featurizer"]
        if type(depth) is not int or not 0 < depth <= DEEPEST or wrapped_in(inner, "WithTree"):
            raise ModelFileError(f"the featurizer's description has a tree of depth {brief(depth)}, or two trees")
        return partial(untrained_tree, factory=factory_of(inner, custom, nested=True), depth=depth)
    if kind == "custom":
        if custom is None:
            name = description.get("name")
            raise ModelFileError(
                f"the model has a featurizer of its author's own, {brief(name, 200)}: pass it as featurizer="
            )
        return custom
    if kind not in KINDS or set(description) != {"type", "options"}:
        raise ModelFileError(f"the model has a featurizer {brief(kind)}, which this version does not know")
    return partial(KINDS[kind].build, **check_options(description["options"], kind))


def wrapped_in(description: Any, kind: str) -> bool:
    """Say whether a description, or what it is made of, is of a kind."""
    return isinstance(description, dict) and (
        description.get("type") == kind or wrapped_in(description.get("featurizer"), kind)
    )


def check_options(options: Any, kind: str) -> dict[str, Any]:
    """Return a featurizer's options if they are an activation's name, numbers or lists of them; raise an error if not.

    Whether they suit the featurizer is left to itself.
    """
    if not isinstance(options, dict):
        raise ModelFileError(f"the options of featurizer {kind!r} are {brief(options)}")
    for name, value in options.items():
        if name == "activation":
            sound = isinstance(value, str) and value in ACTIVATIONS
        elif isinstance(value, list):
            sound = len(value) <= MOST_BLOCKS and all(type(v) is int and 0 < v < 1 << 31 for v in value)
        elif isinstance(value, float):  # initial scales
            sound = 0 < value < 1e9
        else:
            sound = type(value) is int and 0 <= value < (MOST_LAYERS if name == "depth" else 1 << 31)
        if not sound:
            raise ModelFileError(f"featurizer {kind!r} has option {brief(name)} = {brief(value)}")
    return options


def kind_described(description: dict[str, Any]) -> Kind:
    """Return the kind of featurizer that a description, or what it is made of, is of."""
    inner = description.get("featurizer")
    return kind_described(inner) if isinstance(inner, dict) else KINDS[description["type"]]


def check_size(description: dict[str, Any], input_shape: tuple[int, ...]) -> None:
    """Raise an error if a featurizer would take too much memory for inputs of this shape."""
    while isinstance(description.get("featurizer"), dict):
        description = description["featurizer"]
    kind = KINDS.get(description["type"])
    try:
        if kind is not None and kind.check is not None:
            kind.check(description["options"], input_shape)
    except ValueError as error:
        raise ModelFileError(str(error)) from error


def template(factory: Factory, shape: tuple[int, ...], dtype: Any) -> Any:
    """Return a featurizer with the shapes of its arrays in place of the arrays, as built from rows of this shape."""
    rows = jax.ShapeDtypeStruct(shape, dtype)
    try:
        return eqx.filter_eval_shape(factory, jax.random.key(0), rows)
    except Exception as error:  # whatever a factory raises when its options make no sense
        raise ModelFileError(
            f"the featurizer cannot be built for inputs of shape {brief(shape[1:])}: {shortened(error)}"
        ) from error


def named_arrays(module: Any) -> dict[str, Any]:
    """Return the arrays of a featurizer, or the shapes in a template, by name: ``layers.0.weight`` and so on."""
    leaves = jax.tree_util.tree_flatten_with_path(eqx.filter(module, is_array))[0]
    return {jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in leaves}


def is_array(leaf: Any) -> bool:
    """Say whether a leaf is an array, or the shape of one in a template."""
    return eqx.is_array(leaf) or isinstance(leaf, jax.ShapeDtypeStruct)


def fill(module: Any, arrays: dict[str, np.ndarray]) -> Any:
    """Return the featurizers that a template and their stacked arrays make, each array named and shaped as it asks."""
    expected = named_arrays(module)
    if set(arrays) != set(expected):
        missing, extra = sorted(set(expected) - set(arrays)), sorted(set(arrays) - set(expected))
        raise ModelFileError(
            f"the featurizer's arrays are not those described: missing {brief(missing)}, extra {brief(extra)}"
        )
    for name, leaf in expected.items():
        shape, kind = arrays[name].shape[1:], arrays[name].dtype
        if shape != leaf.shape or kind != leaf.dtype:
            raise ModelFileError(
                f"array {brief(name)} has shape {brief(shape)} and type {kind}, described are {brief(leaf.shape)} and "
                f"{leaf.dtype}"
            )
    shapes, structure = eqx.partition(module, is_array)
    filled = jax.tree.unflatten(jax.tree.structure(shapes), [jnp.asarray(arrays[name]) for name in expected])
    return eqx.combine(filled, structure)


def fill_stacked(reader: Reader, module: Any, arrays: dict[str, np.ndarray], n_learners: int) -> Any:
    """Return the featurizers of so many learners, as :func:`fill` does, after checking the numbers in their arrays."""
    limits = {name: most for kind in KINDS.values() for name, most in kind.largest.items()}
    for name, array in arrays.items():
        what = f"array {brief(f'theta.{name}')}"
        reader.require(array.shape[:1] == (n_learners,), f"has {what} for another number of learners")
        reader.require(bool(np.isfinite(array).all()), f"has NaN or infinite numbers in {what}")
        largest = limits.get(name.rpartition(".")[2], 1e31)  # beyond, features are NaN somewhere
        sound = array.dtype.kind != "f" or not array.size or float(np.abs(array).max()) <= largest
        reader.require(sound, f"has huge numbers in {what}: its predictions are not finite")
    filled = fill(module, arrays)
    inner = without_tree(filled)
    inner = inner.featurizer if isinstance(inner, WithBias) else inner
    if isinstance(inner, SomeColumns):
        reader.require(bool(np.asarray(inner.seen).any(axis=1).all()), "has a learner that sees no column")
    return filled


def describe_loss(loss: losses.Loss) -> dict[str, Any]:
    """Return the description of a loss."""
    if type(loss).__name__ not in LOSSES or LOSSES[type(loss).__name__] is not type(loss):
        return {"type": "custom", "name": type(loss).__name__}
    options = {name: list(value) if isinstance(value, tuple) else value for name, value in vars(loss).items()}
    return {"type": type(loss).__name__, "options": options}


def is_option(value: Any) -> bool:
    """Say whether this may be an option of a loss: a number, some levels of quantiles, or null."""
    if isinstance(value, list):
        return len(value) <= MOST_LEVELS and all(type(level) is float for level in value)
    return value is None or type(value) in (int, float)


def loss_of(description: Any, custom: Any) -> losses.Loss:
    """Return the loss that a description stands for; ``custom`` is the user's own."""
    if not isinstance(description, dict) or not isinstance(description.get("type"), str):
        raise ModelFileError(f"the loss is described by {brief(description)}")
    kind = description["type"]
    if kind == "custom":
        if custom is None:
            name = description.get("name")
            raise ModelFileError(f"the model has a loss of its author's own, {brief(name, 200)}: pass it as loss=")
        return custom if isinstance(custom, losses.Loss) else losses.CustomLoss(custom)
    if kind not in LOSSES or set(description) != {"type", "options"}:
        raise ModelFileError(f"the model has a loss {brief(kind)}, which this version does not know")
    options = description["options"]
    if not isinstance(options, dict) or not all(map(is_option, options.values())):
        raise ModelFileError(f"loss {kind!r} has options {brief(options)}")
    try:
        return LOSSES[kind](**options)
    except (TypeError, ValueError, OverflowError) as error:
        raise ModelFileError(f"loss {kind!r} has options {brief(options)}: {shortened(error)}") from error
