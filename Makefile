# Everything is one command; `make help` lists them. Set-up happens by itself, into .venv and .cache.
SHELL := /bin/sh
.DEFAULT_GOAL := help
.PHONY: help setup demo demo-report demo-field pictures fresh-clone test slow-test s3 home-assistant boards lint format check fuzz inputs storms bench bench-papers firmware-table coverage lock sbom build containers site clean

PYTHON := .venv/bin/python
SETUP := .venv/.done
RUNTIMES := .cache/runtimes/.done
# What the demo needs, and what its report on Spark needs besides: installed first, as far as needed.
NODE_SETUP := .venv/.node
SPARK_SETUP := .venv/.spark
UNIX_RUNTIME := .cache/runtimes/.unix64
FUZZER := .venv/.fuzzer
# numba keeps compiled kernels here, so that a second run starts at once.
export NUMBA_CACHE_DIR := $(CURDIR)/.cache/numba

help: ## List these commands
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(SETUP) $(RUNTIMES) ## Make .venv and get the MicroPython runtimes (other commands do it themselves)

$(SETUP): pyproject.toml requirements/dev.txt scripts/setup.sh
	@scripts/setup.sh
	@touch $(NODE_SETUP) $(SPARK_SETUP) $@

$(NODE_SETUP): requirements/node.txt scripts/setup.sh
	@DENWATCH_SET=node scripts/setup.sh
	@touch $@

$(SPARK_SETUP): requirements/image.txt scripts/setup.sh
	@DENWATCH_SET=image scripts/setup.sh
	@touch $@

$(RUNTIMES): scripts/get-runtimes.sh scripts/fetch-debs.sh firmware_tests/wasm/package-lock.json \
		scripts/schemas/package-lock.json scripts/mqttjs/package-lock.json
	@scripts/get-runtimes.sh
	@touch $@

$(UNIX_RUNTIME): scripts/get-runtimes.sh scripts/fetch-debs.sh
	@scripts/get-runtimes.sh unix64
	@touch $@

demo: ## See the whole path work, from words to a sensor and back
	@$(MAKE) -s -j2 $(NODE_SETUP) $(UNIX_RUNTIME)
	@$(PYTHON) -m demo
	@$(MAKE) -s demo-report

demo-report: ## Let Spark look at the logs of the last demo
	@echo && echo "5  All nodes' logs together, on Spark" && echo
	@if command -v java >/dev/null; then \
		$(MAKE) -s $(SPARK_SETUP) && \
		$(PYTHON) -m denwatch.cli analyze .cache/demo/last/*/data/log --out .cache/demo/last/report --quiet; \
	else echo "   left out: it needs Java 17 or 21"; fi

demo-field: $(SETUP) ## Emulate fifty nodes for six hours, and see what Spark finds in their logs
	@$(PYTHON) -m demo.field

# These begin first, so that none of them is left alone at the end.
LONGEST := tests/docs/test_spark_page.py tests/spark tests/simulator tests/docs
test: $(SETUP) $(RUNTIMES) ## Run all tests, on CPython and on every MicroPython runtime
	$(PYTHON) -m pytest -n 2 --dist loadfile --no-loadscope-reorder $(LONGEST) tests firmware_tests
	$(MAKE) coverage

# Without processes, browsers, Spark and device runtimes; all of them are in `make test`.
FAST := tests/config tests/core tests/covering tests/devices tests/language tests/log tests/protocol tests/ranking \
	tests/security tests/subscribers tests/packaging/test_house.py tests/packaging/test_requirements.py

check: lint ## Lint, check types and run the fast half of the tests: for every edit
	$(PYTHON) -m pytest -q -n 2 --dist loadfile $(FAST) \
		--ignore tests/covering/test_space.py --ignore tests/protocol/test_sweeps.py

coverage: $(SETUP) ## Check that the protocol's tests reach every branch
	$(PYTHON) -m pytest -q tests/protocol --ignore tests/protocol/test_sweeps.py \
		--cov=protocol --cov-branch --cov-report=term:skip-covered --cov-fail-under=100

slow-test: $(SETUP) $(RUNTIMES) ## Run the long forms of tests that `make test` runs shortened
	DENWATCH_SLOW=1 $(PYTHON) -m pytest -m slow tests firmware_tests
	DENWATCH_SLOW=1 $(PYTHON) -m pytest tests/matching/test_papers_corpus.py

S3 := .cache/s3/bin/python
s3: $(SETUP) ## Analyse logs in S3: a server on loopback, Spark's connector from Maven (700 MB at first)
	@test -x $(S3) || python3 -m venv .cache/s3
	@$(S3) -m pip install -q 'moto[server]==5.2.5'
	DENWATCH_S3=$(CURDIR)/$(S3) $(PYTHON) -m pytest -q tests/spark/test_s3.py

ASSISTANT := .cache/home-assistant/bin/python
home-assistant: $(SETUP) ## Let a real Home Assistant (2024.3.3, for Python 3.11) discover a node's devices
	@test -x $(ASSISTANT) || python3.11 -m venv .cache/home-assistant
	@$(ASSISTANT) -m pip install -q --no-deps homeassistant==2024.3.3
	@$(ASSISTANT) -m pip install -q --prefer-binary homeassistant==2024.3.3 paho-mqtt==1.6.1 aiohttp_cors==0.7.0 janus==1.0.0 \
		numpy==1.26.0 -c .cache/home-assistant/lib/python3.11/site-packages/homeassistant/package_constraints.txt
	DENWATCH_HOME_ASSISTANT=$(CURDIR)/$(ASSISTANT) $(PYTHON) -m pytest -q tests/home/test_real_assistant.py

boards: $(SETUP) $(RUNTIMES) ## Build firmware for emulated boards, and run the whole watchdog on it (ten minutes)
	firmware_tests/boards/build.sh
	$(PYTHON) -m pytest -m slow firmware_tests/test_boards.py

lint: $(SETUP) ## Check style and types
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy

format: $(SETUP) ## Put every file into the project's format
	$(PYTHON) -m ruff check --fix .
	$(PYTHON) -m ruff format .

$(FUZZER): $(SETUP) requirements/fuzz.txt
	$(PYTHON) -m pip install -q --require-hashes --no-deps -r requirements/fuzz.txt
	@touch $@

fuzz: $(FUZZER) ## Mutate what comes from outside, guided by the code that it reaches (ten minutes)
	$(PYTHON) -m simulator.fuzzing --seconds 100

inputs: $(SETUP) ## Bring ten million generated inputs to nodes (an hour or two)
	$(PYTHON) -m simulator.fuzzing.inputs --state .cache/inputs.json

storms: $(SETUP) ## Let storms of links, disks, clocks and kills pass over real nodes (half an hour)
	$(PYTHON) -m simulator.storms

bench: $(SETUP) ## Run the benchmarks in their short form
	$(PYTHON) -m benchmarks --quick

bench-papers: $(SETUP) ## Rebuild the papers' evaluations in full and save the results
	$(PYTHON) -m benchmarks --papers --save

firmware-table: $(SETUP) $(RUNTIMES) ## Show which test file passes on which runtime, and update the page
	$(PYTHON) -m firmware_tests --update firmware_tests/README.md

pictures: $(SETUP) $(RUNTIMES) ## Draw the documentation's pictures anew, the console's from a real one
	$(PYTHON) -m docs.pictures.draw
	DENWATCH_PICTURES=docs/pictures $(PYTHON) -m pytest -q tests/console

fresh-clone: ## Clone into an empty folder with an empty HOME, and run README's commands there
	scripts/fresh-clone.sh

lock: $(SETUP) ## Pin what set-up installs, with hashes, in requirements/
	scripts/lock.sh $(UPGRADE)

sbom: $(SETUP) ## Write the software bill of materials (CycloneDX) into dist/
	@mkdir -p dist
	$(PYTHON) -m cyclonedx_py requirements requirements/image.txt --pyproject pyproject.toml \
		--output-reproducible --of JSON -o dist/denwatch.cdx.json

build/docs/.done: requirements/docs.txt
	python3 -m venv build/docs
	build/docs/bin/python -m pip install -q --require-hashes -r requirements/docs.txt
	@touch $@

site: build/docs/.done ## Make docs/ a site that can be searched offline, in build/site
	build/docs/bin/mkdocs build --strict -q

containers: ## Build the images, run the site in containers and walk the path (needs root, podman, debootstrap)
	python3 docker/trial.py

build: $(SETUP) ## Build wheel and sdist into dist/
	$(PYTHON) -m build

clean: ## Remove everything that set-up and tests made
	rm -rf .venv .cache build dist spark-warehouse *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage
