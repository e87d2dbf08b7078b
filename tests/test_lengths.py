"""Correlation lengths by likelihood, against finite differences and scikit-learn's Gaussian process."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import norm
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

from oracles import central_difference
from vpboost.numerics.lengths import MOST_OUTPUTS, MOST_ROWS, Prior, improbability, likeliest_process, unlikelihood

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 3))
Y = np.sin(X @ RNG.normal(size=(3, 2)))


@given(st.lists(st.floats(-2, 1), min_size=4, max_size=4), st.sampled_from([1, 2]))
@settings(deadline=None, max_examples=20)
def test_slopes_are_those_of_finite_differences(logs, n_outputs):
    logs, y = np.array(logs), Y[:, :n_outputs]
    expected = central_difference(lambda logs: unlikelihood(logs, X, y)[0], logs)
    np.testing.assert_allclose(unlikelihood(logs, X, y)[1], np.ravel(expected), atol=1e-6)


@given(st.lists(st.floats(-2, 1), min_size=4, max_size=4), st.sampled_from([1, 2]))
@settings(deadline=None, max_examples=20)
def test_a_prior_counts_as_normal_laws_of_the_logarithms(logs, n_outputs):
    logs, y, prior = np.array(logs), Y[:, :n_outputs], Prior(0.6, 0.02, (0.5, 3.0))
    value, slopes = improbability(logs, X, y, prior)
    lengths = norm.logpdf(logs[:-1], np.log(0.6 / np.sqrt(3)), 0.5) - norm.logpdf(0, 0, 0.5)
    nugget = norm.logpdf(logs[-1], np.log(0.02), 3.0) - norm.logpdf(0, 0, 3.0)
    assert value == pytest.approx(unlikelihood(logs, X, y)[0] - (lengths.sum() + nugget) / y.size, rel=1e-12)
    expected = central_difference(lambda logs: improbability(logs, X, y, prior)[0], logs)
    np.testing.assert_allclose(slopes, np.ravel(expected), atol=1e-6)


def test_a_narrow_prior_decides_and_a_wide_one_does_not():
    narrow, wide = (likeliest_process(X, Y, Prior(0.6, 0.02, (w, w))) for w in (1e-3, 1e3))
    np.testing.assert_allclose(narrow.inverse_lengths, 0.6 / np.sqrt(3), rtol=1e-2)
    assert narrow.nugget == pytest.approx(0.02, rel=1e-2)
    np.testing.assert_allclose(wide.inverse_lengths, likeliest_process(X, Y).inverse_lengths, rtol=1e-2)


def test_likelihood_is_that_of_a_gaussian_process():
    logs, n = np.log([0.5, 1.2, 0.3, 0.01]), len(X)

    def by_sklearn(y):
        """The best value over the variance of the process, at fixed lengths and ratio of noise."""
        kernel = Matern(1 / np.exp(logs[:-1]), nu=2.5) + WhiteKernel(np.exp(logs[-1]))
        matrix = kernel(X)
        variance = float(y @ np.linalg.solve(matrix, y)) / n
        scaled = ConstantKernel(variance) * kernel
        process = GaussianProcessRegressor(scaled, optimizer=None, alpha=0).fit(X, y)
        return process.log_marginal_likelihood_value_

    found = -n * unlikelihood(logs, X, Y[:, :1])[0] - n / 2 * (1 + np.log(2 * np.pi))
    assert found == pytest.approx(by_sklearn(Y[:, 0]), rel=1e-9)


def test_columns_that_matter_are_found_among_many():
    """A function of six of twenty inputs (that of Welch et al.) by 200 runs, one of them by a cubic alone."""
    x = np.random.default_rng(1).uniform(size=(200, 20)) - 0.5
    y = 5 * x[:, 11] / (1 + x[:, 0]) + 5 * (x[:, 3] - x[:, 19]) ** 2 + x[:, 4] + 40 * x[:, 18] ** 3 - 5 * x[:, 18]
    found = likeliest_process(x / x.std(axis=0), y).inverse_lengths
    matter = [0, 3, 11, 18, 19]
    assert found[matter].min() > 10 * np.delete(found, [*matter, 4]).max()


def test_many_rows_and_outputs_are_thinned_out():
    rng = np.random.default_rng(2)
    x = rng.normal(size=(3 * MOST_ROWS, 4))
    many = np.sin(2 * x[:, :1]) * rng.normal(size=(1, 3 * MOST_OUTPUTS))
    found = likeliest_process(x, many).inverse_lengths
    assert found.argmax() == 0
    np.testing.assert_allclose(found, likeliest_process(x[::3], many[::3]).inverse_lengths, rtol=1e-12)


@pytest.mark.parametrize("y", [np.ones(40), np.full(40, np.nan), np.full(40, 1e200)])
def test_what_has_no_lengths_has_none(y):
    found = likeliest_process(X, y)
    assert found is None or np.isfinite(found.inverse_lengths).all()


def test_repeated_rows_and_constant_columns_are_no_trouble():
    x = np.column_stack([np.repeat(X[:20, 0], 2), np.zeros(40), np.repeat(X[:20, 1], 2)])
    found = likeliest_process(x, np.repeat(np.sin(X[:20, 0]), 2)).inverse_lengths
    assert np.isfinite(found).all()
    assert found[0] > found[2]


def test_what_is_unexplained_is_the_error_of_each_row_predicted_by_the_others():
    rng = np.random.default_rng(4)
    y = Y + 0.1 * rng.normal(size=Y.shape)
    process, centred = likeliest_process(X, y), y - y.mean(axis=0)
    tau = ratio_of_noise(process, centred)
    kernel, errors = Matern(1 / process.inverse_lengths, nu=2.5) + WhiteKernel(tau), []
    for i in range(len(X)):
        others = np.delete(np.arange(len(X)), i)
        predicted = kernel(X[i : i + 1], X[others]) @ np.linalg.solve(kernel(X[others]), centred[others])
        errors.append(centred[i] - predicted[0])
    assert process.unexplained == pytest.approx(np.sum(np.square(errors)) / np.sum(centred**2), rel=1e-5)


def ratio_of_noise(process, centred):
    """τ at which noise has its part of the variance, by bisection."""

    def part(log_tau):
        kernel = Matern(1 / process.inverse_lengths, nu=2.5) + WhiteKernel(np.exp(log_tau))
        return np.exp(log_tau) * np.sum(centred * np.linalg.solve(kernel(X), centred)) / np.sum(centred**2)

    return np.exp(brentq(lambda log_tau: part(log_tau) - process.noise, np.log(1e-8), np.log(10)))


@pytest.mark.parametrize("noise", [0.0, 0.01, 0.1, 0.5])
def test_noise_is_told_from_what_depends_on_the_inputs(noise):
    rng = np.random.default_rng(3)
    x = rng.normal(size=(300, 2))
    signal = np.sin(x[:, 0]) + np.cos(x[:, 1])
    process = likeliest_process(x, signal / signal.std() + noise * rng.normal(size=300))
    assert process.noise == pytest.approx(noise**2 / (1 + noise**2), rel=0.3, abs=1e-6)
    assert process.noise < process.unexplained < process.noise * 1.5 + 5e-4
