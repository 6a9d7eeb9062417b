# make demo: a small ViT pre-trained on real images, in minutes.  make test: every test and the linter.
# make docs: the documentation as a site, in site/.  make pages: runs the commands of all pages.
# make pictures: makes the pictures of the pages anew.
# make gpu: compiles every kind of program for GPUs; needs the compiler (docs/gpus.md), and no GPU.
# make torture: thousands of damaged files, random settings, kills and signals, for about an hour.

PYTHON ?= python3
VENV ?= .venv
# Three processes keep two cores busy while tests of several hosts wait for one another. pytest may
# wait forever for the tests of a process that crashed, so that ends it.
PROCESSES ?= 3
BIN := $(VENV)/bin

.PHONY: demo test gpu torture lint docs pages pictures clean

demo: $(VENV)/installed
	$(BIN)/python -m vit_jax.main --config=configs/vit_digits.py

test: $(VENV)/installed lint
	$(BIN)/python -m pytest --numprocesses=$(PROCESSES) --dist=loadfile --no-loadscope-reorder \
	  --max-worker-restart=0 --durations=25

gpu: $(VENV)/installed
	PYTHONPATH=$(CURDIR)/.libgpu $(BIN)/python -m pytest tests/extras/compiled/test_gpus.py --gpu --numprocesses=2

torture: $(VENV)/installed
	$(BIN)/python -m pytest tests --hypothesis-profile=drawn -m hypothesis --numprocesses=2
	$(BIN)/python -m pytest tests/torture --torture --numprocesses=2 --dist=worksteal

lint: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

docs: $(VENV)/docs-installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

pages:
	$(PYTHON) -m tests.pages

pictures: $(VENV)/installed
	$(BIN)/python -m tests.pages.pictures

$(VENV)/docs-installed: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	touch $@

$(VENV)/installed: setup.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "vit_jax needs Python 3.11 or newer, and $(PYTHON) is " + sys.version.split()[0] + "; name another: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test]'
	touch $@

clean:
	rm -rf $(VENV)
