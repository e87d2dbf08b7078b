import jax
import jax.numpy as jnp
import numpy as np
import pytest

from oracles import explicit_reduced, featurizer_matrix
from problems import STRUCTURES, random_problem
from vpboost.core.diagnostics import cauchy_reduction, diagnose
from vpboost.core.objective import summarise
from vpboost.core.reduced import Reduced, optimal_weights, reduce


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("reg", [1e-4, 1.0])
@pytest.mark.parametrize("solver", ["direct", "cg"])
def test_diagnostics_match_explicit_matrices(structure, reg, solver, x64):
    features, derivatives, z, (weight, gradient, hessian) = random_problem(structure, 30, 4, 3, seed=4)
    weights = optimal_weights(reduce(features, derivatives), jnp.asarray(reg)).weights
    summary = summarise(lambda x: x, features, derivatives, solver)
    assert isinstance(summary.system, Reduced) == (solver == "direct")
    found = jax.jit(diagnose)(weights, summary, derivatives)

    g_bar, h_bar = explicit_reduced(z, weight, gradient, hessian)
    stacked = np.concatenate([np.sqrt(w) * a(3) for w, a in zip(weight, featurizer_matrix(z), strict=True)])
    w = np.asarray(weights).ravel()
    norm = np.sqrt(np.sum(weight[:, None] * gradient**2))
    bend = np.einsum("i,ic,icd,id->", weight, gradient, hessian, gradient)
    size = np.linalg.norm(stacked, 2)
    radius = size * np.linalg.norm(w)
    step = min(radius / norm, norm**2 / bend)

    np.testing.assert_allclose(found.gradient_norm, norm, rtol=1e-12)
    np.testing.assert_allclose(found.operator_norm, size, rtol=1e-10)
    np.testing.assert_allclose(found.radius, radius, rtol=1e-10)
    np.testing.assert_allclose(found.step_norm, np.linalg.norm(stacked @ w), rtol=1e-10)
    np.testing.assert_allclose(found.slope, g_bar @ w, rtol=1e-10)
    np.testing.assert_allclose(found.alignment, np.linalg.norm(g_bar) / (size * norm), rtol=1e-10)
    np.testing.assert_allclose(found.curvature_capture, w @ h_bar @ w / bend, rtol=1e-10)
    np.testing.assert_allclose(found.cauchy_reduction, step * norm**2 - 0.5 * step**2 * bend, rtol=1e-10)
    # eq:reduction_separable, the closed form of the model reduction at optimal weights
    closed = w @ (0.5 * h_bar + reg * np.eye(len(w))) @ w
    np.testing.assert_allclose(found.model_reduction, closed, rtol=1e-9)
    # lem:vpboost_descent, the constraint of eq:trust_region_for_weak_learner, and (VP1) being a cosine
    assert found.slope < 0
    assert found.step_norm <= found.radius * (1 + 1e-12)
    assert 0 <= found.alignment <= 1
    # lem:vp_sufficient_model_reduction with the constants of this one stage
    beta = max(np.linalg.eigvalsh(h).max() for h in hessian)
    first = reg / (size**2 * beta + reg) * found.alignment
    second = reg**2 / size**4 * found.curvature_capture
    assert found.model_reduction >= min(first, second) * found.cauchy_reduction


def test_cauchy_point_stops_at_the_boundary_or_at_the_minimum(x64):
    norm, bend = jnp.asarray(2.0), jnp.asarray(8.0)  # the model's minimiser along the gradient is at γ = 1/2
    np.testing.assert_allclose(cauchy_reduction(norm, bend, jnp.asarray(100.0)), 0.5 * 4 - 0.5 * 0.25 * 8)
    np.testing.assert_allclose(cauchy_reduction(norm, bend, jnp.asarray(0.5)), 0.25 * 4 - 0.5 * 0.0625 * 8)
    np.testing.assert_allclose(cauchy_reduction(norm, jnp.asarray(0.0), jnp.asarray(3.0)), 1.5 * 4)
