import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vpboost.estimators import parts
from vpboost.estimators.metrics import score_function
from vpboost.estimators.parts import canonical_rows
from vpboost.tables.encoder import InputEncoder
from vpboost.tables.frames import read_table
from vpboost.tables.scaling import TargetScaler


@given(
    scale=st.sampled_from([1e-150, 1e-9, 1.0, 1e9, 1e150]), shift=st.sampled_from([0.0, 3.0]), seed=st.integers(0, 99)
)
def test_columns_are_standardised_whatever_their_units(scale, shift, seed):
    rng = np.random.default_rng(seed)
    X, weight = rng.normal(size=(30, 2)), rng.uniform(0.1, 2, size=30)
    encoded = InputEncoder().fit(scale * (X + shift), weight).transform(scale * (X + shift))
    np.testing.assert_allclose(np.average(encoded, axis=0, weights=weight), 0, atol=1e-12)
    np.testing.assert_allclose(np.average(encoded**2, axis=0, weights=weight), 1, atol=1e-12)


def test_constant_and_missing_columns():
    X = np.array([[1.0, np.nan, 5.0], [1.0, 2.0, np.nan], [1.0, 4.0, 7.0], [1.0, np.nan, 6.0]])
    encoder = InputEncoder().fit(X, np.ones(4))
    encoded = encoder.transform(X)
    assert encoded.shape == (4, 5)
    np.testing.assert_array_equal(encoded[:, 0], 0)
    np.testing.assert_array_equal(encoded[:, 1], [0, -1, 1, 0])
    np.testing.assert_array_equal(encoded[:, 3:], [[1, 0], [0, 1], [0, 0], [1, 0]])
    np.testing.assert_array_equal(encoder.sources_, [0, 1, 2, 1, 2])
    everything = np.full((3, 2), np.nan)
    assert np.all(np.isfinite(InputEncoder().fit(everything, np.ones(3)).transform(everything)))


def test_frames_with_all_kinds_of_columns():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(
        {
            "number": [1.0, 2.0, 3.0],
            "nullable": pd.array([1, None, 3], dtype="Int64"),
            "flag": [True, False, True],
            "kind": ["b", "a", None],
            "level": pd.Categorical([1, 2, 1]),
        }
    )
    encoder = InputEncoder().fit(read_table(frame), np.ones(3))
    encoded = encoder.transform(read_table(frame))
    assert [c.levels for c in encoder.categories_] == [("<missing>", "a", "b"), ("1", "2")]
    assert encoded.shape == (3, 3 + 1 + 3 + 2)
    np.testing.assert_array_equal(encoded[:, 4:7], [[0, 0, 1], [0, 1, 0], [1, 0, 0]])
    np.testing.assert_array_equal(encoder.transform(read_table(frame.assign(kind="new")))[:, 4:7], 0)
    with pytest.raises(ValueError, match="column 'number' was numeric in training"):
        read_table(frame.assign(number=["x", "y", "z"]), encoder.kinds())


@pytest.mark.parametrize("kind", ["standard", "log", "none"])
def test_targets_go_there_and_back(kind):
    target = np.random.default_rng(0).gamma(2.0, size=(40, 3)) * [1.0, 1e6, 1e-6]
    scaler = TargetScaler(kind).fit(target, np.ones(40))
    scaled = scaler.transform(target)
    if kind == "log":
        np.testing.assert_allclose(scaled.mean(axis=0), 1)
        np.testing.assert_allclose(scaler.inverse(np.log(scaled)), target)
    else:
        np.testing.assert_allclose(scaler.inverse(scaled), target, atol=1e-9)
    step = 1e-6
    raw = np.full((1, 3), 0.3)
    numeric = (scaler.inverse(raw + step) - scaler.inverse(raw - step)) / (2 * step)
    np.testing.assert_allclose(scaler.slope(raw), numeric, rtol=1e-6)


def test_canonical_rows_merge_and_sort(monkeypatch):
    X = np.array([[2.0], [1.0], [2.0], [3.0]])
    y = np.array([[0.0], [5.0], [0.0], [1.0]])
    rows, weight, groups = canonical_rows(X, y, np.array([1.0, 2.0, 3.0, 0.0]))
    np.testing.assert_array_equal(rows, [1, 0])
    np.testing.assert_array_equal(weight, [2.0, 4.0])
    np.testing.assert_array_equal(groups, [0, 1])
    monkeypatch.setattr(parts, "MOST_SORTED", 2)
    rows, weight, groups = canonical_rows(X, y, np.array([1.0, 2.0, 3.0, 0.0]))
    monkeypatch.undo()
    np.testing.assert_array_equal(rows, [0, 1, 2])
    np.testing.assert_array_equal(weight, [1.0, 2.0, 3.0])
    np.testing.assert_array_equal(groups, [0, 1, 2])
    X[0] = 1.0  # the same input with two targets
    np.testing.assert_array_equal(canonical_rows(X, y, np.ones(4))[2], [0, 0, 1, 2])


def test_levels_do_not_depend_on_missing_values_elsewhere():
    pd = pytest.importorskip("pandas")
    train = pd.DataFrame({"level": pd.Categorical([1, 2, None]), "text": pd.array(["a", None, "b"], dtype="string")})
    encoder = InputEncoder().fit(read_table(train), np.ones(3))
    assert [c.levels for c in encoder.categories_] == [("1", "2", "<missing>"), ("<missing>", "a", "b")]
    new = pd.DataFrame({"level": pd.Categorical([2, 1]), "text": pd.array(["b", "a"], dtype="string")})
    found = encoder.transform(read_table(new, encoder.kinds()))
    np.testing.assert_array_equal(found, [[0, 1, 0, 0, 0, 1], [1, 0, 0, 0, 1, 0]])
    with pytest.raises(ValueError, match="column 'x' has infinite values"):
        read_table(pd.DataFrame({"x": [1.0, np.inf], "t": ["a", "b"]}))


def test_scores_match_scikit_learn():
    from sklearn.metrics import log_loss, mean_absolute_error, r2_score, roc_auc_score, root_mean_squared_error

    rng = np.random.default_rng(0)
    y, p, weight = rng.normal(size=50), rng.normal(size=50), rng.uniform(size=50)
    for name, expected in [
        ("rmse", root_mean_squared_error(y, p, sample_weight=weight)),
        ("mae", mean_absolute_error(y, p, sample_weight=weight)),
        ("r2", -r2_score(y, p, sample_weight=weight)),
    ]:
        np.testing.assert_allclose(score_function(name, classifier=False)(y, p, weight), expected)
    labels = rng.integers(0, 2, size=50)
    probability = rng.dirichlet([1, 1], size=50)
    for name, expected in [
        ("log_loss", log_loss(labels, probability, sample_weight=weight)),
        ("error", np.average(probability.argmax(1) != labels, weights=weight)),
        ("auc", -roc_auc_score(labels, probability[:, 1], sample_weight=weight)),
    ]:
        np.testing.assert_allclose(score_function(name, classifier=True)(labels, probability, weight), expected)
    with pytest.raises(ValueError, match="needs two classes"):
        score_function("auc", classifier=True)(labels, rng.dirichlet([1, 1, 1], size=50), weight)
