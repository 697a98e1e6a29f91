# Two commands matter: `make demo` and `make test`. Both do all their own set-up.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help install check test test-long coverage demo fuzz chaos bench spark-bench parts interop docs release-check clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(STAMP) ## Create .venv with Ariane and its development tools (uv when it is there, else venv + pip)

# The stamp is newer than pyproject.toml only after a complete install, so an interrupted one is done again.
$(STAMP): pyproject.toml scripts/install
	@PYTHON="$(PYTHON)" VENV="$(VENV)" sh scripts/install
	@touch $@

check: $(STAMP) ## Format, lint, types and the import contract
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

test: check ## Everything CI runs: check, then the tests
	@PYTEST=$(BIN)/pytest sh scripts/test

test-long: $(STAMP) ## The tests that take minutes: Spark clusters and Connect, killed drivers, all lessons
	@ARIANE_LONG=1 $(BIN)/pytest -m long

coverage: $(STAMP) ## The tests of `make test` with branch coverage; the figure is in CONTRIBUTING.md
	@$(BIN)/coverage erase
	@PYTEST="$(BIN)/coverage run --parallel-mode -m pytest" sh scripts/test
	@$(BIN)/coverage combine --quiet
	@$(BIN)/coverage report --skip-covered --sort=cover | tail -n 40

demo: $(STAMP) ## The main job end to end
	@$(BIN)/python -m examples.demo

fuzz: $(STAMP) ## The fuzz tests with a long budget (FUZZ_SECONDS=300)
	@ARIANE_FUZZ_SECONDS=$${FUZZ_SECONDS:-300} $(BIN)/pytest tests/fuzz

chaos: $(STAMP) ## 60,000 simulated groups; 200 kills; 500 bit flips; 500 damaged files; power cuts; 100 faults of replication (root)
	@ARIANE_SEEDS=$${ARIANE_SEEDS:-60000} $(BIN)/pytest tests/simulation/test_group_world.py
	@ARIANE_KILLS=200 ARIANE_FLIPS=500 $(BIN)/pytest tests/store/test_kill.py tests/store/commit_log/test_checked_blocks.py
	@ARIANE_ORDERED_KILLS=20 ARIANE_DELAYED_KILLS=20 $(BIN)/pytest tests/cluster/test_ordered_kill.py tests/cluster/test_delayed_kill.py
	@$(BIN)/python -m tests.chaos.kills 200
	@ARIANE_DAMAGES=500 $(BIN)/pytest tests/store/test_file_damage.py tests/broker/test_server_on_damaged_files.py
	@$(BIN)/python -m tests.chaos.power_cut
	@$(BIN)/python -m tests.chaos.replication 100

bench: $(STAMP) ## Beside Apache RocketMQ, NATS and Redis, for docs/performance.md (OPTIONS=--quick: a smoke run)
	@$(BIN)/python -m bench.compare $(OPTIONS)

spark-bench: $(STAMP) ## Spark's readers and writers beside Spark's own (OPTIONS="--only direct")
	@$(BIN)/python -m bench.spark $(OPTIONS)

parts: $(STAMP) ## Figures of wire, nameserver, store and index by themselves
	@$(BIN)/python -m bench.wire
	@$(BIN)/python -m bench.client_headers
	@$(BIN)/python -m bench.nameserver
	@$(BIN)/python -m bench.store
	@$(BIN)/python -m bench.index
	@$(BIN)/python -m bench.arrow

interop: $(STAMP) ## Apache's clients, brokers and mqadmin against ours, both ways (needs Java, Maven, Go); docs/compatibility.md
	@$(BIN)/python -m interop

docs: $(STAMP) ## The documentation as a site, in docs/_build (warnings are errors)
	@VENV="$(VENV)" sh scripts/docs

release-check: $(STAMP) ## Build sdist and wheel; install the wheel in an empty environment; run the README with it
	@$(BIN)/python scripts/release_check.py

clean: ## Remove the virtual environment and every cache
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis dist build
	find src -name __pycache__ -prune -exec rm -rf {} +
