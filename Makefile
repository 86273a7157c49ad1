# Coatcheck. `make` alone lists the targets.
#
# Everything runs from .venv in this folder, installed from requirements/*.txt with exact versions and
# hashes. PYTHON is the interpreter that creates .venv; ARGS is passed to the program.

PYTHON ?= python3
ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
# Two per core, because tests of processes spend half of their time waiting; three are slower.
TEST_WORKERS ?= $(shell $(PYTHON) -c 'import os; print(min(8, 2 * (os.cpu_count() or 1)))')

export PIP_DISABLE_PIP_VERSION_CHECK = 1
export PIP_NO_INPUT = 1
# Without bytecode, each of the hundreds of processes that the tests start would compile everything.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup setup-dev azurite browser typescript corpus up tts-remote test test-fast lint format types imports check reference docs screenshots lock bench chaos soak recovery planted environment fuzz abuse audit clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(VENV)/.runtime ## create .venv with the runtime dependencies

setup-dev: $(VENV)/.dev ## create .venv with the development dependencies, too

azurite: tests/azurite/node_modules/.installed ## install Azurite, the Azure Blob server of the tests

browser: tests/browser/node_modules/.installed ## install Chromium and axe-core for the dashboard's tests

typescript: clients/typescript/build/.built ## build the TypeScript client

corpus: .corpus/.fetched ## download the real packages that the tests analyse into .corpus

up: setup ## start everything on an embedded PostgreSQL; ARGS="--data DIR --port N [module:service ...]"
	@$(BIN)/coatcheck up $(ARGS)

tts-remote: $(VENV)/.tts ## start the example text-to-speech server; ARGS="--port N --folder DIR"
	@$(BIN)/python -m examples.tts_remote $(ARGS)

# Compiled once, instead of by each of the processes that begin with the same imports.
compile := $(BIN)/python -m compileall -q -j 2 src packages/codegraph/src chaos examples

test: setup-dev azurite browser typescript corpus ## run the tests; ARGS="-k name" selects some
	@$(compile)
	$(BIN)/pytest -n $(TEST_WORKERS) --dist worksteal $(ARGS)

# What a change breaks first: rules, statements, the engine, HTTP, and every product's shared contract.
FAST_TESTS := tests/unit tests/core tests/db tests/maintenance tests/http tests/contract/job_resource

test-fast: setup-dev ## run the tests of the inner loop, in under three minutes; ARGS="-k name" selects some
	@$(compile)
	$(BIN)/pytest -n $(TEST_WORKERS) --dist worksteal -m "not slow and not crash" $(FAST_TESTS) $(ARGS)

lint: setup-dev ## check style and formatting, and that generated code and documentation are up to date
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python scripts/generate_sync_client --check
	$(BIN)/python -m scripts.reference --check

format: setup-dev ## fix style and formatting
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/python scripts/generate_sync_client

types: setup-dev ## check types with mypy --strict
	$(BIN)/mypy

imports: setup-dev ## check the import contracts between packages
	$(BIN)/lint-imports --no-cache

check: lint types imports test ## run lint, types, imports and test

bench: ## benchmark Coatcheck and comparable systems on this machine; ARGS="--quick --only coatcheck"
	@PYTHON=$(PYTHON) bench/run $(ARGS)

chaos: $(VENV)/.chaos ## inject faults into a real deployment under load and check its guarantees; ARGS="--minutes 5 --seed 1"
	@$(BIN)/python -m chaos $(ARGS)

soak: $(VENV)/.chaos ## load a deployment for a long time and look for leaks; ARGS="--minutes 60"
	@$(BIN)/python -m chaos.soak $(ARGS)

recovery: setup-dev ## measure recovery times after a process dies; ARGS="--rounds 10 --only worker,postgres"
	@$(BIN)/python -m chaos.recovery $(ARGS)

planted: $(VENV)/.chaos azurite browser typescript corpus ## plant known bugs in copies of the tree and check that each is caught; ARGS="--only NAME"
	@$(BIN)/python -m chaos.planted $(ARGS)

environment: setup-dev ## inject faults into poolers, disks, clocks, standbys, connections and blob stores
	@{ command -v pgbouncer && ls /usr/lib/*/faketime/libfaketimeMT.so.1; } >/dev/null 2>&1 || { \
	  [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	  echo "==> installing PgBouncer and libfaketime" && \
	  apt-get update --quiet --quiet && apt-get install --quiet --quiet --yes --no-install-recommends pgbouncer libfaketime >/dev/null && \
	  { service pgbouncer stop >/dev/null 2>&1 || true; }; } || \
	  echo "==> PgBouncer or libfaketime is missing; tests that need it are skipped"
	$(BIN)/pytest chaos/environment $(ARGS)

abuse: setup-dev ## measure how one abusive caller affects the others; ARGS="--only pipelining --source ../old"
	@$(BIN)/python -m chaos.abuse $(ARGS)

fuzz: setup-dev azurite corpus ## fuzz with hostile and random input; ARGS="--times 4 --seed 7 --only archives,urls"
	@$(BIN)/python -m chaos.fuzz $(ARGS)

audit: setup-dev ## list the licences of all shipped packages; ARGS="--all" includes development packages
	@$(BIN)/python scripts/audit $(ARGS)

reference: setup-dev ## regenerate the reference documentation; ARGS=--check only compares
	@$(BIN)/python -m scripts.reference $(ARGS)

docs: setup-dev ## build the documentation site into build/docs
	@$(BIN)/python -m scripts.docs_site

screenshots: setup-dev browser ## regenerate the screenshots in docs/images
	@[ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get install --quiet --quiet --yes --no-install-recommends fonts-inter >/dev/null || true
	FONTCONFIG_FILE=$(CURDIR)/tests/browser/fonts.conf $(BIN)/pytest -q tests/browser/screenshots.py

lock: setup-dev ## update requirements/*.txt to the newest versions
	@cd requirements && export UV_CUSTOM_COMPILE_COMMAND='make lock' && \
	compile="../$(BIN)/uv pip compile --no-config --system-certs --quiet --upgrade --universal \
	  --python-version 3.11 --generate-hashes --no-emit-index-url" && \
	$$compile bootstrap.in -o bootstrap.txt && \
	$$compile runtime.in -o runtime.txt && \
	$$compile codegraph.in -c runtime.txt -o codegraph.txt && \
	$$compile build.in -c runtime.txt -o build.txt && \
	$$compile tts.in -c runtime.txt -o tts.txt && \
	$$compile docs.in -c runtime.txt -o docs.txt && \
	$$compile dev.in -c bootstrap.txt -c runtime.txt -c codegraph.txt -c build.txt -c tts.txt -c docs.txt -o dev.txt && \
	$$compile chaos.in -c runtime.txt -c dev.txt -o chaos.txt && \
	$$compile bench.in -o bench.txt

clean: ## remove .venv and caches; keep the data in .coatcheck
	rm -rf $(VENV) bench/.venv .corpus tests/azurite/node_modules tests/browser/node_modules clients/typescript/node_modules clients/typescript/dist clients/typescript/build .import_linter_cache .mypy_cache .pytest_cache .ruff_cache .hypothesis dist build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Recreate a .venv that was copied or moved here, or whose interpreter is gone.
ifneq ($(shell test -x $(BIN)/python && cat $(VENV)/.python 2>/dev/null),$(CURDIR))
$(shell rm -f $(VENV)/.python $(VENV)/.runtime $(VENV)/.tts $(VENV)/.dev $(VENV)/.chaos)
endif

# One stamp per set of packages: it is reinstalled when its list or a pyproject.toml changes.
$(VENV)/.runtime: requirements/bootstrap.txt requirements/runtime.txt requirements/codegraph.txt requirements/build.txt pyproject.toml packages/codegraph/pyproject.toml | $(VENV)/.python
	$(call say,installing the runtime from requirements/runtime.txt and requirements/codegraph.txt)
	@$(BIN)/python -m pip install --quiet --require-hashes -r requirements/bootstrap.txt
	@$(BIN)/pip install --quiet --require-hashes -r requirements/runtime.txt -r requirements/codegraph.txt -r requirements/build.txt
	@$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable . --editable packages/codegraph
	@touch $@

$(VENV)/.tts: requirements/tts.txt $(VENV)/.runtime
	$(call say,installing espeak-ng from requirements/tts.txt)
	@$(BIN)/pip install --quiet --require-hashes -r requirements/tts.txt
	@touch $@

$(VENV)/.dev: requirements/dev.txt $(VENV)/.runtime
	$(call say,installing the development packages from requirements/dev.txt)
	@$(BIN)/pip install --quiet --require-hashes -r requirements/dev.txt
	@touch $@

$(VENV)/.chaos: requirements/chaos.txt $(VENV)/.dev
	$(call say,installing the plotting packages from requirements/chaos.txt)
	@$(BIN)/pip install --quiet --require-hashes -r requirements/chaos.txt
	@touch $@

tests/azurite/node_modules/.installed: tests/azurite/package.json tests/azurite/package-lock.json
	$(call have-npm)
	$(call say,installing Azurite from tests/azurite/package-lock.json)
	@cd tests/azurite && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >/dev/null
	@touch $@

tests/browser/node_modules/.installed: tests/browser/package.json tests/browser/package-lock.json | azurite
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || { \
	  [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	  echo "==> installing Chromium for the dashboard's tests" && \
	  apt-get update --quiet --quiet && apt-get install --quiet --quiet --yes --no-install-recommends chromium >/dev/null; } || { \
	  echo "error: the dashboard's tests need a browser. Install Chromium." >&2; \
	  exit 1; }
	$(call say,installing axe-core from tests/browser/package-lock.json)
	@cd tests/browser && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >/dev/null
	@touch $@

# After Azurite, even with -j: both may have to install npm, and apt-get runs once at a time.
clients/typescript/node_modules/.installed: clients/typescript/package.json clients/typescript/package-lock.json | azurite
	$(call have-npm)
	$(call say,installing TypeScript from clients/typescript/package-lock.json)
	@cd clients/typescript && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >/dev/null
	@touch $@

clients/typescript/build/.built: clients/typescript/node_modules/.installed $(wildcard clients/typescript/*.json) $(shell find clients/typescript/src clients/typescript/test -name '*.ts')
	$(call say,building the TypeScript client)
	@cd clients/typescript && npm run --silent build

# Without a network, the tests that need a package say so and the others run.
.corpus/.fetched: tests/corpus.toml | $(VENV)/.dev
	$(call say,downloading the packages of tests/corpus.toml)
	@if $(BIN)/python scripts/fetch_corpus; then touch $@; fi

$(VENV)/.python:
	@command -v $(PYTHON) >/dev/null || { \
	  echo "error: $(PYTHON) not found. Install Python 3.11 or newer, or set PYTHON=/path/to/python3." >&2; \
	  exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "error: Coatcheck needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1)." >&2; \
	  echo "       Use another one: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; \
	  exit 1; }
	$(call say,creating $(VENV))
	@$(PYTHON) -m venv --clear $(VENV) || { \
	  rm -rf $(VENV); \
	  echo "error: '$(PYTHON) -m venv' failed. On Debian and Ubuntu: apt-get install python3-venv" >&2; \
	  exit 1; }
	@echo $(CURDIR) >$@

say = @echo "==> $(1)"

define have-npm
@command -v npm >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
  echo "==> installing Node.js and npm" && \
  apt-get update --quiet --quiet && apt-get install --quiet --quiet --yes --no-install-recommends nodejs npm >/dev/null; } || { \
  echo "error: the TypeScript client and the tests need npm. Install Node.js, 20 or newer." >&2; \
  exit 1; }
endef
