# `make demo` and `make test` need Python 3.11 or newer and nothing else: both set up `.venv` first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
LOWEST := .venv-lowest

.PHONY: setup demo test test-fast test-long test-lowest check bench docs release-check release clean

setup: $(STAMP)

# Updated only when the project's requirements change.
$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "phalanx needs Python 3.11 or newer: make PYTHON=/path/to/python"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $(STAMP)

demo: setup
	@rm -rf results/demo
	$(BIN)/phalanx train mappo battle/3m --steps 3e5 --out results/demo
	$(BIN)/phalanx plot results/demo
	@echo
	@echo "The scripted team that SMAC brings along, and the trained one, 256 battles each:"
	$(BIN)/phalanx eval heuristic battle/3m --episodes 256
	$(BIN)/phalanx eval results/demo --episodes 256
	@echo
	@echo "win_rate is the share of battles won by greedy play. The curve is in results/demo/plots/curves.png"

test: setup
	$(BIN)/python -m pytest

# Without slow tests, which train or play for long: tests/slow.txt lists them.
test-fast: setup
	$(BIN)/python -m pytest -m 'not slow'

# The fast tests again, with the lowest versions that pyproject.toml allows.
test-lowest:
	$(PYTHON) -m venv --clear $(LOWEST)
	$(LOWEST)/bin/python -m pip install --quiet uv
	$(LOWEST)/bin/uv pip install --quiet --python $(LOWEST)/bin/python --resolution lowest-direct --editable '.[dev]'
	$(LOWEST)/bin/python -m pytest -m 'not slow'

# The same tests with five killed runs instead of one, ten times as many random draws, and every battle.
test-long: setup
	PHALANX_LONG=1 $(BIN)/python -m pytest

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/lint-imports

# The site, in build/site; a broken link or an undocumented public name fails. Replays are made first, if they are
# older than phalanx.
docs: setup
	$(BIN)/python docs/replays.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "build/site/index.html"

bench: setup
	$(BIN)/python benchmarks/speed.py
	$(BIN)/python benchmarks/startup.py
	$(BIN)/python -m pip install --quiet --editable '.[bench]'
	$(BIN)/python benchmarks/battle.py
	$(BIN)/python benchmarks/mpe.py

# Builds wheel and sdist, and tries them in empty environments of Python 3.11, 3.12 and 3.13, or of those that are
# named: PYTHONS="python3.12 /opt/python3.13/bin/python3".
PYTHONS ?=
release-check:
	$(PYTHON) tools/release_check.py $(PYTHONS)

# The same, with all three Pythons, and then the annotated tag of the version. Nothing is pushed.
release:
	$(PYTHON) tools/release_check.py --tag $(PYTHONS)

clean:
	rm -rf $(VENV) $(LOWEST) results build dist *.egg-info
