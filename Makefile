# Each target starts from nothing and is safe to repeat. `make help` lists them.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
KAFKA ?=
AT_MOST ?= 20
export KAFKA

.PHONY: help try demo test quick mutate deep lint bench image lock clean

help: ## what can be made
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-7s %s\n", $$1, $$2}'

$(VENV)/ready: requirements/dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Kordon needs Python 3.11 or newer: install python3 (Debian: apt install python3 python3-venv)" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --require-hashes -r requirements/dev.txt
	$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

try: $(VENV)/ready ## a broker, two Kordons and clients at work: grow and shrink a topic and kill a proxy by hand (a minute)
	@$(BIN)/python -m kordon.testing.pages.try_it

demo: $(VENV)/ready ## real clients on a real broker, direct and through Kordon, a topic that grows and shrinks, and Spark's audit of it (about 3 minutes)
	$(BIN)/python -m kordon.testing.demo

test: $(VENV)/ready ## every test, with real brokers (KAFKA=4.4, 3.9 or 2.4 for others); fails if it takes more than 20 minutes (AT_MOST=)
	$(BIN)/python -m kordon.testing.lanes --at-most $(AT_MOST) $(PYTEST_ARGS)

quick: $(VENV)/ready ## the tests that need no broker, Spark, Java or browser, and are not marked slow (two minutes on two cores)
	$(BIN)/python -m kordon.testing.lanes --quick $(PYTEST_ARGS)

mutate: $(VENV)/ready ## Kordon broken in one line at a time: does the test notice that the list names? goes on where it was stopped (four minutes, no broker)
	$(BIN)/python -m kordon.testing.mutations $(MUTATE_ARGS)

deep: $(VENV)/ready ## the long profiles: a hundred thousand clusters in virtual time, deep tests; goes on where it was stopped (a night)
	$(BIN)/python -m kordon.testing.deep $(DEEP_ARGS)

lint: $(VENV)/ready ## ruff, mypy, pyright, import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	cd src && ../$(BIN)/mypy --config-file ../pyproject.toml
	$(BIN)/pyright
	$(BIN)/lint-imports

bench: $(VENV)/ready ## direct, a bare relay and Kordon in turn; writes BENCHMARKS.md (BENCH_ARGS=--help)
	$(BIN)/python -m kordon.bench $(BENCH_ARGS)

image: ## the container image, with docker or buildah
	deploy/build-image

lock: ## write the locks in requirements/ and deploy/jars.sha256 anew (needs uv and Maven)
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header --extra proxy pyproject.toml -o requirements/run.txt
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header --extra audit pyproject.toml -o requirements/audit.txt
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header --extra dev --extra audit pyproject.toml -o requirements/dev.txt
	deploy/lock-jars

clean: ## removes what the other targets made
	rm -rf $(VENV) .cache build dist bench-results .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} + ; rm -rf src/*.egg-info
