"""`served`: a broker in the event loop of the test, behind a real socket. Tests that use it are coroutines, marked `asyncio`."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from tests.support.in_loop import Served


@pytest_asyncio.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    broker = Served(tmp_path)
    await broker.start()
    try:
        yield broker
    finally:
        await broker.stop()
        gc.enable()  # a broker decides when garbage is looked for
        gc.unfreeze()
