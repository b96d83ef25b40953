"""Environments are made once and whole; the tools' own files are read right; no process of theirs stays."""

import base64
import dataclasses
import hashlib
import importlib
import json
import os
import subprocess
import sys
import threading
import time
import zipfile
from itertools import pairwise
from pathlib import Path

import pytest

from helpers import environments, settings, tool_process, tools
from helpers.settings import REPO, CourseError, Server

SAMPLES = Path(__file__).parent / "data" / "tools"
SERVER = Server("http://127.0.0.1:9/v1", "tiny", api_key="not-a-real-key", name="somewhere")
LOAD = tools.Workload(tuple(f"hello id {i}" for i in range(5)), concurrency=2, max_tokens=10)


@pytest.fixture(autouse=True)
def own_workspace(tmp_path, monkeypatch):
    monkeypatch.setattr(settings, "WORKSPACE", tmp_path / "workspace")


# --- environments -----------------------------------------------------------------------------------------


@pytest.fixture
def spec(tmp_path) -> environments.Environment:
    """An environment with one package, a wheel made here, so that nothing is fetched."""
    wheel = tmp_path / "tinytool-1.0-py3-none-any.whl"
    files = {
        "tinytool.py": "print('tiny tool speaking')\n",
        "tinytool-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: tinytool\nVersion: 1.0\n",
        "tinytool-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = ""
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
            record += f"{name},sha256={digest},{len(text)}\n"
        archive.writestr("tinytool-1.0.dist-info/RECORD", record + "tinytool-1.0.dist-info/RECORD,,\n")
    pins = tmp_path / "tiny.txt"
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    pins.write_text(f"tinytool @ {wheel.as_uri()} --hash=sha256:{digest}\n")
    return environments.Environment("tiny", pins, packages=1, disk_mb=1, systems=(sys.platform,))


def speaks(python: Path) -> str:
    return subprocess.run(
        [python, "-m", "tinytool"], capture_output=True, text=True, check=True
    ).stdout.strip()


def test_an_environment_is_made_once_and_remade_when_its_pins_change(spec):
    said: list[str] = []
    python = environments.environment(spec, say=said.append)
    assert speaks(python) == "tiny tool speaking"
    assert any("Making an environment" in line for line in said)

    said.clear()
    assert environments.environment(spec, say=said.append) == python
    assert said == []

    spec.requirements.write_text("# a new pin\n" + spec.requirements.read_text())
    environments.environment(spec, say=said.append)
    assert any("Making an environment" in line for line in said)
    assert speaks(python) == "tiny tool speaking"


def test_a_half_made_environment_is_never_used(spec):
    folder = settings.workspace("envs", "tiny")
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").write_text("not a program")
    (folder / "left-over").write_text("")
    python = environments.environment(spec, say=lambda text: None)
    assert speaks(python) == "tiny tool speaking"
    assert not (folder / "left-over").exists()


def test_a_wrong_hash_is_refused_with_the_last_words_of_pip(spec):
    good = spec.requirements.read_text()
    spec.requirements.write_text(good[:-5] + "0000\n")
    with pytest.raises(CourseError, match=r"(?s)could not be made.*HASH"):
        environments.environment(spec, say=lambda text: None)
    assert not (settings.workspace("envs", "tiny") / "complete").exists()


def test_two_callers_at_the_same_moment_make_one(spec, monkeypatch):
    made: list[float] = []
    install = environments._install

    def slow_install(*arguments: object) -> None:
        made.append(time.monotonic())
        time.sleep(0.5)
        install(*arguments)

    monkeypatch.setattr(environments, "_install", slow_install)
    said: list[str] = []
    found: list[Path] = []
    callers = [
        threading.Thread(target=lambda: found.append(environments.environment(spec, say=said.append)))
        for _ in range(2)
    ]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(120)
    assert len(made) == 1
    assert len(found) == 2
    assert any("waiting for it" in line for line in said)
    assert speaks(found[0]) == "tiny tool speaking"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"systems": ("plan9",)}, "pinned for plan9"),
        ({"python": ((2, 6), (2, 7))}, "needs Python 2.6 to 2.7"),
        ({"disk_mb": 10**12}, "Make room"),
    ],
)
def test_what_cannot_be_made_says_why(spec, change, message):
    with pytest.raises(CourseError, match=message):
        environments.environment(dataclasses.replace(spec, **change), say=lambda text: None)
    assert not (settings.workspace("envs", "tiny") / "bin").exists()


def test_the_pinned_file_has_hashes_for_all_and_no_address():
    text = environments.AIPERF.requirements.read_text()
    blocks = text.replace("\\\n", " ").strip().splitlines()
    assert len(blocks) > 100
    assert all("--hash=sha256:" in block and "==" in block for block in blocks)
    assert "://" not in text
    asked = (REPO / "requirements" / "aiperf.in").read_text()
    pin = next(block.split()[0] for block in blocks if block.startswith("aiperf=="))
    assert pin in asked


# --- the tools' own files ---------------------------------------------------------------------------------


def test_the_table_of_vllm_bench_serve():
    result = json.loads((SAMPLES / "vllm-bench-0.27.1.json").read_text())
    table = tools.vllm_table(result, SERVER, LOAD)
    assert list(table.columns) == list(tools.COLUMNS)
    assert table["request"].tolist() == [0, 1, 2, 3, 4]
    assert set(table["origin"]) == {"measured"}
    assert set(table["server"]) == {"somewhere"}
    assert table["ttft_ms"].tolist() == [ttft * 1e3 for ttft in result["ttfts"]]
    assert table["ttfat_ms"].isna().all()
    assert table["e2e_ms"][0] == pytest.approx(1e3 * (result["ttfts"][0] + sum(result["itls"][0])))
    assert set(table["output_tokens"]) == {10}
    assert set(table["error"]) == {""}
    # This server opens with a role-only chunk, sends the first token 100 to 200 ms later, and 0.27.1 takes
    # the former for the latter.
    assert table["ttft_ms"].max() < 10 < 100 < min(gaps[0] for gaps in result["itls"]) * 1e3


def test_the_table_of_aiperf():
    lines = [json.loads(line) for line in (SAMPLES / "aiperf-0.13.0.jsonl").read_text().splitlines()]
    table = tools.aiperf_table(lines[::-1], SERVER, LOAD)
    assert list(table.columns) == list(tools.COLUMNS)
    assert table["request"].tolist() == [0, 1, 2, 3, 4]
    assert table["ttft_ms"].between(100, 250).all()
    assert (table["ttfat_ms"] > table["ttft_ms"] + 30).all()  # three tokens of reasoning came first
    assert (table["e2e_ms"] > table["ttfat_ms"]).all()
    assert table["itl_mean_ms"].between(15, 25).all()
    assert set(table["output_tokens"]) == {10}
    assert set(table["error"]) == {""}


def test_refused_requests_are_rows_with_an_error_and_no_times():
    result = json.loads((SAMPLES / "vllm-bench-0.27.1-refused.json").read_text())
    lines = [json.loads(line) for line in (SAMPLES / "aiperf-0.13.0-refused.jsonl").read_text().splitlines()]
    for table, count in (
        (tools.vllm_table(result, SERVER, LOAD), 5),
        (tools.aiperf_table(lines, SERVER, LOAD), 2),
    ):
        assert len(table) == count
        assert table["error"].str.contains("Not Found").all()
        assert table[["ttft_ms", "ttfat_ms", "e2e_ms", "itl_mean_ms", "output_tokens"]].isna().all(axis=None)


def test_the_summary_counts_errors_apart():
    result = json.loads((SAMPLES / "vllm-bench-0.27.1.json").read_text())
    result["errors"][2] = "Traceback\nOSError: cut"
    table = tools.vllm_table(result, SERVER, LOAD)
    assert table["error"][2] == "OSError: cut"
    found = tools.summary(table).iloc[0]
    assert (found["n"], found["errors"], found["output_tokens"]) == (4, 1, 40)
    # Of four good requests the P50 is the second fastest: a time that was measured, as in helpers.stats.
    assert found["ttft_p50_ms"] == pytest.approx(sorted(table["ttft_ms"].drop(2))[1])
    assert str(found["ttfat_p50_ms"]) == "nan"
    assert found["origin"] == "measured"


# --- running them -----------------------------------------------------------------------------------------


def fake(argv_log: Path, result: str, name: str) -> str:
    """A stand-in for a tool: writes down how it was called, then a result file."""
    return (
        "import json, os, pathlib, sys\n"
        "how = json.dumps([sys.argv, sys.stdin.read(), dict(os.environ)])\n"
        f"pathlib.Path({str(argv_log)!r}).write_text(how)\n"
        f"pathlib.Path({name!r}).write_text({result!r})\n"
    )


def test_vllm_bench_gets_the_workload_and_no_key_in_its_arguments(tmp_path, monkeypatch):
    called = tmp_path / "called.json"
    result = (SAMPLES / "vllm-bench-0.27.1.json").read_text()
    monkeypatch.setattr(tools, "_VLLM_CHILD", fake(called, result, "result-0.json"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    run = tools.vllm_bench(SERVER, LOAD, say=lambda text: None)[0]
    assert len(run.table) == 5
    assert run.folder.is_relative_to(settings.WORKSPACE / "runs" / "tools")

    argv, stdin, environ = json.loads(called.read_text())
    asked = json.loads(stdin)
    values = dict(pairwise(asked))
    assert values["--max-concurrency"] == "2"
    assert json.loads(values["--extra-body"]) == {
        "temperature": 0,
        "chat_template_kwargs": {"enable_thinking": False},
        "max_completion_tokens": 10,
    }
    prompts = [json.loads(line) for line in Path(values["--dataset-path"]).read_text().splitlines()]
    assert [line["prompt"] for line in prompts] == list(LOAD.prompts)
    assert environ["OPENAI_API_KEY"] == SERVER.api_key
    assert SERVER.api_key not in json.dumps([argv, stdin])
    assert all(SERVER.api_key not in path.read_text() for path in run.folder.iterdir())


def test_aiperf_gets_the_workload_and_no_key_in_its_files(tmp_path, monkeypatch):
    called = tmp_path / "called.json"
    module = tmp_path / "modules" / "aiperf.py"
    module.parent.mkdir()
    module.write_text(fake(called, (SAMPLES / "aiperf-0.13.0.jsonl").read_text(), "profile_export.jsonl"))
    monkeypatch.setattr(tool_process, "environment", lambda spec, say: Path(sys.executable))
    monkeypatch.setenv("PYTHONPATH", str(module.parent))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    run = tools.aiperf(SERVER, LOAD, say=lambda text: None)
    assert len(run.table) == 5

    argv, _, environ = json.loads(called.read_text())
    config = json.loads((run.folder / "config.yaml").read_text())["benchmark"]
    assert argv[1:] == ["profile", "--config", str(run.folder / "config.yaml")]
    assert config["phases"] == {"type": "concurrency", "requests": 5, "concurrency": 2}
    assert config["endpoint"]["extra"]["chat_template_kwargs"] == {"enable_thinking": False}
    assert config["endpoint"]["url"] == "http://127.0.0.1:9"
    assert "HF_HUB_OFFLINE" not in environ
    assert environ["OPENAI_API_KEY"] == SERVER.api_key
    assert all(SERVER.api_key not in path.read_text() for path in run.folder.iterdir() if path.is_file())


def test_a_key_for_somebody_else_is_not_passed_on(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "for-another-server")
    assert "OPENAI_API_KEY" not in tool_process.environ(dataclasses.replace(SERVER, api_key=None))


def test_a_tool_without_a_result_gives_its_last_words(monkeypatch):
    monkeypatch.setattr(tools, "_VLLM_CHILD", "print('the disk is on fire')")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    with pytest.raises(CourseError, match=r"(?s)without a result.*the disk is on fire"):
        tools.vllm_bench(SERVER, LOAD, say=lambda text: None)


def test_without_vllm_it_says_so(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(CourseError, match="not installed here"):
        tools.vllm_bench(SERVER, LOAD)


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    # A killed grandchild stays in the list until whoever adopted it looks; it runs no more.
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


FAMILY = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(child.pid, flush=True)
time.sleep(600 if sys.argv[1] == "stay" else 0)
"""


@pytest.mark.parametrize("manner", ["stay", "leave"])
def test_no_process_of_a_tool_stays_behind(tmp_path, manner):
    run = (tool_process.run, [sys.executable, "-c", FAMILY, manner], tmp_path, dict(os.environ))
    if manner == "stay":
        with pytest.raises(CourseError, match="was stopped after"):
            run[0](*run[1:], timeout_s=3)
    else:
        assert run[0](*run[1:], timeout_s=60) == 0
    grandchild = int((tmp_path / "output.log").read_text())
    assert gone(grandchild)


def test_two_runs_in_one_second_get_two_folders():
    assert len({tool_process.run_folder("x") for _ in range(3)}) == 3
