# Two commands for a new machine: `make demo` (sets up first when needed) and `make test`.
# CI runs `make lint` and `make test-all`, which is `make test` with the slow tests.
PYTHON ?= python3
BIN := .venv/bin
# Python compiles a module when it is first imported, and most are never: without compiling all, pip needs half the time.
PIP := $(BIN)/pip install --quiet --no-compile --constraint constraints.txt
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses=logical --maxprocesses=4 --dist=loadgroup --durations=10

.PHONY: setup demo test test-all test-attack test-arm lint clean

setup: .venv/installed

# What the demo needs: pretraining, and pictures.
.venv/demo: pyproject.toml setup.py constraints.txt $(wildcard src/elmo/_native/*.cpp src/elmo/_native/*.h)
	$(PYTHON) -m venv .venv
	rm -f src/elmo/_native/_kernel.*.so  # or one that no longer compiles would go unnoticed
	$(PIP) torch
	$(PIP) --editable '.[train]' matplotlib
	touch $@

# What the tests need is added to that.
.venv/installed: .venv/demo
	$(PIP) --editable '.[dev]'
	touch $@

demo: .venv/demo
	$(BIN)/python examples/demo.py

test: setup
	$(PYTEST) $(TESTS)

test-all: setup
	$(PYTEST) --slow $(TESTS)

test-attack: setup
	cd tests && PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1 ../$(BIN)/python -m attack

test-arm: setup
	tests/arm.sh

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

clean:
	rm -rf .venv build demo-run src/elmo/_native/_kernel.*.so
