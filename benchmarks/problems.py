"""Standard problems of computer experiments, by formula or by a small solver: smooth, without noise unless asked for.

Functions take points of the unit cube, one row each, and return one or several outputs. Their formulas are those of the
literature on surrogate models; what they are about is in their names.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.stats import qmc


class Problem(NamedTuple):
    """A simulator: its outputs for points of the unit cube."""

    name: str
    n_inputs: int
    run: Callable[[np.ndarray], np.ndarray]
    family: str  #: problems of one family teach the same lesson: they are left out together


class Sample(NamedTuple):
    """Runs to learn from and runs to be judged by."""

    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray  #: always without noise


def sample(problem: Problem, n: int, seed: int, noise: float = 0.0, n_test: int = 1000) -> Sample:
    """Draw ``n`` runs by Latin hypercube, random ones for the test; ``noise`` is in units of each output's spread."""
    rng = np.random.default_rng([seed, n])
    x = qmc.LatinHypercube(problem.n_inputs, seed=rng).random(n)
    x_test = rng.uniform(size=(n_test, problem.n_inputs))
    y, y_test = problem.run(x), problem.run(x_test)
    return Sample(x, y + noise * y.std(axis=0) * rng.normal(size=y.shape), x_test, y_test)


def between(x: np.ndarray, *ranges: tuple[float, float]) -> np.ndarray:
    """Return points of the unit cube moved to these ranges, one input a row."""
    low, high = np.array(ranges).T
    return (low + x * (high - low)).T


# --- one output -------------------------------------------------------------------------------------------------------


def sobol_g(x: np.ndarray) -> np.ndarray:
    a = np.array([0, 1, 4.5, 9, 99, 99, 99, 99])
    return np.prod((np.abs(4 * x - 2) + a) / (1 + a), axis=1)


def friedman(x: np.ndarray) -> np.ndarray:
    return 10 * np.sin(np.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2 + 10 * x[:, 3] + 5 * x[:, 4]


def dette_pepelyshev(x: np.ndarray) -> np.ndarray:
    first = 4 * (x[:, 0] - 2 + 8 * x[:, 1] - 8 * x[:, 1] ** 2) ** 2 + (3 - 4 * x[:, 1]) ** 2
    second = 16 * np.sqrt(x[:, 2] + 1) * (2 * x[:, 2] - 1) ** 2
    return first + second + sum(i * np.log(1 + x[:, 2:i].sum(axis=1)) for i in range(4, 9))


def dette_pepelyshev_curved(x: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return 100 * (np.exp(-2 / x[:, 0] ** 1.75) + np.exp(-2 / x[:, 1] ** 1.5) + np.exp(-2 / x[:, 2] ** 1.25))


def morris(x: np.ndarray) -> np.ndarray:
    w = 2 * (x - 0.5)
    for i in (2, 4, 6):
        w[:, i] = 2 * (1.1 * x[:, i] / (x[:, i] + 0.1) - 0.5)
    sign = (-1.0) ** np.arange(1, 21)
    one = np.where(np.arange(20) < 10, 20.0, sign)
    two = np.where(np.add.outer(np.arange(20) >= 6, np.arange(20) >= 6), np.outer(sign, sign), -15.0)
    pairs = np.einsum("ni,ij,nj->n", w, np.triu(two, 1), w)
    e = [np.ones(len(x)), *np.zeros((4, len(x)))]  # elementary symmetric sums of the first five, then of the first four
    f = [value.copy() for value in e]
    for i in range(5):
        for k in range(4, 0, -1):
            e[k] = e[k] + w[:, i] * e[k - 1]
            f[k] = f[k] + (w[:, i] * f[k - 1] if i < 4 else 0)
    return w @ one + pairs - 10 * e[3] + 5 * f[4]


def welch(x: np.ndarray) -> np.ndarray:
    x = np.concatenate([np.zeros((len(x), 1)), x - 0.5], axis=1).T  # numbered from one
    linear = {2: 0.05, 3: 0.08, 6: -0.03, 7: 0.03, 9: -0.09, 10: -0.01, 11: -0.07, 14: -0.04, 15: 0.06, 17: -0.01}
    linear |= {18: -0.03, 5: 1.0, 19: -5.0}
    curved = 5 * x[12] / (1 + x[1]) + 5 * (x[4] - x[20]) ** 2 + 40 * x[19] ** 3 + 0.25 * x[13] ** 2
    return curved + sum(factor * x[i] for i, factor in linear.items())


def hartmann(x: np.ndarray) -> np.ndarray:
    a = np.array(
        [[10, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14], [3, 3.5, 1.7, 10, 17, 8], [17, 8, 0.05, 10, 0.1, 14]]
    )
    p = 1e-4 * np.array(
        [
            [1312, 1696, 5569, 124, 8283, 5886],
            [2329, 4135, 8307, 3736, 1004, 9991],
            [2348, 1451, 3522, 2883, 3047, 6650],
            [4047, 8828, 8732, 5743, 1091, 381],
        ]
    )
    return -np.exp(-(a * (x[:, None] - p) ** 2).sum(axis=2)) @ [1.0, 1.2, 3.0, 3.2]


def ishigami(x: np.ndarray) -> np.ndarray:
    a, b, c = between(x, *[(-np.pi, np.pi)] * 3)
    return np.sin(a) + 7 * np.sin(b) ** 2 + 0.1 * c**4 * np.sin(a)


def circuit(x: np.ndarray) -> np.ndarray:
    b1, b2, f, c1, c2, beta = between(x, (50, 150), (25, 70), (0.5, 3), (1.2, 2.5), (0.25, 1.2), (50, 300))
    base, gain = 12 * b2 / (b1 + b2), beta * (c2 + 9)
    return (base + 0.74) * gain / (gain + f) + 11.35 * f / (gain + f) + 0.74 * f * gain / ((gain + f) * c1)


def peaks_and_ridge(x: np.ndarray) -> np.ndarray:
    """Narrow and wide features at once: a stationary model has to choose a length."""
    a, b = 6 * x[:, 0] - 3, 6 * x[:, 1] - 3
    peaks = 3 * (1 - a) ** 2 * np.exp(-(a**2) - (b + 1) ** 2) - 10 * (a / 5 - a**3 - b**5) * np.exp(-(a**2) - b**2)
    return peaks - np.exp(-((a + 1) ** 2) - b**2) / 3 + 2 * np.tanh(4 * (x[:, 2] + x[:, 3] - 1))


def swinging_arm(x: np.ndarray) -> np.ndarray:
    """Distance of the end of a chain of four links from its origin: angles over a whole turn, so high frequencies."""
    angles, lengths = np.cumsum(2 * np.pi * x[:, :4], axis=1), x[:, 4:]
    return np.hypot((lengths * np.cos(angles)).sum(axis=1), (lengths * np.sin(angles)).sum(axis=1))


# --- several outputs --------------------------------------------------------------------------------------------------


def trajectories(change: Callable, first: np.ndarray, end: float, n_times: int, substeps: int = 40) -> np.ndarray:
    """Integrate many systems at once by Runge and Kutta's rule; return their states, ``(points, states, times)``."""
    state, time, step, found = first, 0.0, end / (n_times * substeps), []
    for k in range(n_times * substeps):
        a = change(time, state)
        b = change(time + step / 2, state + step / 2 * a)
        c = change(time + step / 2, state + step / 2 * b)
        d = change(time + step, state + step * c)
        state, time = state + step / 6 * (a + 2 * b + 2 * c + d), time + step
        if (k + 1) % substeps == 0:
            found.append(state)
    return np.stack(found, axis=-1).transpose(1, 0, 2)


def predators(x: np.ndarray) -> np.ndarray:
    """Both populations of Lotka and Volterra at 40 times, by growth, encounters, death, gain and first numbers."""
    a, b, c, d, *first = between(x, (0.8, 1.2), (0.3, 0.6), (0.6, 1.0), (0.2, 0.5), (1.0, 3.0), (0.5, 2.0))

    def change(_: float, z: np.ndarray) -> np.ndarray:
        return np.stack([a * z[0] - b * z[0] * z[1], d * z[0] * z[1] - c * z[1]])

    return trajectories(change, np.stack(first), 10.0, 40).reshape(len(x), -1)


def pendulum(x: np.ndarray) -> np.ndarray:
    """The angle of a driven, damped pendulum at 64 times."""
    damping, force, frequency, first = between(x, (0.1, 0.5), (0.2, 0.9), (0.5, 1.5), (-1.0, 1.0))

    def change(t: float, z: np.ndarray) -> np.ndarray:
        return np.stack([z[1], -damping * z[1] - np.sin(z[0]) + force * np.cos(frequency * t)])

    return trajectories(change, np.stack([first, np.zeros(len(x))]), 16.0, 64)[:, 0]


def burgers(x: np.ndarray) -> np.ndarray:
    """A wave of the viscous Burgers equation at a later time, 128 places, by the exact solution of Cole and Hopf."""
    viscosity, height, time = between(x[:, :3], (0.02, 0.1), (0.5, 1.0), (0.2, 0.8))
    shift = 0.3 * x[:, 3]
    places = np.linspace(0, 1, 128)
    points, weights = np.polynomial.hermite.hermgauss(60)
    step = np.sqrt(4 * viscosity * time)[:, None, None] * points
    from_there = places[:, None] - step - shift[:, None, None]
    # u(x, 0) = height sin 2πx, whose potential is −height cos(2πx) / 2π
    heat = weights * np.exp((height / viscosity)[:, None, None] * np.cos(2 * np.pi * from_there) / (4 * np.pi))
    return (heat * step).sum(axis=2) / heat.sum(axis=2) / time[:, None]


def beam(x: np.ndarray) -> np.ndarray:
    """The deflection of a beam on two supports at 100 places, under a load at any place; stiffness varies along it."""
    stiffness, thinning, load, place = between(x, (1.0, 3.0), (0.0, 0.6), (0.5, 2.0), (0.2, 0.8))
    s = np.linspace(0, 1, 401)
    moment = load[:, None] * np.where(s < place[:, None], s * (1 - place[:, None]), place[:, None] * (1 - s))
    bent = moment / (stiffness[:, None] * (1 - thinning[:, None] * np.sin(np.pi * s) ** 2))
    slope = np.cumsum(bent, axis=1) / 400
    deflection = np.cumsum(slope, axis=1) / 400
    return (deflection[:, -1:] * s - deflection)[:, 2:-1:4][:, :100]


def heat(x: np.ndarray) -> np.ndarray:
    """The temperature of a plate, 16 × 16 places, some time after two warm spots were put on it."""
    a, b, c, d, spread, time = between(x, *[(0.2, 0.8)] * 4, (0.05, 0.15), (0.001, 0.02))
    grid = (np.arange(16) + 0.5) / 16
    width = spread**2 + 2 * time

    def spot(p: np.ndarray, q: np.ndarray) -> np.ndarray:
        along = np.exp(-((grid - p[:, None]) ** 2) / (2 * width[:, None]))
        across = np.exp(-((grid - q[:, None]) ** 2) / (2 * width[:, None]))
        return (spread**2 / width)[:, None, None] * along[:, :, None] * across[:, None, :]

    return (spot(a, b) + 0.6 * spot(c, d)).reshape(len(x), -1)


def reactor(x: np.ndarray) -> np.ndarray:
    """Three substances of a chain of reactions A → B → C with a way back, at 30 times, by rates and temperature."""
    first, second, back, temperature = between(x, (0.5, 2.0), (0.2, 1.0), (0.0, 0.5), (0.8, 1.2))
    boost = np.exp(3 * (1 - 1 / temperature))
    times = np.linspace(0.1, 3, 30)

    def one(a: float, b: float, c: float) -> np.ndarray:
        rates = np.array([[-a, c, 0], [a, -b - c, 0], [0, b, 0]])
        values, vectors = np.linalg.eig(rates)
        start = np.linalg.solve(vectors, np.array([1.0, 0, 0]))
        return np.real(vectors @ (np.exp(np.outer(values, times)) * start[:, None])).reshape(-1)

    return np.array([one(*point) for point in (np.stack([first, second, back]) * boost).T])


PROBLEMS = {
    problem.name: problem
    for problem in (
        Problem("sobol_g", 8, sobol_g, "kinks"),
        Problem("friedman", 10, friedman, "additive"),
        Problem("dette_pepelyshev", 8, dette_pepelyshev, "additive"),
        Problem("dette_curved", 3, dette_pepelyshev_curved, "curved"),
        Problem("morris", 20, morris, "many inputs"),
        Problem("welch", 20, welch, "many inputs"),
        Problem("hartmann", 6, hartmann, "curved"),
        Problem("ishigami", 3, ishigami, "waves"),
        Problem("circuit", 6, circuit, "engineering"),
        Problem("peaks_and_ridge", 4, peaks_and_ridge, "curved"),
        Problem("swinging_arm", 8, swinging_arm, "waves"),
        Problem("predators", 6, predators, "trajectories"),
        Problem("pendulum", 4, pendulum, "trajectories"),
        Problem("burgers", 4, burgers, "fields"),
        Problem("beam", 4, beam, "fields"),
        Problem("heat", 6, heat, "fields"),
        Problem("reactor", 4, reactor, "trajectories"),
    )
}
