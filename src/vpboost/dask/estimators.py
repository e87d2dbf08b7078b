"""The estimators for Dask."""

from typing import Any

import numpy as np
from dask.base import is_dask_collection
from distributed import Client, get_client
from sklearn.base import clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from .. import estimators
from ..checks import is_whole
from ..distributed.fitting import check_supported
from ..estimators.checks import check_together, validation_pair
from ..estimators.settings import with_parameters
from .fitting import fit_on_cluster
from .parts import check_collection
from .predicting import predicted_lazily
from .relay import Listener

#: Parameters of the estimators here that the plain ones do not have.
OWN = ("client", "n_workers")

PARAMETERS = """All parameters of the plain estimator, but for ``warm_start``, and two more:

    Parameters
    ----------
    client : distributed.Client, optional
        The client of the cluster; by default the one that was started last.
    n_workers : int, optional
        So many workers take part at the most; by default all that are there when the fit begins. Each has at least 128
        rows, and holds its share of them, whatever the sizes of the partitions."""


class OnDask:
    """What regressor and classifier share: a fit on a cluster, and lazy predictions."""

    _plain_class: type
    client: Any
    n_workers: Any

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        X_val: Any = None,
        y_val: Any = None,
        sample_weight_val: Any = None,
        eval_set: Any = None,
        resume_from: Any = None,
        dy: Any = None,
    ) -> Any:
        """Fit the ensemble on the workers of a cluster; partitions are used where they are.

        Parameters
        ----------
        X : Dask array or data frame of shape (n_samples, n_features)
            As in the plain estimator, with missing values, categories, text and dates. Partitions may have any sizes.
        y : Dask array, series or data frame of shape (n_samples,) or (n_samples, n_outputs)
            Targets, or class labels, in the order of X; their partitions need not be those of X.
        sample_weight : Dask array or series of shape (n_samples,), optional
            Non-negative weights.
        X_val, y_val, sample_weight_val : like X, y, sample_weight, optional
            Validation data for early stopping.
        eval_set : pair (X_val, y_val), or a list of one such pair, optional
            The same, as other libraries spell it.
        resume_from : str or Path, optional
            A file of the client's, written by :class:`vpboost.callbacks.Checkpoint` during a fit with the same data and
            settings, to go on from; the workers may be others.
        dy : None
            Observed derivatives: of the plain estimator only.

        Returns
        -------
        self

        Raises
        ------
        WorkerError
            If a worker, or the process that it had started, was lost. The fit has ended on all others.
        """
        collections = {"X": X, "y": y, "sample_weight": sample_weight}
        collections |= validation_of(X_val, y_val, sample_weight_val, eval_set)
        if dy is not None:
            raise ValueError("dy is not supported on Dask; use the plain estimator, or leave it out")
        plain = self._unfitted()
        client = self._client()
        given = {name: check_collection(name, value) for name, value in collections.items() if value is not None}
        if "y" not in given:
            raise ValueError("requires y to be passed, but the target y is None")
        listener = Listener(plain.callbacks, plain.verbose)
        plain.set_params(callbacks=None, verbose=0)
        fitted = fit_on_cluster(client, plain, given, listener, self.n_workers, resume_from)
        self._take(fitted)
        return self

    def _unfitted(self) -> Any:
        """Return a plain estimator with these parameters, checked; a seed that is the same for all processes."""
        plain = self._plain_class(**self._plain_params())
        plain._check_settings()
        check_supported(plain)
        if self.n_workers is not None and not (is_whole(self.n_workers) and self.n_workers >= 1):
            raise ValueError(f"n_workers must be a whole number of at least 1, or None, got {self.n_workers!r}")
        if not isinstance(plain.random_state, int | np.integer):
            plain.set_params(random_state=int(check_random_state(plain.random_state).randint(2**31 - 1)))
        return plain

    def _plain_params(self) -> dict[str, Any]:
        params = self.get_params(deep=False)  # type: ignore[attr-defined]
        return {name: value for name, value in params.items() if name not in OWN}

    def _client(self) -> Client:
        """Return the client to use."""
        client = self.client
        if client is None:
            try:
                client = get_client()
            except ValueError:
                raise ValueError(
                    "no Dask client is there: start one, client = dask.distributed.Client(...), or give it as client"
                ) from None
        if not isinstance(client, Client):
            raise TypeError(f"client must be a dask.distributed.Client, got {type(client).__name__}")
        if client.asynchronous:
            raise TypeError("client must not be asynchronous: give Client(..., asynchronous=False)")
        return client

    def _take(self, fitted: Any) -> None:
        """Take over what another estimator has learnt."""
        params = self.get_params(deep=False)  # type: ignore[attr-defined]
        self.__dict__ = {**{name: getattr(self, name) for name in params}, **learnt(fitted)}

    def to_local(self) -> Any:
        """Return the fitted estimator as a plain one, :class:`vpboost.VPBoostRegressor` or ``VPBoostClassifier``."""
        check_is_fitted(self)
        plain = self._plain_class(**self._plain_params())
        plain.__dict__.update(learnt(self))
        return plain

    def save_model(self, path: Any, training_rows: bool = True) -> None:
        """Write the fitted model to one file of the client's, that of a plain estimator; see there."""
        self.to_local().save_model(path, training_rows)

    def __sklearn_clone__(self) -> Any:
        params = {name: clone(value, safe=False) for name, value in self._plain_params().items()}
        again: Any = type(self)
        return again(**params, client=self.client, n_workers=self.n_workers)  # a client cannot be copied

    def __getstate__(self) -> Any:
        state: Any = super().__getstate__()
        return {**state, "client": None}  # nor sent

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "boosted_")

    def _lazily(self, method: str, X: Any, **options: Any) -> Any:
        """Return what a method of the plain estimator gives: at once, or lazily of Dask's collections."""
        check_is_fitted(self)
        if is_dask_collection(X):
            return predicted_lazily(self.to_local(), method, check_collection("X", X), options)
        return getattr(self._plain_class, method)(self, X, **options)

    def _check_inputs(self, X: Any, reset: bool) -> Any:
        if is_dask_collection(X):
            raise TypeError(
                "X must not be Dask's here, it would all be gathered: use to_local() on its parts, as by map_partitions"
            )
        return super()._check_inputs(X, reset)  # type: ignore[misc]


def learnt(fitted: Any) -> dict[str, Any]:
    """Return the attributes of an estimator that are not its parameters."""
    params = fitted.get_params(deep=False)
    return {name: value for name, value in vars(fitted).items() if name not in params}


def validation_of(X_val: Any, y_val: Any, sample_weight_val: Any, eval_set: Any) -> dict[str, Any]:
    """Return the validation data by their names."""
    X_val, y_val = validation_pair(X_val, y_val, eval_set)
    check_together(X_val, y_val, sample_weight_val)
    return {"X_val": X_val, "y_val": y_val, "sample_weight_val": sample_weight_val}


class VPBoostRegressor(OnDask, estimators.VPBoostRegressor):
    """Gradient boosting of smooth learners on a Dask cluster, for regression with any number of outputs.

    {parameters}

    Examples
    --------
    >>> import dask.array as da
    >>> from dask.distributed import Client
    >>> from vpboost.dask import VPBoostRegressor
    >>> client = Client(n_workers=2, threads_per_worker=1)  # doctest: +SKIP
    >>> X = da.random.uniform(-1, 1, size=(10_000, 4), chunks=(1000, 4))
    >>> model = VPBoostRegressor(n_estimators=50).fit(X, X[:, 0] * X[:, 1])  # doctest: +SKIP
    >>> model.predict(X).compute()  # doctest: +SKIP
    """

    _plain_class = estimators.VPBoostRegressor

    def __init__(self, *, client: Any = None, n_workers: int | None = None, **parameters: Any):
        super().__init__(**parameters)
        self.client, self.n_workers = client, n_workers

    __init__.__signature__ = with_parameters(  # type: ignore[attr-defined]
        estimators.VPBoostRegressor, client=None, n_workers=None
    )

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Return predictions, lazily of a Dask array or data frame; see the plain estimator."""
        if return_std and is_dask_collection(X):
            raise ValueError("return_std=True is not supported on Dask's collections; use to_local() on their parts")
        return self._lazily("predict", X, **({"return_std": True} if return_std else {}))


class VPBoostClassifier(OnDask, estimators.VPBoostClassifier):
    """Gradient boosting of smooth learners on a Dask cluster, for two or more classes.

    {parameters}

    Examples
    --------
    >>> import dask.array as da
    >>> from dask.distributed import Client
    >>> from vpboost.dask import VPBoostClassifier
    >>> client = Client(n_workers=2, threads_per_worker=1)  # doctest: +SKIP
    >>> X = da.random.uniform(-1, 1, size=(10_000, 4), chunks=(1000, 4))
    >>> model = VPBoostClassifier(n_estimators=50).fit(X, X[:, 0] > X[:, 1])  # doctest: +SKIP
    >>> model.predict_proba(X).compute()  # doctest: +SKIP
    """

    _plain_class = estimators.VPBoostClassifier

    def __init__(self, *, client: Any = None, n_workers: int | None = None, **parameters: Any):
        super().__init__(**parameters)
        self.client, self.n_workers = client, n_workers

    __init__.__signature__ = with_parameters(  # type: ignore[attr-defined]
        estimators.VPBoostClassifier, client=None, n_workers=None
    )

    def predict(self, X: Any) -> Any:
        """Return the most probable class of each row, lazily of a Dask array or data frame."""
        return self._lazily("predict", X)

    def predict_proba(self, X: Any) -> Any:
        """Return class probabilities, shape (n_samples, n_classes), lazily of a Dask array or data frame."""
        return self._lazily("predict_proba", X)

    def predict_log_proba(self, X: Any) -> Any:
        """Return the logarithms of class probabilities, lazily of a Dask array or data frame."""
        return self._lazily("predict_log_proba", X)

    def decision_function(self, X: Any) -> Any:
        """Return logits, lazily of a Dask array or data frame: (n_samples,) for two classes, else one per class."""
        return self._lazily("decision_function", X)


for _kind in (VPBoostRegressor, VPBoostClassifier):
    _kind.__doc__ = (_kind.__doc__ or "").replace("{parameters}", PARAMETERS)
