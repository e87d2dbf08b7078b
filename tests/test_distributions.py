"""Regressors that predict distributions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from sklearn.base import clone

from vpboost import VPBoostRegressor, distributions, load_model, losses
from vpboost.callbacks import Checkpoint, TimeBudget
from vpboost.estimators import distributional
from vpboost.estimators.run import Run
from vpboost.estimators.spread import Honest, learn_spread, likeliest_move, log_gain

QUICK = {
    "engine": "numpy", "n_estimators": 15, "learning_rate": 0.2, "max_steps": 10, "encoding": "plain", "inherit": 0.8,
    "max_features": None,
}  # fmt: skip


def made(family, n=240, seed=0):
    """Return inputs, targets of a law, and that law."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 2))
    middle, wide = X[:, 0], np.where(X[:, 1] > 0, 0.4, 0.1)
    law = {
        "normal": stats.norm(10 + 5 * middle, 5 * wide),
        "lognormal": stats.lognorm(wide, scale=np.exp(3 + middle)),
        "student_t": stats.t(3, 10 + 5 * middle, 5 * wide),
        "gamma": stats.gamma(1 / wide**2, scale=np.exp(2 + middle) * wide**2),
        "negative_binomial": stats.nbinom(3, 3 / (3 + np.exp(2 + middle))),
    }[family]
    return X, law.rvs(random_state=rng), law


@pytest.fixture(scope="module", params=["normal", "lognormal", "student_t", "gamma", "negative_binomial"])
def fitted(request):
    X, y, law = made(request.param, n=300)
    return request.param, X, y, law, VPBoostRegressor(**QUICK, n_chains=2, distribution=request.param).fit(X, y)


def test_new_rows_are_nearly_as_likely_as_under_the_truth(fitted):
    family, _, _, _, model = fitted
    X, y, law = made(family, n=2000, seed=1)
    truth = law.logpmf(y) if family == "negative_binomial" else law.logpdf(y)
    found = model.predict_dist(X)
    assert -0.02 < np.mean(truth - found.logpdf(y)) < 0.3  # 80 rows tell the spread
    low, high = found.interval(0.8)
    assert 0.72 < np.mean((y >= low) & (y <= high)) < 0.93
    if family != "negative_binomial":
        wide = np.log(found.std() / (1 if family in ("normal", "student_t") else found.mean()))
        assert wide[X[:, 1] > 0.3].mean() - wide[X[:, 1] < -0.3].mean() > 0.7  # log 4 in truth


def test_predictions_are_means(fitted):
    family, X, y, _, model = fitted
    np.testing.assert_allclose(model.predict(X), model.predict_dist(X).mean(), rtol=1e-9)
    assert model.score(X, y) > 0.1
    if family == "lognormal":
        for method in (model.input_gradient, model.input_hessian, lambda X: list(model.staged_predict(X))):
            with pytest.raises(ValueError, match="distribution='lognormal'"):
                method(X)
        return
    np.testing.assert_allclose(jax.vmap(model.as_jax())(X[:3]), model.predict(X[:3]), rtol=1e-4)
    step = 1e-4 * np.eye(2)[0]
    slope = (model.predict(X[:5] + step) - model.predict(X[:5] - step)) / 2e-4
    np.testing.assert_allclose(model.input_gradient(X[:5])[:, 0], slope, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(list(model.staged_predict(X))[-1], model.predict(X), rtol=1e-4)
    assert model.feature_importances_.sum() == pytest.approx(1)


def test_files_keep_distributions(fitted, tmp_path):
    _, X, y, _, model = fitted
    model.save_model(tmp_path / "m.vpboost")
    loaded = load_model(tmp_path / "m.vpboost")
    np.testing.assert_array_equal(loaded.predict_dist(X).logpdf(y), model.predict_dist(X).logpdf(y))
    assert loaded.get_params()["distribution"] == model.distribution


@pytest.mark.slow
@pytest.mark.long
def test_several_outputs_with_holes():
    X, y, _ = made("normal")
    Y = np.stack([y, 100 - 3 * y], axis=1)
    Y[:40, 0] = np.nan
    model = VPBoostRegressor(**QUICK, n_chains=1, distribution="normal").fit(X, Y)
    law = model.predict_dist(X)
    assert law.mean().shape == law.std().shape == (240, 2)
    np.testing.assert_allclose(law.std()[:, 1].mean() / law.std()[:, 0].mean(), 3, rtol=0.35)
    assert np.isfinite(law.logpdf(Y)[40:]).all()


@pytest.mark.slow
@pytest.mark.long
def test_the_spread_is_that_of_rows_not_learnt_from():
    rng = np.random.default_rng(5)
    X, y = rng.normal(size=(60, 8)), rng.normal(size=60)  # nothing to learn but noise
    given = {**QUICK, "early_stopping_rounds": None}
    model = VPBoostRegressor(**given, distribution="normal").fit(X, y)
    residual = np.std(y - model.predict(X))
    assert residual < 0.7
    assert model.predict_dist(X).std().mean() > 0.95


@pytest.mark.slow
@pytest.mark.long
def test_given_validation_rows_tell_the_spread():
    X, y, _ = made("normal")
    model = VPBoostRegressor(**QUICK, distribution="normal").fit(X[:120], y[:120], X_val=X[120:], y_val=y[120:])
    ratio = (y[120:] - model.predict(X[120:])) / model.predict_dist(X[120:]).std()
    assert np.sqrt(np.mean(ratio**2)) == pytest.approx(1, abs=0.1)


def test_few_given_validation_rows_do_not_tell_the_spread_alone():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (500, 2))
    y, worth = np.sin(3 * X[:, 0]) + 0.3 * rng.normal(size=500), []
    for seed in range(4):  # by two rows alone, the likelihood of new ones is e^-5 to e^-68
        model = VPBoostRegressor(
            distribution="normal", n_chains=2, n_estimators=30, learning_rate=0.2, random_state=seed
        )
        model.fit(X[:150], y[:150], X_val=X[150:152], y_val=y[150:152])
        worth.append(model.predict_dist(X[200:]).logpdf(y[200:]).mean())
    assert min(worth) > -1


def test_a_time_budget_leaves_the_validation_rows_to_tell_the_spread():
    X, y, _ = made("normal", n=300)
    given = {**QUICK, "n_chains": 2, "callbacks": [TimeBudget(600)]}
    model = VPBoostRegressor(**given, distribution="normal").fit(X, y)
    assert model.n_chains_ == 2
    X, y, _ = made("normal", n=2000, seed=1)
    ratio = (y - model.predict(X)) / model.predict_dist(X).std()
    assert np.sqrt(np.mean(ratio**2)) == pytest.approx(1, abs=0.3)


def test_odd_tables():
    rng = np.random.default_rng(9)
    y = rng.normal(size=60)
    same = VPBoostRegressor(**QUICK, n_chains=1, distribution="normal").fit(np.ones((60, 1)), y)
    assert same.predict_dist(np.ones((1, 1))).std()[0] == pytest.approx(y.std(), rel=0.1)
    few = VPBoostRegressor(**QUICK, distribution="normal").fit(rng.normal(size=(6, 1)), y[:6])
    assert np.isfinite(few.predict_dist(np.zeros((1, 1))).std()).all()
    constant = VPBoostRegressor(**QUICK, distribution="normal").fit(rng.normal(size=(60, 1)), np.full(60, 3.0))
    assert 0 < constant.predict_dist(np.zeros((1, 1))).std()[0] < 1e-3


def test_the_move_is_the_likeliest_factor():
    rng = np.random.default_rng(6)
    target, raw = rng.normal(size=(50, 1)), 0.3 * rng.normal(size=(50, 1))
    rows = Honest(np.zeros((50, 1)), target, np.zeros((50, 1)), rng.uniform(1, 2, 50), np.arange(50))
    move = likeliest_move(losses.NormalLikelihood(), rows, raw)
    by_hand = 0.5 * np.log(np.average(target[:, 0] ** 2 * np.exp(-2 * raw[:, 0]), weights=rows.weight))
    np.testing.assert_allclose(move, by_hand, rtol=1e-9)
    few, _ = learn_spread(losses.NormalLikelihood(), rows.take(np.arange(20)), 0, "numpy")
    assert few.ensemble.n_learners == 0
    expected = 0.5 * np.log(np.average(target[:20, 0] ** 2, weights=rows.weight[:20]))
    np.testing.assert_allclose(few.ensemble.constant, expected, rtol=1e-8)


def test_rows_that_several_models_predict_are_not_learnt_by_heart():
    rng = np.random.default_rng(8)
    x, target = rng.normal(size=(150, 8)), rng.normal(size=(150, 1))  # the spread is one, everywhere
    rows = Honest(x, target, np.zeros((150, 1)), np.ones(150), np.arange(150)).take(np.tile(np.arange(150), 4))
    for group in (rows.group, np.arange(600)):  # as it should be, and as if these were four times as many rows
        spread, _ = learn_spread(losses.NormalLikelihood(), rows._replace(group=group), 0, "numpy")
        log = spread.ensemble.predict(rng.normal(size=(2000, 8)))
        worse = np.mean(log + 0.5 * np.exp(-2 * log)) - 0.5  # than the truth, for new rows
        assert (worse < 0.05) == (group is rows.group)


def test_few_rows_set_aside_are_joined_by_predictions_of_all(monkeypatch):
    seen = []

    def watched(likelihood, rows, *others):
        seen.append(rows)
        return learn_spread(likelihood, rows, *others)

    monkeypatch.setattr(distributional, "learn_spread", watched)
    X, y, _ = made("normal", n=200)
    model = VPBoostRegressor(**QUICK, n_chains=2, distribution="normal", random_state=0)
    model.fit(X, y)
    monkeypatch.setattr(distributional, "ENOUGH", 60)
    model.fit(X, y)
    few, enough = seen
    assert (len(few.x), len(enough.x)) == (2 * 30 + 200, 2 * 30)
    assert len(np.unique(few.group)) == 200  # a row is known again, whoever predicts it
    for group in np.unique(few.group):
        assert len(np.unique(few.target[few.group == group])) == 1


@pytest.mark.parametrize(
    ("rate", "n_stages", "max_steps", "expected"),
    [
        (0.125, 21, 3, (0.25, 11, 3)),
        (0.4, 15, 2, (0.5, 12, 2)),
        (0.1, 12, 2, (0.12, 10, 2)),
        (0.75, 3, 100, (0.75, 3, 50)),
    ],
)
def test_folds_take_larger_steps_and_fewer(rate, n_stages, max_steps, expected, monkeypatch):
    seen, boost = [], Run.boost

    def watched(self, n_learners, *others):
        seen.append((self.plan.trust_region.rate, n_learners, self.plan.training.max_steps))
        return boost(self, n_learners, *others)

    monkeypatch.setattr(Run, "boost", watched)
    X, y, _ = made("normal", n=200)
    given = {**QUICK, "learning_rate": rate, "n_estimators": n_stages, "max_steps": max_steps}
    VPBoostRegressor(**given, n_chains=1, early_stopping_rounds=None, distribution="normal").fit(X, y)
    assert seen == [(rate, n_stages, max_steps)] + 5 * [pytest.approx(expected)]


def test_what_the_mean_of_chains_gains_is_that_of_means_drawn():
    rng, n, spreads = np.random.default_rng(9), 40_000, np.array([0.5, 2.0])
    apart = np.array([0.3, 1.5])  # of chains around each other; of targets around what they are apart from: spreads
    target, chains = spreads * rng.normal(size=(n, 2)), apart * rng.normal(size=(4, n, 2))
    errors = np.sqrt([np.mean((target - one) ** 2, axis=0) for one in (chains[0], chains.mean(axis=0))])
    group = np.repeat(np.arange(n), 2)  # each row is known by two of them
    rows = Honest(
        np.zeros((2 * n, 0)), target[group], chains[:2].transpose(1, 0, 2).reshape(-1, 2), np.ones(2 * n), group
    )
    log_scale = np.tile(np.log(errors[0]), (2 * n, 1))
    np.testing.assert_allclose(log_gain(rows, log_scale, 4), np.log(errors[1] / errors[0]), atol=0.01)
    np.testing.assert_array_equal(log_gain(rows, log_scale, 1), 0)
    once = rows.take(np.arange(0, 2 * n, 2))
    np.testing.assert_array_equal(log_gain(once, log_scale[:n], 4), 0)  # nobody knows
    assert (log_gain(rows, log_scale - 9, 4) == 0.5 * np.log(0.5)).all()


@pytest.mark.slow
@pytest.mark.long
def test_warm_starts_and_checkpoints_go_on(tmp_path):
    X, y, _ = made("normal", n=60)
    given = {**QUICK, "n_estimators": 6, "n_chains": 1, "distribution": "normal"}
    whole = VPBoostRegressor(**given).fit(X, y)
    model = VPBoostRegressor(**{**given, "n_estimators": 3}, warm_start=True).fit(X, y)
    model.set_params(n_estimators=6).fit(X, y)
    np.testing.assert_allclose(model.predict_dist(X).std(), whole.predict_dist(X).std(), rtol=1e-6)
    path = tmp_path / "c.vpboost"
    VPBoostRegressor(**{**given, "n_estimators": 3}, callbacks=[Checkpoint(path, every=1)]).fit(X, y)
    resumed = VPBoostRegressor(**given).fit(X, y, resume_from=path)
    np.testing.assert_allclose(resumed.predict_dist(X).std(), whole.predict_dist(X).std(), rtol=1e-6)
    with pytest.raises(ValueError, match="distribution cannot change"):
        model.set_params(distribution=None).fit(X, y)


# --- likelihoods of the user's own -----------------------------------------------------------------------------------


def laplace(parameters, target):
    location, log_scale = parameters
    return log_scale + jnp.sqrt((target - location) ** 2 + 1e-4) * jnp.exp(-log_scale)


def laplace_law(parameters):
    return stats.laplace(parameters[..., 0], np.exp(parameters[..., 1]))


@pytest.mark.slow
@pytest.mark.long
def test_curvature_of_ones_own_likelihood_is_no_less_than_the_hessian():
    rng, loss = np.random.default_rng(7), losses.CustomLikelihood(laplace, 2)
    f, y = rng.normal(size=(50, 2)), rng.normal(size=(50, 1))
    with jax.enable_x64(True):
        entries = np.asarray(loss.curvature(jnp.asarray(f), jnp.asarray(y)).entries)
        hessians = jax.jit(jax.vmap(jax.hessian(loss.value)))(jnp.asarray(f), jnp.asarray(y))
        least = [np.linalg.eigvalsh(np.diag(d) - np.asarray(h)).min() for d, h in zip(entries, hessians, strict=True)]
        assert min(least) > -1e-9
        assert entries.min() >= 0
        fisher = losses.CustomLikelihood(laplace, 2, fisher=lambda p: jnp.array([[2.0, -1.0], [-1.0, 3.0]]))
        np.testing.assert_array_equal(fisher.curvature(jnp.asarray(f[:1]), jnp.asarray(y[:1])).entries, [[3, 4]])
        diagonal = losses.CustomLikelihood(laplace, 2, fisher=lambda p: jnp.array([2.0, 3.0]))
        np.testing.assert_array_equal(diagonal.curvature(jnp.asarray(f[:1]), jnp.asarray(y[:1])).entries, [[2, 3]])


@pytest.mark.slow
@pytest.mark.long
def test_ones_own_likelihood_in_an_estimator(tmp_path):
    X, y, _ = made("normal", n=120)
    loss = losses.CustomLikelihood(laplace, 2, law=laplace_law)
    model = VPBoostRegressor(**QUICK, n_chains=1, distribution=loss).fit(X, (y - 10) / 5)
    law = model.predict_dist(X)
    np.testing.assert_allclose(law.mean(), model.predict(X), rtol=1e-9)
    assert model.score(X, (y - 10) / 5) > 0.5
    assert model.input_gradient(X).shape == (120, 2)
    np.testing.assert_allclose(jax.vmap(model.as_jax())(X[:3]), model.predict(X[:3]), rtol=1e-3)
    model.save_model(tmp_path / "m.vpboost")
    loaded = load_model(tmp_path / "m.vpboost", loss=loss)
    np.testing.assert_array_equal(loaded.predict_dist(X).std(), law.std())
    without = VPBoostRegressor(**QUICK, n_chains=1, distribution=losses.CustomLikelihood(laplace, 2))
    with pytest.raises(ValueError, match="give CustomLikelihood a law"):
        without.fit(X, y).predict_dist(X)


def test_errors_name_the_parameter():
    X, y, _ = made("normal", n=60)
    for given, message in [
        ({"distribution": "norml"}, "distribution must be one of .*'normal'"),
        ({"distribution": "normal", "loss": "quantile"}, "leave loss None"),
        ({"distribution": losses.NormalLikelihood()}, "distribution must be a name"),
        ({"loss": losses.NormalLikelihood()}, "give NormalLikelihood as distribution"),
    ]:
        with pytest.raises(ValueError, match=message):
            VPBoostRegressor(**given).fit(X, y)
    with pytest.raises(TypeError, match="distribution must be one of"):
        VPBoostRegressor(distribution=3).fit(X, y)
    for family, target, message in [
        ("lognormal", y - 100, "must be positive for distribution='lognormal'"),
        ("gamma", y - 100, "must be positive"),
        ("negative_binomial", y, "counts 0, 1, 2"),
        ("negative_binomial", np.floor(y) - 100, "non-negative|counts"),
    ]:
        with pytest.raises(ValueError, match=message):
            VPBoostRegressor(**QUICK, distribution=family).fit(X, target)
    with pytest.raises(ValueError, match="df must be more than 2"):
        losses.StudentTLikelihood(1.0)
    with pytest.raises(TypeError, match="function must be callable"):
        losses.CustomLikelihood("x", 2)
    with pytest.raises(ValueError, match="must return a scalar"):
        VPBoostRegressor(**QUICK, distribution=losses.CustomLikelihood(lambda p, t: p, 2)).fit(X, y)
    assert clone(VPBoostRegressor(distribution="gamma")).distribution == "gamma"


@pytest.mark.slow
@pytest.mark.long
def test_without_a_distribution_the_law_is_normal_around_the_prediction():
    X, y, _ = made("normal", n=120)
    model = VPBoostRegressor(**QUICK, n_chains=1).fit(X, y)
    law, (mean, std) = model.predict_dist(X), model.predict(X, return_std=True)
    assert isinstance(law, distributions.Normal)
    np.testing.assert_allclose(law.mean(), model.predict(X), rtol=1e-6)
    np.testing.assert_array_equal([law.mean(), law.std()], [mean, std])


@pytest.mark.slow
@pytest.mark.long
def test_intervals_are_as_wide_as_the_predicted_spread_says(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(1200, 1))
    sigma = np.where(X[:, 0] > 0, 1.0, 0.1)
    y = 2 * X[:, 0] + sigma * rng.normal(size=1200)
    fit, new = slice(0, 500), slice(500, None)
    model = VPBoostRegressor(**QUICK, distribution="normal", random_state=0).fit(X[fit], y[fit])
    low, high = model.predict_interval(X[new], 0.9)
    within, wide = (low <= y[new]) & (y[new] <= high), X[new, 0] > 0
    assert abs(within.mean() - 0.9) < 0.04
    assert abs(within[wide].mean() - 0.9) < 0.06, "where there is more noise as well"
    assert 4 < np.mean((high - low)[wide]) / np.mean((high - low)[~wide]) < 15
    _, noise, _ = model.predict_uncertainty(X[new])
    np.testing.assert_allclose(noise, model.predict_dist(X[new]).std())
    model.save_model(tmp_path / "model")
    np.testing.assert_allclose(load_model(tmp_path / "model").predict_interval(X[new], 0.9), [low, high])
    plain = model.set_params(distribution=None).fit(X[fit], y[fit])  # nothing of the earlier fit is left
    assert np.ptp(np.subtract(*plain.predict_interval(X[new], 0.9))) < 1e-9


def test_the_mean_of_a_lognormal_law_is_what_predictions_are_about():
    X, y, _ = made("lognormal", n=150)
    model = VPBoostRegressor(**QUICK, distribution="lognormal").fit(X, y)
    np.testing.assert_allclose(model.predict(X), model.predict_uncertainty(X).mean)
    low, high = model.predict_interval(X, 0.8)
    assert (low >= 0).all()
    assert ((low <= model.predict(X)) & (model.predict(X) <= high)).all()
