"""Deprecated parameters go on working and say so; none outlives the version that was to be without it."""

import inspect
import re

import pytest
from sklearn.base import BaseEstimator, clone

import vpboost
from vpboost.deprecation import Deprecated, deprecated_parameters


@deprecated_parameters(since="0.3", until="0.5", n_stages="n_learners", quick=None)
def grow(data, n_learners=10, quick=False):
    return data, n_learners, quick


class Estimator(BaseEstimator):
    @deprecated_parameters(since="0.3", until="0.5", n_stages="n_learners")
    def __init__(self, *, n_learners=10):
        self.n_learners = n_learners

    @deprecated_parameters(since="0.3", until="0.5", n_stages="n_learners")
    def set_params(self, **params):
        return super().set_params(**params)


def test_the_new_name_does_not_warn():
    assert grow("x", n_learners=3) == ("x", 3, False)
    assert grow("x", 3) == ("x", 3, False)


def test_the_old_name_warns_where_it_is_used_and_works():
    message = "grow: the parameter n_stages is deprecated since vpboost 0.3 and will go in 0.5; use n_learners"
    with pytest.warns(FutureWarning, match=re.escape(message)) as caught:
        assert grow("x", n_stages=3) == ("x", 3, False)
    assert caught[0].filename == __file__, "the warning points at the caller"
    assert len(caught) == 1


@pytest.mark.parametrize("call", [lambda: grow("x", quick=True, n_learners=4), lambda: grow("x", 4, True)])
def test_a_parameter_without_successor_warns_by_name_and_by_place(call):
    with pytest.warns(FutureWarning, match="quick is deprecated .* in 0.5; nothing takes its place"):
        assert call() == ("x", 4, True)


@pytest.mark.parametrize("call", [lambda: grow("x", 3, n_stages=3), lambda: grow("x", n_learners=3, n_stages=3)])
def test_both_names_are_an_error(call):
    with (
        pytest.raises(TypeError, match="grow: n_stages is the old name of n_learners; give one of them, not both"),
        pytest.warns(FutureWarning),
    ):
        call()


def test_other_mistakes_are_the_functions_own():
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'data'"):
        grow(n_learners=2)
    with pytest.raises(TypeError, match="unexpected keyword argument 'learners'"):
        grow("x", learners=2)


def test_estimators_stay_scikit_learns():
    with pytest.warns(FutureWarning, match="Estimator: the parameter n_stages"):
        old = Estimator(n_stages=3)
    assert old.get_params() == {"n_learners": 3}
    with pytest.warns(FutureWarning, match="Estimator.set_params: the parameter n_stages"):
        assert old.set_params(n_stages=4).n_learners == 4
    assert clone(old).n_learners == 4
    assert list(inspect.signature(Estimator).parameters) == ["n_learners"]


def test_a_decorator_that_does_not_fit_is_an_error():
    with pytest.raises(TypeError, match="has no parameter n_learners"):
        deprecated_parameters(since="1", until="2", n_stages="n_learners")(lambda data: data)
    with pytest.raises(TypeError, match="has no parameter gone"):
        deprecated_parameters(since="1", until="2", gone=None)(lambda data: data)
    with pytest.raises(TypeError, match="still has data, which rows was to replace"):
        deprecated_parameters(since="1", until="2", data="rows")(lambda data, rows: data)


def numbers(version):
    """A version as numbers, without what is after the patch."""
    return tuple(int(part) for part in re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", version).groups(default="0"))


def public_functions():
    """Yield every function, method and constructor behind the public names."""
    values = [getattr(vpboost, name) for name in vpboost.__all__]
    values += [part for value in values if inspect.ismodule(value) for part in vars(value).values()]
    for value in values:
        yield value
        if inspect.isclass(value):
            yield from (part for kind in value.__mro__ for part in vars(kind).values())


def test_nothing_is_overdue():
    marks = [getattr(function, "deprecated_parameters", None) for function in public_functions()]
    found = [mark for mark in marks if isinstance(mark, Deprecated)]
    now = numbers(vpboost.__version__)
    assert [one for one in found if numbers(one.until) <= now] == []
    assert grow.deprecated_parameters == Deprecated("0.3", "0.5", {"n_stages": "n_learners", "quick": None})
    assert numbers("0.5.1.dev3+gabc") > numbers("0.5")
