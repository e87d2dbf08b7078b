"""The trust region's settings and λ_w, without compilation: quick enough for every mutant (mutate.py)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vpboost import TrustRegion
from vpboost.core.trust_region import accepts, bounds, first_lambda, next_lambda, raised, reduction_ratio, search


def test_settings_of_the_trust_region():
    region, paper = TrustRegion(), TrustRegion.paper()
    assert (region.reg_lambda, region.rho_accept, region.rho_small, region.gamma_up) == (1e-4, 0.0, 0.1, 4.0)
    assert (region.rho_large, region.gamma_down, region.lambda_low) == (0.9, 1.0, 1e-12)
    assert (region.rate, region.resolves) == (1.0, 12)
    assert (paper.reg_lambda, paper.rho_accept, paper.rho_small, paper.gamma_up) == (1e-4, 0.0, 1e-3, 2.0)
    for allowed in (
        *({"lambda_low": 1e-4}, {"rate": 0.01}, {"rate": 1}, {"gamma_up": 1.01}, {"gamma_down": 0.01}, {"resolves": 0}),
        *({"rho_large": 0.1, "gamma_down": 0.5}, {"rho_large": 0.0}, {"reg_lambda": 1e-11}, {"resolves": 1}),
        *({"rho_small": 0.999}, {"rho_accept": 0.95, "rho_small": 0.99}, {"gamma_up": 1e30}, {"reg_lambda": 5.0}),
    ):
        TrustRegion(**allowed)
    inf = float("inf")
    for name, value in [
        *(
            ("reg_lambda", 0.0),
            ("reg_lambda", inf),
            ("gamma_up", inf),
            ("gamma_down", 1.1),
            ("lambda_low", 0.0),
            ("lambda_low", -1.0),
        ),
        *(
            ("lambda_low", 1.1e-4),
            ("rho_accept", -1e-9),
            ("rho_accept", 1.5),
            ("gamma_down", -0.1),
            ("rate", -1.0),
            ("rate", 1.5),
        ),
        *(("resolves", 1.5), ("rho_small", 0.0), ("rho_small", 1.0), ("rho_small", 1.5), ("rho_small", -1.0)),
    ]:
        with pytest.raises(ValueError, match=f"^{name} must be"):
            TrustRegion(**{name: value})
    with pytest.raises(ValueError, match=r"^rho_large must be"):
        TrustRegion(rho_large=0.05, gamma_down=0.99)
    for accept in (1.0, 1.2):
        with pytest.raises(ValueError, match=r"^rho_accept must be"):
            TrustRegion(rho_accept=accept, rho_small=1.5)


def test_lambda(x64):
    least, largest = bounds(np.float32)
    assert least == float(np.finfo(np.float32).tiny)
    assert largest == pytest.approx(np.sqrt(float(np.finfo(np.float32).max)))
    assert float(first_lambda(1e-60, np.dtype("float32"))) == pytest.approx(least)
    assert float(first_lambda(0.5, np.dtype("float64"))) == 0.5
    assert first_lambda(0.5, np.dtype("float32")).dtype == np.float32
    assert float(first_lambda(largest, np.dtype("float32"))) == pytest.approx(largest)
    for bad in (2 * largest, float("nan")):
        with pytest.raises(ValueError, match=r"at most .* in float32"):
            first_lambda(bad, np.dtype("float32"))
    region = TrustRegion(reg_lambda=1.0, gamma_up=3.0, gamma_down=0.5, rho_small=0.2, rho_large=0.8, lambda_low=0.3)
    one = jnp.asarray(1.0)
    for ratio, expected in [(-5.0, 3.0), (0.19, 3.0), (0.2, 1.0), (0.8, 1.0), (0.81, 0.5), (9.0, 0.5)]:
        assert float(next_lambda(one, jnp.asarray(ratio), region)) == expected
    assert float(next_lambda(jnp.asarray(0.4), jnp.asarray(0.9), region)) == 0.3
    assert float(next_lambda(jnp.asarray(0.1), jnp.asarray(0.9), region)) == pytest.approx(0.1)
    top = bounds(np.float64)[1]
    assert float(raised(jnp.asarray(top / 2), region)) == top
    assert float(reduction_ratio(jnp.asarray(3.0), jnp.asarray(2.0))) == 1.5
    assert float(reduction_ratio(jnp.asarray(3.0), jnp.asarray(0.5))) == 6.0


class Attempt(NamedTuple):
    ratio: jax.Array


@pytest.mark.parametrize("resolves", [0, 1, 2, 5])
@pytest.mark.parametrize("least", [0.5, 1.0, 2.0, 3.0, 4.0, 20.0, 1e9])
def test_search(resolves, least, x64):
    """λ_w is doubled until it exceeds ``least``, ``resolves`` times at the most."""
    region = TrustRegion(reg_lambda=1.0, gamma_up=2.0, resolves=resolves)
    expected = next((n for n in range(resolves) if 2.0**n > least), resolves)
    trial, found, attempts = search(lambda reg: Attempt(reg - least), jnp.asarray(1.0), region)
    assert (float(found), int(attempts)) == (2.0**expected, expected + 1)
    assert float(trial.ratio) == 2.0**expected - least
    assert bool(accepts(trial.ratio, region)) is (2.0**expected > least)


def test_ratios_without_a_prediction():
    """No reduction predicted, or none that is a number: such a learner is never accepted."""
    for actual, predicted in [(1.0, 0.0), (1.0, -1.0), (np.nan, 1.0), (np.inf, 1.0), (0.0, 0.0), (np.nan, -1.0)]:
        assert float(reduction_ratio(jnp.asarray(actual), jnp.asarray(predicted))) == -np.inf
    assert not bool(accepts(jnp.asarray(0.0), TrustRegion()))
