"""Losses against plain NumPy and SciPy, without compilation: quick enough to be run for every mutant (mutate.py)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from vpboost import losses
from vpboost.losses.base import away_from_zero, newton_constant, newton_step, observed_columns, real_targets
from vpboost.losses.curvature import Dense, Diagonal, ScaledIdentity, Softmax
from vpboost.losses.observed import Observed
from vpboost.losses.regression import levels_of

F = np.array([[0.3, -0.8], [-1.2, 0.5], [0.7, 1.4]])
REAL = np.array([[0.1, 0.4], [-0.6, 2.5], [-1.3, 1.0]])
COUNT = np.array([[0.0, 3.0], [1.0, 2.0], [4.0, 0.0]])
WEIGHT = np.array([[0.5, 0.3, 0.2]])
TAU = np.array([0.1, 0.6, 0.1, 0.6])


def pinball(f, y, level=0.8, s=0.3):
    r = y - f
    return s * np.log1p(np.exp(r / s)) + (level - 1) * r


def above_best(value):
    """A loss less what is left of it where the prediction is the log of the target."""

    def found(f, y):
        best = value(np.log(np.maximum(y, 1e-300)), np.maximum(y, 1e-300))
        return value(f, y) - np.where(y > 0, best, 0.0)

    return found


#: A loss, targets, and its value for each output in NumPy.
SUMS = {
    "squared": (losses.SquaredError(), REAL, lambda f, y: 0.5 * (f - y) ** 2),
    "huber": (losses.PseudoHuber(0.7), REAL, lambda f, y: 0.49 * (np.sqrt(1 + ((f - y) / 0.7) ** 2) - 1)),
    "quantile": (losses.Quantile(0.8, 0.3), REAL, pinball),
    "poisson": (losses.Poisson(), COUNT, above_best(lambda f, y: np.exp(f) - y * f)),
    "gamma": (losses.Gamma(), COUNT + 0.5, above_best(lambda f, y: y * np.exp(-f) + f)),
    "tweedie": (
        *(losses.Tweedie(1.3), COUNT),
        above_best(lambda f, y: np.exp(0.7 * f) / 0.7 + y * np.exp(-0.3 * f) / 0.3),
    ),
    "binary": (losses.BinaryCrossEntropy(), (COUNT > 1.5) * 1.0, lambda f, y: np.log1p(np.exp(f)) - y * f),
}
each_sum = pytest.mark.parametrize("name", SUMS)


def assert_rows_are_apart(loss, prediction, target):
    """Rows in blocks, and one row alone, have the values that they have among others."""
    f, t = jnp.asarray(prediction), jnp.asarray(target)
    whole = loss.value(f, t), loss.gradient(f, t), loss.curvature(f, t).diagonal(), loss.curvature(f, t).matrix()
    for leading, pick in (((1, 3), None), ((), 1)):
        f_there, t_there = (f[None], t[None]) if pick is None else (f[pick], t[pick])
        curvature = loss.curvature(f_there, t_there)
        there = loss.value(f_there, t_there), loss.gradient(f_there, t_there), curvature.diagonal(), curvature.matrix()
        assert there[0].shape == leading
        for one, all_rows in zip(there, whole, strict=True):
            np.testing.assert_allclose(one, all_rows[None] if pick is None else all_rows[pick], rtol=1e-12, atol=1e-15)


@each_sum
def test_losses_of_outputs_apart(name, x64):
    loss, y, formula = SUMS[name]
    f, t = jnp.asarray(F), jnp.asarray(y)
    np.testing.assert_allclose(loss.value(F, y), formula(F, y).sum(axis=1), rtol=1e-12)
    by_differences = (formula(F + 1e-5, y) - formula(F - 1e-5, y)) / 2e-5
    np.testing.assert_allclose(loss.gradient(F, y), by_differences, rtol=1e-7, atol=1e-9)
    twice = (np.asarray(loss.gradient(F + 1e-5, y)) - np.asarray(loss.gradient(F - 1e-5, y))) / 2e-5
    np.testing.assert_allclose(loss.curvature(f, t).diagonal(), twice, rtol=1e-7, atol=1e-9)
    assert_rows_are_apart(loss, F, y)
    assert loss.n_outputs(y) == 2
    assert loss.n_parameters == 1
    assert not loss.couples_outputs
    assert loss.sums_over_outputs is (name != "binary")
    assert loss.robust is (name in ("huber", "quantile"))


@each_sum
def test_best_constants(name, x64):
    loss, y, _formula = SUMS[name]
    constant = np.asarray(loss.best_constant(jnp.asarray(y[None]), jnp.asarray(WEIGHT)))
    assert constant.shape == (2,)
    np.testing.assert_allclose(WEIGHT[0] @ np.asarray(loss.gradient(constant[None], y)), 0, atol=2e-6)
    single = loss.best_constant(jnp.asarray(y[None], jnp.float32), jnp.asarray(WEIGHT, jnp.float32))
    assert single.dtype == jnp.float32
    np.testing.assert_allclose(single, constant, rtol=1e-3, atol=1e-3)


def test_several_quantiles(x64):
    loss, f = losses.Quantile([0.1, 0.6], 0.3), np.hstack([F, F[:, ::-1] + 0.2])
    assert_rows_are_apart(loss, f, REAL)
    y = np.repeat(REAL, 2, axis=1)
    np.testing.assert_allclose(loss.value(f, REAL), pinball(f, y, TAU).sum(axis=1), rtol=1e-12)
    by_differences = (pinball(f + 1e-5, y, TAU) - pinball(f - 1e-5, y, TAU)) / 2e-5
    np.testing.assert_allclose(loss.gradient(f, REAL), by_differences, rtol=1e-7, atol=1e-9)
    assert (loss.n_parameters, loss.n_outputs(REAL), loss.levels) == (2, 4, (0.1, 0.6))
    constant = np.asarray(loss.best_constant(jnp.asarray(REAL[None]), jnp.asarray(WEIGHT)))
    one_by_one = [
        losses.Quantile(level, 0.3).best_constant(jnp.asarray(REAL[None]), jnp.asarray(WEIGHT)) for level in (0.1, 0.6)
    ]
    np.testing.assert_array_equal(constant, np.stack(one_by_one, axis=1).ravel())


def test_levels_and_smoothing():
    assert levels_of([0.1, np.float32(0.5)]) == (0.1, 0.5)
    for several in ([0.25], [0.25, 0.5]):
        assert isinstance(levels_of(np.array(several)), tuple)
        assert levels_of(np.array(several)) == tuple(several)
    assert isinstance(levels_of(np.array(0.5)), float)
    assert levels_of(np.float64(0.5)) == 0.5
    assert levels_of((0.5,)) == (0.5,)
    assert losses.Quantile().level == 0.5
    assert losses.Quantile().smoothing == 0.05
    assert losses.PseudoHuber().delta == 1.0
    assert losses.Tweedie().power == 1.5
    for bad in ([], [0.5, 0.5], [0.6, 0.5]):
        with pytest.raises(ValueError, match="level must rise"):
            losses.Quantile(bad)
    for make in (
        *(lambda level=level: losses.Quantile(level) for level in (0, 1, 0.0, 1.0, [0.1, 1.0], "a")),
        *(lambda s=s: losses.Quantile(0.5, s) for s in (0, -1.0, np.inf)),
        *(lambda d=d: losses.PseudoHuber(d) for d in (0, np.inf)),
        *(lambda p=p: losses.Tweedie(p) for p in (1, 2, 1.0, 2.0, 2.5)),
    ):
        with pytest.raises(ValueError, match="must be"):
            make()
    assert losses.Quantile(0.99).level == 0.99
    assert losses.PseudoHuber(0.001).delta == 0.001
    assert losses.PseudoHuber(2.0).delta == 2.0


def test_smoothing_adapts_to_the_least_width():
    y = np.stack([np.arange(101.0), np.full(101, 3.0)], axis=1)
    weight = np.ones(101)
    assert losses.Quantile(0.5, 100.0).adapted(y, weight).smoothing == pytest.approx(50 / 5)
    assert losses.Quantile(0.1, 100.0).adapted(y, weight).smoothing == pytest.approx(10 / 5)
    assert losses.Quantile(0.9, 100.0).adapted(y, weight).smoothing == pytest.approx(10 / 5)
    assert losses.Quantile(0.5, 0.05).adapted(y, weight).smoothing == 0.05
    several = losses.Quantile([0.2, 0.5], 100.0).adapted(y, weight)
    assert several.smoothing == pytest.approx(20 / 5)
    assert several.level == (0.2, 0.5)
    constant = losses.Quantile(0.5, 7.0)
    assert constant.adapted(y[:, 1:], weight) is constant
    assert losses.SquaredError().adapted(y, weight) == losses.SquaredError()


def test_targets_are_checked():
    for loss in (losses.Poisson(), losses.Tweedie()):
        np.testing.assert_array_equal(loss.prepare_targets([0, 2]), [[0.0], [2.0]])
        with pytest.raises(ValueError, match="non-negative"):
            loss.prepare_targets([0.0, -0.001])
    np.testing.assert_array_equal(losses.Gamma().prepare_targets([0.5]), [[0.5]])
    for value in (0.0, -1.0):
        with pytest.raises(ValueError, match="positive for the Gamma loss"):
            losses.Gamma().prepare_targets([1.0, value])
    binary = losses.BinaryCrossEntropy()
    assert binary.prepare_targets([0, 1, True]).tolist() == [[0.0], [1.0], [1.0]]
    for bad in ([0, 1.1], [-0.1, 1]):
        with pytest.raises(ValueError, match=r"must lie in \[0, 1\]"):
            binary.prepare_targets(bad)
    with pytest.raises(ValueError, match="one column"):
        binary.prepare_targets([[0, 1], [1, 0]])


def test_real_targets():
    assert real_targets([1, 2]).shape == (2, 1)
    assert real_targets(np.ones((2, 3), bool)).dtype == np.float64
    with pytest.raises(TypeError, match="y must be numeric"):
        real_targets(["a"])
    for bad in (np.ones((2, 1, 1)), np.float64(3.0)):
        with pytest.raises(ValueError, match="1-D or 2-D"):
            real_targets(bad)
    for bad in (np.nan, np.inf, -np.inf):
        with pytest.raises(ValueError, match="finite"):
            real_targets([1.0, bad])
    np.testing.assert_array_equal(away_from_zero(np.array([0.0, 1e-8, 0.2])), [1e-7, 1e-7, 0.2])


# --- classes --------------------------------------------------------------------------------------------------------


def test_softmax(x64):
    loss, labels = losses.MulticlassCrossEntropy(), np.array([1, 0, 1])
    assert_rows_are_apart(loss, F, labels)
    chosen = F[np.arange(3), labels]
    np.testing.assert_allclose(loss.value(F, labels), np.log(np.exp(F).sum(axis=1)) - chosen, rtol=1e-12)
    p = special.softmax(F, axis=1)
    np.testing.assert_allclose(loss.gradient(F, labels), p - np.eye(2)[labels], rtol=1e-12)
    np.testing.assert_allclose(loss.curvature(F, labels).diagonal(), p * (1 - p), rtol=1e-12)
    assert loss.couples_outputs
    constant = loss.best_constant(jnp.asarray(labels[None]), jnp.asarray(WEIGHT))
    np.testing.assert_allclose(constant, np.log([0.3, 0.7]), rtol=1e-12)
    more = losses.MulticlassCrossEntropy(3).best_constant(jnp.asarray(labels[None]), jnp.asarray(WEIGHT))
    np.testing.assert_allclose(more, np.log([0.3, 0.7, 1e-7]), rtol=1e-12)


def test_labels_are_checked():
    loss = losses.MulticlassCrossEntropy()
    assert loss.prepare_targets([[0], [2.0], [1]]).tolist() == [0, 2, 1]
    assert loss.prepare_targets([0, 1]).dtype == np.int32
    assert (loss.n_outputs(np.array([0, 2])), losses.MulticlassCrossEntropy(5).n_outputs(np.array([0]))) == (3, 5)
    assert losses.MulticlassCrossEntropy(3).prepare_targets([0, 2]).tolist() == [0, 2]
    for bad, message in [
        ([[0, 1], [1, 0]], "1-D array"),
        (["a"], "1-D array"),
        ([0, 0.5], "whole class labels"),
        ([0, np.nan], "whole class labels"),
        ([0, 0], "at least two classes"),
        ([-1, 1], "labels from 0 to"),
    ]:
        with pytest.raises(ValueError, match=message):
            loss.prepare_targets(bad)
    with pytest.raises(ValueError, match="n_classes - 1 = 2"):
        losses.MulticlassCrossEntropy(3).prepare_targets([0, 3])
    with pytest.raises(ValueError, match="at least two"):
        losses.MulticlassCrossEntropy(1).prepare_targets([0, 0])


# --- curvature ------------------------------------------------------------------------------------------------------


def test_curvatures(x64):
    p = special.softmax(F, axis=1)
    half = np.array([[[2.0, 1.0], [1.0, 3.0]]] * 3)
    for curvature, matrix in [
        (ScaledIdentity(jnp.array([1.0, 2.0, 3.0]), 2), np.array([1.0, 2.0, 3.0])[:, None, None] * np.eye(2)),
        (Diagonal(jnp.asarray(F)), F[:, :, None] * np.eye(2)),
        (Softmax(jnp.asarray(p)), p[:, :, None] * np.eye(2) - p[:, :, None] * p[:, None, :]),
        (Dense(jnp.asarray(half)), half),
    ]:
        np.testing.assert_allclose(curvature.matrix(), matrix, atol=1e-14)
        np.testing.assert_allclose(curvature.diagonal(), matrix[:, [0, 1], [0, 1]], atol=1e-14)
        np.testing.assert_allclose(
            curvature.apply(jnp.asarray(REAL)), np.einsum("icd,id->ic", matrix, REAL), atol=1e-14
        )
        in_blocks = jax.tree.map(lambda leaf: leaf[None], curvature)
        np.testing.assert_array_equal(in_blocks.apply(jnp.asarray(REAL)[None])[0], curvature.apply(jnp.asarray(REAL)))
        np.testing.assert_array_equal(in_blocks.matrix()[0], curvature.matrix())
    three = special.softmax(np.array([[0.1, -1.0, 2.0], [0.0, 0.5, 0.2]]), axis=1)
    majorant = Softmax(jnp.asarray(three)).majorant()
    np.testing.assert_allclose(majorant.scale, 2 * (three * (1 - three)).max(axis=1), rtol=1e-14)
    assert majorant.n_outputs == 3
    in_blocks = Softmax(jnp.asarray(three)[None]).majorant()
    np.testing.assert_array_equal(in_blocks.scale[0], majorant.scale)
    assert in_blocks.n_outputs == 3


# --- the best constant by Newton's method ---------------------------------------------------------------------------


class Straight(losses.Loss):
    """|f − y|, nearly, whose curvature is too small for Newton's step."""

    def value(self, prediction, target):
        return jnp.sum(jnp.sqrt(1e-6 + (prediction - target) ** 2), axis=-1)

    def gradient(self, prediction, target):
        return (prediction - target) / jnp.sqrt(1e-6 + (prediction - target) ** 2)

    def curvature(self, prediction, target):
        return Diagonal(jnp.full(prediction.shape, 1e-9))


class Coupled(losses.Loss):
    """½(f − y)ᵀA(f − y) with a full matrix, of which Newton's step is the solution."""

    def value(self, prediction, target):
        return 0.5 * jnp.sum((prediction - target) * ((prediction - target) @ MATRIX), axis=-1)

    def gradient(self, prediction, target):
        return (prediction - target) @ MATRIX

    def curvature(self, prediction, target):
        return Dense(jnp.broadcast_to(MATRIX, (*prediction.shape[:-1], 2, 2)))


MATRIX = np.array([[2.0, 0.7], [0.7, 1.0]])


def test_newton_steps(x64):
    y, w = jnp.asarray(REAL[None]), jnp.asarray(WEIGHT)
    mean = WEIGHT[0] @ REAL
    np.testing.assert_allclose(newton_step(Coupled(), y, w, jnp.zeros(2)), mean, rtol=1e-10)
    np.testing.assert_allclose(Coupled().best_constant(y, w), mean, rtol=1e-10)
    far = newton_step(losses.SquaredError(), y + 1e4, w, jnp.array([0.0, 5.0]))
    np.testing.assert_allclose(far, [10.0, 65.0])  # no further than ten times one and the size of the constant
    down = newton_step(losses.SquaredError(), y - 1e4, w, jnp.array([0.0, -5.0]))
    np.testing.assert_allclose(down, [-10.0, -65.0])
    coupled = np.asarray(newton_step(Coupled(), y + 1e4, w, jnp.array([0.0, 5.0])))
    assert np.linalg.norm(coupled - [0.0, 5.0]) == pytest.approx(np.sqrt(2) * 60)
    there = newton_step(losses.SquaredError(), y, w, jnp.asarray(mean))
    np.testing.assert_allclose(there, mean, atol=1e-12)
    damped = newton_step(Straight(), y, w, jnp.zeros(2))
    before, after = (WEIGHT[0] @ np.asarray(Straight().value(c[None], REAL)) for c in (np.zeros(2), damped))
    assert after <= before + 1e-9
    assert np.any(np.abs(damped) < 10), "halved until the loss does not rise"
    assert np.any(damped != 0)
    np.testing.assert_allclose(newton_constant(losses.Poisson(), y**2, w, jnp.zeros(2)), np.log(WEIGHT[0] @ REAL**2))
    few = newton_constant(losses.Poisson(), 1e3 * y**2, w, jnp.zeros(2), steps=1)
    assert not np.allclose(few, np.log(1e3 * WEIGHT[0] @ REAL**2), rtol=1e-3)


# --- holes ----------------------------------------------------------------------------------------------------------


def test_observed(x64):
    holes = REAL.copy()
    holes[0, 1] = holes[2, 0] = np.nan
    known = ~np.isnan(holes)
    for inner in (losses.SquaredError(), losses.PseudoHuber(0.7)):
        loss = Observed(inner)
        full = [inner.value(F[:, k : k + 1], REAL[:, k : k + 1]) for k in range(2)]
        np.testing.assert_allclose(loss.value(F, holes), (np.stack(full, axis=1) * known).sum(axis=1), rtol=1e-12)
        np.testing.assert_allclose(loss.gradient(F, holes), np.asarray(inner.gradient(F, REAL)) * known)
        expected = np.asarray(inner.curvature(jnp.asarray(F), jnp.asarray(REAL)).diagonal()) * known
        np.testing.assert_allclose(loss.curvature(F, holes).diagonal(), expected)
        assert (loss.n_parameters, loss.n_outputs(holes), loss.robust) == (1, 2, inner.robust)
        assert_rows_are_apart(loss, F, holes)
    squared = Observed(losses.SquaredError())
    found = squared.best_constant(jnp.asarray(holes[None]), jnp.asarray(WEIGHT))
    w = WEIGHT[0]
    np.testing.assert_allclose(found, [(w[:2] @ REAL[:2, 0]) / w[:2].sum(), (w[1:] @ REAL[1:, 1]) / w[1:].sum()])
    nothing = np.column_stack([REAL[:, 0], np.full(3, np.nan)])
    found = squared.best_constant(jnp.asarray(nothing[None]), jnp.asarray(WEIGHT))
    np.testing.assert_allclose(found, [w @ REAL[:, 0], 0.0])
    prepared = Observed(losses.Poisson()).prepare_targets([[1, np.nan], [0, 2]])
    np.testing.assert_array_equal(prepared, [[1, np.nan], [0, 2]])
    with pytest.raises(ValueError, match="non-negative"):
        Observed(losses.Poisson()).prepare_targets([[-1, np.nan]])
    with pytest.raises(ValueError, match="cannot skip"):
        Observed(losses.BinaryCrossEntropy())
    pairs = list(observed_columns(holes, WEIGHT[0]))
    np.testing.assert_array_equal(pairs[1][0], REAL[1:, 1])
    np.testing.assert_array_equal(pairs[1][1], WEIGHT[0, 1:])


# --- losses of one's own --------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.long
def test_custom_losses(x64):
    def coupled(p, t):
        return jnp.sum((p - t) ** 2) + 0.5 * jnp.sum(p) ** 2

    dense = losses.CustomLoss(coupled)
    assert_rows_are_apart(dense, F, REAL)
    np.testing.assert_allclose(dense.value(F, REAL), ((F - REAL) ** 2).sum(axis=1) + 0.5 * F.sum(axis=1) ** 2)
    np.testing.assert_allclose(dense.gradient(F, REAL), 2 * (F - REAL) + F.sum(axis=1, keepdims=True))
    np.testing.assert_allclose(dense.curvature(F, REAL).matrix()[0], [[3.0, 1.0], [1.0, 3.0]])
    assert dense.couples_outputs
    one = dense.curvature(F[:, :1], REAL[:, :1])
    assert isinstance(one, Diagonal)
    diagonal = losses.CustomLoss(lambda p, t: jnp.sum((p - t) ** 4), structure="diagonal")
    np.testing.assert_allclose(diagonal.curvature(F, REAL).diagonal(), 12 * (F - REAL) ** 2)
    assert not diagonal.couples_outputs
    identity = losses.CustomLoss(lambda p, t: 1.5 * jnp.sum((p - t) ** 2), structure="identity")
    assert isinstance(identity.curvature(F, REAL), ScaledIdentity)
    np.testing.assert_allclose(identity.curvature(F, REAL).diagonal(), 3.0)
    assert (dense.n_outputs(REAL), losses.CustomLoss(coupled, outputs=3).n_outputs(REAL)) == (2, 3)
    with pytest.raises(TypeError, match="function must be callable"):
        losses.CustomLoss(3)
    with pytest.raises(ValueError, match="structure must be"):
        losses.CustomLoss(coupled, structure="sparse")
    blocks = jnp.asarray(REAL[None])
    for loss in (dense, diagonal, identity, losses.CustomLoss(lambda p, t: jnp.sum((p - t) ** 2)[None])):
        loss.check(blocks, jnp.zeros(2))
    flat = losses.CustomLoss(lambda p, t: (0.3 * p[0] + 0.7 * p[1]) ** 2 + 0.0 * p[2])  # convex, but for rounding
    flat.check(jnp.ones((1, 3, 3)), jnp.zeros(3))
    for loss, message in [
        (losses.CustomLoss(lambda p, t: p), "must return a scalar"),
        (losses.CustomLoss(lambda p, t: jnp.where(t[0] > 0, jnp.sum(p**2), jnp.nan)), "NaN or infinity near"),
        (losses.CustomLoss(lambda p, t: jnp.log(jnp.sum(p) - 99)), "NaN or infinity near"),
        (losses.CustomLoss(lambda p, t: jnp.sum(jnp.maximum(p, 0.0) ** 1.5)), "infinite second derivatives"),
        (losses.CustomLoss(lambda p, t: jnp.sum((p[:1] - t[:1]) ** 2 - 0.01 * p[1:] ** 2)), "not convex"),
        (losses.CustomLoss(coupled, structure="diagonal"), "does not have the structure"),
        (losses.CustomLoss(lambda p, t: p[0] ** 2 + 1.01 * p[1] ** 2, structure="identity"), "not have the structure"),
    ]:
        with pytest.raises(ValueError, match=message):
            loss.check(blocks, jnp.zeros(2))
