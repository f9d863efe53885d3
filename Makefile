PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
ARGS ?=

# A .venv whose Python is gone, too old, or not the one that PYTHON asks for, is replaced.
VERSION := import sys; print("%d.%d" % sys.version_info[:2])
ASKED := $(if $(filter environment command,$(firstword $(origin PYTHON))),$(shell $(PYTHON) -c '$(VERSION)'))
FITS := import sys; sys.exit(sys.version_info < (3, 11) or "$(ASKED)" not in ("", "%d.%d" % sys.version_info[:2]))
$(shell { [ ! -e .venv ] && [ ! -L .venv ]; } || $(BIN)/python -c '$(FITS)' 2>/dev/null || rm -rf .venv)

.PHONY: run test stores check bench seeds soak fuzz lock lowest clean

run: .venv/runtime ## start an API server and two controller managers
	@exec $(BIN)/cluster-up --data-dir .cluster --api-port 6443 --managers 2 $(ARGS)

test: .venv/dev ## all tests but the long ones; installs the programs they use, as far as it may
	@$(BIN)/python tests/programs.py
	$(BIN)/python -m pytest -n 3 $(ARGS)

STORES ?= sqlite workers etcd

stores: .venv/dev ## the tests of whole servers on each store but memory: make stores STORES=workers ARGS="-k watch"
	@for store in $(STORES); do \
	  echo "$$store:" && $(BIN)/python -m pytest -n 3 --storage=$$store $(addprefix tests/apiserver_stub/,http_api whole_server) $(ARGS) || exit 1; \
	done

check: .venv/dev ## style, types, floors, house rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest tests/house
	$(BIN)/python tests/house/outliers.py

bench: .venv/dev ## every benchmark, each against its ceiling
	$(BIN)/python -m benchmarks $(ARGS)

seeds: .venv/dev ## tests with faults, for many seeds: make seeds SEEDS=5000 ARGS=tests/scenarios/test_job_faults.py
	$(BIN)/python -m pytest -n 2 --seeds=$(or $(SEEDS),200) $(ARGS) || [ $$? -eq 5 ] # where none of them has seeds

soak: seeds ## the same, and the long tests: make soak SEEDS=5000 ARGS=tests/scenarios/test_soak.py
	LONG=1 $(BIN)/python -m pytest -n 2 -m long --timeout=0 $(ARGS) || [ $$? -eq 5 ] # or none is long

fuzz: .venv/dev ## many requests made up from the published descriptions: make fuzz EXAMPLES=500 SEED=3
	EXAMPLES=$(or $(EXAMPLES),100) SEED=$(or $(SEED),7) $(BIN)/python -m pytest -n 2 --timeout=0 tests/properties/test_schemathesis.py $(ARGS)

# The lock: exact versions with hashes of what the ranges of pyproject.toml allow today.
COMPILE := .venv/lock/bin/pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras --no-annotate --no-header \
	--no-emit-index-url --no-emit-find-links --no-emit-trusted-host --no-emit-options --upgrade

lock: .venv/dev ## choose the newest versions and write them to requirements/
	$(PYTHON) -m venv .venv/lock
	.venv/lock/bin/python -m pip install --quiet --disable-pip-version-check 'pip-tools>=7.5,<8'
	$(COMPILE) -o requirements/runtime.txt pyproject.toml
	$(COMPILE) --extra dev -o requirements/dev.txt pyproject.toml
	$(COMPILE) --all-build-deps --only-build-deps -o requirements/build.txt pyproject.toml
	sed -i.bak -e '/^cluster-controller-manager @/d' -e '/^#/d' requirements/*.txt && rm requirements/*.bak

CLIENTS := tests/apiserver_stub/apis/openapi/test_operations.py::test_operations_match_the_generated_client

lowest: .venv/dev ## tests without processes, with the oldest versions that pyproject.toml allows
	rm -rf .venv/lowest && $(PYTHON) -m venv .venv/lowest
	$(BIN)/python tests/lowest.py > .venv/lowest.txt
	.venv/lowest/bin/python -m pip install --quiet --disable-pip-version-check -r .venv/lowest.txt --editable '.[tests]'
	.venv/lowest/bin/python -m pytest -n 2 -m 'not e2e' --deselect=$(CLIENTS) tests/controller_manager tests/controllers tests/apiserver_stub $(ARGS)

clean:
	rm -rf .venv .cluster

# Exact versions, each with its hash; the package itself is built with a locked tool, too.
.venv/runtime: requirements/runtime.txt requirements/build.txt pyproject.toml | .venv/made
	$(PIP) --require-hashes --requirement requirements/runtime.txt --requirement requirements/build.txt
	$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

.venv/dev: requirements/dev.txt requirements/build.txt pyproject.toml | .venv/made
	$(PIP) --require-hashes --requirement requirements/dev.txt --requirement requirements/build.txt
	$(PIP) --no-deps --no-build-isolation --editable .
	@touch .venv/runtime $@

.venv/made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	  || { echo "Python 3.11 or later is needed; name one: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv || { rm -rf .venv; exit 1; }
	@touch $@
