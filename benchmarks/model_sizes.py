"""How large is a saved model? VPBoost and its peers, default settings, the splits of ``benchmarks/tables.py``, seed 0.

    VPBOOST_DATA=path/to/data python benchmarks/model_sizes.py

Each library writes the file that it writes by default: ``save_model`` of VPBoost (with and without the training rows
from which it tells ignorance), of CatBoost (.cbm), XGBoost (.ubj) and LightGBM (text, one file for each output).
Results: ``benchmarks/results/model_sizes.json``; CatBoost takes minutes on CDR and is left out there.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from tables import MODELS, SLOW, data_folder, evaluate, load

RESULTS = Path(__file__).parent / "results" / "model_sizes.json"
TABLES = ("uci_kin8nm", "evans_airfoil", "mtr_enb", "cdr", "uci_wine_red", "uci_power", "tab_california")
LIBRARIES = ("vpboost", "catboost", "lightgbm", "xgboost")


def bytes_of(label: str, model: Any, folder: Path) -> dict[str, float]:
    """Return the size of each file that a model is saved to."""
    if label == "vpboost":
        model.save_model(folder / "whole")
        model.save_model(folder / "without", training_rows=False)
        return {"bytes": (folder / "whole").stat().st_size, "without_rows": (folder / "without").stat().st_size}
    if label == "lightgbm":
        texts = [one.booster_.model_to_string() for one in getattr(model, "models", [model])]
        return {"bytes": sum(len(text.encode()) for text in texts)}
    path = folder / ("model.ubj" if label == "xgboost" else "model.cbm")
    model.save_model(str(path))
    return {"bytes": path.stat().st_size}


def main() -> None:
    parser = argparse.ArgumentParser(description="Sizes of saved models, default settings.")
    parser.add_argument("--only", nargs="+", default=list(TABLES), choices=TABLES)
    options = parser.parse_args()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in options.only:
        split = load(name, data_folder(), seed=0)
        for label in LIBRARIES:
            if label in SLOW.get(name, ()) or label in results.get(name, {}):
                continue
            model = MODELS[label](split.kind, split.parts, 0)
            with tempfile.TemporaryDirectory() as folder:
                found = bytes_of(label, model, Path(folder))
            found["r2"] = round(evaluate(split.kind, model, *split.parts["test"])["r2"], 6)
            results.setdefault(name, {})[label] = found
            print(name, label, found, flush=True)
            RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
