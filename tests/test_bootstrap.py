"""Set-up, run as `make` runs it, with a fake Python that notes what it is asked and installs nothing."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from helpers.settings import REPO

SCRIPT = REPO / "helpers" / "bootstrap.py"

# Plays the Python that makes the environment, and the environment's own. $FAKE_FAIL is a word of the pip
# command that fails.
FAKE_PYTHON = """\
#!/bin/sh
case "$1 $2" in
"-c import sys; print(*sys.version_info"*)
    echo "${FAKE_VERSION:-3 12}"; exit ;;
"-c import site"*)
    mkdir -p "$FAKE_HOME/.venv/site" && echo "$FAKE_HOME/.venv/site"; exit ;;
esac
echo "$*" >> "$FAKE_HOME/log"
case "$1 $2" in
"-m venv")
    if [ -n "$FAKE_VENV" ]; then echo "$FAKE_VENV"; exit 1; fi
    rm -rf "$4" && mkdir -p "$4/bin" && cp "$0" "$4/bin/python" ;;
"-m pip")
    [ -z "$FAKE_HANG" ] || sleep 60
    echo "Collecting one==1.0"
    for word in $FAKE_FAIL; do
        case "$*" in *$word*)
            echo "WARNING: Retrying after connection broken"
            echo "ERROR: No matching distribution found for one==1.0"; exit 1 ;;
        esac
    done
    echo "Installing collected packages: one" ;;
esac
"""

# Runs the script after some patches, as a machine of another kind would.
ELSEWHERE = "import os, platform, runpy, shutil, sys, types\nscript = sys.argv[1]\nsys.argv = sys.argv[1:]\n"


class Place:
    """A fresh clone, as far as set-up looks at it."""

    def __init__(self, folder):
        self.home = folder / "course"
        shutil.copytree(REPO / "requirements", self.home / "requirements")
        (self.home / "helpers").mkdir()
        self.script = shutil.copy(SCRIPT, self.home / "helpers")
        self.fake = folder / "python-fake"
        self.fake.write_text(FAKE_PYTHON)
        self.fake.chmod(0o755)
        self.venv = self.home / ".venv"
        # The PATH: what the fake needs and no Python, so that no test ever finds a real one and installs.
        self.tools = folder / "tools"
        self.tools.mkdir()
        for name in ("sh", "cp", "rm", "mkdir", "sleep"):
            (self.tools / name).symlink_to(shutil.which(name))

    def start(self, *words, patch="", python=sys.executable, stdin=subprocess.DEVNULL, **environment):
        runner = f"{ELSEWHERE}{patch}\nrunpy.run_path(script, run_name='__main__')\n"
        command = [python, "-I", "-c", runner] if patch else [python, "-I"]
        wanted = {
            "PATH": str(self.tools),
            "PYTHON": str(self.fake),
            "FAKE_HOME": str(self.home),
        } | environment
        return subprocess.Popen(
            [*command, self.script, *words],
            env={name: value for name, value in wanted.items() if value is not None},
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            # Where the tests run in the background, Ctrl-C is ignored, and children inherit that.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )

    def run(self, *words, **rest) -> tuple[int, str]:
        process = self.start(*words, **rest)
        try:
            said = process.communicate(timeout=60)[0]
        finally:
            process.kill()
        return process.returncode, said

    def refused(self, *words, **rest) -> str:
        """The lines with which set-up stops; no traceback, and it did not end well."""
        code, said = self.run(*words, **rest)
        assert code == 1, said
        assert "Traceback" not in said
        return said.split("\n\n")[-1].strip()

    def did(self) -> list[str]:
        """What the fake Pythons were asked since the last time."""
        log = self.home / "log"
        lines = log.read_text().splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        return [short(line) for line in lines]


def short(line: str) -> str:
    """A command without what all pip commands share, which is checked here."""
    if line.startswith("-m pip"):
        for word in ("install", "--no-deps", "--require-hashes", "--no-input"):
            assert f" {word} " in line
        return "pip " + line.partition("--progress-bar off ")[2]
    return "venv" if line.startswith("-m venv --clear") else line


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


FULL = ["venv", "pip -r requirements/torch-cpu.txt", "pip -r requirements/course.txt"]


# ---------------------------------------------------------------- the ordinary way


def test_the_first_run_makes_everything_and_the_second_nothing(place):
    code, said = place.run()
    assert code == 0, said
    assert said.splitlines()[-1] == "the environment is ready"
    assert place.did() == FULL
    assert (place.venv / "site" / "course.pth").read_text().strip() == str(place.home)
    settings = json.loads((place.venv / "share/jupyter/lab/settings/overrides.json").read_text())
    assert settings["@jupyterlab/apputils-extension:notification"]["fetchNews"] == "false"
    assert place.run() == (0, "")
    assert place.did() == []


def test_the_tests_need_a_bit_more_and_then_the_lab_nothing(place):
    place.run()
    place.did()
    assert place.run("--dev")[0] == 0
    assert place.did() == ["pip -r requirements/dev.txt"]
    assert place.run("--dev") == (0, "")
    assert place.run() == (0, "")
    assert place.did() == []


def test_tests_first_serves_the_lab_too(place):
    place.run("--dev")
    assert place.did() == [*FULL[:2], "pip -r requirements/dev.txt"]
    assert place.run() == (0, "")


@pytest.mark.parametrize("gone", ["stamp", "python", "dangling"])
def test_a_half_finished_environment_is_made_anew(place, gone):
    place.run()
    place.did()
    path = place.venv / ("course.json" if gone == "stamp" else "bin/python")
    path.unlink()
    if gone == "dangling":
        path.symlink_to(place.home / "a-python-that-was-removed")
    assert place.run()[0] == 0
    assert place.did() == FULL


@pytest.mark.parametrize("stamp", ["", "{", "[]", "3", "null", "{}"])
def test_a_spoilt_note_is_as_none(place, stamp):
    place.run()
    (place.venv / "course.json").write_text(stamp)
    place.did()
    assert place.run()[0] == 0
    assert place.did() == FULL


def test_a_failed_run_is_taken_up_again(place):
    assert place.run(FAKE_FAIL="course.txt")[0] == 1
    place.did()
    assert place.run()[0] == 0
    assert place.did() == FULL
    assert place.run() == (0, "")


def test_a_changed_pin_is_installed_into_the_same_environment(place):
    place.run()
    place.did()
    with (place.home / "requirements" / "course.txt").open("a") as file:
        file.write("# newer\n")
    assert place.run()[0] == 0
    assert place.did() == ["pip -r requirements/course.txt"]
    assert place.run() == (0, "")


def test_a_changed_pin_of_pytorch_is_installed_too(place):
    place.run()
    place.did()
    with (place.home / "requirements" / "torch-cpu.txt").open("a") as file:
        file.write("# newer\n")
    assert place.run()[0] == 0
    assert place.did() == FULL[1:]
    assert place.run() == (0, "")


def test_a_place_of_another_name_gets_its_path_again(place):
    place.run()
    place.did()
    moved = place.home.with_name("elsewhere")
    place.home.rename(moved)
    place.home, place.venv = moved, moved / ".venv"
    place.script = str(moved / "helpers" / "bootstrap.py")
    assert place.run()[0] == 0
    assert place.did() == ["pip -r requirements/course.txt"]
    assert (place.venv / "site" / "course.pth").read_text().strip() == str(moved)


def test_interrupted_it_says_how_to_go_on(place):
    process = place.start(FAKE_HANG="yes")
    try:
        deadline = time.monotonic() + 30
        while not (place.home / "log").exists() or "-m pip" not in (place.home / "log").read_text():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)
        said = process.communicate(timeout=30)[0]
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 1
    assert said.splitlines()[-1].startswith("Stopped. Type the same again")
    assert "Traceback" not in said


def test_stop_in_an_environment_that_is_not_complete_says_so(place):
    shutil.copy(REPO / "Makefile", place.home)

    def stop() -> str:
        done = subprocess.run(
            [shutil.which("make"), "stop"], cwd=place.home, capture_output=True, text=True, timeout=60
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    assert stop() == "nothing was running\n"
    (place.venv / "bin").mkdir(parents=True)
    (place.venv / "bin" / "python").symlink_to(sys.executable)
    assert stop() == "the environment is not complete; type: make setup\n"


# ---------------------------------------------------------------- without the engine


def test_without_the_engine_on_request_and_it_is_remembered(place):
    assert place.run(ENGINE="no")[0] == 0
    assert place.did() == ["venv", "pip -r requirements/course-no-engine.txt"]
    assert place.run() == (0, "")
    assert place.run(ENGINE="no") == (0, "")
    assert place.run(ENGINE="yes")[0] == 0
    assert place.did() == FULL
    assert place.run() == (0, "")


@pytest.mark.parametrize(
    ("patch", "words"),
    [
        ("sys.platform = 'darwin'", "exists for Linux only"),
        ("sys.platform = 'win32'", "WSL2 is Linux"),
        ("platform.machine = lambda: 'riscv64'", "for riscv64 processors"),
        ("platform.machine = lambda: 'armv7l'", "for armv7l processors"),
        ("platform.libc_ver = lambda: ('', '')", "glibc 2.28 or newer; this system has another C library"),
        ("platform.libc_ver = lambda: ('glibc', '2.17')", "this system has glibc 2.17"),
    ],
)
def test_where_vllm_cannot_run_the_rest_is_installed_and_the_reason_said(place, patch, words):
    code, said = place.run(patch=patch)
    assert code == 0, said
    assert said.startswith("no embedded engine: ")
    assert words in said.splitlines()[0]
    assert "recorded runs" in said
    assert place.did() == ["venv", "pip -r requirements/course-no-engine.txt"]
    assert place.run(patch=patch) == (0, "")


def test_a_python_newer_than_vllm_goes_on_without_it_and_the_advice_works(place):
    code, said = place.run(FAKE_VERSION="3 15")
    assert code == 0, said
    assert "not there yet for Python 3.15; try make lab ENGINE=yes PYTHON=python3.12" in said
    place.did()
    assert place.run(ENGINE="yes", FAKE_VERSION="3 12")[0] == 0
    assert place.did() == FULL


# ---------------------------------------------------------------- PyTorch


def test_pytorch_is_looked_for_in_its_own_index_second(place):
    code, said = place.run(FAKE_FAIL="off?-r?requirements/torch-cpu.txt")
    assert code == 0, said
    did = place.did()
    assert did[1] == FULL[1]
    assert did[2].startswith("pip --index-url https://")
    assert did[3] == FULL[2]
    assert len(did) == 4


def test_without_a_cpu_build_it_stops_with_two_choices(place):
    said = place.refused(FAKE_FAIL="torch-cpu.txt")
    assert "make lab TORCH=pypi " in said
    assert "make lab ENGINE=no " in said
    assert "No matching distribution" in said
    did = place.did()
    assert did[:2] == FULL[:2]
    assert did[2].startswith("pip --index-url https://")
    assert did[2].endswith("-r requirements/torch-cpu.txt")
    assert len(did) == 3, "nothing else was installed, and no CUDA build without a yes"


def test_the_cuda_build_is_taken_when_asked_for(place):
    code, said = place.run(TORCH="pypi", patch=room(free=100e9))
    assert code == 0, said
    assert place.did() == ["venv", "pip -r requirements/torch-pypi.txt", "pip -r requirements/course.txt"]


@pytest.mark.parametrize(
    ("answer", "code"), [("no\n", 1), ("\n", 1), ("nonsense\n", 1), ("yes\n", 0), ("Y\n", 0)]
)
def test_a_person_is_asked(place, answer, code):
    mine, its = pty.openpty()
    os.write(mine, answer.encode())
    done, said = place.run(stdin=its, FAKE_FAIL="torch-cpu.txt", patch=room(free=100e9))
    os.close(mine)
    os.close(its)
    assert done == code, said
    assert "several GB" in said
    taken = [line for line in place.did() if "torch-pypi" in line]
    assert len(taken) == (1 if code == 0 else 0)
    assert code == 0 or "ENGINE=no" in said.splitlines()[-1]


def test_nobody_is_asked_on_a_build_machine(place):
    mine, its = pty.openpty()
    said = place.refused(stdin=its, FAKE_FAIL="torch-cpu.txt", CI="true")
    os.close(mine)
    os.close(its)
    assert "TORCH=pypi" in said


# ---------------------------------------------------------------- what is missing, in one line


def room(*, free=100e9, memory=16e9) -> str:
    return (
        f"shutil.disk_usage = lambda path: types.SimpleNamespace(free={free})\n"
        f"os.sysconf = lambda name: {{'SC_PAGE_SIZE': 1, 'SC_PHYS_PAGES': {memory}}}[name]"
    )


def test_no_network(place):
    said = place.refused(FAKE_FAIL="course.txt")
    assert said.startswith("The packages could not be installed. Is there a network?")
    assert "pip said: ERROR: No matching distribution" in said
    assert not (place.venv / "course.json").exists()


def test_a_full_disk(place):
    said = place.refused(patch=room(free=1e9))
    assert "\n" not in said
    assert "has 1.0 GB free; the environment and its downloads need 5.0 GB" in said
    assert place.did() == []
    assert place.run(patch=room(free=2e9), ENGINE="no")[0] == 0, "enough without the engine"


def test_more_disk_is_needed_with_cuda(place):
    assert "need 14.0 GB" in place.refused(patch=room(free=8e9), TORCH="pypi")


def test_little_memory(place):
    said = place.refused(patch=room(memory=2e9))
    assert "\n" not in said
    assert "2.0 GB of memory; the engine needs 5 GB" in said
    assert "make lab ENGINE=no" in said
    assert place.run(patch=room(memory=2e9), ENGINE="no")[0] == 0


@pytest.mark.parametrize(
    "words",
    ["The virtual environment was not created because ensurepip is not available.", "No module named venv"],
)
def test_a_python_without_its_venv_part(place, words):
    said = place.refused(FAKE_VENV=words)
    assert said == "This Python lacks its venv part. Type: sudo apt install python3.12-venv && make lab"


def test_an_environment_that_cannot_be_made_for_another_reason(place):
    assert "Read-only file system" in place.refused(FAKE_VENV="Error: [Errno 30] Read-only file system")


def test_a_python_that_is_too_old_among_none_that_is_new(place):
    patch = f"sys.executable = {str(place.fake)!r}"
    said = place.refused(PYTHON=None, patch=patch, FAKE_VERSION="3 9")
    assert "\n" not in said
    assert said.startswith("Python 3.11 or newer is needed")
    assert "sudo apt install python3.12 python3.12-venv" in said


@pytest.mark.parametrize(("python", "version"), [("no-such-python", "3 12"), (None, "3 10"), (None, "4 0")])
def test_a_python_that_was_asked_for_and_will_not_do(place, python, version):
    said = place.refused(FAKE_VERSION=version, **({"PYTHON": python} if python else {}))
    assert said.startswith(f"PYTHON={python or place.fake} is no Python 3.11 or newer")
    assert place.did() == []


def test_an_old_python_finds_a_newer_one_beside_it(place):
    """As on a machine whose python3 is old, with python3.12 installed too."""
    shutil.copy(place.fake, place.tools / "python3.12")
    assert place.run(PYTHON=None, patch="sys.executable = '/bin/false'")[0] == 0
    assert place.did() == FULL


# ---------------------------------------------------------------- on a Python that is too old


def old_pythons() -> list[Path]:
    """Old Pythons of this machine, where pyenv keeps some."""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    return sorted(path for minor in range(6, 11) for path in root.glob(f"versions/3.{minor}.*/bin/python"))


def test_it_can_be_read_by_python_3_6():
    ast.parse(SCRIPT.read_text(), feature_version=(3, 6))
    assert "from __future__" not in SCRIPT.read_text(), "3.6 does not know annotations"
    tree = ast.parse(SCRIPT.read_text())
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.NamedExpr | ast.Match)]


@pytest.mark.parametrize("python", old_pythons(), ids=lambda path: path.parts[-3])
def test_a_real_old_python_says_that_it_is_too_old(place, python):
    version = python.parts[-3]
    said = place.refused(PYTHON=None, python=str(python))
    assert said.startswith(f"Python 3.11 or newer is needed; this is Python {version}.")
    assert "\n" not in said


def test_make_runs_it_with_the_python_that_is_there():
    # The tests themselves may have been started by make, which leaves its own flags for its children.
    own = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    shown = subprocess.run(
        ["make", "-n", "lab", "PYTHON3=some-python"], cwd=REPO, env=own, capture_output=True, text=True
    )
    lines = [line for line in shown.stdout.splitlines() if line.strip()]
    assert lines[0] == "some-python -I helpers/bootstrap.py", textwrap.indent(shown.stdout, "  ")
    assert lines[1].split()[:3] == [".venv/bin/python", "-m", "helpers.lab"]
