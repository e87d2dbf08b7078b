"""What regressor and classifier share: checks, scaling, the fit and raw predictions."""

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from .. import featurizers
from ..boosting import Boosted, Record, Stage, boost
from ..callbacks import EarlyStopping, Progress, ProgressDisplay
from ..data import check_weights
from ..metrics import score_function
from ..preprocessing import InputEncoder, TargetScaler, canonical_rows, has_text, is_frame, n_rows, take
from ..trust_region import TrustRegion
from ..weak_learner import Training

FEATURIZERS: dict[str, Callable] = {
    "mlp": featurizers.MLP,
    "resnet": featurizers.ResNet,
    "convnet": featurizers.ConvNet,
    "rbf": featurizers.RBF,
    "fourier": featurizers.Fourier,
    "bspline": featurizers.BSpline,
}
#: Which of width, depth and activation a named featurizer takes, and under what name.
OPTIONS = {
    "mlp": {"width": "width", "depth": "depth", "activation": "activation"},
    "resnet": {"width": "width", "depth": "depth", "activation": "activation"},
    "convnet": {"activation": "activation"},
    "rbf": {"width": "n_features"},
    "fourier": {"width": "n_features"},
    "bspline": {"width": "n_knots"},
}


class BaseVPBoost(BaseEstimator):
    """What regressor and classifier share."""

    boosted_: Boosted
    evals_result_: dict[str, list[float]]

    def __init__(
        self,
        *,
        n_estimators: int = 200,
        learning_rate: float = 0.3,
        loss: Any = None,
        featurizer: Any = "mlp",
        width: int | None = None,
        depth: int | None = None,
        activation: Any = None,
        method: str = "vp",
        optimizer: Any = "adam",
        step_size: float | None = None,
        max_steps: int = 200,
        batch_size: Any = "auto",
        candidates: int = 1,
        reg_lambda: float = 1e-4,
        reg_theta: float = 0.0,
        rho_accept: float = 0.0,
        rho_small: float = 0.1,
        gamma_up: float = 4.0,
        gamma_down: float = 1.0,
        early_stopping_rounds: Any = "auto",
        validation_fraction: float = 0.15,
        eval_metric: Any = None,
        warm_start: bool = False,
        callbacks: list | None = None,
        random_state: Any = 0,
        dtype: str = "float32",
        verbose: int = 0,
    ):
        self.n_estimators = n_estimators
        self.learning_rate = learning_rate
        self.loss = loss
        self.featurizer = featurizer
        self.width = width
        self.depth = depth
        self.activation = activation
        self.method = method
        self.optimizer = optimizer
        self.step_size = step_size
        self.max_steps = max_steps
        self.batch_size = batch_size
        self.candidates = candidates
        self.reg_lambda = reg_lambda
        self.reg_theta = reg_theta
        self.rho_accept = rho_accept
        self.rho_small = rho_small
        self.gamma_up = gamma_up
        self.gamma_down = gamma_down
        self.early_stopping_rounds = early_stopping_rounds
        self.validation_fraction = validation_fraction
        self.eval_metric = eval_metric
        self.warm_start = warm_start
        self.callbacks = callbacks
        self.random_state = random_state
        self.dtype = dtype
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        return tags

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
    ) -> Any:
        """Fit the ensemble.

        Parameters
        ----------
        X : array or data frame of shape (n_samples, n_features), or images
            Numbers, with NaN for missing values; a pandas or polars frame may have categorical and text columns.
        y : array of shape (n_samples,) or (n_samples, n_outputs)
            Targets, or class labels.
        sample_weight : array of shape (n_samples,), optional
            Non-negative weights.
        X_val, y_val, sample_weight_val : like X, y, sample_weight, optional
            Validation data for early stopping.
        eval_set : pair (X_val, y_val), or a list of one such pair, optional
            The same, as other libraries spell it.

        Returns
        -------
        self
        """
        loss_given = self._check_settings()
        going_on = self.warm_start and hasattr(self, "boosted_")
        inputs = self._check_inputs(X, reset=not going_on)
        target = self._check_target(y, reset=not going_on)
        if len(target) != n_rows(inputs):
            raise ValueError(f"X and y must have as many rows, got {n_rows(inputs)} and {len(target)}")
        weight = self._check_weight(sample_weight, y, n_rows(inputs), "sample_weight")
        train, held_out = self._split(inputs, target, weight, X_val, y_val, sample_weight_val, eval_set)
        if not going_on:
            self.input_encoder_ = InputEncoder().fit(train[0], train[2])
        train = canonical_rows(self.input_encoder_.transform(train[0]), train[1], train[2])
        self._check_trimmed(train[1])
        if not going_on:
            self.loss_, kind = self._resolve_loss(loss_given)
            self.target_scaler_ = TargetScaler(kind).fit(self.loss_.prepare_targets(train[1]), train[2])
        if held_out is not None:
            held_out = self.input_encoder_.transform(held_out[0]), held_out[1], held_out[2]
        return self._boost(train, held_out, self.boosted_ if going_on else None)

    def _boost(self, train: tuple, held_out: tuple | None, resume: Boosted | None) -> Any:
        """Run the boosting loop on encoded inputs and store what came of it."""
        score = score_function(self.eval_metric, self._is_classifier)
        callbacks = list(self.callbacks or [])
        display = ProgressDisplay() if self.verbose else None
        stopping = self._early_stopping(held_out)
        scores: list[float] = [] if resume is None else list(self.evals_result_["validation"])

        def after_stage(stage: Stage) -> bool:
            value = stage.record.validation_loss
            if held_out is not None and score is not None:
                value = score(self._plain(held_out[1]), self._from_raw(stage.validation_prediction), held_out[2])
            scores.append(value)
            progress = Progress(stage, self.n_estimators, value)
            watching = [c for c in (stopping, display) if c is not None] + callbacks
            return any([bool(callback.after_stage(progress)) for callback in watching])

        def scaled(part: tuple) -> tuple:
            target = self.loss_.prepare_targets(part[1])
            return part[0], self.target_scaler_.transform(target), part[2]

        x, y, weight = scaled(train)
        try:
            self.boosted_ = boost(
                x,
                y,
                loss=self.loss_,
                featurizer=self._factory(len(x)),
                n_learners=self.n_estimators,
                training=self._training(len(x)),
                trust_region=self._trust_region(),
                sample_weight=weight,
                validation=None if held_out is None else scaled(held_out),
                seed=self._seed(),
                dtype=self.dtype,
                callback=after_stage,
                resume=resume,
            )
        finally:
            if display is not None:
                display.close()
        if self.boosted_.status.startswith("interrupted"):
            warnings.warn(f"fit {self.boosted_.status}; the model of those stages is kept", UserWarning, stacklevel=3)
        self._store(scores if held_out is not None else [], stopping)
        self._importances(x[: 4 * 1024])
        return self

    def _store(self, scores: list[float], stopping: EarlyStopping | None) -> None:
        history = self.boosted_.history
        self.history_ = {name: np.array([getattr(r, name) for r in history]) for name in Record._fields}
        self.n_iter_ = len(history)
        self.evals_result_ = {"training": self.history_["loss"].tolist(), "validation": scores}
        kept = self.boosted_.ensemble.n_learners
        self.best_score_ = history[-1].loss if history else float("nan")
        if scores:
            best = int(np.nanargmin(scores)) if stopping is not None else len(scores) - 1
            self.best_score_ = scores[best]
            kept = int(self.history_["accepted"][: best + 1].sum())
        self.best_iteration_ = kept
        self.ensemble_ = self.boosted_.ensemble.truncate(kept)

    def _importances(self, x: np.ndarray) -> None:
        slopes = np.abs(self.ensemble_.input_gradient(x)).mean(axis=(0, 1))
        per_column = (slopes * x.std(axis=0)).reshape(-1)
        if x.ndim == 2:
            per_column = np.bincount(self.input_encoder_.sources_, weights=per_column, minlength=self.n_features_in_)
        total = per_column.sum()
        self.feature_importances_ = per_column / total if total > 0 else per_column

    # --- checks -----------------------------------------------------------------------------------------------------

    _is_classifier = False

    def _plain(self, target: np.ndarray) -> np.ndarray:
        """Return targets in the shape of predictions."""
        return target

    def _check_settings(self) -> Any:
        if isinstance(self.n_estimators, bool) or not isinstance(self.n_estimators, int | np.integer):
            raise ValueError(f"n_estimators must be a whole number of at least 1, got {self.n_estimators!r}")
        if self.n_estimators < 1:
            raise ValueError(f"n_estimators must be a whole number of at least 1, got {self.n_estimators!r}")
        if self.warm_start and hasattr(self, "boosted_") and self.n_estimators < self.n_iter_:
            raise ValueError(
                f"n_estimators={self.n_estimators} must be at least the {self.n_iter_} stages already fitted when "
                "warm_start=True"
            )
        if not 0 < self.learning_rate <= 1:
            raise ValueError(f"learning_rate must be in (0, 1], got {self.learning_rate!r}")
        if not 0 < self.validation_fraction < 1:
            raise ValueError(f"validation_fraction must be in (0, 1), got {self.validation_fraction!r}")
        rounds = self.early_stopping_rounds
        if rounds not in ("auto", None) and (not isinstance(rounds, int | np.integer) or rounds < 1):
            raise ValueError(f"early_stopping_rounds must be a number of at least 1, 'auto' or None, got {rounds!r}")
        for callback in self.callbacks or []:
            if not callable(getattr(callback, "after_stage", None)):
                raise TypeError(f"callbacks must have a method after_stage, got {type(callback).__name__}")
        self._training(1), self._trust_region(), self._factory(1)
        score_function(self.eval_metric, self._is_classifier)
        return self._named_loss()

    def _training(self, n: int) -> Training:
        batch = (None if n <= 8192 else 4096) if self.batch_size == "auto" else self.batch_size
        return Training(
            method=self.method,
            max_steps=self.max_steps,
            optimizer=self.optimizer,
            step_size=self.step_size,
            batch_size=batch,
            reg_theta=self.reg_theta,
            candidates=self.candidates,
        )

    def _trust_region(self) -> TrustRegion:
        return TrustRegion(
            reg_lambda=self.reg_lambda,
            rho_accept=self.rho_accept,
            rho_small=self.rho_small,
            gamma_up=self.gamma_up,
            gamma_down=self.gamma_down,
            rate=self.learning_rate,
            lambda_low=min(self.reg_lambda, 1e-12),
        )

    def _factory(self, n: int) -> Callable:
        """Return the featurizer factory; a named one gets width, depth and activation where it takes them."""
        given = {"width": self.width, "depth": self.depth, "activation": self.activation}
        given = {name: value for name, value in given.items() if value is not None}
        if not isinstance(self.featurizer, str):
            if not callable(self.featurizer):
                raise TypeError(f"featurizer must be a name or a factory, got {type(self.featurizer).__name__}")
            if given:
                raise ValueError(f"{', '.join(given)} go with a named featurizer; give a factory its own options")
            return self.featurizer
        if self.featurizer not in FEATURIZERS:
            raise ValueError(f"featurizer must be one of {sorted(FEATURIZERS)} or a factory, got {self.featurizer!r}")
        takes = OPTIONS[self.featurizer]
        for name in given:
            if name not in takes:
                raise ValueError(f"{name} does not apply to featurizer={self.featurizer!r}; leave it None")
        if "width" in takes:
            given.setdefault("width", 8 if n < 1000 else 16 if n < 50_000 else 32)
        return partial(FEATURIZERS[self.featurizer], **{takes[name]: value for name, value in given.items()})

    def _early_stopping(self, held_out: tuple | None) -> EarlyStopping | None:
        if held_out is None or self.early_stopping_rounds is None:
            return None
        return EarlyStopping(20 if self.early_stopping_rounds == "auto" else int(self.early_stopping_rounds))

    def _seed(self) -> int:
        if isinstance(self.random_state, int | np.integer):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _check_inputs(self, X: Any, reset: bool) -> Any:
        if is_frame(X) and (has_text(X) if reset else bool(self.input_encoder_.categories_)):
            validate_data(self, X, skip_check_array=True, reset=reset)
            if X.shape[0] == 0:
                raise ValueError(f"Found array with 0 sample(s) (shape={X.shape}) while a minimum of 1 is required.")
            return X
        X = validate_data(self, X, reset=reset, dtype=np.float64, ensure_all_finite="allow-nan", allow_nd=True)
        if X.ndim > 2 and np.isnan(X).any():
            raise ValueError("X must not have missing values when it holds images")
        return X

    def _check_weight(self, sample_weight: Any, y: Any, n: int, name: str) -> np.ndarray:
        if sample_weight is None:
            return np.ones(n)
        weight = _check_sample_weight(sample_weight, np.zeros((n, 1)), dtype=np.float64)
        try:
            return check_weights(weight, n) * weight.max()
        except ValueError as error:
            raise ValueError(str(error).replace("sample_weight", name)) from None

    def _check_trimmed(self, target: np.ndarray) -> None:
        """Check targets once rows of weight zero are gone."""

    def _split(self, X: Any, y: np.ndarray, weight: np.ndarray, X_val: Any, y_val: Any, w_val: Any, pair: Any) -> tuple:
        """Return training and validation parts as (inputs, targets, weights); the latter None without any."""
        if pair is not None:
            if X_val is not None:
                raise ValueError("give validation data as X_val and y_val or as eval_set, not both")
            pair = pair[0] if isinstance(pair, list) and len(pair) == 1 else pair
            if not isinstance(pair, tuple) or len(pair) != 2:
                raise ValueError("eval_set must be one pair (X, y), or a list of one such pair")
            X_val, y_val = pair
        if (X_val is None) != (y_val is None):
            raise ValueError("X_val and y_val must be given together")
        if X_val is not None:
            inputs, target = self._check_inputs(X_val, reset=False), self._check_target(y_val, reset=False)
            if len(target) != n_rows(inputs):
                raise ValueError(f"X_val and y_val must have as many rows, got {n_rows(inputs)} and {len(target)}")
            return (X, y, weight), (inputs, target, self._check_weight(w_val, y_val, len(target), "sample_weight_val"))
        if self.early_stopping_rounds in ("auto", None):
            return (X, y, weight), None
        order = np.random.default_rng(self._seed()).permutation(len(y))
        n_val = round(self.validation_fraction * len(y))
        if n_val < 1 or n_val >= len(y):
            raise ValueError(
                f"validation_fraction={self.validation_fraction} of {len(y)} rows leaves no row to train on or to "
                "validate with; give X_val and y_val or set early_stopping_rounds=None"
            )
        val, train = np.sort(order[:n_val]), np.sort(order[n_val:])
        return (take(X, train), y[train], weight[train]), (take(X, val), y[val], weight[val])

    # --- predictions --------------------------------------------------------------------------------------------------

    def _raw(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        return self.ensemble_.predict(self.input_encoder_.transform(self._check_inputs(X, reset=False))).astype(float)

    def _staged_raw(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        encoded = self.input_encoder_.transform(self._check_inputs(X, reset=False))
        return self.ensemble_.staged_predict(encoded)[1:].astype(float)

    def _raw_gradient(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return raw predictions and their derivatives by the columns of X."""
        check_is_fitted(self)
        encoded = self.input_encoder_.transform(self._check_inputs(X, reset=False))
        slopes = self.ensemble_.input_gradient(encoded).astype(float)
        return self.ensemble_.predict(encoded).astype(float), self.input_encoder_.gradient(slopes, self.n_features_in_)
