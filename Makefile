# Two commands do everything: `make demo` and `make test`. Both set up .venv by themselves.
#
# PYTHON  the interpreter to build .venv from (>= 3.11)
# TORCH   what to install when that interpreter has no torch >= 2.6 of its own; a GPU machine's torch is kept

# Bytecode is kept whatever the caller's environment says: hundreds of processes are started.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= python3
TORCH ?= torch==2.13.0
BIN := .venv/bin
# Eight processes keep two cores busy, since many tests wait for a time. One that dies is not replaced: it fails the run,
# with the name of its test.
PARALLEL := -n 8 --dist loadfile --no-loadscope-reorder --max-worker-restart 0

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint types unit test-all gpu-test trust docs clean

help:  ## Show this help
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: .venv/ready  ## Create .venv with everything the project needs

.venv/ready: pyproject.toml Makefile
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "error: $(PYTHON) is older than 3.11; run make PYTHON=python3.12"; exit 2; }
	@if $(PYTHON) -c 'import torch; v = tuple(map(int, torch.__version__.split("+")[0].split(".")[:2])); assert v >= (2, 6)' 2>/dev/null; \
	 then echo "using the torch that $(PYTHON) already has"; $(PYTHON) -m venv --system-site-packages .venv; \
	 else $(PYTHON) -m venv .venv && $(BIN)/python -m pip install --quiet --no-compile "$(TORCH)"; fi
	$(BIN)/python -m pip install --quiet --no-compile --editable '.[dev]'
	@touch $@

demo: .venv/ready  ## Optimise residual + RMSNorm on this machine, in under two minutes
	@$(BIN)/warpsmith demo

test: lint  ## Everything CI checks
	@$(MAKE) --no-print-directory -j2 types unit

lint: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/ready
	$(BIN)/mypy

unit: .venv/ready
	$(BIN)/python -m tests.watched $(PARALLEL)

test-all: .venv/ready  ## Every test, the slow ones too
	$(BIN)/python -m tests.watched --limit-s 3600 $(PARALLEL) -m ""

gpu-test: .venv/ready  ## The tests that need an NVIDIA GPU
	$(BIN)/pytest -m gpu tests/gpu

trust: .venv/ready  ## Write docs/trust.md anew from the attack corpus
	$(BIN)/python -m tests.attacks.trust

docs: .venv/ready  ## Build the site of the documentation into site/, and fail on a link that leads nowhere
	@$(BIN)/python -c "import material, mkdocstrings" 2>/dev/null || $(BIN)/python -m pip install --quiet --editable '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

clean:  ## Remove .venv and caches of tools
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis dist build site
