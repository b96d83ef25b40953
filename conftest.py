"""One workspace and one engine for the whole test run.

The tests never touch the learner's own workspace: before anything of helpers/ is imported,
``PHONELLM_WORKSPACE`` names a fresh temporary folder, and what the developer's shell says in other
``PHONELLM_…`` variables is forgotten. Kernels of notebooks inherit both.

The embedded engine starts when the first test or notebook needs it, once, and ends with the run. Should the
run be killed outright, the engine's supervisor sees that this process is gone and ends it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parent
_named = os.environ.get("PHONELLM_WORKSPACE", "").strip() or "workspace"
REAL_WORKSPACE = (REPO / Path(_named).expanduser()).resolve()  # as helpers.settings has it
# MAKE…: started by make, a test that starts make itself would inherit its flags.
for variable in [name for name in os.environ if name.startswith(("PHONELLM_", "MAKE", "MFLAGS"))]:
    del os.environ[variable]
WORKSPACE = Path(tempfile.mkdtemp(prefix="phonellm-tests-")).resolve()
os.environ["PHONELLM_WORKSPACE"] = str(WORKSPACE)

NO_CHROMIUM = "no Chromium: sudo apt install chromium"
MODEL_FOLDER = "smollm2-135m-instruct"

_engine: list = []  # the one server, or why it could not be started


def needs_engine(item: pytest.Item) -> bool:
    return is_notebook(item) or "live_server" in getattr(item, "fixturenames", ())


def is_notebook(item: pytest.Item) -> bool:
    return item.path.suffix == ".ipynb"


def cost(item: pytest.Item) -> int:
    """Cheap tests first: what can be found out in a second should not wait for the engine."""
    if "chromium" in getattr(item, "fixturenames", ()):
        return 3
    return 2 if is_notebook(item) else 1 if needs_engine(item) else 0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=cost)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    os.environ.pop("PHONELLM_CHECK", None)
    if is_notebook(item):
        if item.path.parent.name == "solutions":
            os.environ["PHONELLM_CHECK"] = "strict"
        start_engine(item.config)


def pytest_runtest_teardown() -> None:
    os.environ.pop("PHONELLM_CHECK", None)


def pytest_sessionfinish() -> None:
    """After the last test, after a failure with -x, and after Ctrl-C."""
    if (WORKSPACE / "engine").exists():  # there is one, or its start was interrupted
        from helpers import engine

        engine.stop()


def pytest_unconfigure() -> None:
    if not (WORKSPACE / "keep").exists():
        shutil.rmtree(WORKSPACE, ignore_errors=True)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int) -> None:
    skipped = terminalreporter.stats.get("skipped", [])
    browser = sum(NO_CHROMIUM in str(report.longrepr) for report in skipped)
    if browser:
        terminalreporter.write_line(f"not run: {browser} browser checks ({NO_CHROMIUM})", yellow=True)
    log = WORKSPACE / "engine" / "server.log"
    if exitstatus == pytest.ExitCode.TESTS_FAILED and log.exists():
        (WORKSPACE / "keep").touch()
        terminalreporter.write_line(f"the engine's log of this run: {log}")


def start_engine(config: pytest.Config):
    """The one live server of this run. If it does not start, each test that needs it fails at once with
    the reason, which is found out only once."""
    if not _engine:
        reporter = config.pluginmanager.getplugin("terminalreporter")
        capture = config.pluginmanager.getplugin("capturemanager")
        with capture.global_and_fixture_disabled():
            reporter.write_line("\nstarting the engine (about a minute) ...")
        try:
            lend_model()
            from helpers import engine

            _engine.append(engine.connect(lambda line: None))
        except Exception as error:
            _engine.append(error)
    if isinstance(_engine[0], Exception):
        pytest.fail(f"the engine did not start: {_engine[0]}", pytrace=False)
    return _engine[0]


def lend_model() -> None:
    """Make the small model once in the real workspace, where it stays, and link it into this run's."""
    lent = WORKSPACE / "model" / MODEL_FOLDER
    if lent.exists():
        return
    made = subprocess.run(
        [sys.executable, "-c", "from helpers import model; print(model.prepare(lambda line: None))"],
        env=os.environ | {"PHONELLM_WORKSPACE": str(REAL_WORKSPACE)},
        cwd=REPO,
        capture_output=True,
        text=True,
    )
    if made.returncode:
        raise RuntimeError(f"the small model could not be made ready: {made.stderr[-2000:]}")
    lent.mkdir(parents=True)
    for file in Path(made.stdout.strip().splitlines()[-1]).iterdir():
        (lent / file.name).symlink_to(file)


@pytest.fixture(scope="session")
def live_server(request: pytest.FixtureRequest):
    """The embedded vLLM engine, really running: a :class:`helpers.settings.Server`."""
    return start_engine(request.config)


@pytest.fixture(scope="session")
def chromium() -> str:
    """Path of a Chromium, from CHROMIUM or the PATH."""
    names = [os.environ.get("CHROMIUM", ""), "chromium", "chromium-browser", "google-chrome"]
    found = next((path for name in names if name and (path := shutil.which(name))), None)
    if found is None:
        pytest.skip(NO_CHROMIUM)
    return found
