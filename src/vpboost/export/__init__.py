"""Models for places without JAX: ONNX, and a predictor in plain NumPy.

>>> import numpy as np, tempfile
>>> from vpboost import VPBoostRegressor
>>> from vpboost.export import to_numpy
>>> X = np.random.default_rng(0).uniform(size=(100, 2))
>>> model = VPBoostRegressor(n_estimators=3).fit(X, X[:, 0] * X[:, 1])
>>> with tempfile.TemporaryDirectory() as folder:
...     sorted(path.name for path in to_numpy(model, folder))
['model.vpboost', 'predictor.py']
"""

from .onnx_file import to_onnx
from .plain import to_numpy

__all__ = ["to_numpy", "to_onnx"]
