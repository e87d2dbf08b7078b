"""The simulators of benchmarks/problems.py against known values and other solvers."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from scipy.integrate import solve_ivp

PATH = Path(__file__).parents[1] / "benchmarks" / "problems.py"
SPEC = importlib.util.spec_from_file_location("problems_of_benchmarks", PATH)
problems = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(problems)


@pytest.mark.parametrize("name", problems.PROBLEMS)
def test_samples_are_finite_repeatable_and_vary(name):
    first, again = (problems.sample(problems.PROBLEMS[name], 20, 3, n_test=5) for _ in range(2))
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one, other)
        assert np.isfinite(one).all()
    assert (first.y_train.std(axis=0) > 0).all()
    noisy = problems.sample(problems.PROBLEMS[name], 20, 3, noise=0.1, n_test=5)
    np.testing.assert_array_equal(noisy.y_test, first.y_test)
    size = np.std(noisy.y_train - first.y_train) / np.sqrt(np.mean(first.y_train.var(axis=0)))
    assert 0.05 < size < 0.2


def test_known_values():
    optimum = np.array([[0.20169, 0.150011, 0.476874, 0.275332, 0.311652, 0.6573]])
    assert problems.hartmann(optimum)[0] == pytest.approx(-3.32237, abs=1e-5)
    half = np.full((1, 20), 0.5)
    assert problems.welch(half)[0] == 0
    assert problems.ishigami(half[:, :3])[0] == pytest.approx(0, abs=1e-12)
    assert problems.sobol_g(np.full((1, 8), 0.75))[0] == pytest.approx(1)
    assert problems.friedman(half[:, :10])[0] == pytest.approx(10 * np.sin(np.pi / 4) + 7.5)
    zero = problems.dette_pepelyshev(np.zeros((1, 8)))[0]
    assert zero == pytest.approx(16 + 9 + 16)


def test_morris_is_the_sum_over_all_terms():
    x = np.random.default_rng(0).uniform(size=20)
    w = 2 * (x - 0.5)
    w[[2, 4, 6]] = 2 * (1.1 * x[[2, 4, 6]] / (x[[2, 4, 6]] + 0.1) - 0.5)
    total = sum((20 if i < 10 else (-1) ** (i + 1)) * w[i] for i in range(20))
    for i in range(20):
        for j in range(i + 1, 20):
            total += (-15 if j < 6 else (-1) ** (i + j)) * w[i] * w[j]
            for k in range(j + 1, 5):
                total += -10 * w[i] * w[j] * w[k]
                total += sum(5 * w[i] * w[j] * w[k] * w[m] for m in range(k + 1, 4))
    assert problems.morris(x[None])[0] == pytest.approx(total)


def test_trajectories_are_those_of_another_solver():
    x = np.array([[0.3, 0.6, 0.2, 0.8]])
    (damping,), (force,), (frequency,), (first,) = problems.between(x, (0.1, 0.5), (0.2, 0.9), (0.5, 1.5), (-1.0, 1.0))

    def change(t, z):
        return [z[1], -damping * z[1] - np.sin(z[0]) + force * np.cos(frequency * t)]

    times = np.linspace(0.25, 16, 64)
    found = solve_ivp(change, (0, 16), [first, 0.0], t_eval=times, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(problems.pendulum(x)[0], found.y[0], atol=1e-7)
    substances = problems.reactor(np.array([[0.1, 0.9, 0.4, 0.5]])).reshape(3, 30)
    np.testing.assert_allclose(substances.sum(axis=0), 1)  # nothing is lost


def test_burgers_solves_its_equation():
    viscosity, height, time, step = 0.05, 0.7, 0.4, 1e-3

    def solution(t):
        return problems.burgers(np.array([[(viscosity - 0.02) / 0.08, (height - 0.5) / 0.5, (t - 0.2) / 0.6, 0.0]]))[0]

    u, places = solution(time), np.linspace(0, 1, 128)
    by_time = (solution(time + step) - solution(time - step)) / (2 * step)
    slope = np.gradient(u, places)
    residual = by_time + u * slope - viscosity * np.gradient(slope, places)
    assert np.abs(residual[3:-3]).max() < 0.02 * np.abs(by_time).max()
