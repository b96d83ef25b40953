"""Makes the course's environment, `.venv`, from the pinned requirement files; does nothing where it is made.

Run by `make`, with whatever Python the machine has, before anything is installed: so it uses the standard
library alone, and no syntax newer than Python 3.6, to be able to say that Python is too old.

    python3 helpers/bootstrap.py            the lab, the lessons and the engine
    python3 helpers/bootstrap.py --dev      with what the tests need

Settings, as environment variables or as in `make lab TORCH=pypi`:

    ENGINE=no     leave vLLM out; lessons then run on recorded runs or against PHONELLM_BASE_URL
    TORCH=pypi    take PyTorch from PyPI (with CUDA, several GB) where its CPU build cannot be reached
    PYTHON=...    the Python to make the environment with
"""

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VENV = os.path.join(HERE, ".venv")
STAMP = os.path.join(VENV, "course.json")
OLDEST, NEWEST_WITH_ENGINE = (3, 11), (3, 14)
DISK_GB = {"engine": 5.0, "lab": 1.5, "pypi": 14.0}
MEMORY_GB = 5.0
TORCH_PIN = "torch-cpu.txt"
TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"
# No question on first start, and no look-up of news: the lab opens at the lesson.
LAB_SETTINGS = {
    "@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False}
}


def stop(line: str) -> None:
    """End with one line that says what is wrong and what to type."""
    sys.exit("\n" + line)


def say(line: str) -> None:
    """Print a line at once."""
    print(line, flush=True)


def find_python() -> str:
    """A Python that is new enough: this one, or a newer one on the path."""
    names = [sys.executable] + ["python3.%d" % minor for minor in (12, 13, 11, 14)]
    for name in [os.environ["PYTHON"]] if os.environ.get("PYTHON") else names:
        path = shutil.which(name)
        if path and OLDEST <= version_of(path) < (4, 0):
            return path
    if os.environ.get("PYTHON"):
        stop("PYTHON=%s is no Python 3.11 or newer. Type, for example: make lab PYTHON=python3.12" % name)
    stop(
        "Python 3.11 or newer is needed; this is Python %s. Install one (Debian, Ubuntu: sudo apt install "
        "python3.12 python3.12-venv), then type: make lab PYTHON=python3.12" % platform.python_version()
    )
    return ""


def version_of(path: str) -> tuple:
    """(major, minor) of a Python executable; (0, 0) if it does not run."""
    try:
        command = [path, "-c", "import sys; print(*sys.version_info[:2])"]
        out = subprocess.check_output(command, stderr=subprocess.DEVNULL)
        return tuple(int(word) for word in out.split())
    except (OSError, ValueError, subprocess.CalledProcessError):
        return (0, 0)


def no_engine_because(version: tuple) -> str:
    """Why vLLM cannot be installed here; empty if it can."""
    if os.environ.get("ENGINE") == "no":
        return "ENGINE=no"
    if sys.platform != "linux":
        return "vLLM for the CPU exists for Linux only (on Windows, WSL2 is Linux)"
    if platform.machine() not in ("x86_64", "aarch64"):
        return "there is no vLLM for the CPU for %s processors" % platform.machine()
    if version > NEWEST_WITH_ENGINE:
        return "vLLM is not there yet for Python %d.%d; try make lab ENGINE=yes PYTHON=python3.12" % version
    name, libc = platform.libc_ver()
    if name != "glibc" or tuple(int(part) for part in libc.split(".")[:2]) < (2, 28):
        return "vLLM needs glibc 2.28 or newer; this system has %s %s" % (name or "another C library", libc)
    return ""


def check_room(engine: bool) -> None:
    """Stop with one line if the disk is too full or the machine too small."""
    kind = "lab" if not engine else "pypi" if os.environ.get("TORCH") == "pypi" else "engine"
    free = shutil.disk_usage(HERE).free / 1e9
    if free < DISK_GB[kind]:
        stop(
            "The disk of %s has %.1f GB free; the environment and its downloads need %.1f GB. Free some "
            "space, then type: make lab" % (HERE, free, DISK_GB[kind])
        )
    if engine and hasattr(os, "sysconf"):
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
        if memory < MEMORY_GB:
            stop(
                "This machine has %.1f GB of memory; the engine needs %.0f GB. To go on with recorded runs, "
                "type: make lab ENGINE=no" % (memory, MEMORY_GB)
            )


def make_venv(python: str) -> None:
    """An empty environment with pip in it."""
    say("making the environment %s with %s" % (VENV, python))
    result = subprocess.run(
        [python, "-m", "venv", "--clear", VENV], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    if result.returncode:
        text = result.stdout.decode("utf-8", "replace")
        if "ensurepip" in text or "No module named venv" in text:
            stop(
                "This Python lacks its venv part. Type: sudo apt install python%d.%d-venv && make lab"
                % version_of(python)
            )
        stop("The environment could not be made:\n%s" % text.strip())


def pip(words: list, what: str) -> str:
    """Install with pip, showing which package it is at; returns "" or the error text."""
    command = [venv_python(), "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
    begun = time.time()
    process = subprocess.Popen(
        command + ["--no-deps", "--require-hashes", "--progress-bar", "off"] + words,
        cwd=HERE,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        universal_newlines=True,
    )
    lines, count, terminal = [], 0, sys.stdout.isatty()
    say(what)
    for line in process.stdout:
        lines.append(line.rstrip())
        now = ""
        if line.startswith("Collecting "):
            count += 1
            now = "%4d  %s" % (count, line.split()[1].split("==")[0])
        elif line.startswith("Installing collected packages"):
            now = "unpacking %d packages (the longest part)" % max(count, 1)
        if now and terminal:
            print("\r  %4.0f s  %-60s" % (time.time() - begun, now[:60]), end="", flush=True)
        elif now and (count % 40 == 1 or now.startswith("unpacking")):
            say("  %4.0f s  %s" % (time.time() - begun, now))
    failed = process.wait()
    if terminal:
        print("\r  %4.0f s  %-60s" % (time.time() - begun, "failed" if failed else "done"), flush=True)
    if not failed:
        return ""
    return "\n".join(line for line in lines if "ERROR" in line or "rror:" in line)[-2000:] or "\n".join(
        lines[-5:]
    )


def install_torch() -> None:
    """PyTorch's CPU build, which PyPI does not carry; from PyPI with CUDA only on an explicit yes."""
    if os.environ.get("TORCH") != "pypi":
        wanted = ["-r", "requirements/" + TORCH_PIN]
        error = pip(wanted, "looking for PyTorch's CPU build (200 MB) where pip looks")
        if not error:
            return
        error = pip(
            ["--index-url", TORCH_CPU_INDEX, "--retries", "1", "--timeout", "30"] + wanted,
            "installing PyTorch's CPU build (200 MB) from PyTorch's own index",
        )
        if not error:
            return
        say(
            "PyTorch's CPU build can be had neither from %s nor from a find-links folder.\nWithout any "
            "network, connect first and type the same again. Otherwise there are two ways:" % TORCH_CPU_INDEX
        )
        if not sys.stdin.isatty() or os.environ.get("CI"):
            stop(
                "Type: make lab TORCH=pypi   to take the CUDA build from PyPI (several GB, fine on a CPU)\n"
                "  or: make lab ENGINE=no    to go on with recorded runs\n(pip said: %s)" % last(error)
            )
        answer = input("Take the CUDA build from PyPI instead (several GB; it runs on the CPU too)? yes/no: ")
        if answer.strip().lower() not in ("y", "yes"):
            stop("Nothing was taken. To go on with recorded runs, type: make lab ENGINE=no")
        os.environ["TORCH"] = "pypi"
        check_room(True)
    error = pip(["-r", "requirements/torch-pypi.txt"], "installing PyTorch with CUDA from PyPI (several GB)")
    if error:
        stop("PyTorch could not be installed. Is there a network? pip said: %s" % last(error))


def last(text: str) -> str:
    """The last line of a text."""
    return text.strip().splitlines()[-1] if text.strip() else "nothing"


def venv_python() -> str:
    """The environment's own Python."""
    return (
        os.path.join(VENV, "Scripts", "python.exe")
        if os.name == "nt"
        else os.path.join(VENV, "bin", "python")
    )


def pinned(engine: bool, dev: bool) -> str:
    """The pinned file for this kind of environment, under requirements/."""
    return "%s%s.txt" % ("dev" if dev else "course", "" if engine else "-no-engine")


def fingerprint(engine: bool, dev: bool) -> str:
    """What the environment is made from: changes when a pinned file or its own place does."""
    digest = hashlib.sha256(HERE.encode())
    for name in (pinned(engine, dev), TORCH_PIN):
        digest.update(read_pinned(name))
    return digest.hexdigest()


def read_pinned(name: str) -> bytes:
    """The bytes of one pinned file."""
    with open(os.path.join(HERE, "requirements", name), "rb") as file:
        return file.read()


def read_stamp() -> dict:
    """What the environment was made from: "engine" (true or false), a hash "torch" of PyTorch's pin, and a
    fingerprint each for "course" and "dev", as far as they were installed. Empty if it was never finished."""
    try:
        with open(STAMP) as file:
            stamp = json.load(file)
        return stamp if os.path.exists(venv_python()) and "engine" in stamp else {}
    except (OSError, ValueError, TypeError):
        return {}


def main() -> None:
    """Make the environment, or find that it is made."""
    dev = "--dev" in sys.argv[1:]
    stamp = read_stamp()
    # Who once chose to go on without the engine need not say so again; ENGINE=yes takes it back.
    engine = {"no": False, "yes": True}.get(os.environ.get("ENGINE", ""), stamp.get("engine"))
    if stamp and engine == stamp["engine"]:
        same = [kind for kind in ("course", "dev") if stamp.get(kind) == fingerprint(engine, kind == "dev")]
        if "dev" in same or (same and not dev):
            return
    python = find_python()
    if engine is not False:
        why_not = no_engine_because(version_of(python))
        engine = not why_not
        if why_not:
            say("no embedded engine: %s.\nLessons will use recorded runs, or PHONELLM_BASE_URL." % why_not)
    check_room(engine)
    if stamp.get("engine") != engine:
        make_venv(python)
        stamp = {}
    torch = hashlib.sha256(read_pinned(TORCH_PIN)).hexdigest() if engine else ""
    if torch != stamp.get("torch", ""):
        install_torch()
    install_pinned(engine, dev)
    finish(engine, dev, torch)
    say("the environment is ready")


def install_pinned(engine: bool, dev: bool) -> None:
    """Everything but PyTorch."""
    file = os.path.join("requirements", pinned(engine, dev))
    with open(os.path.join(HERE, file)) as lines:
        count = sum("==" in line for line in lines)
    error = pip(
        ["-r", file], "installing %d pinned packages%s" % (count, " (about 700 MB)" if engine else "")
    )
    if error:
        stop(
            "The packages could not be installed. Is there a network? Then type the same again; what was "
            "downloaded is kept.\npip said: %s" % error
        )


def finish(engine: bool, dev: bool, torch: str) -> None:
    """Let the environment find helpers/, open the lab without questions, and note that it is complete."""
    site = subprocess.check_output([venv_python(), "-c", "import site; print(site.getsitepackages()[-1])"])
    with open(os.path.join(site.decode().strip(), "course.pth"), "w") as file:
        file.write(HERE + "\n")
    folder = os.path.join(VENV, "share", "jupyter", "lab", "settings")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "overrides.json"), "w") as file:
        json.dump(LAB_SETTINGS, file)
    stamp = {"engine": engine, "torch": torch, "course": fingerprint(engine, False)}
    if dev:
        stamp["dev"] = fingerprint(engine, True)
    with open(STAMP, "w") as file:
        json.dump(stamp, file)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        stop("Stopped. Type the same again to go on; what was downloaded is kept.")
