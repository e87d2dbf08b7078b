"""Predictions of a saved model with NumPy alone, in double precision.

This file stands on its own: copied beside a model file, it predicts where neither JAX nor vpboost is installed.

    from predictor import Predictor
    model = Predictor("model.vpboost")
    model.predict(X)
    model.predict_interval(X, coverage=0.9)

Arrays of the M learners are stacked along a first axis; inputs lie side by side, ``(1 or M, ..., n_rows)``: products
serve all learners and rows at once.
"""

import datetime
import hashlib
import json
import math
from functools import partial

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

ACTIVATIONS = {
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "silu": lambda x: x * np.exp(-np.logaddexp(0, -x)),
    "softplus": lambda x: np.logaddexp(x, 0),
    "sin": np.sin,
}
#: Inputs are cut off at so many spreads from their mean, logarithms of predictions at this.
FARTHEST, MOST_LOG = 1e6, 600.0
#: Where the spread of a distribution is learnt, locations are cut off at so many spreads of y; logarithms of its scale,
#: or shape, at this.
FARTHEST_LOCATION, MOST_LOG_SCALE = 8.0, 15.0
#: Products such as 100 × 0.07 are a little more than the whole numbers that they stand for.
ROUNDING = 1e-12
DTYPES = {"F32": "<f4", "F64": "<f8", "I64": "<i8", "BOOL": "?"}


class Predictor:
    """A saved model: ``predict``, and what it knows besides.

    Of a classifier ``predict_proba`` and ``predict_set``, of a regressor ``predict_interval``, with a distribution also
    ``predict_std`` and ``predict_parameters``. Standard deviations without one (``return_std``) take vpboost itself.
    """

    def __init__(self, path):
        self.content, self.arrays = read(path)
        self.learners = self.content["featurizer"], *mean_of_chains(self.content, self.arrays)
        self.extras = [{} for _ in self.content["encoder"]["extras"]]  # arrays of what is added to columns, by name
        for name, array in self.arrays.items():
            if name.startswith("encoder.extra."):
                place, part = name.removeprefix("encoder.extra.").split(".")
                self.extras[int(place)][part] = array

    def predict(self, X):
        """Return predictions, one per row of X: a data frame, or an array (of objects, with text or dates)."""
        if self.content["kind"] == "VPBoostClassifier":
            return np.array(self.content["classes"])[self.predict_proba(X).argmax(axis=1)]
        if self.content["target"]["kind"] == "logs":  # whose mean depends on the spread
            return self.plain(moments(*self.law(X))[0])
        raw, scale, shift = self.raw(X), self.arrays["target.scale"], self.arrays["target.shift"]
        levels = self.content["loss"].get("options", {}).get("level")
        back = partial(scaled_back, kind=self.content["target"]["kind"], scale=scale, shift=shift)
        return self.plain(predicted(raw.reshape(len(raw), len(scale), -1), back, isinstance(levels, list)))

    def predict_proba(self, X):
        """Return the probabilities of the classes."""
        return probabilities(self.raw(X))

    def predict_set(self, X, coverage=0.9):
        """Return which classes are in sets that hold the true one of this part of the rows."""
        most = self.largest_scores(coverage, "VPBoostClassifier")[0]
        # before the temperature, which has seen the rows that the scores are of
        return 1 - probabilities(self.raw(X) * self.content.get("temperature", 1.0)) <= most

    def predict_interval(self, X, coverage=0.9, simultaneous=False):
        """Return the ends of intervals that hold the true value of this part of the rows, or all values of a row."""
        most = self.largest_scores(coverage, "VPBoostRegressor", simultaneous)
        if "spread" in self.content:
            mean, std = moments(*self.law(X))
        else:
            mean, std = self.predict(X).reshape(-1, len(most)), 1.0
        with np.errstate(over="ignore"):
            low, high = mean - most * std, mean + most * std
        if self.content["target"]["kind"] in ("log", "logs"):  # no target is negative
            low = np.maximum(low, 0.0)
        return self.plain(low), self.plain(high)

    def predict_std(self, X):
        """Return the standard deviations of the distributions that the model predicts."""
        return self.plain(moments(*self.law(X))[1])

    def predict_parameters(self, X):
        """Return the parameters of these distributions, by their names in ``vpboost.distributions``."""
        return {name: self.plain(values) for name, values in self.law(X)[1].items()}

    def plain(self, values):
        """Return values of the outputs, (rows, outputs), without the second axis where ``y`` had none."""
        return values[:, 0] if self.content["single_output"] else values

    def law(self, X):
        """Return the kind of distribution that is predicted, and its parameters, each of shape (rows, outputs)."""
        if "spread" not in self.content:
            raise ValueError("the model predicts no distribution; fit VPBoostRegressor(distribution='normal'), say")
        x, spread, arrays = self.encode(X), self.content["spread"], self.arrays
        location = evaluated(self.learners, x)
        n_extras = sum(len(own["mean"]) for own in self.extras)
        plain = x[:, : x.shape[1] - n_extras] if x.ndim == 2 else np.zeros((len(x), 0))
        names = [name for name in arrays if name.startswith("spread.theta.")]
        theta = {name.removeprefix("spread.theta."): arrays[name] for name in names}
        learners = spread["featurizer"], arrays["spread.constant"], arrays["spread.weights"], theta
        other, likelihood = evaluated(learners, spread_inputs(plain, location)), spread["likelihood"]
        scaler = self.content["target"]["kind"], arrays["target.scale"], arrays["target.shift"]
        return law(likelihood["type"], likelihood["options"], scaler, location, other)

    def largest_scores(self, coverage, kind, simultaneous=False):
        """Return how large the scores of new rows are at the most, for each output, by conformal prediction."""
        if self.content["kind"] != kind:
            raise ValueError(f"this is for a {kind}; the model is a {self.content['kind']}")
        if not 0 < coverage < 1:
            raise ValueError(f"coverage must be in (0, 1), got {coverage!r}")
        scores, weight = (self.arrays.get(f"conformity.{name}") for name in ("scores", "weight"))
        if scores is None:
            raise ValueError("the model knows no errors of rows that were not trained on; calibrate it, then save it")
        found = score_quantiles(scores, coverage, weight, self.arrays["conformity.scale"] if simultaneous else None)
        if max(found) == math.inf:
            needed, whole = rows_needed(coverage), " with all their targets" if simultaneous else ""
            raise ValueError(f"coverage={coverage:g} needs the errors of {needed} rows{whole} that were not trained on")
        return found

    def raw(self, X):
        """Return what the ensemble predicts, before targets are scaled back or logits turned into probabilities."""
        return evaluated(self.learners, self.encode(X))

    def encode(self, X):
        """Return the inputs as the learners see them: scaled, with marks for missing values, categories as 0 and 1."""
        encoder, arrays = self.content["encoder"], self.arrays
        numbers, texts = self.columns(X)
        if list(numbers.shape[1:]) != encoder["shape"]:
            raise ValueError(f"X must have rows of shape {encoder['shape']}, got {list(numbers.shape[1:])}")
        if np.isinf(numbers).any():
            raise ValueError("X has infinite values; use NaN for missing ones")
        scaled = standardise(numbers, *(arrays[f"encoder.{name}"] for name in ("mean", "scale", "constant")))
        levels = [category["levels"] for category in encoder["categories"]]
        extras = [
            (extra["column"], partial(ENCODINGS[extra["encoding"]], own), own["mean"], own["scale"])
            for extra, own in zip(encoder["extras"], self.extras, strict=True)
        ]
        return encoded(numbers, scaled, encoder["missing"], zip(texts, levels, strict=True), extras)

    def columns(self, X):
        """Return the numeric inputs as one array, and the names of each categorical column's values."""
        categories = self.content["encoder"]["categories"]
        names = self.content["feature_names"] or self.content.get("file_columns")
        if isinstance(X, np.ma.MaskedArray):
            X = X.astype(float).filled(np.nan)
        if not hasattr(X, "columns") and not categories and not self.content["encoder"].get("times"):
            return np.asarray(X, float), []
        if hasattr(X, "columns"):
            known = list(getattr(X, "column_names", X.columns))  # Arrow's and pandas' ways to say it
            lacking = [name for name in names or [] if name not in known]
            if lacking:
                raise ValueError(f"X has no column {lacking[0]!r}")
            columns = [X[name] for name in names or known]
            table = [column.to_pylist() if hasattr(column, "to_pylist") else list(column) for column in columns]
        else:
            rows = np.asarray(X)
            if rows.ndim != 2:
                width = self.content["n_features_in"]
                raise ValueError(f"X must be rows of {width} columns, got shape {list(rows.shape)}")
            table = [list(column) for column in (rows if rows.dtype.kind in "mM" else np.asarray(X, object)).T]
        if len(table) != self.content["n_features_in"]:
            raise ValueError(f"X must have {self.content['n_features_in']} columns, got {len(table)}")
        times = [column for column, _ in self.content["encoder"].get("times", [])]
        numbers = [
            [seconds(value) if j in times else np.nan if is_missing(value) else float(value) for value in table[j]]
            for j in self.content["encoder"]["numeric"]
        ]
        n_rows = len(table[0])
        return np.array(numbers, float).reshape(-1, n_rows).T, [
            [level_name(value) for value in table[category["column"]]] for category in categories
        ]


def read(path):
    """Return the description and the arrays of a model file."""
    with open(path, "rb") as file:
        data = file.read()
    begin = 8 + int.from_bytes(data[:8], "little")
    if begin > len(data) or b'"vpboost"' not in data[8:begin]:
        raise ValueError(f"{path} is cut short or not a model of vpboost")
    header = json.loads(data[8:begin])
    content = json.loads(header.pop("__metadata__")["vpboost"])
    if (content.get("format"), content.get("version")) != ("vpboost model", 1):
        raise ValueError(
            f"{path} is a {content.get('format')!r} of version {content.get('version')!r}, not a model of version 1"
        )
    digest = content.pop("checksum")
    if hashlib.sha256(data.replace(digest.encode(), b"0" * 64, 1)).hexdigest() != digest:
        raise ValueError(f"{path} is damaged: its checksum does not fit its content")
    kind = content.get("class_type")  # the type of the labels: dates are stored as numbers, bytes as text
    if kind is not None:
        labels = [label.encode("latin-1") for label in content["classes"]] if "S" in kind else content["classes"]
        content["classes"] = np.array(labels, None if "U" in kind else kind)
    arrays = {}
    for name, entry in header.items():
        first, last = entry["data_offsets"]
        arrays[name] = np.frombuffer(data[begin + first : begin + last], DTYPES[entry["dtype"]]).reshape(entry["shape"])
        if arrays[name].dtype.kind == "f":
            arrays[name] = arrays[name].astype(float)
    return content, arrays


def mean_of_chains(content, arrays):
    """Return constant, weights and other arrays of the learners that predict: the mean of all chains."""
    first, others = content.get("with_first", True), len(content.get("others", []))
    best, n_chains = content["best_iteration"] if first else 0, first + others
    parts = {name: array[:best] for name, array in arrays.items() if name == "weights" or name.startswith("theta.")}
    more = {name: arrays[f"others.{name}"] for name in parts if f"others.{name}" in arrays}
    parts |= {name: np.concatenate([parts[name], array]) for name, array in more.items()}
    constants = [*([arrays["constant"]] if first else []), *arrays.get("others.constant", [])]
    constant, weights = np.mean(constants, axis=0), parts["weights"] / n_chains
    if content["dtype"] == "float32":  # rounded as the estimator's own
        constant, weights = (array.astype(np.float32).astype(float) for array in (constant, weights))
    if "temperature" in content:
        constant, weights = constant / content["temperature"], weights / content["temperature"]
    theta = {name.removeprefix("theta."): array for name, array in parts.items() if name != "weights"}
    return constant, weights, theta


def is_missing(value):
    """Say whether a value is one of the ways to write that there is none."""
    return value is None or type(value).__name__ in ("NAType", "NaTType") or value != value


def level_name(value):
    """Return a category as text, the same for 1 and 1.0 and for a date in any of its types; missing is a level too."""
    if is_missing(value):
        return "<missing>"
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")  # other bytes, other names
    if isinstance(value, np.datetime64):
        value = value.astype("datetime64[us]").item()
    if isinstance(value, np.timedelta64) or hasattr(value, "total_seconds"):
        short = f"{seconds(value):g}"
        return f"{short if float(short) == seconds(value) else seconds(value)} s"
    if getattr(value, "tzinfo", None) is not None and hasattr(value, "year"):
        value = value.astimezone(datetime.UTC).replace(tzinfo=None)
    if hasattr(value, "isoformat"):
        return value.isoformat().removesuffix("T00:00:00")  # a date at midnight is a date
    whole = isinstance(value, float | np.floating) and float(value).is_integer()
    return str(int(value)) if whole else str(value)


def seconds(value):
    """Return a date or time as seconds since 1970 (in UTC if it has a time zone), a span of time as seconds."""
    if is_missing(value):
        return np.nan
    if hasattr(value, "to_timestamp"):  # a period of pandas
        value = value.to_timestamp()
    if hasattr(value, "total_seconds"):
        return value.total_seconds()
    if isinstance(value, np.timedelta64):
        return float(value / np.timedelta64(1, "s"))
    if hasattr(value, "hour") and not hasattr(value, "year"):  # a time of day
        return 3600 * value.hour + 60 * value.minute + value.second + value.microsecond / 1e6
    if getattr(value, "tzinfo", None) is not None:
        return value.timestamp()
    return float((np.datetime64(value) - np.datetime64(0, "s")) / np.timedelta64(1, "s"))


def standardise(numbers, mean, scale, constant):
    """Return numbers of order one, 0 for missing ones and in constant columns.

    Beyond a million spreads they stay where they are: predictions are finite, however far from the training data.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = (numbers - mean) / scale
        if not np.isfinite(scaled).all():
            scaled = np.where(np.isfinite(scaled), scaled, numbers / scale - mean / scale)  # the difference overflowed
    return np.where(constant | np.isnan(numbers), 0.0, np.clip(scaled, -FARTHEST, FARTHEST))


def encoded(numbers, scaled, missing, categories, extras):
    """Return inputs as the learners see them.

    ``categories`` are pairs of a column's values and the levels known, ``extras`` what an encoding, a function of a
    scaled column, adds to it: column, function, mean and spread.
    """
    if numbers.ndim > 2:
        return scaled
    known = np.isfinite(numbers)
    parts = [scaled, ~known[:, missing]]
    parts += [np.array(names, object)[:, None] == np.array(levels, object) for names, levels in categories]
    for column, encoding, mean, scale in extras:
        parts.append(np.where(known[:, [column]], (encoding(scaled[:, column]) - mean) / scale, 0))
    return np.concatenate([np.asarray(part, float) for part in parts], axis=1)


def logits(raw):
    """Return a logit for each class: of two, only the second's is predicted."""
    return np.concatenate([np.zeros_like(raw), raw], axis=1) if raw.shape[1] == 1 else raw


def probabilities(raw):
    """Return the probabilities of classes."""
    odds = np.exp(logits(raw) - logits(raw).max(axis=1, keepdims=True))
    return odds / odds.sum(axis=1, keepdims=True)


def predicted(each, back, in_order):
    """Return predictions, of some numbers for each target along the last axis, in the user's units by ``back``.

    They are the first of these numbers, the location; or, of quantiles, all in order, so that they do not cross.
    """
    if not in_order:
        return back(each[:, :, 0])
    return np.moveaxis(back(np.moveaxis(np.sort(each, axis=2), 2, 0)), 0, 2)


def scaled_back(raw, kind, scale, shift):
    """Return predictions in the user's units, within what double precision holds."""
    with np.errstate(over="ignore"):
        values = scale * (to_rates(raw) if kind == "log" else raw) + shift
    if kind == "logs":
        return to_rates(values)
    return np.clip(values, -np.finfo(float).max, np.finfo(float).max)


def spread_inputs(plain, location):
    """Return what the spread depends on: encoded columns without what an encoding adds to them, and the location."""
    return np.concatenate([plain, np.clip(location, -FARTHEST_LOCATION, FARTHEST_LOCATION)], axis=1)


def law(likelihood, options, scaler, location, other):
    """Return the kind of distribution, and its parameters in the user's units by name.

    ``scaler`` says how targets are scaled: kind, scale and shift. ``other`` is the logarithm of the scale or the shape.
    """
    kind, scale, shift = scaler
    other = np.exp(np.clip(other, -MOST_LOG_SCALE, MOST_LOG_SCALE))
    if kind == "log":
        mean = scaled_back(location, kind, scale, shift)
        gamma = likelihood == "GammaLikelihood"
        return ("Gamma", {"mu": mean, "shape": other}) if gamma else ("NegativeBinomial", {"mu": mean, "size": other})
    parameters = {"loc": scale * location + shift, "scale": scale * other}
    if likelihood == "StudentTLikelihood":
        return "StudentT", {"df": np.full(location.shape, options["df"]), **parameters}
    return "LogNormal" if kind == "logs" else "Normal", parameters


def moments(kind, parameters):
    """Return the means and standard deviations of distributions.

    >>> [float(moment) for moment in moments("Gamma", {"mu": 6.0, "shape": 4.0})]
    [6.0, 3.0]
    """
    first, *_, last = parameters.values()
    with np.errstate(over="ignore"):
        if kind == "LogNormal":
            mean = np.exp(first + last**2 / 2)
            return mean, mean * np.sqrt(np.expm1(last**2))
        if kind == "StudentT":
            return parameters["loc"], last * np.sqrt(first / (first - 2))
    if kind == "Gamma":
        return first, first / np.sqrt(last)
    return first, np.sqrt(first) * np.sqrt(1 + first / last) if kind == "NegativeBinomial" else last


def score_quantiles(scores, coverage, weight, scale=None):
    """Return the conformal quantile of each output's scores; with scales, multiples of these that bound whole rows."""
    if scale is None:
        return np.array([conformal_quantile(of_output, coverage, weight) for of_output in scores.T])
    with np.errstate(over="ignore"):
        return conformal_quantile(np.max(scores / scale, axis=1), coverage, weight) * scale


def conformal_quantile(scores, coverage, weight=None):
    """Return the ⌈(n + 1) · coverage⌉-th smallest of n scores, NaN left out; infinite if there are too few.

    With weights it is the smallest score such that it and those below it have the part ``coverage`` of all weight, that
    of a new row included, which is taken to have the mean weight.

    >>> conformal_quantile([3.0, 1.0, 2.0, 4.0], 0.6)
    3.0
    >>> conformal_quantile([3.0, 1.0, 2.0, 4.0], 0.9)
    inf
    """
    values = np.asarray(scores, float)
    weights = np.ones(len(values)) if weight is None else np.asarray(weight, float)
    kept = ~np.isnan(values) & (weights > 0)
    values, weights = values[kept], weights[kept]
    if len(values) < rows_needed(coverage):
        return math.inf
    order = np.argsort(values, kind="stable")
    below = np.cumsum(weights[order])
    wanted = coverage * (below[-1] + below[-1] / len(values)) * (1 - ROUNDING)
    return float(values[order[min(int(np.searchsorted(below, wanted)), len(values) - 1)]])


def rows_needed(coverage):
    """Return the fewest scores whose conformal quantile is finite.

    >>> [rows_needed(coverage) for coverage in (0.5, 0.9, 0.95, 0.99)]
    [1, 9, 19, 99]
    """
    return math.ceil(coverage / (1 - coverage) * (1 - ROUNDING))


def waves(frequencies, phases, values, xp=np):
    """Return sines, then cosines, of values at some frequencies; ``xp`` is NumPy or like it, here and below."""
    angles = values[:, None] * frequencies + phases
    return xp.concatenate([xp.sin(angles), xp.cos(angles)], axis=1)


def to_rates(raw, xp=np):
    """Return what a log link makes of raw predictions, within what double precision holds."""
    return xp.exp(xp.clip(raw, -MOST_LOG, MOST_LOG))


def spline(knots, coefficients, values, xp=np):
    """Return a piecewise cubic, its coefficients from the third power down; constant beyond the outer knots."""
    inside = xp.clip(values, knots[0], knots[-1])
    piece = xp.clip(xp.searchsorted(knots, inside, side="right") - 1, 0, len(knots) - 2)
    t = inside - knots[piece]
    a, b, c, d = coefficients[:, piece]
    return ((a * t + b) * t + c) * t + d


def steps(knots, values, xp=np):
    """Return smooth steps that rise from 0 to 1 between neighbouring knots, one column each."""
    t = xp.clip((values[:, None] - knots[:-1]) / xp.diff(knots), 0, 1)
    return t**2 * (3 - 2 * t)


#: What may be added to a column, from arrays by name and the column.
ENCODINGS = {
    "quantile": lambda own, values, xp=np: spline(own["knots"], own["coefficients"], values, xp)[:, None],
    "spline": lambda own, values, xp=np: steps(own["knots"], values, xp),
    "cycles": lambda own, values, xp=np: waves(own["frequencies"], own["phases"], values, xp),
}


def evaluated(learners, x, rows_at_once=1024):
    """Return what an ensemble predicts for encoded rows: ``learners`` are description, constant, weights, theta."""
    description, constant, weights, theta = learners
    parts = [x[i : i + rows_at_once] for i in range(0, max(len(x), 1), rows_at_once)]
    return np.concatenate([ensemble(constant, weights, description, theta, part) for part in parts])


def ensemble(constant, weights, description, theta, x):
    """Return c₀ + Σ_m W_mᵀ z_m(x) for rows x."""
    if not len(weights):
        return np.tile(constant, (len(x), 1))
    z = features(description, theta, np.moveaxis(x, 0, -1)[None])
    return constant + np.tensordot(z, weights, axes=((0, 1), (0, 1)))


def features(description, theta, x):
    """Return the features of M stacked featurizers, ``(M, n, n_rows)``."""
    if "featurizer" not in description:
        return FEATURES[description["type"]](description["options"], theta, x)
    inner = {name.removeprefix("featurizer."): array for name, array in theta.items()}
    if description["type"] == "WithBias":
        z = features(description["featurizer"], inner, x)
        return np.concatenate([z, np.ones((len(z), 1, z.shape[-1]))], axis=1)
    if description["type"] == "WithTree":
        return np.concatenate([features(description["featurizer"], inner, x), leaves(theta, flat(x))], axis=1)
    seen = theta["seen"]  # SomeColumns
    if not seen.all():
        x = seen[:, :, None] * x / np.sqrt(seen.mean(axis=1))[:, None, None]
    return features(description["featurizer"], inner, x)


def leaves(theta, x):
    """Return the leaves of M stacked soft trees, each a product of gates or of what they lack to one."""
    gates = 0.5 + 0.5 * np.tanh(0.5 * (theta["weight"] @ x + theta["bias"][..., None]))
    z = theta["size"][:, None, None] * np.ones((1, 1, x.shape[-1]))
    for level in range(gates.shape[1]):
        gate = gates[:, level, None]
        z = np.concatenate([z * (1 - gate), z * gate], axis=1)
    return z


def linear(theta, name, x):
    """Return the outputs of M stacked linear layers."""
    return theta[f"{name}.weight"] @ x + theta[f"{name}.bias"][..., None]


def flat(x):
    """Return inputs of any shape as vectors."""
    return x.reshape(len(x), -1, x.shape[-1])


def mlp(options, theta, x):
    """Return the features of a fully connected network."""
    z = flat(x)
    for i in range(options["depth"] + 1):
        z = ACTIVATIONS[options["activation"]](linear(theta, f"layers.{i}", z))
    return z


def resnet(options, theta, x):
    """Return the features of a residual network."""
    activation = ACTIVATIONS[options["activation"]]
    z = activation(linear(theta, "opening", flat(x)))
    for i in range(options["depth"]):
        z = z + activation(linear(theta, f"blocks.{i}", z))
    return z


def convnet(options, theta, x):
    """Return the features of blocks of convolution, max-pooling and activation."""
    maps = np.moveaxis(x[:, None] if x.ndim == 4 else x, -1, 1)  # (1 or M, n_rows, channels, height, width)
    for i, (pool, stride) in enumerate(zip(options["pools"], options["strides"], strict=True)):
        kernel, bias = theta[f"convolutions.{i}.weight"], theta[f"convolutions.{i}.bias"]
        windows = sliding_window_view(maps, kernel.shape[-2:], axis=(-2, -1))
        windows = np.broadcast_to(windows, (len(kernel), *windows.shape[1:]))
        maps = np.einsum("mrchwij,mocij->mrohw", windows, kernel, optimize=True) + bias[:, None]
        pooled = sliding_window_view(maps, (pool, pool), axis=(-2, -1)).max(axis=(-2, -1))
        maps = ACTIVATIONS[options["activation"]](pooled[..., ::stride, ::stride])
    return np.moveaxis(maps.reshape(*maps.shape[:2], -1), 1, -1)


def rbf(options, theta, x):
    """Return Gaussian bumps."""
    points = flat(x)[:, None]  # one axis for the bumps
    distance = (points - theta["centres"][..., None]) * np.exp(-theta["log_widths"])[..., None]
    return np.exp(-0.5 * np.sum(distance**2, axis=-2))


def fourier(options, theta, x):
    """Return waves."""
    return np.cos(theta["frequencies"] @ flat(x) + theta["phases"][..., None])


def bspline(options, theta, x):
    """Return cubic B-splines along directions."""
    ridge = theta["directions"] @ flat(x) + theta["offsets"][..., None]
    t = np.abs(ridge[:, :, None] - np.arange(options["n_knots"])[:, None])
    splines = (np.maximum(2 - t, 0) ** 3 - 4 * np.maximum(1 - t, 0) ** 3) / 6
    return splines.reshape(len(ridge), -1, ridge.shape[-1])


FEATURES = {"MLP": mlp, "ResNet": resnet, "ConvNet": convnet, "RBF": rbf, "Fourier": fourier, "BSpline": bspline}
