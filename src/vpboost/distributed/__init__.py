"""One model from rows that several processes hold, on one machine or on many.

Every process of JAX's (see :func:`initialize`) calls :func:`fit` with its own rows, and all of them get the same model:

.. code-block:: python

    from vpboost import VPBoostRegressor, distributed

    distributed.initialize("10.0.0.1:9911", num_processes=4, process_id=rank)
    model = distributed.fit(VPBoostRegressor(), my_X, my_y)

Only small things travel: sums over rows of a few hundred numbers at every step, a sample of the rows once. The bits of
the model are the same for 1, 2, 4, 8 and 16 processes if each holds the rows that :func:`rows_of` gives to it.
"""

from ..numerics.processes import ProcessError
from .fitting import fit
from .starting import initialize, rows_of

__all__ = ["ProcessError", "fit", "initialize", "rows_of"]
