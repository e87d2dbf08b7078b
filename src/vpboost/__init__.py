"""VPBoost: second-order gradient boosting with smooth separable learners and variable projection."""

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

from ._version import __version__

if TYPE_CHECKING:
    from .core.boosting import boost
    from .core.ensemble import Ensemble
    from .core.records import Boosted, Record, Stage
    from .core.refit import refit
    from .core.trust_region import TrustRegion
    from .core.weak_learner import Training
    from .engine import cache_compilation
    from .estimators import VPBoostClassifier, VPBoostRegressor, load_model
    from .featurizers import MLP, RBF, BSpline, ConvNet, Fourier, ResNet
    from .files.container import ModelFileError
    from .losses import (
        BinaryCrossEntropy,
        CustomLoss,
        Gamma,
        Loss,
        MulticlassCrossEntropy,
        Poisson,
        PseudoHuber,
        Quantile,
        SquaredError,
        Tweedie,
    )

#: Where the public names live. Each is imported when first asked for: JAX and scikit-learn take seconds to import.
_HOMES = {
    "core.boosting": ("boost",),
    "core.ensemble": ("Ensemble",),
    "core.records": ("Boosted", "Record", "Stage"),
    "core.refit": ("refit",),
    "core.trust_region": ("TrustRegion",),
    "core.weak_learner": ("Training",),
    "engine": ("cache_compilation",),
    "estimators": ("VPBoostClassifier", "VPBoostRegressor", "load_model"),
    "featurizers": ("MLP", "RBF", "BSpline", "ConvNet", "Fourier", "ResNet"),
    "files.container": ("ModelFileError",),
    "losses": (
        *("BinaryCrossEntropy", "CustomLoss", "Gamma", "Loss", "MulticlassCrossEntropy", "Poisson", "PseudoHuber"),
        *("Quantile", "SquaredError", "Tweedie"),
    ),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "MLP",
    "RBF",
    "BSpline",
    "BinaryCrossEntropy",
    "Boosted",
    "ConvNet",
    "CustomLoss",
    "Ensemble",
    "Fourier",
    "Gamma",
    "Loss",
    "ModelFileError",
    "MulticlassCrossEntropy",
    "Poisson",
    "PseudoHuber",
    "Quantile",
    "Record",
    "ResNet",
    "SquaredError",
    "Stage",
    "Training",
    "TrustRegion",
    "Tweedie",
    "VPBoostClassifier",
    "VPBoostRegressor",
    "__version__",
    "boost",
    "cache_compilation",
    "load_model",
    "refit",
]


def __getattr__(name: str) -> Any:
    if name in _HOME_OF:
        return getattr(importlib.import_module(f".{_HOME_OF[name]}", __name__), name)
    if not name.startswith("_") and importlib.util.find_spec(f"{__name__}.{name}") is not None:
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
