"""Fits and predictions on a Dask cluster. Needs Dask: ``pip install 'vpboost[dask]'``.

The rows stay with the workers. Each worker starts one process of JAX's as a child, hands its rows over, and ends it
whatever happens; the processes train one model together (see :mod:`vpboost.distributed`). Callbacks, progress and
checkpoints are the client's.

>>> import dask.array as da
>>> from dask.distributed import Client
>>> from vpboost.dask import VPBoostRegressor
>>> client = Client(n_workers=2, threads_per_worker=1)  # doctest: +SKIP
>>> X = da.random.uniform(-1, 1, size=(100_000, 10), chunks=(10_000, 10))
>>> model = VPBoostRegressor(n_estimators=50).fit(X, X[:, 0] * X[:, 1])  # doctest: +SKIP
>>> model.predict(X)  # lazy  # doctest: +SKIP
dask.array<..., shape=(100000,), dtype=float64, chunksize=(10000,), chunktype=numpy.ndarray>
>>> model.to_local().save_model("model.vpboost")  # a plain estimator  # doctest: +SKIP
"""

import importlib.util

import lazy_loader

if any(importlib.util.find_spec(name) is None for name in ("dask", "distributed")):
    raise ImportError("vpboost.dask needs dask and distributed: pip install 'vpboost[dask]'")

# Imported when first asked for: workers do not need JAX, nor do the processes that they start need Dask.
__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__, submod_attrs={"estimators": ["VPBoostClassifier", "VPBoostRegressor"], "errors": ["WorkerError"]}
)
