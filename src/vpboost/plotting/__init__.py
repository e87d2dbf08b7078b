"""Pictures of fitted estimators, and a report of one page. Needs matplotlib: ``pip install 'vpboost[plots]'``.

Each function takes a fitted estimator and returns the axes it drew on.
"""

try:
    import matplotlib  # noqa: F401
except ImportError as error:
    raise ImportError("plots need matplotlib: pip install 'vpboost[plots]'") from error

from .bands import plot_bands
from .calibration import plot_calibration, plot_interval_widths
from .effects import plot_input_gradients, plot_partial_dependence
from .figures import draw_history, plot_diagnostics, plot_training, plot_trust_region
from .page import report
from .predictions import plot_predictions

__all__ = [
    "draw_history", "plot_bands", "plot_calibration", "plot_diagnostics", "plot_input_gradients",
    "plot_interval_widths", "plot_partial_dependence", "plot_predictions", "plot_training", "plot_trust_region",
    "report",
]  # fmt: skip
