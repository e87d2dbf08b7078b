"""Preprocessing in files: the input encoder and the target scaler."""

from typing import Any

import numpy as np

from ..tables.encoder import Categories, Extra, InputEncoder
from ..tables.encodings import ENCODINGS, Cycles, NormalScore, Steps
from ..tables.scaling import TargetScaler
from .container import brief
from .reader import Reader

#: What may be added to a column.
EXTRAS = {kind.name: kind for kind in (NormalScore, Steps, Cycles)}
#: No scale is smaller: numbers cannot be divided by it. No knot is larger: differences must be numbers.
TINY, HUGE = float(np.finfo(float).tiny), 1e300


def encoder_parts(encoder: InputEncoder) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return JSON and arrays that describe an encoder."""
    content = {
        "encoding": encoder.encoding,
        "shape": list(encoder.shape_),
        "numeric": [int(j) for j in encoder.numeric_],
        "missing": [int(j) for j in encoder.missing_],
        "categories": [{"column": int(c.column), "levels": list(c.levels)} for c in encoder.categories_],
        "extras": [{"column": int(e.column), "encoding": e.encoding.name} for e in encoder.extras_],
    }
    if encoder.times_:
        content["times"] = [[int(j), kind] for j, kind in encoder.times_.items()]
    arrays = {
        "encoder.mean": np.asarray(encoder.mean_, float),
        "encoder.scale": np.asarray(encoder.scale_, float),
        "encoder.constant": np.asarray(encoder.constant_, bool),
    }
    for i, extra in enumerate(encoder.extras_):
        own = {"mean": extra.mean, "scale": extra.scale, **vars(extra.encoding)}
        arrays.update({f"encoder.extra.{i}.{name}": np.asarray(value, float) for name, value in own.items()})
    return content, arrays


def encoder_from(reader: Reader) -> InputEncoder:
    """Return the encoder that a file describes."""
    part = Reader(reader.entry("encoder", dict), {}, f"the preprocessing in {reader.name}")
    encoder = InputEncoder(part.entry("encoding", str))
    part.require(encoder.encoding in ENCODINGS, f"has an encoding {brief(encoder.encoding)}")
    shape, numeric, missing = (part.entry(name, list) for name in ("shape", "numeric", "missing"))
    categories, extras = part.entry("categories", list), part.entry("extras", list)
    times = part.entry("times", list) if "times" in part.content else []  # files of earlier versions have none
    part.finish()
    part.require(all(type(n) is int and 0 <= n < 1 << 31 for n in [*shape, *numeric, *missing]), "has odd numbers")
    encoder.shape_, encoder.numeric_ = tuple(shape), numeric
    table, statistics = len(shape) == 1, tuple(shape) if len(shape) == 1 else ()
    part.require(1 <= len(shape) <= 8 and (table or min(shape) > 0), f"is for inputs of shape {brief(shape)}")
    part.require(shape != [0] or bool(categories), "has no columns")
    part.require(not table or len(numeric) == shape[0], "counts its numeric columns wrongly")
    part.require(table or not (missing or categories or extras), "encodes images as if they were tables")
    encoder.mean_ = reader.doubles("encoder.mean", statistics)
    encoder.scale_ = reader.doubles("encoder.scale", statistics)
    encoder.constant_ = reader.array("encoder.constant", statistics, "b")
    check_scales(part, encoder.mean_, np.where(encoder.constant_, np.inf, encoder.scale_), encoder.scale_)
    part.require(missing == sorted(set(missing)) and all(j < len(numeric) for j in missing), "has wrong indicators")
    encoder.missing_ = np.array(missing, dtype=int)
    encoder.categories_ = [category_from(part, entry) for entry in categories]
    used = [*numeric, *(c.column for c in encoder.categories_)]
    part.require(not table or sorted(used) == list(range(len(used))), "does not use every column once")
    sound = all(isinstance(t, list) and len(t) == 2 and t[1] in ("datetime", "timedelta") for t in times)
    part.require(sound and all(type(j) is int and j in numeric for j, _ in times), "has odd columns of times")
    encoder.times_ = dict(times)
    part.require(len(encoder.times_) == len(times), "names a column of times twice")
    encoder.extras_ = [extra_from(reader, part, i, entry, len(numeric)) for i, entry in enumerate(extras)]
    encoder.sources_ = encoder.find_sources()
    return encoder


def category_from(part: Reader, entry: Any) -> Categories:
    """Return a categorical column."""
    sound = isinstance(entry, dict) and set(entry) == {"column", "levels"} and type(entry["column"]) is int
    part.require(sound and isinstance(entry["levels"], list), "has a categorical column that is not described")
    levels = entry["levels"]
    part.require(all(type(level) is str for level in levels) and len(set(levels)) == len(levels), "has odd levels")
    return Categories(entry["column"], tuple(levels))


def extra_from(reader: Reader, part: Reader, i: int, entry: Any, n_numeric: int) -> Extra:
    """Return what an encoding adds for one column."""
    sound = isinstance(entry, dict) and set(entry) == {"column", "encoding"} and type(entry["column"]) is int
    part.require(sound and 0 <= entry["column"] < n_numeric, "has an encoded column that is not described")
    prefix = f"encoder.extra.{i}"
    encoding = encoding_from(reader, part, entry["encoding"], prefix)
    width = encoding(np.zeros(1)).shape[1]
    mean, scale = (reader.doubles(f"{prefix}.{name}", (width,)) for name in ("mean", "scale"))
    part.require(bool((np.abs(mean) < 1e3).all()), "has means that do not fit its scales")
    part.require(bool((scale > 1e-9).all()), "has scales that are not positive, or tiny")
    return Extra(entry["column"], encoding, mean, scale)


def encoding_from(reader: Reader, part: Reader, kind: Any, prefix: str) -> Any:
    """Return an encoding of this kind."""
    part.require(isinstance(kind, str) and kind in EXTRAS, f"has an encoding {brief(kind)}")
    if kind == "cycles":
        frequencies = reader.doubles(f"{prefix}.frequencies", (None,))
        part.require(0 < len(frequencies) <= len(Cycles.PERIODS), "has other cycles than day, week and year")
        part.require(bool((np.abs(frequencies) < HUGE).all()), "has cycles that are too short")
        return Cycles(frequencies, reader.doubles(f"{prefix}.phases", frequencies.shape))
    knots = reader.doubles(f"{prefix}.knots", (None,))
    part.require(len(knots) >= 2 and bool(np.abs(knots).max() < HUGE), "has knots that are few or huge")
    part.require(bool((np.diff(knots) >= TINY).all()), "has knots that do not rise")
    if kind == "spline":
        return Steps(knots)
    scores = NormalScore(knots, reader.doubles(f"{prefix}.coefficients", (4, len(knots) - 1)))
    check_scores(part, scores)
    return scores


def scaler_parts(scaler: TargetScaler) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return JSON and arrays that describe a target scaler."""
    arrays = {"target.shift": scaler.shift_, "target.scale": scaler.scale_}
    if "limit_" in vars(scaler):
        arrays["target.limit"] = scaler.limit_
    return {"kind": scaler.kind}, arrays


def scaler_from(reader: Reader, n_outputs: int) -> TargetScaler:
    """Return the target scaler that a file describes."""
    part = Reader(reader.entry("target", dict), {}, f"the target scaling in {reader.name}")
    scaler = TargetScaler(part.entry("kind", str))
    part.require(scaler.kind in ("none", "log", "logs", "standard"), f"is of kind {brief(scaler.kind)}")
    part.finish()
    scaler.shift_, scaler.scale_ = (reader.doubles(f"target.{name}", (n_outputs,)) for name in ("shift", "scale"))
    check_scales(part, scaler.shift_, np.where(scaler.scale_ == 1, np.inf, scaler.scale_), scaler.scale_)
    if "target.limit" in reader.arrays:
        scaler.limit_ = reader.doubles("target.limit", (n_outputs,))
        part.require(bool((scaler.limit_ > 0).all()), "cuts targets off at nothing")
    return scaler


def check_scales(part: Reader, mean: np.ndarray, spread: np.ndarray, scale: np.ndarray) -> None:
    """Raise an error for scales that no fit finds: not positive, or next to nothing beside the mean."""
    part.require(bool((scale >= TINY).all()), "has scales that are not positive, or tiny")
    part.require(bool((1e-17 * np.abs(mean) <= spread).all()), "has means that do not fit its scales")


def check_scores(part: Reader, encoding: NormalScore) -> None:
    """Raise an error unless a normal score is one: four points of every cubic piece bound all of it."""
    a, b, c, d = encoding.coefficients
    with np.errstate(all="ignore"):
        for share in (0, 1 / 3, 2 / 3, 1):
            t = share * np.diff(encoding.knots)
            part.require(bool((np.abs(((a * t + b) * t + c) * t + d) < 1e3).all()), "has normal scores that are huge")
