"""The search for the best constant, and where losses of one's own are tried: quick enough for every mutant."""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
import pytest

from vpboost import losses
from vpboost.losses import base, regression
from vpboost.losses.curvature import Dense, Diagonal

Y, W = jnp.array([[[1.0], [3.0]]]), jnp.array([[0.75, 0.25]])


def steps_to(monkeypatch, *constants, start=1.0):
    """How many steps are taken when these are what they lead to, and the constant found."""
    left = list(constants)
    monkeypatch.setattr(base, "newton_step", lambda *given: jnp.atleast_1d(jnp.asarray(left.pop(0))))
    found = base.newton_constant(losses.SquaredError(), Y, W, jnp.atleast_1d(jnp.asarray(start)), steps=len(constants))
    return len(constants) - len(left), float(found[0])


def test_the_search_ends_where_steps_are_rounding(x64, monkeypatch):
    eps = float(np.finfo(float).eps)
    assert steps_to(monkeypatch, 1 + 4 * eps, 9.0) == (1, 1.0)
    assert steps_to(monkeypatch, 1 + 5 * eps, 9.0) == (2, 9.0)
    assert steps_to(monkeypatch, 2.0, 2.0, 9.0) == (2, 2.0)
    assert steps_to(monkeypatch, 2.0, -2.0, 9.0) == (3, 9.0)
    assert steps_to(monkeypatch, 0.0, 0.0, 9.0) == (2, 0.0)
    both = np.array([1.0, 100.0])
    assert steps_to(monkeypatch, both + np.array([0, 1]), both, start=both)[0] == 2, "one number alone has moved"
    assert steps_to(monkeypatch, both * np.array([1, 1 + eps]), both, start=both)[0] == 1, "rounding of the largest"


def test_the_search_takes_fifty_steps_at_the_most(x64, monkeypatch):
    taken = []
    monkeypatch.setattr(base, "newton_step", lambda *given: taken.append(1) or 2 * given[-1])
    base.newton_constant(losses.SquaredError(), Y, W, jnp.asarray([1.0]))
    assert len(taken) == 50


def test_the_search_starts_at_zero_or_at_a_quantile(x64, monkeypatch):
    starts = []
    monkeypatch.setattr(base, "newton_constant", lambda loss, t, w, start: starts.append(start.tolist()) or start)
    two = jnp.concatenate([Y, 10 * Y], axis=-1)
    losses.Loss.best_constant(losses.Poisson(), two, W)
    base.newton_constant_near(0.5, losses.SquaredError(), two, W)
    base.newton_constant_near(0.8, losses.SquaredError(), two, W)
    assert starts == [[0.0, 0.0], [1.0], [10.0], [3.0], [30.0]]


def test_robust_losses_start_at_the_quantile_they_are_of(monkeypatch):
    levels = []
    monkeypatch.setattr(regression, "newton_constant_near", lambda level, *given: levels.append(level) or np.zeros(1))
    for loss in (losses.PseudoHuber(0.3), losses.Quantile(0.8), losses.Quantile([0.1, 0.6])):
        loss.best_constant(Y, W)
    assert levels == [0.5, 0.8, 0.1, 0.6]


class Slope(losses.Loss):
    """A gradient and a curvature whatever the prediction, and a value that is told."""

    slope: np.ndarray
    bend: np.ndarray
    of: Callable = lambda p: 0 * p[..., 0]

    def value(self, prediction, target):
        return self.of(prediction)

    def gradient(self, prediction, target):
        return jnp.broadcast_to(jnp.asarray(self.slope), prediction.shape)

    def curvature(self, prediction, target):
        whole = jnp.broadcast_to(jnp.asarray(self.bend), (*prediction.shape[:-1], *self.bend.shape))
        return Diagonal(whole) if self.bend.ndim == 1 else Dense(whole)


def step(slope, bend, of=lambda p: 0 * p[..., 0]):
    """Newton's step from zero."""
    loss = Slope(np.array(slope), np.array(bend), of)
    return np.asarray(base.newton_step(loss, Y, W, jnp.zeros(len(slope))))


def test_steps_are_kept_off_zero_curvature(x64):
    """A millionth of the mean curvature is added, or is the least that eigenvalues have; no step is longer than 10."""
    np.testing.assert_allclose(step([1.0, -2.0], [1.0, 3.0]), [-1 / (1 + 2e-6), 2 / (3 + 2e-6)], rtol=1e-13)
    np.testing.assert_allclose(step([1e-7, -1.0], [0.0, 4.0]), [-1e-7 / 2e-6, 1 / (4 + 2e-6)], rtol=1e-13)
    np.testing.assert_array_equal(step([1.0, -1.0], [0.0, 0.0]), [-10.0, 10.0])
    coupled = np.array([[2.0, 2.0], [2.0, 2.0]])  # eigenvalues 0 and 4
    np.testing.assert_allclose(step([1e-7, -1e-7], coupled), [-1e-7 / 2e-6, 1e-7 / 2e-6], rtol=1e-7)
    np.testing.assert_allclose(step([1.0, 1.0], coupled), [-0.25, -0.25], rtol=1e-13)
    downhill = step([1.0, -1.0], np.zeros((2, 2)))
    assert downhill[0] < -5
    assert downhill[1] > 5
    np.testing.assert_array_equal(step([1.0, 0.0], np.zeros((2, 2))), [-10.0, 0.0])  # not NaN, of 0/0


def test_steps_are_halved_until_the_loss_does_not_rise(x64):
    whole = 1 / (1 + 1e-6)
    assert step([-1.0], [1.0]) == pytest.approx(whole, rel=1e-13), "a loss that stays the same has not risen"
    for halvings in (0, 1, 2, 40, 59, 60):
        low = step([-1.0], [1.0], lambda p, most=1.5 * 0.5**halvings: jnp.where(p[..., 0] > most, 1.0, 0.0))
        taken = whole * 0.5**halvings if halvings < 60 else 0.0
        assert low == pytest.approx(taken, rel=1e-13, abs=0.0)
    assert step([-1.0], [1.0], lambda p: jnp.where(p[..., 0] > 0, 1.0, 0.0))[0] == 0.0, "no step at all"
    assert step([-1.0], [1.0], lambda p: jnp.where(p[..., 0] > 0, jnp.nan, 0.0))[0] == 0.0


def bowl(radius):
    """A parabola that is NaN from some distance on."""
    return losses.CustomLoss(lambda p, t: jnp.where(jnp.sum(p**2) > radius**2, jnp.nan, jnp.sum(p**2)))


def test_losses_are_tried_near_the_constant():
    """At three times a normal deviate, of 256 rows: beyond that a loss may do what it will."""
    blocks = jnp.zeros((1, 400, 1))
    bowl(15.0).check(blocks, jnp.zeros(1))
    bowl(25.0).check(blocks, 10 * jnp.ones(1))
    for radius in (0.0, 0.5, 6.0):
        with pytest.raises(ValueError, match="NaN or infinity near"):
            bowl(radius).check(blocks, jnp.ones(1))
    only_first = losses.CustomLoss(lambda p, t: jnp.where(t[0] > 0, jnp.nan, jnp.sum(p**2)))
    only_first.check(blocks.at[0, 256:].set(1.0), jnp.zeros(1))
    with pytest.raises(ValueError, match="NaN or infinity near"):
        only_first.check(blocks.at[0, 255].set(1.0), jnp.zeros(1))
    at_zero = losses.CustomLoss(lambda p, t: jnp.where(p[0] == 0, jnp.nan, jnp.sum(p**2)))
    with pytest.raises(ValueError, match="NaN or infinity near"):
        at_zero.check(blocks, jnp.zeros(1))


def test_how_far_around_the_constant_losses_are_tried():
    """At none, a tenth, one and three normal deviates around it."""
    seen = []

    class Noting(losses.CustomLoss):
        def value(self, prediction, target):
            seen.append(np.asarray(prediction))
            return super().value(prediction, target)

    Noting(lambda p, t: jnp.sum(p**2)).check(jnp.zeros((1, 300, 2)), jnp.array([5.0, -7.0]))
    assert [one.shape for one in seen] == [(256, 2)] * 4
    for one, spread in zip(seen, (0.0, 0.1, 1.0, 3.0), strict=True):
        np.testing.assert_allclose(one.std(axis=0), spread, rtol=0.2, atol=1e-6)
        np.testing.assert_allclose(one.mean(axis=0), [5.0, -7.0], atol=0.3 * spread + 1e-6)


def test_checks_of_custom_losses_at_the_edge():
    blocks = jnp.zeros((1, 3, 2)).at[0, 1].set(1.0)
    losses.CustomLoss(lambda p, t: p[0] - p[1]).check(blocks, jnp.zeros(2))  # convex, with a Hessian of zeros
    tolerance = float(np.sqrt(np.finfo(np.float32).eps))  # of the largest entry: others, of other rows too, are zero
    losses.CustomLoss(lambda p, t: t[0] * (p[0] ** 2 - 0.9 * tolerance * p[1] ** 2)).check(blocks, jnp.zeros(2))
    with pytest.raises(ValueError, match="not convex"):
        losses.CustomLoss(lambda p, t: t[0] * (p[0] ** 2 - 1.1 * tolerance * p[1] ** 2)).check(blocks, jnp.zeros(2))
    nearly = losses.CustomLoss(lambda p, t: t[0] * (p[0] ** 2 + (1 + 0.9 * tolerance) * p[1] ** 2), "identity")
    nearly.check(blocks, jnp.zeros(2))
    with pytest.raises(ValueError, match="not have the structure"):
        losses.CustomLoss(lambda p, t: t[0] * (p[0] ** 2 + (1 + 1.2 * tolerance) * p[1] ** 2), "identity").check(
            blocks, jnp.zeros(2)
        )
    sharp = losses.CustomLoss(lambda p, t: jnp.sum(jnp.abs(p + 1 - t) ** 1.5))
    with pytest.raises(ValueError, match="infinite second derivatives"):
        sharp.check(blocks, jnp.zeros(2))  # of one row alone
    identity = losses.CustomLoss(lambda p, t: jnp.sum((p - t) ** 2), structure="identity")
    for leading in ((3,), (1, 3), ()):
        curvature = identity.curvature(jnp.zeros((*leading, 2)), jnp.ones((*leading, 2)))
        np.testing.assert_array_equal(curvature.diagonal(), np.full((*leading, 2), 2.0))


def test_infinite_labels():
    with pytest.raises(ValueError, match="whole class labels"):
        losses.MulticlassCrossEntropy().prepare_targets([0, np.inf])
