"""Ways to set up a fit, and a short race between them.

No single input encoding suits every table: smooth functions want standardised inputs, rough ones want each column cut
into pieces, heavy tails want quantiles, small noisy tables want learners that see few columns. A profile is one such
way; what is left to "auto" is decided by fitting a few quick stages with each and asking the validation data.
"""

from typing import Any, NamedTuple

from ..checks import is_number
from ..suggest import did_you_mean
from ..tables.encodings import ENCODINGS


class Profile(NamedTuple):
    """How inputs are encoded, where learners start, and which columns they see."""

    encoding: str  #: see :mod:`vpboost.tables.encodings`
    inherit: float  #: see :class:`vpboost.Training`
    max_features: float | None  #: see :class:`vpboost.featurizers.SomeColumns`; None does without it


PORTFOLIO = (
    Profile("plain", 0.8, 1.0),
    Profile("quantile", 0.8, 1.0),
    Profile("quantile", 0.0, 0.3),
    Profile("spline", 0.7, 1.0),
    Profile("spline", 0.0, 1.0),
)
#: What "auto" means without a race.
FALLBACK = Profile("plain", 0.0, 1.0)

#: Smaller tables are not worth a race: too few rows to judge by.
LEAST_ROWS = 200
#: A spline encoding of more columns than this would be too wide.
MOST_SPLINE_COLUMNS = 64
#: Of more rows than this, only the columns themselves are kept: encodings multiply their number.
MOST_ENCODED_ROWS = 1_000_000

#: The race: this many stages of each profile, at this boosting rate, which shows quickly where a profile leads. (Those
#: behind after a few stages must not drop out: learners that see few columns start slowly and may end best.)
PILOT_STAGES = 10
PILOT_RATE = 0.3
#: Rows that race, at the most, to train on and to validate with.
RACE_ROWS = 60_000, 20_000
#: A profile with fewer encoded columns wins when it is behind the best by no more than these parts: the first of what
#: the best gained in the race (a score may be mostly noise, which nobody can explain), the second of the best score
#: itself (most of the gain may be what every profile finds at once).
TIE = 0.004, 0.02


def check_choices(encoding: Any, inherit: Any, max_features: Any) -> None:
    """Raise ``ValueError`` naming the parameter if a choice makes no sense."""
    if not isinstance(encoding, str) or (encoding != "auto" and encoding not in ENCODINGS):
        hint = did_you_mean(encoding, ENCODINGS)
        raise ValueError(f"encoding must be 'auto' or one of {sorted(ENCODINGS)}, got {encoding!r}{hint}")
    if inherit != "auto" and not (is_number(inherit) and 0 <= inherit < 1):
        raise ValueError(f"inherit must be 'auto' or in [0, 1), got {inherit!r}")
    if max_features not in ("auto", None) and not (is_number(max_features) and 0 < max_features <= 1):
        raise ValueError(f"max_features must be 'auto', None or in (0, 1], got {max_features!r}")


def fix(profile: Profile, encoding: Any, inherit: Any, max_features: Any) -> Profile:
    """Return a profile with what the user fixed."""
    return Profile(
        profile.encoding if encoding == "auto" else encoding,
        profile.inherit if inherit == "auto" else float(inherit),
        profile.max_features if max_features == "auto" else max_features,
    )


def fallback(encoding: Any, inherit: Any, max_features: Any) -> Profile:
    """Return the profile where there is nothing to choose by."""
    return fix(FALLBACK, encoding, inherit, max_features)


def profiles(encoding: Any, inherit: Any, max_features: Any, shape: tuple[int, ...]) -> list[Profile]:
    """Return the profiles to choose from for training inputs of this shape, what the user fixed being fixed."""
    if len(shape) > 2:
        if encoding not in ("auto", "plain") or max_features not in ("auto", None):
            raise ValueError(f"encoding={encoding!r} and max_features={max_features!r} are for tables; X holds images")
        return [Profile("plain", 0.0 if inherit == "auto" else float(inherit), None)]

    if shape[0] < LEAST_ROWS:
        return [fallback(encoding, inherit, max_features)]
    allowed = [p for p in PORTFOLIO if p.encoding != "spline" or shape[1] <= MOST_SPLINE_COLUMNS]
    if shape[0] > MOST_ENCODED_ROWS:
        allowed = [p for p in PORTFOLIO if p.encoding == "plain"]
    if encoding != "auto":  # the user's encoding with the other choices that go with it
        allowed = [p for p in PORTFOLIO if p.encoding == encoding]
    return list(dict.fromkeys(fix(p, encoding, inherit, max_features) for p in allowed))
