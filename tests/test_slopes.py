"""Observed derivatives as data: ``fit(..., dy=...)``."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from oracles import central_difference
from vpboost import (
    MLP,
    RBF,
    BSpline,
    Fourier,
    ResNet,
    SquaredError,
    Training,
    TrustRegion,
    VPBoostClassifier,
    VPBoostRegressor,
    load_model,
)
from vpboost.callbacks import Checkpoint
from vpboost.core.reduced import Derivatives, optimal_weights, reduce
from vpboost.core.slopes import boost_with_slopes
from vpboost.engine.choice import _programs
from vpboost.estimators.parts import Part, hold_out, merged
from vpboost.featurizers import SomeColumns, WithBias, WithSlopes, columns
from vpboost.losses.curvature import ScaledIdentity
from vpboost.tables.encoder import InputEncoder

#: One learner, as it was drawn, and all of it: what is left is one least-squares problem.
ONE = {
    **{"n_estimators": 1, "max_steps": 0, "learning_rate": 1.0, "early_stopping_rounds": None, "n_chains": 1},
    **{"encoding": "plain", "inherit": 0.0, "max_features": None, "relevance": False, "dtype": "float64"},
    **{"activation": "tanh", "weight_scale": 1.0, "refit_full": False, "width": 4, "engine": "numpy"},
}
#: A few short stages.
QUICK = {**ONE, "n_estimators": 4, "max_steps": 10, "learning_rate": 0.5, "reg_lambda": 1e-6}


def waves(X):
    return np.sin(2 * X[:, 0]) * X[:, 1] + 0.5 * X[:, 2] ** 2


def slopes_of_waves(X):
    return np.stack([2 * np.cos(2 * X[:, 0]) * X[:, 1], np.sin(2 * X[:, 0]), X[:, 2]], axis=1)


@pytest.fixture(scope="module")
def data():
    X = np.random.default_rng(0).uniform(-1, 1, size=(40, 3))
    return X, waves(X), slopes_of_waves(X)


# --- the features -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "factory",
    [
        partial(MLP, width=3, activation="silu"),
        partial(ResNet, width=3),
        partial(Fourier, n_features=4),
        partial(RBF, n_features=4),
        partial(BSpline, n_directions=2),
        partial(SomeColumns, factory=partial(MLP, width=3), fraction=0.7),
    ],
)
def test_features_are_values_or_slopes(factory, x64):
    rng = np.random.default_rng(1)
    x, v = rng.normal(size=(2, 7, 3))
    v[:3] = 0
    inner = WithBias(factory(jax.random.key(0), jnp.asarray(rng.normal(size=(9, 3)))))
    module = WithSlopes(inner)
    found = np.asarray(columns(module, jnp.asarray(np.concatenate([x, v], axis=1).T)))
    for i in range(7):
        by_x = central_difference(lambda p: inner(jnp.asarray(p)), x[i])
        expected = np.asarray(inner(jnp.asarray(x[i]))) if i < 3 else by_x @ v[i]
        np.testing.assert_allclose(found[:, i], expected, atol=1e-8)
        np.testing.assert_allclose(module(jnp.concatenate([x[i], v[i]])), found[:, i], atol=1e-12)
    np.testing.assert_array_equal(found[-1], [1, 1, 1, 0, 0, 0, 0])  # a constant has no slope


def test_weights_solve_the_stacked_least_squares_problem(x64):
    rng = np.random.default_rng(2)
    x, y, weight = rng.normal(size=(6, 2)), rng.normal(size=(6, 2)), rng.uniform(0.5, 2, size=6)
    inner = WithBias(MLP(jax.random.key(3), jnp.asarray(x), width=3, depth=1))
    slopes, reg, share = rng.normal(size=(6, 2, 2)), 1e-2, 0.3  # (rows, outputs, inputs)
    z = np.array([inner(jnp.asarray(row)) for row in x])
    by_x = np.array([central_difference(lambda p: inner(jnp.asarray(p)), row, 1e-6) for row in x])  # (rows, n, inputs)
    tall = np.concatenate([z, by_x[:, :, 0], by_x[:, :, 1]])
    wanted = np.concatenate([y, slopes[:, :, 0], slopes[:, :, 1]])
    omega = np.concatenate([weight, share * weight, share * weight])
    normal = tall.T @ (omega[:, None] * tall) + reg * np.eye(4)
    expected = np.linalg.solve(normal, tall.T @ (omega[:, None] * wanted))

    along = np.concatenate([np.zeros((6, 2)), np.tile([1.0, 0.0], (6, 1)), np.tile([0.0, 1.0], (6, 1))])
    rows = jnp.asarray(np.concatenate([np.tile(x, (3, 1)), along], axis=1).T)
    features = columns(WithSlopes(inner), rows)[None]
    curvature = ScaledIdentity(jnp.ones((1, 18)), 2)
    derivatives = Derivatives(jnp.asarray(omega)[None], -jnp.asarray(wanted)[None], curvature)
    found = optimal_weights(reduce(features, derivatives), jnp.asarray(reg)).weights
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("encoding", ["plain", "quantile", "spline"])
def test_directions_are_derivatives_of_encoded_columns(encoding):
    rng = np.random.default_rng(4)
    X = np.stack([5 + 3 * rng.normal(size=50), rng.exponential(size=50), np.full(50, 2.0)], axis=1)
    X[3, 1] = np.nan
    encoder = InputEncoder(encoding).fit(X, np.ones(50))
    if encoding == "plain":
        encoder.weighed(np.array([1.0, 0.1, 0.5]))
    assert np.allclose(encoder.spreads[:2], np.nanstd(X[:, :2], axis=0))
    found = encoder.directions(X)
    for j in range(2):
        step = np.zeros(3)
        step[j] = 1e-7 * encoder.spreads[j]
        moved = (encoder.transform(X + step) - encoder.transform(X - step)) / 2e-7
        inside = (X[:, j] > np.nanmin(X[:, j])) & (X[:, j] < np.nanmax(X[:, j]))  # a normal score ends there
        np.testing.assert_allclose(found[inside, j], moved[inside], atol=3e-4)
    assert not found[3, 1].any()
    assert not found[:, 2].any()


# --- one learner is what the definition says --------------------------------------------------------------------------


@pytest.mark.parametrize("n_outputs", [1, 2])
def test_one_learner_solves_the_problem_of_the_definition(data, n_outputs):
    X, y, dy = data
    y, dy = y[:, None], dy[:, None]
    if n_outputs == 2:
        y, dy = np.concatenate([y, 3 * X[:, :1] + 2], axis=1), np.concatenate([dy, [[[3.0, 0, 0]]] * len(X)], axis=1)
    X = X * [1, 20, 0.1] + [0, 5, 0]
    dy = dy / [1, 20, 0.1]
    dy[3, :, 1] = dy[5] = np.nan
    weight = np.random.default_rng(5).uniform(0.5, 2, size=len(X))
    reg, share = 1e-3, 0.7
    model = VPBoostRegressor(**ONE, reg_lambda=reg, slope_weight=share)
    model.fit(X, y[:, 0] if n_outputs == 1 else y, weight, dy=dy[:, 0] if n_outputs == 1 else dy)

    def standardised(values):
        mean = np.average(values, axis=0, weights=weight)
        return mean, np.sqrt(np.average((values - mean) ** 2, axis=0, weights=weight))

    (centre, spread), (mean, scale) = standardised(X), standardised(y)
    inputs, target = (X - centre) / spread, (y - mean) / scale
    with jax.enable_x64(True):
        featurizer, weights = model.ensemble_.part(0)
        rows = [(w, np.asarray(featurizer(jnp.asarray(x))), t) for w, x, t in zip(weight, inputs, target, strict=True)]
        for i in range(len(X)):
            by_x = np.asarray(jax.jacfwd(featurizer)(jnp.asarray(inputs[i])))
            observed = dy[i] * spread / scale[:, None]
            rows += [(share * weight[i], by_x[:, j], observed[:, j]) for j in range(3) if not np.isnan(observed[0, j])]
    omega, z, wanted = (np.array(part) for part in zip(*rows, strict=True))
    assert len(omega) == 40 + 120 - 4
    omega = omega / omega.sum()
    normal = z.T @ (omega[:, None] * z) + reg * np.eye(z.shape[1])
    expected = np.linalg.solve(normal, z.T @ (omega[:, None] * wanted))
    np.testing.assert_allclose(weights, expected, rtol=1e-6, atol=1e-7)
    np.testing.assert_array_equal(model.ensemble_.constant, np.zeros(n_outputs))
    left = wanted - z @ expected
    np.testing.assert_allclose(model.history_["loss"], [0.5 * omega @ (left**2).sum(axis=1)], rtol=1e-6)


def test_the_automatic_weight_is_one_over_the_number_of_inputs(data):
    X, y, dy = data
    auto, given = (VPBoostRegressor(**ONE, **more).fit(X, y, dy=dy) for more in ({}, {"slope_weight": 1 / 3}))
    np.testing.assert_array_equal(auto.predict(X), given.predict(X))


# --- what it is for ---------------------------------------------------------------------------------------------------


def test_few_rows_with_slopes_tell_a_linear_function():
    rng = np.random.default_rng(6)
    X, new, slope = rng.normal(size=(4, 8)), rng.normal(size=(200, 8)), rng.normal(size=8)
    model = VPBoostRegressor(n_estimators=40, learning_rate=0.5, max_steps=50)
    model.fit(X, X @ slope + 3, dy=np.tile(slope, (4, 1)))
    error = model.predict(new) - (new @ slope + 3)
    assert np.sqrt(np.mean(error**2)) < 0.02 * np.linalg.norm(slope)
    assert model.profile_.dtype == "float64"


@pytest.fixture(scope="module")
def known(data):
    """A default fit but for the number of stages, 60 rows of three inputs."""
    X = np.concatenate([data[0], np.random.default_rng(7).uniform(-1, 1, size=(20, 3))])
    options = {"n_estimators": 12, "learning_rate": 0.4, "max_steps": 40, "width": 8}
    return X, options, VPBoostRegressor(**options).fit(X, waves(X), dy=slopes_of_waves(X))


def test_slopes_are_worth_rows(known):
    X, options, model = known
    new = np.random.default_rng(8).uniform(-1, 1, size=(500, 3))
    alone = VPBoostRegressor(**{**model.profile_.parameters(), **options}).fit(X, waves(X))
    error, other = (np.std(m.predict(new) - waves(new)) for m in (model, alone))
    assert error < 0.5 * other
    wrong = model.input_gradient(new) - slopes_of_waves(new)
    assert np.sqrt(np.mean(wrong**2)) < 0.1
    assert model.n_chains_ == 2  # both on all rows, slopes among them


def test_units_do_not_matter(known):
    X, options, model = known
    factor, shift = np.array([1e3, 1e-2, 7.0]), np.array([3.0, 0, -100])
    other = VPBoostRegressor(**options).fit(X * factor + shift, 50 * waves(X) - 9, dy=50 * slopes_of_waves(X) / factor)
    new = np.random.default_rng(9).uniform(-1, 1, size=(50, 3))
    np.testing.assert_allclose((other.predict(new * factor + shift) + 9) / 50, model.predict(new), atol=1e-4)


def test_the_model_is_a_plain_one(known, tmp_path):
    X, _, model = known
    model.save_model(tmp_path / "model.vpboost")
    again = load_model(tmp_path / "model.vpboost")
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    np.testing.assert_array_equal(again.input_gradient(X), model.input_gradient(X))
    assert "WithSlopes" not in repr(model.ensemble_.featurizers)


# --- what counts and what does not ------------------------------------------------------------------------------------


def test_slopes_not_observed_do_not_count(data):
    X, y, dy = data
    nothing = VPBoostRegressor(**QUICK).fit(X, y, dy=np.full_like(dy, np.nan))
    np.testing.assert_array_equal(nothing.predict(X), VPBoostRegressor(**QUICK).fit(X, y).predict(X))
    gaps = dy.copy()
    gaps[::3, 1] = np.nan
    missing = X.copy()
    missing[4, 0] = np.nan  # nor by a missing value, whatever dy says
    found = [VPBoostRegressor(**QUICK).fit(missing, y, dy=d).predict(X) for d in (gaps, gaps + 0 * dy, dy)]
    np.testing.assert_array_equal(found[0], found[1])
    assert np.abs(found[0] - found[2]).max() > 1e-6
    gaps[4, 0] = 1e9
    np.testing.assert_array_equal(VPBoostRegressor(**QUICK).fit(missing, y, dy=gaps).predict(X), found[0])


def test_rows_left_out_are_as_rows_without_slopes(data):
    """The core, with pairs [x, v] left out, does what the estimator does with NaN."""
    X, y, dy = data
    gaps = dy.copy()
    gaps[7:, 2] = np.nan
    model = VPBoostRegressor(**QUICK).fit(X, y, dy=gaps)
    (part, _), encoder = merged(Part(X, y[:, None], np.ones(40), slopes=gaps[:, None])), model.input_encoder_
    inputs, (row, column) = encoder.transform(part.inputs), np.nonzero(~np.isnan(part.slopes[:, 0]))
    observed = part.slopes[row, 0, column] * X.std(axis=0)[column] / y.std()
    settings = {
        "featurizer": partial(MLP, width=4, depth=2, activation="tanh"),
        "trust_region": TrustRegion(reg_lambda=1e-6, rate=0.5, lambda_low=1e-12, gamma_down=1.0, gamma_up=4.0),
        "training": Training(max_steps=10, inherit=0.0),
    }
    boosted = boost_with_slopes(
        *(inputs, (part.target - y.mean()) / y.std()),
        (np.concatenate([inputs[row], np.eye(3)[column]], axis=1), observed[:, None], np.full(len(row), 1 / 3)),
        **{"loss": SquaredError(), "n_learners": 4, "seed": 0, "dtype": "float64", "engine": "numpy"},
        **{"sample_weight": np.ones(40), "validation": None, "callback": lambda stage: None, "resume": None},
        **settings,
    )
    np.testing.assert_allclose(
        boosted.ensemble.predict(encoder.transform(X))[:, 0] * y.std() + y.mean(), model.predict(X), atol=1e-6
    )


def test_slopes_of_rows_that_validate_are_not_used(known):
    X, options, model = known
    y, dy = waves(X), slopes_of_waves(X)
    options = {**model.profile_.parameters(), **options, "refit_full": False, "n_chains": 1, "early_stopping_rounds": 5}
    part, groups = merged(Part(X, y[:, None], np.ones(len(X)), slopes=dy[:, None]))
    kept, aside = (part.inputs[rows] for rows in hold_out(part.target, groups, 0.15, 0, False))
    is_aside = (X[:, None] == aside).all(axis=2).any(axis=1)
    assert is_aside.sum() == len(aside) == 9
    fitted = VPBoostRegressor(**options).fit(X, y, dy=dy).predict(X)
    poisoned = np.where(is_aside[:, None], 1e9, dy)
    np.testing.assert_array_equal(VPBoostRegressor(**options).fit(X, y, dy=poisoned).predict(X), fitted)
    one = (kept[0] == X).all(axis=1)
    other = VPBoostRegressor(**options).fit(X, y, dy=np.where(one[:, None], 3.0, dy))
    assert np.abs(other.predict(X) - fitted).max() > 1e-3


def test_weights_are_repetitions(data):
    X, y, dy = data
    dy = dy.copy()
    dy[::2, 0] = np.nan
    weight = np.random.default_rng(10).integers(1, 4, size=len(X))
    rows = np.random.default_rng(11).permutation(np.repeat(np.arange(len(X)), weight))
    weighed = VPBoostRegressor(**QUICK).fit(X, y, weight, dy=dy)
    repeated = VPBoostRegressor(**QUICK).fit(X[rows], y[rows], dy=dy[rows])
    np.testing.assert_array_equal(weighed.predict(X), repeated.predict(X))


def test_backends_agree_and_numpy_does_it_by_itself(data):
    X, y, dy = data
    _programs.clear()
    one = VPBoostRegressor(**QUICK).fit(X, y, dy=dy)
    assert None not in _programs.values()
    other = VPBoostRegressor(**{**QUICK, "engine": "xla"}).fit(X, y, dy=dy)
    np.testing.assert_allclose(other.predict(X), one.predict(X), atol=1e-6)


def test_slopes_of_some_encoded_rows(data):
    X, y, slopes = data
    slopes = slopes.copy()
    slopes[::3, 1] = np.nan
    part = Part(X, y[:, None], np.arange(1.0, 41.0), y[:, None], slopes[:, None])
    encoder, rows = InputEncoder("plain").fit(X, part.weight), np.array([7, 3, 30, 12])
    before, after = (
        part.take(rows).encoded(encoder, "float64").slopes,
        part.encoded(encoder, "float64").take(rows).slopes,
    )
    order = np.lexsort([np.argmax(before.inputs[:, 3:], axis=1), before.row])
    other = np.lexsort([np.argmax(after.inputs[:, 3:], axis=1), after.row])
    for one, two in zip(before, after, strict=True):
        np.testing.assert_array_equal(one[order], two[other])


def test_distributions_take_slopes(data):
    X, y, slopes = data
    y, slopes = np.exp(y), np.exp(y)[:, None] * slopes
    law = VPBoostRegressor(**QUICK, distribution="lognormal").fit(X, y, dy=slopes).predict_dist(X)
    logs = VPBoostRegressor(**QUICK, distribution="normal").fit(X, np.log(y), dy=slopes / y[:, None]).predict_dist(X)
    np.testing.assert_allclose(law.loc, logs.loc, atol=1e-8)
    np.testing.assert_allclose(law.scale, logs.scale, rtol=1e-6)
    blind = VPBoostRegressor(**QUICK, distribution="normal").fit(X, np.log(y)).predict_dist(X)
    assert logs.scale.mean() < blind.scale.mean(), "models for other rows know the slopes, too"
    with pytest.raises(ValueError, match="dy is for regression with loss='squared_error'; got distribution='gamma'"):
        VPBoostRegressor(**QUICK, distribution="gamma").fit(X, y, dy=slopes)


@pytest.mark.parametrize("encoding", ["quantile", "spline"])
def test_other_encodings_have_slopes_too(data, encoding):
    X, y, dy = data
    model = VPBoostRegressor(**{**QUICK, "encoding": encoding, "n_estimators": 8}).fit(X, y, dy=dy)
    alone = VPBoostRegressor(**{**QUICK, "encoding": encoding, "n_estimators": 8}).fit(X, y)
    errors = [np.abs(m.input_gradient(X[5:20]) - dy[5:20]).mean() for m in (model, alone)]
    assert errors[0] < 0.5 * errors[1]


def test_batches_of_rows_and_slopes(data):
    X, y, dy = data
    model = VPBoostRegressor(**{**QUICK, "batch_size": 64, "n_estimators": 8}).fit(X, y, dy=dy)
    assert np.std(model.predict(X) - y) < 0.25 * np.std(y)


# --- tables, fits that go on, errors ----------------------------------------------------------------------------------


def test_data_frames(data):
    pd = pytest.importorskip("pandas")
    X, y, dy = data
    X, dy = pd.DataFrame(X, columns=list("abc")), pd.DataFrame(dy, columns=list("abc"))
    plain = VPBoostRegressor(**QUICK).fit(X, y, dy=dy.to_numpy())
    turned = VPBoostRegressor(**QUICK).fit(X, y, dy=dy[["c", "a", "b"]])
    np.testing.assert_array_equal(plain.predict(X), turned.predict(X))
    with pytest.raises(ValueError, match="dy must have the columns of X"):
        VPBoostRegressor(**QUICK).fit(X, y, dy=dy.rename(columns={"a": "d"}))
    mixed, slopes = X.assign(kind=["u", "v"] * 20), dy.assign(kind=np.nan)
    model = VPBoostRegressor(**QUICK).fit(mixed, y, dy=slopes)
    assert model.ensemble_.n_learners == 4
    with pytest.raises(ValueError, match="dy must be NaN in column 'kind', whose values are categories"):
        VPBoostRegressor(**QUICK).fit(mixed, y, dy=slopes.assign(kind=0.0))


def test_fits_go_on(data, tmp_path):
    X, y, dy = data
    long = VPBoostRegressor(**QUICK).fit(X, y, dy=dy)
    model = VPBoostRegressor(**{**QUICK, "n_estimators": 2}, warm_start=True).fit(X, y, dy=dy)
    model.set_params(n_estimators=4).fit(X, y, dy=dy)
    np.testing.assert_array_equal(model.predict(X), long.predict(X))

    path = tmp_path / "fit.checkpoint"
    VPBoostRegressor(**{**QUICK, "n_estimators": 2}, callbacks=[Checkpoint(path, every=1)]).fit(X, y, dy=dy)
    resumed = VPBoostRegressor(**QUICK).fit(X, y, dy=dy, resume_from=path)
    np.testing.assert_array_equal(resumed.predict(X), long.predict(X))
    with pytest.raises(ValueError, match="other data"):
        VPBoostRegressor(**QUICK).fit(X, y, dy=2 * dy, resume_from=path)


def test_errors(data):
    X, y, dy = data

    def fails(match, X=X, y=y, dy=dy, **options):
        with pytest.raises(ValueError, match=match):
            VPBoostRegressor(**{**QUICK, **options}).fit(X, y, dy=dy)

    fails("dy is for regression with loss='squared_error'; got loss=PseudoHuber", loss="pseudo_huber")
    fails(r"dy must have shape \(40, 3\), one derivative by each column of X, got \(40, 2\)", dy=dy[:, :2])
    fails(r"dy must have shape \(40, 2, 3\)", y=np.stack([y, y], axis=1))
    fails("dy must be numeric", dy=np.full((40, 3), "steep"))
    fails("dy must not be infinite", dy=np.where(dy > 0, np.inf, dy))
    several = np.stack([dy, dy], axis=1)
    several[0, 1, 2] = np.nan
    fails("dy must have the derivatives of all outputs", y=np.stack([y, y], axis=1), dy=several)
    fails("dy is for tables of up to 200,000 rows; X holds images", X=X.reshape(40, 3, 1), encoding="auto")
    fails("dy goes with arrays and data frames, got X of type list_iterator", X=iter([(X, y)]), y=None)
    for value in (0, -1.0, "much", None, np.nan):
        fails("slope_weight must be 'auto' or a positive number", slope_weight=value)
    with pytest.raises(ValueError, match="classifiers do not take it"):
        VPBoostClassifier().fit(X, y > 0, dy=dy)
    with pytest.raises(TypeError, match="slope_weight"):
        VPBoostClassifier(slope_weight=1.0)


def test_large_slopes_are_refused(data):
    X, y, dy = data
    with pytest.raises(ValueError, match="dy has values too large beside the spreads"):
        VPBoostRegressor(**QUICK).fit(X, y, dy=np.where(dy > 1, 1e305, dy))
