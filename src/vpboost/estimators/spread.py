"""The other parameters of a predictive distribution, learnt from rows that the model of its location did not see.

A model that has learnt its training rows well knows nothing of how far off it is elsewhere: the residuals of those rows
are too small. So a second, small ensemble learns log σ, or the shape of a law, from predictions of rows that were set
aside, the location being given.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .. import distributions, predictor
from ..core.boosting import boost
from ..core.ensemble import Ensemble, averaged
from ..core.records import Stage
from ..core.trust_region import TrustRegion
from ..core.weak_learner import Training
from ..engine import ONCE_A_STAGE, program, using
from ..featurizers import MLP
from ..losses import (
    Gamma,
    GammaLikelihood,
    GivenLocation,
    Likelihood,
    Loss,
    NegativeBinomialLikelihood,
    NormalLikelihood,
    Observed,
    Poisson,
    PseudoHuber,
    SquaredError,
    StudentTLikelihood,
)
from ..tables.encoder import InputEncoder
from ..tables.scaling import TargetScaler
from .prediction import evaluated


class Family(NamedTuple):
    """A kind of distribution: its likelihood, the loss that its location is learnt with, and how targets are scaled."""

    likelihood: type[Likelihood]
    location: type[Loss]
    kind: str


FAMILIES = {
    "normal": Family(NormalLikelihood, SquaredError, "standard"),
    "lognormal": Family(NormalLikelihood, SquaredError, "logs"),
    "student_t": Family(StudentTLikelihood, PseudoHuber, "standard"),
    "gamma": Family(GammaLikelihood, Gamma, "log"),
    "negative_binomial": Family(NegativeBinomialLikelihood, Poisson, "log"),
}
#: With fewer rows, what is not the location is a constant. More than the second number are not needed.
LEAST_ROWS, MOST_ROWS = 40, 20_000
#: Ensembles that are averaged, and the part of the rows that each sets aside to tell when to end.
CHAINS, ASIDE = 4, 0.25
#: Stages at the most, and how many to wait for a better one.
STAGES, PATIENCE = 100, 5
FEATURIZER = partial(MLP, width=4, depth=1)
TRAINING = Training(max_steps=20, inherit=0.5)
TRUST_REGION = TrustRegion(reg_lambda=1e-2, rate=0.2)
#: What the mean of chains leaves at the least of the squared error of one.
LEAST_LEFT = 0.5
#: Degrees of freedom that are tried.
DEGREES = (2.5, 3.0, 4.0, 5.0, 7.0, 10.0, 15.0, 30.0, 100.0)


class Spread(NamedTuple):
    """What predicts the parameters of a distribution but its location."""

    likelihood: Likelihood
    ensemble: Ensemble  #: of inputs as ``spread_inputs`` returns them


class Honest(NamedTuple):
    """Rows and the locations that a model predicts for them which has not learnt from them."""

    x: np.ndarray  #: as ``spread_inputs`` returns them
    target: np.ndarray  #: as the likelihood sees them
    location: np.ndarray
    weight: np.ndarray
    group: np.ndarray  #: the number of the row: several models may predict one

    def take(self, rows: np.ndarray) -> "Honest":
        """Return some of the rows."""
        return Honest(*(array[rows] for array in self))

    @property
    def packed(self) -> np.ndarray:
        """Targets as :class:`GivenLocation` takes them."""
        return np.concatenate([self.target, self.location], axis=1)


def spread_inputs(encoder: InputEncoder, encoded: np.ndarray, location: np.ndarray) -> np.ndarray:
    """Return what the spread depends on: the columns without what an encoding adds to them, and the location."""
    plain = encoded[:, : encoder.n_plain] if encoded.ndim == 2 else np.zeros((len(encoded), 0))
    return predictor.spread_inputs(plain, location)


def numbered(*arrays: np.ndarray) -> np.ndarray:
    """Return a number for each row, the same for rows that are equal in all arrays.

    >>> numbered(np.array([[1.0], [2.0], [1.0], [1.0]]), np.array([0.0, 0.0, 0.0, 3.0])).tolist()
    [0, 1, 0, 2]
    """
    known: dict[int, int] = {}
    rows = zip(*arrays, strict=True)
    return np.array([known.setdefault(hash(tuple(part.tobytes() for part in row)), len(known)) for row in rows])


class Judged(NamedTuple):
    """Raw parameters but the location of some rows, by chains that have not learnt from them."""

    place: np.ndarray  #: numbers of the rows
    raw: np.ndarray


def learn_spread(likelihood: Likelihood, rows: Honest, seed: int, engine: str) -> tuple[Spread, Judged]:
    """Return what best predicts the parameters but the location, for honest predictions of that; honest ones of it."""
    rng = np.random.default_rng(seed)
    chosen = np.sort(rng.permutation(len(rows.x))[:MOST_ROWS])
    groups = np.unique(rows.group[chosen])
    if len(groups) < LEAST_ROWS:
        constant = best_constant(likelihood, rows)
        judged = Judged(chosen, np.tile(constant, (len(chosen), 1)))
        return calibrated(likelihood, Ensemble.stack(constant, []), rows, judged)
    chains, found = [], []
    for chain in range(CHAINS):
        # a row on both sides would let the ensemble learn its error by heart, and be praised for it
        last = rng.permutation(groups)[: round(ASIDE * len(groups))]
        is_aside = np.isin(rows.group[chosen], last)
        train, place = chosen[~is_aside], chosen[is_aside]
        chains.append(boosted(likelihood, rows.take(train), rows.take(place), seed + chain, engine))
        found.append((place, evaluated(chains[-1], rows.x[place])))
    judged = Judged(*(np.concatenate(arrays) for arrays in zip(*found, strict=True)))
    return calibrated(likelihood, averaged(chains), rows, judged)


def given_location(likelihood: Likelihood, rows: Honest) -> GivenLocation:
    """Return the loss of the other parameters."""
    return GivenLocation(Observed(likelihood) if np.isnan(rows.target).any() else likelihood)


def best_constant(likelihood: Likelihood, rows: Honest) -> Any:
    """Return the best parameters that are the same for all rows."""
    with jax.enable_x64(True), using("numpy"):
        weight = jax.device_put(rows.weight[None] / rows.weight.sum())
        return given_location(likelihood, rows).best_constant(jax.device_put(rows.packed[None]), weight)


def boosted(likelihood: Likelihood, train: Honest, aside: Honest, seed: int, engine: str) -> Ensemble:
    """Return an ensemble cut where it is best for rows set aside; it may have no learner."""
    loss, scores = given_location(likelihood, train), []
    if np.isnan(aside.target).any():
        loss = given_location(likelihood, aside)

    def watch(stage: Stage) -> bool:
        scores.append(stage.record.validation_loss)
        return len(scores) - 1 - int(np.argmin(scores)) >= PATIENCE

    fit = boost(
        train.x, train.packed, loss=loss, featurizer=FEATURIZER, n_learners=STAGES, training=TRAINING,
        trust_region=TRUST_REGION, sample_weight=train.weight, validation=(aside.x, aside.packed, aside.weight),
        seed=seed, dtype="float64", engine=engine, callback=watch,
    )  # fmt: skip
    constant = np.tile(np.asarray(fit.ensemble.constant), (len(aside.x), 1))
    if not scores or not min(scores) < mean_value(likelihood, aside, constant):
        return fit.ensemble.truncate(0)
    return fit.ensemble.truncate(sum(record.accepted for record in fit.history[: int(np.argmin(scores)) + 1]))


def mean_value(likelihood: Likelihood, rows: Honest, raw: np.ndarray) -> float:
    """Return the mean loss of the other parameters."""
    return float(mean_derivatives(likelihood, rows, raw)[0])


def mean_derivatives(likelihood: Likelihood, rows: Honest, raw: np.ndarray) -> list[np.ndarray]:
    """Return the mean over rows of the loss of the other parameters, of its gradient and of its curvature."""
    share = rows.weight / rows.weight.sum()
    with jax.enable_x64(True), using("numpy"):
        arrays = [jax.device_put(np.ascontiguousarray(array)) for array in (raw, rows.packed, share)]
        return [np.asarray(mean) for mean in sums_of(given_location(likelihood, rows), *arrays)]


@partial(program, quick=ONCE_A_STAGE)
def sums_of(loss: Loss, raw: Array, target: Array, share: Array) -> tuple[Array, Array, Array]:
    """Return weighted sums of a loss, its gradient and its curvature."""
    derivatives = loss.gradient(raw, target), loss.curvature(raw, target).diagonal()
    return share @ loss.value(raw, target), share @ derivatives[0], share @ derivatives[1]


def calibrated(likelihood: Likelihood, ensemble: Ensemble, rows: Honest, judged: Judged) -> tuple[Spread, Judged]:
    """Return the spread moved, and with the degrees of freedom, that are likeliest for rows that it has not learnt."""
    rows, raw = rows.take(judged.place), judged.raw
    tried = [likelihood]
    if isinstance(likelihood, StudentTLikelihood):
        tried = [StudentTLikelihood(df) for df in DEGREES]
    moves = [likeliest_move(one, rows, raw) for one in tried]
    scores = [mean_value(one, rows, raw + move) for one, move in zip(tried, moves, strict=True)]
    best = int(np.argmin(scores))
    return moved(Spread(tried[best], ensemble), moves[best]), Judged(judged.place, raw + moves[best])


def likeliest_move(likelihood: Likelihood, rows: Honest, raw: np.ndarray, n_steps: int = 30) -> np.ndarray:
    """Return what to add to the parameters of all rows, by Fisher scoring with steps of at most one."""
    move = np.zeros(raw.shape[1])
    for _ in range(n_steps):
        _, slope, bend = mean_derivatives(likelihood, rows, raw + move)
        step = np.clip(slope / np.maximum(bend, 1e-12), -1, 1)
        move = move - step
        if np.abs(step).max() < 1e-6:
            break
    return move


def moved(spread: Spread, by: np.ndarray) -> Spread:
    """Return the spread with numbers added to the parameters of all rows."""
    ensemble = spread.ensemble
    with jax.enable_x64(True):
        constant = jnp.asarray(np.asarray(ensemble.constant, float) + by)
        return Spread(spread.likelihood, Ensemble(constant, ensemble.featurizers, ensemble.weights))


def log_gain(rows: Honest, log_scale: np.ndarray, n_chains: int) -> np.ndarray:
    """Return the logarithm of what errors of the mean of chains are in errors of one, of each output; not above 0.

    The squared error of a chain is that of the mean of M, and (1 - 1/M) times the variance of the chains around each
    other. Rows that several models have predicted, none of which has learnt from them, tell this variance.
    """
    n = np.bincount(rows.group)[:, None]

    def means(values: np.ndarray) -> np.ndarray:
        return np.stack([np.bincount(rows.group, weights=column) for column in values.T], axis=1) / n

    several = n[:, 0] > 1
    if not several.any():
        return np.zeros(rows.location.shape[1])
    variance = means((rows.location - means(rows.location)[rows.group]) ** 2) * n / np.maximum(n - 1, 1)
    ratio = (variance / means(np.exp(2 * log_scale)))[several]
    part = np.average(ratio, axis=0, weights=means(rows.weight[:, None])[several, 0])
    return 0.5 * np.log(np.maximum(1 - (1 - 1 / n_chains) * part, LEAST_LEFT))


def law_of(likelihood: Likelihood, scaler: TargetScaler, location: np.ndarray, other: np.ndarray) -> Any:
    """Return the distributions in the user's units, of parameters of shape (n_rows, n_outputs)."""
    scaling = scaler.kind, scaler.scale_, scaler.shift_
    kind, parameters = predictor.law(type(likelihood).__name__, vars(likelihood), scaling, location, other)
    return getattr(distributions, kind)(**parameters)
