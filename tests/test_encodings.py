import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from oracles import central_difference
from vpboost.numerics.quantiles import distinct, distribution, largest_part
from vpboost.tables.encoder import InputEncoder, count_encodable
from vpboost.tables.encodings import NormalScore, Steps, bins_of

values = st.lists(st.integers(-20, 20), min_size=5, max_size=60).filter(lambda v: len(set(v)) > 2)


def test_the_distribution_function_by_hand():
    points, probability = distribution(np.array([3.0, 1.0, 3.0, 7.0]), np.array([1.0, 2.0, 1.0, 0.0]))
    np.testing.assert_array_equal(points, [1.0, 3.0])
    np.testing.assert_allclose(probability, [0.25, 0.75])


@given(values=st.lists(st.sampled_from([-1.5, 0.0, -0.0, 2.0]), min_size=0, max_size=12))
def test_distinct_values_are_those_of_numpy(values):
    for found, expected in zip(distinct(np.array(values)), np.unique(values, return_inverse=True), strict=True):
        np.testing.assert_array_equal(found, expected)


@given(mass=st.lists(st.floats(1e-3, 1e3), min_size=3, max_size=40), part=st.floats(0.05, 1))
def test_no_value_counts_for_more_than_its_part(mass, part):
    mass = np.array(mass)
    n = max(1, round(part * (len(mass) - 1)))
    bound = largest_part(mass, n)
    kept = np.minimum(mass, bound)
    np.testing.assert_allclose(bound, kept.sum() / n if bound < mass.max() else mass.sum() / n, rtol=1e-9)
    assert kept.max() <= kept.sum() / n * (1 + 1e-9)


def test_a_common_value_leaves_bins_to_the_others():
    column = np.concatenate([np.zeros(9000), np.arange(1.0, 1001)])  # nine in ten are zero
    knots = Steps.fit(column, np.ones(len(column)), n_bins=16).knots
    assert len(knots) == 17
    np.testing.assert_allclose(np.diff(knots)[2:], 1000 / 15, rtol=0.05)  # one bin is the zeros', the others are even


def test_columns_to_encode_are_counted(tmp_path):
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=(5000, 3)), rng.integers(0, 2, size=(5000, 4)), np.full(5000, np.nan)])
    X[::2, 0] = np.nan
    assert count_encodable(X) == 3
    assert count_encodable(X[:2]) == 0


def test_normal_scores_of_normal_values_are_the_values():
    column = norm.ppf((np.arange(2000) + 0.5) / 2000)
    score = NormalScore.fit(column, np.ones(2000))
    np.testing.assert_allclose(score(column)[:, 0], column, atol=0.03)
    np.testing.assert_allclose(score(column[100:-100])[:, 0], column[100:-100], atol=1e-4)
    heavy = NormalScore.fit(np.sinh(2 * column), np.ones(2000))
    np.testing.assert_allclose(heavy(np.sinh(2 * column))[:, 0], column, atol=0.05)


def test_steps_by_hand():
    steps = Steps.fit(np.arange(101.0), np.ones(101), n_bins=4)
    np.testing.assert_allclose(steps.knots, [0, 24.75, 50, 75.25, 100], atol=0.01)
    np.testing.assert_allclose(steps(np.array([-5.0, 200.0])), [[0] * 4, [1] * 4])
    middle = (steps.knots[1] + steps.knots[2]) / 2
    np.testing.assert_allclose(steps(np.array([middle])), [[1, 0.5, 0, 0]])


@pytest.mark.parametrize("encoding", [NormalScore, Steps])
@given(column=values, at=st.floats(-30, 30))
def test_slopes_are_the_derivatives(encoding, column, at):
    encode = encoding.fit(np.array(column, dtype=float), np.ones(len(column)))
    ends = (min(column), max(column))
    if min(abs(at - end) for end in ends) < 1e-3:
        return  # at the ends of the range the normal score has a kink
    numeric = central_difference(lambda v: encode(v)[0], np.array([at]), step=1e-5)
    np.testing.assert_allclose(encode.slope(np.array([at]))[0], numeric[:, 0], atol=1e-4)


@pytest.mark.parametrize("encoding", [NormalScore, Steps])
@given(column=values, seed=st.integers(0, 99))
def test_encodings_rise_and_take_weights_for_repeats(encoding, column, seed):
    column, counts = np.array(column, dtype=float), np.random.default_rng(seed).integers(1, 4, size=len(column))
    grid = np.linspace(-25, 25, 200)
    weighted = encoding.fit(column, counts)(grid)
    np.testing.assert_allclose(
        weighted, encoding.fit(np.repeat(column, counts), np.ones(counts.sum()))(grid), atol=1e-9
    )
    assert np.all(np.diff(weighted, axis=0) >= -1e-9)


@pytest.mark.parametrize("encoding", ["quantile", "spline", "fine"])
@pytest.mark.parametrize("factor", [1e-9, 1.0, 1e9])
def test_encoded_inputs_do_not_depend_on_units(encoding, factor):
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.gamma(1.0, size=(80, 2)), rng.integers(0, 2, size=(80, 1))], axis=1)
    X[:7, 1] = np.nan
    weight = rng.uniform(0.5, 2, size=80)
    encoder = InputEncoder(encoding).fit(factor * X, weight)
    encoded = encoder.transform(factor * X)
    np.testing.assert_allclose(encoded, InputEncoder(encoding).fit(X, weight).transform(X), atol=1e-6)
    n_extra = {"quantile": 1, "spline": 16, "fine": 64}[encoding]
    assert encoded.shape == (80, 3 + 1 + 2 * n_extra)  # the column of two values gets none
    np.testing.assert_array_equal(encoder.sources_, [0, 1, 2, 1] + [0] * n_extra + [1] * n_extra)
    np.testing.assert_array_equal(encoded[:7, 4 + n_extra :], 0)
    extras = encoded[:, 4 : 4 + n_extra]
    np.testing.assert_allclose(np.average(extras, axis=0, weights=weight), 0, atol=1e-9)
    np.testing.assert_allclose(np.average(extras**2, axis=0, weights=weight), 1, atol=1e-9)


def test_wide_tables_get_fewer_bins():
    assert [bins_of("spline", [500] * n) for n in (1, 32, 64, 1000)] == [16, 16, 8, 4]
    assert [bins_of("fine", [500] * n) for n in (0, 1, 8, 9, 32, 1000)] == [64, 64, 64, 56, 16, 4]
    assert bins_of("fine", [500] * 7 + [3] * 32) == 64  # columns of few values take little room
    assert bins_of("fine", [500] * 7 + [3] * 33) == 63


@pytest.mark.parametrize("encoding", ["plain", "quantile", "spline", "fine"])
def test_other_encodings_learn_from_the_same_rows_what_they_would_alone(encoding):
    rng = np.random.default_rng(0)
    X, weight = np.round(rng.normal(size=(300, 3)), 1), rng.integers(1, 4, 300).astype(float)
    X[:, 1], X[rng.random(300) < 0.1, 2] = X[:, 1] > 0, np.nan
    alone = InputEncoder(encoding).fit(X, weight)
    other = InputEncoder().fit(X, weight).having(encoding, X, weight)
    np.testing.assert_array_equal(other.transform(X), alone.transform(X))
    np.testing.assert_array_equal(other.sources_, alone.sources_)
    assert other.encoding == encoding
