"""What a model file says, in a few lines."""

from typing import Any

import numpy as np

from ..files.container import check_version, read_file, unpack
from .errors import CommandError, printable


def read_model_file(path: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the description and the arrays in a model file, without building the model."""
    content, arrays = unpack(read_file(path), path)
    check_version(content, path, "vpboost model", 1)
    return content, arrays


def summary_of(content: dict[str, Any], arrays: dict[str, np.ndarray]) -> str:
    """Return a summary that can be printed, or raise an error: files may say anything."""
    try:
        return printable(summary(content, arrays))
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise CommandError(f"the file does not describe a model: {error!r}") from error


def summary(content: dict[str, Any], arrays: dict[str, np.ndarray]) -> str:
    """Return what a model file says, in a few lines."""
    weights, best, loss = arrays["weights"], content["best_iteration"], arrays["history.loss"]
    others, first = content.get("others", []), content.get("with_first") is not False
    kept = {
        name: array[: best if first else 0] for name, array in arrays.items() if name.startswith(("weights", "theta."))
    }
    kept |= {name: array for name, array in arrays.items() if name.startswith(("others.weights", "others.theta."))}
    size = sum(array.size for array in kept.values())
    n_learners = sum(len(array) for name, array in kept.items() if name in ("weights", "others.weights"))
    featurizer = content["featurizer"] or {"type": "none"}
    while isinstance(featurizer.get("featurizer"), dict):
        featurizer = featurizer["featurizer"]
    shape = ", ".join(f"{name} {value}" for name, value in featurizer.get("options", {}).items())
    lines = {
        "model": f"{content['kind']}, written by vpboost {content['library']}",
        "inputs": f"{content['n_features_in']}" + brief_list(content["feature_names"]),
        "outputs": f"{weights.shape[2]}" + brief_list(content["classes"] or content["target_names"]),
        "loss": content["loss"]["type"],
        **what_is_known(content, arrays),
        "learners": f"{best} of {len(loss)} stages, {size} numbers: {featurizer['type']}"
        + (f" ({shape})" if shape else ""),
        **({"chains": f"{len(others) + first}, {n_learners} learners in all"} if others else {}),
        "encoding": content["encoder"]["encoding"],
        "training loss": f"{sparkline(loss)} {loss[-1]:.4g}" if len(loss) else "no stages",
    }
    if len(arrays["scores"]):
        lines["validation"] = f"{sparkline(arrays['scores'])} best {float(arrays['best_score']):.4g}"
    return "\n".join(f"{name + ':':<15}{one_line(text)}" for name, text in lines.items())


def what_is_known(content: dict[str, Any], arrays: dict[str, np.ndarray]) -> dict[str, str]:
    """Return what a file says of a model's errors: distribution, rows that tell intervals by, rows of the fit."""
    found = {}
    if "spread" in content:
        options = content["spread"]["likelihood"]["options"]
        numbers = "".join(f", {name} {value:g}" for name, value in options.items())
        found["distribution"] = f"{content['parameters']['distribution']}{numbers}"
    if "conformity.scores" in arrays:
        found["intervals by"] = f"errors of {len(arrays['conformity.scores'])} rows not trained on"
    if "evidence.rows" in arrays:
        found["rows inside"] = f"{len(arrays['evidence.rows'])} of the training table, encoded, with their targets"
    return found


def one_line(text: str) -> str:
    """Return a text, which a file made, as one line of bounded length."""
    text = " ".join(str(text)[:1000].split())
    return text if len(text) <= 300 else f"{text[:297]}..."


def brief_list(names: list | None) -> str:
    """Return a few of the names in brackets."""
    if not names:
        return ""
    return f" ({', '.join(map(str, names[:8]))}{', ...' if len(names) > 8 else ''})"


def sparkline(values: np.ndarray, width: int = 40) -> str:
    """Return a curve of text.

    >>> sparkline(np.array([3.0, 2.0, 1.0]))
    '█▅▁'
    """
    bars = "▁▂▃▄▅▆▇█"
    finite = values[np.isfinite(values)]
    if not len(finite):
        return ""
    chosen = finite[np.unique(np.linspace(0, len(finite) - 1, min(width, len(finite))).astype(int))]
    low, high = chosen.min(), chosen.max()
    heights = (chosen - low) / (high - low) if high > low else np.zeros(len(chosen))
    return "".join(bars[round(float(h) * (len(bars) - 1))] for h in heights)
