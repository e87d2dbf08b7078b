"""Correlation lengths by likelihood, against finite differences and scikit-learn's Gaussian process."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

from oracles import central_difference
from vpboost.numerics.lengths import MOST_OUTPUTS, MOST_ROWS, inverse_lengths, unlikelihood

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 3))
Y = np.sin(X @ RNG.normal(size=(3, 2)))


@given(st.lists(st.floats(-2, 1), min_size=4, max_size=4), st.sampled_from([1, 2]))
@settings(deadline=None, max_examples=20)
def test_slopes_are_those_of_finite_differences(logs, n_outputs):
    logs, y = np.array(logs), Y[:, :n_outputs]
    expected = central_difference(lambda logs: unlikelihood(logs, X, y)[0], logs)
    np.testing.assert_allclose(unlikelihood(logs, X, y)[1], np.ravel(expected), atol=1e-6)


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
    found = inverse_lengths(x / x.std(axis=0), y)
    matter = [0, 3, 11, 18, 19]
    assert found[matter].min() > 10 * np.delete(found, [*matter, 4]).max()


def test_many_rows_and_outputs_are_thinned_out():
    rng = np.random.default_rng(2)
    x = rng.normal(size=(3 * MOST_ROWS, 4))
    many = np.sin(2 * x[:, :1]) * rng.normal(size=(1, 3 * MOST_OUTPUTS))
    found = inverse_lengths(x, many)
    assert found.argmax() == 0
    np.testing.assert_allclose(found, inverse_lengths(x[::3], many[::3]), rtol=1e-12)


@pytest.mark.parametrize("y", [np.ones(40), np.full(40, np.nan), np.full(40, 1e200)])
def test_what_has_no_lengths_has_none(y):
    found = inverse_lengths(X, y)
    assert found is None or np.isfinite(found).all()


def test_repeated_rows_and_constant_columns_are_no_trouble():
    x = np.column_stack([np.repeat(X[:20, 0], 2), np.zeros(40), np.repeat(X[:20, 1], 2)])
    found = inverse_lengths(x, np.repeat(np.sin(X[:20, 0]), 2))
    assert np.isfinite(found).all()
    assert found[0] > found[2]
