# Everything a newcomer needs: `make demo` and `make test` set up .venv by themselves.
# Works with GNU make and BSD make. PYTHON=python3.13 chooses the interpreter of a new .venv.

PYTHON ?= python3
UPGRADE ?=
# Of `make test`: more than cores, since many tests wait for processes. A worker has services of its own.
WORKERS ?= 3
# Of `make chaos` and `make soak`.
SEED ?= 1
MINUTES ?= 30
# Of `make guards`: part of a name, a file or a test.
ONLY ?=
N8N_KIT = ../shared/n8n-kit
PY = .venv/bin/python
COMPILE = .venv/bin/uv pip compile --quiet --no-config --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --custom-compile-command "make lock" $(UPGRADE)

# uv reads neither pip's configuration nor, everywhere, the machine's certificates: where it fails, pip does the same work.
INSTALL = install() { \
	if [ -x .venv/bin/uv ] && .venv/bin/uv pip install --compile-bytecode --python $(PY) "$$@"; then return 0; fi; \
	echo "gristmill: uv cannot do this here, pip takes over"; \
	$(PY) -m pip install --disable-pip-version-check "$$@"; \
	}; install

.PHONY: help demo test check lint bench chaos soak guards n8n tesseract lock audit clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

demo: .venv/.run tesseract ## drop a folder of documents in, ask five questions, see an edit arrive
	@$(PY) demo/run.py

# The files with the longest tests come first, so that all workers end at about the same time.
test: .venv/.dev tesseract ## all tests, three at a time or WORKERS=n: unit, integration, acceptance, chaos
	@set --; for room in acceptance chaos integration unit; do \
		if [ -d tests/$$room ]; then set -- "$$@" tests/$$room; fi; \
	done; $(PY) -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder "$$@"

check: lint ## lint, types and unit tests: a minute before every commit
	@$(PY) -m pytest tests/unit -q

lint: .venv/.dev ## style, format and types
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy

bench: .venv/.run tesseract ## measure: latency, throughput, retrieval quality
	@$(PY) -m bench

chaos: .venv/.dev ## kill everything again and again while it is used, and look for losses; SEED=n: another run
	@$(PY) -m tests.chaos.chaos $(SEED)

soak: .venv/.dev ## updates and questions for MINUTES=30, and what grows meanwhile: memory, connections, index
	@$(PY) -m tests.chaos.soak --minutes $(MINUTES)

guards: .venv/.dev ## take out one guard after the other, in a copy, and see whether a test misses it; ONLY=text: some
	@$(PY) -m tests.guards "$(ONLY)"

n8n: .venv/.dev ## run the n8n workflows in a real n8n, which is installed once: 10-40 minutes, 3 GB
	@if [ ! -x .n8n/bin/n8n ]; then \
		if [ ! -f $(N8N_KIT)/setup.sh ]; then echo "gristmill: $(N8N_KIT)/setup.sh is needed and not there"; exit 1; fi; \
		echo "gristmill: installing n8n into .n8n, 10-40 minutes, 3 GB, once"; \
		bash $(N8N_KIT)/setup.sh .n8n; \
	fi
	@$(PY) -m pytest tests/acceptance/test_n8n.py

tesseract: ## install the OCR program and its languages where this may be done, else say how
	@sh deploy/install-tesseract.sh

lock: .venv/.boot ## resolve the locks again; UPGRADE=--upgrade takes newer releases
	@$(COMPILE) pyproject.toml -o requirements.lock
	@$(COMPILE) --group pyproject.toml:dev -c requirements.lock -o requirements-dev.lock
	@printf 'uv\nsetuptools>=77\n' | $(COMPILE) --no-annotate -c requirements.lock -o requirements-boot.lock -

audit: .venv/.boot ## look up known vulnerabilities of all that the locks pin; needs the network
	@for lock in requirements.lock requirements-dev.lock requirements-boot.lock; do \
		report=.venv/audit-$$lock.json; rm -f $$report; \
		if .venv/bin/uvx --quiet pip-audit --disable-pip --require-hashes --progress-spinner off --desc on \
			--format json --output $$report -r $$lock 2>.venv/audit.log; then \
			known=$$(grep -o '"vulns"' $$report | wc -l); unknown=$$(grep -o skip_reason $$report | wc -l); \
			if [ $$known -gt 0 ]; then \
				echo "gristmill: $$lock: no known vulnerability in $$known packages," \
					"$$unknown could not be looked up"; \
			else \
				echo "gristmill: $$lock was not audited, the service knows none of its $$unknown packages"; \
			fi; \
		elif [ -s $$report ]; then \
			cat .venv/audit.log; echo "gristmill: $$lock: see $$report"; exit 1; \
		else \
			echo "gristmill: $$lock was not audited, the service does not answer: $$(tail -n 1 .venv/audit.log)"; \
		fi; \
	done

clean: ## remove everything that make, the tests and the tools have made, .venv and .n8n too
	@rm -rf .venv .n8n build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis *.egg-info
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
