# Each target creates .venv on first use.
PYTHON ?= python3
TORCH  := torch==2.13.0
BIN    := .venv/bin
READY  := .venv/.ready
WORKERS ?= 2

.PHONY: demo serve test test-all repeat coverage check docs format clean

demo: $(READY)  ## fit a synthetic plant, stream it with drift and planted faults, list what was found
	$(BIN)/cometad demo

serve: $(READY)  ## run the live service; open http://127.0.0.1:8080
	$(BIN)/cometad serve

RUN := $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --durations=20

test: $(READY)  ## the tests and docstring examples of the product, on WORKERS cores
	$(RUN) -m "not servers" $(PYTEST)

test-all: $(READY)  ## `make test`, what needs servers, a browser or minutes, and the research in bench/
	$(RUN) tests src bench $(PYTEST)

WAITING := tests/serve tests/connect tests/fleet/test_engines.py tests/cli/test_resume.py tests/cli/test_exits.py
TIMES ?= 20

repeat: $(READY)  ## what waits for a server, a thread or a process: TIMES times alone, and TIMES times beside a busy core
	for i in $$(seq $(TIMES)); do $(BIN)/python -m pytest $(WAITING) -x $(PYTEST) || exit 1; done
	$(BIN)/python -c 'while True: pass' & busy=$$!; trap "kill $$busy" EXIT; \
	for i in $$(seq $(TIMES)); do $(BIN)/python -m pytest $(WAITING) -x $(PYTEST) || exit 1; done

coverage: $(READY)  ## every test with branch coverage, compared with the floor of each room; FLOOR=--write records it
	$(RUN) tests src bench --cov=cometad --cov-report=json:.coverage.json $(PYTEST)
	$(BIN)/python tests/coverage_floor.py .coverage.json $(FLOOR)

check: $(READY)  ## format, lint, types, import contract
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(READY)  ## build site/index.html; a warning is an error
	$(BIN)/sphinx-build --quiet --fresh-env --fail-on-warning --keep-going docs site
	@echo "Open site/index.html"

format: $(READY)  ## fix what `make check` would report, where that can be automated
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf .venv site

# Install torch first, from a CPU build: a local wheel if there is one, else through uv, which knows the index of CPU
# builds. As a dependency, pip would install the build with gigabytes of CUDA libraries.
$(READY): pyproject.toml bench/pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("cometad needs Python 3.11 to 3.14; run make PYTHON=python3.12") if not (3, 11) <= sys.version_info < (3, 15) else 0'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -c 'import importlib.metadata as m; m.version("torch")' 2>/dev/null \
	  || $(BIN)/pip install --quiet --no-index --no-deps $(TORCH) 2>/dev/null \
	  || { $(BIN)/pip install --quiet uv && $(BIN)/uv pip install --quiet --python $(BIN)/python --torch-backend cpu $(TORCH); }
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]' -e bench
	touch $@
