"""Fixtures of the broker's tests: `served`, a broker behind a real socket, and `desk` and `peer`, group coordinators without one."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.support.group_desk import Desk, Peer
from tests.support.in_loop import Served


@pytest_asyncio.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    """A broker in the event loop of the test; tests that use it are coroutines, marked `asyncio`."""
    broker = Served(tmp_path)
    await broker.start()
    try:
        yield broker
    finally:
        await broker.stop()
        gc.enable()  # a broker runs the garbage collector by hand
        gc.unfreeze()


@pytest.fixture
def desk() -> Desk:
    """A node that serves groups, its clock and event loop moved by the test."""
    return Desk()


@pytest.fixture
def peer(desk: Desk) -> Peer:
    """A client of `desk`."""
    return Peer(desk)
