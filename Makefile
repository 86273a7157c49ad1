# Coatcheck. `make` alone lists what there is.
#
# Everything runs from .venv in this folder, installed from requirements/*.txt: exact versions with
# hashes. PYTHON names the interpreter that .venv is made with, ARGS is passed on to the program.

PYTHON ?= python3
ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
# Two for each core: a test of processes waits for half of its time.
TEST_WORKERS ?= $(shell $(PYTHON) -c 'import os; print(min(8, 2 * (os.cpu_count() or 1)))')

export PIP_DISABLE_PIP_VERSION_CHECK = 1
export PIP_NO_INPUT = 1

.DEFAULT_GOAL := help
.PHONY: help setup setup-dev azurite browser typescript corpus up tts-remote test lint format types imports check docs screenshots lock bench chaos soak recovery planted environment fuzz abuse audit clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(VENV)/.runtime ## create .venv with what Coatcheck needs to run

setup-dev: $(VENV)/.dev ## create .venv with what its tests and checks need, too

azurite: tests/azurite/node_modules/.installed ## install the Azure Blob server that the tests run against

browser: tests/browser/node_modules/.installed ## install the browser that pages are tried in, and axe-core

typescript: clients/typescript/build/.built ## build the TypeScript client

corpus: .corpus/.fetched ## fetch the real packages that the tests run on into .corpus

up: setup ## start everything on an embedded PostgreSQL; ARGS="--data DIR --port N [module:service ...]"
	@$(BIN)/coatcheck up $(ARGS)

tts-remote: $(VENV)/.tts ## start a remote that speaks; ARGS="--port N --folder DIR"
	@$(BIN)/python -m examples.tts_remote $(ARGS)

test: setup-dev azurite browser typescript corpus ## run the tests; ARGS="-k name" to choose
	$(BIN)/pytest -n $(TEST_WORKERS) --dist worksteal $(ARGS)

lint: setup-dev ## check style and formatting, and that the two clients agree
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python scripts/generate_sync_client --check

format: setup-dev ## mend style and formatting where a tool can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/python scripts/generate_sync_client

types: setup-dev ## check types, strictly
	$(BIN)/mypy

imports: setup-dev ## check that imports between packages point one way
	$(BIN)/lint-imports --no-cache

check: lint types imports test ## all of the above checks, then the tests

bench: ## measure Coatcheck and its peers on this machine; ARGS="--quick --only coatcheck"
	@PYTHON=$(PYTHON) bench/run $(ARGS)

chaos: $(VENV)/.chaos ## kill, pause and cut a real deployment under load, and check it; ARGS="--minutes 5 --seed 1"
	@$(BIN)/python -m chaos $(ARGS)

soak: $(VENV)/.chaos ## load a deployment for long, and look for what grows; ARGS="--minutes 60"
	@$(BIN)/python -m chaos.soak $(ARGS)

recovery: setup-dev ## measure how long it takes until work goes on after a death; ARGS="--rounds 10 --only worker,postgres"
	@$(BIN)/python -m chaos.recovery $(ARGS)

planted: $(VENV)/.chaos azurite browser typescript corpus ## plant bugs in copies of the tree: each must be caught; ARGS="--only NAME"
	@$(BIN)/python -m chaos.planted $(ARGS)

environment: setup-dev ## break what Coatcheck stands on: poolers, disks, clocks, standbys, connections, blob stores
	@{ command -v pgbouncer && ls /usr/lib/*/faketime/libfaketimeMT.so.1; } >/dev/null 2>&1 || { \
	  [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	  echo "==> installing PgBouncer and libfaketime" && \
	  apt-get update --quiet --quiet && apt-get install --quiet --quiet --yes --no-install-recommends pgbouncer libfaketime >/dev/null && \
	  { service pgbouncer stop >/dev/null 2>&1 || true; }; } || \
	  echo "==> PgBouncer or libfaketime is missing: the tests that need it are skipped"
	$(BIN)/pytest chaos/environment $(ARGS)

abuse: setup-dev ## let one caller do its worst to the others, and measure; ARGS="--only pipelining --source ../old"
	@$(BIN)/python -m chaos.abuse $(ARGS)

fuzz: setup-dev azurite corpus ## try hostile and random input for long; ARGS="--times 4 --seed 7 --only archives,urls"
	@$(BIN)/python -m chaos.fuzz $(ARGS)

audit: setup-dev ## list the licences of what is shipped; ARGS="--all" for what only tests need, too
	@$(BIN)/python scripts/audit $(ARGS)

docs: setup-dev ## build the site of the documentation into build/docs
	@$(BIN)/python -m scripts.docs_site

screenshots: setup-dev browser ## make the pictures of docs/images anew
	@[ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get install --quiet --quiet --yes --no-install-recommends fonts-inter >/dev/null || true
	FONTCONFIG_FILE=$(CURDIR)/tests/browser/fonts.conf $(BIN)/pytest -q tests/browser/screenshots.py

lock: setup-dev ## compile requirements/*.in again, to the newest versions
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

clean: ## remove .venv and caches; the data in .coatcheck stays
	rm -rf $(VENV) bench/.venv .corpus tests/azurite/node_modules tests/browser/node_modules clients/typescript/node_modules clients/typescript/dist clients/typescript/build .import_linter_cache .mypy_cache .pytest_cache .ruff_cache .hypothesis dist build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A .venv that was copied or moved here, or whose interpreter is gone, is made again.
ifneq ($(shell test -x $(BIN)/python && cat $(VENV)/.python 2>/dev/null),$(CURDIR))
$(shell rm -f $(VENV)/.python $(VENV)/.runtime $(VENV)/.tts $(VENV)/.dev $(VENV)/.chaos)
endif

# A stamp per set: nothing is done again until its list, or a description of what is ours, changes.
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
	$(call say,installing the tests and checks from requirements/dev.txt)
	@$(BIN)/pip install --quiet --require-hashes -r requirements/dev.txt
	@touch $@

$(VENV)/.chaos: requirements/chaos.txt $(VENV)/.dev
	$(call say,installing what draws pictures from requirements/chaos.txt)
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
	  echo "==> installing Chromium, for the tests of the dashboard" && \
	  apt-get update --quiet --quiet && apt-get install --quiet --quiet --yes --no-install-recommends chromium >/dev/null; } || { \
	  echo "error: the tests of the dashboard need a browser. Install Chromium." >&2; \
	  exit 1; }
	$(call say,installing axe-core from tests/browser/package-lock.json)
	@cd tests/browser && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >/dev/null
	@touch $@

# After Azurite, also with -j: either may have to install npm, and apt-get works for one at a time.
clients/typescript/node_modules/.installed: clients/typescript/package.json clients/typescript/package-lock.json | azurite
	$(call have-npm)
	$(call say,installing TypeScript from clients/typescript/package-lock.json)
	@cd clients/typescript && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >/dev/null
	@touch $@

clients/typescript/build/.built: clients/typescript/node_modules/.installed $(wildcard clients/typescript/*.json) $(shell find clients/typescript/src clients/typescript/test -name '*.ts')
	$(call say,building the TypeScript client)
	@cd clients/typescript && npm run --silent build

# Without a network the tests that need a package say so; the others can run.
.corpus/.fetched: tests/corpus.toml | $(VENV)/.dev
	$(call say,fetching the packages of tests/corpus.toml)
	@if $(BIN)/python scripts/fetch_corpus; then touch $@; fi

$(VENV)/.python:
	@command -v $(PYTHON) >/dev/null || { \
	  echo "error: there is no $(PYTHON). Install Python 3.11 or newer, or say PYTHON=/path/to/python3." >&2; \
	  exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "error: Coatcheck needs Python 3.11 or newer, and $(PYTHON) is $$($(PYTHON) --version 2>&1)." >&2; \
	  echo "       Name another one: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; \
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
