"""The trust region's settings and λ_w, without compilation: quick enough for every mutant (mutate.py)."""

import jax.numpy as jnp
import numpy as np
import pytest

from vpboost import TrustRegion
from vpboost.core.trust_region import bounds, first_lambda, next_lambda, raised, reduction_ratio


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
        *(("reg_lambda", inf), ("gamma_up", inf), ("gamma_down", 1.1), ("lambda_low", 0.0), ("lambda_low", -1.0)),
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
        with pytest.raises(ValueError, match=name):
            TrustRegion(**{name: value})
    with pytest.raises(ValueError, match="rho_accept"):
        TrustRegion(rho_accept=1.0, rho_small=1.5)


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
