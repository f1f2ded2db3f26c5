# Two commands do everything: `make compare` and `make test`. Both set up .venv at the first run.
PYTHON ?= python3
MODEL ?= image_classifier
BACKENDS ?= triton,onnxruntime,fastapi,fastapi:torch
RUN := .venv/bin

.PHONY: compare test check setup format bench bench-decide bench-load bench-models bench-observe bench-plan bench-predict bench-serving bench-tune \
	gpu-check observe-demo plan-demo playbook-demo clean

compare: .venv/.ready
	@$(RUN)/infersweep compare --model $(MODEL) --backends $(BACKENDS) $(ARGS)

# Tests in which no time is measured run side by side, those of the protocol a process for each backend;
# then the others, one after another.
SIDE_BY_SIDE := tests/unit $(addprefix tests/integration/test_, \
	added_models.py arithmetic_zoo.py dashboards.py linting_triton.py openmetrics.py variants.py \
	zoo.py) \
	$(addprefix tests/e2e/test_, dashboard_pictures.py offload_page.py plan_page.py playbook_page.py \
	report_page.py)

PROTOCOL := $(wildcard tests/contract/test_protocol_*.py)

test: .venv/.ready
	@$(RUN)/python -m pytest -n 2 --dist loadscope $(SIDE_BY_SIDE) $(ARGS) || [ $$? = 5 ]
	@$(RUN)/python -m pytest -n 3 --dist loadgroup $(PROTOCOL) $(ARGS) || [ $$? = 5 ]
	@$(RUN)/python -m pytest tests/contract tests/integration tests/e2e \
		$(addprefix --ignore=,$(SIDE_BY_SIDE) $(PROTOCOL)) $(ARGS) || [ $$? = 5 ]

check: .venv/.ready
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .
	$(RUN)/mypy
	$(RUN)/python -m pytest tests/unit/test_layers.py

format: .venv/.ready
	$(RUN)/ruff check --fix .
	$(RUN)/ruff format .

setup: .venv/.ready

bench: bench-models bench-load bench-observe bench-serving bench-decide bench-tune bench-plan bench-predict

# ARGS="--quick" takes one short turn; PERF_ANALYZER names the command of perf_analyzer, where there is one.
bench-load: .venv/.ready
	@$(RUN)/python -m pip install --quiet --constraint constraints.txt --editable ".[bench]"
	PATH="$(CURDIR)/$(RUN):$$PATH" $(RUN)/python -m benchmarks.load $(ARGS)

bench-models: .venv/.ready
	$(RUN)/python -m benchmarks.models
	$(RUN)/python -m benchmarks.variants
	$(RUN)/python -m benchmarks.adding

# Needs wrk and prometheus on PATH.
bench-observe: .venv/.ready
	PATH="$(CURDIR)/$(RUN):$$PATH" $(RUN)/python -m benchmarks.observing $(ARGS)

# A short sweep under Prometheus; pictures of the dashboards lie in results/observe-demo afterwards.
observe-demo: .venv/.ready
	@$(RUN)/python -m benchmarks.observe_demo $(ARGS)

# Behind a front half the replies of batches cannot be told apart, and on a CPU batching brings little.
# Profiles of three backends, a plan for 24 cameras over LTE, one held-out load of each; a page.
PLAN_DEMO ?= results/plan-demo
plan-demo: .venv/.ready
	@for backend in triton onnxruntime fastapi; do \
		set=; test $$backend = fastapi || set="--set max_batch_size=1"; \
		test -f $(PLAN_DEMO)/$$backend/profile.json || $(RUN)/infersweep profile --duration 4 --repeats 2 \
			--model image_classifier_jpeg --backend $$backend $$set --out $(PLAN_DEMO)/$$backend || exit; \
	done
	@$(RUN)/infersweep plan $(PLAN_DEMO)/triton $(PLAN_DEMO)/onnxruntime $(PLAN_DEMO)/fastapi \
		--cameras 24 --fps 10 --policy latest-only --link lte --objective 'p99<=250ms' \
		--survive 1 --frame 640x480 --verify --out $(PLAN_DEMO)/plan $(ARGS)

# Every tuning tip that this machine can test, on two models: less than 40 minutes, --quick less than 10.
playbook-demo: .venv/.ready
	@$(RUN)/python -m benchmarks.playbook_demo $(ARGS)

# Synthetic servers in virtual time: are the verdicts right?
bench-decide: .venv/.ready
	$(RUN)/python -m benchmarks.deciding $(ARGS)

# A whole space of settings on a real server (minutes; --fresh measures it again), and searches in it.
bench-tune: .venv/.ready
	$(RUN)/python -m benchmarks.tuning $(ARGS)

# Predictions against loads that they have not seen, about 40 minutes of a quiet machine.
bench-predict: .venv/.ready
	$(RUN)/python -m benchmarks.predicting $(ARGS)

# The simulator's speed and memory.
bench-plan: .venv/.ready
	$(RUN)/python -m benchmarks.planning $(ARGS)

# Public servers are installed once, each into an environment of its own in the cache folder.
bench-serving: .venv/.ready
	$(RUN)/python -m benchmarks.serving $(ARGS)

# Less than five minutes on a machine with an NVIDIA GPU; refused on any other.
gpu-check: .venv/.ready
	@$(RUN)/python -m benchmarks.gpu_check

.venv/.ready: bootstrap.py pyproject.toml constraints.txt
	@$(PYTHON) bootstrap.py
	@touch $@

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache
