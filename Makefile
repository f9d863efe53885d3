PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
ARGS ?=

.PHONY: run test check bench soak fuzz clean

run: .venv/runtime ## start an API server and two controller managers
	@exec $(BIN)/cluster-up --data-dir .cluster --api-port 6443 --managers 2 $(ARGS)

test: .venv/dev .venv/clients ## all tests
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

soak: .venv/dev ## every test with faults for many more seeds: make soak SEEDS=5000 ARGS=tests/scenarios/test_soak.py
	$(BIN)/python -m pytest -n 2 --seeds=$(or $(SEEDS),5000) $(ARGS)

fuzz: .venv/dev ## many requests made up from the published descriptions: make fuzz EXAMPLES=500 SEED=3
	EXAMPLES=$(or $(EXAMPLES),100) SEED=$(or $(SEED),7) $(BIN)/python -m pytest -n 2 --timeout=0 tests/properties/test_schemathesis.py $(ARGS)

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

# Clients in other languages that tests speak to the server with. Helm's library asks for a newer Python than it uses.
.venv/clients: .venv/dev tests/e2e/node/package-lock.json tests/e2e/pprof_tool.py
	$(BIN)/pip install --quiet --disable-pip-version-check --ignore-requires-python 'helm-sdkpy==0.1.32'
	npm ci --silent --no-audit --no-fund --prefix tests/e2e/node
	$(BIN)/python tests/e2e/pprof_tool.py $(BIN)/pprof
	@touch $@
