"""What a fitted estimator offers as a smooth function: itself in JAX, and derivatives beyond the first."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..core.ensemble import Ensemble
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
    _known_inputs: Callable[[Any], Any]

    def as_jax(self, levels: Mapping | None = None) -> ModelFunction:
        """Return the model as a pure JAX function of one input, for ``jax.jit``, ``vmap``, ``grad`` and the like.

        It takes the numeric columns of one row in your units (seconds, where they are times) and returns what
        ``predict`` returns for it, of a classifier what ``predict_proba`` does. Encoding and scaling are part of it;
        all that the model has learnt are leaves of it as a pytree. It has the precision that JAX has when you call
        this: models of responses without noise want double, ``with jax.enable_x64(True)``, where it is made and used.

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
        """
        check_is_fitted(self)
        return function_of(self, chosen_levels(self, levels), self._link())

    def input_hessian(self, X: Any) -> np.ndarray:
        """Return the exact second derivatives of what ``input_gradient`` returns the first of.

        Their shape is (n_samples, n_features, n_features), of several outputs (n_samples, n_outputs, n_features,
        n_features). Entries of categorical columns and of missing values are zero.
        """
        found = self._derivatives(hessian, X)
        numeric, n = self.input_encoder_.numeric_, self.n_features_in_
        whole = np.zeros((*found.shape[:-2], n, n))
        whole[..., np.array(numeric)[:, None], numeric] = found
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
        n = self._known_inputs(X).shape[0]
        along = self._vectors("directions", directions, (n, self.n_features_in_))
        return self._derivatives(along_inputs, X, along[:, self.input_encoder_.numeric_])

    def input_vjp(self, X: Any, weights: Any) -> np.ndarray:
        """Return the gradient of a weighted sum of the outputs for each row, without forming the Jacobian.

        Parameters
        ----------
        X : as in ``predict``
        weights : array of shape (n_samples, n_outputs) or (n_outputs,)
            Of the outputs.

        Returns
        -------
        array of shape (n_samples, n_features)
        """
        n, n_outputs = self._known_inputs(X).shape[0], self.ensemble_.n_outputs
        weighed = self._vectors("weights", weights, (n, n_outputs))
        found = self._derivatives(along_outputs, X, weighed[:, 0] if self._one_number() else weighed)
        whole = np.zeros((n, self.n_features_in_))
        whole[:, self.input_encoder_.numeric_] = found
        return whole

    def _derivatives(self, of_row: Callable, X: Any, *more: np.ndarray) -> np.ndarray:
        """Return derivatives of raw predictions, in the user's units, for each row, in double precision."""
        inputs = self._known_inputs(X)
        if len(inputs.shape) > 2:
            raise ValueError("X holds images: differentiate as_jax(), a function of one image, instead")
        numbers, texts = parts_of(inputs)
        categories = self.input_encoder_.categories_
        levels = one_hot(categories, [texts[category.column] for category in categories], len(numbers))
        with jax.enable_x64(True):
            link = "none" if self._is_classifier else self._link()  # a classifier's logits
            function = function_of(self, levels[0], link)
            if self._is_classifier and self._one_number():
                function = dataclasses.replace(function, single=True)
            return each_row(of_row, function, levels, numbers.astype(float), *more)

    def _link(self) -> str:
        """Return what turns raw predictions into those in the user's units."""
        return "classes" if self._is_classifier else self.target_scaler_.kind

    def _one_number(self) -> bool:
        """Say whether derivatives have no axis for outputs: a single output, or two classes."""
        return self.ensemble_.n_outputs == 1 if self._is_classifier else bool(self.single_output_)

    def _vectors(self, name: str, values: Any, shape: tuple[int, int]) -> np.ndarray:
        """Return a vector for each row; the same for all if one is given."""
        found = np.asarray(values, float)
        if found.shape not in (shape, shape[1:]) or not np.isfinite(found).all():
            raise ValueError(f"{name} must be finite numbers of shape {shape} or {shape[1:]}, got shape {found.shape}")
        return np.broadcast_to(found, shape)
