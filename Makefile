# Each target sets up what it needs: a virtual environment with the pinned, tested set of packages.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP     = PIP_CONSTRAINT=constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/pip --quiet

.PHONY: demo test test-fast check format bench hostile facts notebooks docs examples clean
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

check: $(VENV)/.dev          ## formatter, linter, vocabulary, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/python tools/check_vocabulary.py
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

examples: $(VENV)/.dev       ## the three examples on real data with all figures; needs Fashion-MNIST in UULEARN_DATA
	$(BIN)/python examples/run_all.py

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis dist site uulearn-demo
