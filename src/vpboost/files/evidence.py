"""What a model knows of its errors in files: scores of rows that were not trained on, and some rows of the fit."""

from typing import Any

import numpy as np

from ..numerics.conformal import Conformity
from ..numerics.ignorance import Evidence
from ..predictor import FARTHEST
from .encoder import HUGE, TINY
from .reader import Reader


def conformity_arrays(known: Conformity | None) -> dict[str, np.ndarray]:
    """Return scores as arrays; none if there are none."""
    return {} if known is None else {f"conformity.{name}": value for name, value in known._asdict().items()}


def conformity_from(reader: Reader, n_outputs: int) -> Conformity | None:
    """Return the scores in a file, which need not have any."""
    if "conformity.scores" not in reader.arrays:
        return None
    scores = reader.array("conformity.scores", (None, n_outputs), finite=False)
    reader.require(scores.dtype == np.float64, f"has scores of type {scores.dtype}")
    reader.require(len(scores) > 0 and not (scores < 0).any(), "has scores that are negative, or none")
    reader.require(not np.isinf(scores).any(), "has scores that are infinite")
    weight = reader.doubles("conformity.weight", (len(scores),))
    scale = reader.doubles("conformity.scale", (n_outputs,))
    sound = bool((weight >= 0).all()) and 0 < weight.max() < HUGE
    reader.require(sound, "has weights of scores that make no sense")
    reader.require(bool((scale >= TINY).all()), "has scales of scores that are not positive, or tiny")
    return Conformity(scores, weight, scale)


def evidence_parts(known: Evidence | None) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return JSON and arrays of what tells ignorance; none if there is nothing."""
    if known is None:
        return {}, {}
    arrays = {f"evidence.{name}": getattr(known, name) for name in ("rows", "targets", "errors")}
    return {"evidence_all_seen": known.all_seen}, arrays


def evidence_from(reader: Reader, n_columns: int, n_outputs: int, most_rows: int) -> Evidence | None:
    """Return what tells ignorance, which a file need not have."""
    if "evidence_all_seen" not in reader.content:
        return None
    seen = reader.entry("evidence_all_seen", bool)
    rows = reader.doubles("evidence.rows", (None, n_columns))
    targets = reader.array("evidence.targets", (len(rows), n_outputs), finite=False)
    errors = reader.array("evidence.errors", (None, n_outputs), finite=False)
    fit = len(errors) < len(rows) <= most_rows
    reader.require(fit, f"has {len(rows)} rows of its fit, {len(errors)} of them set aside")
    double = targets.dtype == errors.dtype == np.float64
    limits = (rows, FARTHEST), (targets, HUGE), (errors, HUGE)
    small = double and not any((np.abs(part) > most).any() for part, most in limits)
    reader.require(bool(small), "has rows of its fit with numbers that make no sense")
    return Evidence(rows, targets, errors, seen)
