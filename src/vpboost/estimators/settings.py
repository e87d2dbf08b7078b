"""The settings of the estimators: their names and defaults, their checks, and what the core makes of them."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
from sklearn.base import BaseEstimator

from .. import featurizers
from ..arguments import check_dtype
from ..callbacks import check_callbacks
from ..interpreter import ENGINES
from ..metrics import score_function
from ..suggest import did_you_mean
from ..trust_region import TrustRegion
from ..weak_learner import Training
from .portfolio import Profile, check_choices, is_number

FEATURIZERS: dict[str, Callable] = {
    "mlp": featurizers.MLP,
    "resnet": featurizers.ResNet,
    "convnet": featurizers.ConvNet,
    "rbf": featurizers.RBF,
    "fourier": featurizers.Fourier,
    "bspline": featurizers.BSpline,
}
#: Which of width, depth and activation a named featurizer takes, and under what name.
OPTIONS = {
    "mlp": {"width": "width", "depth": "depth", "activation": "activation"},
    "resnet": {"width": "width", "depth": "depth", "activation": "activation"},
    "convnet": {"activation": "activation"},
    "rbf": {"width": "n_features"},
    "fourier": {"width": "n_features"},
    "bspline": {"width": "n_knots"},
}


#: Below so many training rows, the automatic settings are more careful.
FEW_TO_LEARN_FROM = 2000
#: Rows times steps of a learner's training up to which a first fit by NumPy takes half as long as one by XLA, which has
#: to compile its programs; fewer where the outputs are coupled (several classes).
SHORT, SHORT_IF_COUPLED = 150_000, 30_000
#: With at least twice as many outputs of squared error, learners are trained on so many combinations of them.
SKETCH = 32


def plain(value: Any) -> Any:
    """Return NumPy's numbers, as grids of parameters hold them, as Python's."""
    return value.item() if isinstance(value, np.generic) else value


class Settings(BaseEstimator):
    """Constructor of the estimators, and the core's settings made from it."""

    _is_classifier = False

    def __init__(
        self,
        *,
        n_estimators: int = 300,
        learning_rate: Any = "auto",
        loss: Any = None,
        featurizer: Any = "mlp",
        width: int | None = None,
        depth: int | None = None,
        activation: Any = None,
        method: str = "vp",
        optimizer: Any = "adam",
        step_size: float | None = None,
        max_steps: Any = "auto",
        tol: float | None = None,
        batch_size: Any = "auto",
        encoding: str = "auto",
        inherit: Any = "auto",
        max_features: Any = "auto",
        candidates: int = 1,
        reg_lambda: float = 1e-4,
        reg_theta: float = 0.0,
        rho_accept: float = 0.0,
        rho_small: float = 0.1,
        gamma_up: float = 4.0,
        gamma_down: float = 1.0,
        early_stopping_rounds: Any = "auto",
        validation_fraction: float = 0.15,
        eval_metric: Any = None,
        warm_start: bool = False,
        callbacks: list | None = None,
        random_state: Any = 0,
        dtype: str = "float32",
        engine: str = "auto",
        verbose: int = 0,
    ):
        self.n_estimators = n_estimators
        self.learning_rate = learning_rate
        self.loss = loss
        self.featurizer = featurizer
        self.width = width
        self.depth = depth
        self.activation = activation
        self.method = method
        self.optimizer = optimizer
        self.step_size = step_size
        self.max_steps = max_steps
        self.tol = tol
        self.batch_size = batch_size
        self.encoding = encoding
        self.inherit = inherit
        self.max_features = max_features
        self.candidates = candidates
        self.reg_lambda = reg_lambda
        self.reg_theta = reg_theta
        self.rho_accept = rho_accept
        self.rho_small = rho_small
        self.gamma_up = gamma_up
        self.gamma_down = gamma_down
        self.early_stopping_rounds = early_stopping_rounds
        self.validation_fraction = validation_fraction
        self.eval_metric = eval_metric
        self.warm_start = warm_start
        self.callbacks = callbacks
        self.random_state = random_state
        self.dtype = dtype
        self.engine = engine
        self.verbose = verbose

    def _check_settings(self) -> Any:
        if isinstance(self.n_estimators, bool) or not isinstance(self.n_estimators, int | np.integer):
            raise ValueError(f"n_estimators must be a whole number of at least 1, got {self.n_estimators!r}")
        if self.n_estimators < 1:
            raise ValueError(f"n_estimators must be a whole number of at least 1, got {self.n_estimators!r}")
        if self.warm_start and hasattr(self, "boosted_") and self.n_estimators < self.n_iter_:
            raise ValueError(
                f"n_estimators={self.n_estimators} must be at least the {self.n_iter_} stages already fitted when "
                "warm_start=True"
            )
        for name in ("reg_lambda", "reg_theta", "rho_accept", "rho_small", "gamma_up", "gamma_down"):
            if not is_number(getattr(self, name)):
                raise ValueError(f"{name} must be a number, got {getattr(self, name)!r}")
        for name in ("step_size", "tol"):
            if getattr(self, name) is not None and not is_number(getattr(self, name)):
                raise ValueError(f"{name} must be a number or None, got {getattr(self, name)!r}")
        if not isinstance(self.warm_start, bool | np.bool_):
            raise ValueError(f"warm_start must be True or False, got {self.warm_start!r}")
        if not isinstance(self.verbose, int | np.integer) or self.verbose < 0:  # True is 1
            raise ValueError(f"verbose must be 0 or 1, got {self.verbose!r}")
        if self.random_state is True or self.random_state is False:
            raise ValueError(f"random_state must be a whole number, a RandomState or None, got {self.random_state!r}")
        check_dtype(self.dtype)
        if self.learning_rate != "auto" and not (is_number(self.learning_rate) and 0 < self.learning_rate <= 1):
            raise ValueError(f"learning_rate must be 'auto' or in (0, 1], got {self.learning_rate!r}")
        if not is_number(self.validation_fraction) or not 0 < self.validation_fraction < 1:
            raise ValueError(f"validation_fraction must be in (0, 1), got {self.validation_fraction!r}")
        rounds = self.early_stopping_rounds
        whole = isinstance(rounds, int | np.integer) and not isinstance(rounds, bool)
        if not (rounds is None or (isinstance(rounds, str) and rounds == "auto") or (whole and rounds >= 1)):
            raise ValueError(f"early_stopping_rounds must be a number of at least 1, 'auto' or None, got {rounds!r}")
        check_callbacks(self.callbacks)
        if self.engine != "auto" and self.engine not in ENGINES:
            raise ValueError(f"engine must be 'auto' or one of {', '.join(map(repr, ENGINES))}, got {self.engine!r}")
        check_choices(self.encoding, self.inherit, self.max_features)
        self._training(1), self._trust_region(self._rate(1)), self._factory(1)
        score_function(self.eval_metric, self._is_classifier)
        return self._named_loss()

    def _training(self, n: int, inherit: float = 0.0, n_outputs: int = 1) -> Training:
        batch = (None if n <= 8192 else 4096) if self.batch_size == "auto" else plain(self.batch_size)
        # longer training of the learners overfits small tables
        steps = (30 if n < FEW_TO_LEARN_FROM else 50) if self.max_steps == "auto" else plain(self.max_steps)
        return Training(
            method=self.method,
            max_steps=steps,
            tol=plain(self.tol),
            optimizer=self.optimizer,
            step_size=plain(self.step_size),
            batch_size=batch,
            reg_theta=plain(self.reg_theta),
            candidates=plain(self.candidates),
            inherit=inherit,
            sketch=SKETCH if self.method == "vp" and n_outputs >= 2 * SKETCH else None,
        )

    def _engine(self, shape: tuple[int, ...], coupled: bool = False) -> str:
        """Return who carries out the programs: NumPy where training is so short that compilation would take longer."""
        if self.engine != "auto":
            return self.engine
        work, limit = shape[0] * self._training(shape[0]).max_steps, SHORT_IF_COUPLED if coupled else SHORT
        return "numpy" if len(shape) == 2 and work <= limit else "xla"

    def _rate(self, n: int) -> float:
        """Return the boosting rate; small tables can afford more and smaller steps."""
        return (0.05 if n < FEW_TO_LEARN_FROM else 0.1) if self.learning_rate == "auto" else float(self.learning_rate)

    def _trust_region(self, rate: float) -> TrustRegion:
        return TrustRegion(
            reg_lambda=plain(self.reg_lambda),
            rho_accept=plain(self.rho_accept),
            rho_small=plain(self.rho_small),
            gamma_up=plain(self.gamma_up),
            gamma_down=plain(self.gamma_down),
            rate=rate,
            lambda_low=min(plain(self.reg_lambda), 1e-12),
        )

    def _factory(self, n: int) -> Callable:
        """Return the featurizer factory; a named one gets width, depth and activation where it takes them."""
        given = {"width": self.width, "depth": self.depth, "activation": self.activation}
        given = {name: plain(value) for name, value in given.items() if value is not None}
        if not isinstance(self.featurizer, str):
            if not callable(self.featurizer):
                raise TypeError(f"featurizer must be a name or a factory, got {type(self.featurizer).__name__}")
            if given:
                raise ValueError(f"{', '.join(given)} go with a named featurizer; give a factory its own options")
            return self.featurizer
        if self.featurizer not in FEATURIZERS:
            hint = did_you_mean(self.featurizer, FEATURIZERS)
            known = sorted(FEATURIZERS)
            raise ValueError(f"featurizer must be one of {known} or a factory, got {self.featurizer!r}{hint}")
        takes = OPTIONS[self.featurizer]
        for name in given:
            if name not in takes:
                raise ValueError(f"{name} does not apply to featurizer={self.featurizer!r}; leave it None")
        if "width" in takes:
            given.setdefault("width", 16 if n < 10_000 else 32)
        return partial(FEATURIZERS[self.featurizer], **{takes[name]: value for name, value in given.items()})

    def _learner_factory(self, n: int, profile: Profile, sources: np.ndarray) -> Callable:
        """Return the factory of a profile's learners; ``sources`` says which input each encoded column belongs to."""
        factory = self._factory(n)
        if profile.max_features is None:
            return factory
        groups = tuple(np.unique(sources, return_inverse=True)[1].tolist())
        # an array, not a number: profiles that differ in it share their compiled programs
        fraction = jax.device_put(np.float32(profile.max_features))
        return partial(featurizers.SomeColumns, factory=factory, fraction=fraction, groups=groups)
