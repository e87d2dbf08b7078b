import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vpboost import SquaredError
from vpboost.core.data import prepare
from vpboost.numerics.blocks import Layout, block_map, block_sum


@given(n_rows=st.integers(1, 5000), block_rows=st.integers(1, 1024))
def test_layout_holds_all_rows_with_little_padding(n_rows, block_rows):
    layout = Layout.for_rows(n_rows, block_rows)
    assert layout.block_rows <= block_rows
    unit = 32 if layout.block_rows <= 512 else 128
    assert 0 <= layout.n_blocks * layout.block_rows - n_rows < unit * layout.n_blocks
    rows = np.arange(n_rows)
    np.testing.assert_array_equal(layout.merge(layout.split(rows)), rows)


def test_weights_sum_to_one_and_padding_weighs_nothing():
    layout = Layout.for_rows(5, 2)
    blocks = layout.split_weights(np.array([1.0, 2, 3, 4, 10]))
    np.testing.assert_allclose(blocks, np.array([[1, 2], [3, 4], [10, 0]]) / 20)


@pytest.mark.parametrize("block_rows", [1, 7, 30, 100])
def test_block_sum_and_its_derivative_equal_the_plain_sum(block_rows, x64):
    """1, 4, 15 and 100 blocks: with and without recomputation in the backward pass."""
    x = jax.random.normal(jax.random.key(0), (100, 3))
    layout = Layout.for_rows(100, block_rows)
    blocks, weight = jnp.asarray(layout.split(x)), jnp.asarray(layout.split_weights(np.ones(100)))

    def blocked(scale):
        mapped = block_map(lambda b: jnp.tanh(b * scale), blocks)
        return block_sum(lambda z, w: jnp.sum(w[:, None] * z**2), mapped, weight)

    def plain(scale):
        return jnp.mean(jnp.sum(jnp.tanh(x * scale) ** 2, axis=1))

    scale = jnp.array([0.5, 1.0, 2.0])
    np.testing.assert_allclose(blocked(scale), plain(scale), rtol=1e-13)
    np.testing.assert_allclose(jax.grad(blocked)(scale), jax.grad(plain)(scale), rtol=1e-12)


def test_padding_hardly_thins_the_blocks_that_batches_are_made_of():
    """Padding is all in the last block, which is drawn as often as the others."""
    x = np.zeros((8200, 1))
    weight = np.asarray(prepare(x, x[:, 0], SquaredError(), batch_size=4096).weight)
    assert weight.shape[0] == 9
    assert (weight[-1] > 0).mean() > 0.8
