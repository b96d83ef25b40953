"""make serve: what it says of a machine, and that a server it runs is stopped in every way it can end.

The machine is made up: an ``nvidia-smi`` and a ``vllm`` of our own stand first on the PATH.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time

import psutil
import pytest

from helpers import engine, model, recipes, serve
from helpers.settings import REPO, CourseError

B200 = "NVIDIA B200, 182634, 10.0, 580.65.06"
H100 = "NVIDIA H100 80GB HBM3, 81559, 9.0, 570.86.15"
SERVER = """#!{python}
import signal, subprocess, sys, time
worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
def end(number, frame):
    print("asked to stop by", number, flush=True)
    if "--stubborn" not in sys.argv:
        sys.exit(0)
signal.signal(signal.SIGINT, end)
signal.signal(signal.SIGTERM, end)
print("worker", worker.pid, flush=True)
print("words", *sys.argv[1:], flush=True)
while True:
    time.sleep(0.05)
"""


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Programs of our own first on the PATH, and nothing of the real machine's GPU or vLLM."""
    folder = tmp_path / "bin"
    folder.mkdir()

    def program(name: str, text: str) -> None:
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)

    def has(*, gpu: str | None = None, vllm: str | None = None) -> None:
        program("nvidia-smi", f"#!/bin/sh\necho '{gpu}'\n" if gpu else "#!/bin/sh\nexit 9\n")
        if vllm:
            program("vllm", SERVER.format(python=sys.executable))
            program("python3", f"#!/bin/sh\necho {vllm}\n")

    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    has()
    return has


@pytest.fixture
def weights(tmp_path):
    folder = tmp_path / "weights"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    return folder


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


# --- what is missing ----------------------------------------------------------------------------------------


def test_a_gpu_is_read_from_nvidia_smi(machine):
    machine(gpu=B200)
    [gpu] = serve.gpus()
    assert (gpu.name, gpu.compute_capability, gpu.driver) == ("NVIDIA B200", "10.0", "580.65.06")
    assert gpu.memory_gib == pytest.approx(178.35, abs=0.01)


def test_nvidia_smi_that_fails_or_babbles_is_no_gpu(machine):
    assert serve.gpus() == []
    machine(gpu="NVIDIA-SMI has failed because it could not communicate with the driver")
    assert serve.gpus() == []


@pytest.mark.parametrize(
    "text",
    [
        "#!/bin/sh\nprintf '\\377\\376\\000rubbish, 1, 2, 3\\n'\n",
        "#!/bin/sh\necho 'NVIDIA GB10, [N/A], 12.1, 580'\necho 'NVIDIA B200, nan, 10.0, 580'\n",
        "#!/bin/sh\nexec sleep 60\n",
    ],
    ids=["bytes", "no number", "hangs"],
)
def test_an_nvidia_smi_that_is_broken_is_no_gpu(machine, tmp_path, monkeypatch, text):
    monkeypatch.setattr(serve, "SMI_TIMEOUT_S", 0.5)
    (tmp_path / "bin" / "nvidia-smi").write_text(text)
    assert [gpu for gpu in serve.gpus() if "rubbish" not in gpu.name] == []


@pytest.mark.parametrize("port", ["abc", "-5", "0", "65536", "99999999999"])
def test_a_port_that_is_none_is_told(machine, capsys, port):
    with pytest.raises(SystemExit):
        serve.main(["--profile", "b200-bf16", "--port", port])
    assert f"PORT={port} is no" in capsys.readouterr().err


@pytest.mark.parametrize("host", ["no-such-name.invalid", "a..b", "x" * 300, "not a host"])
def test_a_host_that_is_none_is_told(machine, host):
    assert serve.missing(recipes.load("b200-bf16"), host=host)[-1].startswith(f"Host: {host} is no address")


def test_a_host_of_another_machine_and_one_of_version_6(machine):
    assert "not an address of this machine" in serve._port_lacks("192.0.2.1", free_port())
    lacks = serve._port_lacks("::1", free_port())
    assert lacks is None or "not an address of this machine" in lacks  # where version 6 is switched off


def test_a_bare_machine_lacks_everything(machine, monkeypatch):
    monkeypatch.setattr(serve, "weights", lambda recipe: None)
    lacks = serve.missing(recipes.load("b200-bf16"))
    assert [line.split(":")[0] for line in lacks] == ["GPU", "Engine", "Weights"]
    assert "Rent one: deploy/README.md" in lacks[0]
    assert "requirements/gpu.txt" in lacks[1]
    assert "63.2 GB" in lacks[2]
    assert "Lesson 02" in lacks[2]


def test_a_machine_that_fits_lacks_nothing(machine, weights):
    machine(gpu=B200, vllm="0.27.1")
    assert serve.missing(recipes.load("b200-nvfp4"), model_path=weights, port=free_port()) == []


def test_another_gpu_is_told_and_its_own_profile_named(machine, weights):
    machine(gpu=H100, vllm="0.27.1")
    [line] = serve.missing(recipes.load("b200-nvfp4"), model_path=weights, port=free_port())
    assert "compute capability 9.0" in line
    assert "PROFILE=h100-bf16" in line


def test_a_gpu_with_too_little_memory(machine, weights):
    machine(gpu=H100, vllm="0.27.1")
    [line] = serve.missing(recipes.load("h200-bf16"), model_path=weights, port=free_port())
    assert line.startswith("GPU memory: 135 GiB")


def test_another_version_of_vllm_is_told(machine, weights):
    machine(gpu=B200, vllm="0.26.0")
    [line] = serve.missing(recipes.load("b200-bf16"), model_path=weights, port=free_port())
    assert "vllm 0.27.1; on the PATH is 0.26.0" in line


def test_a_folder_that_holds_no_model(machine, weights):
    machine(gpu=B200, vllm="0.27.1")
    (weights / "config.json").unlink()
    [line] = serve.missing(recipes.load("b200-bf16"), model_path=weights, port=free_port())
    assert "no config.json" in line


def test_weights_that_nobody_publishes_are_asked_for(machine):
    machine(gpu="NVIDIA L40S, 46068, 8.9, 570.86.15", vllm="0.27.1")
    [line] = serve.missing(recipes.load("l40s-fp8"), port=free_port())
    assert "MODEL=" in line


def test_a_full_disk_is_told(machine, monkeypatch):
    machine(gpu=B200, vllm="0.27.1")
    monkeypatch.setattr(serve, "weights", lambda recipe: None)
    monkeypatch.setattr(serve.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 40e9}))
    [line] = serve.missing(recipes.load("b200-bf16"), port=free_port())
    assert "40 GB free and needs 68" in line


def test_a_port_in_use_is_told(machine, weights):
    machine(gpu=B200, vllm="0.27.1")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        [line] = serve.missing(recipes.load("b200-bf16"), model_path=weights, port=port)
    assert f"PORT={port + 1}" in line


def test_the_embedded_recipe_needs_no_gpu(monkeypatch):
    assert serve.missing(recipes.load("embedded"), port=free_port()) == []
    monkeypatch.setattr(engine, "MEMORY_NEEDED_GIB", 1e6)
    assert serve.missing(recipes.load("embedded"), port=free_port())[0].startswith("Memory: 1000000 GiB")


@pytest.mark.parametrize("name", [name for name in recipes.names() if name != "embedded"])
def test_every_gpu_recipe_fits_the_gpu_that_it_names(name):
    """Memory as the drivers show it: below what is on the box."""
    shown_gib = {"B200": 178.3, "H200": 140.4, "H100": 79.6, "L40S": 45.0, "RTX PRO 6000": 95.6}
    recipe = recipes.load(name)
    gpu = serve.Gpu(recipe.gpu, shown_gib[recipe.gpu], recipe.compute_capability, "580")
    assert serve.fits(recipe, gpu)
    assert recipe.weights_bytes / 2**30 < recipe.memory_gib


# --- weights that lesson 02 fetched -------------------------------------------------------------------------


def test_only_a_whole_copy_counts(tmp_path, monkeypatch):
    from helpers import hub

    recipe = recipes.load("b200-bf16")
    snapshot = tmp_path / "hub" / "models--x--y" / "snapshots" / recipe.revision
    asked = []
    monkeypatch.setattr(hub, "find", lambda repo, name, revision: snapshot / name)
    monkeypatch.setattr(hub, "local", lambda *words: asked.append(words))
    assert serve.weights(recipe) is None, "config.json alone is no model"
    assert asked == [(recipe.repository, recipe.revision, tmp_path / "hub")]


# --- the program --------------------------------------------------------------------------------------------


def test_without_a_profile_all_are_listed(machine, capsys):
    assert serve.main([]) == 0
    said = capsys.readouterr().out
    for name in recipes.names():
        assert f"\n  {name} " in said
    assert "no GPU that nvidia-smi shows" in said


def test_an_unknown_profile_is_answered_with_the_list(capsys):
    assert serve.main(["--profile", "b200"]) == 1
    assert "b200-nvfp4" in capsys.readouterr().out


def test_where_it_does_not_fit_the_command_is_shown_all_the_same(machine, capsys):
    assert serve.main(["--profile", "b200-nvfp4"]) == 1
    said = capsys.readouterr().out
    assert "--moe-backend flashinfer_cutlass" in said
    assert "hf download pipecat-ai/phonellm-alpha-1-nvfp4" in said
    assert "does not fit it yet:\n  - GPU:" in said


def test_dry_shows_and_starts_nothing(machine, weights, capsys, monkeypatch):
    machine(gpu=B200, vllm="0.27.1")
    monkeypatch.setattr(serve, "run", lambda *words: pytest.fail("it started"))
    port = str(free_port())
    assert serve.main(["--profile", "b200-bf16", "--model", str(weights), "--port", port, "--dry", "1"]) == 0
    assert f"vllm serve {weights}" in capsys.readouterr().out


def test_who_listens_to_the_world_is_warned(machine, weights, capsys):
    serve.main(["--profile", "b200-bf16", "--model", str(weights), "--host", "0.0.0.0", "--dry", "1"])
    assert "VLLM_API_KEY" in capsys.readouterr().out


class Served:
    """``python -m helpers.serve`` with the made-up vLLM, running."""

    def __init__(self, weights, *more: str) -> None:
        words = ["--profile", "b200-bf16", "--model", str(weights), "--port", str(free_port()), *more]
        self.process = subprocess.Popen(
            [sys.executable, "-u", "-m", "helpers.serve", *words],
            cwd=REPO, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env=os.environ | {"PHONELLM_API_KEY": "not-for-the-server"},
        )  # fmt: skip
        self.said: queue.Queue[str] = queue.Queue()
        self.lines: list[str] = []
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        for line in self.process.stdout:
            self.said.put(line)
        self.said.put("")

    def until(self, start: str) -> str:
        """The next line that begins so."""
        while line := self.said.get(timeout=30):
            self.lines.append(line)
            if line.startswith(start):
                return line.strip()
        raise AssertionError(f"no line {start!r} in:\n{''.join(self.lines)}")

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.reader.join(10)
        self.process.stdout.close()


@pytest.fixture
def served(machine, weights):
    machine(gpu=B200, vllm="0.27.1")
    started = []

    def start(*more: str) -> Served:
        started.append(Served(weights, *more))
        return started[-1]

    yield start
    for one in started:
        one.end()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda one: one.name)
def test_a_signal_is_passed_on_and_nothing_stays_behind(served, number):
    one = served()
    worker = psutil.Process(int(one.until("worker").split()[1]))
    server = worker.parent()
    assert "not-for-the-server" not in server.environ().values()
    assert one.until("words").startswith("words serve ")
    one.process.send_signal(number)
    passed = signal.SIGTERM if number == signal.SIGHUP else number
    one.until(f"asked to stop by {passed.value}")
    assert one.process.wait(20) == 0
    _, alive = psutil.wait_procs([worker, server], timeout=10)
    assert alive == []


def test_a_server_that_does_not_listen_is_ended_at_the_third_time(served):
    one = served("--name=--stubborn")
    worker = psutil.Process(int(one.until("worker").split()[1]))
    server = worker.parent()
    one.until("words")
    for _ in range(2):
        one.process.send_signal(signal.SIGINT)
        one.until("asked to stop")
    one.process.send_signal(signal.SIGINT)
    assert one.process.wait(20) == 128 + signal.SIGKILL
    _, alive = psutil.wait_procs([worker, server], timeout=10)
    assert alive == []


@pytest.mark.parametrize("gap_s", [0.0, 0.3])
def test_an_impatient_caller_leaves_nothing_behind(served, gap_s):
    """Further Ctrl-Cs come while the rest is being cleaned up, and must not end that."""
    one = served("--name=--stubborn")
    worker = psutil.Process(int(one.until("worker").split()[1]))
    server = worker.parent()
    one.until("words")
    for number in [signal.SIGINT, signal.SIGTERM, signal.SIGHUP] * 3:
        if one.process.poll() is None:
            one.process.send_signal(number)
        time.sleep(gap_s)
    assert one.process.wait(20) == 128 + signal.SIGKILL
    _, alive = psutil.wait_procs([worker, server], timeout=10)
    assert alive == []


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a child with its parent")
def test_a_server_does_not_outlive_a_caller_that_is_killed(served):
    one = served()
    worker = psutil.Process(int(one.until("worker").split()[1]))
    server = worker.parent()
    one.until("words")
    one.process.kill()
    _, alive = psutil.wait_procs([server], timeout=10)
    with contextlib.suppress(psutil.NoSuchProcess):
        worker.kill()  # vLLM ends its own; this made-up one does not
    assert alive == []


def test_a_program_that_cannot_be_started_is_told(tmp_path):
    program = tmp_path / "vllm"
    program.write_text("#!/no/such/program\n")
    program.chmod(0o755)
    with pytest.raises(CourseError, match="could not be started"):
        serve.run([str(program)])
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_servers_own_exit_status_is_passed_on(machine):
    assert serve.run([sys.executable, "-c", "raise SystemExit(3)"]) == 3
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_make_hands_over_what_was_typed():
    said = subprocess.run(
        ["make", "-n", "serve", "PROFILE=b200-bf16", "PORT=8001", "MODEL=/a folder"],
        cwd=REPO, capture_output=True, text=True, check=True,
        env={name: value for name, value in os.environ.items() if name != "MAKEFLAGS"},
    ).stdout  # fmt: skip
    assert '--profile="b200-bf16"' in said
    assert '--model="/a folder"' in said
    assert '--port="8001"' in said


def test_the_embedded_model_keeps_its_name():
    assert serve._served_name(recipes.EMBEDDED) == model.NAME
    assert serve._served_name(recipes.load("b200-bf16")) == recipes.SERVED_NAME
