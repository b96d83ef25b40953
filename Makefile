# The course's commands. `make lab` and `make test` do all the set-up they need.
PYTHON3 ?= python3
VENV := .venv/bin/python
BOOT := $(PYTHON3) -I helpers/bootstrap.py
export PYTHON TORCH ENGINE

.PHONY: help lab test setup setup-dev stop status engine notebooks figures slides lint record bench bench-load lock serve

help: ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

lab: setup ## set up what is missing, start the engine, open JupyterLab at lesson 00
	@$(VENV) -m helpers.lab $(LAB)

test: setup-dev ## the whole check, on the live engine
	@$(VENV) -m pytest $(TESTS)

setup: ## make the environment (lab and engine)
	@$(BOOT)

setup-dev: ## make the environment with what the tests need
	@$(BOOT) --dev

stop: ## stop the lab and the engine
	@if [ ! -x $(VENV) ]; then echo "nothing was running"; \
	elif [ ! -f .venv/course.json ]; then echo "the environment is not complete; type: make setup"; \
	else $(VENV) -m helpers.lab stop; fi

status: setup ## what runs, and who uses it
	@$(VENV) -m helpers.engine status

engine: setup ## start the engine alone, until make stop
	@$(VENV) -m helpers.engine start

serve: setup ## serve a model by a recipe: PROFILE=..., without it the list (MODEL=, PORT=, HOST=, NAME=, DRY=1)
	@$(VENV) -m helpers.serve --profile="$(PROFILE)" --model="$(MODEL)" --name="$(NAME)" \
	  --host="$(HOST)" --port="$(PORT)" --dry="$(DRY)"

notebooks: setup-dev ## build both versions of every lesson from notebooks/src
	@$(VENV) -m helpers.lessons build

figures: setup ## every figure of the course as SVG and PNG (OUT=folder, ONLY=06, THEME=dark, SIZE=slide)
	@$(VENV) -m helpers.gallery --out="$(OUT)" --only="$(ONLY)" --theme="$(THEME)" --size="$(SIZE)"

slides: setup ## the talk as HTML and PDF, in workspace/slides (DECK=name, THEME=dark)
	@$(VENV) -m helpers.deck $(DECK) --theme="$(THEME)"

lint: setup-dev ## style of the code, and whether the notebooks are what the sources say
	@$(VENV) -m ruff check . && $(VENV) -m ruff format --check . && $(VENV) -m helpers.lessons check

bench: setup-dev ## how exact is our timer, beside two other tools
	@$(VENV) -m benchmarks.timer

bench-load: setup-dev ## do our load maker, aiperf and guidellm see the same
	@$(VENV) -m benchmarks.load_tools

lock: setup-dev ## resolve the pinned files under requirements/ anew
	@requirements/lock.sh

record: setup-dev ## record the runs under data/runs anew (about half an hour; quiet machine, please)
	@$(VENV) -m helpers.opinions
	@for lesson in 00_start_here 04_serve_with_vllm 05_measure_ttft 07_concurrency_and_the_limit; do \
	  $(VENV) -m helpers.engine stop; \
	  PHONELLM_RECORD=$$lesson PHONELLM_CHECK=strict $(VENV) -m nbconvert --to notebook --execute \
	    --log-level WARN --output-dir workspace/runs/lessons notebooks/solutions/$$lesson.ipynb && \
	  $(VENV) -m helpers.recorded finish $$lesson --replace || exit 1; done
	@$(VENV) -m helpers.drills keep && $(VENV) -m helpers.tiny && $(VENV) -m helpers.sweeps record
	@$(VENV) -m helpers.hub_drill record && $(VENV) -m helpers.gallery --readme
