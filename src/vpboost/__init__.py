"""VPBoost: second-order gradient boosting with smooth separable learners and variable projection."""

import lazy_loader

from ._version import __version__ as __version__

# The public names are listed in __init__.pyi. Each is imported when first asked for: JAX and scikit-learn take seconds.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
