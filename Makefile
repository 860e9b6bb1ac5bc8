# Every target creates .venv and installs into it when it has to.
# Another interpreter: make test PYTHON=python3.12
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
# Three workers on two cores, one thread each (tests/conftest.py): tests wait for processes and
# servers too. PYTEST_ARGS adds to it: make test PYTEST_ARGS="-k osrm"
WORKERS ?= 3
LOWEST := .venv-lowest
# Those that need no optional library but bitsandbytes.
CORE_TESTS := $(addprefix tests/,allocation anchors conformance evaluation learning model results trajectory)
PYTEST_ARGS ?=
unexport PYTHONDONTWRITEBYTECODE
SPHINX_ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help install demo search test soak lowest check wheel format docs bench clean

help:
	@echo "make demo    a whole continual-learning run on the CPU, in minutes"
	@echo "make search  a small task-level successive halving, in minutes"
	@echo "make test    every test that this machine can run"
	@echo "make soak    kill, damage, link, move every kind of work, and fill its disk; over an hour"
	@echo "make lowest  the tests of the core with the oldest libraries that are allowed"
	@echo "make check   format, lint, types, import contracts, spelling"
	@echo "make wheel   what pip installs; fails where a file of the package is not in it"
	@echo "make docs    the documentation, its notebooks executed, into site/; a warning is an error"
	@echo "make format  rewrite the sources as 'make check' wants them"
	@echo "make bench   a training step and sampling beside the plain reference, in two minutes"
	@echo "make clean   remove what was built, .venv included"

# Not compiled: most modules are never imported, and those that are get compiled then. Half of the
# time; an import takes three times as long where Python is told to write no bytecode.
$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "holdfast needs Python 3.11 or newer, and '$(PYTHON)' is not; try: make PYTHON=python3.12" >&2; \
		exit 2; }
	@echo "installing what holdfast needs into $(VENV); silent, and some minutes the first time"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@touch $@

install: $(INSTALLED)

demo: $(INSTALLED)
	$(BIN)/holdfast demo

search: $(INSTALLED)
	$(BIN)/holdfast search small --out studies/small --workers 2

test: $(INSTALLED)
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(PYTEST_ARGS)

# Two hundred kills at random times, and damage to every file, of every kind of work; CI has a short form.
soak: $(INSTALLED)
	HOLDFAST_SOAK=23 $(BIN)/python -m pytest -s tests/soak

lowest:
	test -x $(LOWEST)/bin/python || $(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints-lowest.txt \
		-e ".[quantization]" "pytest>=9.0" "pytest-xdist>=3.6" "hypothesis>=6.120"
	$(LOWEST)/bin/python -m pytest -n $(WORKERS) --dist worksteal -W ignore $(PYTEST_ARGS) $(CORE_TESTS)

check: $(INSTALLED)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy --strict
	$(BIN)/lint-imports --no-logo
	$(BIN)/codespell

wheel: $(INSTALLED)
	rm -rf build/wheel
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps -w build/wheel .
	$(BIN)/python scripts/whole_wheel.py build/wheel/*.whl

format: $(INSTALLED)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(INSTALLED)
	$(BIN)/python -m sphinx -b html -W --keep-going -q -E -a -d build/doctrees $(SPHINX_ARGS) docs site

bench: $(INSTALLED)
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) $(LOWEST) build dist site jupyter_execute .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
