"""What regressor and classifier share: checks, scaling, the fit and raw predictions."""

import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from ..callbacks import Checkpoint, EarlyStopping, Progress, ProgressDisplay, ends_fit
from ..core.data import SAMPLE_ROWS, evenly_spaced
from ..core.ensemble import Ensemble, averaged, divided
from ..core.records import Boosted, Record
from ..engine import forget_programs_if_many
from ..files.checkpoint import CheckpointError, read_facts
from ..numerics.rows import MANY_ROWS, chunks
from ..tables.frames import Table
from ..tables.scaling import TargetScaler
from .calibration import Calibrating
from .chains import Chain, Chains, best_of, score_of
from .derivatives import Differentiable
from .display import Displayed
from .parts import Part, merged
from .plan import may_chain
from .portfolio import Profile, fix
from .prediction import AccurateEnsemble, LightEnsemble
from .resuming import facts_of, mark_of, profile_of, restore
from .run import Run
from .saving import save_model
from .slopes import check_slopes

#: A mean loss (targets are of order one) that leaves nothing to learn.
NOTHING = 1e-5


class BaseVPBoost(Displayed, Differentiable, Calibrating, Chains):
    """What regressor and classifier share."""

    boosted_: Boosted  #: the first chain
    n_chains_: int
    _others: Sequence[Ensemble] = ()  #: the other chains, each cut at its best
    _with_first: bool = True  #: whether the first is averaged with them
    _light: LightEnsemble | None  #: the ensemble in NumPy; None if it cannot be
    _accurate: AccurateEnsemble  #: the ensemble for XLA
    _importance_rows: Any = None  #: some training rows as the learners see them, until importances are computed
    _importances: np.ndarray | None  #: None until they are asked for
    profile_: Profile
    seed_: int
    _rows_seen: int  #: training inputs that factories of featurizers were shown
    evals_result_: dict[str, list[float]]

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
        dy: Any = None,
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
        dy : array of shape (n_samples, n_features) or (n_samples, n_outputs, n_features), optional
            Observed derivatives of y by the columns of X, in their units (of one output, a data frame like X will do);
            NaN where one was not observed. For regressors with squared error (also with ``distribution`` "normal" or
            "lognormal"): predictions are fitted to them, too, see ``slope_weight``. Only values count on validation
            data.

        Returns
        -------
        self
        """
        before = dict(self.__dict__)
        try:
            return self._fit(X, y, sample_weight, (X_val, y_val, sample_weight_val, eval_set), resume_from, dy)
        except BaseException:
            # what was fitted before is as it was: a mixture of old and new would predict nonsense
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    def _fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        validation: tuple[Any, Any, Any, Any],
        resume_from: Any,
        dy: Any,
    ) -> Any:
        """Check, split, plan, race, boost and store."""
        loss = self._check_settings()
        going_on = self.warm_start and hasattr(self, "boosted_")
        if going_on:
            self._check_unchanged(resume_from)
        data, facts = self._check_data(X, y, sample_weight, reset=not going_on), None
        if dy is not None:
            if self.tree_depth not in ("auto", 0):
                raise ValueError(f"tree_depth={self.tree_depth!r} does not go with dy; leave it 'auto'")
            given = None if self._is_classifier else loss
            data = data._replace(slopes=check_slopes(dy, X, data, given, getattr(self, "distribution", None)))
        if resume_from is not None:
            facts = read_facts(resume_from)
            profile = profile_of(facts.profile, resume_from)
            self._check_profile(profile, f"resume_from={str(resume_from)!r}", CheckpointError)
        seed = self._seed(self.seed_ if going_on else None if facts is None else facts.seed)
        forget_programs_if_many()
        data, groups = merged(data)
        # a fit that goes on keeps its validation rows: they must not be trained on
        train, held_out = self._split(data, groups, validation, self.seed_ if going_on else seed)
        # what other chains may learn from; else it is let go, for it may be large
        split = held_out is not None and train is not data
        whole = data if split and may_chain(self, train.n_rows) else None
        rows = data if held_out is not None and self._needs_rows(train.n_rows) else None
        del data
        self._check_trimmed(train.target)
        if not going_on:
            self._learn_targets(loss, train)
            self.race_, self.seed_ = {}, seed
        train, held_out = self._scaled(train), None if held_out is None else self._scaled(held_out)

        start, interrupted = None, False
        if going_on:
            profile = fix(self.profile_, self)
            run, start = self._plan(profile, train, held_out, encoder=self.input_encoder_), self.boosted_
            run.scores = self._earlier_scores(run.held_out)
        elif facts is not None:
            self.race_ = {profile_of(values, resume_from): score for values, score in facts.race.items()}
            try:
                run = self._plan(fix(profile, self), train, held_out, facts.weights)
            except ValueError as error:  # settings and data have been checked
                raise CheckpointError(f"{resume_from} has a profile that makes no sense: {error}") from error
            start = restore(run, resume_from, facts, self._facts(run, seed), self._most_stages())
        else:
            run, interrupted = self._choose_profile(train, groups, held_out, seed, whole is not None)
        if interrupted and run.boosted is not None:
            status = f"interrupted after {len(run.scores)} stages, while profiles were compared"
            self._store(run, run.boosted._replace(status=status), True, [])
            self._finish(run, None, groups, seed, [])
            return self
        begun = start is None and run.boosted is not None  # while profiles were compared
        if begun:
            start = run.boosted
        stopping, run.devices = self._early_stopping(run), self.devices
        first = partial(self._boost, run, seed, stopping, start, recall=begun or facts is not None)
        boosted, others = self._boost_chains(run, whole, groups, seed, stopping, first)
        self._store(run, boosted, stopping is not None, others, given=whole is None)
        self._finish(run, rows, groups, seed, [] if whole is None else others)
        return self

    def _needs_rows(self, n: int) -> bool:
        """Say whether a fit to ``n`` training rows needs all rows once more when it is done."""
        return False

    def _finish(self, run: Run, whole: Part | None, groups: np.ndarray, seed: int, others: list[Chain]) -> None:
        """Do what is left once a model is stored.

        ``whole`` are all rows that may be learnt from, where they are needed, ``others`` chains that have learnt from
        some that the first one has set aside.
        """

    def _learn_targets(self, given: Any, train: Part) -> None:
        """Find the loss and the scale of the targets."""
        loss, kind = self._resolve_loss(given)
        prepared = self._for_holes(loss).prepare_targets(train.target)
        self.target_scaler_ = TargetScaler(kind).fit(prepared, train.weight, loss.robust)
        self.loss_ = loss.adapted(self.target_scaler_.transform(prepared), train.weight)

    def _scaled(self, part: Part) -> Part:
        """Return a part with the targets that the loss sees."""
        prepared = self._for_holes(self.loss_).prepare_targets(part.target)
        scaler = self.target_scaler_
        slopes = None if part.slopes is None else scaler.transform_slopes(part.slopes, part.target)
        return part._replace(scaled=scaler.transform(prepared, self.loss_.robust), slopes=slopes)

    def _facts(self, run: Run, seed: int) -> dict[str, Any]:
        return facts_of(run, self.get_params(deep=False), self.race_, seed)

    def _boost(
        self, run: Run, seed: int, stopping: EarlyStopping | None, start: Boosted | None, recall: bool
    ) -> tuple[Boosted, bool]:
        """Run the boosting loop with its callbacks; ``recall`` tells early stopping of the stages before.

        The second value says whether Ctrl-C, or a callback other than early stopping, ended it.
        """
        display = ProgressDisplay() if self.verbose else None
        watching = [c for c in (stopping, display) if c is not None] + list(self.callbacks or [])
        ended = False
        if recall:
            remembering = [callback for callback in watching if isinstance(callback, EarlyStopping)]
            ended = any([c.see(stage, score) for c in remembering for stage, score in enumerate(run.scores)])

        if ended and start is run.boosted is not None:
            return run.boosted, False

        ending: list[Any] = []

        def watch(progress: Progress) -> bool:
            ending.extend([callback for callback in watching if ends_fit(callback, progress)])
            return bool(ending)

        saves = any(isinstance(callback, Checkpoint) for callback in watching)
        try:
            n_learners = len(run.scores) if ended else self._stages_of(run, stopping)
            boosted = run.boost(n_learners, seed, watch, start, self._facts(run, seed) if saves else None)
            by_others = any(not isinstance(callback, EarlyStopping) for callback in ending)
            return boosted, by_others or boosted.status.startswith("interrupted")
        finally:
            for shown in (callback for callback in watching if isinstance(callback, ProgressDisplay)):
                shown.close()

    def _store(self, run: Run, boosted: Boosted, cut_at_best: bool, others: list[Chain], given: bool = False) -> Any:
        """Set the fitted attributes."""
        if boosted.status.startswith("interrupted"):
            warnings.warn(f"fit {boosted.status}; the model of those is kept", UserWarning, stacklevel=4)
        target, left = run.train.scaled, boosted.history[-1].loss if boosted.history else 0.0
        if not left <= NOTHING and not boosted.ensemble.n_learners and (target != target[:1]).any():
            warnings.warn(
                "no learner was accepted: the model predicts a constant (is nothing to be learnt from X, or does the "
                "featurizer, the activation or the loss give NaN?)",
                UserWarning,
                stacklevel=4,
            )
        self._temperature = 1.0
        self.profile_, self.input_encoder_, self.boosted_ = run.plan.profile, run.plan.encoder, boosted
        self._begun_with, self._validated_on = self._binding_settings(), mark_of(run.held_out)
        self._rows_seen = len(evenly_spaced(np.arange(run.train.n_rows), SAMPLE_ROWS))
        history, scores = boosted.history, run.scores if run.held_out is not None else []
        self.history_ = {name: np.array([getattr(r, name) for r in history]) for name in Record._fields}
        self.n_iter_ = len(history)
        self.evals_result_ = {"training": self.history_["loss"].tolist(), "validation": scores}
        n_learners, score = best_of(history, scores, cut_at_best)
        full = bool(scores) and any(chain.full for chain in others)  # the first has told them when to end
        mean = score if full else float(np.mean([score, *(chain.score for chain in others)]))
        self._keep(n_learners, mean, [chain.ensemble for chain in others], with_first=not full)
        if others and given and run.held_out is not None:
            raw = [self._raw_of(part) for part in chunks(run.held_out.inputs)]
            self.best_score_ = score_of(run.plan, run.held_out, np.concatenate(raw))
        if cut_at_best and boosted.status == "all stages done":
            self._warn_if_unfinished(scores)
        self._importance_rows, self._importances = np.array(evenly_spaced(run.train.inputs, 512)), None
        unseen = self.ensemble_ if given else boosted.ensemble.truncate(n_learners)  # by given rows all chains
        self._remember([(run.held_out, unseen), *((c.held_out, c.ensemble) for c in others if not given)])
        if full:
            self._heed_training(run.train, unseen)
        self._note(run.train, run.held_out, unseen, given)
        return self

    def _warn_if_unfinished(self, scores: list[float]) -> None:
        """Warn if the last stages of all brought more than a hundredth of what was gained on the validation data."""
        best, patience = int(np.nanargmin(scores)), 10
        gained = np.array([scores[0], scores[-patience:][0]]) - scores[best]
        if best + 1 >= 0.75 * len(scores) and gained[1] > 0.01 * gained[0]:
            warnings.warn(
                f"all n_estimators={self._most_stages()} stages are done and the validation score was still "
                "improving; raise n_estimators (early stopping ends the fit in time) or learning_rate",
                ConvergenceWarning,
                stacklevel=5,
            )

    def _keep(self, n_learners: int, score: float, others: Sequence[Ensemble], with_first: bool = True) -> None:
        """Cut the first chain after the best of its learners, and average it with the others, or only those."""
        self.best_iteration_, self.best_score_ = n_learners, score
        chains = [*([self.boosted_.ensemble.truncate(n_learners)] if with_first else []), *others]
        self._others, self._with_first, self.n_chains_ = others, with_first, len(chains)
        mean = averaged(chains)
        self.ensemble_ = mean if self._temperature == 1 else divided(mean, self._temperature)
        self._set_predictors()

    def _set_predictors(self) -> None:
        """Prepare what predicts: NumPy for few rows, C or XLA for many."""
        self._light, self._accurate = LightEnsemble.of(self.ensemble_), AccurateEnsemble(self.ensemble_)

    def save_model(self, path: Any, training_rows: bool = True) -> None:
        """Write the fitted model to one file, for :func:`vpboost.load_model`.

        Parameters
        ----------
        path : str or Path
            The file, replaced if it exists; a crash while writing leaves the old one.
        training_rows : bool, default=True
            Whether the file of a regressor holds up to 600 rows of the fit, encoded, and their targets. A loaded model
            needs them for ``predict(X, return_std=True)``, ``predict_uncertainty`` and, without a ``distribution``,
            ``predict_dist``, and for nothing else. Leave them out where your data are nobody else's business.
        """
        check_is_fitted(self)
        if not isinstance(training_rows, bool | np.bool_):
            raise ValueError(f"training_rows must be True or False, got {training_rows!r}")
        save_model(self, path, bool(training_rows))

    @property
    def feature_importances_(self) -> np.ndarray:
        """Mean absolute derivative of the prediction by each input, times the input's spread; sums to one.

        Computed when first asked for, on some of the training rows.
        """
        check_is_fitted(self)
        x = self._importance_rows  # before anything else: another thread may be done with them in the meantime
        if self._importances is None:
            slopes = np.abs(self.ensemble_.input_gradient(x)).mean(axis=(0, 1))
            share = (slopes * x.std(axis=0)).reshape(-1)
            if x.ndim == 2:
                share = np.bincount(self.input_encoder_.sources_, weights=share, minlength=self.n_features_in_)
            self._importances = share / share.sum() if share.sum() > 0 else share
            self._importance_rows = None
        return self._importances.copy()

    # --- predictions --------------------------------------------------------------------------------------------------

    def _raw(self, X: Any) -> np.ndarray:
        parts = [self._raw_of(encoded) for encoded in self._encoded_parts(X)]
        return np.concatenate(parts) if len(parts) > 1 else parts[0]

    def _encoded_parts(self, X: Any) -> Iterator[np.ndarray]:
        """Yield inputs, checked, as the learners see them; very many rows in parts."""
        inputs = self._known_inputs(X)
        several = inputs.shape[0] > MANY_ROWS and not isinstance(inputs, Table)
        for part in chunks(inputs, MANY_ROWS) if several else [inputs]:
            yield self.input_encoder_.transform(part)

    def _raw_of(self, encoded: np.ndarray) -> np.ndarray:
        """Return raw predictions for encoded inputs."""
        if self._light is not None and len(encoded) <= self._light.most_rows:
            return self._light.predict(encoded)
        return self._accurate.predict(encoded, self.devices)

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
