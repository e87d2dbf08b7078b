"""VPBoost: second-order gradient boosting with smooth separable learners and variable projection."""

from ._version import __version__
from .boosting import Boosted, Record, Stage, boost
from .ensemble import Ensemble
from .estimators import VPBoostClassifier, VPBoostRegressor
from .featurizers import MLP, RBF, BSpline, ConvNet, Fourier, ResNet
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
]
