"""Losses ℓ(ŷ, y): value, gradient, curvature with its structure, and best constant.

A loss works on rows with any leading sample axes: predictions are ``(*rows, K)`` for K outputs; targets are whatever
:meth:`Loss.prepare_targets` returns. Means over samples are taken elsewhere (see :mod:`vpboost.numerics.blocks`).
"""

from .base import Loss, newton_constant
from .classification import BinaryCrossEntropy, MulticlassCrossEntropy
from .custom import CustomLoss
from .likelihoods import (
    CustomLikelihood,
    GammaLikelihood,
    GivenLocation,
    Likelihood,
    NegativeBinomialLikelihood,
    NormalLikelihood,
    StudentTLikelihood,
)
from .observed import Observed
from .regression import Gamma, LogLink, Poisson, PseudoHuber, Quantile, SquaredError, Tweedie

__all__ = [
    "BinaryCrossEntropy", "CustomLikelihood", "CustomLoss", "Gamma", "GammaLikelihood", "GivenLocation", "Likelihood",
    "LogLink", "Loss", "MulticlassCrossEntropy", "NegativeBinomialLikelihood", "NormalLikelihood", "Observed",
    "Poisson", "PseudoHuber", "Quantile", "SquaredError", "StudentTLikelihood", "Tweedie", "newton_constant",
]  # fmt: skip
