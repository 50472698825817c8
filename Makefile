# make demo     a small environment, and a diagnosis of the shipped sample; no torch
# make test     the whole environment, and the test suite; installs Chromium where there is none
# make lint     formatting, style, types
# make docs     write the generated parts of the documentation again
# make gate     the shipped samples against the policies beside them
# make bench    ratios against named peers
# make fuzz     damaged files of every kind, against every reader; another seed each day
# make samples  train the shipped samples again, into runs/
# make nightly  benchmarks, and the suite with long tests and many more random cases
# make wheel    the wheel, into dist/
#
# PYTHON=python3.12      another interpreter, 3.11 or newer
# CONSTRAINTS=/dev/null  the newest versions that pyproject.toml allows

PYTHON ?= python3
CONSTRAINTS ?= .ci/constraints.txt
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: browser demo test lint docs docs-check gate bench fuzz samples nightly wheel clean

demo: $(VENV)/.static
	$(BIN)/pjdiag mass
	$(BIN)/pjdiag loo --order 2
	$(BIN)/pjdiag probe --length 32768 --by model --no-decision

test: $(VENV)/.whole browser
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto -m "not nightly"

browser:
	@command -v chromium || command -v chromium-headless-shell || command -v google-chrome || \
		{ apt-get update -qq && \
		apt-get install -y -qq --no-install-recommends chromium-headless-shell; } || \
		{ echo "the tests of the report need Chromium: install it, then make test"; exit 1; }

lint: $(VENV)/.whole
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

docs: $(VENV)/.whole
	$(BIN)/python docs/generate.py

docs-check: $(VENV)/.whole
	$(BIN)/python docs/generate.py --check

gate: $(VENV)/.whole
	$(foreach policy,$(wildcard sample_checkpoints/*/gate.toml),\
		$(BIN)/pjdiag gate $(dir $(policy)) --policy $(policy) &&) true

bench: $(VENV)/.whole
	$(BIN)/python benchmarks/startup.py
	$(BIN)/python benchmarks/static.py
	$(BIN)/python benchmarks/kernel_lags.py
	$(BIN)/python benchmarks/long_context.py
	$(BIN)/python benchmarks/ablation.py
	$(BIN)/python benchmarks/capture.py
	$(BIN)/python benchmarks/loss.py

fuzz: $(VENV)/.whole
	$(BIN)/python benchmarks/fuzz.py all --cases 2000 --seed $$(date +%Y%j) --workers 2

SAMPLES := language-full language-rope language-rope-ntk-affine language-pj-rotary language-pope \
	language-alibi music-full music-lc-affine patched-llama \
	indirect-indexing-pope indirect-indexing-rope

samples: $(VENV)/.whole
	$(foreach name,$(SAMPLES),\
		$(BIN)/pjdiag train --sample $(name) -o runs/$(subst -,_,$(name)) &&) true
	$(BIN)/pjdiag reproduce adaptive-recovery

nightly: $(VENV)/.whole bench fuzz
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --hypothesis-profile nightly

wheel: $(VENV)/.whole
	rm -rf build dist
	$(BIN)/python -m build --no-isolation --wheel --outdir dist .

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "pjdiag needs Python 3.11 or newer; try: make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/.static: $(VENV)/.made pyproject.toml .ci/static.txt
	$(PIP) install --requirement .ci/static.txt
	$(PIP) install --no-deps --editable .
	touch $@

$(VENV)/.whole: $(VENV)/.made pyproject.toml $(CONSTRAINTS)
	$(PIP) install --constraint $(CONSTRAINTS) --editable ".[dev]"
	touch $@
