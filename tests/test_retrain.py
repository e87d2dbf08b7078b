from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from processes import compilations
from vpboost import MLP, BinaryCrossEntropy, MulticlassCrossEntropy, SquaredError, Training, boost, datasets, retrain
from vpboost.core import retrain as module
from vpboost.core.boosting import mean_loss
from vpboost.core.data import prepare

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, size=(300, 2))
Y = np.sin(4 * X[:, 0]) * X[:, 1]
LEARNER = partial(MLP, width=4, depth=1)


@pytest.fixture(scope="module")
def boosted():
    return boost(X, Y, loss=SquaredError(), featurizer=LEARNER, n_learners=4, training=Training(max_steps=100)).ensemble


@pytest.mark.parametrize(
    ("loss", "y"),
    [
        (SquaredError(), np.stack([Y, X[:, 0]], axis=1)),
        (BinaryCrossEntropy(), (Y > 0).astype(int)),
        (MulticlassCrossEntropy(), np.digitize(Y, [-0.3, 0.3])),
    ],
)
def test_the_model_in_h_is_the_second_order_expansion_of_the_loss(loss, y):
    with jax.enable_x64(True):
        data = prepare(X, y, loss, None, np.float64)
        shape = (*data.weight.shape, data.n_outputs)
        now, h, d = (jnp.asarray(RNG.normal(size=shape)) for _ in range(3))
        derivatives = module.model_around(loss, now, h, data)
        errors = []
        for step in (1e-2, 5e-3):
            moved = module.quadratic(derivatives, h + step * d) - module.quadratic(derivatives, h)
            true = mean_loss(loss, now + step * d, data.target, data.weight)
            errors.append(abs(float(moved - true + mean_loss(loss, now, data.target, data.weight))))
        if isinstance(loss, SquaredError):
            assert max(errors) < 1e-12
        else:
            assert errors[0] < 1e-5
            assert errors[0] / errors[1] == pytest.approx(8, rel=0.2)  # what is left is of third order


def test_learners_trained_again_together_are_better(boosted):
    again = retrain(boosted, X, Y, loss=SquaredError())
    before, after = (np.mean((one.predict(X)[:, 0] - Y) ** 2) for one in (boosted, again))
    assert after < 0.2 * before
    assert (again.n_learners, again.n_parameters) == (boosted.n_learners, boosted.n_parameters)
    same = retrain(boosted, X, Y, loss=SquaredError())
    np.testing.assert_array_equal(same.predict(X), again.predict(X))


@pytest.mark.slow
@pytest.mark.long
def test_task_1_gains_an_order_of_magnitude():
    data = datasets.task1()
    fit = boost(
        data.x_train, data.y_train, loss=SquaredError(), featurizer=partial(MLP, width=4, depth=2, init_scale=4.0),
        n_learners=10, training=Training(max_steps=300, step_size=0.05),
    )  # fmt: skip
    options = {"reg_lambda": 1e-8, "validation": (data.x_val, data.y_val)}
    again = retrain(fit.ensemble, data.x_train, data.y_train, loss=SquaredError(), **options)
    errors = [np.mean((one.predict(data.x_test)[:, 0] - data.y_test) ** 2) for one in (fit.ensemble, again)]
    assert errors[1] < 0.2 * errors[0]


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("loss", [BinaryCrossEntropy(), MulticlassCrossEntropy()])
def test_cross_entropies_fall_round_by_round(loss):
    y = np.digitize(Y, [0.0] if isinstance(loss, BinaryCrossEntropy) else [-0.3, 0.3])
    fit = boost(X, y, loss=loss, featurizer=LEARNER, n_learners=3, training=Training(max_steps=50))
    quick = Training(max_steps=50, step_size=0.01)
    once, twice = (
        retrain(fit.ensemble, X, y, loss=loss, training=quick, rounds=rounds, reg_lambda=1e-5) for rounds in (1, 3)
    )

    def loss_of(ensemble):
        data = prepare(X, y, loss)
        return module.losses_of(ensemble, loss, [data])[0]

    assert loss_of(twice) < loss_of(once) < loss_of(fit.ensemble)


@pytest.mark.slow
@pytest.mark.long
def test_many_learners_are_trained_group_by_group(boosted, monkeypatch):
    monkeypatch.setattr(module, "MOST_FEATURES", 10)  # two learners of five features
    once = retrain(boosted, X, Y, loss=SquaredError(), rounds=1)
    changed = [not np.array_equal(one, other) for one, other in zip(boosted.weights, once.weights, strict=True)]
    assert sum(changed) == 2
    several = retrain(boosted, X, Y, loss=SquaredError(), rounds=6)
    errors = [np.mean((one.predict(X)[:, 0] - Y) ** 2) for one in (boosted, once, several)]
    assert errors[2] < errors[1] < errors[0]


def test_validation_has_the_last_word(boosted):
    other = X[::-1], RNG.normal(size=300)  # nothing that can be learnt from the training data
    kept = boosted.truncate(1)
    found = retrain(kept, X[:30], Y[:30], loss=SquaredError(), validation=other)
    losses = [np.mean((one.predict(other[0])[:, 0] - other[1]) ** 2) for one in (kept, found)]
    assert losses[1] <= losses[0]


def test_an_ensemble_without_learners_stays(boosted):
    empty = boosted.truncate(0)
    assert retrain(empty, X, Y, loss=SquaredError()) is empty


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rounds": 0}, "rounds must be a whole number of at least 1"),
        ({"reg_lambda": 0.0}, "reg_lambda must be positive"),
        ({"training": Training(method="gd")}, "training must be a Training with method='vp'"),
        ({"training": 3}, "training must be a Training"),
    ],
)
def test_bad_arguments_are_named(boosted, options, message):
    with pytest.raises(ValueError, match=message):
        retrain(boosted, X, Y, loss=SquaredError(), **options)
    with pytest.raises(ValueError, match="y must have 1 outputs"):
        retrain(boosted, X, np.stack([Y, Y], axis=1), loss=SquaredError())
    with pytest.raises(ValueError, match="x has rows of shape"):
        retrain(boosted, X[:, :1], Y, loss=SquaredError())


def test_other_steps_and_penalties_need_no_other_programs(boosted):
    def again(step_size, reg_lambda):
        training = Training(max_steps=20, step_size=step_size)
        retrain(boosted, X, Y, loss=SquaredError(), training=training, reg_lambda=reg_lambda, rounds=1)

    again(0.01, 1e-6)
    assert compilations(lambda: again(0.02, 1e-5)) == 0
