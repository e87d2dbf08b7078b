from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from oracles import central_difference
from vpboost import SquaredError, Training, boost
from vpboost.featurizers import (
    MLP,
    RBF,
    BSpline,
    ConvNet,
    Fourier,
    ResNet,
    WithBias,
    activation_function,
    columns,
    count_parameters,
    with_bias,
)
from vpboost.featurizers.bases import cubic_spline
from vpboost.featurizers.networks import convolve, max_pool

PAPER = {
    "2D tasks 1 and 3": (partial(MLP, width=4, depth=2), (2,), 52, 4),
    "2D task 2": (partial(MLP, width=4, depth=1), (2,), 32, 4),
    "MNIST": (ConvNet, (28, 28), 87, 144),
    "CDR": (partial(ResNet, width=8, depth=1), (55,), 520, 8),
    "Higgs": (partial(MLP, width=16, depth=2), (28,), 1008, 16),
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow, pytest.mark.long]) if name == "MNIST" else name for name in PAPER],
)
def test_parameter_counts_equal_the_papers(name):
    factory, shape, n_theta, n_features = PAPER[name]
    module = factory(jax.random.key(0), jnp.zeros((3, *shape)))
    assert count_parameters(module) == n_theta
    assert module(jnp.zeros(shape)).shape == (n_features,)


ALL = {
    "MLP": partial(MLP, width=5, depth=3, n_features=7),
    "MLP no hidden layer": partial(MLP, width=5, depth=0),
    "ResNet": partial(ResNet, width=6, depth=2, activation="gelu"),
    "RBF": partial(RBF, n_features=9),
    "Fourier": partial(Fourier, n_features=5, frequency_scale=1.0),
    "BSpline": partial(BSpline, n_directions=3, n_knots=6),
    "ConvNet": partial(ConvNet, kernels=(3, 2), pools=(2, 1), channels=(2, 3), strides=(2, 1), activation="tanh"),
}


@pytest.mark.parametrize("name", ALL)
def test_featurizers_keep_the_protocol(name, x64):
    """A 1-D feature vector, all parameters trainable, derivatives in x that match finite differences."""
    shape = (2, 9, 8) if name == "ConvNet" else (3,)
    rows = jax.random.normal(jax.random.key(1), (40, *shape))
    module = eqx.filter_jit(ALL[name])(jax.random.key(0), rows)
    call = jax.jit(lambda x: module(x))  # compiled: there are hundreds of calls
    features = call(rows[0])
    assert features.ndim == 1
    assert features.dtype == jnp.float64
    slopes = eqx.filter_jit(eqx.filter_grad(lambda m: jnp.sum(jax.vmap(m)(rows) ** 2)))(module)
    assert all(jnp.any(leaf != 0) for leaf in jax.tree.leaves(slopes)), "every parameter matters"
    jacobian = jax.jacrev(call)(rows[0]).reshape(features.size, -1)
    numeric = central_difference(lambda v: call(jnp.asarray(v.reshape(shape))), np.asarray(rows[0]).ravel())
    np.testing.assert_allclose(jacobian, numeric, atol=1e-7)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("bias", [False, True])
def test_features_side_by_side_are_those_of_single_inputs(name, bias, x64):
    shape = (2, 9, 8) if name == "ConvNet" else (3,)
    rows = jax.random.normal(jax.random.key(1), (11, *shape))
    module = (with_bias(ALL[name]) if bias else ALL[name])(jax.random.key(0), rows)
    expected = jnp.stack([module(row) for row in rows], axis=1)
    np.testing.assert_allclose(columns(module, jnp.moveaxis(rows, 0, -1)), expected, atol=1e-13)


def test_own_columns_are_checked_and_a_field_of_that_name_is_no_method():
    class Wrong(eqx.Module):
        def __call__(self, x):
            return x

        def columns(self, x):
            return x.T

    class Field(eqx.Module):
        columns: tuple = (0,)

        def __call__(self, x):
            return x[jnp.array(self.columns)]

    x = np.linspace(-1, 1, 40).reshape(20, 2)
    options = dict(loss=SquaredError(), n_learners=1, training=Training(max_steps=1))
    with pytest.raises(ValueError, match=r"featurizer.columns must map .*\(2, 20\), got \(20, 2\)"):
        boost(x, x[:, 0], featurizer=lambda key, rows: Wrong(), bias=False, **options)
    assert boost(x, x[:, 0], featurizer=lambda key, rows: Field(), **options).history[0].accepted


def test_networks_compute_what_they_say(x64):
    x = np.random.default_rng(0).normal(size=3)
    mlp, resnet = (make(jax.random.key(0), jnp.zeros((2, 3)), width=4, depth=2) for make in (MLP, ResNet))
    z = x
    for layer in mlp.layers:
        z = np.tanh(layer.weight @ z + layer.bias)
    np.testing.assert_allclose(mlp(jnp.asarray(x)), z, rtol=1e-13)
    z = np.tanh(resnet.opening.weight @ x + resnet.opening.bias)
    for layer in resnet.blocks:
        z = z + np.tanh(layer.weight @ z + layer.bias)
    np.testing.assert_allclose(resnet(jnp.asarray(x)), z, rtol=1e-13)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_featurizers_differ_by_key_only(name):
    shape = (2, 9, 8) if name == "ConvNet" else (3,)
    rows = jax.random.normal(jax.random.key(1), (40, *shape))
    one, same, other = (ALL[name](jax.random.key(k), rows)(rows[0]) for k in (0, 0, 1))
    np.testing.assert_array_equal(one, same)
    assert np.any(one != other)


@pytest.mark.parametrize("factory", [RBF, Fourier, BSpline])
def test_bases_survive_constant_inputs(factory):
    module = factory(jax.random.key(0), jnp.ones((10, 3)))
    assert np.all(np.isfinite(module(jnp.ones(3))))


def test_bias_is_a_last_feature_of_one():
    module = with_bias(partial(MLP, width=4))(jax.random.key(0), jnp.zeros((5, 2)))
    assert isinstance(module, WithBias)
    features = module(jnp.ones(2))
    assert features.shape == (5,)
    assert features[-1] == 1
    assert count_parameters(module) == count_parameters(module.featurizer)


def test_cubic_splines_are_a_partition_of_unity(x64):
    t = jnp.linspace(1.0, 6.0, 101)
    total = jnp.sum(cubic_spline(t[:, None] - jnp.arange(8)), axis=1)
    np.testing.assert_allclose(total, 1, atol=1e-12)
    np.testing.assert_allclose(cubic_spline(jnp.array([0.0, 1.0, 2.0])), [2 / 3, 1 / 6, 0], atol=1e-15)


def test_splines_cover_the_training_inputs():
    rows = jax.random.normal(jax.random.key(2), (200, 4))
    module = BSpline(jax.random.key(0), rows, n_directions=2, n_knots=7)
    sums = jax.vmap(module)(rows).reshape(200, 2, 7).sum(axis=2)
    np.testing.assert_allclose(sums, 1, atol=1e-4)


@pytest.mark.parametrize(("window", "stride"), [(1, 1), (2, 1), (2, 2), (4, 1), (3, 2), (5, 3)])
def test_max_pool_matches_equinox(window, stride):
    maps = jax.random.normal(jax.random.key(0), (2, 11, 9, 3))
    expected = jax.vmap(eqx.nn.MaxPool2d(window, stride), in_axes=-1, out_axes=-1)(maps)
    np.testing.assert_array_equal(max_pool(maps, window, stride), expected)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(("channels", "size"), [((1, 1), 4), ((3, 2), 1), ((2, 5), 7)])
def test_convolution_and_its_slopes_match_equinox(channels, size):
    layer = eqx.nn.Conv2d(*channels, size, key=jax.random.key(0))
    maps = jax.random.normal(jax.random.key(1), (channels[0], 9, 7, 4))

    def reference(layer, maps):
        return jax.vmap(layer, in_axes=-1, out_axes=-1)(maps)

    np.testing.assert_allclose(convolve(layer, maps), reference(layer, maps), rtol=1e-4, atol=1e-5)
    slopes, expected = (
        jax.grad(lambda pair, f=f: jnp.sum(jnp.sin(f(*pair))))((layer, maps)) for f in (convolve, reference)
    )
    for one, other in zip(jax.tree.leaves(slopes), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)


@pytest.mark.long
@pytest.mark.slow
def test_the_maps_of_a_fresh_convnet_are_centred_so_none_is_dead():
    images, make = jax.random.uniform(jax.random.key(1), (50, 28, 28)), eqx.filter_jit(ConvNet)
    for seed in range(5):
        module = make(jax.random.key(seed), images)
        assert jnp.std(columns(module, jnp.moveaxis(images, 0, -1)), axis=1).max() > 0
    pooled = max_pool(convolve(module.convolutions[0], jnp.moveaxis(images, 0, -1)[None]), 4, 1)
    np.testing.assert_allclose(pooled.mean(), 0, atol=1e-5)


def test_init_scale_multiplies_the_first_weights():
    rows = jnp.zeros((3, 2))
    plain, scaled = (MLP(jax.random.key(0), rows, init_scale=s).layers for s in (1.0, 3.0))
    np.testing.assert_allclose(scaled[0].weight, 3 * plain[0].weight, rtol=1e-6)
    np.testing.assert_array_equal(scaled[1].weight, plain[1].weight)


@pytest.mark.parametrize(
    ("factory", "shape", "message"),
    [
        (partial(MLP, width=0), (2,), "width must be a whole number of at least 1, got 0"),
        (partial(MLP, depth=-1), (2,), "depth must be"),
        (partial(MLP, activation="swoosh"), (2,), "activation must be .*got 'swoosh'"),
        (partial(RBF, n_features=1.5), (2,), "n_features must be"),
        (partial(RBF, width_scale=0.0), (2,), "width_scale must be positive"),
        (partial(BSpline, n_knots=3), (2,), "n_knots must be"),
        (ConvNet, (10,), "ConvNet needs images"),
        (partial(ConvNet, kernels=(3,)), (28, 28), "one entry per block"),
        (ConvNet, (10, 28), "too large for images of 10 × 28"),
    ],
)
def test_bad_options(factory, shape, message):
    with pytest.raises(ValueError, match=message):
        factory(jax.random.key(0), jnp.zeros((5, *shape)))


def test_activation_may_be_a_function():
    assert activation_function(jnp.arctan) is jnp.arctan
