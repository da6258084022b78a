# `make run` and `make test` need nothing but Python 3.11+ and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# What depends on who runs it. tests/test_ci.py finds what is missing here.
RIGHTS := tests/tools tests/exec tests/cli/test_doctor.py tests/team/test_roster.py tests/storage/test_files.py \
  $(addprefix tests/redteam/, $(addsuffix .py, test_sandbox test_fails_closed test_git_layouts test_paths test_secrets test_floods))
# What depends on whether bwrap works.
SANDBOX := tests/exec/test_sandbox.py tests/tools/test_bash.py tests/cli/test_doctor.py tests/cli/test_slash_commands.py \
  tests/redteam/test_sandbox.py tests/redteam/test_fails_closed.py
NO_BWRAP := PATH="$$PWD/tests/redteam/no_sandbox:$$PATH"

.DEFAULT_GOAL := help
.PHONY: help run test check format pictures bench redteam rights soak clean

help: ## Show what can be made
	@sed -nE 's/^([a-z]+):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

run: $(VENV)/run.stamp ## Start teamcli here; options in ARGS="--continue"
	@$(BIN)/teamcli $(ARGS)

test: $(VENV)/dev.stamp ## Run the tests
	@# compiled once, program and tests alike: else every worker does all of it again
	@$(BIN)/python -m compileall -q teamcli & \
	  env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest --collect-only -qq > /dev/null; wait
	env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest -n auto --dist worksteal

check: $(VENV)/dev.stamp ## Formatter, linter, strict types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(VENV)/dev.stamp ## Put the code into shape
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

pictures: $(VENV)/dev.stamp ## Take the screenshots of the documentation
	$(BIN)/python -m pictures

bench: $(VENV)/dev.stamp ## Measure, against the floor and the naive loops
	$(BIN)/python -m bench.run

redteam: $(VENV)/dev.stamp ## The attacks, with and without a sandbox, as root and as an ordinary user
	$(BIN)/python -m pytest -n auto tests/redteam
	$(NO_BWRAP) $(BIN)/python -m pytest -n auto tests/redteam
	@[ "$$(id -u)" != 0 ] || .ci/as_user 'python -m pytest -n auto tests/redteam && \
	  $(NO_BWRAP) python -m pytest -n auto tests/redteam'

rights: $(VENV)/dev.stamp ## Tests that depend on rights: without bwrap, and as an ordinary user
	$(NO_BWRAP) $(BIN)/python -m pytest -n auto $(SANDBOX)
	@[ "$$(id -u)" != 0 ] || .ci/as_user 'python -m pytest -n auto $(RIGHTS) && \
	  $(NO_BWRAP) python -m pytest -n auto $(SANDBOX)'

soak: $(VENV)/dev.stamp ## The long crash and load tests, at full count
	TEAMCLI_SOAK=1 $(BIN)/python -m pytest -n auto -m "soak or soak_only" --timeout 3600

clean: ## Remove the virtual environment and caches
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(VENV)/run.stamp: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "teamcli needs Python 3.11 or newer; name one with: make PYTHON=python3.12" >&2; exit 1; }
	@echo "Setting up teamcli in $(VENV) (once) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(VENV)/dev.stamp: $(VENV)/run.stamp
	@echo "Installing what the tests need (once) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@
