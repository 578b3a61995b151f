# Everything a person types here works on a machine that has Python 3.11+ (with venv) and make, and nothing else.
# The locks are complete, so pip resolves nothing. Stamp files inside .venv remember what is installed, so a second run installs nothing.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory
# Without stored bytecode every process that a test starts would compile refold, and every run all tests.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
BIN := $(VENV)/bin
# The first Python on the path that is new enough; `make PYTHON=/path/to/python` overrides.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	if $$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then echo $$p; exit; fi; done)
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# The tests write thousands of small databases: in memory where there is room for them, which saves a tenth of the time.
# A worker that has nothing left to do takes tests from the other one. A third worker on two cores was measured to be slower.
PYTEST := $(shell if [ "$$(df --output=avail -m /dev/shm 2>/dev/null | tail -1)" -gt 4000 ] 2>/dev/null && [ -w /dev/shm ]; \
	then echo "PYTEST_DEBUG_TEMPROOT=/dev/shm"; fi) $(BIN)/python -m pytest -n 2 --dist worksteal
UV_VERSION := 0.13.7
# One lock per purpose; all agree, because base constrains the others.
LOCK := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-emit-find-links --no-header --no-annotate

SAMPLE ?= examples/sessions/coding_agent.json
BUDGET ?= 8000
RESULT := build/$(notdir $(SAMPLE))
WORKSPACE ?= .

.PHONY: help run try test test-slow test-all integrations node check fix bench docs figures screenshots reference sbom lock clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 14

run: $(VENV)/.run  ## install, then serve gateway and page; a sample session is there on the first start
	$(BIN)/refold serve --workspace $(WORKSPACE) $(ARGS)

try: $(VENV)/.package  ## install, then compress a bundled session and show what was done
	@mkdir -p $(dir $(RESULT))
	$(BIN)/refold compress $(SAMPLE) --budget $(BUDGET) --explain --out $(RESULT)
	@echo "The session that fits is in $(RESULT). Another one: make try SAMPLE=session.json BUDGET=20000"

test: $(VENV)/.dev  ## install what the tests need and run the quick suite: minutes
	$(PYTEST) -m "not slow" --hypothesis-profile quick $(ARGS)

test-slow: $(VENV)/.dev  ## the slow tests, and all examples of the property tests; ARGS="--minutes 40" bounds the time
	$(PYTEST) -m "slow or hypothesis" $(ARGS)

test-all: $(VENV)/.dev $(VENV)/.local  ## every test, with all examples of the property tests, and four frameworks
	$(PYTEST) $(ARGS)
	$(MAKE) integrations ARGS="--newest --check langchain openai_agents pydantic_ai litellm"

integrations: $(VENV)/.dev  ## test the adapters against the oldest and newest version of each framework
	$(PIP) install "uv==$(UV_VERSION)"
	$(BIN)/python tests/integrations/matrix.py $(ARGS)

node: ## install the AI SDK, a generator of typed clients and pyright into build/node, for slow tests
	npm install --prefix build/node node@22 ai@7 typescript@5 openapi-typescript@7 openapi-fetch@0 @types/node pyright@1

check: $(VENV)/.dev  ## lint, formatting, types, layering
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

fix: $(VENV)/.dev  ## what the linters can mend by themselves
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# A benchmark prints its Markdown section on standard output and its progress on standard error.
bench: $(VENV)/.dev  ## run every benchmark and write docs/benchmarks.md
	@page=$$(mktemp); \
	printf '# Benchmarks\n\nWritten by `make bench`; each section names the script it comes from. Compare ratios, not machines.\n' > $$page; \
	for script in benchmarks/bench_*.py; do \
		echo "== $$script" >&2; \
		printf '\n' >> $$page; \
		PYTHONPATH=. $(BIN)/python "$$script" >> $$page; \
	done; \
	cp $$page docs/benchmarks.md; rm $$page

reference: $(VENV)/.dev  ## write docs/reference/names.md and docs/requirements.md from the code
	$(BIN)/python docs/make_reference.py
	$(BIN)/python docs/make_requirements.py

# The tree is staged as it is in the repository, so that links between pages, and to files beside them, stay the same.
docs: build/docs-venv/.done  ## build the documentation as a searchable site, build/site
	rm -rf build/site-src && mkdir -p build/site-src
	cp -r *.md LICENSE llms.txt docs examples benchmarks deploy compose.yaml build/site-src/
	build/docs-venv/bin/mkdocs build --quiet --strict
	@echo "open build/site/docs/index.html"

build/docs-venv/.done: requirements/docs.txt
	$(PYTHON) -m venv build/docs-venv
	build/docs-venv/bin/python -m pip --disable-pip-version-check --quiet install --no-deps --require-hashes -r requirements/docs.txt
	@touch $@

figures: $(VENV)/.dev  ## write the figures of README and docs from docs/figures.json
	$(BIN)/python docs/make_figures.py

screenshots: $(VENV)/.dev  ## make the pictures of the page in docs/images
	$(BIN)/python docs/make_screenshots.py

sbom: $(VENV)/bin/python  ## write the bill of materials of all dependencies, build/sbom.cdx.json
	$(BIN)/python docs/make_sbom.py

lock: $(VENV)/bin/python  ## resolve the requirements, with hashes and without addresses
	$(PIP) install "uv==$(UV_VERSION)"
	$(LOCK) pyproject.toml -o requirements/base.txt $(LOCK_ARGS)
	$(LOCK) requirements/build.in -c requirements/base.txt -o requirements/build.txt $(LOCK_ARGS)
	$(LOCK) pyproject.toml --extra dev -c requirements/base.txt -c requirements/build.txt -o requirements/dev.txt $(LOCK_ARGS)
	$(LOCK) pyproject.toml --extra all -c requirements/dev.txt -o requirements/all.txt $(LOCK_ARGS)
	$(LOCK) requirements/oracle.in --no-deps -o requirements/oracle.txt $(LOCK_ARGS)
	$(LOCK) requirements/local.in --no-deps -o requirements/local.txt $(LOCK_ARGS)
	$(LOCK) requirements/docs.in -c requirements/dev.txt -o requirements/docs.txt $(LOCK_ARGS)
	@if grep -nE '://|^ *-(i|f)|^--(extra-)?index|^--find' requirements/*.txt; then echo "an address got into the lock" >&2; exit 1; fi

clean:  ## remove what these targets made
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache

$(VENV)/bin/python:
	@if [ -z "$(PYTHON)" ]; then echo "refold needs Python 3.11 or newer with the venv module; install it or pass PYTHON=/path/to/python" >&2; exit 1; fi
	@echo "installing into $(VENV); this takes some minutes, the first time only"
	$(PYTHON) -m venv $(VENV)

$(VENV)/.package: requirements/base.txt requirements/build.txt pyproject.toml | $(VENV)/bin/python
	$(PIP) install --no-compile --no-deps --require-hashes -r requirements/base.txt -r requirements/build.txt
	$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

# `refold local install` adds the small local model, 200 MB, for those who want a chat without a key.
# Python compiles a module on its first import; compiling all of them ahead would cost 100 MB.
# One installation, not the base first: pip takes seconds to start and to read a lock.
$(VENV)/.run: requirements/all.txt requirements/build.txt pyproject.toml | $(VENV)/bin/python
	$(PIP) install --no-compile --no-deps --require-hashes -r requirements/all.txt -r requirements/build.txt
	$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $(VENV)/.package $@

$(VENV)/.dev: requirements/dev.txt requirements/oracle.txt $(VENV)/.package
	$(PIP) install --no-deps --require-hashes -r requirements/dev.txt
	$(PIP) install --require-hashes --no-deps -r requirements/oracle.txt
	@touch $@

# Where there is no wheel of it, the tests that need it are skipped and say so.
$(VENV)/.local: requirements/local.txt $(VENV)/.dev
	@if $(PIP) install --require-hashes --no-deps --only-binary :all: -r requirements/local.txt; then touch $@; \
	else echo "the small local model cannot be installed here; its tests are skipped" >&2; fi
