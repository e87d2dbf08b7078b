"""Soft trees beside networks: questions against brute force, leaves by hand, and all that a model with them can do."""

import importlib.util
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles import central_difference
from vpboost import (
    MLP,
    BinaryCrossEntropy,
    MulticlassCrossEntropy,
    SquaredError,
    Training,
    TrustRegion,
    VPBoostClassifier,
    VPBoostRegressor,
    boost,
    load_model,
    native,
)
from vpboost.callbacks import Checkpoint
from vpboost.core import trees
from vpboost.core.boosting import differentiate
from vpboost.core.data import prepare
from vpboost.core.trees import Grower, Trees, best_cuts, cuts_of, left_by
from vpboost.featurizers import Identity, WithBias
from vpboost.featurizers.trees import WithTree, planted, without_tree
from vpboost.files.container import ModelFileError
from vpboost.files.describe import describe_featurizer, factory_of

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, size=(400, 3))
Y = np.where(X[:, 0] > 0.2, 1.0, -1.0) * np.where(X[:, 1] > -0.3, 2.0, 1.0) + np.sin(3 * X[:, 2])
QUICK = {
    "encoding": "plain",
    "inherit": 0.5,
    "max_features": 0.7,
    "n_chains": 1,
    "n_estimators": 12,
    "learning_rate": 0.3,
}


def fit(**options):
    given = {"n_learners": 8, "training": Training(max_steps=10), "trust_region": TrustRegion(rate=0.5), **options}
    return boost(X, Y, loss=SquaredError(), featurizer=partial(MLP, width=4, depth=0), trees=Trees(3), **given)


# --- leaves -----------------------------------------------------------------------------------------------------------


def tree_of(depth=3, d=4, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    numbers = rng.normal(size=(depth, d)), rng.normal(size=depth), np.array(1.7)
    return WithTree(Identity(), *(jnp.asarray(number, dtype) for number in numbers))


@given(depth=st.integers(1, 5), seed=st.integers(0, 99))
def test_leaves_are_products_of_gates_and_add_up_to_their_size(depth, seed):
    with jax.enable_x64(True):
        tree, x = tree_of(depth, seed=seed), np.random.default_rng(seed).normal(size=4)
        features = np.asarray(tree(jnp.asarray(x)))
        gates = 1 / (1 + np.exp(-(np.asarray(tree.weight) @ x + np.asarray(tree.bias))))
        leaves = [
            1.7 * np.prod([g if leaf >> (depth - 1 - level) & 1 else 1 - g for level, g in enumerate(gates[::-1])])
            for leaf in range(1 << depth)
        ]
        np.testing.assert_allclose(features[:4], x)
        np.testing.assert_allclose(features[4:], leaves, rtol=1e-12)
        np.testing.assert_allclose(features[4:].sum(), 1.7, rtol=1e-12)


def test_leaves_have_derivatives():
    with jax.enable_x64(True):
        tree, x = tree_of(), RNG.normal(size=4)
        exact = jax.jacobian(tree)(jnp.asarray(x))
        np.testing.assert_allclose(exact, central_difference(lambda v: tree(jnp.asarray(v)), x), atol=1e-8)


def test_a_tree_is_planted_inside_the_bias_and_taken_away_again():
    network = WithBias(Identity())
    tree = planted(network, np.ones((2, 3)), np.zeros(2), np.ones(()))
    assert isinstance(tree, WithBias)
    assert isinstance(tree.featurizer, WithTree)
    assert float(tree(jnp.zeros(3))[-1]) == 1
    assert without_tree(tree) == network == without_tree(network)
    assert without_tree(planted(Identity(), np.ones((2, 3)), np.zeros(2), np.ones(()))) == Identity()


# --- questions --------------------------------------------------------------------------------------------------------


def questions(n, n_columns, n_bins, n_leaves, n_outputs, seed):
    rng = np.random.default_rng(seed)
    bins = rng.integers(0, n_bins, size=(n_columns, n)).astype(np.uint8)
    common = np.where(rng.random(n_columns) < 0.5, rng.integers(0, n_bins, size=n_columns), -1).astype(np.int16)
    for column in np.flatnonzero(common >= 0):
        bins[column, rng.random(n) < 0.8] = common[column]
        common[column] = bins[column, 0]  # any bin with a row in it may be left out of the sums
    seen = rng.random(n_columns) < 0.8
    leaf, gradient = rng.integers(0, n_leaves, size=n).astype(np.uint8), rng.normal(size=(n, n_outputs))
    return native.Questions(bins, leaf, gradient, rng.uniform(0.1, 1, size=n), seen, common)


def gain_of(asked, column, place, n_leaves, penalty):
    """What a cut leaves of the quadratic model, times −2, if every leaf has a weight of its own: one by one."""
    total = 0.0
    for leaf in range(n_leaves):
        for side in (asked.bins[column] <= place, asked.bins[column] > place):
            rows = side & (asked.leaf == leaf)
            total += np.sum(asked.gradient[rows].sum(axis=0) ** 2) / (asked.curvature[rows].sum() + penalty)
    return total


@pytest.mark.parametrize("find", [best_cuts, native.best_cuts])
@settings(max_examples=40, deadline=None)
@given(
    shape=st.tuples(st.integers(1, 60), st.integers(1, 4), st.integers(1, 7), st.integers(1, 4), st.integers(1, 3)),
    seed=st.integers(0, 999),
)
def test_the_best_cut_is_that_of_brute_force(find, shape, seed):
    if find is native.best_cuts and not native.is_available():
        pytest.skip("vpboost was built without its C part")
    asked = questions(*shape, seed)
    _, _, n_bins, n_leaves, _ = shape
    known = {
        (column, place): gain_of(asked, column, place, n_leaves, 0.3)
        for column in np.flatnonzero(asked.seen)
        for place in range(asked.bins[column].max())
    }
    [(column, place, gain)] = find(asked, n_bins, n_leaves, 1, 0.3)
    if not known:
        assert (column, place) == (-1, -1)
    else:
        np.testing.assert_allclose([gain, known[column, place]], max(known.values()), rtol=1e-9)


@pytest.mark.skipif(not native.is_available(), reason="vpboost was built without its C part")
def test_c_and_numpy_find_the_same_cut():
    asked = questions(3000, 9, 129, 16, 2, 0)
    c, numpy = (np.array(find(asked, 129, 16, 4, 1e-3)) for find in (native.best_cuts, best_cuts))
    np.testing.assert_array_equal(c[:, :2], numpy[:, :2])
    np.testing.assert_allclose(c[:, 2], numpy[:, 2], rtol=1e-12)
    assert (np.diff(c[:, 2]) > 0).all()
    with pytest.raises(ValueError, match="in 128 bins and 16 leaves"):
        native.best_cuts(asked, 128, 16, 4, 1e-3)
    with pytest.raises(ValueError, match="in 129 bins and 16 leaves"):
        native.best_cuts(asked._replace(common=np.full(9, 129, np.int16)), 129, 16, 4, 1e-3)
    with pytest.raises(ValueError, match="expected a contiguous array"):
        native.best_cuts(asked._replace(bins=asked.bins[:, ::2]), 129, 16, 4, 1e-3)
    with pytest.raises(ValueError, match="256 in the end"):
        native.best_cuts(asked, 129, 16, 5, 1e-3)


@pytest.mark.parametrize("find", [best_cuts, native.best_cuts])
def test_no_cut_follows_one_of_nothing(find):
    if find is native.best_cuts and not native.is_available():
        pytest.skip("vpboost was built without its C part")
    asked = questions(20, 1, 5, 1, 1, 0)._replace(seen=np.zeros(1, bool))
    assert find(asked, 5, 1, 3, 1.0) == [native.NOTHING] * 3


def test_columns_are_cut_between_quantiles_or_values():
    many = cuts_of(RNG.normal(size=5000), np.ones(5000))
    assert len(many.places) == 128
    np.testing.assert_allclose(
        np.mean(RNG.normal(size=100_000)[:, None] > many.places[[32, 96]], axis=0), [0.745, 0.245], atol=0.02
    )
    few = cuts_of(np.array([0.0, 0.0, 1.0, 3.0]), np.ones(4))
    np.testing.assert_allclose(few.places, [0.5, 2.0])
    np.testing.assert_allclose(few.reach, [1 / 12, 1 / 6])
    assert len(cuts_of(np.zeros(5), np.ones(5)).places) == 0


@pytest.mark.parametrize("loss", [SquaredError(), BinaryCrossEntropy()])
def test_what_a_network_leaves_is_the_gradient_of_the_quadratic_model_at_its_best_weights(loss):
    y = Y if isinstance(loss, SquaredError) else Y > 0
    weight = RNG.uniform(0.5, 1, size=400)
    with jax.enable_x64(True):
        data = prepare(X, y, loss, weight, np.float64)
        prediction = data.filled(jnp.array([0.4]))
        derivatives, _, _ = differentiate(loss, [(prediction, data.target, data.weight)])
        left, curvature = left_by(data.x, derivatives, 1e-2)  # the features are the inputs
    w = weight / weight.sum()
    p = 1 / (1 + np.exp(-0.4))
    g, h = (0.4 - y, np.ones(400)) if isinstance(loss, SquaredError) else (p - y, np.full(400, p * (1 - p)))
    best = -np.linalg.solve((X.T * (w * h)) @ X + 1e-2 * np.eye(3), X.T @ (w * g))
    np.testing.assert_allclose(left[:400, 0], w * (g + h * (X @ best)), atol=1e-12)
    np.testing.assert_allclose(curvature[:400], w * h, atol=1e-12)
    assert not left[400:].any()


def test_a_tree_asks_where_the_response_jumps(monkeypatch):
    monkeypatch.setattr(trees, "COLUMNS", 1.0)
    data = prepare(X, Y, SquaredError())
    grower = Grower(Trees(2), data)
    gradient = np.zeros((data.weight.size, 1))
    gradient[:400, 0] = -np.where(X[:, 0] > 0.2, 1.0, -1.0) * np.where(X[:, 1] > -0.3, 2.0, 1.0) / 400
    weight, bias = grower.grow(np.random.default_rng(0), gradient, np.asarray(data.weight, float).ravel())
    places = {int(np.flatnonzero(v)[0]): -b / v[v != 0][0] for v, b in zip(weight, bias, strict=True)}
    assert places[0] == pytest.approx(0.2, abs=0.05)
    assert places[1] == pytest.approx(-0.3, abs=0.05)


def test_without_anything_to_ask_leaves_are_alike():
    data = prepare(np.ones((50, 2)), Y[:50], SquaredError())
    weight, bias = Grower(Trees(2), data).grow(
        np.random.default_rng(0), np.ones((data.weight.size, 1)), np.ones(data.weight.size)
    )
    assert not weight.any()
    assert not bias.any()


# --- boosting ---------------------------------------------------------------------------------------------------------


def test_trees_lower_the_loss_of_a_response_that_jumps():
    without = boost(
        X, Y, loss=SquaredError(), featurizer=partial(MLP, width=4, depth=0), n_learners=8,
        training=Training(max_steps=10), trust_region=TrustRegion(rate=0.5),
    )  # fmt: skip
    assert fit().history[-1].loss < 0.2 * without.history[-1].loss
    assert all(record.accepted for record in fit().history)


def test_a_fit_with_trees_goes_on_to_the_same_bits():
    whole, half = fit(engine="numpy"), fit(engine="numpy", n_learners=4)
    again = fit(engine="numpy", resume=half)
    np.testing.assert_array_equal(whole.ensemble.weights, again.ensemble.weights)
    np.testing.assert_array_equal(whole.ensemble.predict(X), again.ensemble.predict(X))


def test_engines_agree():
    found = [fit(engine=engine, dtype="float64").ensemble.predict(X) for engine in ("numpy", "xla")]
    np.testing.assert_allclose(found[0], found[1], atol=1e-6)
    if native.is_available():
        np.testing.assert_allclose(fit(engine="native", dtype="float64").ensemble.predict(X), found[0], atol=1e-6)


def test_weights_of_leaves_are_those_of_a_dense_solve():
    one = fit(n_learners=1, trust_region=TrustRegion(reg_lambda=1e-3), dtype="float64", engine="numpy")
    ((module, weights),) = one.ensemble.unstack()
    with jax.enable_x64(True):
        z = np.asarray(jax.vmap(module)(jnp.asarray(X)))
    residual = float(one.ensemble.constant[0]) - Y
    reg = one.history[0].reg_lambda
    best = -np.linalg.solve(z.T @ z / 400 + reg * np.eye(z.shape[1]), z.T @ residual / 400)
    np.testing.assert_allclose(np.asarray(weights)[:, 0], best, rtol=1e-6, atol=1e-9)


def test_weights_of_leaves_of_several_classes_are_those_of_a_dense_solve():
    labels, n_classes = np.digitize(Y, [-1, 1]), 3
    settings = {"training": Training(max_steps=5), "trust_region": TrustRegion(reg_lambda=1e-3)}
    factory = partial(MLP, width=4, depth=1)
    options = {"featurizer": factory, "n_learners": 1, "trees": Trees(3), "dtype": "float64", "engine": "numpy"}
    one = boost(X, labels, loss=MulticlassCrossEntropy(n_classes), **options, **settings)
    ((module, weights),) = one.ensemble.unstack()
    with jax.enable_x64(True):
        z = np.asarray(jax.vmap(module)(jnp.asarray(X)))
    odds = np.exp(np.asarray(one.ensemble.constant))
    p = odds / odds.sum()
    curvature = np.diag(p) - np.outer(p, p)
    hessian = np.kron(z.T @ z / 400, curvature) + one.history[0].reg_lambda * np.eye(z.shape[1] * n_classes)
    slope = z.T @ (p - np.eye(n_classes)[labels]) / 400
    best = -np.linalg.solve(hessian, slope.ravel()).reshape(-1, n_classes)
    np.testing.assert_allclose(np.asarray(weights), best, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    ("grown", "options", "message"),
    [
        (Trees(9), {}, "depth of trees must be at most 8, got 9"),
        (Trees(0), {}, "depth of trees must be a whole number of at least 1, got 0"),
        (
            Trees(3),
            {"training": Training(method="gd")},
            "trees go with a method that solves at the end, got method='gd'",
        ),
        (Trees(3), {"devices": 1}, "trees are grown on one device"),
    ],
)
def test_trees_that_make_no_sense(grown, options, message):
    with pytest.raises(ValueError, match=message):
        boost(X, Y, loss=SquaredError(), featurizer=partial(MLP, width=4, depth=0), trees=grown, **options)


def test_trees_are_for_tables():
    with pytest.raises(ValueError, match="trees are for tables"):
        boost(
            RNG.normal(size=(40, 4, 4)), Y[:40], loss=SquaredError(), featurizer=partial(MLP, width=4), trees=Trees(2)
        )
    with pytest.raises(ValueError, match="tree_depth=3 is for tables; X holds images"):
        VPBoostRegressor(tree_depth=3).fit(RNG.normal(size=(40, 4, 4)), Y[:40])


# --- estimators -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_files_exports_and_derivatives_know_trees(tmp_path, dtype):
    from vpboost.export import to_numpy, to_onnx

    onnxruntime = pytest.importorskip("onnxruntime")
    y = np.stack([Y, X[:, 2]], axis=1)
    model = VPBoostRegressor(tree_depth=3, dtype=dtype, **{**QUICK, "n_chains": 2}).fit(X, y)
    assert model.profile_.tree_depth == 3
    found, tolerance = model.predict(X), 2e-5 if dtype == "float32" else 1e-10
    path = tmp_path / "model.vpboost"
    model.save_model(path)
    loaded = load_model(path)
    np.testing.assert_array_equal(loaded.predict(X), found)
    assert loaded.profile_ == model.profile_
    to_onnx(model, tmp_path / "model.onnx", dtype=dtype)
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    given = X.astype(np.float32 if session.get_inputs()[0].type == "tensor(float)" else float)
    known = model.predict(given.astype(float))
    np.testing.assert_allclose(session.run(None, {session.get_inputs()[0].name: given})[0], known, atol=tolerance)
    saved, script = to_numpy(model, tmp_path / "plain")
    spec = importlib.util.spec_from_file_location("exported", script)
    exported = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(exported)
    np.testing.assert_allclose(exported.Predictor(saved).predict(X), found, atol=tolerance)
    slopes = model.input_gradient(X[:5])
    for row in range(5):
        numeric = central_difference(lambda v: loaded.predict(v[None])[0], X[row], step=1e-6)
        np.testing.assert_allclose(slopes[row], numeric, rtol=1e-3, atol=1e-4 * np.abs(slopes).max())
    np.testing.assert_allclose(jax.vmap(model.as_jax())(X[:5]), found[:5], atol=1e-4)


def test_classifiers_and_weights_know_trees():
    label = np.where(Y > 0, "up", "down")
    model = VPBoostClassifier(tree_depth=3, **QUICK).fit(X, label, sample_weight=np.linspace(0.5, 1, 400))
    assert model.score(X, label) > 0.95
    three = np.digitize(Y, [-1, 1])
    assert VPBoostClassifier(tree_depth=2, **QUICK).fit(X, three).score(X, three) > 0.9


def test_a_profile_with_trees_is_raced_and_wins_where_the_response_jumps():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 5))
    y = np.floor(X[:, 0]) + np.sign(X[:, 1]) * (X[:, 2] > 0) + 0.1 * rng.normal(size=600)
    model = VPBoostRegressor(n_chains=1, n_estimators=30).fit(X, y)
    assert model.profile_.tree_depth == 6
    assert VPBoostRegressor(n_chains=1, n_estimators=1, tree_depth=0).fit(X, y).profile_.tree_depth == 0


def test_trees_race_for_some_classes_but_not_for_many(monkeypatch):
    rng = np.random.default_rng(0)
    inputs = rng.uniform(-1, 1, size=(600, 3))
    labels = (inputs[:, 0] > 0.3).astype(int) + 2 * (inputs[:, 1] * inputs[:, 2] > 0)
    settings = {"n_estimators": 3, "n_chains": 1, "random_state": 0}
    model = VPBoostClassifier(**settings).fit(inputs, labels)
    raced = [profile for profile in model.race_ if profile.tree_depth]
    assert len(raced) == 1
    np.testing.assert_allclose(model.predict_proba(inputs).sum(axis=1), 1)
    monkeypatch.setattr("vpboost.estimators.choosing.MOST_TREE_CLASSES", 3)
    assert not any(profile.tree_depth for profile in VPBoostClassifier(**settings).fit(inputs, labels).race_)
    # two classes are not coupled
    assert any(profile.tree_depth for profile in VPBoostClassifier(**settings).fit(inputs, labels > 1).race_)


def test_a_fit_with_trees_resumes_from_a_checkpoint_to_the_same_bits(tmp_path):
    path = tmp_path / "checkpoint"
    whole = VPBoostRegressor(tree_depth=3, **QUICK).fit(X, Y)
    VPBoostRegressor(tree_depth=3, **{**QUICK, "n_estimators": 5}, callbacks=[Checkpoint(path, every=5)]).fit(X, Y)
    again = VPBoostRegressor(tree_depth=3, **QUICK).fit(X, Y, resume_from=path)
    np.testing.assert_array_equal(again.predict(X), whole.predict(X))


def test_many_outputs_and_holes_know_trees():
    many = np.outer(Y, np.linspace(1, 2, 12)) + X[:, [2]]
    many[::7, 3] = np.nan
    model = VPBoostRegressor(tree_depth=3, **QUICK).fit(X, many)
    assert np.nanmean((model.predict(X) - many) ** 2) < 0.2 * np.nanvar(many)


def test_trees_do_not_go_with_observed_slopes():
    dy = np.zeros((400, 3))
    with pytest.raises(ValueError, match="tree_depth=3 does not go with dy"):
        VPBoostRegressor(tree_depth=3).fit(X, Y, dy=dy)
    model = VPBoostRegressor(encoding="quantile", n_estimators=1, n_chains=1).fit(X[:90], Y[:90], dy=dy[:90])
    assert model.profile_.tree_depth == 0


# --- descriptions in files --------------------------------------------------------------------------------------------


def test_a_tree_is_described_and_built_again():
    described = describe_featurizer(WithBias(tree_of(3, dtype=np.float32)))
    described["featurizer"]["featurizer"] = {"type": "MLP", "options": {"width": 4, "depth": 0, "activation": "tanh"}}
    module = factory_of(described, None)(jax.random.key(0), jnp.zeros((5, 4)))
    assert module.featurizer.weight.shape == (3, 4)
    assert module(jnp.zeros(4)).shape == (4 + 8 + 1,)


@pytest.mark.parametrize("depth", [0, 9, -1, 1.0, True, "3", None, 10**9])
def test_a_tree_of_a_strange_depth_is_not_built(depth):
    inner = {"type": "MLP", "options": {"width": 4, "depth": 0, "activation": "tanh"}}
    with pytest.raises(ModelFileError, match="has a tree of depth"):
        factory_of({"type": "WithTree", "featurizer": inner, "depth": depth}, None)


def test_two_trees_are_not_built():
    inner = {"type": "MLP", "options": {"width": 4, "depth": 0, "activation": "tanh"}}
    one = {"type": "WithTree", "featurizer": inner, "depth": 2}
    for description in ({**one, "featurizer": one}, {**one, "featurizer": {"type": "SomeColumns", "featurizer": one}}):
        with pytest.raises(ModelFileError, match="two trees"):
            factory_of(description, None)
