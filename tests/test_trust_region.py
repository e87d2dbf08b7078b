from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vpboost import TrustRegion
from vpboost.core.trust_region import accepts, bounds, next_lambda, reduction_ratio, search

numbers = st.floats(-1000, 1000, width=32)


@given(actual=numbers, predicted=st.floats(0.125, 1000, width=32))
def test_ratio_is_actual_over_predicted(actual, predicted):
    np.testing.assert_allclose(
        reduction_ratio(jnp.asarray(actual), jnp.asarray(predicted)),
        np.float32(actual) / np.float32(predicted),
        rtol=1e-6,
        atol=1e-30,
    )


@pytest.mark.parametrize(("actual", "predicted"), [(1.0, 0.0), (1.0, -1.0), (np.nan, 1.0), (-np.inf, 1.0), (0.0, 0.0)])
def test_ratio_without_a_predicted_reduction_is_never_accepted(actual, predicted):
    ratio = reduction_ratio(jnp.asarray(actual), jnp.asarray(predicted))
    assert ratio == -np.inf
    assert not accepts(ratio, TrustRegion())


def test_acceptance_and_lambda_follow_the_papers_figure():
    """fig:reduction_ratio_range, at and around both cutoffs."""
    region = TrustRegion.paper(rho_accept=0.2, rho_small=0.6, gamma_up=3.0)
    reg = jnp.asarray(0.5)
    for ratio, accepted, following in [
        (-1.0, False, 1.5),
        (0.2, False, 1.5),
        (0.21, True, 1.5),
        (0.59, True, 1.5),
        (0.6, True, 0.5),
        (1.0, True, 0.5),
        (5.0, True, 0.5),
    ]:
        assert bool(accepts(jnp.asarray(ratio), region)) == accepted
        np.testing.assert_allclose(next_lambda(reg, jnp.asarray(ratio), region), following)


def test_lambda_may_shrink_but_not_below_its_floor():
    region = TrustRegion(reg_lambda=1.0, gamma_down=0.1, rho_large=0.8, lambda_low=0.05)
    reg = jnp.asarray(1.0)
    for expected in (0.1, 0.05, 0.05):
        reg = next_lambda(reg, jnp.asarray(0.9), region)
        np.testing.assert_allclose(reg, expected, rtol=1e-6)
    np.testing.assert_allclose(next_lambda(reg, jnp.asarray(0.5), region), 0.05, rtol=1e-6)


class Attempt(NamedTuple):
    ratio: jax.Array


@pytest.mark.parametrize(("resolves", "attempts", "reg"), [(0, 1, 1.0), (1, 2, 2.0), (10, 4, 8.0)])
def test_search_raises_lambda_until_accepted_or_given_up(resolves, attempts, reg):
    region = TrustRegion(reg_lambda=1.0, gamma_up=2.0, resolves=resolves)
    trial, found, count = search(lambda lam: Attempt(lam - 5.0), jnp.asarray(1.0), region)  # accepted from λ = 8 on
    assert count == attempts
    np.testing.assert_allclose(found, reg)
    np.testing.assert_allclose(trial.ratio, reg - 5)


def test_paper_preset_is_algorithm_2():
    region = TrustRegion.paper()
    assert (region.resolves, region.gamma_down, region.rate, region.rho_accept) == (0, 1.0, 1.0, 0.0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reg_lambda": 0.0}, "reg_lambda must be positive and finite, got 0.0"),
        ({"reg_lambda": -1.0}, "reg_lambda must be positive"),
        ({"reg_lambda": float("nan")}, "reg_lambda must be positive"),
        ({"rho_accept": 1.0}, "rho_accept must be in"),
        ({"rho_accept": -0.1}, "rho_accept must be in"),
        ({"rho_accept": 0.5, "rho_small": 0.5}, "rho_small must be between rho_accept = 0.5 and 1"),
        ({"rho_small": 1.0}, "rho_small must be"),
        ({"gamma_up": 1.0}, "gamma_up must be greater than 1"),
        ({"gamma_down": 0.0}, "gamma_down must be in"),
        ({"rho_large": 0.01, "gamma_down": 0.5}, "rho_large must be at least rho_small"),
        ({"lambda_low": 1.0, "reg_lambda": 0.1}, "lambda_low must be in"),
        ({"rate": 0.0}, "rate must be in"),
        ({"rate": 1.5}, "rate must be in"),
        ({"resolves": -1}, "resolves must be a whole number"),
    ],
)
def test_bad_settings(options, message):
    with pytest.raises(ValueError, match=message):
        TrustRegion(**options)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("gamma", [4.0, 1e30])
def test_lambda_never_overflows(gamma):
    region, largest = TrustRegion(reg_lambda=1e-4, gamma_up=gamma), bounds(np.float32)[1]
    reg = jnp.asarray(1e-4, jnp.float32)
    for _ in range(100):
        _, found, _ = search(lambda lam: Attempt(-lam), reg, region)
        reg = next_lambda(found, -jnp.inf, region)
        assert found <= largest
    np.testing.assert_allclose(reg, largest, rtol=1e-6)
    low = TrustRegion(reg_lambda=1.0, gamma_down=1e-30, lambda_low=1e-60)
    for _ in range(3):
        reg = next_lambda(reg, jnp.asarray(1.0), low)
    assert reg > 0
