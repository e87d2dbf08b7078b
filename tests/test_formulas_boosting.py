"""The parts of Algorithm 2 one by one, with little to compile: quick enough for every mutant (mutate.py)."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from oracles import explicit_reduced
from vpboost import Poisson, SquaredError, Training, TrustRegion, boost
from vpboost.core import boosting, tracked
from vpboost.core.boosting import (
    Soundness,
    Tracked,
    check_derivatives,
    differentiate,
    featurized,
    move,
    traced,
)
from vpboost.core.data import prepare
from vpboost.featurizers import Identity
from vpboost.losses.base import Loss
from vpboost.losses.curvature import Diagonal

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 2))
Y = np.sin(2 * X[:, 0]) + X[:, 1]
COUNTS = RNG.poisson(np.exp(Y))


class Bends(eqx.Module):
    """A featurizer of two numbers that are told by the key."""

    network: eqx.nn.Linear

    def __init__(self, key, rows):
        self.network = eqx.nn.Linear(rows.shape[1], 2, key=key)

    def __call__(self, x):
        return jnp.tanh(2 * self.network(x))


def fit(x=X, y=Y, **options):
    options = {"loss": SquaredError(), "featurizer": Bends, "training": Training(max_steps=0), **options}
    return boost(x, y, **{"engine": "numpy", "dtype": "float64", **options})


def facts(found):
    """A history without the seconds, which no two runs share."""
    return [record[:-1] for record in found.history]


def features_of(module, x=X):
    return np.column_stack([np.asarray(module(jnp.asarray(row))) for row in x]).T


# --- arguments ------------------------------------------------------------------------------------------------------


def test_what_is_not_told():
    """Ten learners, a bias, seed 0 and the settings of Training and TrustRegion."""
    plain = fit(training=None, featurizer=lambda key, rows: lambda x: x)
    told = fit(
        training=Training(), trust_region=TrustRegion(), featurizer=lambda key, rows: lambda x: x, n_learners=10,
        bias=True, seed=0, devices=None,
    )  # fmt: skip
    assert repr(facts(plain)) == repr(facts(told))
    assert len(fit().history) == 10
    assert repr(facts(fit(n_learners=2))) == repr(facts(fit(n_learners=2, bias=True, seed=0)))
    assert fit(n_learners=1).ensemble.weights.shape == (1, 3, 1), "two features and the constant one"


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"bias": 1}, TypeError, "bias must be True or False"),
        ({"training": {"max_steps": 0}}, TypeError, "training must be a vpboost.Training or None, got dict"),
        ({"devices": 1}, ValueError, "devices go with engine='xla'"),
        ({"dtype": "float16"}, ValueError, "dtype must be"),
    ],
)
def test_arguments_are_checked(change, error, message):
    with pytest.raises(error, match=message):
        fit(n_learners=1, **change)


def test_what_is_resumed_is_checked():
    part = fit(n_learners=1)
    with pytest.raises(ValueError, match="resume must be a result on the same data and dtype"):
        fit(np.ones((5, 2)), np.ones((5, 2)), resume=part)


def test_precisions():
    for dtype in ("float32", "float64"):
        found = fit(n_learners=1, dtype=dtype)
        assert found.ensemble.weights.dtype == found.ensemble.constant.dtype == dtype


def test_devices_are_those_of_the_inputs_unless_told(monkeypatch):
    asked = []
    monkeypatch.setattr(boosting, "devices_of", lambda x: asked.append(len(x)))
    assert len(fit(n_learners=1).history) == 1
    assert asked == [40]
    with pytest.raises(ValueError, match="devices go with"):
        fit(n_learners=1, devices=1)
    assert asked == [40]


# --- the loop -------------------------------------------------------------------------------------------------------


def test_seconds_of_a_stage(monkeypatch):
    """From the beginning of a stage to its end, by a clock that ticks when it is looked at."""
    ticks = itertools.count(100, 7)
    monkeypatch.setattr(boosting.time, "perf_counter", lambda: float(next(ticks)))
    seen = []
    found = fit(n_learners=3, callback=lambda stage: seen.append(stage.record))
    assert [record.seconds for record in found.history] == [7.0, 7.0, 7.0]
    assert seen == found.history


def test_every_stage_is_seen_as_it_ends():
    seen = []
    held_out = X[:7] + 0.1, Y[:7]
    found = fit(n_learners=4, validation=held_out, callback=lambda stage: seen.append((stage, stage.ensemble)))
    assert [stage.record.stage for stage, _ in seen] == [0, 1, 2, 3]
    assert [ensemble.n_learners for _, ensemble in seen] == [1, 2, 3, 4]
    assert float(seen[-1][0].reg_lambda) == found.reg_lambda
    for (stage, _), predicted in zip(seen, found.ensemble.staged_predict(held_out[0])[1:], strict=True):
        np.testing.assert_allclose(stage.validation_prediction, predicted, atol=1e-12)
        np.testing.assert_allclose(stage.record.validation_loss, 0.5 * np.mean((predicted[:, 0] - held_out[1]) ** 2))
    np.testing.assert_allclose(
        [record.loss for record in found.history],
        [0.5 * np.mean((predicted[:, 0] - Y) ** 2) for predicted in found.ensemble.staged_predict(X)[1:]],
    )
    alone = fit(n_learners=1, callback=lambda stage: seen.append(stage.validation_prediction))
    assert seen[-1] is None
    assert np.isnan(alone.history[0].validation_loss)


class Steep(Loss):
    """A loss that no step lowers: where it is looked at again, it has grown."""

    def value(self, prediction, target):
        return 1e3 * jnp.sum(jnp.abs(prediction), axis=-1)

    def gradient(self, prediction, target):
        return target

    def curvature(self, prediction, target):
        return Diagonal(jnp.ones_like(prediction))

    def best_constant(self, target, weight):
        return jnp.zeros(1, weight.dtype)


@pytest.mark.parametrize("gamma", [4.0, 1e200])
def test_boosting_ends_when_lambda_is_as_large_as_it_gets(gamma):
    """Every learner is rejected, and λ_w raised each time; the stage after the one that met its bound is the last."""
    region = TrustRegion(reg_lambda=1.0, gamma_up=gamma, resolves=0)
    found = fit(loss=Steep(), n_learners=300, trust_region=region)
    largest = np.sqrt(np.finfo(float).max)
    n_stages = int(np.ceil(np.log(largest) / np.log(gamma)))
    assert found.status == "stationary to working precision: no step is small enough to lower the loss"
    assert len(found.history) == n_stages
    assert found.reg_lambda == largest
    assert not any(record.accepted for record in found.history)
    assert found.ensemble.n_learners == 0
    np.testing.assert_allclose([r.reg_lambda for r in found.history], gamma ** np.arange(n_stages), rtol=1e-10)


def test_the_last_learner_is_inherited_from(monkeypatch):
    given = []

    def noted(last, population, share):
        given.append(np.asarray(last.inner.network.weight if hasattr(last, "inner") else jax.tree.leaves(last)[0]))
        return population

    monkeypatch.setattr(boosting, "blend", noted)
    learners = []
    found = fit(n_learners=4, callback=lambda stage: learners.append(stage.learners[-1][0]) and None)
    assert len(found.history) == 4
    assert len(given) == 3, "not in the first stage"
    for inherited, learner in zip(given, learners, strict=False):
        np.testing.assert_array_equal(inherited, np.asarray(jax.tree.leaves(learner)[0]))


@pytest.mark.parametrize(("n_processes", "devices"), [(1, None), (1, 1), (2, None), (2, 1)])
def test_interrupts(n_processes, devices, monkeypatch):
    """An interrupt is an error where other processes would wait for this one, and keeps the stages done elsewhere."""

    def interrupt(stage):
        monkeypatch.setattr(jax, "process_count", lambda: n_processes)
        raise KeyboardInterrupt

    def run():
        return fit(n_learners=3, engine="xla", devices=devices, dtype="float32", callback=interrupt)

    if n_processes > 1 and devices:
        with pytest.raises(KeyboardInterrupt):
            run()
    else:
        assert run().status == "interrupted after 1 stages"


@pytest.mark.parametrize("size", [40, 41, 39, None])
def test_batches_of_all_rows_are_no_batches(size, monkeypatch):
    seen = []
    train = boosting.train_learner
    monkeypatch.setattr(boosting, "train_learner", lambda *given: seen.append(given[-1].batch_size) or train(*given))
    fit(n_learners=1, training=Training(max_steps=0, batch_size=size))
    assert seen == [39 if size == 39 else None]


def test_settings_become_arrays():
    """Numbers alone: a program then serves all values of them."""
    array = jnp.ones(2)
    found = traced({"rate": 0.5, "steps": 3, "name": "adam", "given": array, "none": None}, np.dtype("float32"))
    assert isinstance(found["rate"], jax.Array)
    assert (float(found["rate"]), float(found["steps"]), found["rate"].dtype) == (0.5, 3.0, np.float32)
    assert (found["name"], found["none"]) == ("adam", None)
    assert found["given"] is array


# --- a learner's trial ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [1.0, 0.3])
def test_the_ratio_of_a_learner(rate, x64):
    """ρ of the first learner for Poisson counts, by explicit matrices."""
    found = fit(y=COUNTS, loss=Poisson(), n_learners=1, trust_region=TrustRegion(reg_lambda=0.1, rate=rate, resolves=0))
    (module, weights), record = found.ensemble.unstack()[0], found.history[0]
    z = features_of(module)
    f, n = np.log(COUNTS.mean()), len(X)
    g_bar, h_bar = explicit_reduced(z, np.full(n, 1 / n), np.exp(f) - COUNTS[:, None], np.full((n, 1, 1), np.exp(f)))
    w = -np.linalg.solve(h_bar + 0.1 * np.eye(3), g_bar)
    np.testing.assert_allclose(np.asarray(weights)[:, 0], rate * w, rtol=1e-9)
    predicted = -(rate * g_bar @ w + 0.5 * rate**2 * w @ h_bar @ w)
    moved = f + rate * z @ w
    actual = np.mean(np.exp(f) - COUNTS * f - (np.exp(moved) - COUNTS * moved))
    np.testing.assert_allclose(record.ratio, actual / predicted, rtol=1e-9)
    assert (record.solves, record.accepted) == (1, True)


def test_weights_of_gradient_descent_are_not_solved_for_again():
    """They stay what they were, however small ρ is; those of the other methods are solved for with λ_w raised."""
    region = TrustRegion(reg_lambda=0.01, rho_accept=0.9, rho_small=0.99, resolves=3)
    options = {"loss": Steep(), "n_learners": 1, "trust_region": region}
    descended = fit(training=Training("gd", max_steps=0), **options).history[0]
    assert (descended.solves, descended.reg_lambda, descended.solver_error) == (1, 0.01, 0.0)
    projected = fit(training=Training("vp", max_steps=0), **options).history[0]
    assert (projected.solves, projected.reg_lambda) == (4, pytest.approx(0.01 * 4**3))


def test_reductions_keep_their_digits(x64):
    """L[f] − L[f + h] of a tiny step, against the difference in whole numbers of the closed form; and f + h itself."""
    data = prepare(X, Y, SquaredError(), dtype="float64")
    weights = np.array([[1e-9], [-2e-9]])
    start = data.filled(jnp.array([0.5]))
    moved, found = move(SquaredError(), Identity(), jnp.asarray(weights), data.x, start, data.target, data.weight)
    step = X @ weights[:, 0]
    np.testing.assert_allclose(data.rows_of(moved)[:, 0], 0.5 + step, rtol=1e-15)
    np.testing.assert_allclose(found, np.mean(step * (Y - 0.5) - 0.5 * step**2), rtol=1e-6)


# --- derivatives and their soundness --------------------------------------------------------------------------------


class Given(Loss):
    """A loss whose derivatives stand in its targets: gradient, curvature."""

    def value(self, prediction, target):
        return target[..., 0]

    def gradient(self, prediction, target):
        return target[..., :1]

    def curvature(self, prediction, target):
        return Diagonal(target[..., 1:])


def soundness_of(*rows):
    table = jnp.asarray(rows, float)[None]
    weight = jnp.full(table.shape[:2], 1 / len(rows))
    derivatives, sound, losses = differentiate(Given(), [(table[..., :1], table, weight)] * 2)
    np.testing.assert_array_equal(derivatives.gradient, table[..., :1])
    np.testing.assert_array_equal(derivatives.curvature.diagonal(), table[..., 1:])
    np.testing.assert_allclose(losses, [np.mean(np.asarray(rows)[:, 0])] * 2)
    return sound


def test_soundness(x64):
    sound = soundness_of((1.0, 2.0), (-3.0, 0.5), (0.0, 4.0))
    assert (bool(sound.finite), float(sound.least_curvature), float(sound.steepest)) == (True, 0.5, 3.0)
    for bad in ((np.nan, 1.0), (np.inf, 1.0), (1.0, np.nan), (1.0, -np.inf)):
        assert not bool(soundness_of((1.0, 2.0), bad).finite)


def test_unsound_derivatives_end_boosting():
    def found(finite=True, least=1.0, steepest=1.0):
        return Soundness(np.asarray(finite), np.asarray(least), np.asarray(steepest))

    assert check_derivatives(found(), 3) is True
    assert check_derivatives(found(steepest=1e-30), 3) is True
    assert check_derivatives(found(steepest=0.0), 3) is False
    assert check_derivatives(found(least=-1e-4), 3) is True, "rounding"
    with pytest.raises(ValueError, match="NaN or infinite derivatives at stage 3"):
        check_derivatives(found(finite=False), 3)
    with pytest.raises(ValueError, match=r"not convex: its curvature is -0.00015 at stage 3"):
        check_derivatives(found(least=-1.5e-4), 3)


def test_the_loss_is_checked_at_zero_and_at_the_constant():
    class Noting(SquaredError):
        def check(self, target, constant):
            checked.append(float(constant[0]))

    checked = []
    fit(y=np.full(40, 3.0), loss=Noting(), n_learners=0)
    assert checked == pytest.approx([0.0, 3.0])


class Off(SquaredError):
    """Squared error with a first constant that is off."""

    def best_constant(self, target, weight):
        return jnp.asarray([5.0], weight.dtype)


def test_the_constant_of_rows_on_several_devices_is_improved():
    """Where rows are shared out, c₀ is found by some of them first, and then by all."""
    options = {"loss": Off(), "n_learners": 0, "engine": "xla", "dtype": "float32"}
    np.testing.assert_allclose(fit(**options).ensemble.constant, [5.0])
    np.testing.assert_allclose(fit(**options, devices=1).ensemble.constant, [Y.mean()], atol=1e-4)


@pytest.mark.parametrize(("n_rows", "kept"), [(32, True), (512, True), (544, False)])
def test_features_are_kept_where_there_are_few_rows(n_rows, kept, monkeypatch):
    assert tracked.MAX_ROWS_KEPT == 2**17
    monkeypatch.setattr(tracked, "MAX_ROWS_KEPT", 512)
    rows = np.outer(np.linspace(-1, 1, n_rows), X[0])
    data = prepare(rows, rows[:, 0], SquaredError(), batch_size=32)
    assert data.weight.size == n_rows
    module = Bends(jax.random.key(0), X)
    few = Tracked(prepare(X, Y, SquaredError()), jnp.zeros(1))
    featurizer, inputs = featurized(module, [few, Tracked(data, jnp.zeros(1))])
    assert isinstance(featurizer, Identity) is kept
    expected = np.asarray(data.x) if not kept else np.stack([features_of(module, np.asarray(b).T).T for b in data.x])
    np.testing.assert_allclose(inputs[1], expected, rtol=1e-5, atol=1e-6)
