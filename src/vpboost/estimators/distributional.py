"""Regression that predicts distributions: honest predictions of the location, and what is learnt from them."""

import dataclasses
import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import losses
from ..callbacks import TimeBudget
from ..checks import check_one_of
from ..distributions import Normal
from ..numerics.rows import chunks
from .base import BaseVPBoost
from .chains import Chain, n_kept, seed_of
from .parts import Part
from .plan import MANY_STEPS, FitPlan
from .prediction import evaluated
from .race import side_by_side
from .run import Run
from .spread import FAMILIES, Honest, Spread, law_of, learn_spread, log_gain, moved, numbered, spread_inputs

#: Parts that a table is split into, each predicted by a model that has learnt the others.
FOLDS = 5
#: How many times faster they learn than the model itself, at the most; but not at a rate above the second, nor in fewer
#: stages than the third, which would not be as far off as those of the model.
HASTE, FASTEST, LEAST_STAGES = 2.0, 0.5, 10
#: So many training rows have enough validation rows to learn from.
MANY = 20_000
#: Rows set aside by chains that tell the spread well enough; with fewer, others are predicted part by part, too.
ENOUGH = 1500
#: The same of rows given to validate with: the mean of all chains predicts them, which is what the spread is about.
ENOUGH_GIVEN = 200


class Distributional(BaseVPBoost):
    """How a regressor predicts distributions."""

    n_outputs_: int
    predict_uncertainty: Callable[[Any], Any]
    _spread: Spread | None = None  #: None without a distribution, and with one of the user's own

    def predict_dist(self, X: Any) -> Any:
        """Return the predictive distribution of each row, one of :mod:`vpboost.distributions`.

        With a ``distribution``, that is what it learnt. Without, it is normal, with the standard deviation of
        ``predict(X, return_std=True)``: noise, the same everywhere, and ignorance.

        Parameters
        ----------
        X : as in ``predict``

        Returns
        -------
        Normal, LogNormal, StudentT, Gamma or NegativeBinomial
            With parameters of shape (n_samples,) or (n_samples, n_outputs); for a likelihood of your own, what its
            ``law`` returns.

        Examples
        --------
        >>> import numpy as np
        >>> from vpboost import VPBoostRegressor
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(-1, 1, size=(200, 1))
        >>> y = X[:, 0] + rng.normal(size=200) * 0.1
        >>> model = VPBoostRegressor(distribution="normal", n_estimators=20, learning_rate=0.3, encoding="plain")
        >>> law = model.fit(X, y).predict_dist(X)
        >>> bool(0.08 < law.std().mean() < 0.15)
        True
        >>> low, high = law.interval(0.9)
        """
        if isinstance(getattr(self, "loss_", None), losses.Likelihood):
            return self._own_law(X)
        if self._spread is None:
            mean, noise, ignorance = self.predict_uncertainty(X)
            return Normal(mean, np.hypot(noise, ignorance))
        found = []
        for encoded in self._encoded_parts(X):
            location = np.asarray(self._raw_of(encoded), float)
            found.append((location, self._others_of(self._spread, encoded, location)))
        location, others = (self._plain(np.concatenate(parts)) for parts in zip(*found, strict=True))
        return law_of(self._spread.likelihood, self.target_scaler_, location, others)

    def _others_of(self, spread: Spread, encoded: np.ndarray, location: np.ndarray) -> np.ndarray:
        """Return the raw parameters that are not the location."""
        return evaluated(spread.ensemble, spread_inputs(self.input_encoder_, encoded, location))

    def _mean_and_std(self, encoded: np.ndarray, raw: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """Return what ``predict`` returns, and the spread that the model predicts, if it does; (rows, outputs)."""
        if self._spread is None:
            return self._from_raw(raw).reshape(len(raw), -1), None
        others = self._others_of(self._spread, encoded, raw)
        law = law_of(self._spread.likelihood, self.target_scaler_, np.asarray(raw, float), others)
        return law.mean(), law.std()

    def _remember(self, parts: Any) -> None:
        self._spread = None  # that of an earlier fit
        super()._remember(parts)

    def _own_law(self, X: Any) -> Any:
        """Return the distributions of a likelihood of the user's own."""
        law, raw = getattr(self.loss_, "law", None), np.asarray(self._raw(X), float)
        if law is None:
            raise ValueError("predict_dist needs to know the distribution; give CustomLikelihood a law")
        parameters = raw.reshape(len(raw), self.n_outputs_, -1)
        return law(self._plain(parameters))

    def _needs_rows(self, n: int) -> bool:
        in_haste = any(isinstance(callback, TimeBudget) for callback in self.callbacks or [])
        return isinstance(self.distribution, str) and n < MANY and not in_haste

    def _finish(self, run: Run, whole: Part | None, groups: np.ndarray, seed: int, others: list[Chain]) -> None:
        """Learn what the distribution has besides its location."""
        family = FAMILIES.get(self.distribution) if isinstance(self.distribution, str) else None
        if family is None:
            return
        honest = self._honest(run, whole, groups, seed, others)
        encoded, target, scaled, weight = (
            np.concatenate([np.asarray(getattr(part, name)[:], float) for part, _ in honest])
            for name in ("inputs", "target", "scaled", "weight")
        )
        predicted = location = np.concatenate([np.asarray(raw, float) for _, raw in honest])
        if family.likelihood is losses.NegativeBinomialLikelihood:  # of counts, which must not be scaled
            scaled, location = target, location + np.log(self.target_scaler_.scale_)
        x, group = spread_inputs(self.input_encoder_, encoded, predicted), numbered(encoded, target)
        rows = Honest(x, scaled, location, weight, group)
        spread, (place, others_of) = learn_spread(family.likelihood(), rows, seed, run.plan.engine)
        if family.kind in ("standard", "logs"):  # it is the logarithm of a scale
            gain = log_gain(rows, evaluated(spread.ensemble, rows.x), self.n_chains_)
            spread, others_of = moved(spread, gain), others_of + gain
        self._spread = spread
        law = law_of(spread.likelihood, self.target_scaler_, predicted[place], others_of)
        self._keep_scores(np.abs(target[place] - law.mean()) / law.std(), weight[place])

    def _honest(
        self, run: Run, whole: Part | None, groups: np.ndarray, seed: int, others: list[Chain]
    ) -> list[tuple[Part, np.ndarray]]:
        """Return encoded rows with raw predictions of them by models that have not learnt from them.

        These are the rows that each chain has set aside, or those that were given to validate with. Where they are few,
        all rows are predicted once more, part by part, if there are any as ``whole``.
        """
        found: list[tuple[Part, np.ndarray]] = []
        if run.held_out is not None:
            if others:
                known = [(run.held_out, self.boosted_.ensemble.truncate(self.best_iteration_))]
                known += [(chain.held_out, chain.ensemble) for chain in others if chain.held_out is not None]
                found = [(part, evaluated(ensemble, np.asarray(part.inputs[:]))) for part, ensemble in known]
            else:  # no chain has learnt from them
                found = [(run.held_out, np.concatenate([self._raw_of(rows) for rows in chunks(run.held_out.inputs)]))]
            if whole is None or sum(part.n_rows for part, _ in found) >= (ENOUGH if others else ENOUGH_GIVEN):
                return found
        every = run.train if whole is None else self._parts_of_chain(run, whole, groups, seed, True)[0]
        part, raw = self._cross_predicted(run, every, groups, seed)
        if part.n_rows:
            return [*found, (part, raw)]
        if not found:  # Ctrl-C
            warnings.warn(
                "no row is left to tell the spread by: it is that of rows learnt from, too small", stacklevel=5
            )
            return [(every, np.asarray(self._raw_of(every.inputs), float))]
        return found

    def _cross_predicted(self, run: Run, part: Part, groups: np.ndarray, seed: int) -> tuple[Part, np.ndarray]:
        """Return encoded rows and raw predictions of them by models that have learnt from others only.

        They are all rows of the part, or what Ctrl-C has left of them. The models have down to half as many stages as
        the first chain has kept, at up to twice its rate: they are as far off, sooner.
        """
        n_stages = n_kept(run) if run.held_out is not None and run.scores else max(len(run.scores), 1)
        plan, n_stages = hastened(run.plan, n_stages)
        if groups.max() + 1 < FOLDS:  # nearly all inputs are equal
            groups = np.arange(part.n_rows)
        order = np.random.default_rng(seed).permutation(int(groups.max()) + 1)
        fold_of, found = order[groups] % FOLDS, np.full((part.n_rows, self.n_outputs_), np.nan)

        def predict(fold: int, stopped: Callable[[], bool]) -> None:
            aside = np.flatnonzero(fold_of == fold)
            if len(aside) in (0, part.n_rows):
                return
            model = Run(plan, part.take(np.flatnonzero(fold_of != fold)), None)
            boosted = model.boost(n_stages, seed_of(seed, fold + 1), lambda progress: stopped())
            if not stopped():
                found[aside] = evaluated(boosted.ensemble, part.inputs[aside])

        side_by_side(range(FOLDS), run.plan.engine, predict)
        known = np.flatnonzero(~np.isnan(found).any(axis=1))
        return part.take(known), found[known]


def hastened(plan: FitPlan, n_stages: int) -> tuple[FitPlan, int]:
    """Return a plan with a rate up to ``HASTE`` times as large, for fewer stages; of many steps, they take half."""
    before, steps = float(plan.trust_region.rate), plan.training.max_steps
    haste = max(min(HASTE, FASTEST / before, n_stages / LEAST_STAGES), 1.0)
    region = dataclasses.replace(plan.trust_region, rate=haste * before)
    training = dataclasses.replace(plan.training, max_steps=steps // 2 if steps >= MANY_STEPS else steps)
    hasty = dataclasses.replace(plan, trust_region=region, training=training)
    return hasty, math.ceil(n_stages / haste - 1e-9)  # 12 / 1.2 is a little more than 10


def check_distribution(distribution: Any, loss: Any) -> None:
    """Raise an error that names the parameter if this is no distribution, or goes with another loss."""
    if distribution is None:
        return
    if loss is not None:
        raise ValueError(f"distribution={distribution!r} brings its own loss; leave loss None, got loss={loss!r}")
    if isinstance(distribution, str):
        check_one_of("distribution", distribution, FAMILIES)
    elif type(distribution) in {family.likelihood for family in FAMILIES.values()}:
        raise ValueError(f"distribution must be a name, one of {sorted(FAMILIES)}, or a likelihood of your own")
    elif not isinstance(distribution, losses.Likelihood):
        raise TypeError(
            f"distribution must be one of {sorted(FAMILIES)}, or a losses.CustomLikelihood, got "
            f"{type(distribution).__name__}"
        )
