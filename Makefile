# Two commands for a new machine: `make demo` (sets up first when needed) and `make test`.
# CI runs `make lint` and `make test-all`, which is `make test` with the slow tests.
PYTHON ?= python3
BIN := .venv/bin
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses=logical --maxprocesses=4 --dist=loadgroup --durations=10

.PHONY: setup demo test test-all test-attack test-arm lint docs clean

setup: .venv/installed

.venv/installed: pyproject.toml setup.py constraints.txt $(wildcard src/elmo/_native/*.cpp src/elmo/_native/*.h)
	$(PYTHON) -m venv .venv
	rm -f src/elmo/_native/_kernel.*.so  # or one that no longer compiles would go unnoticed
	$(BIN)/pip install --quiet --constraint constraints.txt torch
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

demo: setup
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

docs: .venv/docs
	$(BIN)/mkdocs build --strict
	$(PYTEST) tests/docs

.venv/docs: .venv/installed
	$(BIN)/pip install --quiet --constraint constraints.txt 'elmo-torch[docs]'  # the package itself is there
	touch $@

clean:
	rm -rf .venv build site demo-run src/elmo/_native/_kernel.*.so
