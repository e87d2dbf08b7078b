"""Preprocessing in files: the input encoder and the target scaler."""

from typing import Any

import numpy as np

from ..encodings import ENCODINGS, Cycles, NormalScore, Steps
from ..preprocessing import Categories, Extra, InputEncoder, TargetScaler
from .reader import Reader, brief

#: Names of what may be added to a column.
EXTRAS = {NormalScore: "quantile", Steps: "spline", Cycles: "cycles"}


def encoder_parts(encoder: InputEncoder) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return JSON and arrays that describe an encoder."""
    content = {
        "encoding": encoder.encoding,
        "shape": list(encoder.shape_),
        "numeric": [int(j) for j in encoder.numeric_],
        "missing": [int(j) for j in encoder.missing_],
        "categories": [{"column": int(c.column), "levels": list(c.levels)} for c in encoder.categories_],
        "extras": [{"column": int(e.column), "encoding": EXTRAS[type(e.encoding)]} for e in encoder.extras_],
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
    part.require(encoder.encoding in ENCODINGS, f"has an encoding {encoder.encoding!r}")
    shape, numeric, missing = (part.entry(name, list) for name in ("shape", "numeric", "missing"))
    categories, extras = part.entry("categories", list), part.entry("extras", list)
    times = part.entry("times", list) if "times" in part.content else []  # files of earlier versions have none
    part.finish()
    part.require(all(type(n) is int and 0 <= n < 1 << 31 for n in [*shape, *numeric, *missing]), "has odd numbers")
    encoder.shape_, encoder.numeric_ = tuple(shape), numeric
    table, statistics = len(shape) == 1, tuple(shape) if len(shape) == 1 else ()
    part.require(1 <= len(shape) <= 8 and (table or min(shape) > 0), f"is for inputs of shape {shape}")
    part.require(shape != [0] or bool(categories), "has no columns")
    part.require(not table or len(numeric) == shape[0], "counts its numeric columns wrongly")
    part.require(table or not (missing or categories or extras), "encodes images as if they were tables")
    encoder.mean_ = reader.doubles("encoder.mean", statistics)
    encoder.scale_ = reader.doubles("encoder.scale", statistics)
    encoder.constant_ = reader.array("encoder.constant", statistics, "b")
    part.require(bool((encoder.scale_ > 0).all()), "has scales that are not positive")
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
    part.require(bool((scale > 0).all()), "has scales that are not positive")
    return Extra(entry["column"], encoding, mean, scale)


def encoding_from(reader: Reader, part: Reader, kind: Any, prefix: str) -> Any:
    """Return an encoding of this kind."""
    part.require(kind in EXTRAS.values(), f"has an encoding {brief(kind)}")
    if kind == "cycles":
        frequencies = reader.doubles(f"{prefix}.frequencies", (None,))
        return Cycles(frequencies, reader.doubles(f"{prefix}.phases", frequencies.shape))
    knots = reader.doubles(f"{prefix}.knots", (None,))
    part.require(len(knots) >= 2 and bool((np.diff(knots) > 0).all()), "has knots that do not rise")
    if kind == "spline":
        return Steps(knots)
    return NormalScore(knots, reader.doubles(f"{prefix}.coefficients", (4, len(knots) - 1)))


def scaler_parts(scaler: TargetScaler) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return JSON and arrays that describe a target scaler."""
    return {"kind": scaler.kind}, {"target.shift": scaler.shift_, "target.scale": scaler.scale_}


def scaler_from(reader: Reader, n_outputs: int) -> TargetScaler:
    """Return the target scaler that a file describes."""
    part = Reader(reader.entry("target", dict), {}, f"the target scaling in {reader.name}")
    scaler = TargetScaler(part.entry("kind", str))
    part.require(scaler.kind in ("none", "log", "standard"), f"is of kind {scaler.kind!r}")
    part.finish()
    scaler.shift_, scaler.scale_ = (reader.doubles(f"target.{name}", (n_outputs,)) for name in ("shift", "scale"))
    part.require(bool((scaler.scale_ > 0).all()), "has scales that are not positive")
    return scaler
