# Two commands do everything: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test test-slow lint leaderboard clean

$(STAMP): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[test]'
	touch $(STAMP)

# One method under one budget on one model, attacked; then the whole board with this run on it.
demo: $(STAMP)
	$(BIN)/bench run wga --member p000 --budget 'kl<=0.05' --trial 1 --seed 0 --results results
	$(BIN)/leaderboard build --results leaderboard/results --results results --out site

test: $(STAMP) lint
	$(BIN)/python -m pytest -q -n 2

# Minutes rather than seconds: whole runs, kills, re-measured results.
test-slow: $(STAMP)
	$(BIN)/python -m pytest -q -m slow

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

leaderboard: $(STAMP)
	$(BIN)/leaderboard build --results leaderboard/results --out site --markdown LEADERBOARD.md

clean:
	rm -rf site results
