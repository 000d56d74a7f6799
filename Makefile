# Each target sets up .venv by itself; Python 3.11+, make and git are all it needs.
# pip is configured from outside (PIP_INDEX_URL and friends, pip.conf); nothing here names a registry.

PYTHON ?= python3
VENV   := .venv
# Where `make clients` puts what it gets from npm.
CLIENTS := .clients
DEMO    = .venv-demo
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
COMPILED := $(VENV)/.compiled
PYTEST := $(BIN)/python -m pytest
# Handed out a few at a time, or one process would be given everything that is begun first because it takes long.
SHARED := $(PYTEST) -n auto --maxschedchunk 4
# More for pytest or the script behind a target: make test ARGS="-k lease -x"
ARGS   ?=
# Where the tests are that measure time: to collect the others with them would take longer than some of these do.
TIMED   = $(or $(ARGS),$(shell grep -rl 'mark\.realtime' tests --include='test_*.py'))
ALONE   = $(or $(ARGS),$(shell grep -rl 'mark\.alone' tests --include='test_*.py'))
# What the storm of `make chaos` is told: make chaos STORM="--minutes 2 --store postgres --seed 7"
STORM  ?= --minutes 10 --store both

# The tests start many processes, and each would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help venv test shared quick lint format docs bench race demo sim mutants clients chaos soak clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

venv: $(STAMP) ## make .venv with everything the other targets need

# $(PYTHON) when it is new enough, else the newest python3.N on PATH. A .venv that still runs is kept.
$(STAMP): pyproject.toml
	@$(call make_venv,$(VENV))
	$(BIN)/python -m pip install --quiet --editable '.[test]'
	@touch $@

define make_venv
$(1)/bin/python -c '' 2>/dev/null && exit; \
for python in $(PYTHON) python3.14 python3.13 python3.12 python3.11; do \
    "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue; \
    echo "$(1): $$("$$python" --version), from $$(command -v "$$python")"; \
    exec "$$python" -m venv --clear $(1); \
done; \
echo "Allswell needs Python 3.11 or newer, and neither $(PYTHON) nor python3.11 to python3.14 is." >&2; \
echo "Install one, or name one: make PYTHON=/path/to/python3.12 $(MAKECMDGOALS)" >&2; \
exit 1
endef

test: $(STAMP) ## lint, and every test but the slow ones; those that measure time come last
	@$(MAKE) --no-print-directory -j2 lint shared
	$(PYTEST) -n auto --maxschedchunk 1 -m 'realtime and not alone and not slow' $(TIMED) || [ $$? -eq 5 ]  # 5: there are none
	$(PYTEST) -m 'alone and not slow' $(ALONE) || [ $$? -eq 5 ]

# In a fresh clone every process would compile all tests at the same moment; so one of them does it for all, beside mypy.
# What it may complain of, the tests say.
$(COMPILED): $(STAMP)
	@$(PYTEST) --collect-only -qq >/dev/null 2>&1 || true
	@touch $@

# Beside mypy, which keeps one processor busy for as long as it takes.
shared: $(COMPILED)
	$(SHARED) -m 'not realtime and not slow' $(ARGS)

# The core, the engine and the stores that need no server; what takes long is left to `make test`, and so is what imports
# the libraries of providers. One process for each core: these tests wait for nothing.
quick: $(STAMP) ## ruff, and half of the tests in under a minute, for whoever is working
	$(BIN)/ruff check
	$(PYTEST) -n "$$(nproc)" --maxschedchunk 4 --ignore tests/domain/test_classify.py $(ARGS) \
	    -m 'not realtime and not slow' -k 'not postgres and not kill and not equal_answers and not test_cuts' \
	    tests/domain tests/settings tests/timing tests/engine tests/flows tests/conformance tests/tidy

lint: $(STAMP) ## ruff, mypy, and the direction of imports
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP) ## put the code into its one shape, and fix what ruff can fix
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

docs: $(STAMP) ## write what is generated under docs/: states, commands, settings, events, errors
	$(BIN)/python docs/generate.py

bench: $(STAMP) ## measure, beside the raw drivers' limit in the same run
	$(BIN)/python bench/run.py $(ARGS)

race: $(STAMP) ## race against the peers, each in an environment of its own from PyPI
	PYTHONPATH=bench $(BIN)/python -m race $(ARGS)

# A stranger's first command: two small packages, and nothing of what the tests need. With .venv there, that will do.
demo: ## see it at work: an agent hangs, its work is kept, comes back, and gets done
	@if [ -e $(STAMP) ]; then exec $(BIN)/python -m allswell.demo $(ARGS); fi; \
	if [ ! -e $(DEMO)/made ]; then \
	    ( $(call make_venv,$(DEMO)) ) && $(DEMO)/bin/python -m pip install --progress-bar on --editable . \
	        | grep -E '^(Collecting|Downloading|Successfully)' && touch $(DEMO)/made || exit 1; \
	fi; \
	exec $(DEMO)/bin/python -m allswell.demo $(ARGS)

sim: $(STAMP) ## simulation in full: a thousand hours, every seed kept, and fresh ones; and long scripts on every store
	$(SHARED) tests/sim $(ARGS)
	ALLSWELL_SEQUENCES=1000 $(SHARED) --timeout 600 tests/engine/test_equal_answers.py $(ARGS)
	ALLSWELL_MESH_REQUESTS=100000 $(PYTEST) --timeout 3600 tests/sim/test_mesh.py $(ARGS)

mutants: $(STAMP) ## small mistakes put into the core, one at a time: which of them would no test notice?
	$(BIN)/python -m tests.mutation $(ARGS)

chaos: $(STAMP) ## kill -9 loops, zombies, 50 callers, restarts, process trees, 100,000 scope trees; then ten minutes of storm on each store
	ALLSWELL_KILLS=100 ALLSWELL_MIXED_SECONDS=60 ALLSWELL_CALLERS=50 $(PYTEST) tests/crash $(ARGS)
	ALLSWELL_WORKER_STORM_SECONDS=600 $(PYTEST) --timeout 1200 tests/worker/test_storm.py $(ARGS)
	ALLSWELL_PROCESS_TREES=1000 ALLSWELL_OUTPUT_MB=1000 $(PYTEST) tests/runtime/warden $(ARGS)
	ALLSWELL_COORDINATOR_KILLS=50 $(PYTEST) --timeout 1200 tests/doors/cli/test_coordinate_kills.py $(ARGS)
	ALLSWELL_BUILD_STORMS=100 ALLSWELL_BUILD_SEEDS=20 $(PYTEST) tests/build/test_storm.py tests/build/test_kills.py $(ARGS)
	ALLSWELL_FLOW_CUTS=all $(PYTEST) tests/flows/run/test_kill.py $(ARGS)
	ALLSWELL_RUN_KILLS=100 ALLSWELL_OUTPUT_MB=1000 $(PYTEST) -k 'kill or lot' tests/doors/cli/test_run.py $(ARGS)
	ALLSWELL_TREES=100000 $(PYTEST) tests/properties/test_scope_trees.py $(ARGS)
	ALLSWELL_HTTP_WORKERS=200 ALLSWELL_HTTP_TASKS=5000 ALLSWELL_HTTP_KILLS=5 ALLSWELL_FOLLOWERS=1000 ALLSWELL_FOLLOWERS_SECONDS=30 \
	    ALLSWELL_RANDOM_REQUESTS=10000 ALLSWELL_DESCRIBED_CALLS=100 $(PYTEST) --timeout 1800 $(ARGS) \
	    tests/doors/http/test_fleet.py tests/doors/http/test_followers.py tests/doors/http/test_described.py tests/doors/http/test_security.py
	$(BIN)/python -m tests.crash.storm $(STORM)

# npm is configured from outside, as pip is.
clients: $(STAMP) ## the real Claude Code and Codex, from npm, against the fake provider: done, hang, limit, cost, MCP
	npm install --no-audit --no-fund --prefix $(CLIENTS) @anthropic-ai/claude-code @openai/codex
	node $(CLIENTS)/node_modules/@anthropic-ai/claude-code/install.cjs
	ALLSWELL_CLIENTS=$(CLIENTS)/node_modules/.bin $(PYTEST) -m slow $(or $(ARGS),tests/clients)

soak: $(STAMP) ## 200 agents for five minutes, one in five misbehaving; a supervisor killed 50 times; a page of 100,000 tasks
	ALLSWELL_PAGE_TASKS=100000 $(PYTEST) tests/doors/page/test_large.py
	ALLSWELL_SOAK_AGENTS=200 ALLSWELL_SOAK_SECONDS=300 ALLSWELL_SOAK_KILLS=50 $(PYTEST) tests/runtime/supervisor/test_soak.py $(ARGS)

clean: ## remove .venv and all that tools leave behind
	rm -rf $(VENV) $(DEMO) $(CLIENTS) build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
