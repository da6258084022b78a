# `make run` and `make test` need nothing but Python 3.11+ and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Tests that depend on the user who runs them. tests/test_ci.py finds missing ones.
RIGHTS := tests/tools tests/exec tests/worktrees tests/cli/test_worktrees.py tests/cli/test_doctor.py tests/team/test_roster.py tests/storage/test_files.py \
  tests/store/test_private_server.py \
  $(addprefix tests/redteam/, $(addsuffix .py, test_sandbox test_fails_closed test_git_layouts test_paths test_secrets test_floods \
  test_worktrees))
# Tests that depend on whether bwrap works.
SANDBOX := tests/exec/test_sandbox.py tests/tools/test_bash.py tests/cli/test_doctor.py tests/cli/test_slash_commands.py \
  tests/cli/test_worktrees.py \
  $(addprefix tests/redteam/, $(addsuffix .py, test_sandbox test_fails_closed test_worktrees))
NO_BWRAP := PATH="$$PWD/tests/redteam/no_sandbox:$$PATH"

.DEFAULT_GOAL := help
.PHONY: help run test check format pictures bench redteam rights soak interop clean

help: ## List the targets
	@sed -nE 's/^([a-z]+):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

run: $(VENV)/run.stamp ## Start teamcli here; pass options with ARGS="--continue"
	@$(BIN)/teamcli $(ARGS)

test: $(VENV)/dev.stamp ## Run the tests
	@# Compile program and tests once; otherwise every worker would compile all of it.
	@$(BIN)/python -m compileall -q teamcli & \
	  env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest --collect-only -qq > /dev/null; wait
	env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest -n auto --dist worksteal

check: $(VENV)/dev.stamp ## Check format, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(VENV)/dev.stamp ## Format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

pictures: $(VENV)/dev.stamp ## Make the pictures of the documentation
	$(BIN)/python -m pictures

bench: $(VENV)/dev.stamp ## Run the benchmarks
	$(BIN)/python -m bench.run

redteam: $(VENV)/dev.stamp ## Run the attacks, with and without a sandbox, as root and as an ordinary user
	$(BIN)/python -m pytest -n auto tests/redteam
	$(NO_BWRAP) $(BIN)/python -m pytest -n auto tests/redteam
	@[ "$$(id -u)" != 0 ] || .ci/as_user 'python -m pytest -n auto tests/redteam && \
	  $(NO_BWRAP) python -m pytest -n auto tests/redteam'

rights: $(VENV)/dev.stamp ## Run tests that depend on rights: without bwrap, and as an ordinary user
	$(NO_BWRAP) $(BIN)/python -m pytest -n auto $(SANDBOX)
	@[ "$$(id -u)" != 0 ] || .ci/as_user 'python -m pytest -n auto $(RIGHTS) && \
	  $(NO_BWRAP) python -m pytest -n auto $(SANDBOX)'

soak: $(VENV)/dev.stamp ## Run the long crash and load tests at full count
	TEAMCLI_SOAK=1 $(BIN)/python -m pytest -n auto -m "soak or soak_only" --dist worksteal --timeout 3600

interop: $(VENV)/dev.stamp ## Run the tests with foreign programs, which are installed first
	TEAMCLI_INTEROP=1 $(BIN)/python -m pytest -m interop --timeout 600 tests/interop

clean: ## Remove the virtual environment and caches
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(VENV)/run.stamp: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "teamcli needs Python 3.11 or newer; choose one with: make PYTHON=python3.12 run" >&2; exit 1; }
	@echo "Setting up teamcli in $(VENV) (once) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(VENV)/dev.stamp: $(VENV)/run.stamp
	@echo "Installing the test dependencies (once) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@
