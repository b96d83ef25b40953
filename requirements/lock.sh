#!/usr/bin/env bash
# Resolves the ranges of pyproject.toml anew and writes the pinned, hashed files beside this one.
# With arguments (such as --upgrade) they go to uv. Registries are whatever uv is set up for; none is written down.
set -euo pipefail
cd "$(dirname "$0")/.."
UV=${UV:-.venv/bin/uv}
FLAGS=(--universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links
       --no-annotate --no-header --quiet "$@")
pin() { # file, then what goes into it
  local file=$1; shift
  "$UV" pip compile "${FLAGS[@]}" "$@" --output-file "requirements/$file"
  echo "requirements/$file: $(grep -c == "requirements/$file") pins"
}
ENGINE=(--extra engine requirements/torch-needs.in --override requirements/overrides.txt)
pin course.txt pyproject.toml --extra lab "${ENGINE[@]}"
pin dev.txt pyproject.toml --extra lab --extra dev "${ENGINE[@]}" --constraint requirements/course.txt
pin course-no-engine.txt pyproject.toml --extra lab --constraint requirements/course.txt
pin dev-no-engine.txt pyproject.toml --extra lab --extra dev --constraint requirements/dev.txt
pin torch-pypi.txt requirements/torch-pypi.in --constraint requirements/course.txt
pin gpu.txt pyproject.toml --extra lab --extra gpu
pin voice.txt requirements/voice.in
pin clips.txt requirements/clips.in
[ ! -f requirements/aiperf.in ] || pin aiperf.txt requirements/aiperf.in
pin guidellm.txt requirements/guidellm.in requirements/torch-needs.in --override requirements/overrides.txt
pin deploy.txt requirements/deploy.in
pin aiconfigurator.txt requirements/aiconfigurator.in
pin dynamo.txt requirements/dynamo.in
