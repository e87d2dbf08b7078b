"""Likelihoods and their Fisher information, and the laws that are predicted."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad

from vpboost import MLP, Training, TrustRegion, boost, distributions, losses
from vpboost.losses.curvature import Diagonal

#: Likelihoods, parameters to try them at, and the same law by SciPy.
CASES = {
    "normal": (losses.NormalLikelihood(), [0.7, -0.4], stats.norm(0.7, np.exp(-0.4))),
    "student_t": (losses.StudentTLikelihood(4.5), [0.7, -0.4], stats.t(4.5, 0.7, np.exp(-0.4))),
    "gamma": (losses.GammaLikelihood(), [0.6, 0.9], stats.gamma(np.exp(0.9), scale=np.exp(0.6 - 0.9))),
    "sharp gamma": (losses.GammaLikelihood(), [0.6, 4.0], stats.gamma(np.exp(4.0), scale=np.exp(0.6 - 4.0))),
    "negative_binomial": (
        losses.NegativeBinomialLikelihood(),
        [1.1, 0.5],
        stats.nbinom(np.exp(0.5), np.exp(0.5) / (np.exp(0.5) + np.exp(1.1))),
    ),
}
each_case = pytest.mark.parametrize(("loss", "parameters", "law"), CASES.values(), ids=list(CASES))


def draws(law, n):
    """Return numbers that stand for a law: its quantiles at evenly spaced levels."""
    return law.ppf((np.arange(n) + 0.5) / n)


@each_case
def test_likelihoods_are_those_of_scipy(loss, parameters, law):
    y = draws(law, 7)
    with jax.enable_x64(True):
        value = loss.value(jnp.tile(jnp.array(parameters), (7, 1)), jnp.asarray(y)[:, None])
    expected = law.logpmf(y) if hasattr(law.dist, "pmf") else law.logpdf(y)
    np.testing.assert_allclose(value, -expected, rtol=1e-8)


@each_case
def test_gradients_are_those_of_automatic_differentiation(loss, parameters, law):
    y = np.stack([draws(law, 9), draws(law, 9)[::-1]], axis=1)
    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        f = jnp.asarray(np.tile(parameters, (9, 2)) + 0.3 * rng.normal(size=(9, 4)))
        by_hand = jax.grad(lambda f: loss.value(f, jnp.asarray(y)).sum())(f)
        np.testing.assert_allclose(loss.gradient(f, jnp.asarray(y)), by_hand, rtol=1e-6, atol=1e-9)


@each_case
def test_fisher_information_is_the_expected_hessian(loss, parameters, law):
    y = law.rvs(60_000, random_state=0) if hasattr(law.dist, "pmf") else draws(law, 60_000)
    with jax.enable_x64(True):
        at = jnp.array(parameters)
        one = jax.jit(jax.vmap(jax.hessian(loss.value), (None, 0)))
        hessian = np.asarray(one(at, jnp.asarray(y, float)[:, None])).mean(axis=0)
        slopes = loss.gradient(jnp.tile(at, (len(y), 1)), jnp.asarray(y)[:, None])
        curvature = loss.curvature(jnp.tile(at, (len(y), 1)), jnp.asarray(y)[:, None])
    assert isinstance(curvature, Diagonal)
    information = np.asarray(curvature.entries).mean(axis=0)
    np.testing.assert_allclose(information, np.diag(hessian), rtol=0.03)
    np.testing.assert_allclose(information, np.mean(np.asarray(slopes) ** 2, axis=0), rtol=0.03)
    assert abs(hessian[0, 1]) < 0.02 * information.max()


@each_case
def test_the_best_constant_has_no_slope(loss, parameters, law):
    y = law.rvs((1, 200, 2), random_state=1)
    weight = np.random.default_rng(2).uniform(0.5, 1.5, (1, 200))
    weight /= weight.sum()
    with jax.enable_x64(True):
        constant = loss.best_constant(jnp.asarray(y, float), jnp.asarray(weight))
        slopes = loss.gradient(jnp.broadcast_to(constant, (1, 200, 4)), jnp.asarray(y, float))
        np.testing.assert_allclose(np.einsum("bi,bik->k", weight, slopes), 0, atol=1e-6)


@each_case
def test_far_away_everything_is_finite(loss, parameters, law):
    y = np.abs(draws(law, 3))[:, None] + 1
    for log in (-1e3, -50, 50, 1e3):
        f = jnp.asarray(np.tile([parameters[0], log], (3, 1)), "float32")
        for part in (loss.value(f, y), loss.gradient(f, y), loss.curvature(f, y).diagonal()):
            assert np.isfinite(part).all()


def test_holes_and_given_locations():
    rng, loss = np.random.default_rng(3), losses.NormalLikelihood()
    f, y = rng.normal(size=(6, 4)), rng.normal(size=(6, 2))
    y[0, 0] = y[3, 1] = np.nan
    with jax.enable_x64(True):
        observed = losses.Observed(loss)
        gradient = np.asarray(observed.gradient(jnp.asarray(f), jnp.asarray(y)))
        assert (gradient[0, :2] == 0).all()
        assert (gradient[3, 2:] == 0).all()
        assert np.count_nonzero(gradient) == 20
        assert observed.n_outputs(y) == 4
        given = losses.GivenLocation(observed)
        packed = jnp.asarray(np.concatenate([y, f[:, ::2]], axis=1))
        assert given.n_outputs(packed) == 2
        np.testing.assert_array_equal(given.gradient(jnp.asarray(f[:, 1::2]), packed), gradient[:, 1::2])
        value = observed.value(jnp.asarray(f), jnp.asarray(y))
        np.testing.assert_array_equal(given.value(jnp.asarray(f[:, 1::2]), packed), value)
        whole = observed.curvature(jnp.asarray(f), jnp.asarray(y)).diagonal()
        found = given.curvature(jnp.asarray(f[:, 1::2]), packed).diagonal()
        np.testing.assert_array_equal(found, whole[:, 1::2])


def test_boosting_fits_all_parameters_together():
    rng = np.random.default_rng(4)
    x = rng.uniform(-1, 1, (400, 1))
    y = np.sin(2 * x[:, 0]) + np.exp(x[:, 0] - 2) * rng.normal(size=400)
    fit = boost(
        x, y, loss=losses.NormalLikelihood(), featurizer=partial(MLP, width=4, depth=1), n_learners=30,
        training=Training(max_steps=20), trust_region=TrustRegion(rate=0.3), engine="numpy",
    )  # fmt: skip
    raw = fit.ensemble.predict(x)
    assert np.sqrt(np.mean((raw[:, 0] - np.sin(2 * x[:, 0])) ** 2)) < 0.05
    assert np.sqrt(np.mean((raw[:, 1] - x[:, 0] + 2) ** 2)) < 0.3
    history = [record.loss for record in fit.history]
    assert (np.diff(history) <= 1e-6).all()  # the trust region sees the true loss


# --- laws ------------------------------------------------------------------------------------------------------------

LAWS = [
    distributions.Normal(np.array([0.0, 3.0]), np.array([1.0, 0.5])),
    distributions.LogNormal(np.array([0.0, 1.0]), np.array([0.4, 0.8])),
    distributions.StudentT(np.array([3.0, 8.0]), np.array([0.0, 3.0]), np.array([1.0, 0.5])),
    distributions.Gamma(np.array([2.0, 5.0]), np.array([1.5, 20.0])),
    distributions.NegativeBinomial(np.array([2.0, 5.0]), np.array([1.5, 20.0])),
]
each_law = pytest.mark.parametrize("law", LAWS, ids=lambda law: type(law).__name__)


@each_law
def test_laws_agree_with_their_samples(law):
    sample = law.sample(20_000, random_state=0)
    assert sample.shape == (20_000, 2)
    np.testing.assert_allclose(sample.mean(axis=0), law.mean(), rtol=0.05, atol=0.05)
    np.testing.assert_allclose(sample.std(axis=0), law.std(), rtol=0.15)
    np.testing.assert_allclose(law.std(), law.law.std(), rtol=1e-12)
    low, high = law.interval(0.8)
    atol = 0.15 if isinstance(law, distributions.NegativeBinomial) else 0.01
    np.testing.assert_allclose(((sample >= low) & (sample <= high)).mean(axis=0), 0.8, atol=atol)
    assert law.quantile([0.1, 0.5, 0.9]).shape == (3, 2)
    np.testing.assert_allclose(law.quantile(0.1), low, rtol=1e-12)
    assert (law.cdf(low) >= 0.1 - 1e-12).all()
    np.testing.assert_array_equal(law.sample(2, random_state=3), law.sample(2, random_state=3))
    assert len(law) == 2


@pytest.mark.parametrize("key", [jax.random.key(3), jax.random.PRNGKey(3)], ids=["key", "PRNGKey"])
def test_samples_by_a_key_of_jax(key):
    law = LAWS[0]
    np.testing.assert_array_equal(law.sample(4, key), law.sample(4, key))
    assert (law.sample(4, key) != law.sample(4, jax.random.split(key)[0])).all()


@each_law
def test_density_sums_to_one_and_crps_is_its_integral(law):
    y = np.array([1.0, 4.0])
    for j in range(2):
        one = type(law)(*(np.asarray(getattr(law, name))[j] for name in law.__dataclass_fields__))
        if isinstance(law, distributions.NegativeBinomial):
            counts = np.arange(500)
            assert np.exp(one.logpdf(counts)).sum() == pytest.approx(1)
            crps = np.sum((one.cdf(counts) - (counts >= y[j])) ** 2)
        else:
            low = -np.inf if law.quantile(0.0)[j] < 0 else 0.0
            assert quad(lambda t, one=one: np.exp(one.logpdf(t)), low, np.inf)[0] == pytest.approx(1)
            crps = quad(lambda t, one=one: one.cdf(t) ** 2, low, y[j])[0]
            crps += quad(lambda t, one=one: (1 - one.cdf(t)) ** 2, y[j], np.inf)[0]
        assert law.crps(y)[j] == pytest.approx(crps, rel=1e-6)


@pytest.mark.parametrize("unit", [1e-200, 1e200])
def test_spreads_of_tiny_and_huge_numbers(unit):
    one, two = np.array([unit]), np.array([2.0])
    laws = [
        (distributions.Normal(0 * one, one), 1.0),
        (distributions.LogNormal(np.log(one), two), np.exp(2) * np.sqrt(np.expm1(4))),
        (distributions.StudentT(2 * two, one, one), np.sqrt(2)),
        (distributions.Gamma(one, two), np.sqrt(0.5)),
        (distributions.NegativeBinomial(one, two), np.sqrt(0.5) if unit > 1 else 1 / np.sqrt(unit)),
    ]
    for law, spread in laws:
        assert law.std()[0] / unit == pytest.approx(spread)


@pytest.mark.parametrize("mu", [1e-6, 0.3, 40.0, 3000.0])
@pytest.mark.parametrize("size", [0.2, 3.0, 500.0, 1e6])
def test_scores_of_counts_are_their_sums(mu, size):
    law = distributions.NegativeBinomial(np.full(3, mu), np.full(3, size))
    y = np.array([0.0, np.round(mu), np.round(3 * mu) + 2])
    counts = np.arange(max(y[2], law.quantile(1 - 1e-14)[0]) + 5)[:, None]
    np.testing.assert_allclose(
        law.crps(y), np.sum((law.cdf(counts) - (counts >= y)) ** 2, axis=0), rtol=1e-6, atol=1e-10
    )


@each_law
def test_laws_of_unknown_targets(law):
    y = np.array([np.nan, 2.0])
    for found in (law.logpdf(y), law.crps(y)):
        np.testing.assert_array_equal(np.isnan(found), [True, False])


def test_many_laws_are_shown_by_their_ranges():
    assert repr(distributions.Normal(np.array([1.0, 2.0]), np.array([3.0, 4.0]))).startswith(
        "Normal(loc=array([1., 2.])"
    )
    law = distributions.Gamma(np.linspace(1, 2, 500), np.full(500, 3.0))
    assert repr(law) == "<Gamma laws of shape (500,): mu from 1 to 2, shape from 3 to 3>"


@each_law
def test_a_column_beside_a_row_of_laws_is_refused(law):
    for method in (law.logpdf, law.cdf, law.crps):
        with pytest.raises(ValueError, match=r"shape of the laws, \(2,\), got \(2, 1\)"):
            method(np.ones((2, 1)))


def test_laws_say_what_is_wrong():
    with pytest.raises(ValueError, match="q must lie in"):
        LAWS[0].quantile(1.5)
    with pytest.raises(ValueError, match="coverage must be"):
        LAWS[0].interval(95)
    with pytest.raises(ValueError, match="n must be a whole number"):
        LAWS[0].sample(0)


# --- the estimator ---------------------------------------------------------------------------------------------------


def test_scores_of_huge_counts_take_no_longer():
    law = distributions.NegativeBinomial(np.array([1e7, 5.0]), np.array([3.0, 2.0]))
    gamma = distributions.Gamma(np.array([1e7]), np.array([3.0]))  # nearly the same law
    y = np.array([8e6, 4.0])
    np.testing.assert_allclose(law.crps(y)[0], gamma.crps(y[:1])[0], rtol=1e-3)
    exact = sum((law.cdf(k)[1] - (k >= 4)) ** 2 for k in range(200))
    np.testing.assert_allclose(law.crps(y)[1], exact, rtol=1e-6)
