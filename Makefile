# Each target sets up .venv by itself; Python 3.11+, make and git are all it needs.
# pip is configured from outside (PIP_INDEX_URL and friends, pip.conf); nothing here names a registry.

PYTHON ?= python3
VENV   := .venv
# Where `make clients` puts what it gets from npm.
CLIENTS := .clients
AGENTS := @anthropic-ai/claude-code @openai/codex @agentclientprotocol/claude-agent-acp @agentclientprotocol/codex-acp \
	opencode-ai @google/gemini-cli
NODE_ARCH := $(if $(filter aarch64 arm64,$(shell uname -m)),arm64,x64)
DEMO    = .venv-demo
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
COMPILED := $(VENV)/.compiled
PYTEST := $(BIN)/python -m pytest
# Tests flush thousands of small databases, and in memory that takes half as long as on a disk. Only where there is room:
# a container has 64 MB there. What measures the disk or is killed for minutes stays on it (`alone`, chaos, soak).
ROOMY  := $(shell [ -w /dev/shm ] && [ "$$(df -Pk /dev/shm | awk 'NR == 2 {print $$4}')" -gt 4000000 ] && echo /dev/shm)
INMEMORY := $(if $(or $(TMPDIR),$(if $(ROOMY),,disk)),,TMPDIR=$(ROOMY) )$(PYTEST)
# Handed out one at a time, in our order, which begins with what takes longest; tests of a group go to one process
# (tests/conftest.py says which).
SHARED := $(INMEMORY) -n auto --dist loadgroup --no-loadscope-reorder
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
.PHONY: help venv test shared quick lint format pins docs bench race demo sim mutants clients peers chaos ordinary soak clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

venv: $(STAMP) ## make .venv with everything the other targets need

# $(PYTHON) when it is new enough, else the newest python3.N on PATH. A .venv that still runs is kept.
$(STAMP): pyproject.toml constraints.txt
	@$(call make_venv,$(VENV))
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[test]'
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
	$(INMEMORY) -n auto --maxschedchunk 1 -m 'realtime and not alone and not slow' $(TIMED) || [ $$? -eq 5 ]  # 5: there are none
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
	$(INMEMORY) -n "$$(nproc)" --maxschedchunk 4 --ignore tests/domain/service/test_classify.py $(ARGS) \
	    -m 'not realtime and not slow' -k 'not postgres and not kill and not equal_answers and not test_cuts' \
	    tests/domain tests/settings tests/timing tests/engine tests/flows tests/conformance tests/tidy

lint: $(STAMP) ## ruff, mypy, and the direction of imports
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

# In an environment of its own, so that what was installed by hand beside the rest is not written down.
pins: ## write constraints.txt anew: the newest versions that fit pyproject.toml; run the tests with them before you commit
	@rm -rf .venv-constraints && $(call make_venv,.venv-constraints)
	.venv-constraints/bin/python -m pip install --quiet --editable '.[test]'
	{ sed -n '/^#/p' constraints.txt; .venv-constraints/bin/python -m pip freeze --exclude-editable; } > constraints.new
	mv constraints.new constraints.txt
	rm -rf .venv-constraints

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
	ALLSWELL_PROCESS_TREES=1000 ALLSWELL_OUTPUT_MB=1000 $(PYTEST) tests/runtime/process $(ARGS)
	ALLSWELL_COORDINATOR_KILLS=50 $(PYTEST) --timeout 1200 tests/interfaces/cli/test_coordinate_kills.py $(ARGS)
	ALLSWELL_CHAT_BUILDERS=20 $(PYTEST) --timeout 600 tests/build/test_chat_storm.py $(ARGS)
	ALLSWELL_BUILD_STORMS=100 ALLSWELL_BUILD_SEEDS=20 $(PYTEST) tests/build/test_storm.py tests/build/test_kills.py $(ARGS)
	ALLSWELL_FLOW_CUTS=all $(PYTEST) tests/flows/run/test_kill.py $(ARGS)
	ALLSWELL_RUN_KILLS=100 ALLSWELL_OUTPUT_MB=1000 $(PYTEST) -k 'kill or lot' tests/interfaces/cli/test_run.py $(ARGS)
	ALLSWELL_TREES=100000 $(PYTEST) tests/properties/test_scope_trees.py $(ARGS)
	ALLSWELL_HTTP_WORKERS=200 ALLSWELL_HTTP_TASKS=5000 ALLSWELL_HTTP_KILLS=5 ALLSWELL_FOLLOWERS=1000 ALLSWELL_FOLLOWERS_SECONDS=30 \
	    ALLSWELL_RANDOM_REQUESTS=10000 ALLSWELL_DESCRIBED_CALLS=100 $(PYTEST) --timeout 1800 $(ARGS) \
	    tests/interfaces/http/test_fleet.py tests/interfaces/http/test_followers.py tests/interfaces/http/test_described.py tests/interfaces/http/test_security.py
	$(BIN)/python -m tests.crash.storm $(STORM)

# npm is configured from outside, as pip is.
# They run on a Node of their own: some take none below 22. Scenes wait for more than they compute, so two run at a time;
# one that fails beside others is tried once more by itself. All of one run make the table of docs/agents.md; with ARGS it
# stays as it is. ALLSWELL_RECORD=1 keeps what is said over ACP (tests/clients/wire.py).
clients: $(STAMP) ## the real coding agents, from npm, against the fake provider; writes the table in docs/agents.md
	npm install --no-audit --no-fund --prefix $(CLIENTS) node-linux-$(NODE_ARCH)@22 $(addsuffix @latest,$(AGENTS))
	$(CLIENTS)/node_modules/.bin/node $(CLIENTS)/node_modules/@anthropic-ai/claude-code/install.cjs
	$(CLIENTS)/node_modules/.bin/node $(CLIENTS)/node_modules/opencode-ai/postinstall.mjs
	$(if $(ARGS),,rm -rf $(CLIENTS)/cells)
	ALLSWELL_CLIENTS=$(CLIENTS)/node_modules/.bin $(PYTEST) -n 2 --maxschedchunk 1 -m slow $(or $(ARGS),tests/clients)
	$(if $(ARGS),,$(BIN)/python -m tests.clients.table $(CLIENTS)/cells)

# What the double of a chat server is held to; without ALLSWELL_AGENTCHAT only the double is asked.
peers: $(STAMP) ## a real AgentChat server, where ALLSWELL_AGENTCHAT=/path/to/its/bin.js names one: builds over it
	$(PYTEST) -rs $(or $(ARGS),tests/peers tests/interfaces/chat)

# Sixteen minutes are longer than any limit that the fleet has by default; they wait more than they compute.
ordinary: $(STAMP) ## twenty ordinary programs under bare `run` for sixteen minutes: none is ended; with --idle 30s those that hang
	ALLSWELL_ORDINARY_SECONDS=960 $(PYTEST) -n 2 --timeout 1500 tests/ordinary $(ARGS)

soak: $(STAMP) ## 200 agents for five minutes, one in five misbehaving; a supervisor killed 50 times; a page of 100,000 tasks
	ALLSWELL_PAGE_TASKS=100000 $(PYTEST) tests/interfaces/web/test_large.py
	ALLSWELL_SOAK_AGENTS=200 ALLSWELL_SOAK_SECONDS=300 ALLSWELL_SOAK_KILLS=50 $(PYTEST) tests/runtime/supervisor/test_soak.py $(ARGS)

clean: ## remove .venv and all that tools leave behind
	rm -rf $(VENV) $(DEMO) $(CLIENTS) build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
