import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq, minimize
from sklearn.metrics import mean_tweedie_deviance

from oracles import central_difference
from vpboost import (
    BinaryCrossEntropy,
    CustomLoss,
    Gamma,
    MulticlassCrossEntropy,
    Poisson,
    PseudoHuber,
    Quantile,
    SquaredError,
    Tweedie,
)
from vpboost.losses.curvature import Dense, Diagonal, ScaledIdentity, Softmax
from vpboost.numerics.blocks import Layout


def coupled(prediction, target):
    """A convex loss that couples its outputs in no special way."""
    residual = prediction - target
    return jnp.log(jnp.sum(jnp.exp(residual)) + 2.0) + 0.3 * jnp.sum(residual) ** 2 + 0.05 * jnp.sum(residual**2)


def scaled_square(prediction, target):
    return 1.7 * jnp.sum((prediction - target) ** 2)


LOSSES = {
    "squared": (SquaredError(), 3, "real", ScaledIdentity),
    "binary": (BinaryCrossEntropy(), 1, "binary", Diagonal),
    "softmax": (MulticlassCrossEntropy(n_classes=4), 4, "class", Softmax),
    "huber": (PseudoHuber(delta=0.7), 2, "real", Diagonal),
    "poisson": (Poisson(), 2, "count", Diagonal),
    "quantile": (Quantile(0.8, smoothing=0.3), 2, "real", Diagonal),
    "gamma": (Gamma(), 2, "positive", Diagonal),
    "tweedie": (Tweedie(1.3), 2, "count", Diagonal),
    "custom dense": (CustomLoss(coupled), 3, "real", Dense),
    "custom diagonal": (
        CustomLoss(lambda p, t: jnp.sum(jnp.log(jnp.cosh(p - t))), structure="diagonal"),
        2,
        "real",
        Diagonal,
    ),
    "custom identity": (CustomLoss(scaled_square, structure="identity"), 3, "real", ScaledIdentity),
    "custom one output": (CustomLoss(coupled), 1, "real", Diagonal),
}
each_loss = pytest.mark.parametrize("name", LOSSES)


def make_targets(kind, n_rows, n_outputs, rng):
    return {
        "real": lambda: rng.normal(size=(n_rows, n_outputs)),
        "binary": lambda: rng.integers(0, 2, size=n_rows),
        "class": lambda: np.arange(n_rows) % n_outputs,
        "positive": lambda: rng.gamma(2.0, size=(n_rows, n_outputs)),
        "count": lambda: rng.poisson(2.0, size=(n_rows, n_outputs)),
    }[kind]()


@each_loss
@settings(max_examples=20)
@given(seed=st.integers(0, 10_000), scale=st.sampled_from([0.1, 1.0, 4.0]))
def test_derivatives_match_finite_differences(name, seed, scale):
    loss, k, kind, structure = LOSSES[name]
    rng = np.random.default_rng(seed)
    with jax.enable_x64(True):
        target = jnp.asarray(loss.prepare_targets(make_targets(kind, 8, k, rng)))[seed % 8]
        center = scale * rng.normal(size=k)
        steps = 1e-5 * np.concatenate([np.zeros((1, k)), np.eye(k), -np.eye(k)])
        value, gradient, curvature, matrix, diagonal = jitted(loss)(center + steps, target)
        hessian, size = matrix[0], max(1.0, np.abs(matrix[0]).max())
        assert isinstance(curvature, structure)
        np.testing.assert_allclose(gradient[0], (value[1 : k + 1] - value[k + 1 :]) / 2e-5, atol=1e-7 * size)
        np.testing.assert_allclose(hessian, (gradient[1 : k + 1] - gradient[k + 1 :]) / 2e-5, atol=1e-7 * size)
        np.testing.assert_allclose(diagonal[0], np.diag(hessian), atol=1e-12 * size)
        assert np.linalg.eigvalsh(hessian).min() > -1e-10 * size


@functools.cache
def jitted(loss):
    def everything(predictions, target):
        targets = jnp.broadcast_to(target, (len(predictions), *target.shape))
        curvature = loss.curvature(predictions, targets)
        parts = loss.value(predictions, targets), loss.gradient(predictions, targets)
        return *parts, curvature, curvature.matrix(), curvature.diagonal()

    return jax.jit(everything)


@each_loss
def test_curvature_products_match_its_matrix(name, x64):
    loss, k, kind, _ = LOSSES[name]
    rng = np.random.default_rng(3)
    target = jnp.asarray(loss.prepare_targets(make_targets(kind, 6, k, rng)))
    curvature = loss.curvature(jnp.asarray(rng.normal(size=(6, k))), target)
    vectors = jnp.asarray(rng.normal(size=(6, k)))
    expected = np.einsum("icd,id->ic", curvature.matrix(), vectors)
    np.testing.assert_allclose(curvature.apply(vectors), expected, atol=1e-12)


@pytest.mark.long
@pytest.mark.slow
@each_loss
@pytest.mark.parametrize("rows", [(5,), (2, 3)])
def test_shapes_with_any_leading_axes(name, rows):
    loss, k, kind, _ = LOSSES[name]
    rng = np.random.default_rng(1)
    target = loss.prepare_targets(make_targets(kind, int(np.prod(rows)), k, rng))
    target = jnp.asarray(target.reshape(*rows, *target.shape[1:]))
    if target.dtype.kind == "f":
        target = target.astype(jnp.float32)
    prediction = jnp.asarray(rng.normal(size=(*rows, k)), dtype=jnp.float32)
    assert loss.value(prediction, target).shape == rows
    assert loss.gradient(prediction, target).shape == (*rows, k)
    assert loss.curvature(prediction, target).matrix().shape == (*rows, k, k)


@each_loss
def test_best_constant_minimises_the_weighted_mean(name, x64):
    loss, k, kind, _ = LOSSES[name]
    rng = np.random.default_rng(7)
    target = loss.prepare_targets(make_targets(kind, 50, k, rng))
    weight = rng.uniform(0.1, 3, size=50)
    layout = Layout.for_rows(50, block_rows=16)
    blocks = jnp.asarray(layout.split(target)), jnp.asarray(layout.split_weights(weight))
    constant = np.asarray(loss.best_constant(*blocks))

    def mean(c):
        prediction = jnp.broadcast_to(jnp.asarray(c), (50, k))
        return np.average(loss.value(prediction, jnp.asarray(target)), weights=weight)

    oracle = minimize(mean, np.zeros(k), method="BFGS", tol=1e-12)
    assert mean(constant) <= oracle.fun + 1e-12
    np.testing.assert_allclose(central_difference(mean, constant), 0, atol=1e-7)


def test_best_constants_in_closed_form(x64):
    layout = Layout.for_rows(4, 4)

    def constant(loss, y):
        target = loss.prepare_targets(np.array(y))
        return loss.best_constant(jnp.asarray(layout.split(target)), jnp.asarray(layout.split_weights(np.ones(4))))

    np.testing.assert_allclose(constant(SquaredError(), [1.0, 2, 3, 6]), [3.0])
    np.testing.assert_allclose(constant(BinaryCrossEntropy(), [0, 0, 0, 1]), [np.log(1 / 3)])
    np.testing.assert_allclose(constant(MulticlassCrossEntropy(), [0, 1, 1, 2]), np.log([0.25, 0.5, 0.25]))
    np.testing.assert_allclose(constant(Poisson(), [0, 1, 2, 5]), [np.log(2.0)])


LOG_COSH = CustomLoss(lambda p, t: jnp.sum(jnp.logaddexp(p - t, t - p)), structure="diagonal")  # flat far from zero


@pytest.mark.parametrize(
    "loss", [Quantile(0.9), Quantile(0.05, smoothing=1e-3), PseudoHuber(), PseudoHuber(1e-2), LOG_COSH]
)
@pytest.mark.parametrize(("centre", "spread"), [(0.0, 1.0), (1000.0, 50.0), (-1e4, 1.0), (3.0, 1e-3)])
@pytest.mark.parametrize("kind", ["many values", "few values"])
def test_best_constants_of_targets_far_from_zero(loss, centre, spread, kind, x64):
    rng = np.random.default_rng(0)
    raw = rng.normal(size=(200, 2)) if kind == "many values" else rng.integers(0, 3, size=(200, 2))
    target, weight = centre + spread * raw, rng.uniform(0.1, 3, size=200)
    layout = Layout.for_rows(200, block_rows=64)
    found = loss.best_constant(jnp.asarray(layout.split(target)), jnp.asarray(layout.split_weights(weight)))

    def slope(c, k):
        return np.average(loss.gradient(jnp.full((200, 1), c), jnp.asarray(target[:, [k]]))[:, 0], weights=weight)

    for k in range(2):
        low, high = target[:, k].min() - 5 * spread - 10, target[:, k].max() + 5 * spread + 10
        assert abs(slope(found[k], k)) < 1e-6
        np.testing.assert_allclose(found[k], brentq(slope, low, high, args=(k,), xtol=1e-12), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("loss", [Quantile(0.9), PseudoHuber()])
def test_best_constants_of_outputs_of_different_scales(loss):
    rng = np.random.default_rng(0)
    target = np.stack([1e-2 * rng.normal(size=1000), 2e5 + 5e4 * rng.normal(size=1000)], axis=1).astype("float32")
    layout = Layout.for_rows(1000, block_rows=512)
    weight = jnp.asarray(layout.split_weights(np.ones(1000)), jnp.float32)

    def constant(columns):
        return np.asarray(loss.best_constant(jnp.asarray(layout.split(target[:, columns])), weight))

    together = constant([0, 1])
    np.testing.assert_allclose(together, np.concatenate([constant([0]), constant([1])]), rtol=1e-4)
    np.testing.assert_allclose(together[1], np.quantile(target[:, 1], getattr(loss, "level", 0.5)), rtol=1e-2)


def test_best_constant_stays_finite_when_a_class_never_occurs(x64):
    layout = Layout.for_rows(3, 4)
    weight = jnp.asarray(layout.split_weights(np.ones(3)))
    for loss, y in ((BinaryCrossEntropy(), [1, 1, 1]), (MulticlassCrossEntropy(4), [0, 1, 1]), (Poisson(), [0, 0, 0])):
        constant = loss.best_constant(jnp.asarray(layout.split(loss.prepare_targets(np.array(y)))), weight)
        assert np.all(np.isfinite(constant))


def test_pseudo_huber_limits(x64):
    residual = jnp.array([[1e-3]])
    np.testing.assert_allclose(PseudoHuber(1.0).value(residual, 0 * residual), 0.5e-6, rtol=1e-5)
    np.testing.assert_allclose(PseudoHuber(2.0).value(1e9 * residual, 0 * residual), 2e6, rtol=1e-5)


def test_quantile_tends_to_the_pinball_loss(x64):
    residual = jnp.array([[-2.0], [-0.5], [0.7], [3.0]])
    pinball = np.where(residual[:, 0] > 0, 0.9 * residual[:, 0], -0.1 * residual[:, 0])
    np.testing.assert_allclose(Quantile(0.9, smoothing=1e-3).value(0 * residual, residual), pinball, atol=1e-9)


@pytest.mark.parametrize(
    ("loss", "y", "message"),
    [
        (SquaredError(), [1.0, np.nan], "y must be finite"),
        (SquaredError(), np.zeros((2, 2, 2)), "y must be 1-D or 2-D"),
        (BinaryCrossEntropy(), [0.0, 2.0], r"y must lie in \[0, 1\]"),
        (BinaryCrossEntropy(), np.zeros((3, 2)), "one column"),
        (MulticlassCrossEntropy(n_classes=3), [0, 3], "labels from 0 to n_classes - 1 = 2"),
        (MulticlassCrossEntropy(), [0, -1, 1], "labels from -1"),
        (MulticlassCrossEntropy(), [0.5, 1], "fractional"),
        (MulticlassCrossEntropy(), [0, 0], "at least two classes"),
        (MulticlassCrossEntropy(), np.zeros((3, 2)), "1-D array of class labels"),
        (Poisson(), [1.0, -2.0], "non-negative for the Poisson"),
        (Tweedie(), [1.0, -2.0], "non-negative for the Tweedie"),
        (Gamma(), [1.0, 0.0], "positive for the Gamma"),
    ],
)
def test_bad_targets(loss, y, message):
    with pytest.raises(ValueError, match=message):
        loss.prepare_targets(np.asarray(y))


def test_text_targets_are_a_type_error():
    with pytest.raises(TypeError, match="y must be numeric"):
        SquaredError().prepare_targets(np.array(["a", "b"]))


@pytest.mark.parametrize(
    ("function", "structure", "message"),
    [
        (lambda p, t: jnp.sum(jnp.cos(p - t)), "dense", "not convex"),
        (lambda p, t: jnp.sum(jnp.log(p - t - 100)), "dense", "NaN or infinity"),
        (lambda p, t: jnp.sum(jnp.abs(p - t) ** 1.5) * jnp.inf, "dense", "NaN or infinity"),
        (lambda p, t: (p - t) ** 2, "dense", "must return a scalar"),
        (coupled, "diagonal", "structure 'diagonal'"),
        (lambda p, t: jnp.sum(jnp.log(jnp.cosh(p - t))), "identity", "structure 'identity'"),
    ],
)
def test_custom_loss_is_checked(function, structure, message):
    loss = CustomLoss(function, structure=structure)
    target = jnp.asarray(np.random.default_rng(0).normal(size=(1, 20, 3)), dtype=jnp.float32)
    with pytest.raises(ValueError, match=message):
        loss.check(target, jnp.zeros(3))


def test_bad_loss_parameters():
    with pytest.raises(ValueError, match="delta must be positive"):
        PseudoHuber(delta=0.0)
    for options in ({"level": 0.0}, {"level": 1.0}, {"smoothing": 0.0}):
        with pytest.raises(ValueError, match=f"{next(iter(options))} must be"):
            Quantile(**options)
    for power in (1.0, 2.0):
        with pytest.raises(ValueError, match="power must be in"):
            Tweedie(power)
    with pytest.raises(ValueError, match="structure must be"):
        CustomLoss(coupled, structure="banded")
    with pytest.raises(TypeError, match="function must be callable"):
        CustomLoss(3)


def test_constant_of_a_coupled_loss_that_is_straight_far_from_its_minimum():
    """The loss couples two outputs, and far away its Hessian vanishes in single precision: c₀ used to stay at zero."""
    rng = np.random.default_rng(0)
    y = rng.normal(size=(200, 2)) + np.array([1000.0, -500.0])

    def coupled(p, t):
        r = p - t
        return jnp.sqrt(1 + r[0] ** 2) + jnp.sqrt(1 + r[1] ** 2) + 0.3 * jnp.sqrt(1 + (r[0] + r[1]) ** 2)

    def mean(c):
        r = c - y
        value = np.sqrt(1 + r[:, 0] ** 2) + np.sqrt(1 + r[:, 1] ** 2) + 0.3 * np.sqrt(1 + r.sum(axis=1) ** 2)
        return value.mean()

    expected = minimize(mean, y.mean(axis=0), tol=1e-10).x
    weight = jnp.full((1, 200), 1 / 200, jnp.float32)
    found = CustomLoss(coupled).best_constant(jnp.asarray(y[None], jnp.float32), weight)
    np.testing.assert_allclose(found, expected, atol=0.02)


@pytest.mark.parametrize("value", [["0.1"], "0.5", None, True, float("nan")])
def test_settings_of_losses_that_are_no_numbers(value):
    for kind, name in ((Quantile, "level"), (Quantile, "smoothing"), (PseudoHuber, "delta"), (Tweedie, "power")):
        with pytest.raises(ValueError, match=f"{name} must be .* got"):
            kind(**{name: value})
    with pytest.raises(ValueError, match=r"level must rise from each quantile to the next, got \[0.9, 0.1\]"):
        Quantile([0.9, 0.1])
    with pytest.raises(ValueError, match=r"level must be in \(0, 1\), got 1.5"):
        Quantile([0.1, 1.5])


@pytest.mark.parametrize(("loss", "power"), [(Poisson(), 1), (Tweedie(1.3), 1.3), (Gamma(), 2)])
def test_log_links_are_half_of_the_deviance(loss, power):
    rng = np.random.default_rng(0)
    y, f = rng.gamma(1.0, size=(50, 1)), rng.normal(size=(50, 1))
    y[:5] = 0.0 if power < 2 else y[:5]
    with jax.enable_x64(True):
        found = np.asarray(loss.value(jnp.asarray(f), jnp.asarray(y)))
    np.testing.assert_allclose(2 * found.mean(), mean_tweedie_deviance(y[:, 0], np.exp(f[:, 0]), power=power))


@pytest.mark.parametrize("loss", [Poisson(), Tweedie(1.5), Gamma()])
def test_deviances_of_targets_that_hardly_differ_keep_their_digits(loss):
    u = np.array([[1e-4], [-3e-4], [1e-3]])  # y^(2 - p) u^2 / 2, but for terms of third order
    found = np.asarray(loss.value(jnp.asarray(u, jnp.float32), jnp.ones((3, 1), jnp.float32)))
    np.testing.assert_allclose(found, u[:, 0] ** 2 / 2, rtol=3e-3)
