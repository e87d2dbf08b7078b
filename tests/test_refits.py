"""Fits that fail, go on or resume: never a mixture of two models, never a setting that is silently ignored."""

import pickle
from types import FunctionType

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.metrics import root_mean_squared_error

from vpboost import (
    BinaryCrossEntropy,
    CustomLoss,
    Quantile,
    SquaredError,
    Training,
    VPBoostClassifier,
    VPBoostRegressor,
    boost,
    load_model,
)
from vpboost.callbacks import Checkpoint
from vpboost.estimators.metrics import score_function
from vpboost.estimators.resuming import describe_setting
from vpboost.files.checkpoint import CheckpointError

PLAIN = {"n_estimators": 5, "learning_rate": 0.5, "encoding": "plain", "inherit": 0.0, "max_features": None}
X = np.random.default_rng(0).normal(size=(300, 3))
Y = np.sin(X[:, 0]) + X[:, 1]


def fail(*_):
    raise RuntimeError("on purpose")


@pytest.mark.parametrize(
    ("again", "error"),
    [
        (lambda m: m.set_params(callbacks=[fail]).fit(X, 1000 * Y + 5e5), RuntimeError),
        (lambda m: m.fit(X, Y, sample_weight=-np.ones(300)), ValueError),
        (lambda m: m.fit(X[:, :2], np.stack([Y, Y], axis=1), sample_weight=-np.ones(300)), ValueError),
        (lambda m: m.fit(X, Y[:5]), ValueError),
        (lambda m: m.set_params(loss="nothing").fit(X[:, :1], Y), ValueError),
    ],
)
def test_a_fit_that_fails_leaves_the_model_as_it_was(again, error):
    model = VPBoostRegressor(**PLAIN).fit(X, Y)
    before = model.predict(X)
    with pytest.raises(error):
        again(model)
    np.testing.assert_array_equal(model.predict(X), before)
    fresh = VPBoostRegressor(**PLAIN)
    with pytest.raises(error):
        again(fresh)
    with pytest.raises(NotFittedError):
        fresh.predict(X)


def test_a_failed_refit_keeps_the_classes():
    model = VPBoostClassifier(**PLAIN).fit(X, np.where(Y > 0, "a", "b"))
    with pytest.raises(ValueError, match="sample_weight"):
        model.fit(X, np.where(Y > 0, "x", np.where(Y > -1, "w", "v")), sample_weight=-np.ones(300))
    assert set(model.predict(X)) == {"a", "b"}


def test_validation_arguments_that_would_be_ignored():
    model = VPBoostRegressor(**PLAIN)
    with pytest.raises(ValueError, match="sample_weight_val goes with X_val and y_val, which are not given"):
        model.fit(X, Y, sample_weight_val=np.ones(7))
    with pytest.raises(ValueError, match="as X_val and y_val or as eval_set, not both"):
        model.fit(X, Y, y_val=Y, eval_set=(X, Y))


def test_validation_targets_are_found_by_name():
    pd = pytest.importorskip("pandas")
    two = pd.DataFrame({"u": Y, "v": 100 * X[:, 2]})
    straight = VPBoostRegressor(**PLAIN).fit(X[:200], two[:200], X_val=X[200:], y_val=two[200:])
    turned = VPBoostRegressor(**PLAIN).fit(X[:200], two[:200], X_val=X[200:], y_val=two[["v", "u"]][200:])
    assert turned.evals_result_ == straight.evals_result_


def test_warm_starts_on_other_validation_data():
    first = {"X_val": X[200:], "y_val": Y[200:]}
    model = VPBoostRegressor(**PLAIN, warm_start=True).fit(X[:200], Y[:200], **first)
    model.set_params(n_estimators=8).fit(X[:200], Y[:200], **first)
    assert np.isfinite(model.evals_result_["validation"]).all()
    with pytest.warns(
        UserWarning, match="the validation data are not those of the fit that warm_start=True goes on with"
    ):
        model.set_params(n_estimators=12).fit(X[:200], Y[:200], X_val=X[200:], y_val=Y[200:] + 30)
    assert np.isnan(model.evals_result_["validation"][:8]).all()
    assert model.best_iteration_ > 8
    without = VPBoostRegressor(**PLAIN, warm_start=True, early_stopping_rounds=None).fit(X, Y)
    with pytest.warns(UserWarning, match="rows trained on before may be among them"):
        without.set_params(n_estimators=8, early_stopping_rounds=5).fit(X, Y)


def test_a_loaded_model_goes_on_with_the_same_validation_data(tmp_path):
    model = VPBoostRegressor(**PLAIN, warm_start=True).fit(X, Y)
    model.save_model(tmp_path / "m")
    again = load_model(tmp_path / "m").set_params(n_estimators=8).fit(X, Y)
    assert again.evals_result_ == model.set_params(n_estimators=8).fit(X, Y).evals_result_


def test_functions_are_told_apart(tmp_path):
    def one(p, t):
        return (p[0] - t[0]) ** 2

    def other(p, t):
        return (p[0] - t[0]) ** 4 + (p[0] - t[0]) ** 2

    assert describe_setting(lambda a: a + 1) != describe_setting(lambda a: a + 2)
    assert describe_setting(one) == describe_setting(one) != describe_setting(other)
    model = VPBoostRegressor(**PLAIN, loss=one, warm_start=True).fit(X, Y)
    with pytest.raises(ValueError, match="loss cannot change while warm_start=True"):
        model.set_params(loss=other, n_estimators=8).fit(X, Y)
    options = {**PLAIN, "eval_metric": lambda y, p: float(np.abs(y - p).max())}
    VPBoostRegressor(**options, callbacks=[Checkpoint(tmp_path / "c", every=2)]).fit(X, Y)
    with pytest.raises(CheckpointError, match="other settings"):
        VPBoostRegressor(**{**options, "eval_metric": lambda y, p: float(np.abs(y - p).mean())}).fit(
            X, Y, resume_from=tmp_path / "c"
        )


def test_a_checkpoint_keeps_its_profile(tmp_path):
    VPBoostRegressor(**PLAIN, callbacks=[Checkpoint(tmp_path / "c", every=2)]).fit(X, Y)
    with pytest.raises(ValueError, match="encoding cannot change while resume_from="):
        VPBoostRegressor(**{**PLAIN, "encoding": "spline"}).fit(X, Y, resume_from=tmp_path / "c")
    assert VPBoostRegressor(n_estimators=5, learning_rate=0.5).fit(X, Y, resume_from=tmp_path / "c").n_iter_ == 5


@pytest.mark.parametrize(
    ("name", "values"),
    [
        *(
            (name, ["a", None, True, [1.0]])
            for name in ("reg_lambda", "reg_theta", "rho_small", "gamma_up", "gamma_down")
        ),
        ("step_size", ["a", True, [0.1]]),
        ("tol", ["a", False]),
        ("validation_fraction", ["a", None, True]),
        ("early_stopping_rounds", ["a", True, [3], 0]),
        ("warm_start", ["no", 1, None]),
        ("verbose", ["yes", -1, None]),
        ("random_state", [True]),
        ("dtype", [None, "foo", 5, "float16"]),
        ("method", [["vp"], None]),
        ("encoding", [["spline"], None, 3]),
    ],
)
def test_settings_that_make_no_sense(name, values):
    for value in values:
        with pytest.raises((ValueError, TypeError), match=f"{name} must be"):
            VPBoostRegressor(**{name: value}).fit(X, Y)


def test_losses_of_other_numbers_of_outputs():
    with pytest.raises(ValueError, match="loss predicts outputs=2 numbers a row, y has 1"):
        VPBoostRegressor(loss=CustomLoss(lambda p, t: (p[0] - t[0]) ** 2 + p[1] ** 2, outputs=2)).fit(X, Y)
    with pytest.raises(ValueError, match="got BinaryCrossEntropy; use VPBoostClassifier"):
        VPBoostRegressor(loss=BinaryCrossEntropy()).fit(X, (Y > 0).astype(float))
    with pytest.raises(TypeError, match=r"not the class SquaredError: give SquaredError\(\)"):
        VPBoostRegressor(loss=SquaredError).fit(X, Y)


def test_a_model_without_learners_says_so():
    import jax.numpy as jnp

    with pytest.warns(UserWarning, match="no learner was accepted: the model predicts a constant"):
        VPBoostRegressor(**PLAIN, activation=lambda x: jnp.log(x)).fit(X, Y)


def test_the_warning_of_unfinished_fits_is_not_raised_when_the_score_rose(recwarn):
    rng = np.random.default_rng(1)
    noise = VPBoostRegressor(**{**PLAIN, "n_estimators": 8}).fit(X, rng.normal(size=300))
    assert noise.best_iteration_ < 4
    assert not [w for w in recwarn if issubclass(w.category, ConvergenceWarning)]


def test_balanced_classes_are_so_in_the_training_data():
    y, y_val = (Y > 1).astype(int), (Y[:100] > 0).astype(int)
    common = {"X_val": X[:100], "y_val": y_val}
    balanced = VPBoostClassifier(**PLAIN, class_weight="balanced").fit(X, y, **common)
    weights = 300 / (2 * np.bincount(y))
    given = VPBoostClassifier(**PLAIN, class_weight=dict(enumerate(weights))).fit(X, y, **common)
    np.testing.assert_allclose(balanced.evals_result_["validation"], given.evals_result_["validation"])


def test_rmse_of_several_outputs_is_scikit_learns():
    truth, found = X, X * [1.0, 2.0, 30.0]
    score = score_function("rmse", classifier=False)
    np.testing.assert_allclose(score(truth, found, np.ones(300)), root_mean_squared_error(truth, found))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"training": {"max_steps": 3}}, TypeError, "training must be a vpboost.Training or None, got dict"),
        ({"trust_region": "paper"}, TypeError, "trust_region must be a vpboost.TrustRegion or None, got str"),
        ({"resume": 5}, TypeError, "resume must be a vpboost.Boosted or None, got int"),
        ({"bias": "no"}, TypeError, "bias must be True or False, got 'no'"),
        ({"seed": 2**32}, ValueError, "seed must be from 0 to"),
        ({"seed": -1}, ValueError, "seed must be from 0 to"),
        ({"dtype": None}, ValueError, "dtype must be 'float32' or 'float64', got None"),
    ],
)
def test_arguments_of_boost(options, error, message):
    with pytest.raises(error, match=message):
        boost(X, Y, loss=SquaredError(), featurizer=lambda key, rows: None, **options)


def test_boost_resumes_its_own_results_only():
    from vpboost import MLP

    settings = {"loss": SquaredError(), "featurizer": MLP, "training": Training(max_steps=2), "engine": "numpy"}
    done = boost(X, Y, n_learners=1, **settings)
    with pytest.raises(ValueError, match="it has 1 outputs in float32, the data 2 in float32"):
        boost(X, np.stack([Y, Y], axis=1), n_learners=2, resume=done, **settings)
    with pytest.raises(ValueError, match="the data 1 in float64"):
        boost(X, Y, n_learners=2, resume=done, dtype="float64", **settings)


def test_closures_and_validation_inputs_are_told_apart():
    def loss_of(width):
        return lambda p, t: width * (p[0] - t[0]) ** 2

    assert describe_setting(loss_of(1.0)) != describe_setting(loss_of(50.0))
    model = VPBoostRegressor(**PLAIN, warm_start=True).fit(X[:200], Y[:200], X_val=X[200:], y_val=Y[200:])
    with pytest.warns(UserWarning, match="the validation data are not those"):
        model.set_params(n_estimators=8).fit(X[:200], Y[:200], X_val=X[:100], y_val=Y[200:])


def test_class_weights_when_a_class_is_gone():
    y = np.digitize(Y, [-0.5, 0.5])
    model = VPBoostClassifier(**PLAIN, class_weight={0: 1, 1: 2, 2: 3}, warm_start=True).fit(X, y, X_val=X, y_val=y)
    model.set_params(n_estimators=7).fit(X[y > 0], y[y > 0], X_val=X, y_val=y)
    assert model.n_iter_ == 7


class Counted(eqx.Module):
    """A featurizer that takes a number, and a size, from how many rows it is shown."""

    directions: jax.Array
    factor: float = eqx.field(static=True)

    def __init__(self, key, rows):
        self.directions = jax.random.normal(key, (min(8, len(rows)), rows.shape[1]))
        self.factor = len(rows) ** -0.5

    def __call__(self, x):
        return jnp.sin(10 * self.factor * (self.directions @ x))


@pytest.mark.parametrize("n_rows", [5, 300, 1500])
def test_featurizers_that_count_their_rows_are_loaded_as_they_were(n_rows, tmp_path):
    x = np.random.default_rng(0).normal(size=(n_rows, 3))
    model = VPBoostRegressor(featurizer=Counted, n_estimators=2, max_steps=3, early_stopping_rounds=None)
    model.fit(x, x[:, 0]).save_model(tmp_path / "model")
    np.testing.assert_array_equal(load_model(tmp_path / "model", featurizer=Counted).predict(x), model.predict(x))


def test_robust_scales_are_loaded_with_their_limits(tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.uniform(-1, 1, (400, 2)), rng.normal(size=400) * 1e-3
    far = rng.random(400) < 0.22
    y[far] = 50 + 50 * x[far, 0]
    options = {"encoding": "plain", "inherit": 0.0, "max_features": 1.0, "early_stopping_rounds": None}
    model = VPBoostRegressor(loss=Quantile(0.97, 0.05), n_estimators=3, max_steps=5, warm_start=True, **options)
    model.fit(x, y).save_model(tmp_path / "model")
    again = load_model(tmp_path / "model")
    np.testing.assert_array_equal(again.target_scaler_.limit_, model.target_scaler_.limit_)
    longer = [one.set_params(n_estimators=6).fit(x, y).predict(x) for one in (model, again)]
    np.testing.assert_array_equal(*longer)


class Scaled:
    def __init__(self, factor):
        self.factor = factor

    def __call__(self, prediction, target):
        return jnp.sum(self.factor * (prediction - target) ** 2)

    def method(self, prediction, target):
        return self(prediction, target)


def with_array(factor):
    held = np.array([factor])
    return lambda prediction, target: jnp.sum(held * (prediction - target) ** 2)


def with_keyword(factor):
    def loss(prediction, target, *, by=factor):
        return jnp.sum(by * (prediction - target) ** 2)

    return loss


def nested(factor):
    text = f"lambda prediction, target: (lambda r: {factor} * jnp.sum(r**2))(prediction - target)"
    return FunctionType(compile(text, "nested", "eval").co_consts[0], globals(), "nested")


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(Scaled, marks=[pytest.mark.slow, pytest.mark.long]),
        lambda c: Scaled(c).method,
        with_array,
        with_keyword,
        nested,
    ],
)
def test_functions_that_hold_other_numbers_are_other_functions(kind):
    assert describe_setting(kind(1.0)) == describe_setting(kind(1.0)) != describe_setting(kind(9.0))
    x = np.random.default_rng(0).normal(size=(60, 2))
    model = VPBoostRegressor(loss=kind(1.0), n_estimators=1, max_steps=1, warm_start=True, early_stopping_rounds=None)
    model.fit(x, x[:, 0])
    with pytest.raises(ValueError, match="loss cannot change"):
        model.set_params(loss=kind(9.0), n_estimators=2).fit(x, x[:, 0])
    assert model.set_params(loss=kind(1.0)).fit(x, x[:, 0]).n_iter_ == 2


def test_what_is_the_same_is_described_alike():
    assert describe_setting(Quantile(0.95)) == describe_setting(pickle.loads(pickle.dumps(Quantile(0.95))))
    assert describe_setting(Quantile(0.95)) != describe_setting(Quantile(0.95, 0.04))

    def recursive(n):
        return recursive(n - 1) if n else 0

    assert describe_setting(recursive) == describe_setting(recursive)
    counting = Scaled(1)
    before = describe_setting(counting, objects=False)
    counting.factor = 2
    assert describe_setting(counting, objects=False) == before  # a metric may count its calls
