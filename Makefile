# make reproduce     every figure and table of the paper, as a report; PRESET=quick, full, rehearsal,
#                    paper, cifar100 or comparison; ARGS for its flags
# make demo          the page of the service on what `make reproduce` left; ARGS for its flags
# make test          the tests; PYTEST_ARGS chooses among them
# make test-engines  the tests that need other engines, databases or Ray, which it installs
#                    (gigabytes)
# make test-slow     the tests that are too long for every change
# make test-benchmarks  the tests of the studies in benchmarks/
# make test-minimum  the tests with the oldest versions of our dependencies that we support
# make sanitize      the tests of the search engine under AddressSanitizer and UBSan; with
#                    SANITIZER=thread those that use threads, under ThreadSanitizer
# make kill          kills `save` and the scripts at 275 random moments: nothing may be lost
# make mutants       puts 60 small faults into the code: a test must find each
# make fuzz          damaged files and odd queries, for FUZZ_SECONDS (default 1200)
# make lint          ruff and mypy
# make install       the package with all that reproducing and testing need, into VENV
# make clean         removes what the others have made, except runs
# Each target makes what it needs first; PYTHON names the interpreter (3.10 or newer).

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
PYTEST_ARGS ?=
PRESET ?= quick
FUZZ_SECONDS ?= 1200
# As in setup.py: every folder with an __init__.py.
PACKAGES := $(patsubst %/__init__.py,%,$(wildcard */__init__.py))
# Files that nothing installs; each is a module by itself.
STUDIES := $(filter-out benchmarks/test_% benchmarks/conftest.py,$(wildcard benchmarks/*.py))
PIP_INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check \
  $(if $(CONSTRAINTS),--constraint $(CONSTRAINTS))

.PHONY: reproduce demo test test-engines test-minimum test-benchmarks test-slow sanitize fuzz kill mutants lint install clean
.DELETE_ON_ERROR:

reproduce: $(INSTALLED)
	$(BIN)/python -m sparse_embed.experiments.reproduce --extent=$(PRESET) $(ARGS)

demo: $(INSTALLED)
	$(BIN)/python -m sparse_embed.experiments.serve --run_dir=runs/reproduce/$(PRESET) --open_page $(ARGS)

test: $(INSTALLED)
	$(BIN)/pytest $(PYTEST_ARGS)

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@mkdir -p build/typing && ln -sfn ../.. build/typing/sparse_embed
	MYPYPATH=build/typing $(BIN)/mypy $(addprefix -p sparse_embed.,$(PACKAGES))
	MYPYPATH=build/typing:benchmarks $(BIN)/mypy $(STUDIES)

install: $(INSTALLED)

# Installed again only when the build, the compiled sources or the packages have changed.
SOURCES := $(wildcard */__init__.py retrieval/*.pyx retrieval/*.pxi retrieval/*.h retrieval/*.inc)
$(INSTALLED): setup.py pyproject.toml $(SOURCES) $(CONSTRAINTS)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "sparse-embed needs Python 3.10 or newer; name one with PYTHON=..." >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP_INSTALL) --editable '.[all,dev]'
	@touch $@

kill: $(INSTALLED)
	$(BIN)/python test/kills.py $(ARGS)

mutants: $(INSTALLED)
	PYTHONPATH=test $(BIN)/python -m mutants $(ARGS)

sanitize: $(INSTALLED)
	PYTHON=$(BIN)/python sh test/sanitize.sh

fuzz: $(INSTALLED)
	PYTHONPATH=test $(BIN)/python -m fuzz --seconds=$(FUZZ_SECONDS) $(ARGS)

test-engines: $(INSTALLED)
	$(PIP_INSTALL) --editable '.[all,dev,benchmark,distributed,export]'
	$(BIN)/pytest test benchmarks -m engines -rs $(PYTEST_ARGS)

test-slow: $(INSTALLED)
	$(BIN)/pytest -m slow $(PYTEST_ARGS)

test-benchmarks: $(INSTALLED)
	$(BIN)/pytest benchmarks $(PYTEST_ARGS)

test-minimum:
	$(MAKE) test VENV=.venv-minimum CONSTRAINTS=test/minimum-versions.txt

clean:
	rm -rf build dist *.egg-info retrieval/*.so $(VENV) .venv-minimum
