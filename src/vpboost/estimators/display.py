"""What notebooks show of an estimator: scikit-learn's diagram, with a line and a table of facts about the fit."""

from html import escape
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np

from .portfolio import Profile


class Displayed:
    """Facts about the fit in scikit-learn's HTML display, alone and as a step of a pipeline."""

    def _sk_visual_block_(self) -> Any:
        """Return what scikit-learn draws: one box, with the facts in short below its name.

        Only the attributes of the block matter, which have been the same in all versions that there are; the class is
        private, and has moved.
        """
        block = SimpleNamespace(kind="single", estimators=self, names=type(self).__name__, name_details=str(self))
        block.name_caption, block.doc_link_label, block.dash_wrapped = caption(self), None, True
        return block

    def _get_fitted_attr_html(self, doc_link: str = "") -> "Facts":
        """Return the table of facts, in place of one of all fitted attributes: some take seconds to compute."""
        return Facts(facts_of(self) if hasattr(self, "boosted_") else {})


class Facts(dict):
    """Facts by name, which write themselves as a table."""

    def _repr_html_inner(self) -> str:
        rows = "".join(f"<tr><td>{escape(name)}</td><td>{escape(value)}</td></tr>" for name, value in self.items())
        return (
            '<div class="estimator-table"><details><summary>Fit</summary>'
            f'<table class="parameters-table"><tbody>{rows}</tbody></table></details></div>'
        )


def caption(model: Any) -> str | None:
    """Return the facts in one line; None before the fit."""
    if not hasattr(model, "boosted_"):
        return None
    facts = facts_of(model)
    return ", ".join([facts["stages"], facts["size"], *([f"score {facts['score']}"] if "score" in facts else [])])


def facts_of(model: Any) -> dict[str, str]:
    """Return what there is to say about a fit at a glance, without computing anything that takes time."""
    score, validated = float(model.best_score_), bool(model.evals_result_["validation"])
    metric = getattr(model.eval_metric, "__name__", model.eval_metric) or "loss"
    kind = "classes" if hasattr(model, "classes_") else "outputs"
    names = getattr(model, "classes_", model.target_names_)
    n_outputs = len(model.ensemble_.constant) // model.loss_.n_parameters if names is None else len(names)
    numbers = [leaf for leaf in jax.tree.leaves(model.ensemble_) if hasattr(leaf, "nbytes")]
    n_bytes, seconds = sum(leaf.nbytes for leaf in numbers), float(np.sum(model.history_["seconds"]))
    return {
        "stages": f"{model.best_iteration_} of {model.n_iter_} stages kept",
        "chains": f"{model.n_chains_}",
        "profile": described(model.profile_),
        "score": f"{score:.4g} ({metric}, {'validation' if validated else 'training'} data)",
        kind: f"{n_outputs}" if names is None else f"{n_outputs} ({listed(names)})",
        "columns": f"{model.n_features_in_}",
        "size": f"{sum(leaf.size for leaf in numbers):,} numbers, {n_bytes / 1024:,.0f} KiB",
        "time": f"{seconds:.1f} s for the stages of the first chain",
        "ended": model.boosted_.status,
    }


def listed(names: Any) -> str:
    """Return some names, shortened: they may be anything that a table's columns or labels are."""
    shown = [str(name)[:30] for name in names[:5]]
    return ", ".join(shown) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def described(profile: Profile) -> str:
    """Return a profile in short."""
    return ", ".join(f"{name} {value}" for name, value in profile._asdict().items() if value is not None)
