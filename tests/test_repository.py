"""What holds for the repository as a whole: pins, addresses, paths, imports, style, notebooks."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib

import pytest

from helpers.settings import REPO

# In parts, so that this file does not hold what it forbids.
REGISTRIES = [".".join(parts) for parts in (
    ("pypi", "org"), ("pypi", "python", "org"), ("python" + "hosted", "org"),
    ("npmjs", "org"), ("npmjs", "com"),
    ("yarnpkg", "com"), ("deb", "debian", "org"), ("archive", "ubuntu", "com"), ("proxy", "golang", "org"),
    ("index", "crates", "io"),
)]  # fmt: skip
MACHINE_PATHS = re.compile(r"(?<![\w.~*-])/(?:work|root)/[\w.]")
HOME_PATHS = re.compile(r"(?<![\w.~*-])/(?:home|Users)/(?!runner\b)\w+")
HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}\b")
HEAVY = ("vllm", "torch", "transformers", "jupytext", "nbformat", "playwright")


def files() -> list:
    """Every file that is, or would be, in the repository."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=REPO, capture_output=True, text=True, check=True
    )
    return [path for line in listed.stdout.splitlines() if (path := REPO / line).is_file()]


def texts() -> dict:
    found = {}
    for path in files():
        try:
            found[str(path.relative_to(REPO))] = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # a picture, or a recorded run
    return found


def requirement_files() -> list:
    return sorted((REPO / "requirements").glob("*.txt"))


def helpers_modules() -> list[str]:
    return sorted(path.stem for path in (REPO / "helpers").glob("*.py") if path.stem != "__init__")


def run(*words: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, *words], cwd=REPO, capture_output=True, text=True)


def test_no_file_names_a_package_registry():
    found = {
        name: [host for host in REGISTRIES if host in text]
        for name, text in texts().items()
        if any(host in text for host in REGISTRIES)
    }
    assert not found


def test_no_file_names_a_place_on_somebodys_machine():
    found = {}
    for name, text in texts().items():
        # Tests of what must not get into a recorded run make up homes; nobody else has a reason to.
        patterns = [MACHINE_PATHS] if name.startswith("tests/") else [MACHINE_PATHS, HOME_PATHS]
        lines = [
            line.strip()[:120] for line in text.splitlines() if any(one.search(line) for one in patterns)
        ]
        if lines and name != "tests/test_repository.py":
            found[name] = lines
    assert not found


@pytest.mark.parametrize("path", requirement_files(), ids=lambda path: path.name)
def test_every_pin_is_exact_and_hashed(path):
    if path.name == "overrides.txt":
        lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
        assert lines, "no override left: then the file can go"
        assert all(line.endswith('python_version < "3"') for line in lines), (
            "overrides only leave packages out"
        )
        return
    pins = re.split(r"\n(?=[a-zA-Z])", re.sub(r"(?m)^#.*\n", "", path.read_text()))
    pins = [pin for pin in pins if pin.strip()]
    assert pins
    for pin in pins:
        assert re.match(r"[\w.\-\[\],]+==[\w.+!]+(\s|$)", pin), f"no exact version: {pin[:80]}"
        assert HASH.search(pin), f"no hash: {pin[:80]}"


def test_requirement_files_hold_no_address_at_all():
    for path in (REPO / "requirements").iterdir():
        lines = [line for line in path.read_text().splitlines() if not line.lstrip().startswith("#")]
        assert not [line for line in lines if "://" in line], path.name
        assert not [line for line in lines if re.match(r"\s*--?(index|extra-index|find-links|i\b|f\b)", line)]


def test_every_direct_dependency_has_its_reason():
    project = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"]]
    for extra in project["optional-dependencies"].values():
        wanted += extra
    names = {re.match(r"[\w.\-]+", one).group() for one in wanted}
    page = REPO / "CONTRIBUTING.md"
    lines = page.read_text().splitlines() if page.exists() else []
    bare = []
    for name in sorted(names):
        reasons = [
            line for line in lines
            if re.search(rf"(?<![\w-])`?{re.escape(name)}`?(?![\w-])", line)
            and len(line.replace(name, "").split()) >= 4
        ]  # fmt: skip
        if not reasons:
            bare.append(name)
    assert not bare, "CONTRIBUTING.md gives no reason (one line of at least four words) for these"


def test_importing_helpers_is_light():
    """One process imports every module; nothing heavy comes along, and nothing is printed."""
    code = (
        "import importlib, sys\n"
        f"for name in {helpers_modules()!r}: importlib.import_module('helpers.' + name)\n"
        f"sys.exit(', '.join(name for name in {HEAVY!r} if name in sys.modules) or 0)"
    )
    done = run("-c", code)
    assert done.returncode == 0, f"imported: {done.stderr}"
    assert done.stdout == ""


def imports_of(module: str) -> set[str]:
    """The helpers modules that one imports, wherever in it the import stands."""
    found = set()
    for node in ast.walk(ast.parse((REPO / "helpers" / f"{module}.py").read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "helpers":
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("helpers."):
            found.add(node.module.split(".")[1])
        elif isinstance(node, ast.Import):
            found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("helpers.")}
    return found & set(helpers_modules())


def test_helpers_imports_run_one_way():
    graph = {module: imports_of(module) for module in helpers_modules()}
    assert any(graph.values())
    left = dict(graph)
    while ready := [module for module, needs in left.items() if not needs & set(left)]:
        for module in ready:
            del left[module]
    assert not left, f"these import each other in a circle: {left}"


@pytest.mark.parametrize(
    "module", ["settings", "origins", "stats", "latency", "streaming", "check", "progress"]
)
def test_the_measuring_chain_knows_nothing_of_engines(module):
    """What times and counts works for any server: it must not depend on how ours is started."""
    seen, todo = set(), [module]
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo += imports_of(name)
    assert not seen & {"engine", "supervisor", "lab", "model", "recipes", "bootstrap"}


def test_bootstrap_needs_nothing_installed():
    tree = ast.parse((REPO / "helpers" / "bootstrap.py").read_text())
    names = {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    names |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert names
    assert names <= set(sys.stdlib_module_names)


def test_style():
    assert (done := run("-m", "ruff", "check", ".")).returncode == 0, done.stdout
    assert (done := run("-m", "ruff", "format", "--check", ".")).returncode == 0, done.stdout + done.stderr


def test_notebooks_are_what_their_sources_say():
    done = run("-m", "helpers.lessons", "check")
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_make_target_says_what_it_does():
    text = (REPO / "Makefile").read_text()
    phony = re.search(r"^\.PHONY: (.*)$", text, re.MULTILINE).group(1).split()
    shown = subprocess.run(["make", "help"], cwd=REPO, capture_output=True, text=True, check=True).stdout
    assert [name for name in phony if not re.search(rf"^{name}\s+\w", shown, re.MULTILINE)] == []
