"""Settings and fixtures of all tests."""

from __future__ import annotations

import gc
import shutil
from collections.abc import Generator, Iterator
from typing import TypeVar

import pytest
from hypothesis import settings

from broker.logging import secrets
from broker.logging.logs import log
from tests.support.controlled import controlled, process

Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)

settings.register_profile("busy", deadline=None)  # the duration of an example depends on the machine
settings.load_profile("busy")

ONCE = ("tests/bench/", "tests/broker/recorded/", "tests/coordinator/policies/", "tests/history/")  # folders of tests that get the marker `once`

gc.disable()  # while tests are collected: nearly all objects stay


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--nothing-skipped", action="store_true", help="where Java is there, a test that is skipped has failed")


@pytest.hookimpl(tryfirst=True)  # before tests are selected by their markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("spark"):
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))  # PySpark 4.1 leaves some to the garbage collector
        if item.nodeid.startswith(ONCE):
            item.add_marker(pytest.mark.once)


def pytest_collection_finish() -> None:
    """Exclude the collected tests from garbage collection: to traverse them would take a quarter of a second at each full collection."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    return unskipped(item.config, (yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    return unskipped(collector.config, (yield))


def unskipped(config: pytest.Config, report: Report) -> Report:
    if report.skipped and not hasattr(report, "wasxfail") and config.getoption("--nothing-skipped") and shutil.which("java"):
        report.outcome = "failed"
        report.longrepr = f"nothing may be skipped here, and this was: {report.longrepr[2]}"  # type: ignore[index]
    return report


@pytest.fixture(autouse=True)
def no_noted_logins() -> Iterator[None]:
    """Logins that a test gives to a command in this process are hidden from no other test."""
    yield
    secrets._noted.clear()


@pytest.fixture(autouse=True)
def log_lines_on_standard_output() -> Iterator[None]:
    """Reset the log output, which a test that runs the command in this process redirects."""
    yield
    log.reset()


__all__ = ["controlled", "process"]
