# gpulab: everything here needs only Python >= 3.11, pip and make.
#
#   VENV=dir          where the environment lives (default .venv)
#   PYTHON=python3.12 which Python makes it (an environment that is there is kept without this)
#   GPULAB_CUDA=none  CuPy for another CUDA than the driver's: 13, 12 or none
#   GPULAB_PYTHON=... run `test-gpu`, `bench` and `notebooks` with an environment of your own
#   ARGS="..."        more arguments for JupyterLab, pytest or the benchmark

VENV ?= .venv
PYTHON ?= python3
ARGS ?=
STAGES ?= unit processors types fake-gpu notebooks lint site browser

BIN := $(VENV)/bin
ENVIRONMENT = @$(PYTHON) -m tools.environment --venv $(VENV) $(if $(filter file,$(origin PYTHON)),--keep-python)
RUN = $(if $(GPULAB_PYTHON),$(GPULAB_PYTHON),$(BIN)/python)

.DEFAULT_GOAL := help
.PHONY: help lab test test-all test-fast test-lowest test-gpu test-browser lint format bench notebooks pictures docs shipped-ptx env env-test clean env-bench

help:  ## Show these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

lab: env  ## Set up and open the course in JupyterLab
	@$(BIN)/python -m gpulab.cli lab $(ARGS)

test: env-test  ## Set up and run everything: ruff, mypy, unit tests, notebooks, browser tests
	@GPULAB_CHROMIUM="$$($(PYTHON) -m tools.chromium)" $(BIN)/python -m tools.suite $(STAGES)

test-all: env-test  ## As `make test`, with all of the tests of which it takes a sample
	@GPULAB_TEST_ALL=1 GPULAB_CHROMIUM="$$($(PYTHON) -m tools.chromium)" $(BIN)/python -m tools.suite $(STAGES)

test-lowest: env-test  ## The oldest packages allowed, and the wheel without a checkout
	@$(BIN)/python -m tools.suite lowest

test-fast: env-test  ## ruff, mypy and the quick unit tests
	@$(BIN)/python -m tools.suite lint types fast

test-browser: env-test  ## The tests that drive a real JupyterLab in Chromium
	@GPULAB_CHROMIUM="$$($(PYTHON) -m tools.chromium)" $(BIN)/python -m tools.suite browser

test-gpu: $(if $(GPULAB_PYTHON),,env-test)  ## On a GPU machine: the GPU tests and the notebooks on that GPU
	@GPULAB_DEVICE=cuda:0 $(RUN) -m tools.suite gpu notebooks

lint: env-test  ## ruff and mypy only
	@$(BIN)/python -m tools.suite lint types

format: env-test  ## Format code and notebooks, fix what ruff can fix
	@$(BIN)/python -m ruff check --fix gpulab gpulab_course virtualgpu tests notebooks tools docs || true
	@$(BIN)/python -m ruff format gpulab gpulab_course virtualgpu tests notebooks tools docs

bench: $(if $(GPULAB_PYTHON),,env-bench)  ## Measure the engine, the JIT and the import time
	@$(RUN) -m tools.bench.table $(ARGS)

pictures: $(if $(GPULAB_PYTHON),,env-test)  ## Make the README's pictures, in a real JupyterLab, and the gallery's pages
	@GPULAB_DEVICE=$${GPULAB_DEVICE:-virtual:A100} $(RUN) -m tools.pictures $(ARGS)

notebooks: $(if $(GPULAB_PYTHON),,env-test)  ## Run every notebook again, keep its pictures, strip widget state
	@$(RUN) -m tools.notebooks $(ARGS)

docs: env-test  ## Build the site with all notebooks into build/site
	@$(BIN)/python -m tools.suite site

shipped-ptx: env-test  ## Compile the course's kernels in advance, for machines without NVRTC
	@$(BIN)/python -m tools.shipped_ptx $(ARGS)

env:
	$(ENVIRONMENT)

env-test:
	$(ENVIRONMENT) --groups test,docs

env-bench:
	$(ENVIRONMENT) --groups bench

clean:  ## Remove the environment, caches and build output
	rm -rf $(VENV) .venv-lowest build dist *.egg-info .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find gpulab gpulab_course virtualgpu tests notebooks tools -name __pycache__ -o -name .ipynb_checkpoints | xargs rm -rf
