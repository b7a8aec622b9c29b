# `make help` lists the words. Everything is set up by itself; PYTHON=python3.12 chooses another Python for .venv.

VENV := .venv$(if $(PYSPARK),-pyspark-$(PYSPARK))
BIN := $(VENV)/bin
PYTHON_GIVEN := $(if $(PYTHON),--this-python)
FIND_PYTHON = for python in $(or $(PYTHON),python3.11 python3.12 python3.13 python3.14 python3.15 python3 ~/.pyenv/versions/3.1[1-9].*/bin/python3); do \
	$$python -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && break; \
	python=; done; \
	test -n "$$python" || { echo "setup: needs Python 3.11 or newer with venv (Debian: python3-venv); $(or $(PYTHON:%='%' is none of them),none was found), PYTHON=/path/to/python3.11 names one" >&2; exit 1; }

AGAIN := -p project.again  # the few tests that fail beside others, once more by themselves

.DEFAULT_GOAL := help
.PHONY: help setup setup-analyze run demo test long-test clients-test install-test policies-demo kafka-test jetstream-test jetstream-bugs spark-test soak nodes-test sim sim-long compiled-sim compiled-sim-long bugs drills oracle mutants check quick generate docs bench compile uncompile compiled-test dist dist-compiled lock clean
MAKEFLAGS += --no-print-directory

help: ## list these words
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1	\2/p' Makefile | expand -t 20

setup: ## make .venv from the lock (a second time: nothing to do)
	@$(FIND_PYTHON); exec env PYTHONSAFEPATH= $$python -m project.install $(VENV) $(PYTHON_GIVEN)

setup-analyze: setup ## add to .venv what `tenure analyze` needs: PySpark, half a gigabyte (Java 17 comes from your system)
	@$(FIND_PYTHON); exec env PYTHONSAFEPATH= $$python -m project.install $(VENV) $(PYTHON_GIVEN) --analyze $(PYSPARK)

run: ## serve on 127.0.0.1:9092, data under ./data (installs what serving needs and no more)
	@$(FIND_PYTHON); exec env PYTHONSAFEPATH= $$python -m project.install $(VENV) $(PYTHON_GIVEN) --serving
	@$(BIN)/python project/compiled.py --fresh
	@exec $(BIN)/tenure serve --data ./data $(ARGS)

demo: setup ## a made-up week of deploys, crashes and scaling: a report on it, and a broker that serves it with living members (ARGS="--listen HOST:PORT --seed N --hostile")
	@$(BIN)/python -m project.demo $(ARGS)

test: setup ## the tests, on every Python from 3.11 on that is found (PYTHONS="3.11 3.13", "first" or "others"; ARGS="tests/cli -k words")
	@$(BIN)/python project/compiled.py --fresh
	@$(BIN)/python -m project.test $(ARGS)

long-test: setup ## all seeds and steps of the random tests, of which `make test` runs the first
	@$(BIN)/python project/compiled.py --fresh
	@$(BIN)/python -m pytest $(AGAIN) -n 2 --dist worksteal --assert=plain -m long $(or $(ARGS),tests/coordinator tests/pipeline tests/stores)

policies-demo: setup ## real clients restart, scale and crash without policies of groups and with them (ARGS="--client java --scenario crash")
	@$(BIN)/python project/compiled.py --fresh
	@$(BIN)/python -m tests.clients.policies $(ARGS)

kafka-test: setup ## the tests beside Apache Kafka itself (needs Java)
	@$(BIN)/python project/compiled.py --fresh
	@$(BIN)/python -m pytest $(AGAIN) -n 2 -o faulthandler_timeout=300 -m "kafka and not spark" tests/broker/settings/test_kafka_names.py tests/cli tests/clients tests/coordinator tests/pipeline tests/protocol tests/sequences tests/storage

jetstream-test: setup ## the store over NATS JetStream: one server, three, and nodes over them under real clients (starts them itself)
	@$(BIN)/python project/compiled.py --fresh
	@$(BIN)/python -m pytest $(AGAIN) -n 2 -m jetstream $(or $(ARGS),tests/stores tests/jetstream)

jetstream-bugs: setup ## plant each bug of tests/jetstream/bugs in a copy of the code, and see a test of JetStream fail (ARGS="names of bugs")
	@$(BIN)/python -m tests.jetstream.planted $(ARGS)

clients-test: setup ## real clients through restarts, kills and rebalances, and other people's tools (what is missing is skipped, and said)
	@$(BIN)/python project/compiled.py --fresh
	@$(BIN)/python -m pytest $(AGAIN) -n 3 --dist worksteal -m "clients and not kafka" $(or $(ARGS),tests)

install-test: setup ## the wheels and the sdist are built, installed and tried, by pip and by uv
	@$(BIN)/python project/compiled.py --fresh
	@$(BIN)/python -m pytest $(AGAIN) -n 2 -m install tests/project

SPARK := -m spark -o faulthandler_timeout=600  # a JVM on a busy machine is slow to start

spark-test: setup-analyze ## the pipeline on Apache Spark, and topics that Spark reads and writes (needs Java 17; the first time it fetches half a gigabyte; PYSPARK=newest: the newest that is supported)
	@$(BIN)/python project/compiled.py --fresh
	@$(BIN)/python -m tests.spark.packages
	@$(BIN)/python -m tests.pipeline.browser
	@$(BIN)/python -m pytest $(AGAIN) $(SPARK) tests/pipeline $(ARGS)
	@$(BIN)/python -m pytest $(AGAIN) $(SPARK) tests/spark $(ARGS)

suite-kafka-python: ## kafka-python's own tests, fetched and run unchanged (others: docs/clients.md; ARGS=--kafka: Kafka in our place)

suite-%: setup
	@$(BIN)/python project/compiled.py --fresh
	@$(BIN)/python -m tests.suites $* $(ARGS)

soak: setup ## kill the broker 100 times under groups, 50 under producers (ARGS="--only records --kills 10", --scale: 100,000 members)
	@$(BIN)/python project/compiled.py --fresh
	@$(BIN)/python -m tests.soak $(ARGS)

nodes-test: setup ## kill nodes of three under real clients, and see that nothing acknowledged is lost and no member moves (ARGS="--rounds 100 --seed 7")
	@$(BIN)/python project/compiled.py --fresh
	@$(BIN)/python -m tests.nodes $(ARGS)

check: setup ## ruff, mypy, import contracts, generated code, licences
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python -m protocol.generate --check
	$(BIN)/python -m docs.configuration --check
	$(BIN)/python -m docs.groups --check
	$(BIN)/python -m docs.rebalances --check
	$(BIN)/python -m docs.policies --check
	$(BIN)/python -m docs.control --check
	$(BIN)/python -m docs.commands --check
	$(BIN)/python -m project.picture --check
	$(BIN)/python -m project.licences

quick: check ## before each commit: check, tests of what changed since main, twenty seconds of the simulator (under six minutes on two cores)
	@$(BIN)/python project/compiled.py --fresh
	@$(BIN)/python -m project.quick
	@$(MAKE) sim ARGS="--seed $(SIM_SEED) --seeds 100000 --jobs 2 --seconds 20"

generate: setup ## write what is generated: protocol/messages, pages and parts of pages in docs, and the picture of a report (with Chromium)
	$(BIN)/python -m protocol.generate
	$(BIN)/python -m docs.configuration
	$(BIN)/python -m docs.groups
	$(BIN)/python -m docs.rebalances
	$(BIN)/python -m docs.policies
	$(BIN)/python -m docs.control
	$(BIN)/python -m docs.commands
	$(BIN)/python -m project.picture

docs: setup ## the pages as a site with search, under build/site, and a check of all its links (the first time it fetches Sphinx)
	@$(BIN)/python -m project.site $(ARGS)

bench: setup ## floor and broker in turn, as a table and as JSON (needs a C compiler)
	@$(BIN)/python project/compiled.py --fresh
	@$(BIN)/python -m bench $(ARGS)

mutants: setup ## mutate the code and see whether a test notices (ARGS="coordinator storage/log.py", ARGS="--sample 150")
	@$(BIN)/python -m project.mutants $(ARGS)

sim: setup ## brokers and clients in virtual time for a minute on two cores (ARGS="--seed 7 --explain" tells what one seed does)
	@$(BIN)/python project/compiled.py --fresh
	@$(SIMULATE) $(if $(ARGS),$(ARGS),--seed $(SIM_SEED) --seeds 100000 --jobs 2 --seconds 60 --also tests/simulator/seeds.txt)

sim-long: setup ## the simulator for twenty million events on two cores (ARGS="--events 10000": a tenth)
	@$(BIN)/python project/compiled.py --fresh
	@$(SIMULATE) --seed $(SIM_SEED) --seeds 200 --jobs 2 --events 100000 $(ARGS)

SIMULATE = $(BIN)/python -m simulator
SIMULATE_COMPILED = $(COMPILED) $(BIN)/python -P -m simulator

compiled-sim: setup ## `make sim` on a compiled copy under build/ (needs a C compiler)
	@$(BIN)/python -m project.compiled --copy build/compiled
	@$(MAKE) sim SIMULATE="$(SIMULATE_COMPILED)"

compiled-sim-long: setup ## `make sim-long` on a compiled copy under build/
	@$(BIN)/python -m project.compiled --copy build/compiled
	@$(MAKE) sim-long SIMULATE="$(SIMULATE_COMPILED)"

# Another seed for each commit.
SIM_SEED = $(shell printf %d 0x$$(git rev-parse --short=7 HEAD 2>/dev/null || echo 1))

bugs: setup ## plant each bug of tests/simulator/bugs in a copy of the code, and see the simulator find it within 30 s
	@$(BIN)/python -m tests.simulator.planted $(ARGS)

drills: setup ## put invented additions (a policy, a cause, a setting ...) into copies of the code: few files, and everything names them (three minutes; ARGS="-k topic")
	@$(BIN)/python project/compiled.py --fresh
	@$(BIN)/python -m pytest $(AGAIN) -n 2 --dist worksteal -m drills tests/project/test_drills.py $(ARGS)

oracle: setup ## random group requests to this broker and to Apache Kafka, until they differ (needs Java; ARGS="--seed 7 --minutes 10")
	@$(BIN)/python project/compiled.py --fresh
	@$(BIN)/python -m tests.sequences $(ARGS)

compile: setup ## build with mypyc in place, for .venv's Python (needs a C compiler)
	@$(BIN)/python -m project.compiled

uncompile: ## remove what compile built
	@find protocol coordinator storage broker -name '*.so' -delete; rm -f tenure__mypyc*.so

COMPILED := PYTHONPATH=build/compiled:. COMPILED=build/compiled

SERVED := $(addprefix tests/clients/test_, each_client.py records.py membership_restarts.py consumer_protocol.py standbys.py)

compiled-test: setup ## the tests, a minute of the simulator, real clients, kills, Apache Kafka beside it and the wheel, all on a compiled copy under build/
	@$(BIN)/python -m project.compiled --copy build/compiled --wheel build/compiled/dist
	@$(COMPILED) $(BIN)/python -P -m pytest $(AGAIN) -p project.only_compiled --import-mode=append -n 3 --dist worksteal \
		-m "not alone and not clients and not kafka and not plain" tests/protocol tests/coordinator tests/storage tests/history tests/broker tests/simulator/test_compiled.py
	@$(COMPILED) $(BIN)/python -P -m pytest $(AGAIN) -p project.only_compiled --import-mode=append -n 3 -m "clients and not kafka and not plain" $(SERVED) tests/broker
	@$(MAKE) sim SIMULATE="$(SIMULATE_COMPILED)"
	@$(COMPILED) $(BIN)/python -P -m tests.soak --kills 4
	@$(COMPILED) $(BIN)/python -P -m tests.nodes --rounds 3
	@$(COMPILED) $(BIN)/python -P -m tests.sequences --minutes 1 || test $$? = 2
	@$(COMPILED) $(BIN)/python -P -m pytest --import-mode=append tests/project/test_wheel.py

compiled-suite-%: setup
	@$(BIN)/python -m project.compiled --copy build/compiled
	@$(COMPILED) $(BIN)/python -P -m tests.suites $* $(ARGS)

dist: setup ## what a release needs, into dist/: wheel, sdist, a compiled wheel where there is a C compiler, bill of materials, checksums
	@rm -rf dist; mkdir -p build
	@$(BIN)/python -m build --no-isolation --outdir dist . >build/dist.log 2>&1 || { cat build/dist.log; exit 1; }
	@$(BIN)/python -m build --no-isolation --outdir dist pytest-tenure >>build/dist.log 2>&1 || { cat build/dist.log; exit 1; }
	@$(BIN)/python -m project.distribution dist
	@if $(BIN)/python -m project.compiled --possible; then $(MAKE) dist-compiled; fi
	@$(BIN)/python -m project.release dist

dist-compiled: setup ## a wheel with machine code for .venv's Python and systems like this one, into dist/ (needs a C compiler)
	@$(BIN)/python -m project.compiled --copy build/compiled --wheel dist
	@$(BIN)/python -m project.distribution --compiled dist

lock: setup ## write the locks from pyproject.toml (UPGRADE=name or UPGRADE=all)
	@$(BIN)/python -m project.lock $(UPGRADE)

clean: uncompile ## remove everything made here but ./data and ./.cache
	@rm -rf .venv .venv-* build dist *.egg-info .hypothesis .*_cache
	@find . -name __pycache__ -not -path './.git/*' -prune -exec rm -rf {} +
