# make run    set up and open the chat         make check  everything CI runs
# make test   set up and run the whole suite   make bench  benchmarks against a floor
# make docs   generate references and image    make lock   resolve package versions
# make quick  tests that start no programs     make walk   files, calls and transactions of one message
# make dist   wheel, sdist and SBOM in dist/   make installs  install them with pip, pipx and uv on each Python
# make site   documentation site in build/site

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input
STEP := scripts/step.py $(VENV)/install.log
PYTEST ?= $(BIN)/pytest
ARGS ?=
STATIC := types lint imports references web

.PHONY: $(STATIC) run test quick check bench dist installs docs site walk lock clean system embedded homeserver localslack apiclients sitegenerator containerbase openclawhome

run: $(VENV)/run.stamp embedded
	@$(BIN)/talaria $(ARGS)

test: $(VENV)/dev.stamp embedded system homeserver apiclients sitegenerator containerbase openclawhome
	@$(PYTEST) $(ARGS)

quick: $(VENV)/dev.stamp
	@$(PYTEST) --quick $(ARGS)

check: $(VENV)/dev.stamp embedded system homeserver apiclients sitegenerator containerbase openclawhome
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=target $(STATIC)
	@echo "== tests" && $(PYTEST) $(ARGS)

types:
	@echo "== types" && $(BIN)/mypy

lint:
	@echo "== format" && $(BIN)/ruff format --check .
	@echo "== lint" && $(BIN)/ruff check .

imports:
	@echo "== imports" && $(BIN)/lint-imports --no-cache

references:
	@echo "== references" && $(BIN)/python -m scripts.reference --check

web:
	@echo "== web" && $(BIN)/deno fmt --quiet --check && $(BIN)/deno lint --quiet && $(BIN)/deno check --quiet src/talaria/web/static/js tests/web/js

bench: $(VENV)/dev.stamp
	@$(BIN)/python -m bench $(ARGS)

walk: $(VENV)/dev.stamp
	@$(BIN)/python scripts/walk.py $(ARGS)

dist: $(VENV)/dev.stamp
	@$(BIN)/python -m scripts.dist

installs: dist
	@$(BIN)/python -m scripts.installs $(ARGS)

docs: $(VENV)/dev.stamp
	@$(BIN)/python -m scripts.reference
	@$(BIN)/python scripts/picture.py
	@$(BIN)/python -m scripts.page_pictures

site: $(VENV)/dev.stamp sitegenerator
	@$(BIN)/python scripts/documentation_site.py .site-generator/bin/zensical

lock:
	@sh scripts/lock.sh

clean:
	@[ ! -d .container-base ] || $(BIN)/python -m scripts.container_base --remove
	rm -rf $(VENV) dist .homeserver .local-slack .api-clients .site-generator .oidc-provider .mcp-peers .openclaw-home .mypy_cache .ruff_cache .pytest_cache .hypothesis .bench

embedded: $(VENV)/run.stamp
	@sh scripts/embedded-model.sh $(VENV)

system:
	@sh scripts/system-packages.sh

homeserver: $(VENV)/run.stamp
	@sh scripts/homeserver.sh $(VENV)

localslack:
	@sh scripts/local-slack.sh

apiclients: $(VENV)/run.stamp
	@sh scripts/api-clients.sh $(VENV)

containerbase: $(VENV)/run.stamp system
	@$(BIN)/python -m scripts.container_base

openclawhome: $(VENV)/run.stamp
	@$(BIN)/python -m scripts.openclaw_home

sitegenerator: $(VENV)/run.stamp
	@sh scripts/site-generator.sh $(VENV)

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "Talaria needs Python 3.11 to 3.13; run make with PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) $(STEP) "virtual environment in $(VENV)" $(PYTHON) -m venv $(VENV)

$(VENV)/run.stamp: pyproject.toml requirements/base.lock requirements/build.lock | $(VENV)/bin/python
	@$(PYTHON) $(STEP) "packages to run Talaria" $(PIP) install --no-deps --require-hashes -r requirements/base.lock -r requirements/build.lock
	@$(PYTHON) $(STEP) "Talaria from this folder" $(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/dev.stamp: requirements/dev.lock $(VENV)/run.stamp
	@$(PYTHON) $(STEP) "packages to check and test Talaria" $(PIP) install --no-deps --require-hashes -r requirements/dev.lock
	@touch $@
