"""Ways to set up a fit, from which a short race chooses.

No single setting suits every table: smooth functions want standardised inputs, rough ones want each column cut into
pieces, heavy tails want quantiles, small noisy tables want learners that see few columns, and simulations without noise
want small initial weights, hardly any penalty and double precision. A profile is one such way; what is left to "auto"
is decided by fitting a few quick stages with each and asking the validation data (see
:mod:`vpboost.estimators.choosing`).
"""

from typing import Any, NamedTuple

import numpy as np

from ..checks import check_count, is_number
from ..core.weak_learner import METHODS
from ..featurizers import takes
from ..featurizers.activations import ACTIVATIONS
from ..featurizers.trees import DEEPEST
from ..suggest import did_you_mean
from ..tables.encodings import ENCODINGS


class Profile(NamedTuple):
    """One way to set up a fit: parameters of the estimator of the same names, but for ``rounds``."""

    encoding: str  #: see :mod:`vpboost.tables.encodings`
    inherit: float  #: see :class:`vpboost.Training`
    max_features: float | None  #: see :class:`vpboost.featurizers.SomeColumns`; None does without it
    activation: str | None = None  #: None is the featurizer's own, or the user's
    weight_scale: float = 1.0  #: see :class:`vpboost.MLP`
    max_steps: int | None = None  #: None is by the number of rows, here and in the next
    learning_rate: float | None = None
    reg_lambda: float = 1e-4
    reg_theta: float = 0.0
    dtype: str = "float32"
    relevance: bool = False  #: weigh columns by what depends on them
    rounds: int = 10  #: stages to wait for a better score
    n_chains: int | None = None  #: None is by the number of rows
    refit_full: bool = False  #: whether chains after the first learn from all rows
    tree_depth: int = 0  #: levels of the tree beside each learner; 0 does without it
    width: int | None = None  #: None is by the number of rows, or the user's
    depth: int | None = None  #: None is the featurizer's own, or the user's

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of an estimator that fix this profile: a fit with them has no race.

        >>> sorted(Profile("plain", 0.8, 1.0).parameters())[:3]
        ['dtype', 'early_stopping_rounds', 'encoding']
        """
        given = {name: value for name, value in self._asdict().items() if value is not None or name == "max_features"}
        return {"early_stopping_rounds": given.pop("rounds"), **given}


PORTFOLIO = (
    Profile("plain", 0.8, 1.0),
    Profile("plain", 0.7, 0.5),
    Profile("quantile", 0.8, 1.0),
    Profile("quantile", 0.7, 0.5),
    Profile("spline", 0.7, 1.0),
    Profile("spline", 0.0, 1.0),
    Profile("fine", 0.3, 1.0),
    Profile("quantile", 0.7, 0.5, max_steps=10, reg_lambda=1e-2, rounds=12, tree_depth=6),
)
#: For responses without noise, after the race between the others. All rows count: other chains learn from them.
SMOOTH = (
    Profile("plain", 0.8, 1.0, "silu", 0.4, 200, 0.1, 1e-10, 0.0, "float64", True, 20, None, True),
    Profile("plain", 0.8, 1.0, "tanh", 1.0, 200, 0.1, 1e-10, 0.0, "float64", True, 20, None, True),
)
#: Of single precision, the least λ_w of a smooth profile.
LEAST_SINGLE_LAMBDA = 1e-6
#: What "auto" means without a race.
FALLBACK = Profile("plain", 0.8, 1.0)

#: What None leaves to the featurizer, in a profile and in an estimator's parameters.
OF_NETWORK = "activation", "width", "depth"
#: Chains at the most.
MOST_CHAINS = 1000
#: Smaller tables are not worth a race, nor validation data: too few rows to judge by. The second is of classifiers,
#: which soon are too sure of themselves without.
LEAST_ROWS = 50, 20
#: An encoding of more columns (of more than two values) than this would be too wide, or hardly finer than the other.
MOST_COLUMNS = {"spline": 64, "fine": 32}
#: Of so many columns or more it is behind where classifiers have ``MANY_TO_RACE`` rows (and with fewer rows see below).
MANY_TO_ENCODE = 16
#: The fine encoding is for regression on so many training rows: fewer do not fill its bins.
FINE_ROWS = 4000, 60_000
#: Trees are grown beside learners up to so many training rows, and coupled outputs: those of several classes.
MOST_TREE_ROWS, MOST_TREE_CLASSES = 60_000, 32
#: How profiles with trees suit the number of training rows, of regressors and of classifiers: from so many on and below
#: so many (None is without end), what changes. Few rows: deeper trees, held back more, and three chains, which do as
#: well as four (benchmarks/tree_settings.py). Many: a longer patience pays, networks may be narrower and, of
#: classifiers, need not be held back, two chains will do, and steps be larger (benchmarks/budgets.py --lean).
OF_REGRESSORS: tuple[tuple[int, int | None, dict[str, Any]], ...] = (
    (800, 2000, {"tree_depth": 8, "reg_lambda": 3e-2, "n_chains": 3}),
    (2000, None, {"rounds": 20}),
    (5000, 10_000, {"n_chains": 2, "width": 8}),
    (10_000, None, {"n_chains": 2, "width": 16}),
)
OF_CLASSIFIERS: tuple[tuple[int, int | None, dict[str, Any]], ...] = (
    (2000, None, {"rounds": 20}),
    (8000, None, {"reg_lambda": 1e-4}),
    (20_000, None, {"learning_rate": 0.3, "width": 16}),
)
#: Of more rows than this, only the columns themselves are kept: encodings multiply their number.
MOST_ENCODED_ROWS = 1_000_000

#: The race: this many stages of each profile, at this boosting rate, which shows quickly where a profile leads. (Those
#: a little behind after a few stages must not drop out: learners that see few columns start slowly and may end best.)
PILOT_STAGES = 8
PILOT_RATE = 0.3
#: Rows of a step at the most, where they are not all rows.
PILOT_BATCH = 2048
#: After so many stages, profiles that are behind by more than this part of the best score go no further; the second
#: where ``MANY_TO_RACE`` rows race.
FIRST_HEAT, FAR_BEHIND = 3, (0.3, 0.04)
#: The race between smooth profiles: at the rate above, ten stages leave three hundredths of any response unexplained.
SMOOTH_STAGES = 6
SMOOTH_RATE = 0.7
#: Rows that they race on, at the most.
SMOOTH_ROWS = 2000
#: They win where their pilot leaves less than this part of what the others do, else where a whole fit's score is below
#: so many times that of the others' winner; the second where they will learn from all rows, too.
CLEARLY, SMOOTH_LEAD = 0.1, (0.85, 1.2)
#: Their whole fit is in vain where there is some noise and their pilot leaves more than so many times what the others'
#: whole fit does (benchmarks/smooth_choice.py --pilots).
HOPELESS = 1.5
#: Rows that race, at the most, to train on and to validate with: so few that NumPy does it, and nothing is compiled.
#: The second from so many training rows on, where other profiles win than with few.
RACE_ROWS, MANY_TO_RACE = ((3_000, 5_000), (60_000, 20_000)), 20_000
#: A profile with fewer encoded columns wins when it is behind the best by no more than these parts: the first of what
#: the best gained in the race (a score may be mostly noise, which nobody can explain), the second of the best score
#: itself (most of the gain may be what every profile finds at once).
TIE = 0.004, 0.02
#: Learners that see some columns only are slower to begin with: they win when behind by up to this part of the score;
#: the second is of classifiers of so many columns or more, which they suit. Not with ``MANY_TO_RACE`` rows, of which
#: the race tells the truth.
SLOW_START, MANY_COLUMNS = (0.1, 0.6), 8
#: The same where trees grow beside such learners, but for classifiers of many columns; the second with
#: ``MANY_TO_RACE`` rows, of which they take long, the third for two classes.
TREE_START = 0.25, 0.03, 0.15
#: The same of the fine encoding, whose learners start nearly afresh.
FINE_START = 0.05


def is_auto(value: Any) -> bool:
    """Say whether a parameter is left to the library."""
    return isinstance(value, str) and value == "auto"


def check_choices(encoding: Any, inherit: Any, max_features: Any, weight_scale: Any = 1.0, **others: Any) -> None:
    """Raise ``ValueError`` naming the parameter if a choice makes no sense."""
    if not isinstance(encoding, str) or (encoding != "auto" and encoding not in ENCODINGS):
        hint = did_you_mean(encoding, ENCODINGS)
        raise ValueError(f"encoding must be 'auto' or one of {sorted(ENCODINGS)}, got {encoding!r}{hint}")
    if not is_auto(inherit) and not (is_number(inherit) and 0 <= inherit < 1):
        raise ValueError(f"inherit must be 'auto' or in [0, 1), got {inherit!r}")
    if not (is_auto(max_features) or max_features is None or (is_number(max_features) and 0 < max_features <= 1)):
        raise ValueError(f"max_features must be 'auto', None or in (0, 1], got {max_features!r}")
    if not is_auto(weight_scale) and not (is_number(weight_scale) and 0 < weight_scale < float("inf")):
        raise ValueError(f"weight_scale must be 'auto' or a positive number, got {weight_scale!r}")
    for name in ("reg_lambda", "reg_theta"):
        value = others.get(name, "auto")
        if not is_auto(value) and not is_number(value):
            raise ValueError(f"{name} must be 'auto' or a number, got {value!r}")
    rate = others.get("learning_rate")
    if rate is not None and not is_auto(rate) and not (is_number(rate) and 0 < rate <= 1):
        raise ValueError(f"learning_rate must be 'auto' or in (0, 1], got {rate!r}")
    steps = others.get("max_steps")
    if steps is not None and not is_auto(steps):
        check_count("max_steps", steps, 0)
    chains = others.get("n_chains")
    if chains is not None and not is_auto(chains):
        check_count("n_chains", chains)
        if chains > MOST_CHAINS:
            raise ValueError(f"n_chains must be at most {MOST_CHAINS}, got {chains!r}")
    levels = others.get("tree_depth", 0)
    if not is_auto(levels):
        check_count("tree_depth", levels, 0)
        if levels > DEEPEST:
            raise ValueError(f"tree_depth must be at most {DEEPEST}, got {levels!r}")
    for name in ("relevance", "refit_full"):
        value = others.get(name, False)
        if not is_auto(value) and not isinstance(value, bool | np.bool_):
            raise ValueError(f"{name} must be 'auto', True or False, got {value!r}")


def profile_from(values: tuple) -> Profile:
    """Return the profile of these values, found in a file; raise ``ValueError`` if they make no sense."""
    if len(values) > len(Profile._fields):
        raise ValueError(f"a profile has at most {len(Profile._fields)} values, got {len(values)}")
    profile = Profile(*values)
    check_choices(**{name: value for name, value in profile._asdict().items() if name != "rounds"})
    check_count("rounds", profile.rounds)
    for name, least in (("width", 1), ("depth", 0)):
        if getattr(profile, name) is not None:
            check_count(name, getattr(profile, name), least)
    if profile.dtype not in ("float32", "float64") or profile.activation not in (None, *ACTIVATIONS):
        raise ValueError(f"dtype and activation make no sense: {profile.dtype!r}, {profile.activation!r}")
    return profile


def fix(profile: Profile, settings: Any) -> Profile:
    """Return a profile with what the user fixed in the estimator's parameters."""
    fixed: dict[str, Any] = {}
    for name in set(Profile._fields) - {*OF_NETWORK, "rounds"}:
        value = getattr(settings, name)
        if not is_auto(value):
            fixed[name] = np.dtype(value).name if name == "dtype" else value
    if not isinstance(settings.featurizer, str) or not takes(settings.featurizer, "weight_scale"):
        fixed |= {**dict.fromkeys(OF_NETWORK), "weight_scale": 1.0}
    if settings.activation is not None:
        fixed["activation"] = None
    if settings.width is not None or settings.depth is not None:
        fixed |= {"width": None, "depth": None}
    if fixed.get("dtype") == "float32" and profile.dtype == "float64":
        fixed = {"reg_lambda": max(profile.reg_lambda, LEAST_SINGLE_LAMBDA), **fixed}
    return profile._replace(**fixed)


def fallback(settings: Any) -> Profile:
    """Return the profile where there is nothing to choose by."""
    return fix(FALLBACK, settings)


def is_wide(shape: tuple[int, ...]) -> bool:
    """Say whether there are so many columns that some encodings are not for all of them."""
    return len(shape) == 2 and shape[1] > min(MOST_COLUMNS.values())


def profiles(settings: Any, shape: tuple[int, ...], n_encodable: int | None = None) -> list[Profile]:
    """Return the profiles to choose from for training inputs of this shape, what the user fixed being fixed.

    ``n_encodable`` is the number of columns to which encodings add something; None is all.
    """
    encoding, max_features = settings.encoding, settings.max_features
    if settings.relevance is True and (len(shape) > 2 or encoding not in ("auto", "plain")):
        raise ValueError("relevance=True is for tables with encoding='plain'; leave relevance or encoding 'auto'")
    if len(shape) > 2:
        if encoding not in ("auto", "plain") or max_features not in ("auto", None):
            raise ValueError(f"encoding={encoding!r} and max_features={max_features!r} are for tables; X holds images")
        if settings.tree_depth not in ("auto", 0):
            raise ValueError(f"tree_depth={settings.tree_depth!r} is for tables; X holds images")
        return [fix(Profile("plain", 0.0, None), settings)._replace(max_features=None)]

    if shape[0] < LEAST_ROWS[settings._is_classifier]:
        return [fallback(settings)]
    n_columns = shape[1] if n_encodable is None else n_encodable
    allowed = [p for p in PORTFOLIO if n_columns <= MOST_COLUMNS.get(p.encoding, n_columns)]
    if shape[0] > MOST_ENCODED_ROWS:
        allowed = [p for p in PORTFOLIO if p.encoding == "plain"]
    if settings._is_classifier or not FINE_ROWS[0] <= shape[0] <= FINE_ROWS[1]:
        allowed = [p for p in allowed if p.encoding != "fine"]
    started = settings._is_classifier and settings.eval_metric is None and is_auto(settings.max_features)
    few = shape[0] < MANY_TO_RACE
    if started and (shape[1] >= MANY_COLUMNS if few else n_columns >= MANY_TO_ENCODE):
        # these are wide, and behind: where rows are few, too far behind those with a start
        allowed = [p for p in allowed if p.encoding != "spline"]
    if settings._is_classifier and not few:
        # of many rows, learners that see half of the columns, or inherit nothing, never won (benchmarks/races.py)
        allowed = [p for p in allowed if p.tree_depth or (p.max_features == 1 and p.inherit)]
    if settings.relevance is True:
        allowed = [p for p in PORTFOLIO if p.encoding == "plain"]
    if encoding != "auto":  # the user's encoding with the other choices that go with it
        allowed = [p for p in PORTFOLIO if p.encoding == encoding]
    if not grows_trees(settings, shape):
        allowed = [p for p in allowed if not p.tree_depth]
    allowed = [of_many(p, shape[0], settings._is_classifier) if p.tree_depth else p for p in allowed]
    return list(dict.fromkeys(fix(p, settings) for p in allowed))


def of_many(profile: Profile, n: int, classifies: bool) -> Profile:
    """Return a profile with trees as it suits so many training rows."""
    for least, end, changes in OF_CLASSIFIERS if classifies else OF_REGRESSORS:
        if least <= n and (end is None or n < end):
            profile = profile._replace(**changes)
    return profile


def grows_trees(settings: Any, shape: tuple[int, ...]) -> bool:
    """Say whether profiles with trees race, whose depth then is the profile's own.

    Not where the user has said how learners are made, nor where linear weights are not solved for at the end.
    """
    free = is_auto(settings.inherit) and is_auto(settings.max_features)
    one = settings.devices is None and METHODS[settings.method].end and settings.featurizer == "mlp"
    return is_auto(settings.tree_depth) and free and one and shape[0] <= MOST_TREE_ROWS


def smooth_profiles(settings: Any, others: list[Profile]) -> list[Profile]:
    """Return the profiles for responses without noise that are not among others already, but for their patience.

    None where the user has chosen encoding, inherit and max_features.
    """
    left = [is_auto(getattr(settings, name)) for name in ("encoding", "inherit", "max_features")]
    if settings.encoding not in ("auto", "plain") or not any(left):
        return []
    known = {p._replace(rounds=0) for p in others}
    fixed = dict.fromkeys(fix(p, settings) for p in SMOOTH)
    return [p for p in fixed if p._replace(rounds=0) not in known]
