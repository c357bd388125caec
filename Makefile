# Everything a person or a machine does with a checkout. `make help` lists it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -q
# Byte code is made by COMPILE on all cores instead: sooner than by pip, and where the environment forbids it at import.
COMPILE := $(BIN)/python -m compileall -q -j 0 $(VENV)/lib services gen > /dev/null || true
PIP_INSTALL := $(PIP) install --no-compile --no-deps
# 1: the demo workers (a real LLM in llama.cpp and in Triton). 0: the three services alone.
DEMO ?= 1
# The Node SDK that the tests drive; exactly this version, outside the checkout's own files.
NODE_SDK := build/node
NODE_SDK_VERSION := 7.59.0
# make bench-compare: a virtual environment that has the other gateways.
PEERS ?= build/peers
# Arguments for pytest or for the benchmark: make test ARGS="-k triton"
ARGS ?=
# make fuzz: times as many generated examples as usual, and seconds of guided search for each of eleven targets.
FUZZ_EXAMPLES ?= 100
FUZZ_SECONDS ?= 300
# make chaos: clients that leave in the midst of an answer, and how long the storm lasts.
CHAOS_DEPARTURES ?= 5000
CHAOS_SECONDS ?= 600

.DEFAULT_GOAL := help
.PHONY: help install install-dev install-demo run test test-fast lint fmt proto lock fuzz chaos bench bench-compare profile test-sidecars clean

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
	@$(COMPILE)
	@touch $@

$(VENV)/.dev-installed: requirements/dev.txt $(VENV)/.run-installed
	@echo "installing what the tests need into $(VENV) ..."
	@$(PIP_INSTALL) --require-hashes -r requirements/dev.txt
	@$(COMPILE)
	@touch $@

install: $(VENV)/.run-installed ## make .venv with the services and the `speedinfer` command

install-dev: $(VENV)/.dev-installed ## the same, and what generates, checks and tests

proto: install-dev ## make the gRPC stubs in gen/ anew
	@$(BIN)/python tools/protos.py

fmt: install-dev ## format the code
	@$(BIN)/ruff format services tests tools demo benchmarks deploy
	@$(BIN)/ruff check --fix -q services tests tools demo benchmarks deploy

lint: install-dev ## formatting, lint, types, import rules, protos
	@$(BIN)/ruff format --check -q services tests tools demo benchmarks deploy
	@$(BIN)/ruff check services tests tools demo benchmarks deploy
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python tools/protos.py --lint
	@$(BIN)/python tools/protos.py --check
	@$(BIN)/python tools/protos.py --breaking

$(NODE_SDK)/.installed-$(NODE_SDK_VERSION):
	@mkdir -p $(NODE_SDK)
	@if command -v npm > /dev/null; then \
		echo "installing openai $(NODE_SDK_VERSION) for Node into $(NODE_SDK) ..." && \
		npm install --no-save --no-package-lock --no-audit --no-fund --ignore-scripts --silent \
			--prefix $(NODE_SDK) openai@$(NODE_SDK_VERSION) && touch $@; \
	else echo "npm is not here: tests of the Node SDK will be skipped"; fi

install-demo: install ## make .venv-demo with a language model, llama.cpp and Triton, where they exist
	@$(BIN)/python demo/run_install.py

run: install ## start everything: three services, and two real workers unless DEMO=0
	@DEMO=$(DEMO) exec $(BIN)/python demo/run.py

# Two pytest processes at once (tests/suite.py): much of a test's time is waiting for starts, deadlines and kills, during which a
# core idles. By folders, and not test by test over many workers: within a half all share one product, one PostgreSQL and one
# Triton, as before, and what measures or strains the machine stays in a row. ARGS that name a file or folder run it alone.
test: install-dev install-demo $(NODE_SDK)/.installed-$(NODE_SDK_VERSION) ## all tests, real parts included; two halves at once
	@$(BIN)/python -m tests.suite -q -ra -m "not fleet" $(ARGS)

test-fast: install-dev ## the tests that start no process: units and contracts, under a minute
	@$(BIN)/pytest -q tests/unit tests/contract -m "not processes" $(ARGS)

fuzz: install-dev ## the fuzzers for FUZZ_SECONDS each, the property tests with FUZZ_EXAMPLES times as many examples
	@FUZZ_EXAMPLES=$(FUZZ_EXAMPLES) FUZZ_SECONDS=$(FUZZ_SECONDS) $(BIN)/pytest -q -m "property" $(ARGS)
	@FUZZ_LEDGER_OPERATIONS=1000000 FUZZ_LEDGER_KILLS=200 $(BIN)/pytest -q tests/ledger --timeout 1800 $(ARGS)

bench: install-dev ## load on the three services with a scripted worker; prints CPU per request and per event
	@$(BIN)/python benchmarks/run.py $(ARGS)

bench-compare: install-dev ## SpeedInfer beside other gateways (PEERS: their virtual environment); ARGS=--write for the README
	@$(BIN)/python benchmarks/compare.py --peers $(PEERS) $(ARGS)

profile: install-dev ## where the CPU of the three services goes; ARGS="--stream --clients 200"
	@$(BIN)/python benchmarks/profile.py $(ARGS)

chaos: install-dev ## departures, crowds and a storm of kills and faults for CHAOS_SECONDS, audited; a failure prints its seed
	@CHAOS_DEPARTURES=$(CHAOS_DEPARTURES) $(BIN)/pytest -q tests/chaos --timeout 1800 $(ARGS)
	@$(BIN)/python -m tests.chaos.storm --seconds $(CHAOS_SECONDS)

test-sidecars: install-dev ## the services behind Envoy sidecars, two of everything among them (some ten minutes; root for the hosts)
	@$(BIN)/pytest -q -ra tests/sidecars $(ARGS)

lock: install-dev ## resolve the pinned requirements anew (needs `uv`)
	@uv pip compile -q pyproject.toml --universal --python-version 3.11 --generate-hashes --no-header -o requirements/run.txt
	@uv pip compile -q pyproject.toml --extra dev --universal --python-version 3.11 --generate-hashes --no-header -o requirements/dev.txt

clean: ## remove what was installed (data in .speedinfer/ stays)
	@rm -rf $(VENV) .venv-demo build
