"""Fixtures of the broker's tests: `served` is a broker behind a real socket, `harness` and `peer` work without one."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from broker.runtime.contain import DEFECTS
from tests.support.group_harness import GroupClient, GroupHarness
from tests.support.in_loop import InLoopBroker
from tests.support.small_disk import mounted

DISK_KIB = 512
PLANTING = {"DEFECTS", "Defective"}


@pytest.hookimpl(tryfirst=True)  # before tests are selected by their markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that drive their event loop themselves as `once`: without sockets, processes or threads, the Python version has no effect."""
    for item in items:
        if not {"harness", "machine", "world"}.isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.once)


@pytest.fixture(autouse=True)
def no_contained_exception(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test in which the broker contained an exception, unless the test or its module plants exceptions."""
    before = DEFECTS.count
    yield
    planted = "planted_defect" in request.fixturenames or not PLANTING.isdisjoint(vars(request.module))
    assert DEFECTS.count == before or planted, DEFECTS.last


@pytest.fixture
def planted_defect() -> Iterator[None]:
    """The test plants an exception, which must be contained."""
    before = DEFECTS.count
    yield
    assert DEFECTS.count > before


@pytest_asyncio.fixture
async def served(tmp_path: Path) -> AsyncIterator[InLoopBroker]:
    """A broker in the event loop of the test; tests that use it are coroutines, marked `asyncio`."""
    broker = InLoopBroker(tmp_path)
    await broker.start()
    try:
        yield broker
    finally:
        await broker.stop()
        gc.enable()  # a test may have turned it off


@pytest.fixture
def harness() -> GroupHarness:
    """A node that serves groups, its clock and event loop moved by the test."""
    return GroupHarness()


@pytest.fixture
def peer(harness: GroupHarness) -> GroupClient:
    """A client of `harness`."""
    return GroupClient(harness)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of half a MiB."""
    with mounted(tmp_path / "disk", DISK_KIB) as disk:
        yield disk
