"""VPBoost: second-order gradient boosting with smooth separable learners and variable projection."""

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

from ._version import __version__

if TYPE_CHECKING:
    from .boosting import Boosted, Record, Stage, boost
    from .compilation import cache_compilation
    from .corrective import refit
    from .ensemble import Ensemble
    from .estimators import VPBoostClassifier, VPBoostRegressor
    from .featurizers import MLP, RBF, BSpline, ConvNet, Fourier, ResNet
    from .files.container import ModelFileError
    from .files.model import load_model
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
    from .trust_region import TrustRegion
    from .weak_learner import Training

#: Where the public names live. Each is imported when first asked for: JAX and scikit-learn take seconds to import.
_HOMES = {
    "boosting": ("Boosted", "Record", "Stage", "boost"),
    "compilation": ("cache_compilation",),
    "corrective": ("refit",),
    "ensemble": ("Ensemble",),
    "estimators": ("VPBoostClassifier", "VPBoostRegressor"),
    "featurizers": ("MLP", "RBF", "BSpline", "ConvNet", "Fourier", "ResNet"),
    "files.container": ("ModelFileError",),
    "files.model": ("load_model",),
    "losses": (
        *("BinaryCrossEntropy", "CustomLoss", "Gamma", "Loss", "MulticlassCrossEntropy", "Poisson", "PseudoHuber"),
        *("Quantile", "SquaredError", "Tweedie"),
    ),
    "trust_region": ("TrustRegion",),
    "weak_learner": ("Training",),
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
