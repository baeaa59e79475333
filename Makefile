# Every target sets up what it needs; nothing has to be installed by hand but Python 3.11+ and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
UV := uv>=0.8,<1
CHAOS_SEEDS ?= 1 2 3 4 5 6 7 8 9 10

.PHONY: help setup run test test-alerts show-alerts chaos lint format bench accuracy services kafka docs image test-kubernetes check clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

setup: $(READY)  ## make the virtual environment from the committed lock

$(READY): pyproject.toml uv.lock
	@$(PYTHON) -c 'import sys; sys.exit("firstfault needs Python 3.11 or later, %s is %s: set PYTHON=python3.12 or so" % (sys.executable, sys.version.split()[0]) if sys.version_info < (3, 11) else 0)'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) 2>/dev/null || { \
		echo "python3 -m venv failed: installing python3-venv"; apt-get update -qq && apt-get install -y -qq python3-venv && $(PYTHON) -m venv $(VENV); }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check '$(UV)'
	@VIRTUAL_ENV=$(CURDIR)/$(VENV) $(BIN)/uv sync --quiet --locked --python $(BIN)/python
	@touch $@

run: setup  ## replay a failing job from files being written, and show what firstfault says of it
	@$(BIN)/python scripts/demo.py

test: setup services  ## the whole suite
	@$(BIN)/python -m pytest -n 2 --dist loadfile

test-alerts: setup services  ## whole stories with every default of Alertmanager and firstfault, and notifications counted: half an hour
	@FIRSTFAULT_REAL_TIMES=1 $(BIN)/python -m pytest -n 2 --dist loadfile -p no:randomly -rA tests/services/test_notifications.py tests/services/test_clusters_and_sidecars.py tests/services/test_two_alike.py

show-alerts: setup services  ## what promtool and amtool say, what each panel's query returned, and each template as it was rendered
	@promtool check rules deploy/prometheus/firstfault-rules.yaml deploy/prometheus/firstfault-incident-alerts.yaml
	@cd deploy/prometheus && promtool test rules firstfault-rules.test.yaml
	@amtool check-config deploy/alertmanager/alertmanager.yml
	@$(BIN)/python -m pytest -q -p no:randomly -rP tests/deploy/test_live.py::test_every_panel_returns_data tests/services/test_templates.py

chaos: setup services  ## long campaigns against Kafka: kills, rebalances, dying brokers, with ten seeds
	@for seed in $(CHAOS_SEEDS); do echo "seed $$seed"; CHAOS_SEED=$$seed CHAOS_ROUNDS=8 $(BIN)/python -m pytest -x tests/chaos || exit 1; done

services: setup  ## install the real servers that tests run against (Debian's packages, as root, and Kafka's jars)
	@$(BIN)/python scripts/services.py install
	@$(BIN)/python scripts/kafka.py install

kafka: setup  ## run a real Kafka broker on loopback until Ctrl-C
	@$(BIN)/python scripts/kafka.py run

lint: setup  ## style, import directions, entries, generated files
	@$(BIN)/ruff check daemon tests bench scripts deploy
	@$(BIN)/ruff format --check daemon tests bench scripts deploy
	@$(BIN)/lint-imports
	@$(BIN)/python deploy/helm/build.py --check
	@if test -x $(BIN)/hadolint; then $(BIN)/hadolint Dockerfile; else echo "lint: no hadolint for this machine; Dockerfile is not linted"; fi
	@said=$$($(BIN)/firstfault rules check) || { echo "$$said"; exit 1; }; echo "$$said" | tail -1

format: setup  ## apply the formatter
	@$(BIN)/ruff check --fix-only daemon tests bench scripts deploy
	@$(BIN)/ruff format daemon tests bench scripts deploy

bench: setup  ## speed and memory, as ratios within one run
	@$(BIN)/python -m bench

accuracy: setup  ## how often the right rank is named, over the open benchmark; rewrites docs/accuracy.md
	@$(BIN)/python -m bench.accuracy

test-kubernetes: setup services  ## the chart against a real API server (built once, a quarter of an hour), and a job on two emulated nodes
	@$(BIN)/python scripts/cluster.py install
	@FIRSTFAULT_KUBERNETES=1 $(BIN)/python -m pytest -p no:randomly tests/cluster tests/deploy/test_chart.py

image: setup  ## build the container image, try it on a read-only root, and list what is in it
	@$(BIN)/python scripts/image.py

docs: setup  ## regenerate what is generated
	@$(BIN)/firstfault rules schema > rules/schema.json
	@$(BIN)/firstfault config schema > config.schema.json
	@$(BIN)/python deploy/grafana/build.py
	@$(BIN)/python deploy/helm/build.py
	@$(BIN)/uv export --quiet --locked --only-group image --no-annotate --no-header --format requirements.txt > deploy/image/uv.txt

clean:  ## remove everything that setup and tests made
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis .import_linter_cache bench/out dist build
