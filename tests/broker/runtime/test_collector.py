from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from typing import cast

import pytest

from broker.runtime.collector import CHECK_SECONDS, GROWTH_MEMBERS_MIN, Collector
from tests.support.fake_loop import FakeLoop

CHECK_MS = CHECK_SECONDS * 1000


class Desk:
    def __init__(self) -> None:
        self.loop = FakeLoop()
        self.members = 0
        self.collector = Collector(cast(asyncio.AbstractEventLoop, self.loop), lambda: self.members)

    def passes(self) -> bool:
        """Whether anything was taken out of sight meanwhile."""
        keep = [[] for _ in range(10)]  # type: ignore[var-annotated]
        before = gc.get_freeze_count()
        self.loop.pass_ms(CHECK_MS)
        assert keep
        return gc.get_freeze_count() > before


@pytest.fixture
def bench() -> Iterator[Desk]:
    made = Desk()
    yield made
    made.collector.close()
    gc.unfreeze()
    gc.enable()


def test_nothing_is_collected_while_partitions_load(bench: Desk) -> None:
    bench.collector.pause()
    assert not gc.isenabled()
    bench.loop.pass_ms(10 * CHECK_MS)
    assert not gc.isenabled()
    bench.collector.resume()
    assert gc.isenabled()
    assert gc.get_freeze_count() > 0


def test_what_grows_by_much_is_taken_out_of_sight_again(bench: Desk) -> None:
    bench.members = 80_000
    bench.collector.resume()
    assert not bench.passes()
    bench.members = 89_999
    assert not bench.passes()
    bench.members = 90_000
    assert bench.passes()
    assert not bench.passes()


def test_a_few_members_more_are_no_reason(bench: Desk) -> None:
    bench.collector.resume()
    bench.members = GROWTH_MEMBERS_MIN - 1
    assert not bench.passes()
    bench.members = GROWTH_MEMBERS_MIN
    assert bench.passes()


def test_while_something_loads_again_it_waits(bench: Desk) -> None:
    bench.collector.resume()
    bench.collector.pause()
    bench.members = 10 * GROWTH_MEMBERS_MIN
    assert not bench.passes()


def test_it_looks_no_more_once_it_is_closed(bench: Desk) -> None:
    bench.collector.resume()
    bench.collector.close()
    bench.members = 10 * GROWTH_MEMBERS_MIN
    assert not bench.passes()
