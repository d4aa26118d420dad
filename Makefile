PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DATA ?= ../shared/data

.PHONY: demo test slow lint bench clean help

help:  ## what can be made
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

$(READY): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $(READY)

demo: $(READY)  ## compress, fit, certify and compare on an embedded data set; writes demo-report/
	$(BIN)/tithe demo --output demo-report

test: $(READY) lint  ## lint and all tests that take seconds
	$(BIN)/python -m pytest -n 2

slow: $(READY)  ## the tests that take minutes
	$(BIN)/python -m pytest -m slow

lint: $(READY)  ## ruff, mypy, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

bench: $(READY)  ## the benchmarks, on the data in DATA=DIR
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[bench]'
	$(BIN)/python benchmarks/clustering.py --data $(DATA)
	$(BIN)/python benchmarks/building.py
	$(BIN)/python benchmarks/files.py
	$(BIN)/python benchmarks/logistic.py --data $(DATA)
	$(BIN)/python benchmarks/break_even.py --data $(DATA)
	$(BIN)/python benchmarks/certificates.py
	$(BIN)/python benchmarks/logistic_paper.py --data $(DATA)
	$(BIN)/python benchmarks/logistic_search.py --data $(DATA)
	$(BIN)/python benchmarks/margin_coresets.py --data $(DATA)
	$(BIN)/python benchmarks/odm.py --data $(DATA)
	$(BIN)/python benchmarks/odm_linear.py --data $(DATA)
	$(BIN)/python benchmarks/odm_svrg.py --data $(DATA)
	$(BIN)/python benchmarks/photographs.py --data $(DATA)
	$(BIN)/python benchmarks/film.py
	$(BIN)/python benchmarks/dictionary.py --data $(DATA)
	$(BIN)/python benchmarks/paco.py --data $(DATA)

clean:  ## remove the environment and everything that was made
	rm -rf $(VENV) demo-report .pytest_cache .mypy_cache .ruff_cache build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
