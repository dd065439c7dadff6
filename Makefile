# A machine needs Python 3.11 or newer with pip and venv, and make. `make` alone lists what can be done.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
# Tests run in two processes, or in one: `make test WORKERS=0`. One test or folder: `make test ARGS=tests/stores`.
WORKERS ?= 2
ARGS    ?=

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help test check format bench chaos docs serve clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

CHECK_PYTHON = $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
  { echo "umavez needs Python 3.11 or newer, and $(PYTHON) is older or missing; try: make PYTHON=python3.12" >&2; exit 1; }
MAKE_VENV = test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || \
  { echo "$(PYTHON) cannot make a virtualenv; on Debian: apt install python3-venv" >&2; exit 1; }

$(STAMP): pyproject.toml constraints.txt
	@$(CHECK_PYTHON)
	@$(MAKE_VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[all,dev]'
	@touch $@

test: $(STAMP) ## run the tests (WORKERS=0 in one process, ARGS=... for a part of them)
	$(BIN)/python -m pytest -q $(if $(filter-out 0,$(WORKERS)),-n $(WORKERS)) $(ARGS)

check: $(STAMP) ## lint, formatting and types
	$(BIN)/python tools/sync.py --check
	$(BIN)/python tools/pictures.py --check
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP) ## put the sources into shape
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/python tools/sync.py
	$(BIN)/python tools/pictures.py

bench: $(STAMP) ## measure against bare drivers and peers, results under bench/results
	$(BIN)/python -m bench $(ARGS)

chaos: $(STAMP) ## kill and freeze real processes and count effects
	$(BIN)/python -m chaos $(ARGS)

docs: $(STAMP) ## run every code block of the documentation
	$(BIN)/python -m pytest -q tests/docs $(ARGS)

# Serving needs less than testing does: a fresh machine should not wait for linters and other people's frameworks.
$(VENV)/.serving: pyproject.toml constraints.txt
	@$(CHECK_PYTHON)
	@$(MAKE_VENV)
	@test -e $(STAMP) || $(BIN)/python -m pip install --quiet --no-compile -c constraints.txt -e '.[systems]'
	@touch $@

serve: $(VENV)/.serving ## start the systems on this machine
	$(BIN)/umavez serve $(ARGS)

clean: ## remove the virtualenv and everything that was made
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis htmlcov .coverage
	find src tests bench chaos docs -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
