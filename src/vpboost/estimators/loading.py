"""Load models from files."""

from typing import Any

from ..files.atomic import file_name
from ..files.container import brief, read_file
from ..losses import Loss
from .classifier import VPBoostClassifier
from .regressor import VPBoostRegressor
from .restoring import model_from

#: The estimators that a file may hold.
ESTIMATORS: dict[str, type] = {"VPBoostRegressor": VPBoostRegressor, "VPBoostClassifier": VPBoostClassifier}


def load_model(path: Any, *, featurizer: Any = None, loss: Any = None) -> Any:
    """Return the estimator that ``save_model`` wrote; it predicts the same bits.

    Parameters
    ----------
    path : str or Path
        The file.
    featurizer, loss : optional
        The model's own featurizer factory and loss, where it has such (as given to its constructor).

    Raises
    ------
    ModelFileError
        If the file is damaged, of another format, or not sound in any other way; the message says what is wrong.

    Examples
    --------
    >>> import numpy as np, tempfile, vpboost
    >>> X = np.random.default_rng(0).uniform(size=(100, 2))
    >>> model = vpboost.VPBoostRegressor(n_estimators=3).fit(X, X[:, 0] * X[:, 1])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model.save_model(f"{folder}/model.vpboost")
    ...     again = vpboost.load_model(f"{folder}/model.vpboost")
    >>> np.array_equal(again.predict(X), model.predict(X))
    True
    """
    if featurizer is not None and not callable(featurizer):
        raise TypeError(f"featurizer must be the factory that the model was fitted with, got {brief(featurizer)}")
    if loss is not None and not (callable(loss) or isinstance(loss, Loss)):
        raise TypeError(f"loss must be the loss that the model was fitted with, got {brief(loss)}")
    data = read_file(path)
    return from_bytes(data, file_name(path), featurizer, loss)


def from_bytes(data: bytes, name: str, featurizer: Any = None, loss: Any = None) -> Any:
    """Return the estimator in the bytes of a file that errors call ``name``."""
    return model_from(data, name, ESTIMATORS, featurizer=featurizer, loss=loss)
