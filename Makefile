# Each target sets up what it needs: a virtual environment with the pinned, tested set of packages.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
LOWEST ?= .venv-lowest
DIST   ?= .venv-dist
PIP     = PIP_CONSTRAINT=constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/pip --quiet

.PHONY: demo test test-fast test-lowest dist check format bench hostile facts notebooks docs examples clean
.DEFAULT_GOAL := test

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "uulearn needs Python 3.11 or newer; set PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: $(BIN)/python pyproject.toml constraints.txt
	@echo "installing uulearn into $(VENV) (pinned set: constraints.txt)"
	$(PIP) install -e '.[plot,boosting]'
	@touch $@

$(VENV)/.dev: $(VENV)/.core
	@echo "installing the development tools into $(VENV)"
	$(PIP) install -e '.[dev]'
	@touch $@

demo: $(VENV)/.core          ## five methods on embedded data: a table, a figure, a saved model; tables to try the commands on
	$(BIN)/uulearn demo

# A worker that crashes ends the run: pytest-xdist may wait for ever after it has replaced one.
test: $(VENV)/.dev           ## every test, warnings as errors
	$(BIN)/python -m pytest -n 2 --dist loadfile --max-worker-restart 0

test-fast: $(VENV)/.dev      ## the fast tests, for every commit: under two minutes on two idle cores
	UULEARN_TEST_TIER=fast $(BIN)/python -m pytest -n 2 --dist worksteal --max-worker-restart 0 -m "not slow" tests src

# Old packages call deprecated functions of newer ones, so these warnings are no errors here. Dates after 2262 are the
# one thing that works only with newer versions: pandas 2 reads them as text, and the deselected test uses them.
$(LOWEST)/.installed: pyproject.toml constraints-lowest.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11) and "the lowest versions need Python 3.11; set PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(LOWEST)
	PIP_CONSTRAINT=constraints-lowest.txt $(LOWEST)/bin/pip --quiet install -e '.[plot,data,images,boosting,onnx,ray]' pytest pytest-xdist hypothesis openpyxl
	@touch $@

test-lowest: $(LOWEST)/.installed  ## a fast part of the tests with the oldest supported versions; about five minutes on two idle cores
	$(LOWEST)/bin/python tools/smoke_test.py
	UULEARN_TEST_TIER=fast $(LOWEST)/bin/python -m pytest -n 2 --max-worker-restart 0 -m "not slow" -W ignore::DeprecationWarning \
		--deselect tests/tabular/test_encoder.py::test_all_accepted_cells_become_finite \
		tests/risk tests/metrics tests/models tests/data tests/priors tests/theory tests/io tests/tabular tests/example_datasets tests/export tests/cli \
		tests/report tests/estimator/test_boosting.py tests/estimator/test_tables.py tests/estimator/test_persistence.py tests/estimator/test_inputs.py

$(DIST)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(DIST)
	PIP_CONSTRAINT=constraints.txt $(DIST)/bin/pip --quiet install 'build>=1.2' 'twine>=6'
	@touch $@

dist: $(DIST)/.installed     ## sdist and wheel in dist/, checked, installed into an empty environment and tried there
	rm -rf dist
	PIP_CONSTRAINT=constraints.txt $(DIST)/bin/python -m build
	$(DIST)/bin/python -m twine check --strict dist/*
	$(DIST)/bin/python tools/check_dist.py dist

check: $(VENV)/.dev          ## formatter, linter, vocabulary, workflows, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/python tools/check_vocabulary.py
	$(BIN)/python tools/check_workflows.py
	$(BIN)/mypy

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.dev          ## side-by-side speed and memory, stored as JSON under benchmarks/results
	$(BIN)/python benchmarks/run.py

hostile: $(VENV)/.dev        ## kills, damaged and hostile files, full disks: under 20 minutes on two idle cores; HOSTILE=--seed=1
	$(BIN)/python -m hostile $(HOSTILE)

facts: $(VENV)/.dev          ## write measured numbers from the stored records into the pages
	$(BIN)/python docs/building/fill_facts.py

notebooks: $(VENV)/.dev      ## run the start pages and write them as notebooks
	$(BIN)/python tools/make_notebooks.py

docs: $(VENV)/.dev           ## the documentation site in site/, warnings as errors, every link checked
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	$(BIN)/python docs/building/check_links.py site

examples: $(VENV)/.dev       ## the four examples on real data with all figures; needs Fashion-MNIST and CIFAR-10 in UULEARN_DATA
	$(BIN)/python examples/run_all.py

clean:
	rm -rf $(VENV) $(LOWEST) $(DIST) .pytest_cache .mypy_cache .ruff_cache .hypothesis dist site uulearn-demo
