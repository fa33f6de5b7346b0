# A fresh machine needs Python 3.11 or newer with venv, git and make. TORCH chooses the torch requirement,
# installed first: make demo TORCH=torch==2.13.0
PYTHON ?= python3
VENV ?= .venv
TORCH ?= torch>=2.11
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
WORKERS ?= auto
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --durations 15

.PHONY: install format lint types test test-slow test-all check verify bench demo docs clean

install: $(STAMP)

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet "$(TORCH)"
	$(BIN)/python -m pip install --quiet -e ".[dev,docs,minilm,mteb,ray]"
	touch $@

format: install
	$(BIN)/ruff check --fix . && $(BIN)/ruff format .

lint: install
	$(BIN)/ruff check . && $(BIN)/ruff format --check .

types: install
	$(BIN)/mypy bench tests benchmarks docs/generate.py docs/hooks.py

test: install
	$(PYTEST) --maxprocesses 8 -m "not slow and not long"

test-slow: install
	$(PYTEST) --maxprocesses 4 -m slow

test-all: install # both, in one start of the workers
	$(PYTEST) --maxprocesses 4 --durations 40 -m "not long"

check: install
	$(BIN)/bench check --strict

verify: install # every committed record
	$(BIN)/bench verify results

bench: install
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks $(if $(DATA),--data $(DATA))

demo: install
	$(BIN)/bench run --methods jtcse,tncse --seeds 1-5 --workers 2
	$(BIN)/bench report

docs: install
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) build .mypy_cache .pytest_cache .ruff_cache
