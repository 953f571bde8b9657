# Everything a newcomer needs: `make demo` and `make test` set up .venv by themselves.
# Works with GNU make and BSD make. PYTHON=python3.13 chooses the interpreter of a new .venv.

PYTHON ?= python3
UPGRADE ?=
PY = .venv/bin/python
COMPILE = .venv/bin/uv pip compile --quiet --no-config --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --custom-compile-command "make lock" $(UPGRADE)

# uv reads neither pip's configuration nor, everywhere, the machine's certificates: where it fails, pip does the same work.
INSTALL = install() { \
	if [ -x .venv/bin/uv ] && .venv/bin/uv pip install --compile-bytecode --python $(PY) "$$@"; then return 0; fi; \
	echo "gristmill: uv cannot do this here, pip takes over"; \
	$(PY) -m pip install --disable-pip-version-check "$$@"; \
	}; install

.PHONY: help demo test check lint bench tesseract lock clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

demo: .venv/.run tesseract ## drop a folder of documents in, ask five questions, see an edit arrive
	@$(PY) demo/run.py

test: .venv/.dev tesseract ## all tests: unit, integration, acceptance, chaos
	@set --; for room in unit integration acceptance chaos; do \
		if [ -d tests/$$room ]; then set -- "$$@" tests/$$room; fi; \
	done; $(PY) -m pytest "$$@"

check: lint ## lint, types and unit tests: a minute before every commit
	@$(PY) -m pytest tests/unit -q

lint: .venv/.dev ## style, format and types
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy

bench: .venv/.run tesseract ## measure: latency, throughput, retrieval quality
	@$(PY) -m bench

tesseract: ## install the OCR program and its languages where this may be done, else say how
	@sh deploy/install-tesseract.sh

lock: .venv/.boot ## resolve the locks again; UPGRADE=--upgrade takes newer releases
	@$(COMPILE) pyproject.toml -o requirements.lock
	@$(COMPILE) --group pyproject.toml:dev -c requirements.lock -o requirements-dev.lock
	@printf 'uv\nsetuptools>=77\n' | $(COMPILE) --no-annotate -c requirements.lock -o requirements-boot.lock -

clean: ## remove everything that make, the tests and the tools have made, .venv too
	@rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis *.egg-info
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/.boot: requirements-boot.lock
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 15))' || { \
		echo "gristmill needs Python 3.11 to 3.14, '$(PYTHON)' is not one; choose with: make PYTHON=python3.12 ..."; \
		exit 1; }
	@$(PYTHON) -m venv .venv || { \
		echo "gristmill: '$(PYTHON) -m venv' failed; on Debian and Ubuntu: sudo apt-get install python3-venv"; exit 1; }
	@$(PY) -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-boot.lock || \
		echo "gristmill: uv is not to be had here, pip does its work (slower)"
	@touch $@

.venv/.run: .venv/.boot requirements.lock pyproject.toml
	@echo "gristmill: installing into .venv, about 1.5 GB, once"
	@$(INSTALL) --require-hashes -r requirements.lock
	@$(INSTALL) --quiet --no-deps --no-build-isolation -e .
	@touch $@

.venv/.dev: .venv/.run requirements-dev.lock
	@$(INSTALL) --require-hashes -r requirements-dev.lock
	@touch $@
