"""What regressor and classifier share: checks, scaling, the fit and raw predictions."""

import sys
import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from ..boosting import Boosted, Record
from ..callbacks import EarlyStopping, Progress, ProgressDisplay, ends_fit
from ..checkpoint import read_facts
from ..compilation import forget_programs_if_many
from ..data import evenly_spaced
from ..ensemble import Ensemble
from ..files.model import save_model
from ..frames import Table, names_of
from ..interpreter import using
from ..light import AccurateEnsemble, LightEnsemble
from ..preprocessing import MOST_SORTED, TargetScaler, canonical_rows, n_rows, take
from ..sources import MANY_ROWS, chunks, is_stream, read_stream
from .attempt import Attempt, Part, hold_out, mark_of, race, sample_part, take_part
from .checks import Checks
from .portfolio import RACE_ROWS, Profile, fallback, profiles


class BaseVPBoost(Checks):
    """What regressor and classifier share."""

    boosted_: Boosted
    _light: LightEnsemble | None  #: the ensemble in NumPy; None if it cannot be
    _accurate: AccurateEnsemble  #: the ensemble for XLA
    _importance_rows: Any  #: some training rows as the learners see them, until importances are computed
    _importances: np.ndarray | None  #: None until they are asked for
    profile_: Profile
    seed_: int
    evals_result_: dict[str, list[float]]
    target_names_: list[str] | None

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
        resume_from: Any = None,
    ) -> Any:
        """Fit the ensemble.

        Parameters
        ----------
        X : array or data frame of shape (n_samples, n_features), or images; or a path or iterator
            Numbers, with NaN for missing values; a pandas or polars frame, or an Arrow table, may have columns of
            categories, text, dates and spans of time. Large tables: a NumPy memory map of floating-point numbers, the
            path of a Parquet or Arrow file of numbers, or an iterator of pairs ``(X, y)`` of arrays; the last two are
            read a part at a time into single precision.
        y : array of shape (n_samples,) or (n_samples, n_outputs)
            Targets, or class labels; the name or names of the target columns of a file; None with an iterator.
        sample_weight : array of shape (n_samples,), optional
            Non-negative weights.
        X_val, y_val, sample_weight_val : like X, y, sample_weight, optional
            Validation data for early stopping.
        eval_set : pair (X_val, y_val), or a list of one such pair, optional
            The same, as other libraries spell it.
        resume_from : str or Path, optional
            A file written by :class:`vpboost.callbacks.Checkpoint` during a fit with the same data and settings, to go
            on from.

        Returns
        -------
        self
        """
        before = dict(self.__dict__)
        try:
            return self._fit(X, y, sample_weight, (X_val, y_val, sample_weight_val, eval_set), resume_from)
        except BaseException:
            # what was fitted before is as it was: a mixture of old and new would predict nonsense
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    def _fit(self, X: Any, y: Any, sample_weight: Any, validation: tuple[Any, Any, Any, Any], resume_from: Any) -> Any:
        """Check, split, choose a profile, boost and store."""
        loss_given = self._check_settings()
        going_on = self.warm_start and hasattr(self, "boosted_")
        if going_on:
            self._check_unchanged()
        names, self._file_columns = names_of(y), self._file_columns if going_on else None
        if is_stream(X):
            names = [y] if isinstance(y, str) else None if y is None else list(y)
            X, y, self._file_columns = read_stream(X, y, self._file_columns)
        if going_on and resume_from is not None:
            raise ValueError("resume_from and going on by warm_start=True exclude each other; use a fresh estimator")
        inputs = self._check_inputs(X, reset=not going_on)
        target = self._check_target(y, reset=not going_on)
        self.target_names_ = names if not going_on else self.target_names_
        if len(target) != n_rows(inputs):
            raise ValueError(f"X and y must have as many rows, got {n_rows(inputs)} and {len(target)}")
        weight = self._check_weight(sample_weight, y, n_rows(inputs), "sample_weight")
        facts = None if resume_from is None else read_facts(resume_from)
        seed = self._seed(self.seed_ if going_on else None if facts is None else facts.seed)
        forget_programs_if_many()
        rows, weight, groups = canonical_rows(inputs, target, weight)
        untouched = len(rows) == n_rows(inputs) > MOST_SORTED
        data = (inputs, target, weight) if untouched else (take(inputs, rows), target[rows], weight)
        del rows  # large tables
        # a fit that goes on keeps its validation rows: they must not be trained on
        aside_by = self.seed_ if going_on else seed
        train, held_out = self._split(data, groups, *validation, aside_by)
        self._check_trimmed(train[1])
        if going_on:
            attempt = Attempt(self, self.profile_, train, held_out, self.input_encoder_)
            attempt.scores = self._earlier_scores(attempt.validation)
            return self._boost(attempt, seed, self.boosted_)
        self.loss_, kind = self._resolve_loss(loss_given)
        prepared, weight = self.loss_.prepare_targets(train[1]), train[2]
        self.target_scaler_ = TargetScaler(kind).fit(prepared, weight, self.loss_.robust)
        self.loss_ = self.loss_.adapted(self.target_scaler_.transform(prepared), weight)
        self.race_: dict[Profile, float] = {}
        self.seed_ = seed
        if facts is not None:
            self.race_ = facts.race
            self._check_profile(facts.profile, f"resume_from={str(resume_from)!r}")
            attempt = Attempt(self, facts.profile, train, held_out)
            return self._boost(attempt, seed, attempt.restore(resume_from, seed), recall=True)
        attempt, interrupted = self._choose_profile(train, groups, held_out, seed)
        if interrupted and attempt.boosted is not None:
            status = f"interrupted after {len(attempt.scores)} stages, while profiles were compared"
            return self._store(attempt, attempt.boosted._replace(status=status), cut_at_best=True)
        return self._boost(attempt, seed, None)

    def _choose_profile(
        self, train: Part, groups: np.ndarray, held_out: Part | None, seed: int
    ) -> tuple[Attempt, bool]:
        """Return an attempt with the profile that validates best, and whether Ctrl-C cut the choice short."""
        choices = profiles(self.encoding, self.inherit, self.max_features, np.shape(train[0]))
        if len(choices) == 1:
            return Attempt(self, choices[0], train, held_out), False
        parts: tuple[Part, Any] = (train, held_out)
        if held_out is None:
            rows = hold_out(train[1], groups, self.validation_fraction, seed, self._is_classifier)
            if rows is None:  # nothing to compare by
                return Attempt(self, fallback(self.encoding, self.inherit, self.max_features), train, None), False
            parts = take_part(train, rows[0]), take_part(train, rows[1])
        parts = sample_part(parts[0], RACE_ROWS[0], seed), sample_part(parts[1], RACE_ROWS[1], seed)
        encoded: dict[str, Attempt] = {}
        for profile in choices:
            if profile.encoding not in encoded:
                encoded[profile.encoding] = Attempt(self, profile, parts[0], parts[1])
        attempts = [encoded[profile.encoding].with_profile(profile) for profile in choices]
        if self.verbose:
            print(f"comparing {len(choices)} profiles on a few stages each", file=sys.stderr)
        with using(attempts[0].engine()):  # which limits the threads of linear algebra until all are done
            best, interrupted = race(attempts, self._rate(len(train[1])), seed)
        if self.verbose:
            print(f"chosen: {best.profile}, validation {best.best_score:.4g}", file=sys.stderr)
        self.race_ = {attempt.profile: attempt.best_score for attempt in attempts}
        if interrupted:
            return best, True
        if held_out is None or parts[0] is not train or parts[1] is not held_out:
            return Attempt(self, best.profile, train, held_out), False
        return best.with_profile(best.profile), False

    def _boost(self, attempt: Attempt, seed: int, resume: Boosted | None, recall: bool = False) -> Any:
        """Run the boosting loop and store what came of it; ``recall`` tells early stopping of the stages before."""
        display = ProgressDisplay() if self.verbose else None
        stopping = self._early_stopping(attempt.held_out)
        watching = [c for c in (stopping, display) if c is not None] + list(self.callbacks or [])
        ended = False
        if recall:
            remembering = [callback for callback in watching if isinstance(callback, EarlyStopping)]
            ended = any([c.see(stage, score) for c in remembering for stage, score in enumerate(attempt.scores)])

        def watch(progress: Progress) -> bool:
            return any([ends_fit(callback, progress) for callback in watching])

        try:
            n_learners = len(attempt.scores) if ended else int(self.n_estimators)
            boosted = attempt.run(n_learners, self._rate(len(attempt.train[1])), seed, watch, resume)
        finally:
            for shown in (callback for callback in watching if isinstance(callback, ProgressDisplay)):
                shown.close()
        return self._store(attempt, boosted, cut_at_best=stopping is not None)

    def _store(self, attempt: Attempt, boosted: Boosted, cut_at_best: bool) -> Any:
        """Set the fitted attributes."""
        if boosted.status.startswith("interrupted"):
            warnings.warn(f"fit {boosted.status}; the model of those stages is kept", UserWarning, stacklevel=4)
        target = attempt.train[1]
        if boosted.history and not boosted.ensemble.n_learners and (target != target[:1]).any():
            warnings.warn(
                "no learner was accepted: the model predicts a constant (is nothing to be learnt from X, or does the "
                "featurizer, the activation or the loss give NaN?)",
                UserWarning,
                stacklevel=5,
            )
        self.profile_, self.input_encoder_, self.boosted_ = attempt.profile, attempt.encoder, boosted
        self._begun_with, self._validated_on = self._binding_settings(), mark_of(attempt.validation)
        history, scores = boosted.history, attempt.scores if attempt.held_out is not None else []
        self.history_ = {name: np.array([getattr(r, name) for r in history]) for name in Record._fields}
        self.n_iter_ = len(history)
        self.evals_result_ = {"training": self.history_["loss"].tolist(), "validation": scores}
        kept = boosted.ensemble.n_learners
        score = history[-1].loss if history else float("nan")
        if scores:
            best = int(np.nanargmin(scores)) if cut_at_best else len(scores) - 1
            score = scores[best]
            kept = int(self.history_["accepted"][: best + 1].sum())
        self._keep(kept, score)
        if cut_at_best and boosted.status == "all stages done":
            self._warn_if_unfinished(scores)
        self._importance_rows, self._importances = np.array(evenly_spaced(attempt.train[0], 512)), None
        return self

    def _warn_if_unfinished(self, scores: list[float]) -> None:
        """Warn if the last stages of all brought more than a hundredth of what was gained on the validation data."""
        best, patience = int(np.nanargmin(scores)), 10
        gained = np.array([scores[0], scores[-patience:][0]]) - scores[best]
        if best + 1 >= 0.75 * len(scores) and gained[1] > 0.01 * gained[0]:
            warnings.warn(
                f"all n_estimators={self.n_estimators} stages are done and the validation score was still improving; "
                "raise n_estimators (early stopping ends the fit in time) or learning_rate",
                ConvergenceWarning,
                stacklevel=5,
            )

    def _keep(self, n_learners: int, score: float) -> None:
        """Cut the ensemble after the best of its learners."""
        self.best_iteration_, self.best_score_ = n_learners, score
        self.ensemble_ = self.boosted_.ensemble.truncate(n_learners)
        self._set_predictors()

    def _set_predictors(self) -> None:
        """Prepare what predicts: NumPy for few rows, XLA for many."""
        self._light, self._accurate = LightEnsemble.of(self.ensemble_), AccurateEnsemble(self.ensemble_)

    def save_model(self, path: Any) -> None:
        """Write the fitted model to one file, for :func:`vpboost.load_model`.

        Parameters
        ----------
        path : str or Path
            The file, replaced if it exists; a crash while writing leaves the old one.
        """
        check_is_fitted(self)
        save_model(self, path)

    @property
    def feature_importances_(self) -> np.ndarray:
        """Mean absolute derivative of the prediction by each input, times the input's spread; sums to one.

        Computed when first asked for, on some of the training rows.
        """
        check_is_fitted(self)
        if self._importances is None:
            x = self._importance_rows
            slopes = np.abs(self.ensemble_.input_gradient(x)).mean(axis=(0, 1))
            share = (slopes * x.std(axis=0)).reshape(-1)
            if x.ndim == 2:
                share = np.bincount(self.input_encoder_.sources_, weights=share, minlength=self.n_features_in_)
            self._importances = share / share.sum() if share.sum() > 0 else share
            self._importance_rows = None
        return self._importances.copy()

    def _early_stopping(self, held_out: tuple | None) -> EarlyStopping | None:
        if held_out is None or self.early_stopping_rounds is None:
            return None
        return EarlyStopping(10 if self.early_stopping_rounds == "auto" else int(self.early_stopping_rounds))

    # --- predictions --------------------------------------------------------------------------------------------------

    def _raw(self, X: Any) -> np.ndarray:
        inputs = self._known_inputs(X)
        if n_rows(inputs) > MANY_ROWS and not isinstance(inputs, Table):
            transform = self.input_encoder_.transform
            parts = [self._accurate.predict(transform(part)) for part in chunks(inputs, MANY_ROWS)]
            return np.concatenate(parts).astype(float)
        encoded = self.input_encoder_.transform(inputs)
        if self._light is not None and len(encoded) <= self._light.most_rows:
            return self._light.predict(encoded)
        return self._accurate.predict(encoded)

    def _known_inputs(self, X: Any) -> Any:
        """Check inputs of a fitted estimator."""
        check_is_fitted(self)
        inputs, shape = self._check_inputs(X, reset=False), self.input_encoder_.shape_
        if (len(inputs.shape) > 2 or len(shape) > 1) and inputs.shape[1:] != shape:
            raise ValueError(f"X must hold images of shape {shape} as in training, got shape {inputs.shape[1:]}")
        return inputs

    def __getstate__(self) -> Any:
        state = super().__getstate__().items()
        return {name: value for name, value in state if name not in ("_light", "_accurate")}

    def __setstate__(self, state: Any) -> None:
        super().__setstate__(state)
        if hasattr(self, "ensemble_"):
            self._set_predictors()

    def _staged_raw(self, X: Any) -> np.ndarray:
        encoded = self.input_encoder_.transform(self._known_inputs(X))
        by_row = self._accurate.apply(lambda ensemble, x: np.moveaxis(ensemble.staged_predict(x), 0, 1), encoded)
        return np.moveaxis(by_row, 1, 0)[1:]

    def _raw_gradient(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return raw predictions and their derivatives by the columns of X."""
        inputs = self._known_inputs(X)
        encoded = self.input_encoder_.transform(inputs)
        slopes = self._accurate.apply(Ensemble.input_gradient, encoded)
        gradient = self.input_encoder_.gradient(slopes, inputs, self.n_features_in_)
        return self._accurate.predict(encoded), gradient
