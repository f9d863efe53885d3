PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
ARGS ?=

.PHONY: run test check bench clean

run: .venv/runtime ## start an API server and two controller managers
	@exec $(BIN)/cluster-up --data-dir .cluster --api-port 6443 --managers 2 $(ARGS)

test: .venv/dev ## all tests
	$(BIN)/python -m pytest -n 2 $(ARGS)

check: .venv/dev ## style, types, floors, house rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest tests/house
	$(BIN)/python tests/house/outliers.py

bench: .venv/dev ## every benchmark, each against its ceiling
	$(BIN)/python -m benchmarks $(ARGS)

clean:
	rm -rf .venv .cluster

.venv/runtime: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --editable .
	@touch $@

.venv/dev: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch .venv/runtime $@
