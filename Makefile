# `make demo` and `make test` set everything up themselves, in .venv.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
# Benchmarks of accuracy on what others measured; they look into the folder that PARACOSM_DATA names.
OTHERS := neusight sailor pollux pollux_time vtrain nccl param hta kineto psthroughput
# Tests run side by side, one on each core; those of one file in one process, which compiles what
# they need, and prepares what they share, once. The longest come first (tests/conftest.py); a
# process that hangs is not started again, to hang again.
BESIDE := --numprocesses logical --maxprocesses 8 --dist loadfile --no-loadscope-reorder \
  --max-worker-restart 0 --durations 10 --durations-min 20
PATIENTLY := --timeout 3600 --session-timeout 28800 -o faulthandler_timeout=3660

HAS_BROWSER := command -v chromium || command -v chromium-browser || command -v google-chrome

# Tools that look at what is installed, apart from it.
AUDIT := .audit/bin
# Their wheels differ between registries, with CUDA or without: no hash says which one you get.
UNHASHED := torch triton cuda-bindings cuda-pathfinder cuda-toolkit nvidia-cublas \
  nvidia-cuda-cccl nvidia-cuda-cupti nvidia-cuda-nvrtc nvidia-cuda-runtime nvidia-cudnn-cu13 \
  nvidia-cufft nvidia-cufile nvidia-curand nvidia-cusolver nvidia-cusparse nvidia-cusparselt-cu13 \
  nvidia-nccl-cu13 nvidia-nvjitlink nvidia-nvshmem-cu13 nvidia-nvtx

# pip compiles no modules here; so Python keeps what it compiles, also where images forbid that. Each
# process that imports PyTorch would take three times as long to start.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test everyday test-all lint types format bench docs links lock sbom audit wheels gpu clean \
  setup-browser browser-or-not

demo: $(READY)
	$(BIN)/python examples/demo.py

test: $(READY) browser-or-not lint
	$(MAKE) --jobs 2 types everyday

everyday: $(READY)
	$(BIN)/python -m pytest -m "not slow" $(BESIDE)

# Slow tests may take an hour each; Hypothesis tries examples that it has not tried before.
test-all: $(READY) browser-or-not lint types
	$(BIN)/python -m pytest $(BESIDE) $(PATIENTLY) --hypothesis-profile explore
	$(MAKE) docs

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY)
	$(BIN)/python benchmarks/engine.py
	$(BIN)/python benchmarks/gradients.py
	$(BIN)/python benchmarks/lookahead.py
	$(BIN)/python benchmarks/numerics_on_schedule.py
	$(BIN)/python benchmarks/clients.py
	$(BIN)/python benchmarks/schedule.py
	$(BIN)/python benchmarks/relaxation.py
	$(BIN)/python benchmarks/relaxation_accuracy.py
	$(BIN)/python benchmarks/replay.py
	$(BIN)/python benchmarks/replay_events.py
	$(BIN)/python benchmarks/throughput.py
	$(BIN)/python benchmarks/strategy_search.py
	$(BIN)/python benchmarks/ranks.py
	$(BIN)/python benchmarks/commands.py
	$(BIN)/python benchmarks/emulation.py
	$(BIN)/python benchmarks/accuracy/iterations.py
	@if [ -n "$$PARACOSM_DATA" ]; then \
	  for each in $(OTHERS); do $(BIN)/python benchmarks/accuracy/$$each.py || exit 1; done; \
	  else echo "PARACOSM_DATA is not set: benchmarks/accuracy/ left out: $(OTHERS)"; fi

# The report is tested in a real browser. Tests change nothing on the machine, so where Chromium is
# missing they say so; this installs it.
setup-browser:
	@{ $(HAS_BROWSER); } >/dev/null || { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium; }

browser-or-not:
	@{ $(HAS_BROWSER); } >/dev/null || echo "no Chromium here, so the report's browser tests are skipped: make setup-browser"

# After another version in constraints.txt, or another dependency in pyproject.toml.
lock: $(AUDIT)/uv
	printf 'hatchling\neditables\n' | $(AUDIT)/uv pip compile pyproject.toml - --extra dev \
	  --constraint constraints.txt --universal --python-version 3.11 --generate-hashes \
	  $(UNHASHED:%=--no-emit-package %) --no-annotate --no-header --quiet \
	  --output-file requirements.lock

# What is in .venv, as CycloneDX.
sbom: $(READY) $(AUDIT)/uv
	mkdir -p build
	$(AUDIT)/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible \
	  --output-file build/sbom.json $(BIN)/python

# Known vulnerabilities, by the database of PyPI.
audit: $(AUDIT)/uv
	$(AUDIT)/pip-audit --requirement requirements.lock --require-hashes --disable-pip --strict

# The wheel in fresh environments: which, and one alone, says release/wheels.py --help.
wheels: $(READY) $(AUDIT)/uv
	PATH="$(AUDIT):$$PATH" $(BIN)/python release/wheels.py

# What needs an NVIDIA GPU, within ten minutes; without one it fails, and says so.
gpu: $(READY)
	$(BIN)/python release/gpu.py

$(AUDIT)/uv:
	$(PYTHON) -m venv .audit
	$(AUDIT)/python -m pip install --quiet uv pip-audit cyclonedx-bom

# pip checks hashes of all that it installs or of nothing, and a checkout has none: so what has one
# comes first, and the second command finds nothing left to fetch but PyTorch.
$(READY): pyproject.toml constraints.txt requirements.lock
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Paracosm needs Python 3.11 or newer")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --no-compile --require-hashes --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --no-compile --no-build-isolation \
	  --constraint constraints.txt --editable '.[dev]'
	touch $(READY)

# The site, in docs/_build/html; a warning is an error. Its gallery is run.
docs: $(READY)
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable '.[docs]'
	$(BIN)/python docs/made_tables.py
	$(BIN)/python -m sphinx --builder html --fail-on-warning --keep-going --quiet docs docs/_build/html
	@echo docs/_build/html/index.html

# Links to other sites, too, which needs a network.
links: docs
	$(BIN)/python -m sphinx --builder linkcheck --quiet docs docs/_build/links

clean:
	rm -rf .venv .audit build dist docs/_build docs/gallery docs/reference .pytest_cache .mypy_cache .ruff_cache .hypothesis
