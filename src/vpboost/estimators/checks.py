"""What regressor and classifier check: their data, and that a fit that goes on may do so."""

import warnings
from typing import Any

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, validate_data

from ..core.data import check_weights
from ..losses import Loss, Observed
from ..tables import frames
from ..tables.streams import is_stream, read_stream
from .parts import Part, hold_out
from .portfolio import LEAST_ROWS, Profile, fix, is_auto
from .resuming import MAY_HAVE_STATE, describe_setting, mark_of
from .settings import Settings

#: Parameters that belong to a model from its first stage on. (Encodings and the like are in its profile.)
BINDING = (
    *("loss", "distribution", "featurizer", "width", "depth", "activation", "reg_lambda"),
    *("eval_metric", "validation_fraction", "dtype"),
)
#: What of a profile belongs to a model from its first stage on.
LASTING = ("encoding", "inherit", "max_features", "weight_scale", "relevance", "n_chains", "refit_full", "tree_depth")


class Checks(Settings):
    """Checks of inputs, targets and weights, and the split into training and validation data."""

    profile_: Profile
    target_names_: list[str] | None
    kinds_: (
        list[str] | None
    )  #: what each column of a data frame holds (see :mod:`vpboost.tables.frames`); None if all numbers
    n_iter_: int
    _has_holes: bool = False  #: whether some of the targets, of those that validate, too, are missing
    _file_columns: list[str] | None = None  #: inputs of the file that a model is fitted to
    evals_result_: dict[str, list[float]]
    _begun_with: dict[str, str]  #: the settings that a fit was begun with
    _validated_on: str | None  #: which data the validation scores are of

    def _plain(self, target: np.ndarray) -> np.ndarray:
        """Return targets in the shape of predictions."""
        return target

    def _for_holes(self, loss: Loss) -> Loss:
        """Return a loss that leaves missing targets out, if there are any."""
        return Observed(loss) if self._has_holes else loss

    def _binding_settings(self) -> dict[str, str]:
        """Return the parameters that belong to a model from its first stage on."""
        settings = {
            name: describe_setting(getattr(self, name), name not in MAY_HAVE_STATE)
            for name in BINDING
            if hasattr(self, name)
        }
        return {**settings, "dtype": repr("auto" if is_auto(self.dtype) else np.dtype(self.dtype).name)}

    def _check_unchanged(self, resume_from: Any) -> None:
        """Raise ``ValueError`` if a fit that goes on by ``warm_start`` has other settings than it was begun with."""
        if resume_from is not None:
            raise ValueError("resume_from and going on by warm_start=True exclude each other; use a fresh estimator")
        for name, value in self._binding_settings().items():
            if value != self._begun_with.get(name, value):
                raise ValueError(
                    f"{name} cannot change while warm_start=True goes on with a model: it was begun with {name}="
                    f"{self._begun_with[name]}, got {value}; set it back, or fit afresh with warm_start=False"
                )
        self._check_profile(self.profile_, "warm_start=True")

    def _check_profile(self, profile: Profile, by: str, error: type[ValueError] = ValueError) -> None:
        """Raise ``error`` if a fit that goes on is asked for another profile than it has."""
        fixed = fix(profile, self)
        changed = [name for name in LASTING if getattr(fixed, name) != getattr(profile, name)]
        if changed:
            raise error(
                f"{', '.join(changed)} cannot change while {by} goes on with a model: it has {profile}; set them to "
                "that or to 'auto', or fit afresh"
            )

    def _earlier_scores(self, held_out: Part | None) -> list[float]:
        """Return the validation scores of the stages before a fit goes on; NaN if they were on other data, or none."""
        scores = list(self.evals_result_["validation"])
        known = self._validated_on is not None or not scores  # files of earlier versions do not say
        if known and held_out is not None and mark_of(held_out) != self._validated_on:
            scores = []
            warnings.warn(
                "the validation data are not those of the fit that warm_start=True goes on with: earlier scores do not "
                "count, and rows trained on before may be among them; give the same X_val and y_val to every fit",
                UserWarning,
                stacklevel=4,
            )
        return [*scores, *[float("nan")] * (self.n_iter_ - len(scores))]

    def _seed(self, earlier: int | None) -> int:
        """Return the seed of a fit; one that goes on keeps its earlier seed unless ``random_state`` is a number."""
        if isinstance(self.random_state, int | np.integer):
            if not 0 <= self.random_state < 2**32:
                raise ValueError(f"random_state must be from 0 to 2**32 - 1, got {self.random_state!r}")
            return int(self.random_state)
        if earlier is not None:
            return earlier
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _check_data(self, X: Any, y: Any, sample_weight: Any, reset: bool) -> Part:
        """Return inputs, targets and weights, checked; with ``reset`` a new model learns what its columns hold."""
        names, self._file_columns = frames.names_of(y), None if reset else self._file_columns
        if is_stream(X):
            names = [y] if isinstance(y, str) else None if y is None else list(y)
            X, y, self._file_columns = read_stream(X, y, self._file_columns)
        inputs, target = self._check_inputs(X, reset), self._check_target(y, reset)
        self.target_names_ = names if reset else self.target_names_
        self._has_holes = bool(np.isnan(target).any()) or (self._has_holes and not reset)
        if len(target) != inputs.shape[0]:
            raise ValueError(f"X and y must have as many rows, got {inputs.shape[0]} and {len(target)}")
        return Part(inputs, target, self._check_weight(sample_weight, y, len(target), "sample_weight"))

    def _check_inputs(self, X: Any, reset: bool) -> Any:
        if is_stream(X):
            raise TypeError(f"X must be an array or a data frame, got {type(X).__name__}; read it first")
        if isinstance(X, np.ma.MaskedArray):
            missing: Any = np.array("NaT", X.dtype) if X.dtype.kind in "mM" else np.nan
            X = np.ma.filled(X if X.dtype.kind in "mM" else X.astype(float), missing)
        if type(X).__name__ == "RecordBatch" and frames.is_arrow(X):
            X = frames.table_of_batch(X)
        if hasattr(X, "collect") and not hasattr(X, "shape"):
            raise TypeError(f"X must be an array or a data frame, got {type(X).__name__}: collect it first")
        if reset:
            self.kinds_ = None
        if self._file_columns is not None and frames.is_frame(X):
            if sorted(map(str, frames.column_names(X))) != sorted(self._file_columns):
                raise ValueError(
                    f"X must have the columns of the file that the model was fitted to: {self._file_columns}"
                )
            X = frames.read_table(frames.in_order(X, self._file_columns), ["number"] * len(self._file_columns)).numbers
        if frames.is_times(X) or (
            frames.is_frame(X) and (frames.is_arrow(X) or self.kinds_ is not None or not frames.is_all_numbers(X))
        ):
            return self._read_table(X, reset)
        if self.kinds_ is not None:
            raise ValueError("X must be a data frame with the columns of training, not all of which were numbers")
        kept = [np.float64, np.float32]
        with np.errstate(over="ignore", invalid="ignore"):  # sums of huge numbers
            X = validate_data(self, X, reset=reset, dtype=kept, ensure_all_finite="allow-nan", allow_nd=True)
        if X.ndim > 2 and np.isnan(X).any():
            raise ValueError("X must not have missing values when it holds images")
        return X

    def _read_table(self, X: Any, reset: bool) -> Any:
        """Return a data frame read column by column: a table, or an array if all its columns are numbers."""
        if X.shape[0] == 0:
            raise ValueError(f"Found array with 0 sample(s) (shape={X.shape}) while a minimum of 1 is required.")
        if frames.is_frame(X) and not frames.column_names(X):
            raise ValueError("X has no columns")
        validate_data(self, X, skip_check_array=True, reset=reset)
        table = frames.read_table(X, None if reset else self.kinds_ or ["number"] * X.shape[1])
        if reset and set(table.kinds) != {"number"}:
            self.kinds_ = table.kinds
        return table.numbers if self.kinds_ is None else table

    def _check_weight(self, sample_weight: Any, y: Any, n: int, name: str) -> np.ndarray:
        if sample_weight is None:
            return np.broadcast_to(1.0, n)  # no memory
        weight = _check_sample_weight(unmasked(sample_weight, name), np.zeros((n, 1)), dtype=np.float64)
        try:
            check_weights(weight, n)
        except ValueError as error:
            raise ValueError(str(error).replace("sample_weight", name)) from None
        return of_order_one(weight)

    def _check_trimmed(self, target: np.ndarray) -> None:
        """Check targets once rows of weight zero are gone."""

    def _split(
        self, data: Part, groups: np.ndarray, validation: tuple[Any, Any, Any, Any], seed: int
    ) -> tuple[Part, Part | None]:
        """Return training and validation parts; the latter None without any."""
        X_val, y_val, w_val, pair = validation
        X_val, y_val = validation_pair(X_val, y_val, pair)
        if is_stream(X_val):
            known = getattr(self, "feature_names_in_", None)
            columns = self._file_columns if known is None else [str(name) for name in known]
            X_val, y_val, _ = read_stream(X_val, y_val, columns)
        check_together(X_val, y_val, w_val)
        if X_val is not None:
            inputs, target = self._check_inputs(X_val, reset=False), self._check_target(y_val, reset=False)
            if len(target) != inputs.shape[0]:
                raise ValueError(f"X_val and y_val must have as many rows, got {inputs.shape[0]} and {len(target)}")
            self._has_holes |= bool(np.isnan(target).any())
            return data, Part(inputs, target, self._check_weight(w_val, y_val, len(target), "sample_weight_val"))
        too_few = self.early_stopping_rounds == "auto" and data.n_rows < LEAST_ROWS[self._is_classifier]
        if self.early_stopping_rounds is None or too_few:
            return data, None
        parts = hold_out(data.target, groups, self.validation_fraction, seed, self._is_classifier)
        if parts is None and self.early_stopping_rounds != "auto":
            raise ValueError(
                f"early_stopping_rounds={self.early_stopping_rounds} needs validation data, and of {data.n_rows} "
                "different rows none can be spared; give X_val and y_val, or set early_stopping_rounds=None"
            )
        return (data, None) if parts is None else (data.take(parts[0]), data.take(parts[1]))


def validation_pair(X_val: Any, y_val: Any, eval_set: Any) -> tuple[Any, Any]:
    """Return validation inputs and targets, whichever way they are given."""
    if eval_set is None:
        return X_val, y_val
    if X_val is not None or y_val is not None:
        raise ValueError("give validation data as X_val and y_val or as eval_set, not both")
    pair = eval_set[0] if isinstance(eval_set, list) and len(eval_set) == 1 else eval_set
    if not isinstance(pair, tuple) or len(pair) != 2:
        raise ValueError("eval_set must be one pair (X, y), or a list of one such pair")
    return pair


def check_together(X_val: Any, y_val: Any, sample_weight_val: Any) -> None:
    """Raise ``ValueError`` if a part of the validation data is missing."""
    if (X_val is None) != (y_val is None):
        raise ValueError("X_val and y_val must be given together")
    if X_val is None and sample_weight_val is not None:
        raise ValueError("sample_weight_val goes with X_val and y_val, which are not given")


def unmasked(values: Any, name: str) -> Any:
    """Return values, none of which may be masked: what is under the mask would be used without a word."""
    if np.ma.is_masked(values):
        raise ValueError(f"{name} has masked values; leave these rows out")
    return values


def of_order_one(weight: np.ndarray) -> np.ndarray:
    """Return weights, huge or tiny ones divided by a power of two, which changes none of their digits."""
    power = power_of(weight.max())
    return np.ldexp(weight, -power) if power else weight


def power_of(largest: float) -> int:
    """Return the power of two that weights are divided by; none unless the largest is huge or tiny."""
    return 0 if 1e-100 < largest < 1e100 else int(np.floor(np.log2(largest)))
