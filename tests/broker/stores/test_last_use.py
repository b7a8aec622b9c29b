from __future__ import annotations

import asyncio
from typing import cast

import pytest

from broker.stores.last_use import LastUse
from simulator.disk import SimDisk
from tests.support.topic_broker import TopicBroker


def test_the_time_of_last_use_is_stored_while_the_clock_is_trusted() -> None:
    broker = TopicBroker(SimDisk())
    now, trusted = 0, True
    last_use = LastUse(broker.store, cast(asyncio.AbstractEventLoop, broker.loop), lambda: now if trusted else -1)

    def pass_time(ms: int) -> int:
        """Let time pass; returns the stored time of last use."""
        nonlocal now
        now += ms
        broker.loop.jump(ms / 1000)
        broker.threads.run_all()
        return broker.store.directory.last_use()

    assert pass_time(15_000) == 15_000
    trusted = False
    assert pass_time(60_000) == 15_000
    last_use.stop()
    assert broker.store.directory.last_use() == 15_000
    last_use = LastUse(broker.store, cast(asyncio.AbstractEventLoop, broker.loop), lambda: now if trusted else -1)
    trusted = True
    assert pass_time(15_000) == 90_000
    assert pass_time(1_000) == 90_000
    last_use.stop()
    assert broker.store.directory.last_use() == 91_000


@pytest.mark.plain
def test_time_0_is_a_time() -> None:
    broker = TopicBroker(SimDisk())
    noted: list[int] = []
    broker.store.directory.note_use = noted.append  # type: ignore[method-assign,assignment]
    last_use = LastUse(broker.store, cast(asyncio.AbstractEventLoop, broker.loop), lambda: 0)
    broker.threads.run_all()
    last_use.stop()
    assert noted == [0, 0]
    broker.loop.jump(60)
    broker.threads.run_all()
    assert noted == [0, 0], "it stores no time after it was stopped"
