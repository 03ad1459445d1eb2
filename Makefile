# Everything a newcomer or a build machine runs. `make check` and `make test` are what .ci/run runs.

PYTHON := .venv/bin/python
TESTS ?= tests
BENCH ?= engine_catchup
# Folders that hold Python once somebody has written it.
CODE := worker operator tests $(patsubst %/,%,$(sort $(dir $(wildcard benchmarks/*.py examples/*.py examples/*/*.py scripts/*.py))))

.DEFAULT_GOAL := help
.PHONY: help setup fmt lint types imports architecture links docs reference check test soak demo bench constraints clean

help: ## print this list
	@sh scripts/list-targets Makefile

setup: ## make .venv with everything that development needs
	@sh scripts/make-environment .venv dev,demo,docs,operator,fast

fmt: setup ## format the code and fix what can be fixed
	$(PYTHON) -m ruff format .
	$(PYTHON) -m ruff check --fix .

lint: setup ## check format and lint
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m ruff check .

types: setup ## check types
	$(PYTHON) -m mypy $(CODE)

imports: setup ## check who imports whom
	PYTHONPATH=worker:operator .venv/bin/lint-imports --no-logo

architecture: setup ## check the rules of the house
	$(PYTHON) -m pytest -q tests/architecture

check: lint types imports architecture links ## all of these

links: setup ## check the pages: every link and anchor, and that what is generated is up to date
	@$(PYTHON) scripts/command_reference.py --check
	@.venv/bin/zensical build --strict

docs: reference ## build the pages into build/site
	@.venv/bin/zensical build --strict
	@echo "open build/site/index.html; with search: python3 -m http.server --directory build/site"

reference: setup ## write docs/reference/commands.md from the command line
	@$(PYTHON) scripts/command_reference.py

test: setup ## run the tests; as root on Debian it first installs what they need
	@sh scripts/install-debian
	$(PYTHON) -m pytest $(TESTS)

soak: setup ## run the long, heavy scenarios at full size
	@sh scripts/install-debian
	$(PYTHON) -m pytest --soak --scale 1.0 tests/scenarios $(wildcard tests/soak)

demo: ## see Headrace work, in an environment of its own
	@sh scripts/make-environment .venv-demo demo
	@.venv-demo/bin/python -m headrace demo

bench: setup ## measure; BENCH names one of benchmarks/
	$(PYTHON) -m benchmarks.$(BENCH)

constraints: setup ## write requirements/constraints.txt from .venv
	@sh scripts/write-constraints

clean: ## remove environments and what tools leave behind
	rm -rf .venv .venv-demo build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
