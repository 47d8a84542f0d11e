# make setup | demo | demo-mi | test | test-browser | soak | lint | bench        VENV=path uses another environment (one takes 6.5 GB)
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
# One torch thread a process: with more, small models wait for each other on shared cores.
export OMP_NUM_THREADS ?= 1
export PATH := $(abspath $(BIN)):$(PATH)

.PHONY: setup demo demo-mi test test-browser soak lint bench
.DELETE_ON_ERROR:

setup: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[test]'
	touch $@

demo: setup  ## data, labels, pairs, training, evaluation, on drawings
	$(BIN)/python -m eval.demo

# The tests of a file stay together, two processes or more at once; the demo, which takes longest, goes first.
test: setup
	$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder

demo-mi: setup  ## model inversion on drawn faces: attacks, what a classifier says of them, what a judge that looks says
	$(BIN)/python -m eval.model_inversion.demo.run

test-browser: setup  ## the report pages in headless Chromium (needs the packages chromium and chromium-driver)
	$(BIN)/python -m pytest -m browser

soak: setup  ## what takes too long for every day: thirty random kills
	$(BIN)/python -m pytest -m soak

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: setup  ## the measurements behind the numbers in the README
	$(BIN)/python benchmarks/sft_step.py
	$(BIN)/python benchmarks/sft_parts.py
	$(BIN)/python benchmarks/eval_speed.py
	$(BIN)/python benchmarks/mi_calls.py
	$(BIN)/python benchmarks/mi_panels.py
	$(BIN)/python benchmarks/mi_coverage.py --rounds 200
	$(BIN)/python benchmarks/image_cache.py
