SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DATA ?= benchmarks/data
export TIMEFORMAT := -- %R s, %U s of CPU

.PHONY: demo test quick bits slow cluster docs lowest matrix lint bench papers clean help

help:  ## what can be made
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

# uv takes a fraction of pip's time; where it cannot be had or fails, pip installs
install = $(BIN)/uv pip install --quiet --python $(BIN)/python -e '.[$(1)]' || $(BIN)/pip install --quiet -e '.[$(1)]'

comma := ,

$(READY): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check uv || true
	time { $(call install,dev); }
	touch $(READY)

demo: $(READY)  ## compress, fit, certify and compare on an embedded data set; writes demo-report/
	$(BIN)/tithe demo --output demo-report

# two workers share two cores: a second thread of BLAS or OpenMP in each would only wait for the other worker, which costs
# up to nine times the CPU
TESTS := OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

test: $(READY)  ## lint, all tests that take seconds, those of equal bits as on other CPUs, a few fits with the lowest versions
	$(MAKE) -j2 --output-sync lint quick
	time $(BIN)/python tools/bits.py --quick
	time $(BIN)/python tools/matrix.py --fits

# lint runs beside them, on what tests that wait leave of the two cores
quick: $(READY)
	time $(TESTS) --dist worksteal --durations=25

bits: $(READY)  ## all tests of equal bits with the code that older CPUs run
	time $(BIN)/python tools/bits.py

slow: $(READY)  ## the tests that take minutes
	$(BIN)/python -m pytest -m slow

cluster: $(READY)  ## the tests on clusters and stores; installs Dask, Spark and a test server of S3
	$(call install,dev$(comma)cluster) || { echo "Dask, Spark and the test servers cannot be installed here."; exit 1; }
	command -v java > /dev/null || echo "There is no Java (apt-get install default-jre-headless): Spark is not tested."
	time $(BIN)/python -m pytest -m 'slow or not slow' tests/engines tests/cli/test_engine_option.py \
		tests/rows/test_dask_collections.py tests/rows/test_datasets.py tests/rows/test_spark_frames.py \
		tests/rows/test_stores.py

docs: $(READY)  ## the documentation, in docs/_build/html; warnings are errors
	$(call install,dev$(comma)docs) || { echo "Sphinx and its extensions cannot be installed here."; exit 1; }
	time $(BIN)/python -m sphinx -E -W --keep-going -b html docs docs/_build/html

lowest: $(READY)  ## a few tests with the lowest versions that pyproject.toml allows: tables and models of other libraries
	time $(BIN)/python tools/matrix.py --quick

matrix: $(READY)  ## all tests on every Python that can be had, with the lowest and the newest versions; an hour or more
	$(BIN)/python tools/matrix.py

lint: $(READY)  ## ruff, mypy, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	time $(BIN)/mypy
	$(BIN)/lint-imports --no-cache

# hours: the protocols of the papers, whole
papers: $(READY)  ## every table and figure of docs/papers.md, by the papers' protocols; needs the data in DATA=DIR
	$(BIN)/python benchmarks/theory.py --data $(DATA)
	$(BIN)/python benchmarks/logistic_paper.py --data $(DATA) --cpu --sets covtype
	$(BIN)/python benchmarks/logistic_paper.py --data $(DATA) --cpu --sets w8a --repetitions 3 --methods CABLR ACvS 'RDSF ols' 'RDSF ridge' 'URS, weighted' 'URS, unweighted' tithe 'tithe, polished'
	$(BIN)/python benchmarks/logistic_paper.py --data $(DATA) --cpu --sets ijcnn1
	$(BIN)/python benchmarks/logistic_paper.py --data $(DATA) --sets ijcnn1 --cpu --sweep-b --percents 3
	$(BIN)/python benchmarks/logistic_paper.py --data $(DATA) --sets generated --cpu
	$(BIN)/python benchmarks/rdsf.py --data $(DATA)
	$(BIN)/python benchmarks/dictionary_paper.py --only synthetic
	$(BIN)/python benchmarks/dictionary_paper.py --only synthetic --trials 1 --min-n 1000000 --max-n 1000000 --name dictionary_paper_synthetic_1000000
	$(BIN)/python benchmarks/dictionary_paper.py --only sizes
	$(BIN)/python benchmarks/dictionary_paper.py --data $(DATA) --only noise
	$(BIN)/python benchmarks/dictionary_paper.py --data $(DATA) --only references
	$(BIN)/python benchmarks/dictionary_paper.py --data $(DATA) --only uniform
	$(BIN)/python benchmarks/paco.py --paper
	$(BIN)/python benchmarks/odm.py --data $(DATA) --only block
	$(BIN)/python benchmarks/odm_path.py --data $(DATA)
	$(BIN)/python benchmarks/odm_partition.py --data $(DATA) --only start
	$(BIN)/python benchmarks/odm_svrg.py --data $(DATA) --sets covtype ijcnn1 higgs_subset --share 4 16 64 --repetitions 3 --rows 20000
	$(BIN)/python benchmarks/odm_boundaries.py
	$(BIN)/python tools/papers.py
	$(BIN)/python tools/paper_figures.py

bench: $(READY)  ## every number that README and documentation quote, from the data in DATA=DIR, downloaded where missing
	$(call install,bench)
	$(BIN)/python benchmarks/get_data.py --data $(DATA)
	$(BIN)/python benchmarks/picture.py --data $(DATA)
	$(BIN)/python benchmarks/sites.py --data $(DATA) --rows 600000 --seeds 1
	$(BIN)/python benchmarks/posterior.py --data $(DATA)
	$(BIN)/python benchmarks/clustering.py --data $(DATA)
	$(BIN)/python benchmarks/mixtures.py --data $(DATA) --only peers
	$(BIN)/python benchmarks/mixtures.py --data $(DATA) --only ours
	$(BIN)/python benchmarks/choose_k.py --data $(DATA)
	$(BIN)/python benchmarks/choose_k.py --data $(DATA) --seeds
	$(BIN)/python benchmarks/advice.py --data $(DATA) --seeds 20
	$(BIN)/python benchmarks/building.py
	$(BIN)/python benchmarks/files.py
	$(BIN)/python benchmarks/weak_spots.py --data $(DATA)
	$(BIN)/python benchmarks/logistic.py --data $(DATA)
	$(BIN)/python benchmarks/regression.py --data $(DATA) --parts speed
	$(BIN)/python benchmarks/break_even.py --data $(DATA)
	$(BIN)/python benchmarks/peers.py --data $(DATA)
	$(BIN)/python benchmarks/certificates.py --data $(DATA) --rows 20000
	$(BIN)/python benchmarks/logistic_search.py --data $(DATA)
	$(BIN)/python benchmarks/margin_coresets.py --data $(DATA)
	$(BIN)/python benchmarks/odm.py --data $(DATA) --only speed
	$(BIN)/python benchmarks/odm.py --data $(DATA) --only tuned
	$(BIN)/python benchmarks/odm_defaults.py --data $(DATA) --defaults-only
	$(BIN)/python benchmarks/odm_linear.py --data $(DATA)
	$(BIN)/python benchmarks/odm_partition.py --data $(DATA) --only growth --setting tuned
	$(BIN)/python benchmarks/odm_partition.py --data $(DATA) --only linear
	$(BIN)/python benchmarks/odm_search.py --data $(DATA)
	$(BIN)/python benchmarks/odm_clustering.py --data $(DATA)
	$(BIN)/python benchmarks/odm_semi_supervised.py --data $(DATA)
	$(BIN)/python benchmarks/odm_semi_supervised.py --data $(DATA) --large
	$(BIN)/python benchmarks/photographs.py --data $(DATA) --only whole --all-of
	$(BIN)/python benchmarks/photographs.py --data $(DATA) --only crops
	$(BIN)/python benchmarks/noise_levels.py --data $(DATA)
	$(BIN)/python benchmarks/film.py
	$(BIN)/python benchmarks/dictionary.py --data $(DATA) --seeds 1
	$(BIN)/python benchmarks/boosting.py --data $(DATA) --rows 40000 --seeds 3 --rounds 100
	$(BIN)/python benchmarks/boosting_search.py --data $(DATA)
	$(BIN)/python benchmarks/paco.py --data $(DATA)
	$(BIN)/python benchmarks/paco.py --changes
	$(BIN)/python benchmarks/tables.py
	$(BIN)/python benchmarks/cold.py
	$(BIN)/python benchmarks/priority.py
	$(MAKE) papers
	$(BIN)/python tools/quoted_numbers.py

clean:  ## remove the environment and everything that was made
	rm -rf $(VENV) .matrix demo-report .pytest_cache .mypy_cache .ruff_cache build
	rm -rf docs/_build docs/gallery docs/reference docs/sg_execution_times.rst
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
