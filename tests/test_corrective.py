"""The joint solve of all linear weights, against ridge and logistic regression on the stacked features."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge

from vpboost import MLP, BinaryCrossEntropy, Ensemble, MulticlassCrossEntropy, SquaredError, refit
from vpboost.featurizers import columns, with_bias

N_ROWS, N_LEARNERS, WIDTH = 120, 3, 4


def random_ensemble(n_outputs: int, seed: int = 0) -> tuple[Ensemble, np.ndarray]:
    """Return an ensemble of untrained learners in double precision, and inputs."""
    x = np.random.default_rng(seed).normal(size=(N_ROWS, 2))
    with jax.enable_x64(True):
        keys = jax.random.split(jax.random.key(seed), N_LEARNERS)
        rows = jnp.asarray(x)
        learners = [
            (MLP(key, rows, width=WIDTH, depth=1), jax.random.normal(key, (WIDTH, n_outputs), "float64"))
            for key in keys
        ]
        learners = [(jax.tree.map(lambda leaf: leaf.astype("float64"), f), w) for f, w in learners]
        return Ensemble.stack(jnp.zeros(n_outputs, "float64"), learners), x


def stacked_features(ensemble: Ensemble, x: np.ndarray) -> np.ndarray:
    """Return the features of all learners, row by row."""
    with jax.enable_x64(True):
        return np.concatenate([jax.vmap(f)(jnp.asarray(x)) for f, _ in ensemble.unstack()], axis=1)


def stacked_weights(ensemble: Ensemble) -> np.ndarray:
    return np.asarray(ensemble.weights).reshape(-1, ensemble.n_outputs)


def test_squared_error_gives_ridge_regression():
    ensemble, x = random_ensemble(2)
    y = np.stack([np.sin(2 * x[:, 0]), x[:, 0] * x[:, 1]], axis=1)
    weight = np.random.default_rng(1).uniform(0.1, 2, N_ROWS)
    again = refit(ensemble, x, y, loss=SquaredError(), reg_lambda=1e-3, sample_weight=weight)
    # scikit-learn's penalty stands beside the sum of weighted squares, ours beside half their mean
    ridge = Ridge(alpha=1e-3 * weight.sum(), fit_intercept=False).fit(stacked_features(ensemble, x), y, weight)
    np.testing.assert_allclose(stacked_weights(again), ridge.coef_.T, rtol=1e-7, atol=1e-9)
    assert again.featurizers is ensemble.featurizers


@pytest.mark.parametrize("n_classes", [2, 3])
def test_cross_entropies_give_logistic_regression(n_classes):
    ensemble, x = random_ensemble(1 if n_classes == 2 else n_classes)
    y = np.digitize(x[:, 0] + 0.5 * x[:, 1] ** 2, np.linspace(0, 1, n_classes - 1))
    loss = BinaryCrossEntropy() if n_classes == 2 else MulticlassCrossEntropy(n_classes)
    again = refit(ensemble, x, y, loss=loss, reg_lambda=1e-2)
    logistic = LogisticRegression(C=1 / (1e-2 * N_ROWS), fit_intercept=False, tol=1e-10, max_iter=10_000)
    logistic.fit(stacked_features(ensemble, x), y)
    np.testing.assert_allclose(stacked_weights(again), logistic.coef_.T, rtol=1e-4, atol=1e-5)


def test_the_constant_in_front_counts():
    ensemble, x = random_ensemble(1)
    y = (x[:, 0] > 0.8).astype(int)
    with jax.enable_x64(True):
        shifted = Ensemble(jnp.full(1, -1.5, "float64"), ensemble.featurizers, ensemble.weights)
    again = refit(shifted, x, y, loss=BinaryCrossEntropy(), reg_lambda=1e-2)
    chance = 1 / (1 + np.exp(-again.predict(x)[:, 0]))
    # at the minimum the slope of the mean loss and that of the penalty cancel
    slope = stacked_features(ensemble, x).T @ (chance - y) / N_ROWS + 1e-2 * stacked_weights(again)[:, 0]
    assert np.abs(slope).max() < 1e-8


def test_large_coupled_systems_go_to_conjugate_gradients(monkeypatch):
    ensemble, x = random_ensemble(3)
    y = np.digitize(x[:, 0], [-0.5, 0.5])
    exact = refit(ensemble, x, y, loss=MulticlassCrossEntropy(3), reg_lambda=1e-2)
    monkeypatch.setattr("vpboost.core.reduced.MAX_DENSE_UNKNOWNS", 1)
    # another number of steps, so that the program compiled just now does not serve
    by_cg = refit(ensemble, x, y, loss=MulticlassCrossEntropy(3), reg_lambda=1e-2, n_steps=11)
    np.testing.assert_allclose(by_cg.weights, exact.weights, atol=1e-4)


def test_few_steps_never_raise_the_objective():
    ensemble, x = random_ensemble(1, seed=3)
    y = (x[:, 0] * x[:, 1] > 0).astype(int)
    with jax.enable_x64(True):
        far = Ensemble(ensemble.constant, ensemble.featurizers, 50 * ensemble.weights)

    def objective(model: Ensemble) -> float:
        raw = model.predict(x)[:, 0]
        return np.mean(np.logaddexp(0, raw) - y * raw) + 0.5e-3 * np.sum(np.asarray(model.weights) ** 2)

    values = [objective(far)]
    for _ in range(3):
        far = refit(far, x, y, loss=BinaryCrossEntropy(), reg_lambda=1e-3, n_steps=1)
        values.append(objective(far))
    assert values == sorted(values, reverse=True)
    assert values[-1] < 0.5 * values[0]


def test_single_precision_comes_close_where_the_system_is_nearly_singular():
    """Every learner has its bias feature, so the joint system is singular but for λ; rows fill two blocks."""
    rng = np.random.default_rng(0)
    x, weight = rng.uniform(-1, 1, (9000, 2)).astype("float32"), rng.uniform(0, 1, 9000)
    y = (np.sin(4 * x[:, 0]) * np.cos(3 * x[:, 1]) > 0).astype(int)
    make = with_bias(partial(MLP, width=4, depth=1))
    keys = jax.random.split(jax.random.key(0), 6)
    learners = [(make(key, jnp.asarray(x)), jnp.zeros((5, 1))) for key in keys]
    start, features = Ensemble.stack(jnp.zeros(1), learners), [np.asarray(columns(f, x.T), float) for f, _ in learners]
    z, share = np.concatenate(features), weight / weight.sum()

    def objective(model: Ensemble) -> float:
        weights = np.asarray(model.weights, float).reshape(-1)
        raw = z.T @ weights
        return share @ (np.logaddexp(0, raw) - y * raw) + 0.5e-6 * weights @ weights

    def exact() -> float:
        weights = np.zeros(len(z))
        for _ in range(30):
            chance = 1 / (1 + np.exp(-z.T @ weights))
            slope = z @ (share * (chance - y)) + 1e-6 * weights
            weights -= np.linalg.solve((z * share * chance * (1 - chance)) @ z.T + 1e-6 * np.eye(len(z)), slope)
        raw = z.T @ weights
        return share @ (np.logaddexp(0, raw) - y * raw) + 0.5e-6 * weights @ weights

    found = refit(start, x, y, loss=BinaryCrossEntropy(), reg_lambda=1e-6, sample_weight=weight)
    assert objective(start) > 1.02 * exact()
    assert objective(found) == pytest.approx(exact(), rel=1e-4)
    again = refit(found, x, y, loss=BinaryCrossEntropy(), reg_lambda=1e-6, sample_weight=weight)
    assert objective(again) <= objective(found) * (1 + 1e-6)


def test_an_empty_ensemble_stays_as_it_is():
    empty = Ensemble.stack(jnp.zeros(1), [])
    assert refit(empty, np.zeros((2, 1)), [0.0, 1.0], loss=SquaredError()) is empty


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"reg_lambda": 0}, "reg_lambda must be positive and finite, got 0"),
        ({"n_steps": 0}, "n_steps must be a whole number of at least 1, got 0"),
        ({"y": np.zeros((N_ROWS, 2))}, "y must have 1 outputs or classes, got 2"),
        ({"y": np.zeros(3)}, "x and y must have as many rows, got 120 and 3"),
        ({"x": np.zeros((N_ROWS, 5))}, r"x has rows of shape \(5,\), which the ensemble was not trained on"),
        ({"reg_lambda": None}, "reg_lambda must be positive and finite, got None"),
        ({"loss": "squared_error"}, "loss must be a vpboost loss .* got str"),
        ({"ensemble": "model"}, "ensemble must be an Ensemble, as in .* got str"),
    ],
)
def test_errors_name_the_argument(change, message):
    ensemble, x = random_ensemble(1)
    arguments = {"ensemble": ensemble, "x": x, "y": np.zeros(N_ROWS), "loss": SquaredError()} | change
    with pytest.raises((TypeError, ValueError), match=message):
        refit(**arguments)
