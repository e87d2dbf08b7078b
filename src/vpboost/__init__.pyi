"""The public names, and where each of them lives."""

from . import callbacks, datasets, export, featurizers, losses, plotting, predictor
from ._version import __version__
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
    "callbacks",
    "datasets",
    "export",
    "featurizers",
    "load_model",
    "losses",
    "plotting",
    "predictor",
    "refit",
]
