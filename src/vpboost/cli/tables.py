"""Columns of tables, as the estimators take them, looked over for the usual mishaps."""

import re
import shlex
import warnings
from collections.abc import Collection
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import numpy as np

from ..predictor import level_name
from ..suggest import did_you_mean
from ..tables.frames import MOST_LEVELS
from .errors import CommandError

try:
    import pandas as pd
except ImportError as error:
    raise CommandError("tables are read with pandas, which is not installed: pip install 'vpboost[cli]'") from error

#: How numbers look; Python would take 3_0 and other scripts' digits for such, too.
NUMBER = r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?"
#: How dates look that are read as such, and the end of those that name a time zone.
ISO_DATE = r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d(?::?\d\d)?)?)?"
ZONED = r".{16,}(?:Z|[+-]\d\d(?::?\d\d)?)"
#: How dates look that could mean several days.
OTHER_DATE = r"\d{1,4}[./-]\d{1,2}[./-]\d{1,4}(?:[T ].*)?"


def take_columns(frame: Any, wanted: list[str], name: str) -> Any:
    """Return some columns of a table; raise :class:`CommandError` naming those it lacks."""
    missing = [column for column in wanted if column not in frame.columns]
    if missing:
        have = ", ".join(map(repr, frame.columns[:12])) + (", ..." if len(frame.columns) > 12 else "")
        hint = did_you_mean(missing[0], frame.columns)
        if len(frame.columns) == 1:
            hint = "; is the delimiter right? give --delimiter"
        raise CommandError(f"{name} has no column {', '.join(map(repr, missing[:5]))}; it has {have}{hint}")
    return frame[wanted]


def check_inputs(frame: Any, categorical: list[str], decimal: str) -> Any:
    """Return the input columns for training, those named as categories made such; complain of mishaps.

    Columns of text are categories by themselves, unless they are dates.
    """
    frame = with_numbers(frame, categorical)
    for name in frame.columns:
        column, ignore = frame[name], f"--ignore {shlex.quote(name)}"
        check_single(column, name)
        if name in categorical:
            frame[name] = column.astype(object).astype("category")
        elif column.isna().all():
            raise CommandError(f"column {name!r} is empty; leave it out with {ignore}")
        elif kind_of(column) in ("datetime", "timedelta"):
            continue
        elif name == "Unnamed: 0" and is_number(column) and (column.to_numpy() == np.arange(len(column))).all():
            raise CommandError(f"the first column has no name and counts the rows; leave it out with {ignore}")
        elif not is_number(column):
            frame[name] = check_text_input(column, name, decimal)
        elif np.isinf(column.to_numpy(dtype=float, na_value=np.nan)).any():
            raise CommandError(f"column {name!r} has infinite values; empty them, which means missing")
    return frame


def check_text_input(column: Any, name: str, decimal: str) -> Any:
    """Return a column of text, or of dates if it holds such; complain of numbers and identifiers."""
    way_out = "or read them all as categories with --categorical " + shlex.quote(name)
    dates = parse_dates(column)
    wrong = (dates.isna() & column.notna()).to_numpy()
    if 2 * wrong.sum() < column.notna().sum():
        check_all(column, wrong, repr(name), "dates", way_out)
        return dates
    check_text(column, name, way_out, decimal)
    check_levels(column, name)
    return column


def known_inputs(frame: Any, kinds: list[str], name: str) -> Any:
    """Return the input columns for prediction, in the types of training.

    ``kinds`` says of every column whether it holds "number", "text", "datetime" or "timedelta".
    """
    frame = with_numbers(frame, [column for column, kind in zip(frame.columns, kinds, strict=True) if kind == "text"])
    for column, kind in zip(frame.columns, kinds, strict=True):
        values = frame[column]
        check_single(values, column)
        if kind == "text":
            frame[column] = values.astype(object)
        elif kind in ("datetime", "timedelta"):
            frame[column] = known_times(values, kind, f"{column!r} of {name}")
        elif not is_number(values):
            true_or_false = values.dropna().map(type).eq(bool).all()
            if not true_or_false:
                check_text(values, column, "which mean missing")
                what = "text" if kind_of(values) == "text" else "dates"
                raise CommandError(f"column {column!r} of {name} holds {what}; the model was trained on numbers there")
            frame[column] = values.astype(float)
    return frame


def as_known_levels(column: Any, levels: tuple[str, ...], decimal: str = ".") -> Any:
    """Return a column of categories written as in training: 1.0 as 1 or the other way round; warn if none is known."""
    by_value: dict[str | float, str] = {}
    for level in levels:
        value = meaning(level, decimal)
        by_value[value] = "" if value in by_value else level  # 01 and 1 are two levels, and no third one is either
    known = set(levels)

    def match(value: Any) -> str:  # texts: pandas would make floats of whole numbers beside missing ones
        text = level_name(value)
        return text if text in known else by_value.get(meaning(text, decimal)) or text

    column = column.map(match, na_action="ignore")
    present = column.dropna()
    if len(present) and not present.isin(known).any():
        text = f"such as {present.iloc[0]!r}, is a level of training: {', '.join(map(repr, levels[:5]))}"
        warnings.warn(f"none of the values of column {column.name!r}, {text}", stacklevel=2)
    return column


@lru_cache(1 << 16)
def meaning(text: str, decimal: str) -> str | float:
    """Return the number that a text stands for, a moment, time or truth value in one spelling, else the text."""
    digits = text.strip().replace(decimal, ".")
    if re.fullmatch(NUMBER, digits):
        if len(text) < 400 and digits.lstrip("+-").isdigit():
            return int(digits)  # as floats, long ones would be alike
        number = float(digits)
        single = number % 1 and number != float(f"{number:.9g}") and number == float(np.float32(number))
        return float(str(np.float32(number))) if single else number  # 0.1 of single precision, in 17 digits
    if re.fullmatch(ISO_DATE, text):
        with suppress(ValueError):  # no such day
            return level_name(pd.Timestamp(text))
    if time := re.fullmatch(r"(\d\d:\d\d)(?:(:\d\d)(\.\d+)?)?", text):  # of day; Arrow writes zeros behind it
        return time[1] + (time[2] or ":00") + (time[3] or "").rstrip(".0")
    return text.lower() if text.lower() in ("true", "false") else text


def known_times(column: Any, kind: str, called: str) -> Any:
    """Return a column as dates or as lengths of time, which it held in training."""
    what, like = {"datetime": ("dates", "2024-03-01 12:30"), "timedelta": ("lengths of time", "1 days 02:30:00")}[kind]
    if kind_of(column) == kind:
        times = column
    elif kind_of(column) == "text":
        times = parse_dates(column) if kind == "datetime" else parse_spans(column)
    else:  # right only if all are missing
        times = pd.Series(pd.NaT, index=column.index, dtype=f"{kind}64[us]")
    check_all(column, (times.isna() & column.notna()).to_numpy(), called, what, f"write them like {like}")
    return times


def kind_of(column: Any) -> str:
    """Return what a column holds: "number" (also true and false), "datetime", "timedelta" or "text"."""
    if is_number(column):
        return "number"
    return {"M": "datetime", "m": "timedelta"}.get(column.dtype.kind, "text")


def with_numbers(frame: Any, other: Collection[str] = ()) -> Any:
    """Return a copy in which decimals and very long numbers are floats, but for ``other`` columns."""
    frame = frame.copy()
    for name in frame.columns:
        if frame[name].dtype == object and name not in other:
            kind = pd.api.types.infer_dtype(frame[name], skipna=True)
            if kind in ("decimal", "integer", "floating", "mixed-integer-float"):
                try:
                    frame[name] = frame[name].astype(float)
                except OverflowError as error:
                    raise CommandError(f"column {name!r} has numbers too large for computation; empty them") from error
    return frame


def check_single(column: Any, name: str) -> None:
    """Raise :class:`CommandError` if the values of a column are not single ones, as in Parquet files."""
    if column.dtype == object:
        several = column.map(lambda value: isinstance(value, list | tuple | dict | set | np.ndarray))
        if several.any():
            raise CommandError(
                f"column {name!r} holds lists or structures; make a column of each part, or leave it out"
            )


def is_number(column: Any) -> bool:
    """Say whether a column holds numbers or true and false."""
    return pd.api.types.is_numeric_dtype(column) or pd.api.types.is_bool_dtype(column)


def parse_dates(column: Any) -> Any:
    """Return the dates that texts such as 2024-03-01 or 2024-03-01T12:30Z stand for; missing where they are others.

    Dates that name a time zone are returned in UTC.
    """
    texts = column.dropna().astype(str).str.strip()
    texts = texts[texts.str.fullmatch(ISO_DATE).astype(bool)]
    zoned = bool(texts.str.fullmatch(ZONED).any())
    dates = pd.to_datetime(texts, format="ISO8601", errors="coerce", utc=zoned)
    dates = dates.dt.tz_localize(None) if zoned else dates
    lost = dates.isna()
    far = texts[lost].map(parse_moment).astype("datetime64[us]")
    if far.notna().any():
        dates = dates.astype("datetime64[us]")
        dates[lost] = far
    return dates.reindex(column.index)


def parse_moment(text: str) -> datetime | None:
    """Return the moment, in UTC, that a text stands for; None if there is no such day.

    Pandas before 3.0 counts nanoseconds since 1970, which end in 2262.

    >>> parse_moment("9999-12-31T12:30+02:00"), parse_moment("2023-02-29")
    (datetime.datetime(9999, 12, 31, 10, 30), None)
    """
    with suppress(ValueError, OverflowError):
        moment = datetime.fromisoformat(text)
        return moment if moment.tzinfo is None else moment.astimezone(UTC).replace(tzinfo=None)
    return None


def parse_spans(column: Any) -> Any:
    """Return the lengths of time that texts, or times of day, stand for; missing where they are others."""
    return pd.to_timedelta(column.astype(object).map(str, na_action="ignore"), errors="coerce")


def check_text(column: Any, name: str, way_out: str, decimal: str = ".") -> None:
    """Raise :class:`CommandError` if a text column seems to be one of numbers, with this or another decimal mark."""
    present = column.dropna().astype(str)
    other, called = (",", "commas") if decimal == "." else (".", "points")
    odd = present[present.str.fullmatch(rf"[-+]?\d*[{other}]\d+").astype(bool)]
    if len(odd) > 0.1 * len(present):
        way_out = f"give --decimal {other}, or write one mark everywhere"
        raise CommandError(f"column {name!r} seems to have decimal {called} ({odd.iloc[0]!r}); {way_out}")
    numbers = pd.to_numeric(present.str.translate(str.maketrans({".": "?", decimal: "."})), errors="coerce")
    wrong = (numbers.reindex(column.index).isna() & column.notna()).to_numpy()
    if 2 * wrong.sum() < len(present):
        check_all(column, wrong, repr(name), "numbers", way_out)


def check_all(column: Any, wrong: np.ndarray, called: str, what: str, way_out: str) -> None:
    """Raise :class:`CommandError` if some values of a column are not what the others are; the index counts the rows."""
    if wrong.any():
        first = int(wrong.argmax())
        raise CommandError(
            f"column {called} holds {what}, but {int(wrong.sum())} of {int(column.notna().sum())} values are not, the "
            f"first {str(column.iloc[first])!r} in row {int(column.index[first]) + 1}; mend or empty them, {way_out}"
        )


def check_numbers(column: Any, what: str, least: float) -> None:
    """Raise :class:`CommandError` if a column of targets or weights has a number that cannot be used."""
    numbers = column.to_numpy(dtype=float, na_value=np.nan)
    wrong = ~np.isfinite(numbers) | (numbers < least)
    if wrong.any():
        row, value = int(column.index[wrong.argmax()]) + 1, numbers[wrong.argmax()]
        got = "none" if np.isnan(value) else f"{value:g}"
        limit = "" if np.isinf(least) else f" of at least {least:g}"
        raise CommandError(f"{what} {column.name!r} must hold finite numbers{limit}, got {got} in row {row}")


def check_levels(column: Any, name: str) -> None:
    """Raise :class:`CommandError` if a text column seems to hold identifiers."""
    present, quoted = column.dropna().astype(str), shlex.quote(name)
    if present.nunique() <= max(MOST_LEVELS, len(present) / 2):
        return
    what, way_out = "like an identifier", ""
    if present.str.fullmatch(OTHER_DATE).mean() > 0.5:
        what, way_out = f"like dates ({present.iloc[0]!r})", "write dates as 2024-03-01 or 2024-03-01 12:30, "
    raise CommandError(
        f"column {name!r} has {present.nunique()} different texts in {len(present)} rows, {what}; {way_out}"
        f"leave it out with --ignore {quoted}, or keep it with --categorical {quoted}"
    )


def labels_of(y: Any, task: str, as_text: bool = False) -> Any:
    """Return targets as the estimators take them; ``as_text`` is for models whose classes are texts."""
    if task == "classification":
        if y.ndim == 2:
            raise CommandError("classification takes one --target")
        if as_text or not is_number(y):
            return y.astype(object).map(level_name)
        if y.dtype.kind == "f" and np.abs(y).max() >= 2**53:
            raise CommandError(
                f"target {y.name!r} has labels too large to be told apart as numbers; put a letter before them"
            )
        whole = y.dtype.kind == "f" and (y == np.floor(y)).all()  # as whole numbers beside missing ones are read
        return y.astype(int) if whole else y
    for name, column in [(y.name, y)] if y.ndim == 1 else y.items():
        if not is_number(column):
            check_text(column, name, "a regression needs numbers")
            if parse_dates(column).notna().all() or kind_of(column) != "text":
                raise CommandError(
                    f"target {name!r} holds dates; a regression needs numbers, such as days since a date"
                )
            raise CommandError(f"target {name!r} holds text; a regression needs numbers (--task classification?)")
    return y
