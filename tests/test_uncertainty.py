"""Noise and ignorance: the posterior is that of dense algebra, grows away from the data, and fits errors made."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import Matern

from models import PLAIN, QUICK, refuse_changed
from vpboost import VPBoostRegressor, load_model
from vpboost.estimators.loading import from_bytes
from vpboost.estimators.uncertainty import MOST_COLUMNS
from vpboost.files.container import pack, unpack
from vpboost.numerics.ignorance import (
    DOUBT,
    FACTORS,
    POWERS,
    SHARES,
    Evidence,
    Ignorance,
    ignorance_of,
    likeliest_noise,
    matern,
    standardised,
    unknown,
)

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, size=(120, 2))
GOOD = {**PLAIN, "n_estimators": 40, "learning_rate": 0.3, "engine": "numpy"}


def smooth(x):
    return np.sin(3 * x[:, 0]) + x[:, 1] ** 2


@pytest.fixture(scope="module")
def model():
    return VPBoostRegressor(**GOOD).fit(X, smooth(X))


@pytest.fixture(scope="module")
def two_outputs():
    return VPBoostRegressor(**QUICK, n_chains=1).fit(X, np.stack([smooth(X), 1e3 * X[:, 1]], axis=1))


# --- the process ------------------------------------------------------------------------------------------------------


def test_correlations_are_those_of_matern():
    lengths = np.array([0.5, 2.0])
    found = matern(X[:9] / lengths, X[9:30] / lengths)
    np.testing.assert_allclose(found, Matern(lengths, nu=2.5)(X[:9], X[9:30]), rtol=1e-10)


@pytest.mark.parametrize("n_aside", [0, 30])
def test_the_posterior_is_that_of_gaussian_process_regression(n_aside):
    y = np.stack([smooth(X), 50 * X[:, 0] + 3], axis=1)
    found = Ignorance(Evidence(X, y, 0.1 * RNG.normal(size=(n_aside, 2)), all_seen=True))
    n = len(X) - n_aside
    lengths = found.spread / found.inverse_lengths
    test = RNG.uniform(-3, 3, size=(40, 2))
    dense = GaussianProcessRegressor(Matern(lengths, nu=2.5), alpha=found.nugget, optimizer=None).fit(X, X[:, 0])
    v = dense.predict(test, return_std=True)[1] ** 2
    shift = y[:n].mean(axis=0)
    kernel = Matern(lengths, nu=2.5)
    mean = shift + kernel(test, X) @ np.linalg.solve(kernel(X) + found.nugget * np.eye(len(X)), y - shift)
    gaps = RNG.normal(size=(40, 2))
    scaled = (y[:n] - y[:n].mean(axis=0)) / y[:n].std(axis=0)
    inverse = np.linalg.inv(Matern(lengths, nu=2.5)(X[:n]) + found.nugget * np.eye(n))
    variance = np.einsum("ik,ij,jk->k", scaled, inverse, scaled) / n
    np.testing.assert_allclose(found.variance, variance, rtol=1e-5)
    expected = np.sqrt(v[:, None] ** found.power * variance * y[:n].var(axis=0) + found.factor * gaps**2)
    np.testing.assert_allclose(found(test, mean + gaps), expected, rtol=1e-3, atol=1e-5 * expected.max())
    if not n_aside:
        assert found.power == found.factor == 1
        np.testing.assert_allclose(found.noise_of_outputs, y.std(axis=0) * np.sqrt(found.nugget * variance), rtol=1e-5)


def test_the_posterior_is_that_of_dense_bayesian_linear_regression():
    # features whose products are the correlations, their weights of a standard normal law, noise of variance τ
    y, test = smooth(X)[:, None], RNG.uniform(-3, 3, size=(40, 2))
    found = Ignorance(Evidence(X, y, np.zeros((0, 1)), all_seen=True))
    every = np.concatenate([X, test])
    correlations = Matern(found.spread / found.inverse_lengths, nu=2.5)(every)
    known, new = np.split(np.linalg.cholesky(correlations + 1e-12 * np.eye(len(every))), [len(X)])
    covariance = np.linalg.inv(known.T @ known / found.nugget + np.eye(len(every)))
    mean = y.mean() + new @ covariance @ known.T @ (y - y.mean()) / found.nugget
    expected = y.std() * np.sqrt(found.variance * np.einsum("ij,jk,ik->i", new, covariance, new)[:, None])
    np.testing.assert_allclose(found(test, mean), expected, rtol=1e-4)


def test_rows_that_the_model_has_not_seen_leave_it_ignorant():
    y, errors = smooth(X)[:, None], 0.01 * RNG.normal(size=(60, 1))
    order = np.argsort(X[:, 0])  # those set aside are on the right
    known, unknown = (Ignorance(Evidence(X[order], y[order], errors, seen)) for seen in (True, False))
    rows, truth = X[order][-40:], y[order][-40:]
    assert (unknown(rows, truth) > 2 * known(rows, truth)).mean() > 0.9
    np.testing.assert_array_equal(known.noise, unknown.noise)


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 1000), st.sampled_from([0.3, 1.0, 3.0]), st.sampled_from([0.0, 0.3]), st.sampled_from([0, 1]))
def test_noise_and_power_are_the_likeliest(seed, power, noise, factor):
    rng = np.random.default_rng(seed)
    parts, variance, gaps = rng.uniform(1e-3, 1, size=50), np.array([1.0, 4.0]), rng.normal(size=(50, 2))
    errors = rng.normal(size=(50, 2)) * np.sqrt(noise**2 + variance * parts[:, None] ** power + factor * gaps**2)
    errors[:5, 0] = np.nan
    before = np.array([0.1, 0.2])
    found, *likeliest = likeliest_noise(errors, parts, gaps, variance, before)

    def unlikelihood(k, share, p, c):
        known = ~np.isnan(errors[:, k])
        v, gap, error = parts[known], gaps[known, k], errors[known, k]
        expected = before[k] ** 2 + variance[k] * v + gap**2
        square = np.mean(error**2)
        total = share * square + variance[k] * v**p + c * gap**2
        prior = norm.logpdf(np.mean(np.log(total)), np.mean(np.log(expected)), DOUBT)
        return -np.sum(norm.logpdf(error, 0, np.sqrt(total))) - prior, np.sqrt(share * square)

    every = {
        (p, c): [min(unlikelihood(k, share, p, c) for share in SHARES) for k in (0, 1)] for p in POWERS for c in FACTORS
    }
    best = min(every, key=lambda pair: every[pair][0][0] + every[pair][1][0] + np.log2(pair[0]) ** 2 / 2)
    assert tuple(likeliest) == best
    np.testing.assert_allclose(found, [every[best][k][1] for k in (0, 1)])


def test_many_outputs_share_what_some_of_them_tell():
    rng = np.random.default_rng(0)
    parts, gaps, scale = rng.uniform(size=100), rng.normal(size=(100, 70)), rng.uniform(1, 2, size=70)
    errors = scale * rng.normal(size=(100, 70)) * np.sqrt(0.2 + parts[:, None])
    noise, *pair = likeliest_noise(errors, parts, gaps, scale**2, scale)
    assert pair == [*likeliest_noise(errors[:, ::3], parts, gaps[:, ::3], scale[::3] ** 2, scale[::3])[1:]]
    assert np.corrcoef(noise, scale)[0, 1] > 0.5


def test_few_errors_that_happen_to_be_small_do_not_count_for_much():
    """Three errors of nearly nothing leave a good part of what the process expects; 300 of them do not."""
    variance, noise = np.ones(1), np.full(1, 0.5)
    left = []
    for n in (3, 300):
        parts, gaps = np.full(n, 0.3), np.zeros((n, 1))
        found, power, factor = likeliest_noise(np.full((n, 1), 1e-3), parts, gaps, variance, noise)
        left.append(float(found[0] ** 2 + unknown(parts[:1], gaps[:1], variance, power, factor)[0, 0]))
    expected = 0.3 + 0.5**2
    assert expected / 10 < left[0] < expected
    assert left[1] < expected / 30


def test_targets_of_any_size_are_standardised():
    y = np.array([[1e300, 3.0, 7.0], [-1e300, np.nan, 7.0], [1e299, 5.0, 7.0]])
    scaled, mean, unit = standardised(y, 3)
    np.testing.assert_allclose(mean, [1e299 / 3, 4.0, 7.0])
    np.testing.assert_allclose(unit, [1e300 * np.std([1, -1, 0.1]), 1.0, 7.0])
    np.testing.assert_allclose(scaled[:, 1:], [[-1, 0], [0, 0], [1, 0]])
    np.testing.assert_allclose([scaled[:, 0].mean(), scaled[:, 0].std()], [0, 1], atol=1e-12)


# --- of estimators ----------------------------------------------------------------------------------------------------


def test_ignorance_grows_away_from_the_data(model):
    near = model.predict_uncertainty(RNG.uniform(-0.9, 0.9, size=(100, 2)))
    far = model.predict_uncertainty([[2.0, 0.0], [3.0, 3.0], [30.0, -30.0]])
    assert far.ignorance[0] > 10 * np.median(near.ignorance)
    assert (np.diff(far.ignorance) > 0).all()


def test_ignorance_is_larger_in_a_gap():
    x = np.concatenate([np.linspace(-1, -0.3, 20), np.linspace(0.3, 1, 20)])[:, None]
    model = VPBoostRegressor(**GOOD).fit(x, np.sin(4 * x[:, 0]))
    gap, beside = model.predict_uncertainty([[0.0], [-0.7]]).ignorance
    assert gap > 3 * beside


def test_few_rows_do_not_make_it_too_sure():
    """Of 20 rows in 6 dimensions, drawn from processes, the likeliest lengths alone leave errors of many spreads."""
    rng, found = np.random.default_rng(3), []
    for _ in range(12):
        x = rng.uniform(-1, 1, size=(220, 6))
        kernel = Matern(rng.uniform(1, 4, size=6), nu=2.5)
        y = np.linalg.cholesky(kernel(x) + 1e-10 * np.eye(len(x))) @ rng.normal(size=len(x))
        known = Ignorance(Evidence(x[:20], y[:20, None], np.zeros((0, 1)), all_seen=True))
        _, mean = known._posterior(known._scaled(x[20:]))
        mean = mean * known.unit + known.shift
        found.append(np.mean((y[20:, None] - mean) ** 2 / known(x[20:], mean) ** 2))
    assert 0.5 < np.median(found) < 2
    assert max(found) < 8


def test_standard_deviations_are_those_of_errors():
    rng = np.random.default_rng(2)
    x, test = rng.uniform(-1, 1, size=(400, 2)), rng.uniform(-1, 1, size=(2000, 2))
    model = VPBoostRegressor(**GOOD).fit(x, smooth(x) + 0.3 * rng.normal(size=400))
    mean, noise, ignorance = model.predict_uncertainty(test)
    found, std = model.predict(test, return_std=True)
    np.testing.assert_array_equal(found, mean)
    np.testing.assert_array_equal(mean, model.predict(test))
    np.testing.assert_allclose(std**2, noise**2 + ignorance**2)
    assert (np.abs(noise - 0.3) < 0.08).all()
    assert 0.8 < np.sqrt(np.mean(((smooth(test) + 0.3 * rng.normal(size=2000) - mean) / std) ** 2)) < 1.25


def test_several_outputs_have_their_own_units(two_outputs):
    mean, noise, ignorance = two_outputs.predict_uncertainty(X[:7])
    assert mean.shape == noise.shape == ignorance.shape == (7, 2)
    assert (ignorance[:, 1] > 50 * ignorance[:, 0]).all()


def test_units_do_not_matter():
    plain = VPBoostRegressor(**QUICK, n_chains=1).fit(X, smooth(X))
    other = VPBoostRegressor(**QUICK, n_chains=1).fit(1e6 * X + 5, 1e-9 * smooth(X))
    far = 2 * X[:5]
    for one, two in zip(plain.predict_uncertainty(far), other.predict_uncertainty(1e6 * far + 5), strict=True):
        np.testing.assert_allclose(two, 1e-9 * one, rtol=1e-3)


def test_constant_and_huge_targets():
    for y in (np.ones(120), 1e299 * smooth(X)):
        model = VPBoostRegressor(**QUICK, n_chains=1).fit(X, y)
        assert all(np.isfinite(part).all() for part in model.predict_uncertainty(X))
    assert np.isfinite(model.predict_interval(X)).all()


def test_columns_that_encodings_add_are_left_out():
    frame = pd.DataFrame({"a": X[:, 0], "b": np.where(X[:, 1] > 0, "up", "down"), "c": X[:, 1]})
    frame.loc[::10, "c"] = np.nan
    model = VPBoostRegressor(**{**QUICK, "encoding": "spline"}, n_chains=1).fit(frame, smooth(X))
    assert model._evidence.rows.shape == (120, 5)  # two numbers, a mark of missing ones, two levels
    assert model.predict_uncertainty(frame).ignorance.shape == (120,)


def test_given_validation_rows_are_not_known():
    model = VPBoostRegressor(**QUICK).fit(X[:60], smooth(X[:60]), X_val=X[60:], y_val=smooth(X[60:]))
    assert not model._evidence.all_seen
    errors = smooth(X[60:]) - model.predict(X[60:])
    np.testing.assert_allclose(np.sort(model._evidence.errors[:, 0]), np.sort(errors), atol=1e-5)


def test_errors_say_what_to_do():
    with pytest.raises(ValueError, match="quantiles has no standard deviation; use predict_interval"):
        VPBoostRegressor(**QUICK, loss="quantile").fit(X, X[:, 0]).predict(X, return_std=True)
    wide = RNG.normal(size=(60, MOST_COLUMNS + 1))
    with pytest.raises(ValueError, match="128 encoded columns at the most"):
        VPBoostRegressor(**QUICK).fit(wide, wide[:, 0]).predict_uncertainty(wide)
    with pytest.raises(ValueError, match="one row tells nothing of how far off predictions may be"):
        VPBoostRegressor(**QUICK).fit(X[:1], X[:1, 0]).predict(X, return_std=True)


# --- files ------------------------------------------------------------------------------------------------------------


def test_a_model_from_a_file_is_as_sure(two_outputs, tmp_path):
    two_outputs.save_model(tmp_path / "model")
    found = load_model(tmp_path / "model").predict_uncertainty(2 * X)
    np.testing.assert_array_equal(found, two_outputs.predict_uncertainty(2 * X))


def test_files_of_earlier_versions_say_so(two_outputs, tmp_path):
    two_outputs.save_model(tmp_path / "model")
    content, arrays = unpack((tmp_path / "model").read_bytes(), "model")
    content.pop("evidence_all_seen")
    old = {name: array for name, array in arrays.items() if not name.startswith(("evidence", "conformity"))}
    model = from_bytes(pack(content, old), "model")
    np.testing.assert_array_equal(model.predict(X), two_outputs.predict(X))
    with pytest.raises(ValueError, match="saved with training_rows=False, or earlier"):
        model.predict(X, return_std=True)
    with pytest.raises(ValueError, match="call calibrate"):
        model.predict_interval(X)
    model.calibrate(X, np.stack([smooth(X), 1e3 * X[:, 1]], axis=1)).predict_interval(X)


def put(name, value):
    return lambda content, arrays: arrays[name].reshape(-1).__setitem__(0, value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put("evidence.rows", np.nan), "NaN or infinite"),
        (put("evidence.rows", 1e9), "numbers that make no sense"),
        (put("evidence.targets", 1e307), "numbers that make no sense"),
        (put("evidence.errors", np.inf), "numbers that make no sense"),
        (lambda _, a: a.update({"evidence.rows": a["evidence.rows"][1:]}), "of shape"),
        (lambda _, a: a.update({"evidence.errors": np.zeros((120, 2))}), "120 rows of its fit, 120 of them set aside"),
        (lambda _, a: a.update({"evidence.rows": np.zeros((2000, 2)), "evidence.targets": np.ones((2000, 2))}), "2000"),
        (lambda _, a: a.update({"evidence.targets": a["evidence.targets"].astype("f4")}), "make no sense"),
        (lambda c, _: c.update(evidence_all_seen=1), "evidence_all_seen = 1"),
        (lambda c, _: c.pop("evidence_all_seen"), "entries that do not belong"),
    ],
)
def test_rows_in_hostile_files(two_outputs, tmp_path, change, message):
    refuse_changed(two_outputs, tmp_path / "model", change, message)


@pytest.mark.parametrize("value", [0.0, np.nan])
def test_odd_targets_in_files_do_no_harm(two_outputs, tmp_path, value):
    two_outputs.save_model(tmp_path / "model")
    content, arrays = unpack((tmp_path / "model").read_bytes(), "model")
    for name in ("targets", "errors"):
        arrays[f"evidence.{name}"].fill(value)
    mean, *others = from_bytes(pack(content, arrays), "model").predict_uncertainty(X)
    assert np.isfinite(mean).all()
    assert all((np.isfinite(part) == np.isfinite(value)).all() for part in others)  # without targets, nothing is known


def test_outputs_with_holes_are_told_by_the_rows_that_have_them():
    rng = np.random.default_rng(0)
    x, y, errors = rng.normal(size=(30, 2)), rng.normal(size=(30, 4)), rng.normal(size=(10, 4))
    y[5:26, 1] = y[1:, 2] = y[2:, 3] = np.nan  # the last row is of those set aside
    y[29, 2], errors[np.isnan(y[20:])] = 1.0, np.nan
    rows, predictions = rng.normal(size=(7, 2)), rng.normal(size=(7, 4))
    found = ignorance_of(Evidence(x, y, errors, True))
    spread, noise = found(rows, predictions), found.noise_of_outputs
    for output, known, aside in ((0, slice(None), slice(None)), (1, [0, 1, 2, 3, 4, 26, 27, 28, 29], slice(6, None))):
        alone = ignorance_of(Evidence(x[known], y[known][:, [output]], errors[aside][:, [output]], True))
        np.testing.assert_array_equal(spread[:, [output]], alone(rows, predictions[:, [output]]))
        assert noise[output] == alone.noise_of_outputs[0]
    both = ignorance_of(Evidence(x[[0, 29]], y[[0, 29]][:, [2]], np.zeros((0, 1)), True))  # one learnt from is too few
    np.testing.assert_array_equal(spread[:, [2]], both(rows, predictions[:, [2]]))
    assert np.isfinite(spread[:, 3]).all()
    y[:, 3] = np.nan
    y[4, 3] = 1.0
    assert np.isnan(ignorance_of(Evidence(x, y, errors, True))(rows, predictions)[:, 3]).all()


def test_few_targets_of_an_output_do_not_make_it_sure():
    rng = np.random.default_rng(3)
    X, misses = rng.uniform(-1, 1, (300, 2)), []
    for seed in range(4):
        y = 3 * np.sin(3 * X[:, 0]) + 0.9 * rng.normal(size=300)
        Y = np.stack([X[:, 1], np.where(np.arange(300) < 5, y, np.nan)], axis=1)[:200]
        model = VPBoostRegressor(n_chains=1, n_estimators=20, learning_rate=0.3, random_state=seed).fit(X[:200], Y)
        mean, std = model.predict(X[200:], return_std=True)
        misses.append(np.sqrt(np.mean(((y[200:] - mean[:, 1]) / std[:, 1]) ** 2)))
    assert np.median(misses) < 2.5  # 2 to 7 where other rows' means counted as known


def test_the_targets_of_a_rare_output_are_kept():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (3000, 2))
    rare = np.where(rng.random(3000) < 0.01, np.sin(3 * X[:, 0]) + 0.1 * rng.normal(size=3000), np.nan)
    model = VPBoostRegressor(**QUICK).fit(X, np.stack([X[:, 1], rare], axis=1))
    targets = model._evidence.targets[:, 1]
    assert len(targets) <= 600
    assert np.isfinite(targets).sum() == np.isfinite(rare).sum()
    assert np.isfinite(model.predict(X[:5], return_std=True)[1]).all()


def test_a_single_target_tells_nothing():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (60, 2))
    Y = np.stack([X[:, 1], np.where(np.arange(60) == 7, 3.0, np.nan)], axis=1)
    quick = {"n_estimators": 3, "n_chains": 1}
    for seed in range(4):  # it is never set aside
        mean, std = VPBoostRegressor(random_state=seed, **quick).fit(X, Y).predict(X[:3], return_std=True)
        assert np.isfinite(mean).all()
        assert np.isfinite(std[:, 0]).all()
        assert np.isnan(std[:, 1]).all()
    with pytest.raises(ValueError, match=r"single target for output\(s\) \[1\].*distribution='normal' needs two"):
        VPBoostRegressor(distribution="normal", **quick).fit(X, Y)
