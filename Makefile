# A fresh machine needs Python 3.11 or newer with venv, git and make. TORCH chooses the torch requirement:
# make demo TORCH=torch==2.13.0. uv installs where it is there, and pip with UV= or without it.
PYTHON ?= python3
VENV ?= .venv
TORCH ?= torch>=2.11
UV ?= $(shell command -v uv 2>/dev/null)
BIN := $(VENV)/bin
DEMO := $(VENV)/.demo
INSTALLED := $(VENV)/.installed
WORKERS ?= auto
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --durations 15

ifeq ($(UV),)
INSTALLER := pip
MAKE_VENV := $(PYTHON) -m venv $(VENV) && $(BIN)/python -m pip install --quiet --upgrade pip
INSTALL := PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --no-compile
else
INSTALLER := uv
MAKE_VENV := $(UV) venv --quiet --seed --allow-existing --python $(PYTHON) $(VENV)
INSTALL := $(UV) pip install --quiet --python $(BIN)/python
endif
# Python compiles what it imports, which is a fifth of what is installed: the first process for all later ones
unexport PYTHONDONTWRITEBYTECODE
COMPILE := $(BIN)/python -c "import bench.nn.backbone, bench.training.loop, scipy.stats, pandas"

.PHONY: install format lint types package test test-slow test-all test-long test-data lowest check verify bench demo docs clean

install: $(INSTALLED)

$(INSTALLED): pyproject.toml
	@echo "Installing what development needs, with $(INSTALLER): about 2 minutes, 2.3 GB (with CUDA several GB more)"
	$(MAKE_VENV)
	$(INSTALL) "$(TORCH)" -e ".[dev,docs,minilm,mteb,ray]"
	$(COMPILE)
	@touch $(DEMO) $@

$(DEMO): pyproject.toml
	@echo "Installing what the demo needs, with $(INSTALLER): about 1 minute, 1.3 GB (with CUDA several GB more)"
	$(MAKE_VENV)
	$(INSTALL) "$(TORCH)" -e .
	$(COMPILE)
	@touch $@

format: install
	$(BIN)/ruff check --fix . && $(BIN)/ruff format .

lint: install
	$(BIN)/ruff check . && $(BIN)/ruff format --check .

# mypy finds a package's parts by their place: a folder of links shows it where an installation has these three
TYPED := build/types/bench
types: install
	rm -rf $(TYPED) && mkdir -p $(TYPED) && touch $(TYPED)/__init__.py
	for name in baselines methods reports; do ln -s ../../../$$name $(TYPED)/$$name; done
	$(BIN)/mypy --scripts-are-modules bench $(TYPED)/baselines $(TYPED)/methods $(TYPED)/reports \
		tests benchmarks docs/generate.py docs/hooks.py setup.py .ci/check-release

package: install # sdist, and the wheel from it
	rm -rf build/dist
	$(BIN)/python -m build --quiet --no-isolation --outdir build/dist
	$(BIN)/twine check --strict build/dist/*
	$(BIN)/check-wheel-contents build/dist/*.whl

test: install
	$(PYTEST) --maxprocesses 8 -m "not slow and not long"

test-slow: install
	$(PYTEST) --maxprocesses 4 -m slow

test-all: install # both, in one start of the workers
	$(PYTEST) --maxprocesses 4 --durations 60 -m "not long"

test-long: install # what takes long, or has a cheaper one beside it: weekly.yml
	$(PYTEST) --maxprocesses 4 --durations 60 -m long

test-data: install # those that read evaluation data, which the others skip: BENCH_DATA=DIR make test-data
	@test -n "$(BENCH_DATA)" || { echo "make test-data needs BENCH_DATA=DIR (CONTRIBUTING.md, Evaluation data)"; exit 2; }
	$(PYTEST) --maxprocesses 4 -m "data and not long"

# The lower bounds of pyproject.toml, in an environment of their own; TORCH replaces torch's bound
LOWEST := build/lowest
lowest:
	@echo "Installing the oldest versions with uv: about 8 minutes, 5 GB"
	$(PYTHON) -m venv --clear $(LOWEST)
	$(LOWEST)/bin/python -m pip install --quiet uv
	echo "$(TORCH)" >$(LOWEST)/overrides.txt
	$(LOWEST)/bin/uv pip install --python $(LOWEST)/bin/python --resolution lowest-direct \
		--overrides $(LOWEST)/overrides.txt -e ".[dev,minilm]"
	sh tests/lowest.sh $(abspath $(LOWEST)/bin)

check: install
	$(BIN)/bench check --strict --allow-versions

verify: install # every committed record
	$(BIN)/bench verify results

bench: install
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks $(if $(DATA),--data $(DATA))

demo: $(DEMO)
	@echo "Training and evaluating JTCSE and TNCSE, five seeds each: about 3 minutes on two cores"
	$(BIN)/bench run --methods jtcse,tncse --seeds 1-5 --workers 2
	@echo "The report: some seconds"
	$(BIN)/bench report

docs: install
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) build .mypy_cache .pytest_cache .ruff_cache
