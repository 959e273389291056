# Each target sets up all that it needs, in .venv beside this file.
PYTHON ?= python3
BIN := .venv/bin
# The suite runs on three workers, each with one thread: some tests wait for processes, and leave two cores idle.
WORKERS ?= 3

.PHONY: demo test test-product mutation causes lint bench clean

demo: .venv/run
	OMP_WAIT_POLICY=passive $(BIN)/python -m experiments.demo

test: .venv/dev
	OMP_NUM_THREADS=1 $(BIN)/pytest -n $(WORKERS) --dist worksteal

# Choices three and more at a time, for as long as you like.
N ?= 100
SEED ?=
test-product: .venv/dev
	OMP_NUM_THREADS=1 VARIANTS_PRODUCT=$(N) VARIANTS_SEED=$(SEED) $(BIN)/pytest tests/product

# Small faults put into the blocks, the models and the loss: how many do their tests find? A run that was stopped goes on.
MUTANTS ?= 400
MUTATION_SEED ?= 0
mutation: .venv/dev
	$(BIN)/python -m experiments.mutation --n $(MUTANTS) --seed $(MUTATION_SEED) --workers $(WORKERS)

# The cause of each fault that other projects had, put back: do the tests of that behaviour fail?
causes: .venv/dev
	$(BIN)/python -m experiments.causes --workers $(WORKERS)

lint: .venv/dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: .venv/run
	$(BIN)/python -m experiments.bench

clean:
	rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .mutation

.venv/run: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable .
	touch $@

.venv/dev: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@
