"""VPBoost: second-order gradient boosting with smooth separable learners and variable projection."""

from ._version import __version__
from .boosting import Boosted, Record, boost
from .ensemble import Ensemble
from .featurizers import MLP, RBF, BSpline, ConvNet, Fourier, ResNet
from .losses import (
    BinaryCrossEntropy,
    CustomLoss,
    Loss,
    MulticlassCrossEntropy,
    Poisson,
    PseudoHuber,
    SquaredError,
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
    "Loss",
    "MulticlassCrossEntropy",
    "Poisson",
    "PseudoHuber",
    "Record",
    "ResNet",
    "SquaredError",
    "Training",
    "TrustRegion",
    "__version__",
    "boost",
]
