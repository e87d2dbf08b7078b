"""The parameters of the estimators: their names, defaults and checks."""

import inspect
import math
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import BaseEstimator

from ..callbacks import check_callbacks
from ..checks import check_between, check_count, is_number, is_whole
from ..core.arguments import check_dtype, check_engine
from ..core.trees import Trees
from ..engine import ENGINES
from ..numerics.devices import mesh_of
from .metrics import score_function
from .plan import factory_of, rate_of, training_of, trust_region_of
from .portfolio import Profile, check_choices, fallback, is_auto

#: What n_estimators="auto" means: so many stages at the most, and so many over the boosting rate without validation
#: data, after which hardly anything is left of the first residuals that learners can explain.
MOST_STAGES, ALL_OF_IT = 1000, 15


class Settings(BaseEstimator):
    """The constructor of the estimators."""

    _is_classifier = False

    def __init__(
        self,
        *,
        n_estimators: Any = "auto",
        learning_rate: Any = "auto",
        loss: Any = None,
        featurizer: Any = "mlp",
        width: int | None = None,
        depth: int | None = None,
        activation: Any = None,
        weight_scale: Any = "auto",
        method: str = "vp",
        optimizer: Any = "adam",
        step_size: float | None = None,
        max_steps: Any = "auto",
        tol: float | None = None,
        batch_size: Any = "auto",
        encoding: str = "auto",
        inherit: Any = "auto",
        max_features: Any = "auto",
        tree_depth: Any = "auto",
        candidates: int = 1,
        n_chains: Any = "auto",
        refit_full: Any = "auto",
        relevance: Any = "auto",
        reg_lambda: Any = "auto",
        reg_theta: Any = "auto",
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
        dtype: str = "auto",
        engine: str = "auto",
        devices: Any = None,
        verbose: int = 0,
    ):
        for name, value in locals().items():
            if name not in ("self", "__class__"):
                setattr(self, name, value)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def _check_settings(self) -> Any:
        """Raise an error that names the parameter if one makes no sense; return the loss where it is known already."""
        if not is_auto(self.n_estimators):
            check_count("n_estimators", self.n_estimators)
        if self.warm_start and hasattr(self, "boosted_") and self._most_stages() < self.n_iter_:
            raise ValueError(
                f"n_estimators={self.n_estimators} must be at least the {self.n_iter_} stages already fitted when "
                "warm_start=True"
            )
        for name in ("rho_accept", "rho_small", "gamma_up", "gamma_down"):
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
        if not is_auto(self.dtype):
            check_dtype(self.dtype)
        check_between("validation_fraction", self.validation_fraction, 0, 1, "in (0, 1)")
        rounds = self.early_stopping_rounds
        if not (rounds is None or (isinstance(rounds, str) and rounds == "auto") or (is_whole(rounds) and rounds >= 1)):
            raise ValueError(f"early_stopping_rounds must be a number of at least 1, 'auto' or None, got {rounds!r}")
        check_callbacks(self.callbacks)
        if self.engine != "auto" and self.engine not in ENGINES:
            raise ValueError(f"engine must be 'auto' or one of {', '.join(map(repr, ENGINES))}, got {self.engine!r}")
        check_engine("xla" if self.engine == "auto" else self.engine, mesh_of(self.devices))
        check_choices(**{name: getattr(self, name) for name in set(Profile._fields) - {"rounds"}})
        profile = fallback(self)
        if profile.tree_depth:
            Trees(int(profile.tree_depth)).check(training_of(self, profile, 1))
            if self.devices is not None:
                raise ValueError(f"tree_depth={self.tree_depth!r} is for one device; leave devices=None")
        training_of(self, profile, 1), trust_region_of(self, profile, rate_of(profile, 1)), factory_of(self, profile, 1)
        score_function(self.eval_metric, self._is_classifier)
        loss = self._named_loss()
        if isinstance(getattr(loss, "level", None), tuple) and isinstance(self.eval_metric, str):
            raise ValueError(f"eval_metric={self.eval_metric!r} is of one prediction for each target, not of quantiles")
        return loss

    def _most_stages(self, rate: float | None = None) -> int:
        """Return the number of stages at the most, at this boosting rate where no validation data tell when to end."""
        if is_auto(self.n_estimators):
            return MOST_STAGES if rate is None else math.ceil(min(ALL_OF_IT / rate, MOST_STAGES))
        return int(self.n_estimators)


def with_parameters(kind: type, **defaults: Any) -> inspect.Signature:
    """Return the signature of a class's constructor with more parameters."""
    known = inspect.signature(kind.__init__)  # type: ignore[misc]
    more = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=value) for name, value in defaults.items()]
    return known.replace(parameters=[*known.parameters.values(), *more])
