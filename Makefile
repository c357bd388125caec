# Everything a person or a machine does with a checkout. `make help` lists it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -q
# Byte code is made at the first import instead: a third off the first install.
PIP_INSTALL := $(PIP) install --no-compile --no-deps
# 1: the demo workers (a real LLM in llama.cpp and in Triton). 0: the three services alone.
DEMO ?= 1

.DEFAULT_GOAL := help
.PHONY: help install install-dev install-demo run test test-fast lint fmt proto lock fuzz chaos bench test-sidecars clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(VENV)/pyvenv.cfg:
	@$(PYTHON) -c 'import sys; sys.exit("SpeedInfer needs Python 3.11 or later; try: make PYTHON=python3.12") if sys.version_info < (3, 11) else 0'
	@$(PYTHON) -m venv $(VENV)

# A stamp is younger than the lock file that it stands for, so that a second run installs nothing.
$(VENV)/.run-installed: requirements/run.txt requirements/build.txt pyproject.toml | $(VENV)/pyvenv.cfg
	@echo "installing SpeedInfer into $(VENV) ..."
	@$(PIP_INSTALL) --require-hashes -r requirements/build.txt
	@$(PIP_INSTALL) --require-hashes -r requirements/run.txt
	@$(PIP_INSTALL) --no-build-isolation -e .
	@touch $@

$(VENV)/.dev-installed: requirements/dev.txt $(VENV)/.run-installed
	@echo "installing what the tests need into $(VENV) ..."
	@$(PIP_INSTALL) --require-hashes -r requirements/dev.txt
	@touch $@

install: $(VENV)/.run-installed ## make .venv with the services and the `speedinfer` command

install-dev: $(VENV)/.dev-installed ## the same, and what generates, checks and tests

proto: install-dev ## make the gRPC stubs in gen/ anew
	@$(BIN)/python tools/protos.py

fmt: install-dev ## format the code
	@$(BIN)/ruff format services tests tools demo benchmarks
	@$(BIN)/ruff check --fix -q services tests tools demo benchmarks

lint: install-dev ## formatting, lint, types, import rules, protos
	@$(BIN)/ruff format --check -q services tests tools demo benchmarks
	@$(BIN)/ruff check services tests tools demo benchmarks
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python tools/protos.py --lint
	@$(BIN)/python tools/protos.py --check

lock: install-dev ## resolve the pinned requirements anew (needs `uv`)
	@uv pip compile -q pyproject.toml --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url -o requirements/run.txt
	@uv pip compile -q pyproject.toml --extra dev --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url -o requirements/dev.txt

clean: ## remove what was installed (data in .speedinfer/ stays)
	@rm -rf $(VENV) .venv-demo node_modules
