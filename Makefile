# Set-up, book and tests from a bare machine: Python 3.11 or later and pip are enough.
#   make run    execute the whole book in the quick profile      (PROFILE=desk, IDS="13", JOBS=2)
#   make test   tests, and every quick notebook
#   make lab    open JupyterLab on the notebooks
#   make lint   check sources and notebooks without running them
#   make setup  only create .venv
PYTHON ?= python3
EXTRAS ?= test
PROFILE ?= quick
IDS ?=
JOBS ?=
BIN := .venv/bin
comma := ,
STAMP := .venv/.ready-$(subst $(comma),-,$(EXTRAS))
PIP := $(BIN)/python -m pip install --disable-pip-version-check -q -c constraints.txt

.PHONY: run test lab lint setup clean
run: setup
	$(BIN)/paclab run $(IDS) --profile $(PROFILE) $(if $(JOBS),--jobs $(JOBS))

test: setup
	$(BIN)/paclab lint
	$(BIN)/python -m pytest

lab: setup
	$(BIN)/jupyter lab --notebook-dir=. notebooks/00_start_here.ipynb

lint: setup
	$(PIP) ruff
	$(BIN)/ruff check .
	$(BIN)/paclab lint

setup: $(STAMP)

# Installed again only when the requirements changed, or when the package is not importable.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "paclab needs Python 3.11 or later; run make PYTHON=/path/to/python3.12" >&2; exit 2; }
	@echo "setting up .venv (a few minutes the first time)"
	$(PYTHON) -m venv .venv
	$(PIP) -e ".[$(EXTRAS)]"
	@touch $@

clean:
	rm -rf runs .venv build dist *.egg-info
