"""The files under deploy/ start what the recipe says, and open nothing to the world."""

from __future__ import annotations

import dataclasses
import py_compile
import re
import shutil
import subprocess

import pytest
import yaml

from helpers import deploy_check, recipes
from helpers.settings import REPO, CourseError

FILES = ["Dockerfile", "compose.yaml", "skypilot-b200.yaml", "modal_b200.py"]
DEPLOY = REPO / "deploy"


def test_the_files_say_what_the_recipe_says():
    assert deploy_check.differences() == []


@pytest.mark.parametrize(
    ("change", "files"),
    [
        ({"flags": ()}, ["Dockerfile", "skypilot-b200.yaml", "modal_b200.py"]),
        ({"revision": "0" * 40}, ["compose.yaml", "skypilot-b200.yaml", "modal_b200.py"]),
        ({"engine": "vllm 0.28.0"}, ["Dockerfile", "skypilot-b200.yaml", "modal_b200.py"]),
        ({"gpu": "H200"}, ["skypilot-b200.yaml"]),
    ],
    ids=["flags", "revision", "engine", "gpu"],
)
def test_a_recipe_that_changes_is_seen_in_each_file(monkeypatch, change, files):
    changed = dataclasses.replace(recipes.load(deploy_check.PROFILE), **change)
    monkeypatch.setattr(recipes, "load", lambda name: changed)
    seen = {line.split(",")[0] for line in deploy_check.differences()}
    assert seen == set(files)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("compose.yaml", None),
        ("compose.yaml", ""),
        ("compose.yaml", "a: [b"),
        ("skypilot-b200.yaml", "name: x"),
        ("modal_b200.py", "COMMAND = ("),
        ("modal_b200.py", "COMMAND = open('/etc/hostname').read()"),
        ("Dockerfile", "FROM x"),
        ("Dockerfile", "FROM x\nCMD [,"),
    ],
)
def test_a_file_that_is_missing_or_broken_is_named(monkeypatch, tmp_path, name, text):
    shutil.copytree(DEPLOY, tmp_path / "deploy")
    monkeypatch.setattr(deploy_check, "FOLDER", tmp_path / "deploy")
    (tmp_path / "deploy" / name).unlink() if text is None else (tmp_path / "deploy" / name).write_text(text)
    with pytest.raises(CourseError, match=f"deploy/{name}"):
        deploy_check.differences()


def test_no_file_holds_a_secret():
    for name in FILES:
        text = (DEPLOY / name).read_text()
        assert not re.search(
            r"hf_[A-Za-z0-9]{8}|sk-[A-Za-z0-9]{8}|(?i:api[_-]?key|token)\s*[:=]\s*['\"]\w", text
        )


def test_compose_publishes_on_this_machine_only_and_wants_a_key():
    services = deploy_check.compose()["services"]
    assert services["phonellm"]["ports"] == ["127.0.0.1:8000:8000"]
    assert services["phonellm"]["environment"]["VLLM_API_KEY"].startswith("${VLLM_API_KEY:?")
    [device] = services["phonellm"]["deploy"]["resources"]["reservations"]["devices"]
    assert device == {"driver": "nvidia", "count": 1, "capabilities": ["gpu"]}
    used = {volume.split(":")[0] for service in services.values() for volume in service["volumes"]}
    assert used == set(deploy_check.compose()["volumes"])


def test_the_container_waits_for_the_weights_before_it_starts():
    services = deploy_check.compose()["services"]
    assert services["phonellm"]["depends_on"]["weights"]["condition"] == "service_completed_successfully"
    offline = "HF_HUB_OFFLINE=1" in (DEPLOY / "Dockerfile").read_text()
    assert offline
    assert services["weights"]["environment"]["HF_HUB_OFFLINE"] == "0", "or the download finds no network"


def test_skypilot_opens_no_port_and_ends_by_itself():
    task = deploy_check.skypilot()
    assert "ports" not in task["resources"]
    assert task["resources"]["autostop"]["down"] is True
    assert task["resources"]["autostop"]["wait_for"] == "none", "a server's job never ends"
    for part in ("setup", "run"):
        subprocess.run(["bash", "-n"], input=task[part], text=True, check=True)


def test_modal_asks_for_its_token_and_scales_to_zero(tmp_path):
    text = (DEPLOY / "modal_b200.py").read_text()
    assert "unauthenticated" not in text, "Modal's default is to ask for a proxy token"
    assert "max_containers=1" in text
    assert not re.search(r"min_containers=[1-9]", text.split('"""')[2])
    py_compile.compile(str(DEPLOY / "modal_b200.py"), cfile=str(tmp_path / "compiled"), doraise=True)


def test_the_readme_names_real_things():
    text = (DEPLOY / "README.md").read_text()
    for name in FILES:
        assert f"`{name}`" in text
    for name in re.findall(r"PROFILE=([\w-]+)", text):
        assert name in recipes.names()
    for path in re.findall(r"deploy/([\w.-]+)", text):
        assert (DEPLOY / path).exists(), path
    pins = len(re.findall(r"(?m)^[\w.-]+==", (REPO / "requirements" / "deploy.txt").read_text()))
    assert f"({deploy_check.TOOLS.packages} packages)" in text
    assert pins == deploy_check.TOOLS.packages
    assert f"modal=={pinned('modal')}" in (DEPLOY / "modal_b200.py").read_text()


def pinned(package: str) -> str:
    [version] = re.findall(rf"(?m)^{package}==([\w.]+)", (REPO / "requirements" / "deploy.txt").read_text())
    return version


def test_the_yaml_is_as_strict_readers_want_it():
    for name in ("compose.yaml", "skypilot-b200.yaml"):
        text = (DEPLOY / name).read_text()
        assert "\t" not in text
        nodes = yaml.compose(text)
        keys = [key.value for key, _ in nodes.value]
        assert len(keys) == len(set(keys))


def test_a_tool_that_refuses_its_file_is_reported(monkeypatch, tmp_path):
    """Stand-ins for the tools: hadolint is content, Python (for the other three) is not."""
    for name, code in (("python", 3), ("hadolint", 0)):
        (tmp_path / name).write_text(f"#!/bin/sh\necho said {name}\nexit {code}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setattr(deploy_check, "environment", lambda spec, say: tmp_path / "python")
    said: list[str] = []
    failed = deploy_check.tool_checks(said.append)
    assert said == [
        "hadolint: takes it", "compose-spec: refuses it", "skypilot: refuses it", "modal: refuses it"
    ]  # fmt: skip
    assert [line.splitlines()[0] for line in failed] == ["compose-spec:", "skypilot:", "modal:"]
    assert "said python" in failed[0]
