"""What holds for every test: nothing is left running, no secret is left about, and under REQUIRE_ALL=1 nothing is left out."""

import asyncio
import inspect
import os
from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from tests.harness import canaries, product

ROOT = Path(__file__).resolve().parents[1]
FAST_FOLDERS = ("unit", "contract")
REAL_FOLDERS = ("sdk",)
REQUIRE_ALL = os.environ.get("REQUIRE_ALL") == "1"
# How long a transport or a server that was closed may take to end its own tasks.
SETTLE_S = 2.0
# Lines of what is wrong; the rest says the same again.
MAX_TOLD = 50

_skipped: list[str] = []

hypothesis.settings.register_profile("usual", deadline=None)
hypothesis.settings.register_profile(
    "fuzz", deadline=None, max_examples=100 * int(os.environ.get("FUZZ_EXAMPLES", "1") or 1)
)
hypothesis.settings.load_profile("fuzz" if "FUZZ_EXAMPLES" in os.environ else "usual")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "property: a property test (set where Hypothesis is used); `make fuzz` runs them"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        folder = item.path.relative_to(ROOT / "tests").parts[0] if item.path.is_relative_to(ROOT / "tests") else ""
        if folder in FAST_FOLDERS:
            item.add_marker(pytest.mark.fast)
        if folder in REAL_FOLDERS:
            item.add_marker(pytest.mark.real)
        function = getattr(item, "obj", None)
        if getattr(function, "is_hypothesis_test", False):
            item.add_marker(pytest.mark.property)
        elif inspect.iscoroutinefunction(function) and isinstance(item, pytest.Function):
            # First in, so that it looks after every other fixture has cleaned up.
            item.fixturenames.insert(0, "nothing_left_running")


@pytest.fixture
async def nothing_left_running() -> AsyncIterator[None]:
    """Fails a test that leaves a task behind, or in whose loop an exception went unheard."""
    loop = asyncio.get_running_loop()
    unheard: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _loop, context: unheard.append(context))
    before = asyncio.all_tasks()
    yield
    left = {task for task in asyncio.all_tasks() - before if task is not asyncio.current_task()}
    if left:
        await asyncio.wait(left, timeout=SETTLE_S)
    left = {task for task in left if not task.done()}
    assert not left, f"tasks are left running: {sorted(task.get_name() + ' ' + repr(task.get_coro()) for task in left)}"
    assert not unheard, f"exceptions that nobody heard: {unheard}"


@pytest.fixture(scope="session", autouse=True)
def no_canary_is_left() -> Iterator[None]:
    """Fails the run if a key, a credential, a prompt or an answer stands in anything that one of its products left. The first
    of all fixtures, so that it looks when every product has ended."""
    yield
    leaks = [leak for remains in product.MADE for leak in remains.leaks()]
    assert not leaks, "\n".join(["canaries where they may not be:", *leaks[:MAX_TOLD]])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fails a test whose output (so also the log of a service in this process) holds a canary."""
    report = yield
    if report.when == "teardown" and report.passed:
        leaks = [
            f"{title}: {hit.kind}" for title, text in report.sections for hit in canaries.KNOWN.find(text.encode())
        ]
        if leaks:
            report.outcome = "failed"
            report.longrepr = f"{item.nodeid}: canaries in its output:\n" + "\n".join(leaks)
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.skipped:
        _skipped.append(f"{report.nodeid}: {_reason(report)}")


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.skipped:
        _skipped.append(f"{report.nodeid}: {_reason(report)}")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if REQUIRE_ALL and _skipped and exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if not _skipped:
        return
    terminalreporter.section("left out" + (", and REQUIRE_ALL=1 allows none" if REQUIRE_ALL else ""))
    for line in _skipped:
        terminalreporter.write_line(line)


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    return report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr or "")
