"""What holds for every test."""

from __future__ import annotations

import shutil
from collections.abc import Generator, Iterator
from typing import TypeVar

import pytest
from hypothesis import settings

from broker.logging.logs import log

Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)

settings.register_profile("busy", deadline=None)  # how long an example takes says more about the machine
settings.load_profile("busy")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--nothing-skipped", action="store_true", help="where Java is there, a test that is skipped has failed")


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
def log_lines_on_standard_output() -> Iterator[None]:
    """A test that runs the command in this process sends the log elsewhere; the next one looks for its lines where they are by default."""
    yield
    log.reset()
