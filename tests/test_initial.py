from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from processes import compilations
from vpboost import MLP, SquaredError, Training, boost
from vpboost.core.initial import STAGES_AT_ONCE, blend, initial_populations
from vpboost.featurizers import SomeColumns

FACTORY = partial(MLP, width=3, depth=1)
ROWS = jnp.linspace(-1, 1, 20).reshape(10, 2)


def arrays(tree):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree) if hasattr(leaf, "dtype")]


def test_a_stage_starts_the_same_wherever_boosting_began():
    key = jax.random.key(0)
    from_first = initial_populations(FACTORY, True, key, ROWS, 2, 0)
    from_third = initial_populations(FACTORY, True, key, ROWS, 2, 3)
    for _ in range(3):
        next(from_first)
    for _ in range(STAGES_AT_ONCE + 1):  # past the end of a batch of stages
        (key_a, one), (key_b, other) = next(from_first), next(from_third)
        np.testing.assert_array_equal(jax.random.key_data(key_a), jax.random.key_data(key_b))
        for left, right in zip(arrays(one), arrays(other), strict=True):
            np.testing.assert_array_equal(left, right)


def test_equal_factories_share_a_program():
    keys = jax.random.split(jax.random.key(0), (2, 1))

    def build():
        factory = partial(SomeColumns, factory=partial(MLP, width=5), fraction=jnp.asarray(0.5))
        population = next(initial_populations(factory, True, keys[0, 0], ROWS, 1, 0))[1]
        assert arrays(population)[0].shape == (1, 5, 2)

    build()
    assert compilations(build) == 0


def test_blending_is_linear_and_leaves_structure_alone():
    factory = partial(SomeColumns, factory=FACTORY, fraction=0.5)
    (_, old), (_, new) = (next(initial_populations(factory, False, jax.random.key(s), ROWS, 2, 0)) for s in (1, 2))
    last = jax.tree.map(lambda leaf: leaf[0] if hasattr(leaf, "dtype") else leaf, old)
    mixed = blend(last, new, jnp.asarray(0.75))
    for before, fresh, found in zip(arrays(last), arrays(new), arrays(mixed), strict=True):
        expected = fresh if fresh.dtype == bool else 0.75 * before + 0.25 * fresh
        np.testing.assert_allclose(found, expected, atol=1e-7)


@pytest.mark.parametrize("inherit", [0.0, 0.8])
def test_inheriting_boosting_resumes_bit_for_bit(inherit):
    x = np.random.default_rng(0).uniform(-1, 1, size=(120, 2))
    y = np.sin(4 * x[:, 0]) + x[:, 1] ** 2
    options = {"loss": SquaredError(), "featurizer": FACTORY, "training": Training(max_steps=20, inherit=inherit)}
    whole = boost(x, y, n_learners=5, **options)
    resumed = boost(x, y, n_learners=5, resume=boost(x, y, n_learners=2, **options), **options)
    np.testing.assert_array_equal(whole.ensemble.predict(x), resumed.ensemble.predict(x))


def test_inheriting_learners_resemble_their_parents():
    x = np.random.default_rng(0).uniform(-1, 1, size=(120, 2))
    y = np.sin(4 * x[:, 0]) + x[:, 1] ** 2

    def distance(inherit):
        training = Training(max_steps=5, step_size=1e-3, inherit=inherit)
        fit = boost(x, y, n_learners=2, loss=SquaredError(), featurizer=FACTORY, training=training)
        first, second = (np.concatenate([a.ravel() for a in arrays(f)]) for f, _ in fit.ensemble.unstack())
        return np.linalg.norm(first - second)

    # steps are tiny, so θ₂ − θ₁ ≈ (1 − inherit)(fresh − θ₁)
    np.testing.assert_allclose(distance(0.9), 0.1 * distance(0.0), rtol=0.2)
    with pytest.raises(ValueError, match=r"inherit must be in \[0, 1\), got 1.0"):
        Training(inherit=1.0)


def test_some_columns_are_hidden():
    rows = jnp.asarray(np.random.default_rng(0).normal(size=(30, 6)))
    groups = (0, 1, 2, 3, 0, 1)  # the last two columns encode the first two inputs again
    for seed in range(5):
        factory = partial(SomeColumns, factory=FACTORY, fraction=0.5, groups=groups)
        module = factory(jax.random.key(seed), rows)
        seen = np.asarray(module.seen)
        assert seen[:4].sum() == 2
        np.testing.assert_array_equal(seen[4:], seen[:2])
        slopes = np.asarray(jax.jacobian(module)(rows[0]))
        np.testing.assert_array_equal(np.any(slopes != 0, axis=0), seen)
        inner = module.featurizer(np.sqrt(6 / seen.sum()) * jnp.where(seen, rows[0], 0))
        np.testing.assert_allclose(module(rows[0]), inner, atol=1e-6)
    assert np.asarray(SomeColumns(jax.random.key(0), rows, factory=FACTORY, fraction=0.01).seen).sum() == 1
    assert np.asarray(SomeColumns(jax.random.key(0), rows, factory=FACTORY, fraction=1.0).seen).all()
    with pytest.raises(ValueError, match="SomeColumns needs a table"):
        SomeColumns(jax.random.key(0), jnp.zeros((3, 4, 4)), factory=FACTORY, fraction=0.5)


def test_featurizers_may_hold_random_keys():
    class Noisy(eqx.Module):
        scale: jax.Array
        key: jax.Array

        def __init__(self, key, rows):
            self.scale, self.key = jnp.ones(2), key

        def __call__(self, x):
            return self.scale * jax.random.normal(self.key, (2,)) + x

    stages = initial_populations(Noisy, False, jax.random.key(0), ROWS, 1, 0)
    (_, one), (_, other) = next(stages), next(stages)
    assert one.key.shape == (1,)
    assert not np.array_equal(jax.random.key_data(one.key), jax.random.key_data(other.key))
