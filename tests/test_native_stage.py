"""Features, sums over rows and predictions by C: those of dense algebra, whatever the vectors, threads and shapes."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from test_native import X, Y, dense_of, features_of
from vpboost import (
    MLP,
    BinaryCrossEntropy,
    MulticlassCrossEntropy,
    ResNet,
    SquaredError,
    Training,
    boost,
    native,
)
from vpboost.core import boosting, initial, tracked
from vpboost.core.data import prepare
from vpboost.core.evaluation import DenseEnsemble
from vpboost.core.trees import Trees
from vpboost.engine import using
from vpboost.featurizers import SomeColumns

pytestmark = pytest.mark.skipif(not native.is_available(), reason="vpboost was built without its C part")


def network_of(dense: native.Dense, depth: int) -> native.Network:
    rng = np.random.default_rng(depth)
    questions = rng.normal(size=depth * (dense.sizes[0] + 1)).astype(dense.theta.dtype)
    return native.Network(dense.sizes, dense.activation, dense.theta, questions, np.asarray(0.7, dense.theta.dtype))


def all_features(dense: native.Dense, network: native.Network) -> np.ndarray:
    """Features of all rows by plain NumPy: those of the network, the leaves of the tree, the constant one."""
    z, depth, n = features_of(dense), network.depth, dense.sizes[0]
    if not depth:
        return z
    x = np.moveaxis(dense.x, 1, 0).reshape(n, -1).astype(float)
    asked = network.questions[: depth * n].reshape(depth, n) @ x + network.questions[depth * n :, None]
    gates, leaves = 1 / (1 + np.exp(-asked)), np.empty((1 << depth, x.shape[1]))
    for leaf in range(1 << depth):  # bit number l of a leaf's number is the answer to question l
        answers = [gates[level] if leaf >> level & 1 else 1 - gates[level] for level in range(depth)]
        leaves[leaf] = 0.7 * np.prod(answers, axis=0)
    return np.vstack([z[:-1], leaves, z[-1:]])


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 20), min_size=2, max_size=4).map(tuple),
    depth=st.integers(0, 5),
    n_outputs=st.integers(1, 5),
    n_blocks=st.integers(1, 4),
    rows=st.integers(1, 40).map(lambda n: 32 * n),
    activation=st.sampled_from(list(native.ACTIVATIONS)),
)
def test_features_and_sums_are_those_of_dense_algebra(
    sizes: tuple, depth: int, n_outputs: int, n_blocks: int, rows: int, activation: str
) -> None:
    dense = dense_of(sizes, n_outputs, n_blocks, rows, "float64", activation)
    network = network_of(dense, depth)
    expected = all_features(dense, network)
    found = native.features(network, dense.x)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)
    without = native.features(network._replace(questions=network.questions[:0]), dense.x)
    np.testing.assert_array_equal(native.features(network, dense.x, known=without), found)
    gradient = np.ascontiguousarray(np.moveaxis(dense.gradient, 1, 0).reshape(n_outputs, -1))
    hessian, slopes = native.sums(found, gradient, dense.curvature.ravel())
    np.testing.assert_allclose(hessian, (expected * dense.curvature.ravel()) @ expected.T, rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(slopes, expected @ gradient.T, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_features_sums_and_predictions_do_not_depend_on_threads_nor_vectors(dtype: str) -> None:
    dense = dense_of((5, 9, 7), 2, 3, 544, dtype)
    network = network_of(dense, 4)
    gradient = np.ascontiguousarray(np.moveaxis(dense.gradient, 1, 0).reshape(2, -1))
    weights = np.random.default_rng(0).normal(size=(1, 2, network.n_features)).astype(dtype)
    stacked = network._replace(**{name: getattr(network, name)[None] for name in ("theta", "questions", "size")})
    x = np.random.default_rng(1).normal(size=(1003, 5)).astype(dtype)

    def found(n_threads: int, vector_bytes: int | None = None) -> list[np.ndarray]:
        z = native.features(network, dense.x, None, n_threads, vector_bytes)
        predicted = native.predictions(stacked, weights, np.ones(2), x, n_threads, vector_bytes)
        return [z, *native.sums(z, gradient, dense.curvature.ravel(), n_threads, vector_bytes), predicted]

    alone = found(1)
    for n_threads in (2, 3, 40):
        for ours, theirs in zip(alone, found(n_threads), strict=True):
            np.testing.assert_array_equal(ours, theirs)
    for size in (size for size in (16, 32, 64) if size <= native.vector_bytes()):
        for ours, theirs in zip(alone, found(2, size), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=2e-5 if dtype == "float32" else 1e-12, atol=1e-6)
    assert alone[0].dtype == dtype
    assert alone[1].dtype == alone[3].dtype == np.float64
    single = native.predictions(stacked, weights, np.ones(2), x[500:501], 1)
    np.testing.assert_array_equal(single[0], alone[3][500])  # whatever the other rows are


@pytest.mark.parametrize("depth", [0, 3])
@pytest.mark.parametrize("some", [1.0, 0.5])
def test_predictions_are_those_of_the_ensemble(depth: int, some: float) -> None:
    trees = {"trees": Trees(depth)} if depth else {}
    featurizer = partial(SomeColumns, factory=partial(MLP, width=7, depth=1), fraction=some)
    fit = boost(X, Y, loss=SquaredError(), featurizer=featurizer, n_learners=4, dtype="float64", engine="xla",
                training=Training(max_steps=5), **trees)  # fmt: skip
    by_c = DenseEnsemble.of(fit.ensemble)
    assert by_c is not None
    np.testing.assert_allclose(by_c.predict(X), fit.ensemble.predict(X), rtol=1e-10, atol=1e-12)
    assert by_c.predict(X[:0]).shape == (0, 2)


def test_ensembles_that_c_does_not_know_are_left_to_others() -> None:
    options = {"loss": SquaredError(), "n_learners": 1, "training": Training(max_steps=1)}
    assert DenseEnsemble.of(boost(X, Y, featurizer=ResNet, **options).ensemble) is None
    assert DenseEnsemble.of(boost(X, Y, featurizer=partial(MLP, activation="sin"), **options).ensemble) is None
    assert DenseEnsemble.of(boost(X, Y, featurizer=MLP, **{**options, "n_learners": 0}).ensemble) is None


def test_weights_beside_trees_are_those_of_xla() -> None:
    """The summary is made by C in one, by the program in the other; the curvature is not that of squared error."""
    target = (Y[:, 0] > 0).astype(int)
    options = {"loss": BinaryCrossEntropy(), "featurizer": partial(MLP, width=5), "n_learners": 3, "dtype": "float64"}
    options |= {"training": Training(max_steps=4), "trees": Trees(3), "validation": (X[:50], target[:50])}
    ours, theirs = (
        [
            (record.loss, record.validation_loss, record.operator_norm, record.alignment, record.model_reduction)
            for record in boost(X, target, engine=engine, **options).history
        ]
        for engine in ("native", "xla")
    )
    np.testing.assert_allclose(ours, theirs, rtol=1e-8)


def test_c_refuses_arrays_of_other_shapes() -> None:
    dense = dense_of((5, 9), 2, 1, 64, "float64")
    network = network_of(dense, 0)
    with pytest.raises(ValueError, match="multiple of 32"):
        native.features(network, np.ascontiguousarray(dense.x[:, :, :33]))
    with pytest.raises(ValueError, match="expected a contiguous array"):
        native.features(network, dense.x[:, :4])
    with pytest.raises(ValueError, match="expected a contiguous array"):
        native.features(network._replace(theta=network.theta[1:]), dense.x)
    z = native.features(network, dense.x)
    with pytest.raises(ValueError, match="expected a contiguous array"):
        native.sums(z, np.zeros((2, 63)), np.zeros(64))
    with pytest.raises(ValueError, match="multiple of 32"):
        native.sums(np.ones((3, 33)), np.zeros((2, 33)), np.zeros(33))


@pytest.mark.parametrize("n_outputs", [1, 2])
def test_features_of_many_rows_are_kept_as_long_as_there_is_room(
    n_outputs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether they are kept, in one block, or not, in many, the fit is the same."""
    options = {"loss": SquaredError(), "featurizer": partial(MLP, width=5), "n_learners": 3, "dtype": "float64"}
    options |= {"training": Training(max_steps=4, batch_size=64), "validation": (X[:70], Y[:70, :n_outputs])}
    kept, asked, found = tracked.keeps_features, [], []
    monkeypatch.setattr(boosting, "keeps_features", lambda *given: asked.append(kept(*given)) or asked[-1])
    for room in (320 * 6 + 96 * 6, 320 * 6 + 96 * 6 - 1):  # 300 and 70 rows, in blocks of 32; 6 features
        monkeypatch.setattr(tracked, "MOST_KEPT", room)
        fit = boost(X, Y[:, :n_outputs], engine="native", **options)
        found.append([(record.loss, record.validation_loss, record.ratio) for record in fit.history])
    assert asked == [True, False]
    np.testing.assert_allclose(*found, rtol=1e-9)


def test_what_c_does_not_sum_over_is_left_to_others() -> None:
    classes = MulticlassCrossEntropy(3)
    data, several = prepare(X, Y, SquaredError()), prepare(X, np.digitize(Y[:, 0], [-0.3, 0.3]), classes)
    learner = initial.example(MLP, True, X)
    with using("native"):
        assert tracked.keeps_features([data], SquaredError(), learner, 0)
        assert not tracked.keeps_features([several], classes, learner, 0)
        assert not tracked.keeps_features([data], SquaredError(), initial.example(ResNet, True, X), 0)
    assert not tracked.keeps_features([data], SquaredError(), learner, 0)  # by XLA


def test_numbers_too_small_for_full_precision_count_as_zero() -> None:
    """Leaves far from a row are products of tiny numbers; those below the normal ones would slow down everything."""
    dense = dense_of((2, 3), 1, 1, 64, "float32")
    far = np.array([-70.0, -70.0, 0.0, 0.0, 0.0, 0.0], np.float32)  # a gate of e⁻⁷⁰ where a column is one
    network = native.Network(dense.sizes, "tanh", dense.theta, far, np.asarray(1.0, np.float32))
    ones = np.ones_like(dense.x)
    leaves = native.features(network, ones)[3:-1]
    tiny = np.finfo(np.float32).tiny
    assert np.all((leaves == 0) | (leaves >= tiny))
    assert (leaves == 0).any()
    np.testing.assert_allclose(leaves.sum(axis=0), 1, rtol=1e-6)


def test_what_is_flushed_is_whole_again_afterwards() -> None:
    half = np.full(4, np.finfo(np.float32).tiny) / np.float32(2)

    def halved() -> np.ndarray:
        return half * np.float32(1)

    assert np.all(halved() > 0)
    assert np.all(native.with_tiny_flushed(halved) == 0)
    assert np.all(halved() > 0)
    with pytest.raises(ZeroDivisionError):
        native.with_tiny_flushed(lambda: 1 // 0)
    assert np.all(halved() > 0)


def test_threads_only_for_work_that_is_worth_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native.library, "n_cores", lambda: 8)
    assert [native.library.threads_for(1, work, 100) for work in (0, 99, 250, 10_000)] == [1, 1, 2, 8]
    assert [native.library.threads_for(n, 10_000, 100) for n in (2, 3, 9)] == [4, 2, 1]
