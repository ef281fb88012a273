# make reproduce   every figure and table of the paper, as a report; PRESET=quick, full or paper
# make test        the tests          make lint     ruff and mypy
# make sanitize    the tests of the search engine under AddressSanitizer and UBSan
# make test-minimum  the tests with the oldest versions of our dependencies that we support
# Each target makes what it needs first; PYTHON names the interpreter (3.10 or newer).

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
PYTEST_ARGS ?=
PRESET ?= quick
PACKAGES := common datasets experiments flags losses models retrieval

.PHONY: reproduce test test-minimum sanitize lint install clean
.DELETE_ON_ERROR:

reproduce: $(INSTALLED)
	$(BIN)/python -m sparse_embed.experiments.reproduce --extent=$(PRESET) $(ARGS)

test: $(INSTALLED)
	$(BIN)/pytest $(PYTEST_ARGS)

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@mkdir -p build/typing && ln -sfn ../.. build/typing/sparse_embed
	MYPYPATH=build/typing $(BIN)/mypy $(addprefix -p sparse_embed.,$(PACKAGES))

install: $(INSTALLED)

# Installed again only when the build or the compiled sources have changed.
$(INSTALLED): setup.py pyproject.toml $(wildcard retrieval/*.pyx retrieval/*.h retrieval/*.inc) $(CONSTRAINTS)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "sparse-embed needs Python 3.10 or newer; name one with PYTHON=..." >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
	  $(if $(CONSTRAINTS),--constraint $(CONSTRAINTS)) --editable '.[dev]'
	@touch $@

sanitize: $(INSTALLED)
	PYTHON=$(BIN)/python sh test/sanitize.sh

test-minimum:
	$(MAKE) test VENV=.venv-minimum CONSTRAINTS=test/minimum-versions.txt

clean:
	rm -rf build dist *.egg-info retrieval/*.so $(VENV) .venv-minimum
