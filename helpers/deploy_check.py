"""Do the files under ``deploy/`` say what the recipe says, and do their own tools take them?

:func:`differences` compares the command in each file with the recipe, word by word; the tests call it.
``python -m helpers.deploy_check`` also has the tools read their files, without a network: hadolint,
compose-spec, SkyPilot and Modal, in an environment of their own that is made the first time.
"""

from __future__ import annotations

import ast
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import Any

from helpers import recipes
from helpers.environments import Environment, environment
from helpers.settings import REPO, CourseError

PROFILE = "b200-bf16"
FOLDER = REPO / "deploy"
TOOLS = Environment("deploy", REPO / "requirements" / "deploy.txt", 114, 700, python=((3, 11), (3, 13)))
MODELS = "/models/phonellm-alpha-1"  # the weights' folder in a container


def expected(folder: str = MODELS, host: str = "0.0.0.0") -> list[str]:
    """The recipe's command with the weights in a folder of a rented machine."""
    return recipes.command(recipes.load(PROFILE), folder, recipes.SERVED_NAME, host, recipes.PORT)


def expected_download(folder: str = MODELS) -> list[str]:
    """The recipe's download into that folder."""
    return recipes.download(recipes.load(PROFILE), folder)


# ---------------------------------------------------------------------------------------------------------
# What stands in the files
# ---------------------------------------------------------------------------------------------------------


def container() -> dict[str, Any]:
    """The Dockerfile's instructions: ``FROM``, ``ENTRYPOINT``, ``CMD``, each its last value, JSON read."""
    text = (FOLDER / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    found: dict[str, Any] = {}
    for line in text.splitlines():
        name, _, rest = line.strip().partition(" ")
        if name.isupper():
            found[name] = json.loads(rest) if rest.startswith("[") else rest
    return found


def compose() -> dict[str, Any]:
    """The compose file as plain data."""
    import yaml

    return yaml.safe_load((FOLDER / "compose.yaml").read_text(encoding="utf-8"))


def skypilot() -> dict[str, Any]:
    """The SkyPilot file as plain data."""
    import yaml

    return yaml.safe_load((FOLDER / "skypilot-b200.yaml").read_text(encoding="utf-8"))


def modal() -> dict[str, Any]:
    """The constants of the Modal file, by running nothing but its assignments of plain values."""
    found: dict[str, Any] = {}
    for node in ast.parse((FOLDER / "modal_b200.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if name.isupper():
                code = compile(ast.Expression(node.value), "modal_b200.py", "eval")
                found[name] = eval(code, {"__builtins__": {"str": str}}, dict(found))
    return found


def _read(file: str, reader: Callable[[], dict[str, Any]], *keys: str) -> dict[str, Any]:
    """What a reader finds in a file, or a message that names the file."""
    try:
        found = reader()
        missing = [key for key in keys if key not in found]
    except Exception as error:  # each format has errors of its own
        raise CourseError(
            f"deploy/{file} could not be read ({type(error).__name__}: {error}). Mend it, or take it "
            "from git."
        ) from error
    if missing:
        raise CourseError(f"deploy/{file} has no {', '.join(missing)}. Mend it, or take it from git.")
    return found


def _script(text: str, folder: str) -> list[str]:
    """The words of a shell script's last command, with the folder's variables filled in."""
    words = shlex.split(text.replace("\\\n", " ").strip().splitlines()[-1])
    return [word.replace("$MODEL", folder).replace("~/models/phonellm-alpha-1", folder) for word in words]


def differences() -> list[str]:
    """Where the files and the recipe disagree, a line each; empty if nowhere.

    Raises:
        CourseError: a file is missing, broken, or lacks a part.
    """
    recipe = recipes.load(PROFILE)
    task = _read("skypilot-b200.yaml", skypilot, "setup", "run", "resources")
    constants = _read("modal_b200.py", modal, "COMMAND", "FETCH")
    services = _read("compose.yaml", lambda: compose()["services"], "weights", "phonellm")
    docker = _read("Dockerfile", container, "FROM", "ENTRYPOINT", "CMD")
    download = _script(task["setup"], MODELS)
    pairs: list[tuple[str, Any, Any]] = [
        ("Dockerfile, command", [*docker["ENTRYPOINT"], *docker["CMD"]], expected()),
        ("Dockerfile, image", docker["FROM"], f"vllm/vllm-openai:v{recipe.version}"),
        (
            "compose.yaml, download",
            [*services["weights"]["entrypoint"], *services["weights"]["command"]],
            expected_download(),
        ),
        ("skypilot-b200.yaml, command", _script(task["run"], MODELS), expected(host="127.0.0.1")),
        ("skypilot-b200.yaml, download", ["hf", *download[1:]], expected_download()),
        ("skypilot-b200.yaml, engine", f'"vllm=={recipe.version}"' in task["setup"], True),
        ("skypilot-b200.yaml, GPU", task["resources"]["accelerators"], f"{recipe.gpu}:1"),
        ("modal_b200.py, command", constants["COMMAND"], expected()),
        ("modal_b200.py, download", constants["FETCH"], expected_download()),
        (
            "modal_b200.py, engine",
            f'"vllm=={recipe.version}"' in (FOLDER / "modal_b200.py").read_text(encoding="utf-8"),
            True,
        ),
    ]
    return [
        f"{what}: in the file\n    {found}\n  and by the recipe\n    {wanted}"
        for what, found, wanted in pairs
        if found != wanted
    ]


# ---------------------------------------------------------------------------------------------------------
# What the tools say
# ---------------------------------------------------------------------------------------------------------

COMPOSE = """
import sys, compose_spec
print(compose_spec.PyCompose.from_yaml(open(sys.argv[1]).read()).validate())
"""
SKYPILOT = """
import sys, sky
task = sky.Task.from_yaml(sys.argv[1])
[resources] = task.resources
assert resources.accelerators == {"B200": 1}, resources
print(task.name, resources)
"""
MODAL = """
import sys, runpy
found = runpy.run_path(sys.argv[1])
app = found["app"]
names = sorted([*app.registered_functions, *getattr(app, "registered_classes", {})])
assert "fetch" in names and any("PhoneLLM" in name for name in names), names
print(app.name, names)
"""


def tool_checks(say: Callable[[str], None] = print) -> list[str]:
    """Have each tool read its file; the failures, a line each.

    Raises:
        CourseError: the tools' environment could not be made.
    """
    python = environment(TOOLS, say=say)
    programs = python.parent
    failed = []
    with tempfile.TemporaryDirectory() as home:
        clean = {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "HOME": home,
            "VLLM_API_KEY": "only-for-this-check",
        }
        checks = {
            "hadolint": [str(programs / "hadolint"), str(FOLDER / "Dockerfile")],
            "compose-spec": [str(python), "-c", COMPOSE, str(FOLDER / "compose.yaml")],
            "skypilot": [str(python), "-c", SKYPILOT, str(FOLDER / "skypilot-b200.yaml")],
            "modal": [str(python), "-c", MODAL, str(FOLDER / "modal_b200.py")],
        }
        for name, words in checks.items():
            done = subprocess.run(words, env=clean, cwd=home, capture_output=True, text=True, timeout=300)
            last = (done.stdout + done.stderr).strip().splitlines()[-8:]
            say(f"{name}: {'takes it' if done.returncode == 0 else 'refuses it'}")
            if done.returncode != 0:
                failed.append("\n  ".join([f"{name}:", *last]))
    return failed


def main() -> int:
    """Print what is wrong; the exit status is 1 if anything is."""
    found: list[str] = []
    try:
        found += differences()
        found += tool_checks()
    except CourseError as error:
        found.append(str(error))
    print("\n".join(found) if found else "The files under deploy/ say what the recipe says.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
