"""What a predictive distribution has besides its location, in files."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..core.ensemble import Ensemble
from ..losses import Loss
from .container import ModelFileError, brief, shortened
from .describe import (
    check_size,
    describe_featurizer,
    describe_loss,
    factory_of,
    fill_stacked,
    loss_of,
    named_arrays,
    template,
)
from .reader import Reader


def spread_parts(likelihood: Loss, ensemble: Ensemble) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return JSON and arrays that describe a likelihood and the ensemble of its parameters."""
    learners = describe_featurizer(ensemble.featurizers) if ensemble.n_learners else None
    arrays = {"spread.constant": ensemble.constant, "spread.weights": ensemble.weights}
    arrays |= {f"spread.theta.{name}": leaf for name, leaf in named_arrays(ensemble.featurizers).items()}
    return {"likelihood": describe_loss(likelihood), "featurizer": learners}, arrays


def spread_from(reader: Reader, n_inputs: int, n_targets: int) -> tuple[Any, Ensemble]:
    """Return the likelihood and the ensemble that a file describes, after checking them."""
    part = Reader(reader.entry("spread", dict), {}, f"the distribution in {reader.name}")
    likelihood, description = loss_of(part.entry("likelihood", dict), None), part.entry("featurizer", dict, None)
    part.finish()
    part.require(likelihood.n_parameters > 1, f"is {brief(type(likelihood).__name__)}")
    n_outputs = n_targets * (likelihood.n_parameters - 1)
    constant = reader.doubles("spread.constant", (n_outputs,))
    weights = reader.doubles("spread.weights", (None, None, n_outputs))
    theta = reader.prefixed("spread.theta.")
    with jax.enable_x64(True):
        if description is None:
            part.require(not weights.size and not theta, "has arrays of learners but no learners")
            return likelihood, Ensemble.stack(jnp.asarray(constant), [])
        sound = bool(weights.size) and bool(np.abs(weights).max() < 1e31)
        part.require(sound, "has no weights, or huge ones")
        check_size(description, (n_inputs,))
        module = template(factory_of(description, None), (2, n_inputs), "float64")
        learners = fill_stacked(reader, module, theta, len(weights))
        ensemble = Ensemble(jnp.asarray(constant), learners, jnp.asarray(weights))
        try:
            jax.eval_shape(ensemble, jax.ShapeDtypeStruct((n_inputs,), "float64"))
        except Exception as error:  # shapes that do not go together
            raise ModelFileError(f"{part.name} has weights that do not fit: {shortened(error)}") from error
    return likelihood, ensemble
