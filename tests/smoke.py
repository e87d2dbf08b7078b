"""What an installed vpboost must do, told by plain Python: for fresh environments, without pytest.

    python tests/smoke.py minimal    # no extras installed: fits, predicts, saves, loads, and names missing extras
    python tests/smoke.py all        # every extra installed: each of them at work

`make release-check` runs both on the wheel; the release workflow runs the first on three systems.
"""

import importlib.metadata
import importlib.resources
import json
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

#: Seconds that `import vpboost` may take; JAX, which alone takes longer, is imported when it is first needed.
LONGEST_IMPORT = 0.5
IMPORT = """
import sys, time
began = time.perf_counter()
import vpboost
print(time.perf_counter() - began)
assert not {"jax", "sklearn", "scipy"} & set(sys.modules), "imported too early"
"""


def check_import_time() -> str:
    """Import in fresh processes; the best of five counts, for the first ones read from disk."""
    command = [sys.executable, "-c", IMPORT]
    seconds = min(float(subprocess.run(command, check=True, capture_output=True).stdout) for _ in range(5))
    assert seconds < LONGEST_IMPORT, f"import vpboost took {seconds:.2f} s"
    return f"{seconds:.3f} s without JAX"


def check_files() -> str:
    """The wheel holds the marker and the stub of types."""
    package = importlib.resources.files("vpboost")
    for name in ("py.typed", "__init__.pyi"):
        assert (package / name).is_file(), f"{name} is missing"
    import vpboost

    version = importlib.metadata.version("vpboost")
    assert vpboost.__version__ == version
    return f"vpboost {version} with py.typed"


def data() -> Any:
    """Return a small table with two outputs."""
    import numpy as np

    X = np.random.default_rng(0).uniform(-1, 1, (200, 3))
    return X, np.stack([np.sin(3 * X[:, 0]) * X[:, 1], X[:, 2] ** 2], axis=1)


def fitted() -> Any:
    """Return a small model."""
    from vpboost import VPBoostRegressor

    X, y = data()
    return VPBoostRegressor(n_estimators=10, max_steps=10, encoding="plain", n_chains=1).fit(X, y)


def check_round_trip() -> str:
    """Fit, predict, save and load, of both estimators."""
    import numpy as np

    import vpboost

    X, y = data()
    regressor = fitted()
    score = regressor.score(X, y)
    assert score > 0.8, score
    classifier = vpboost.VPBoostClassifier(n_estimators=10, max_steps=10).fit(X, np.where(y[:, 0] > 0, "up", "down"))
    assert classifier.score(X, np.where(y[:, 0] > 0, "up", "down")) > 0.8
    with tempfile.TemporaryDirectory() as folder:
        for model in (regressor, classifier):
            model.save_model(f"{folder}/model.vpboost")
            again = vpboost.load_model(f"{folder}/model.vpboost")
            np.testing.assert_array_equal(again.predict(X), model.predict(X))
    return f"R² {score:.3f}, loaded models predict the same bits"


def command(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run the installed command."""
    found = shutil.which("vpboost", path=sysconfig.get_path("scripts"))
    assert found is not None, "the command vpboost is not installed"
    return subprocess.run([found, *arguments], capture_output=True, text=True)


def check_command() -> str:
    """The command starts."""
    answer = command("--version")
    assert answer.returncode == 0, answer.stderr
    return answer.stdout.strip()


def table_in(folder: str) -> str:
    """Write a CSV file and return its name."""
    X, y = data()
    rows = ["a,b,c,t", *(",".join(map(str, [*x, t])) for x, t in zip(X, y[:, 0], strict=True))]
    Path(folder, "table.csv").write_text("\n".join(rows) + "\n")
    return f"{folder}/table.csv"


def train_command(folder: str) -> None:
    """Train, predict and export by the command."""
    table, model = table_in(folder), f"{folder}/model.vpboost"
    answer = command("train", table, "--target", "t", "-o", model, "--set", "n_estimators=5")
    if answer.returncode:
        raise ImportError(answer.stderr)
    answer = command("predict", model, table, "-o", f"{folder}/predictions.csv")
    assert answer.returncode == 0, answer.stderr


def draw(folder: str) -> None:
    """Draw a picture."""
    from vpboost import plotting

    plotting.plot_training(fitted()).figure.savefig(f"{folder}/training.png")


def to_onnx(folder: str) -> None:
    """Write an ONNX file and run it."""
    from vpboost import export

    X, _ = data()
    model = fitted()
    export.to_onnx(model, f"{folder}/model.onnx")
    import numpy as np
    import onnxruntime

    session = onnxruntime.InferenceSession(f"{folder}/model.onnx", providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    kind = np.float64 if "double" in session.get_inputs()[0].type else np.float32
    found = session.run(None, {name: X.astype(kind)})[0]
    np.testing.assert_allclose(found, model.predict(X), atol=1e-3)  # it computes in single precision


def from_parquet(folder: str) -> None:
    """Learn from a Parquet file."""
    from vpboost import VPBoostRegressor

    path = f"{folder}/table.parquet"
    try:
        import pyarrow
        import pyarrow.parquet

        X, y = data()
        columns = {"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "t": y[:, 0]}
        pyarrow.parquet.write_table(pyarrow.table(columns), path)
    except ImportError:
        Path(path).write_bytes(b"PAR1")
    VPBoostRegressor(n_estimators=2, max_steps=3, encoding="plain").fit(path, "t")


def prune(folder: str) -> None:
    """Report the stages of a fit to Optuna."""
    from vpboost import VPBoostRegressor
    from vpboost.callbacks import OptunaPruning

    try:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        trial: Any = optuna.create_study().ask()
    except ImportError:
        trial = None
    X, y = data()
    VPBoostRegressor(n_estimators=2, max_steps=3, callbacks=[OptunaPruning(trial)]).fit(X, y, X_val=X, y_val=y)


def log(folder: str) -> None:
    """Log a model to MLflow and load it back."""
    import vpboost.mlflow

    X, y = data()
    vpboost.mlflow.save_model(fitted(), f"{folder}/logged")
    assert vpboost.mlflow.load_model(f"{folder}/logged").score(X, y) > 0.8


def on_dask(folder: str) -> None:
    """Fit on the arrays of Dask, in a cluster of one worker."""
    import numpy as np

    import vpboost.dask

    model = vpboost.dask.VPBoostRegressor(n_estimators=2, encoding="plain", inherit=0.8, max_features=1.0)
    import dask.array as da
    from dask.distributed import Client

    rows = np.random.default_rng(0).uniform(size=(200, 2))
    with Client(n_workers=1, threads_per_worker=1, dashboard_address=":0", local_directory=folder):
        model.fit(da.from_array(rows, chunks=(50, 2)), da.from_array(rows[:, 0], chunks=50))
    assert model.to_local().n_iter_ == 2


#: By extra: what needs it.
EXTRAS: dict[str, Callable[[str], None]] = {
    "plots": draw,
    "export": to_onnx,
    "parquet": from_parquet,
    "tuning": prune,
    "cli": train_command,
    "mlflow": log,
    "dask": on_dask,
}


def check_missing(extra: str) -> str:
    """Without its extra, a function says how to get it."""
    with tempfile.TemporaryDirectory() as folder:
        message = import_error(EXTRAS[extra], folder)
    assert message is not None, f"worked without vpboost[{extra}]"
    assert f"vpboost[{extra}]" in message, f"the error does not name vpboost[{extra}]: {message}"
    return message.strip().splitlines()[-1]


def import_error(function: Callable[[str], None], folder: str) -> str | None:
    """Return the message of the ImportError that a function raises, or None."""
    try:
        function(folder)
    except ImportError as error:
        return str(error)
    return None


def check_present(extra: str) -> str:
    """With its extra, it works."""
    with tempfile.TemporaryDirectory() as folder:
        EXTRAS[extra](folder)
    return "works"


def main(mode: str) -> int:
    """Run all checks of a mode."""
    if mode not in ("minimal", "all"):
        raise SystemExit("usage: python tests/smoke.py minimal|all")
    warnings.simplefilter("ignore")
    checks: dict[str, Callable[[], str]] = {
        "files": check_files,
        "import": check_import_time,
        "fit, predict, save, load": check_round_trip,
        "command": check_command,
    }
    check = check_missing if mode == "minimal" else check_present
    checks |= {f"extra {extra}": lambda extra=extra: check(extra) for extra in EXTRAS}
    failed = 0
    for name, run in checks.items():
        try:
            print(f"ok    {name}: {run()}", flush=True)
        except Exception as error:
            failed += 1
            print(f"FAIL  {name}: {type(error).__name__}: {error}", flush=True)
    print(json.dumps({"mode": mode, "failed": failed, "checks": len(checks)}))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else ""))
