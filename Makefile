# Everything here bootstraps its own virtual environment: a machine with Python 3.11 or newer, pip and make is enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
READY_DOCS := $(VENV)/.ready-docs

.PHONY: demo test test-slow test-long test-lowest test-all coverage lint types docs linkcheck benchmark \
	benchmark-versions performance experiments mutation release-check clean

## Train VPBoost on the paper's three 2D tasks, print a table and write demo.png.
demo: $(READY)
	$(BIN)/vpboost demo

## Run the tests, doctests included.
test: $(READY)
	$(BIN)/python -m pytest -n auto --dist loadscope -m "not slow"

## The tests that take long: kills, threads, whole processes (which workers wait for), real data, experiments.
test-slow: $(READY)
	$(BIN)/python -m pytest -n 3 -m "slow and not long"

## The few that take longest; continuous integration has no time for them.
test-long: $(READY)
	$(BIN)/python -m pytest -n auto -m long

test-all: test test-slow test-long

## The tests with the lowest versions of all dependencies, in an environment of their own.
test-lowest:
	PYTHON=$(PYTHON) .ci/lowest

## Lines and branches that the tests reach; takes as long as all tests, and half as long again.
coverage: $(READY)
	$(BIN)/python -m pytest -n auto --dist loadscope -m "not long" --cov --cov-report=term:skip-covered
	$(BIN)/coverage json -q -o - | $(BIN)/python .ci/coverage-totals

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell
	$(BIN)/lint-imports

types: $(READY)
	$(BIN)/mypy

## The documentation site, docs/_build/html/index.html: runs the examples; a warning or a dead link is an error.
docs: $(READY_DOCS)
	$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/html
	$(BIN)/python docs/check_links.py docs/_build/html

## Whether links to other sites answer; needs a network.
linkcheck: $(READY_DOCS)
	$(BIN)/sphinx-build -q -b linkcheck docs docs/_build/linkcheck

## The numbers quoted in docs/benchmarks.md.
benchmark: $(READY)
	$(BIN)/python benchmarks/toy_tasks.py
	$(BIN)/python benchmarks/output_scaling.py

## A few short timings, kept for every version and compared with those of the last.
benchmark-versions: $(READY)
	$(BIN)/python benchmarks/versions.py

## Speed beside peers, five minutes; the numbers of docs/performance.md.
performance: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[benchmarks,plots]'
	$(BIN)/python benchmarks/performance.py

## The paper's experiments in a short version, to see that everything runs; docs/results.md has the long ones.
experiments: $(READY)
	$(BIN)/python -m experiments --quick

## Changes to the code that no test notices: docs/mutation.md. Hours; FILES="src/vpboost/core/reduced.py" takes some.
mutation: $(READY)
	$(BIN)/python tests/mutate.py $(FILES)

## Build wheel and source distribution, check them, use them in fresh environments. TAG=v1.2.3 insists on that version.
release-check:
	PYTHON=$(PYTHON) TAG=$(TAG) .ci/release-check

$(READY): pyproject.toml constraints.txt src/vpboost/_version.py hatch_build.py $(wildcard src/vpboost/native/*.[ch])
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

$(READY_DOCS): $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	touch $@

clean:
	rm -rf $(VENV) docs/_build docs/auto_examples docs/api/generated dist quick-results demo.png \
		.pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage
