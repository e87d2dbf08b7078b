"""Boosting by NumPy against boosting by XLA."""

import pickle
from functools import partial

import equinox as eqx
import jax
import jax.monitoring
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import lax
from sklearn.exceptions import NotFittedError

from models import PLAIN
from processes import compilations, run_as_users_do
from vpboost import (
    MLP,
    RBF,
    BSpline,
    CustomLoss,
    Fourier,
    MulticlassCrossEntropy,
    Poisson,
    Quantile,
    ResNet,
    SquaredError,
    Training,
    TrustRegion,
    VPBoostClassifier,
    VPBoostRegressor,
    boost,
)
from vpboost.estimators.plan import engine_of
from vpboost.estimators.portfolio import FALLBACK
from vpboost.estimators.run import Run
from vpboost.featurizers import SomeColumns

RNG = np.random.default_rng(0)
X = RNG.normal(size=(150, 3))
Y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2]
MANY = np.stack([Y, X[:, 0] ** 2, X[:, 1]], axis=1)
SMALL = partial(MLP, width=4)


def both(x, y, **options):
    """Boost with both engines, in double precision so that rounding stays small."""
    options = {"loss": SquaredError(), "featurizer": SMALL, "n_learners": 3, "dtype": "float64", **options}
    return [boost(x, y, engine=engine, **options) for engine in ("numpy", "xla")]


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"training": Training(max_steps=12)},
        {"training": Training(max_steps=12, batch_size=64, reg_theta=1e-3, inherit=0.5)},
        {"training": Training(max_steps=30, tol=0.05, candidates=3)},
        {"training": Training(max_steps=8, method="gd", optimizer="lion")},
        {"training": Training(max_steps=8, method="vp_start_end", optimizer="momentum")},
        {"training": Training(max_steps=8, optimizer=optax.adamw(0.01))},
        {"training": Training(max_steps=8, solver="cg")},
        {"featurizer": partial(ResNet, width=4, activation="gelu")},
        {"featurizer": partial(RBF, n_features=5)},
        {"featurizer": partial(Fourier, n_features=5)},
        {"featurizer": partial(BSpline, n_knots=5)},
        {"featurizer": partial(SomeColumns, factory=SMALL, fraction=0.5), "bias": False},
        {"loss": Quantile(0.8)},
        {"loss": CustomLoss(lambda p, t: jnp.sum(jnp.log(jnp.cosh(p - t))))},
        {"trust_region": TrustRegion(reg_lambda=1e-8, rho_accept=0.6, rho_small=0.9, rate=0.7)},
        {"sample_weight": np.abs(X[:, 0]), "validation": (X[:40], Y[:40])},
    ],
)
def test_both_engines_make_the_same_ensemble(options):
    ours, theirs = both(X, Y, **({"training": Training(max_steps=8)} | options))
    np.testing.assert_allclose(ours.ensemble.predict(X), theirs.ensemble.predict(X), atol=1e-6)
    for one, other in zip(ours.history, theirs.history, strict=True):
        assert (one.accepted, one.solves) == (other.accepted, other.solves)
        np.testing.assert_allclose(one[1:4], other[1:4], rtol=1e-6)
        np.testing.assert_allclose(one[8:-1], other[8:-1], rtol=1e-5, atol=1e-9)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(
    ("loss", "y"),
    [
        (SquaredError(), MANY),
        (Poisson(), np.round(np.exp(MANY))),
        (MulticlassCrossEntropy(), np.digitize(Y, [-0.5, 0.5])),
        (MulticlassCrossEntropy(), np.digitize(Y, np.linspace(-1, 1, 60)) % 61),  # too many for factorisation
        (CustomLoss(lambda p, t: jnp.sum((p - t) ** 2) + jnp.sum(p) ** 2), MANY),
    ],
)
def test_both_engines_agree_on_several_outputs(loss, y):
    ours, theirs = both(X, y, loss=loss, training=Training(max_steps=8), n_learners=2)
    np.testing.assert_allclose(ours.ensemble.predict(X), theirs.ensemble.predict(X), atol=1e-5)


@pytest.mark.slow
@pytest.mark.long
def test_large_arrays_share_memory_safely():
    """Enough rows for results to be kept in memory that is used again."""
    x = np.random.default_rng(2).normal(size=(1300, 3))
    y = np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2]

    class Shaped(eqx.Module):
        weight: jax.Array

        def __init__(self, key, rows):
            self.weight = jax.random.normal(key, (6, rows.shape[1]), rows.dtype)

        def columns(self, x):
            z = jnp.tanh(self.weight @ x)
            return jnp.concatenate([jnp.array(z.reshape(2, 3, -1)).reshape(6, -1) * z, lax.stop_gradient(z[::2]) * x])

        def __call__(self, x):
            return self.columns(x[:, None])[:, 0]

    for featurizer in (partial(MLP, width=8), Shaped, partial(ResNet, width=8, activation="relu")):
        ours, theirs = both(x, y, featurizer=featurizer, training=Training(max_steps=15), n_learners=2)
        np.testing.assert_allclose(ours.ensemble.predict(x), theirs.ensemble.predict(x), atol=1e-6)


@pytest.mark.parametrize("engine", ["numpy", "xla"])
def test_learners_that_overflow_are_rejected(engine):
    model = VPBoostRegressor(
        n_estimators=3, max_steps=5, engine=engine, encoding="plain", inherit=0, step_size=1e38, featurizer="fourier"
    )
    with pytest.warns(UserWarning, match="no learner was accepted"):
        model.fit(X, Y)
    assert np.all(np.isfinite(model.predict(X)))


@pytest.mark.parametrize("engine", ["numpy", "xla"])
@pytest.mark.parametrize("tol", [None, 0.01])
@pytest.mark.parametrize("method", ["vp", "gd"])
def test_parameters_of_another_precision_or_none(engine, tol, method):
    class Single(eqx.Module):
        weight: jax.Array

        def __init__(self, key, rows):
            self.weight = jax.random.normal(key, (3, rows.shape[1]), jnp.float32)

        def __call__(self, x):
            return jnp.tanh(self.weight @ x.astype(jnp.float32)).astype(x.dtype)

    class Fixed(eqx.Module):
        def __call__(self, x):
            return jnp.sin(x)

    training = Training(max_steps=25, tol=tol, method=method)
    for factory in (Single, lambda key, rows: Fixed()):
        options = {"training": training, "dtype": "float64", "engine": engine, "n_learners": 2}
        fit = boost(X, Y, loss=SquaredError(), featurizer=factory, **options)
        assert fit.history[-1].loss < 0.5 * np.var(Y)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("n_classes", [3, 60])
def test_the_constant_of_a_singular_loss(n_classes):
    """The softmax's Hessian is singular; c₀ is the log of the frequencies up to a shift."""
    frequency = np.arange(1.0, n_classes + 1) / np.sum(np.arange(1, n_classes + 1))
    y = np.tile(frequency, (70, 1))
    loss = CustomLoss(lambda p, t: -jnp.sum(t * jax.nn.log_softmax(p)))
    for engine in ("numpy", "xla"):
        fit = boost(X[:70], y, loss=loss, featurizer=SMALL, n_learners=0, engine=engine)
        found = np.asarray(fit.ensemble.constant, float)
        np.testing.assert_allclose(np.exp(found) / np.exp(found).sum(), frequency, atol=1e-3)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_resuming_with_numpy_gives_the_same_bits(dtype):
    options = dict(loss=SquaredError(), featurizer=SMALL, training=Training(max_steps=10, inherit=0.5), dtype=dtype)
    whole = boost(X, Y, n_learners=4, engine="numpy", **options)
    part = boost(X, Y, n_learners=2, engine="numpy", **options)
    resumed = boost(X, Y, n_learners=4, engine="numpy", resume=part, **options)
    np.testing.assert_array_equal(resumed.ensemble.weights, whole.ensemble.weights)
    assert resumed.ensemble.weights.dtype == dtype


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(
    ("estimator", "y"),
    [
        (VPBoostRegressor(n_estimators=3, max_steps=20), lambda x: x[:, 0] ** 2),
        (VPBoostRegressor(**PLAIN, n_estimators=3, max_steps=20, loss="quantile"), lambda x: x[:, 0] ** 2),
        (VPBoostRegressor(**PLAIN, n_estimators=3, max_steps=20), lambda x: np.stack([x[:, 0], x[:, 1] ** 2], axis=1)),
        (VPBoostRegressor(**PLAIN, n_estimators=3, max_steps=20), lambda x: np.tanh(x @ np.ones((4, 70)))),  # a sketch
        (VPBoostRegressor(**PLAIN, n_estimators=3, max_steps=20, batch_size=50), lambda x: x[:, 0] ** 2),
        (
            VPBoostRegressor(**PLAIN, n_estimators=3, max_steps=20, method="gd", candidates=2, tol=1e-3),
            lambda x: x[:, 0] ** 2,
        ),
        (VPBoostClassifier(n_estimators=3), lambda x: x[:, 0] > 0),
        (VPBoostClassifier(**PLAIN, n_estimators=3), lambda x: np.digitize(x[:, 0], [-0.5, 0.5])),
    ],
)
def test_fitting_a_small_table_compiles_nothing(estimator, y):
    x = np.random.default_rng(1).normal(size=(317, 4))

    def work():
        estimator.fit(x, y(x)).predict(x)

    assert compilations(work) == 0
    assert engine_of(estimator, FALLBACK, (317, 4), False) == "numpy"


def test_compilations_are_counted():
    x = np.random.default_rng(1).normal(size=(90, 13))
    assert compilations(lambda: VPBoostRegressor(n_estimators=1, engine="xla").fit(x, x[:, 0])) > 3


def test_the_engine_is_chosen_by_the_length_of_training():
    model = VPBoostRegressor()
    assert [engine_of(model, FALLBACK, shape, False) for shape in ((3000, 9), (3001, 9), (50, 8, 8))] == [
        "numpy",
        "xla",
        "xla",
    ]
    assert [engine_of(model, FALLBACK, (rows, 9), True) for rows in (1000, 1001)] == ["numpy", "xla"]
    long = FALLBACK._replace(max_steps=500)
    assert [engine_of(model, long, (rows, 3), False) for rows in (20, 21)] == ["numpy", "xla"]
    assert engine_of(VPBoostRegressor(engine="numpy"), FALLBACK, (10**6, 9), False) == "numpy"
    assert engine_of(VPBoostClassifier(engine="xla"), FALLBACK, (10, 9), False) == "xla"
    with pytest.raises(ValueError, match="engine must be 'auto' or one of 'xla', 'numpy', 'native', got 'gpu'"):
        VPBoostRegressor(engine="gpu").fit(X, Y)
    with pytest.raises(ValueError, match="engine must be one of 'xla', 'numpy', 'native', got 'auto'"):
        boost(X, Y, loss=SquaredError(), featurizer=SMALL, engine="auto")


def quartic(prediction, target):
    return jnp.sum((prediction - target) ** 4 + (prediction - target) ** 2)


def test_several_classes_go_to_xla_earlier(monkeypatch):
    seen, engines = [], []
    monkeypatch.setattr(Run, "boost", lambda self, *args: seen.append(self.plan.engine) or 1 / 0)
    x = np.random.default_rng(0).normal(size=(1500, 2))
    settings = {"encoding": "plain", "inherit": 0.5, "early_stopping_rounds": None, "featurizer": "resnet"}
    dense, diagonal = (CustomLoss(quartic, structure=structure) for structure in ("dense", "diagonal"))
    for model, y in [
        (VPBoostClassifier(**settings), x[:, 0] > 0),
        (VPBoostClassifier(**settings), np.digitize(x[:, 0], [-1, 1])),
        (VPBoostRegressor(loss=dense, **settings), x[:, 0]),
        (VPBoostRegressor(loss=dense, **settings), x),
        (VPBoostRegressor(loss=diagonal, **settings), x),
    ]:
        with pytest.raises(ZeroDivisionError):
            model.fit(x, y)
        engines.append(set(seen))  # profiles race side by side: the second may begin before the first has failed
        seen.clear()
    assert engines == [{"numpy"}, {"xla"}, {"numpy"}, {"xla"}, {"numpy"}]


@pytest.mark.slow
@pytest.mark.long
def test_importances_are_computed_when_asked_for():
    model = VPBoostRegressor(n_estimators=5, max_steps=5)
    with pytest.raises(NotFittedError):
        _ = model.feature_importances_
    assert not hasattr(model, "feature_importances_")
    model.fit(X, Y)
    other = pickle.loads(pickle.dumps(model))
    np.testing.assert_allclose(model.feature_importances_.sum(), 1)
    np.testing.assert_array_equal(model.feature_importances_, other.feature_importances_)
    first = model.feature_importances_
    assert model.fit(X, X[:, 2]).feature_importances_[2] > first[2]


SCRIPT = """
import hashlib, os, sys
os.sched_setaffinity(0, [int(core) for core in sys.argv[1].split(",")])
import numpy as np
from vpboost import VPBoostClassifier, VPBoostRegressor
from vpboost.estimators.plan import engine_of
from vpboost.estimators.portfolio import FALLBACK
digest = hashlib.sha256()
x = np.random.default_rng(0).normal(size=(1500, 9))
mixed = np.tanh(x @ np.random.default_rng(1).normal(size=(9, 20)))
for model, y in [
    (VPBoostRegressor(width=64, n_estimators=2, encoding="plain", inherit=0.8, max_features=1.0), mixed),
    (VPBoostRegressor(n_estimators=3, candidates=2, encoding="spline"), x[:, 0] * x[:, 1]),
    (VPBoostClassifier(n_estimators=2, encoding="plain", engine="numpy"), np.argmax(x, axis=1)),
]:
    model.fit(x, y)
    assert engine_of(model, FALLBACK, x.shape, False) == "numpy"
    digest.update(np.asarray(model.ensemble_.weights).tobytes() + str(model.profile_).encode())
print(digest.hexdigest())
"""


@pytest.mark.slow
@pytest.mark.long
def test_same_bits_on_one_core_and_on_two_with_numpy():
    import os

    if not hasattr(os, "sched_setaffinity") or len(os.sched_getaffinity(0)) < 2:
        pytest.skip("this system cannot pin a process to cores, or has one")
    first, second, *_ = sorted(os.sched_getaffinity(0))
    assert run_as_users_do(SCRIPT, str(first)) == run_as_users_do(SCRIPT, f"{first},{second}")
