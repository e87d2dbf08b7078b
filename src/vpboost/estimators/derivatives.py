"""What a fitted estimator offers as a smooth function: itself in JAX, and derivatives beyond the first."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..core.ensemble import Ensemble
from ..losses import Loss
from ..tables.encoder import InputEncoder
from ..tables.rows import parts_of
from ..tables.scaling import TargetScaler
from .function import ModelFunction, along_inputs, along_outputs, chosen_levels, each_row, function_of, hessian, one_hot


class Differentiable:
    """The estimators' part that takes them as functions."""

    _is_classifier: bool
    ensemble_: Ensemble
    input_encoder_: InputEncoder
    target_scaler_: TargetScaler
    n_features_in_: int
    single_output_: bool
    loss_: Loss
    _known_inputs: Callable[[Any], Any]

    def as_jax(self, levels: Mapping | None = None) -> ModelFunction:
        """Return the model as a pure JAX function of one input, for ``jax.jit``, ``vmap``, ``grad`` and the like.

        It takes the numeric columns of one row in your units (seconds, where they are times) and returns what
        ``predict`` returns for it, of a classifier what ``predict_proba`` does. Encoding and scaling are part of it;
        all that the model has learnt are leaves of it as a pytree. It has the precision that JAX has when you call
        this. Dates, numbers far from zero, and models of responses without noise want double: make and use it ``with
        jax.enable_x64(True)``.

        Parameters
        ----------
        levels : mapping, optional
            The value of each categorical column, by its name (its number, where columns have no names).

        Examples
        --------
        >>> import jax, numpy as np
        >>> from vpboost import VPBoostRegressor
        >>> X = np.random.default_rng(0).uniform(-1, 1, size=(60, 2))
        >>> model = VPBoostRegressor(n_estimators=3, encoding="plain").fit(X, X[:, 0] ** 2)
        >>> function = model.as_jax()
        >>> jax.grad(function)(X[0]).shape, jax.vmap(function)(X).shape
        ((2,), (60,))
        >>> bool(abs(jax.jit(function)(X[0]) - model.predict(X[:1])[0]) < 1e-3)
        True
        """
        check_is_fitted(self)
        single = not self._is_classifier and self._one_number()
        return function_of(self, chosen_levels(self, levels), self._link(), single)

    def input_hessian(self, X: Any) -> np.ndarray:
        """Return the exact second derivatives of what ``input_gradient`` returns the first of.

        Their shape is (n_samples, n_features, n_features), of several outputs (n_samples, n_outputs, n_features,
        n_features). Entries of categorical columns and of missing values are zero. Encodings other than "plain" bend
        at some values of each column (``profile_.encoding``, knots at quantiles of the training data): there, second
        derivatives are those of one side.
        """
        found = self._derivatives(hessian, self._known_inputs(X))
        numeric, n = np.array(self.input_encoder_.numeric_, int), self.n_features_in_
        whole = np.zeros((*found.shape[:-2], n, n))
        whole[..., numeric[:, None], numeric] = found
        return whole

    def input_jvp(self, X: Any, directions: Any) -> np.ndarray:
        """Return derivatives along a direction of the inputs for each row: the product of ``input_gradient`` with it.

        The Jacobian is not formed: thousands of outputs cost as much as a few predictions.

        Parameters
        ----------
        X : as in ``predict``
        directions : array of shape (n_samples, n_features) or (n_features,)
            In your units; entries of categorical columns do not count.

        Returns
        -------
        array of shape (n_samples,) or (n_samples, n_outputs)
        """
        inputs, numeric = self._known_inputs(X), np.array(self.input_encoder_.numeric_, int)
        along = vectors("directions", directions, (inputs.shape[0], self.n_features_in_))
        return self._derivatives(along_inputs, inputs, finite("directions", along[:, numeric]))

    def input_vjp(self, X: Any, weights: Any) -> np.ndarray:
        """Return the gradient of a weighted sum of the outputs for each row, without forming the Jacobian.

        Parameters
        ----------
        X : as in ``predict``
        weights : array of shape (n_samples, n_outputs) or (n_outputs,)
            Of the outputs; (n_samples,) where there is one.

        Returns
        -------
        array of shape (n_samples, n_features)
        """
        inputs, single = self._known_inputs(X), self._one_number()
        n, n_each = inputs.shape[0], self.ensemble_.n_outputs
        n_outputs = n_each if self._is_classifier or self._in_order() else self.target_scaler_.scale_.size
        if single and n_outputs == 1 and np.shape(weights) == (n,):
            weights = np.reshape(weights, (n, 1))
        weighed = finite("weights", vectors("weights", weights, (n, n_outputs)))
        if self._in_order():
            weighed = weighed.reshape(n, -1, self.loss_.n_parameters)
        found = self._derivatives(along_outputs, inputs, weighed[:, 0] if single else weighed)
        whole = np.zeros((n, self.n_features_in_))
        whole[:, np.array(self.input_encoder_.numeric_, int)] = found
        return whole

    def _derivatives(self, of_row: Callable, inputs: Any, *more: np.ndarray) -> np.ndarray:
        """Return derivatives of predictions, of a classifier of logits, for each row of checked inputs, in double."""
        if len(inputs.shape) > 2:
            raise ValueError("X holds images: differentiate as_jax(), a function of one image, instead")
        numbers, texts = parts_of(inputs)
        categories = self.input_encoder_.categories_
        levels = one_hot(categories, [texts[category.column] for category in categories], len(numbers))
        with jax.enable_x64(True):
            link = "none" if self._is_classifier else self._link()  # a classifier's logits
            function = function_of(self, levels[0], link, self._one_number())
            return each_row(of_row, function, levels, numbers.astype(float), *more)

    def _link(self) -> str:
        """Return what turns raw predictions into those in the user's units."""
        return "classes" if self._is_classifier else self.target_scaler_.kind

    def _in_order(self) -> bool:
        """Say whether several quantiles are predicted for each target."""
        return isinstance(getattr(self.loss_, "level", None), tuple)

    def _one_number(self) -> bool:
        """Say whether derivatives have no axis for outputs: a single output, or two classes."""
        return self.ensemble_.n_outputs == 1 if self._is_classifier else bool(self.single_output_)


def vectors(name: str, values: Any, shape: tuple[int, int]) -> np.ndarray:
    """Return a vector for each row; the same for all if one is given."""
    try:
        found = np.asarray(values, float)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be numbers, got {values!r}") from error
    if found.shape not in (shape, shape[1:]):
        raise ValueError(f"{name} must have shape {shape} or {shape[1:]}, got {found.shape}")
    return np.broadcast_to(found, shape)


def finite(name: str, values: np.ndarray) -> np.ndarray:
    """Return values, after checking that they are finite."""
    if not np.isfinite(values).all():
        raise ValueError(f"{name} must be finite, got NaN or infinity")
    return values
