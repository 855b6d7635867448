# Short names for the checks; .ci/run runs all of them from a clean clone.
BIN ?= .venv/bin

.PHONY: test test-all lint format types layers site bench fuzz unmet

test:
	$(BIN)/pytest -n 2

test-all:
	$(BIN)/pytest -n 2 --all

lint:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format:
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types:
	$(BIN)/mypy

layers:
	$(BIN)/lint-imports
	$(BIN)/python -m tests.support.circles

site:
	$(BIN)/mkdocs build --strict -f docs/site/mkdocs.yml

bench:
	for benchmark in $(filter-out $(addprefix benchmarks/,fuzz.py command.py language.py second.py targets.py),$(wildcard benchmarks/*.py)); do $(BIN)/python "$$benchmark" || exit 1; done

fuzz:
	nice -n 19 $(BIN)/python benchmarks/fuzz.py --programs 10000 --functions 10000

unmet:
	nice -n 19 $(BIN)/python benchmarks/models.py --quick --second 2
	nice -n 19 $(BIN)/python benchmarks/command.py
