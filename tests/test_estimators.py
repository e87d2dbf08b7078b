import pickle
import warnings
from functools import partial

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
import sklearn
from sklearn.base import clone
from sklearn.metrics import log_loss, r2_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import MinMaxScaler

from models import PLAIN
from oracles import central_difference
from vpboost import ConvNet, VPBoostClassifier, VPBoostRegressor
from vpboost.callbacks import EarlyStopping
from vpboost.losses import Quantile

#: one profile, so that nothing is raced, and few quick stages
QUICK = {"n_estimators": 6, "max_steps": 60, "width": 6, "learning_rate": 0.3, **PLAIN}


def regression(n=300, seed=0):
    X = np.random.default_rng(seed).uniform(-1, 1, size=(n, 3))
    return X, np.sin(3 * X[:, 0]) + X[:, 1] * X[:, 2]


def classification(n=400, classes=3, seed=0):
    X = np.random.default_rng(seed).uniform(-1, 1, size=(n, 2))
    names = np.array(["ash", "birch", "cedar"])[:classes]
    return X, names[np.digitize(X[:, 0] + X[:, 1], np.linspace(-0.5, 0.5, classes - 1))]


def test_regressor_one_and_many_outputs():
    X, y = regression()
    Y = np.stack([y, 100 * y**2 + 7, 1e-6 * X[:, 0]], axis=1)
    one, many = VPBoostRegressor(**QUICK).fit(X, y), VPBoostRegressor(**QUICK).fit(X, Y)
    assert one.predict(X).shape == (300,)
    assert many.predict(X).shape == (300, 3)
    assert one.predict(X).dtype == np.float64
    assert one.score(X, y) > 0.9
    assert np.all(r2_score(Y, many.predict(X), multioutput="raw_values") > 0.9), "every output, whatever its units"


@pytest.mark.parametrize("classes", [2, 3])
def test_classifier(classes):
    X, y = classification(classes=classes)
    model = VPBoostClassifier(**QUICK).fit(X, y)
    probability = model.predict_proba(X)
    assert probability.shape == (400, classes)
    np.testing.assert_allclose(probability.sum(axis=1), 1, atol=1e-12)
    assert list(model.classes_) == sorted(set(y))
    assert model.score(X, y) > 0.93
    np.testing.assert_array_equal(model.predict(X), model.classes_[probability.argmax(axis=1)])
    decision = model.decision_function(X)
    if classes == 2:
        np.testing.assert_allclose(1 / (1 + np.exp(-decision)), probability[:, 1], rtol=1e-9)
    else:
        np.testing.assert_allclose(np.exp(decision - np.log(np.exp(decision).sum(1))[:, None]), probability, rtol=1e-9)


def test_staged_predictions_end_at_the_prediction():
    X, y = regression()
    model = VPBoostRegressor(**QUICK, n_chains=1).fit(X, y)
    staged = list(model.staged_predict(X))
    assert len(staged) == model.best_iteration_ == 6
    np.testing.assert_allclose(staged[-1], model.predict(X), atol=1e-5)
    X, labels = classification()
    model = VPBoostClassifier(**QUICK).fit(X, labels)
    np.testing.assert_allclose(list(model.staged_predict_proba(X))[-1], model.predict_proba(X), atol=1e-5)
    np.testing.assert_array_equal(list(model.staged_predict(X))[-1], model.predict(X))


@pytest.mark.parametrize("loss", ["squared_error", "poisson"])
@pytest.mark.parametrize("outputs", [1, 2])
def test_input_gradients_are_in_the_users_units(loss, outputs):
    X, y = regression(seed=3)
    X = X * [1.0, 1000.0, 0.01] + [5.0, 0, 0]
    y = np.exp(y) if outputs == 1 else np.stack([np.exp(y), 50 + 10 * X[:, 0]], axis=1)
    model = VPBoostRegressor(**QUICK, loss=loss, dtype="float64").fit(X, y)
    gradient = model.input_gradient(X[:5])
    assert gradient.shape == ((5, 3) if outputs == 1 else (5, 2, 3))
    for row, found in zip(X[:5], gradient, strict=True):
        unit = np.array([1.0, 1000.0, 0.01])
        numeric = central_difference(lambda v, unit=unit: model.predict((v * unit)[None])[0], row / unit) / unit
        np.testing.assert_allclose(found, numeric, rtol=1e-4, atol=1e-6)


def test_classifier_input_gradients():
    X, y = classification(classes=2)
    model = VPBoostClassifier(**QUICK, dtype="float64").fit(X, y)
    numeric = central_difference(lambda v: model.decision_function(v[None])[0], X[0])
    np.testing.assert_allclose(model.input_gradient(X[:1])[0], numeric, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("factor", [1e-9, 1e9])
def test_units_of_inputs_and_targets_do_not_matter(factor):
    X, y = regression()
    plain = VPBoostRegressor(**QUICK).fit(X, y).predict(X)
    scaled_X = X * [factor, 1, 1 / factor]
    np.testing.assert_allclose(
        VPBoostRegressor(**QUICK).fit(scaled_X, y).predict(scaled_X), plain, rtol=1e-5, atol=1e-5
    )
    scaled_y = VPBoostRegressor(**QUICK).fit(X, factor * y).predict(X)
    np.testing.assert_allclose(scaled_y / factor, plain, rtol=1e-5, atol=1e-5)


def test_order_and_repetition_of_rows_do_not_matter():
    X, y = regression(n=60)
    counts = np.random.default_rng(0).integers(0, 4, size=60)
    order = np.random.default_rng(1).permutation(60)
    weighted = VPBoostRegressor(**QUICK).fit(X, y, sample_weight=counts).predict(X)
    repeated = VPBoostRegressor(**QUICK).fit(np.repeat(X, counts, axis=0), np.repeat(y, counts)).predict(X)
    shuffled = VPBoostRegressor(**QUICK).fit(X[order], y[order], sample_weight=counts[order]).predict(X)
    np.testing.assert_array_equal(weighted, repeated)
    np.testing.assert_array_equal(weighted, shuffled)


def test_early_stopping_keeps_the_best_stage():
    rng = np.random.default_rng(0)
    X, y = regression(n=60)
    noisy = y + rng.normal(size=60)
    X_val, y_val = regression(n=200, seed=5)
    options = {"n_estimators": 60, "max_steps": 60, "learning_rate": 0.3, "early_stopping_rounds": 5, "n_chains": 1}
    model = VPBoostRegressor(**PLAIN, **options)
    model.fit(X, noisy, X_val=X_val, y_val=y_val)
    scores = model.evals_result_["validation"]
    assert model.n_iter_ < 60
    assert model.best_score_ == min(scores)
    assert model.best_iteration_ == int(np.argmin(scores)) + 1
    assert model.n_iter_ == model.best_iteration_ + 5
    by_pair = VPBoostRegressor(**PLAIN, **options)
    by_pair.fit(X, noisy, eval_set=[(X_val, y_val)])
    np.testing.assert_array_equal(by_pair.predict(X), model.predict(X))
    inside = VPBoostRegressor(**PLAIN, n_estimators=60, max_steps=60, learning_rate=0.3, early_stopping_rounds=3).fit(
        X, noisy
    )
    assert inside.n_iter_ < 60
    assert len(inside.evals_result_["validation"]) == inside.n_iter_


@pytest.mark.parametrize("metric", ["rmse", "mae", "r2", lambda y, p: float(np.abs(y - p).max())])
def test_regression_metrics_are_watched(metric):
    X, y = regression()
    model = VPBoostRegressor(**QUICK, eval_metric=metric).fit(X, y, X_val=X[:50], y_val=y[:50])
    best = model.predict(X[:50])
    expected = {
        "rmse": np.sqrt(np.mean((best - y[:50]) ** 2)),
        "mae": np.mean(np.abs(best - y[:50])),
        "r2": -r2_score(y[:50], best),
    }.get(metric if isinstance(metric, str) else "", np.abs(best - y[:50]).max())
    np.testing.assert_allclose(model.best_score_, expected, rtol=1e-3)


@pytest.mark.parametrize("metric", ["log_loss", "error", "auc"])
def test_classification_metrics_are_watched(metric):
    X, y = classification(classes=2)
    model = VPBoostClassifier(**QUICK, eval_metric=metric).fit(X, y, X_val=X[:90], y_val=y[:90])
    if metric == "log_loss":
        np.testing.assert_allclose(model.best_score_, log_loss(y[:90], model.predict_proba(X[:90])), rtol=1e-3)
    assert np.isfinite(model.best_score_)


def test_history_and_importances():
    X, y = regression()
    X = np.concatenate([X, np.random.default_rng(9).normal(size=(300, 1)), np.ones((300, 1))], axis=1)
    model = VPBoostRegressor(**QUICK).fit(X, y)
    assert set(model.history_) >= {"loss", "ratio", "reg_lambda", "alignment", "radius", "accepted"}
    assert all(len(column) == 6 for column in model.history_.values())
    np.testing.assert_allclose(model.feature_importances_.sum(), 1)
    assert model.feature_importances_[0] == model.feature_importances_.max()
    assert model.feature_importances_[4] == 0
    assert model.feature_importances_[3] < 0.2 * model.feature_importances_[0]


def test_warm_start_goes_on():
    X, y = regression()
    whole = VPBoostRegressor(**QUICK).fit(X, y)
    model = VPBoostRegressor(**{**QUICK, "n_estimators": 2}, warm_start=True).fit(X, y)
    model.set_params(n_estimators=6).fit(X, y)
    assert model.n_iter_ == 6
    np.testing.assert_array_equal(model.predict(X), whole.predict(X))
    with pytest.raises(ValueError, match="n_estimators=3 must be at least the 6 stages"):
        model.set_params(n_estimators=3).fit(X, y)


@pytest.mark.parametrize("loss", ["pseudo_huber", "quantile", "poisson", "gamma", "tweedie", Quantile(0.9)])
def test_losses_by_name(loss):
    X, y = regression()
    rng = np.random.default_rng(0)
    y = rng.gamma(5.0, np.exp(y) / 5)
    model = VPBoostRegressor(**QUICK, loss=loss).fit(X, y)
    assert np.all(np.diff(model.history_["loss"]) < 0)
    if isinstance(loss, Quantile):
        assert 0.8 < np.mean(y < model.predict(X)) < 0.98
    elif loss in ("poisson", "gamma", "tweedie"):
        assert model.predict(X).min() > 0
        assert 0.8 < model.predict(X).mean() / y.mean() < 1.2


def test_a_jax_function_as_loss():
    X, y = regression()
    model = VPBoostRegressor(**QUICK, loss=lambda p, t: jnp.sum(jnp.log(jnp.cosh(p - t)))).fit(X, y)
    assert model.score(X, y) > 0.9


def test_class_weight_moves_the_boundary():
    X, y = classification(classes=2)
    plain, heavy = (VPBoostClassifier(**QUICK, class_weight=w).fit(X, y) for w in (None, {"ash": 20.0, "birch": 1.0}))
    assert np.mean(heavy.predict(X) == "ash") > np.mean(plain.predict(X) == "ash")
    balanced = VPBoostClassifier(**QUICK, class_weight="balanced").fit(X, y)
    assert balanced.score(X, y) > 0.9


def test_missing_values_are_marked_not_hidden():
    rng = np.random.default_rng(0)
    X, y = regression(n=500)
    gone = rng.uniform(size=500) < 0.3
    y = np.where(gone, 5.0, y)
    X[gone, 1] = np.nan
    model = VPBoostRegressor(**QUICK).fit(X, y)
    assert model.score(X, y) > 0.95, "missingness itself tells"
    fresh = X[:5].copy()
    fresh[:, 0] = np.nan
    assert np.all(np.isfinite(model.predict(fresh))), "missing where training had none: the mean"


def test_pandas_and_polars_with_categories():
    pd, pl = pytest.importorskip("pandas"), pytest.importorskip("polars")
    X, y = regression(n=400)
    kind = np.array(["oak", "pine", None], dtype=object)[np.arange(400) % 3]
    target = y + np.array([0.0, 4.0, -4.0])[np.arange(400) % 3]
    frames = [
        pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "kind": pd.Categorical(kind)}),
        pl.DataFrame({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "kind": kind.tolist()}),
    ]
    fitted = [VPBoostRegressor(**QUICK).fit(frame, target) for frame in frames]
    for model, frame in zip(fitted, frames, strict=True):
        assert list(model.feature_names_in_) == ["a", "b", "c", "kind"]
        assert model.score(frame, target) > 0.95
        assert model.feature_importances_.shape == (4,)
        assert model.input_gradient(frame[:7]).shape == (7, 4)
        assert np.all(model.input_gradient(frame[:7])[:, 3] == 0)
    np.testing.assert_array_equal(fitted[0].predict(frames[0]), fitted[1].predict(frames[1]))
    unseen = frames[0].assign(kind="baobab")
    assert np.all(np.isfinite(fitted[0].predict(unseen)))


def test_images():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 10, 10))
    y = (X[:, 3:6, 3:6].mean(axis=(1, 2)) > 0).astype(int)
    factory = partial(ConvNet, kernels=(3, 3), pools=(1, 2), channels=(2, 2), activation="tanh")
    model = VPBoostClassifier(n_estimators=4, max_steps=60, featurizer=factory).fit(X, y)
    assert model.score(X, y) > 0.9
    assert model.input_gradient(X[:3]).shape == (3, 10, 10)
    paper = VPBoostClassifier(featurizer="convnet")
    with pytest.raises(ValueError, match="ConvNet needs images"):
        paper.fit(X.reshape(120, -1), y)
    with pytest.raises(ValueError, match=r"too large for images of 10 × 10"):
        paper.fit(X, y)


@pytest.mark.slow
@pytest.mark.long
def test_clone_pickle_and_grid_search():
    X, y = regression(n=80)
    model = VPBoostRegressor(**QUICK)
    assert clone(model).get_params() == model.get_params()
    model.fit(X, y)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(X), model.predict(X))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        search = GridSearchCV(
            make_pipeline(MinMaxScaler(), VPBoostRegressor(n_estimators=2, max_steps=5, early_stopping_rounds=None)),
            {"vpboostregressor__width": [2, 3]},
            n_jobs=2,
            cv=2,
        ).fit(X, y)
    assert search.best_estimator_.predict(X).shape == (80,)
    assert "VPBoostRegressor" in model._repr_html_()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_estimators": 0}, "n_estimators must be a whole number of at least 1, got 0"),
        ({"learning_rate": 0.0}, r"learning_rate must be 'auto' or in \(0, 1\], got 0.0"),
        ({"loss": "absolute"}, "loss must be one of.*got 'absolute'"),
        ({"featurizer": "tree"}, "featurizer must be one of.*got 'tree'"),
        ({"featurizer": "rbf", "depth": 3}, "depth does not apply to featurizer='rbf'"),
        ({"featurizer": lambda key, rows: None, "width": 3}, "width go with a named featurizer"),
        ({"method": "newton"}, "method must be one of"),
        ({"batch_size": 0}, "batch_size must be"),
        ({"reg_lambda": 0.0}, "reg_lambda must be positive"),
        ({"early_stopping_rounds": 0}, "early_stopping_rounds must be"),
        ({"validation_fraction": 1.0}, "validation_fraction must be"),
        ({"eval_metric": "auc"}, "eval_metric must be one of"),
        ({"dtype": "float16"}, "dtype must be 'float32' or 'float64'"),
    ],
)
def test_bad_parameters_are_named_in_fit(options, message):
    X, y = regression(n=20)
    with pytest.raises(ValueError, match=message):
        VPBoostRegressor(**options).fit(X, y)


def test_bad_data_is_named():
    X, y = regression(n=20)
    model = VPBoostRegressor(**QUICK)
    for arguments, message in [
        ({"sample_weight": np.zeros(20)}, "at least one non-zero|a positive entry"),
        ({"sample_weight": -np.ones(20)}, "sample_weight must be non-negative"),
        ({"X_val": X}, "X_val and y_val must be given together"),
        ({"X_val": X, "y_val": y[:3]}, "X_val and y_val must have as many rows"),
        ({"X_val": X, "y_val": y, "eval_set": (X, y)}, "not both"),
        ({"eval_set": [(X, y), (X, y)]}, "eval_set must be one pair"),
        ({"X_val": X[:, :2], "y_val": y}, "2 features"),
    ]:
        with pytest.raises(ValueError, match=message):
            model.fit(X, y, **arguments)
    with pytest.raises(ValueError, match="two classes with positive sample weight, got 1 class"):
        VPBoostClassifier().fit(X, np.zeros(20))
    with pytest.raises(ValueError, match=r"only classes of the .first. fit"):
        VPBoostClassifier(**QUICK).fit(X, y > 0, X_val=X, y_val=np.full(20, 7))


@pytest.mark.parametrize("shape", [(1, 3), (5, 40)])
def test_tiny_and_wide_data(shape):
    X = np.random.default_rng(0).normal(size=shape)
    model = VPBoostRegressor(**QUICK).fit(X, X[:, 0])
    np.testing.assert_allclose(model.predict(X), X[:, 0], atol=0.2)
    constant = VPBoostRegressor(**QUICK).fit(X, np.full(shape[0], 3.0))
    np.testing.assert_allclose(constant.predict(X), 3)


def test_pipelines_transform_validation_inputs_too():
    X, y = regression()
    scaler = MinMaxScaler().fit(X[:200])
    direct = VPBoostRegressor(**QUICK).fit(
        scaler.transform(X[:200]), y[:200], X_val=scaler.transform(X[200:]), y_val=y[200:]
    )
    with sklearn.config_context(enable_metadata_routing=True):
        model = VPBoostRegressor(**QUICK).set_fit_request(X_val=True, y_val=True)
        pipeline = Pipeline([("scale", MinMaxScaler()), ("model", model)], transform_input=["X_val"])
        pipeline.fit(X[:200], y[:200], X_val=X[200:], y_val=y[200:])
    assert pipeline[-1].evals_result_ == direct.evals_result_


def test_sparse_inputs_are_refused_with_a_way_out():
    X, y = regression()
    with pytest.raises(TypeError, match=r"Sparse data was passed.*toarray"):
        VPBoostRegressor(**QUICK).fit(scipy.sparse.csr_array(X), y)


def test_the_boosting_rate_depends_on_the_number_of_rows():
    X, y = regression(n=2100)
    options = {**QUICK, "learning_rate": "auto", "n_estimators": 1, "early_stopping_rounds": None}
    for n, rate in ((1999, 0.05), (2100, 0.1)):
        auto = VPBoostRegressor(**options).fit(X[:n], y[:n]).predict(X)
        fixed = VPBoostRegressor(**{**options, "learning_rate": rate}).fit(X[:n], y[:n]).predict(X)
        np.testing.assert_array_equal(auto, fixed)


def test_importances_of_large_tables_look_at_all_of_it():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(9000, 2))
    y = np.where(X[:, 0] > 0, 4 * X[:, 0], 0) + 0.1 * X[:, 1]  # the first column matters in its upper half only
    model = VPBoostRegressor(**{**QUICK, "n_estimators": 2, "max_steps": 30}, early_stopping_rounds=None).fit(X, y)
    assert model.feature_importances_[0] > 0.8


def test_validation_data_may_be_a_frame():
    pd = pytest.importorskip("pandas")
    X, y = regression()
    numbers = pd.DataFrame(X, columns=["a", "b", "c"])
    texts = numbers.assign(kind=np.where(X[:, 0] > 0, "up", "down"))
    for frame in (numbers, texts):
        model = VPBoostRegressor(**QUICK).fit(frame[:200], y[:200], X_val=frame[200:], y_val=y[200:])
        assert len(model.evals_result_["validation"]) == model.n_iter_
    with pytest.raises(ValueError, match="X must be a data frame with the columns of training"):
        model.predict(np.zeros((2, 4)))
    texts.columns = ["a", "a", "c", "kind"]
    with pytest.raises(ValueError, match="more than one column 'a'"):
        VPBoostRegressor(**QUICK).fit(texts, y)


def test_going_on_with_validation_data_that_came_later():
    X, y = regression()
    options = {**QUICK, "n_estimators": 4, "early_stopping_rounds": None}
    model = VPBoostRegressor(**options, warm_start=True).fit(X, y)
    with pytest.warns(UserWarning, match="the validation data are not those"):
        model.set_params(n_estimators=7, early_stopping_rounds=5).fit(X, y, X_val=X, y_val=y)
    assert model.best_iteration_ == model.n_iter_ == 7  # every stage improved


def test_going_on_keeps_the_seed_and_with_it_the_rows_set_aside():
    X, y = regression()
    options = {**QUICK, "early_stopping_rounds": 3}
    model = VPBoostRegressor(**{**options, "n_estimators": 2}, random_state=None, warm_start=True).fit(X, y)
    model.set_params(n_estimators=6).fit(X, y)
    whole = VPBoostRegressor(**options, random_state=model.seed_).fit(X, y)
    np.testing.assert_array_equal(model.predict(X), whole.predict(X))


def test_a_metric_that_is_nan_is_named():
    X, _ = regression(n=64)
    y = np.zeros(64, dtype=int)
    y[:2] = 1
    with pytest.raises(ValueError, match="eval_metric='auc' is NaN on the validation data"):
        VPBoostClassifier(**QUICK, eval_metric="auc").fit(X, y, X_val=X[5:20], y_val=y[5:20])
    with pytest.raises(ValueError, match="early stopping needs a validation score"):
        VPBoostClassifier(**QUICK, early_stopping_rounds=None, callbacks=[EarlyStopping(3)]).fit(X, y)


def test_numpy_numbers_are_numbers():
    X, y = regression(n=60)
    options = {"n_estimators": np.int64(2), "width": np.int64(3), "max_steps": np.int32(5), "depth": np.int64(1)}
    model = VPBoostRegressor(**options, learning_rate=np.float32(0.5), candidates=np.int64(2)).fit(X, y)
    assert model.n_iter_ == 2


def test_repeated_rows_are_not_torn_apart():
    rng = np.random.default_rng(0)
    X = rng.integers(0, 4, size=(4000, 4)).astype(float)
    y = (rng.uniform(size=4000) < 1 / (1 + np.exp(1.5 - X[:, 0]))).astype(int)
    model = VPBoostClassifier(**{**QUICK, "n_estimators": 20}).fit(X, y)
    assert model.best_score_ < 0.62  # the noise allows 0.59; torn apart, validation would be worse than guessing


def test_data_dependent_featurizers_see_all_of_the_table():
    X = np.sort(np.random.default_rng(0).uniform(-1, 1, size=(1700, 1)), axis=0)
    model = VPBoostRegressor(
        **PLAIN, n_estimators=1, max_steps=0, featurizer="rbf", width=64, early_stopping_rounds=None
    )
    centres = model.fit(X, X[:, 0]).ensemble_.featurizers.featurizer.featurizer.centres
    assert np.asarray(centres).max() > 1.3  # in units of the spread, the table reaches 1.7
