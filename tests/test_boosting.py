"""Algorithm 2 on real runs: against a NumPy version of it, and against the paper's lemmas."""

import itertools
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from oracles import explicit_reduced
from processes import compilations
from vpboost import (
    MLP,
    BinaryCrossEntropy,
    CustomLoss,
    Ensemble,
    MulticlassCrossEntropy,
    Poisson,
    PseudoHuber,
    SquaredError,
    Training,
    TrustRegion,
    boost,
    datasets,
)

SMALL = partial(MLP, width=3, depth=1)


def make_problem(name, n_rows=80, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n_rows, 2))
    signal = np.sin(2 * x[:, 0]) + x[:, 1]
    return x, *{
        "squared": lambda: (np.stack([signal, signal**2, x[:, 0]], axis=1), SquaredError()),
        "binary": lambda: ((signal > 0).astype(int), BinaryCrossEntropy()),
        "softmax": lambda: (np.digitize(signal, [-0.7, 0.7]), MulticlassCrossEntropy()),
        "huber": lambda: (signal, PseudoHuber(0.5)),
        "poisson": lambda: (rng.poisson(np.exp(signal)), Poisson()),
        "custom": lambda: (
            np.stack([signal, -signal], axis=1),
            CustomLoss(lambda p, t: jnp.log(jnp.sum(jnp.exp(p - t))) + 0.5 * jnp.sum((p - t) ** 2)),
        ),
    }[name]()


PROBLEMS = ("squared", "binary", "softmax", "huber", "poisson", "custom")


def numpy_boosting(x, y, loss, ensemble_featurizers, weight, region):
    """Algorithm 2 with given featurizers, explicit matrices and float64 NumPy; the loss's derivatives from JAX."""
    target = jnp.asarray(loss.prepare_targets(y))
    weight = weight / weight.sum()
    target_blocks, weight_blocks = target[None], jnp.asarray(weight)[None]
    prediction = np.tile(np.asarray(loss.best_constant(target_blocks, weight_blocks)), (len(x), 1))
    reg, rows = float(region.reg_lambda), []
    for features in ensemble_featurizers:
        f = jnp.asarray(prediction)
        value = weight @ np.asarray(loss.value(f, target))
        gradient, hessian = np.asarray(loss.gradient(f, target)), np.asarray(loss.curvature(f, target).matrix())
        g_bar, h_bar = explicit_reduced(features, weight, gradient, hessian)
        w = -np.linalg.solve(h_bar + reg * np.eye(len(g_bar)), g_bar)
        step = features @ w.reshape(features.shape[1], -1)
        predicted = -(g_bar @ w + 0.5 * w @ h_bar @ w)
        ratio = (value - weight @ np.asarray(loss.value(jnp.asarray(prediction + step), target))) / predicted
        if accepted := ratio > region.rho_accept:
            prediction = prediction + step
        rows.append((ratio, accepted, reg))
        if ratio < region.rho_small:
            reg *= region.gamma_up
    return prediction, rows


class Fixed(eqx.Module):
    """A featurizer that keeps what it was given, to run both versions on the same features."""

    network: eqx.nn.Linear

    def __init__(self, key, rows):
        self.network = eqx.nn.Linear(rows.shape[1], 4, key=key)

    def __call__(self, x):
        return jnp.tanh(2 * self.network(x))


@pytest.mark.parametrize(
    "name", [*PROBLEMS[:-1], pytest.param(PROBLEMS[-1], marks=[pytest.mark.slow, pytest.mark.long])]
)
def test_paper_preset_matches_a_numpy_version_of_algorithm_2(name, x64):
    x, y, loss = make_problem(name)
    weight = np.random.default_rng(1).uniform(0.1, 2, size=len(x))
    region = TrustRegion.paper(reg_lambda=1e-4, rho_small=0.95, gamma_up=3.0)
    # the keys of each stage, as boost() draws them
    keys = [jax.random.split(jax.random.split(jax.random.fold_in(jax.random.key(5), m))[0], 1)[0] for m in range(6)]
    modules = [jax.vmap(Fixed(key, x)) for key in keys]
    features = [np.concatenate([np.asarray(m(jnp.asarray(x))), np.ones((len(x), 1))], axis=1) for m in modules]
    expected, rows = numpy_boosting(x, y, loss, features, weight, region)
    fit = boost(
        x, y, loss=loss, featurizer=Fixed, n_learners=6, training=Training(max_steps=0), trust_region=region,
        sample_weight=weight, seed=5, dtype="float64",
    )  # fmt: skip
    np.testing.assert_allclose(fit.ensemble.predict(x), expected, atol=1e-8)
    for record, (ratio, accepted, reg) in zip(fit.history, rows, strict=True):
        np.testing.assert_allclose(record.ratio, ratio, rtol=1e-6)
        assert record.accepted == accepted
        np.testing.assert_allclose(record.reg_lambda, reg, rtol=1e-12)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "dtype"), [*((name, "float64") for name in PROBLEMS), ("squared", "float32"), ("softmax", "float32")]
)
def test_lemmas_hold_on_real_runs(name, dtype):
    x, y, loss = make_problem(name, n_rows=150)
    fit = boost(
        x, y, loss=loss, featurizer=SMALL, n_learners=5, training=Training(max_steps=40),
        trust_region=TrustRegion(reg_lambda=1e-3), dtype=dtype,
    )  # fmt: skip
    slack = 1e-4 if dtype == "float32" else 1e-9
    losses = [record.loss for record in fit.history]
    for record in fit.history:
        assert record.slope < 0, "lem:vpboost_descent"
        assert record.step_norm <= record.radius * (1 + slack), "eq:trust_region_for_weak_learner"
        assert 0 < record.alignment <= 1 + slack, "(VP1) is a cosine"
        assert record.curvature_capture > 0, "(VP2)"
        assert record.model_reduction > 0
        # eq:reduction_separable: r = w·(½H̄ + λ)w, with w·H̄w = −2(r + slope) and ‖w‖ = Δ/‖A‖
        bend = -2 * (record.model_reduction + record.slope)
        squared = (record.radius / record.operator_norm) ** 2
        np.testing.assert_allclose(record.model_reduction, 0.5 * bend + record.reg_lambda * squared, rtol=100 * slack)
        assert record.accepted
    assert all(after < before for before, after in itertools.pairwise(losses)), "monotone loss"


def test_lambda_stays_below_its_bound_under_stress():
    """lem:varpro_regularization_parameter_upper_bound: with ρ_small near one, λ_w rises until the bound stops it."""
    x, y, loss = make_problem("binary", n_rows=200)
    region = TrustRegion.paper(reg_lambda=1e-8, rho_small=0.99, gamma_up=10.0)
    fit = boost(
        x, y, loss=loss, featurizer=SMALL, n_learners=40, training=Training(max_steps=5), trust_region=region,
        dtype="float64",
    )  # fmt: skip
    regs = np.array([record.reg_lambda for record in fit.history])
    beta, high = 0.25, max(record.operator_norm for record in fit.history)
    bound = max(1e-8, 10.0 * 0.5 * beta * high**2 * (1 + 0.99) / (1 - 0.99))
    assert regs.max() > 1e-6, "the stress raised λ_w"
    assert regs.max() <= bound
    assert np.all(np.diff(regs) >= 0)


def test_resolving_saves_learners_that_plain_rejection_loses():
    x, y, loss = make_problem("poisson", n_rows=200)
    runs = {
        resolves: boost(
            x, y, loss=loss, featurizer=SMALL, n_learners=6, training=Training(max_steps=100),
            trust_region=TrustRegion(reg_lambda=1e-8, lambda_low=1e-9, resolves=resolves),
        )
        for resolves in (0, 12)
    }  # fmt: skip
    rejected = {resolves: sum(not record.accepted for record in run.history) for resolves, run in runs.items()}
    assert rejected[12] == 0
    assert runs[12].ensemble.n_learners == 6
    assert runs[0].ensemble.n_learners == 6 - rejected[0]


def test_rejected_learners_change_nothing():
    """A loss so curved away from the ensemble that a nearly unregularised Newton step overshoots."""
    x = np.linspace(-1, 1, 50)[:, None]
    y = np.where(x[:, 0] > 0.9, 1000, 0)
    fit = boost(
        x, y, loss=Poisson(), featurizer=SMALL, n_learners=4, training=Training(max_steps=30),
        trust_region=TrustRegion.paper(reg_lambda=1e-6, gamma_up=1.5),
    )  # fmt: skip
    rejected = [record for record in fit.history if not record.accepted]
    assert rejected
    for record in rejected:
        assert record.ratio <= 0
        before = fit.history[record.stage - 1].loss if record.stage else None
        assert before is None or record.loss == before
    assert fit.ensemble.n_learners == 4 - len(rejected)


def test_boosting_rate_scales_the_step_and_its_prediction(x64):
    """With H_i = I and the rate in ρ's model too, the quadratic model is exact: ρ = 1 at any rate."""
    x, y, loss = make_problem("squared")
    for rate in (1.0, 0.3):
        fit = boost(
            x, y, loss=loss, featurizer=SMALL, n_learners=2, training=Training(max_steps=10),
            trust_region=TrustRegion(rate=rate), dtype="float64",
        )  # fmt: skip
        np.testing.assert_allclose([record.ratio for record in fit.history], 1, rtol=1e-9)
    full = boost(x, y, loss=loss, featurizer=SMALL, n_learners=1, training=Training(max_steps=10), dtype="float64")
    part = boost(
        x, y, loss=loss, featurizer=SMALL, n_learners=1, training=Training(max_steps=10),
        trust_region=TrustRegion(rate=0.3), dtype="float64",
    )  # fmt: skip
    np.testing.assert_allclose(part.ensemble.weights, 0.3 * full.ensemble.weights, rtol=1e-12)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("name", ["squared", "softmax", "poisson"])
def test_predictions_match_the_reported_losses(name):
    x, y, loss = make_problem(name)
    held_out = make_problem(name, n_rows=40, seed=9)[:2]
    fit = boost(x, y, loss=loss, featurizer=SMALL, n_learners=3, training=Training(max_steps=20), validation=held_out)
    for inputs, targets, reported in ((x, y, "loss"), (*held_out, "validation_loss")):
        target = jnp.asarray(loss.prepare_targets(targets))
        target = target if target.dtype.kind == "i" else target.astype(jnp.float32)
        staged = fit.ensemble.staged_predict(inputs)
        for record, prediction in zip(fit.history, staged[1:], strict=True):
            mean = np.mean(loss.value(jnp.asarray(prediction), target))
            np.testing.assert_allclose(getattr(record, reported), mean, rtol=1e-4, atol=1e-6)


def test_weights_act_like_repeated_rows(x64):
    x, y, loss = make_problem("softmax", n_rows=30)
    counts = np.random.default_rng(0).integers(0, 4, size=30)
    options = dict(loss=loss, featurizer=Fixed, n_learners=2, training=Training(max_steps=15), dtype="float64")
    weighted = boost(x, y, sample_weight=counts, **options)
    repeated = boost(np.repeat(x, counts, axis=0), np.repeat(y, counts), **options)
    np.testing.assert_allclose(weighted.ensemble.predict(x), repeated.ensemble.predict(x), atol=1e-6)


@pytest.mark.slow
@pytest.mark.long
def test_all_methods_run_and_vp_is_best_on_task_1():
    data = datasets.task1(n_train=250)
    final = {}
    for method in ("vp", "gd", "vp_start", "vp_end", "vp_start_end"):
        fit = boost(
            data.x_train, data.y_train, loss=SquaredError(), featurizer=partial(MLP, width=4), n_learners=3,
            training=Training(method, max_steps=150),
        )  # fmt: skip
        final[method] = fit.history[-1].loss
    assert final["vp"] == min(final.values())


def test_one_compiled_program_serves_all_stages():
    """Boosting five stages compiles nothing that boosting one stage has not."""
    x, y, loss = make_problem("softmax", n_rows=64, seed=3)
    compilations = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda name, duration, **_: compilations.append(name) if name.endswith("backend_compile_duration") else None
    )
    options = dict(loss=loss, featurizer=SMALL, training=Training(max_steps=7, candidates=2))
    boost(x, y, n_learners=1, **options)
    assert compilations, "the listener counts"
    compilations.clear()
    boost(x, y, n_learners=5, seed=1, trust_region=TrustRegion(reg_lambda=1e-2, rate=0.5), **options)
    # a new number of stages changes only the stacking of the learners at the end
    after_first = len(compilations)
    boost(x, y, n_learners=5, seed=2, trust_region=TrustRegion(reg_lambda=1e-3, rate=0.7), **options)
    assert len(compilations) == after_first
    assert after_first <= 8, compilations


def test_callback_sees_every_stage_and_can_stop():
    x, y, loss = make_problem("huber")
    seen = []

    def callback(stage):
        seen.append(stage.record.stage)
        assert stage.ensemble.n_learners == len(seen)
        assert stage.validation_prediction is None
        return stage.record.stage == 2

    fit = boost(x, y, loss=loss, featurizer=SMALL, n_learners=9, training=Training(max_steps=5), callback=callback)
    assert seen == [0, 1, 2]
    assert fit.ensemble.n_learners == 3
    assert fit.status == "stopped by the callback after stage 2"


def test_constant_targets_are_stationary_at_once():
    fit = boost(np.ones((8, 2)), np.full(8, 7.0), loss=SquaredError(), featurizer=SMALL)
    assert fit.history == []
    assert fit.status.startswith("stationary")
    np.testing.assert_allclose(fit.ensemble.predict(np.zeros((2, 2))), 7)


def test_no_learners_and_one_row():
    x, y, loss = make_problem("squared")
    fit = boost(x, y, loss=loss, featurizer=SMALL, n_learners=0)
    np.testing.assert_allclose(fit.ensemble.predict(x)[0], y.mean(axis=0), rtol=1e-5)
    one = boost(x[:1], y[:1], loss=loss, featurizer=SMALL, n_learners=2)
    np.testing.assert_allclose(one.ensemble.predict(x[:1]), y[:1], rtol=1e-5)
    assert isinstance(one.ensemble, Ensemble)


@pytest.mark.parametrize("batch_size", [500, 200])  # 10 blocks; 25, which are too many to keep features
def test_many_blocks_and_mini_batches(batch_size):
    data = datasets.task1(n_train=5000)
    options = dict(
        loss=SquaredError(), featurizer=partial(MLP, width=6), training=Training(max_steps=300, batch_size=batch_size),
        validation=(data.x_test, data.y_test),
    )  # fmt: skip
    fit = boost(data.x_train, data.y_train, n_learners=3, **options)
    assert fit.history[-1].validation_loss < 0.3 * np.var(data.y_test) / 2
    assert all(record.accepted for record in fit.history)
    first = boost(data.x_train, data.y_train, n_learners=1, **options)
    resumed = boost(data.x_train, data.y_train, n_learners=3, resume=first, **options)
    np.testing.assert_array_equal(resumed.ensemble.predict(data.x_test), fit.ensemble.predict(data.x_test))


def test_inputs_of_any_width_share_what_follows_training():
    """Only training and features are compiled again for another number of columns."""

    def fit(width):
        x = np.random.default_rng(0).normal(size=(70, width))
        boost(x, x[:, 0], loss=SquaredError(), featurizer=SMALL, n_learners=1, training=Training(max_steps=2))

    fit(2)
    assert compilations(partial(fit, 3)) == 2
    assert compilations(partial(fit, 3)) == 0


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_resuming_gives_the_same_bits_as_one_run(dtype):
    x, y, loss = make_problem("softmax", n_rows=300)
    options = dict(loss=loss, featurizer=SMALL, training=Training(max_steps=20), seed=4, dtype=dtype)
    options["validation"] = make_problem("softmax", n_rows=70, seed=2)[:2]
    options["trust_region"] = TrustRegion(reg_lambda=1e-3, rho_small=0.9, rate=0.5)
    whole = boost(x, y, n_learners=5, **options)
    part = boost(x, y, n_learners=2, **options)
    resumed = boost(x, y, n_learners=5, resume=part, **options)
    np.testing.assert_array_equal(resumed.ensemble.predict(x), whole.ensemble.predict(x))
    assert [r[:-1] for r in resumed.history] == [r[:-1] for r in whole.history]
    assert resumed.reg_lambda == whole.reg_lambda


def test_an_interrupt_keeps_the_stages_done():
    x, y, loss = make_problem("squared")

    def interrupt(stage):
        if stage.record.stage == 1:
            raise KeyboardInterrupt

    fit = boost(x, y, loss=loss, featurizer=SMALL, n_learners=9, training=Training(max_steps=5), callback=interrupt)
    assert fit.ensemble.n_learners == 2
    assert fit.status == "interrupted after 2 stages"
    assert np.all(np.isfinite(fit.ensemble.predict(x)))


def test_callbacks_see_predictions_on_the_validation_data():
    x, y, loss = make_problem("squared")
    held_out = make_problem("squared", n_rows=33, seed=1)[:2]
    seen = []
    fit = boost(
        x, y, loss=loss, featurizer=SMALL, n_learners=2, training=Training(max_steps=5), validation=held_out,
        callback=lambda stage: seen.append(stage.validation_prediction),
    )  # fmt: skip
    np.testing.assert_allclose(seen, fit.ensemble.staged_predict(held_out[0])[1:], atol=1e-5)


def test_a_batch_as_large_as_the_data_is_the_data():
    """Also where padding makes the blocks hold more rows than there are."""
    rng = np.random.default_rng(0)
    x = np.sort(rng.normal(size=(1500, 2)), axis=0)
    losses = [
        boost(
            x, x[:, 0] ** 2, loss=SquaredError(), featurizer=SMALL, n_learners=2, dtype="float64",
            training=Training(max_steps=5, batch_size=size),
        ).history[-1].loss
        for size in (None, 1500, 10_000)
    ]  # fmt: skip
    assert losses[0] == losses[1] == losses[2]


class Powers(eqx.Module):
    """A featurizer with nothing to train."""

    def __call__(self, x):
        return jnp.concatenate([x, x**2])


def test_a_featurizer_without_parameters_is_solved_for_all_the_same():
    x = np.random.default_rng(0).normal(size=(60, 2))
    y = 1 + x[:, 0] - 2 * x[:, 1] ** 2
    fit = boost(
        x, y, loss=SquaredError(), featurizer=lambda key, rows: Powers(), n_learners=1,
        training=Training(max_steps=2), trust_region=TrustRegion(reg_lambda=1e-7),
    )  # fmt: skip
    np.testing.assert_allclose(fit.ensemble.predict(x)[:, 0], y, atol=1e-4)


def test_boosting_ends_when_no_step_lowers_the_loss():
    """λ_w grew by 4¹³ with every rejected stage, to infinity in the fifth; now boosting ends as stationary."""
    x = np.linspace(-1, 1, 64)[:, None]
    y = np.where(np.arange(64) % 2, 1.0, -1.0) * 1e-3 + 1e6  # nothing but rounding is left to learn in single precision
    fit = boost(x, y, loss=SquaredError(), featurizer=partial(MLP, width=2, depth=0), n_learners=40,
                training=Training(max_steps=2))  # fmt: skip
    largest = [record.reg_lambda for record in fit.history]
    assert np.isfinite([*largest, fit.reg_lambda]).all()
    assert fit.status.startswith("stationary")


def test_a_lambda_too_large_for_the_precision():
    x = np.linspace(-1, 1, 64)[:, None]
    with pytest.raises(ValueError, match=r"reg_lambda must be at most 1.8e\+19 in float32"):
        boost(x, x, loss=SquaredError(), featurizer=partial(MLP, width=2), trust_region=TrustRegion(reg_lambda=1e20))
