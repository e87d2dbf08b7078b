"""Likelihoods against NumPy and SciPy, without compilation: quick enough for every mutant (mutate.py)."""

import math
from decimal import Decimal

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

from oracles import central_difference
from vpboost import losses
from vpboost.losses import likelihoods
from vpboost.losses.likelihoods import GivenLocation

REAL = np.array([[0.1, 0.4], [-0.6, 2.5], [-1.3, 1.0]])
COUNT = np.array([[0.0, 3.0], [1.0, 2.0], [4.0, 0.0]])
P = np.array([[0.7, -0.4, 0.2, 0.6], [-0.3, 0.9, 1.0, -0.8], [0.1, 2.9, 0.5, 1.2]])


def normal(mean, log, y):
    return -stats.norm.logpdf(y, mean, np.exp(log))


def student(mean, log, y):
    return -stats.t.logpdf(y, 4.5, mean, np.exp(log))


def gamma(log_mean, log_shape, y):
    return -stats.gamma.logpdf(y, np.exp(log_shape), scale=np.exp(log_mean - log_shape))


def negative_binomial(log_mean, log_size, y):
    size = np.exp(log_size)
    return -stats.nbinom.logpmf(y, size, size / (size + np.exp(log_mean)))


LAWS = {
    "normal": (losses.NormalLikelihood(), REAL, normal),
    "student": (losses.StudentTLikelihood(4.5), REAL, student),
    "gamma": (losses.GammaLikelihood(), COUNT + 0.5, gamma),
    "counts": (losses.NegativeBinomialLikelihood(), COUNT, negative_binomial),
}


@pytest.mark.parametrize("name", LAWS)
def test_likelihoods(name, x64):
    loss, y, law = LAWS[name]
    assert (loss.n_parameters, loss.n_outputs(y), loss.sums_over_outputs) == (2, 4, True)
    value = law(P[:, ::2], P[:, 1::2], y).sum(axis=1)
    np.testing.assert_allclose(loss.value(P, y), value, rtol=1e-9)
    slopes = [
        central_difference(lambda p, t=t: law(p[::2], p[1::2], t).sum(), row) for row, t in zip(P, y, strict=True)
    ]
    np.testing.assert_allclose(loss.gradient(P, y), slopes, rtol=1e-6, atol=1e-8)
    for pick in (None, 0):  # rows in blocks, and one row
        apart = loss.value, loss.gradient, lambda *given: loss.curvature(*given).diagonal()
        for part in apart:
            np.testing.assert_allclose(part(P[pick], y[pick]), part(P, y)[pick], rtol=1e-12)
    weight = np.array([[0.5, 0.3, 0.2]])
    constant = np.asarray(loss.best_constant(jnp.asarray(y[None]), jnp.asarray(weight)))
    np.testing.assert_allclose(weight[0] @ np.asarray(loss.gradient(np.tile(constant, (3, 1)), y)), 0, atol=1e-5)
    far = np.where(np.arange(4) % 2, 30.0, 0.5)[None]
    cut = np.where(np.arange(4) % 2, 15.0, 0.5)[None]
    for sign in (1, -1):
        outside, inside = far * [1, sign, 1, sign], cut * [1, sign, 1, sign]
        np.testing.assert_allclose(loss.value(outside, y[:1]), loss.value(inside, y[:1]))
        np.testing.assert_array_equal(np.asarray(loss.gradient(outside, y[:1]))[:, 1::2], 0)
        assert np.isfinite(np.asarray(loss.curvature(outside, y[:1]).diagonal())).all()
    at_bound = np.array([[0.5, 15.0, 0.5, -15.0]])
    assert np.all(np.asarray(loss.gradient(at_bound, y[1:2]))[:, 1::2] != 0) or name in ("gamma", "counts")


def test_fisher_information(x64):
    location, log = P[:, ::2], P[:, 1::2]
    scale, a = np.exp(log), np.exp(log)
    expected = {
        "normal": (1 / scale**2, 2 + 0 * log),
        "student": (5.5 / 7.5 / scale**2, 9 / 7.5 + 0 * log),
        "gamma": (a, a**2 * special.polygamma(1, a) - a),
        "counts": (a * np.exp(location) / (a + np.exp(location)), None),
    }
    for name, (of_location, of_log) in expected.items():
        loss, y, _ = LAWS[name]
        found = np.asarray(loss.curvature(P, y).diagonal())
        np.testing.assert_allclose(found[:, ::2], of_location, rtol=1e-10)
        if of_log is None:
            of_log = np.asarray(loss.gradient(P, y))[:, 1::2] ** 2
        np.testing.assert_allclose(found[:, 1::2], of_log, rtol=1e-9)
        if name != "counts":
            outside = np.asarray(loss.curvature(P + np.array([0, 40, 0, 40]), y).diagonal())
            np.testing.assert_array_equal(outside[:, 1::2], 0)


@pytest.mark.parametrize("shape", [0.3, 9.0, 10.0, 10.5, 30.0, 1e4])
def test_series_of_large_shapes(shape, x64):
    a = np.array([shape])
    few = {"rtol": 2e-9}
    np.testing.assert_allclose(likelihoods.below_stirling(a), special.gammaln(a) - a * np.log(a) + a, rtol=1e-6)
    np.testing.assert_allclose(likelihoods.digamma_less_log(a), special.digamma(a) - np.log(a), rtol=1e-6)
    np.testing.assert_allclose(likelihoods.shape_information(a), a**2 * special.polygamma(1, a) - a, rtol=1e-6)
    if 10 < shape < 100:  # what the last terms of the series bring
        np.testing.assert_allclose(likelihoods.below_stirling(a), special.gammaln(a) - a * np.log(a) + a, **few)
        np.testing.assert_allclose(likelihoods.digamma_less_log(a), special.digamma(a) - np.log(a), **few)
        exact = a**2 * special.polygamma(1, a) - a
        np.testing.assert_allclose(likelihoods.shape_information(a), exact, rtol=2e-8)


EULER = Decimal("0.57721566490153286060651209008240243104215933593992")
PI = Decimal("3.14159265358979323846264338327950288419716939937511")


@pytest.mark.parametrize("n", [9, 10, 11, 12, 13])
def test_series_leave_out_their_next_terms_alone(n, x64):
    """Whole shapes have closed forms; thirty digits of them tell how far off a series is, and that is its next term.

    Shapes up to ten are left to SciPy's functions, which are off by rounding.
    """
    a, shape = Decimal(n), np.array([float(n)])
    digamma = sum((1 / Decimal(k) for k in range(1, n)), -EULER)
    trigamma = PI**2 / 6 - sum(1 / Decimal(k) ** 2 for k in range(1, n))
    for series, exact, following in [
        (likelihoods.below_stirling, Decimal(math.factorial(n - 1)).ln() - a * a.ln() + a, -1 / (1680 * a**7)),
        (likelihoods.digamma_less_log, digamma - a.ln(), 1 / (240 * a**8)),
        (likelihoods.shape_information, a**2 * trigamma - a, -1 / (30 * a**7)),
    ]:
        left_out = exact - Decimal(float(series(shape)[0]))
        assert float(left_out / following) == pytest.approx(float(n > 10), abs=0.05)


def test_where_likelihoods_start():
    y, w = np.array([1.0, 2.0, 4.0, 9.0]), np.array([0.1, 0.2, 0.3, 0.4])
    mean, variance = w @ y, w @ (y - w @ y) ** 2
    np.testing.assert_allclose(losses.NormalLikelihood().start(y, w), [mean, np.log(np.sqrt(variance))])
    np.testing.assert_allclose(losses.StudentTLikelihood().start(y, w), [4.0, np.log((9.0 - 2.0) / 1.4)])
    same, alone = np.array([1.0, 3.0, 3.0, 3.0]), np.array([0.1, 0.3, 0.3, 0.3])
    np.testing.assert_allclose(losses.StudentTLikelihood().start(same, alone), [3.0, 0.5 * np.log(0.1 * 4.0)])
    np.testing.assert_allclose(losses.GammaLikelihood().start(y, w), [np.log(mean), np.log(mean**2 / variance)])
    assert losses.GammaLikelihood().start(np.full(4, 3.0), w) == pytest.approx([np.log(3), np.log(1e6)])
    counts = losses.NegativeBinomialLikelihood()
    np.testing.assert_allclose(counts.start(y, w), [np.log(mean), np.log(mean**2 / (variance - mean))])
    assert counts.start(np.full(4, 3.0), w) == pytest.approx([np.log(3), np.log(100)])
    assert counts.start(np.zeros(4), w)[0] == pytest.approx(np.log(1e-7))
    assert losses.NormalLikelihood().start(np.zeros(4), w)[1] == -14.0
    assert losses.NormalLikelihood().start(np.array([-1e9, 1e9]), np.array([0.5, 0.5]))[1] == 14.0
    assert losses.CustomLikelihood(lambda p, t: p[0], 3).start(y, w) == [0.0, 0.0, 0.0]
    assert losses.StudentTLikelihood().df == 5.0
    for df in (2, 1.0, np.inf):
        with pytest.raises(ValueError, match="df must be more than 2"):
            losses.StudentTLikelihood(df)
    assert losses.StudentTLikelihood(2.5).robust
    assert not losses.NormalLikelihood().robust


def test_targets_of_likelihoods_are_checked():
    for value in (0.0, -1.0):
        with pytest.raises(ValueError, match="positive for a gamma"):
            losses.GammaLikelihood().prepare_targets([1.0, value])
    assert losses.GammaLikelihood().prepare_targets([0.25]).tolist() == [[0.25]]
    assert losses.NegativeBinomialLikelihood().prepare_targets([0, 3]).tolist() == [[0.0], [3.0]]
    for bad in ([-1, 2], [0.5, 1.0]):
        with pytest.raises(ValueError, match="counts 0, 1, 2"):
            losses.NegativeBinomialLikelihood().prepare_targets(bad)


@pytest.mark.slow
@pytest.mark.long
def test_custom_likelihoods(x64):
    def function(p, t):
        return p[1] + 0.5 * ((t - p[0]) * jnp.exp(-p[1])) ** 2 + 0.1 * p[0] * p[1]

    loss, y = losses.CustomLikelihood(function, 2), REAL
    expected = [[function(row[2 * k : 2 * k + 2], t[k]) for k in range(2)] for row, t in zip(P, y, strict=True)]
    np.testing.assert_allclose(loss.value(P, y), np.sum(expected, axis=1), rtol=1e-12)
    hessians = [[jax.hessian(function)(jnp.asarray(row[2 * k : 2 * k + 2]), t[k]) for k in range(2)]
                for row, t in zip(P, y, strict=True)]  # fmt: skip
    sums = np.abs(np.asarray(hessians)).sum(axis=-1).reshape(3, 4)
    np.testing.assert_allclose(loss.curvature(P, y).diagonal(), sums, rtol=1e-12)
    for fisher in (lambda p: jnp.array([[2.0, -1.0], [-1.0, 3.0]]), lambda p: jnp.array([-3.0, 4.0])):
        given = losses.CustomLikelihood(function, 2, fisher)
        np.testing.assert_allclose(given.curvature(P, y).diagonal()[0], [3.0, 4.0, 3.0, 4.0])
    assert loss.n_parameters == 2
    for bad in ({"function": 3}, {"fisher": 3}, {"law": "normal"}):
        with pytest.raises(TypeError, match="must be callable"):
            losses.CustomLikelihood(**{"function": function, "parameters": 2, **bad})
    with pytest.raises(ValueError, match="parameters must be a whole number"):
        losses.CustomLikelihood(function, 0)
    blocks = jnp.asarray(y[None])
    loss.check(blocks, jnp.zeros(4))
    loss.check(blocks.at[0, 0, 0].set(jnp.nan), jnp.zeros(4))
    with pytest.raises(ValueError, match="must return a scalar for one target"):
        losses.CustomLikelihood(lambda p, t: p, 2).check(blocks, jnp.zeros(4))
    for wrong in (lambda p, t: jnp.log(p[0] - 5), lambda p, t: jnp.sqrt(p[0] + p[1]), lambda p, t: p[0] ** 1.5):
        with pytest.raises(ValueError, match="NaN or infinite near a constant"):
            losses.CustomLikelihood(wrong, 2).check(blocks, jnp.zeros(4))


def test_where_custom_likelihoods_are_tried():
    """On 256 rows at the most; one that is not finite among them is enough."""
    loss = losses.CustomLikelihood(lambda p, t: jnp.where(t > 0, jnp.nan, 0.5 * (t - p[0]) ** 2), 1)
    blocks = jnp.zeros((1, 300, 1))
    loss.check(blocks.at[0, 256:].set(1.0), jnp.zeros(1))
    with pytest.raises(ValueError, match="NaN or infinite near a constant"):
        loss.check(blocks.at[0, 255].set(1.0), jnp.zeros(1))


def test_given_locations(x64):
    loss = GivenLocation(losses.NormalLikelihood())
    target, log = np.hstack([REAL, P[:, ::2]]), P[:, 1::2]
    np.testing.assert_allclose(loss.value(log, target), normal(P[:, ::2], log, REAL).sum(axis=1), rtol=1e-10)
    whole = losses.NormalLikelihood()
    np.testing.assert_array_equal(loss.gradient(log, target), np.asarray(whole.gradient(P, REAL))[:, 1::2])
    diagonal = np.asarray(whole.curvature(P, REAL).diagonal())[:, 1::2]
    np.testing.assert_array_equal(loss.curvature(log, target).diagonal(), diagonal)
    np.testing.assert_allclose(loss.value(jnp.asarray(log), jnp.asarray(target)), loss.value(log, target), rtol=1e-12)
    np.testing.assert_array_equal(loss.value(log[None], target[None])[0], loss.value(log, target))
    np.testing.assert_array_equal(loss.gradient(log[None], target[None])[0], loss.gradient(log, target))
    in_blocks = loss.curvature(log[None], target[None]).diagonal()
    np.testing.assert_array_equal(in_blocks[0], loss.curvature(log, target).diagonal())
    np.testing.assert_array_equal(loss.gradient(log[0], target[0]), loss.gradient(log, target)[0])
    np.testing.assert_allclose(loss.value(log[0], target[0]), loss.value(log, target)[0], rtol=1e-12)
    assert loss.n_outputs(target) == 2
    three = GivenLocation(losses.CustomLikelihood(lambda p, t: p[0], 3))
    assert three.n_outputs(target) == 4
    assert three.gradient(P, target).shape == (3, 4)
    np.testing.assert_array_equal(three.gradient(P, target), 0)
    assert loss.prepare_targets([[1, np.nan]]).dtype == np.float64
