"""Tune a method on validation data, rerun its best configuration over seeds; what is done is never done again.

All trials see the same data and initialisation, so the best of a hundred is often a lucky one. The leader must
therefore hold its place on a few other data and initialisations: it runs on one after the other, the mean of its
validation losses counts, and if another configuration leads by that, it is that one's turn.

Every trial and every seed is written to ``<results>/<problem>/<method>.json`` as soon as it ends. A run that was
stopped goes on from there and proposes the very trials that it would have proposed without the stop, for the sampler is
seeded by the number of the trial.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import optuna

from .data import Parts
from .problems import Problem
from .protocol import Config, Method, thinned

RESULTS = Path(__file__).parent / "results"
#: The data and the initialisation that are tuned on.
TUNING_SEED = 0
#: The first of the seeds that a leader must hold its place on, and the most runs for it, by seed.
FINAL_SEED, MOST_FINALS = 1001, 10
#: The first of the seeds that are reported: none that was tuned on.
FIRST_SEED = 1
#: How many of them every method is run on; some have more.
SEEDS = 10
#: What a trial counts that ended in a loss that is no number.
WORST = 1e12


class Store:
    """The results of one method on one problem, in one file."""

    def __init__(self, results: Path, problem: Problem, method: Method):
        self.path = results / problem.name / f"{method.name}.json"
        empty: dict[str, Any] = {"config": None, "trials": [], "finals": [], "seeds": []}
        head = {"problem": problem.name, "method": method.name, "settings": problem.settings()}
        self.content: dict[str, Any] = head | empty
        if self.path.exists():
            self.content |= json.loads(self.path.read_text())
        if self.content["settings"] != head["settings"]:
            raise ValueError(f"{self.path} is of other settings, {self.content['settings']}: move it away")
        tuned = self.trials[0]["config"].keys() if self.trials else method.space(problem).keys()
        if tuned != method.space(problem).keys():
            raise ValueError(f"{self.path} has trials of other parameters, {', '.join(tuned)}: move it away")

    @property
    def trials(self) -> list[dict[str, Any]]:
        """Trials so far: configuration and validation loss."""
        return self.content["trials"]

    @property
    def seeds(self) -> list[dict[str, Any]]:
        """Runs of the best configuration so far."""
        return self.content["seeds"]

    @property
    def finals(self) -> list[dict[str, Any]]:
        """Runs of leading configurations on other data."""
        return self.content["finals"]

    def losses(self, config: Config) -> list[float]:
        """Return the validation losses of a configuration: its trial's, then those on other data."""
        runs = (run for kind in ("trials", "finals") for run in self.content[kind])
        return [run["loss"] for run in runs if run["config"] == config]

    def leader(self, n_runs: int = 1) -> Config:
        """Return the configuration with the lowest mean validation loss, of those with so many runs or more."""
        configs = [trial["config"] for trial in self.trials if len(self.losses(trial["config"])) >= n_runs]
        return min(configs, key=lambda config: float(np.mean(self.losses(config))))

    def winner(self) -> Config:
        """Return the leader of those configurations that have the most runs."""
        return self.leader(max(len(self.losses(trial["config"])) for trial in self.trials))

    def add(self, kind: str, entry: dict[str, Any]) -> None:
        """Append a trial or a seed, and write the file anew, whole or not at all."""
        self.content[kind].append(entry)
        text = json.dumps(self.content).replace('{"config"', '\n{"config"').replace('{"seed"', '\n{"seed"')
        write_whole(self.path, text + "\n")


def write_whole(path: Path, text: str) -> None:
    """Write a file, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{os.getpid()}.part")
    part.write_text(text)
    part.replace(path)


def rounded(number: float) -> float:
    """Return a number with five digits, so that files stay small."""
    return float(f"{number:.5g}")


def tune(problem: Problem, method: Method, store: Store, n_trials: int, tell: Callable[[str], None]) -> None:
    """Propose configurations and note their validation losses until there are ``n_trials`` of them."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    parts, space = problem.load(TUNING_SEED), dict(method.space(problem))
    for index in range(len(store.trials), n_trials):
        study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=index))
        for done in store.trials:
            study.add_trial(optuna.trial.create_trial(params=done["config"], distributions=space, value=done["loss"]))
        config = {name: shortened(value) for name, value in study.ask(space).params.items()}
        config |= known_config(method, store) if index == 0 or method.keep else {}
        config |= (method.begin or {}) if index == 0 else {}
        loss = validation_loss(problem, method, parts, config, TUNING_SEED)
        store.add("trials", {"config": config, "loss": loss})
        tell(f"{problem.name} {method.title}: trial {index + 1}, best {min(t['loss'] for t in store.trials):.4g}")


def known_config(method: Method, store: Store) -> Config:
    """Return the winner of the method that this one goes on from, if there is one."""
    path = store.path.with_name(f"{method.after}.json")
    return (json.loads(path.read_text())["config"] or {}) if method.after and path.exists() else {}


def confirm_leader(problem: Problem, method: Method, store: Store, tell: Callable[[str], None]) -> None:
    """Run the leading configuration on other data and initialisations until one has led on all of them."""
    while len(store.finals) < MOST_FINALS * problem.finals:
        leader = store.leader()
        n_runs = len(store.losses(leader)) - 1
        if n_runs >= problem.finals:
            break
        seed = FINAL_SEED + n_runs
        loss = validation_loss(problem, method, problem.load(seed), leader, seed)
        store.add("finals", {"config": leader, "seed": seed, "loss": loss})
        tell(f"{problem.name} {method.title}: leader's run {n_runs + 1}, loss {loss:.4g}")


def validation_loss(problem: Problem, method: Method, parts: Parts, config: Config, seed: int) -> float:
    """Return the loss of a configuration on the validation part; :data:`WORST` for predictions that are no numbers."""
    loss = problem.mean_loss(method.fit(problem, parts, config, seed).predict(parts.x_val), parts.y_val)
    return rounded(min(loss, WORST))


def shortened(value: Any) -> Any:
    """Return a parameter with five digits if it is a fraction."""
    return rounded(value) if isinstance(value, float) else value


def rerun(problem: Problem, method: Method, store: Store, n_seeds: int, tell: Callable[[str], None]) -> None:
    """Run the best configuration on the data and the initialisation of each seed."""
    best = store.winner()
    if store.content["config"] != best:
        store.content |= {"config": best, "seeds": []}
    wanted = range(FIRST_SEED, FIRST_SEED + n_seeds)
    store.content["seeds"] = [entry for entry in store.seeds if entry["seed"] in wanted]
    for seed in wanted[len(store.seeds) :]:
        parts = problem.load(seed)
        fitted = method.fit(problem, parts, best, seed)
        test = problem.measure(fitted.predict(parts.x_test), parts.y_test)
        validation = problem.measure(fitted.predict(parts.x_val), parts.y_val)["loss"]
        train = problem.measure(fitted.predict(parts.x_train), parts.y_train)["loss"]
        entry = {"seed": seed, "test": {name: rounded(value) for name, value in test.items()}}
        entry |= {"train_loss": rounded(train), "validation_loss": rounded(validation)}
        entry |= {"seconds": rounded(fitted.seconds), "parameters": int(fitted.parameters)}
        entry["curve"] = [[rounded(value) for value in point] for point in thinned(fitted.curve)]
        store.add("seeds", entry)
        tell(f"{problem.name} {method.title}: seed {seed}, test loss {test['loss']:.4g}")
