from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from typing import cast

import pytest

from broker.runtime.collector import CHECK_SECONDS, GROWTH_MEMBERS_MIN, NEVER, Collector
from tests.support.stepped_loop import SteppedLoop

CHECK_MS = CHECK_SECONDS * 1000


class CollectorHarness:
    def __init__(self) -> None:
        self.loop = SteppedLoop()
        self.members = 0
        self.collector = Collector(cast(asyncio.AbstractEventLoop, self.loop), lambda: self.members)

    def freezes_at_next_check(self) -> bool:
        """Let the time between two checks pass; whether the collector froze objects then."""
        keep = [[] for _ in range(10)]  # type: ignore[var-annotated]
        before = gc.get_freeze_count()
        self.loop.pass_ms(CHECK_MS)
        assert keep
        return gc.get_freeze_count() > before


@pytest.fixture
def collector_harness() -> Iterator[CollectorHarness]:
    harness = CollectorHarness()
    yield harness
    harness.collector.close()
    gc.enable()


def test_no_garbage_collection_runs_while_partitions_load(collector_harness: CollectorHarness) -> None:
    collector_harness.collector.pause()
    assert not gc.isenabled()
    collector_harness.loop.pass_ms(10 * CHECK_MS)
    assert not gc.isenabled()
    collector_harness.collector.resume()
    assert gc.isenabled()
    assert gc.get_freeze_count() > 0


def test_objects_are_frozen_again_after_large_growth(collector_harness: CollectorHarness) -> None:
    collector_harness.members = 80_000
    collector_harness.collector.resume()
    assert not collector_harness.freezes_at_next_check()
    collector_harness.members = 89_999
    assert not collector_harness.freezes_at_next_check()
    collector_harness.members = 90_000
    assert collector_harness.freezes_at_next_check()
    assert not collector_harness.freezes_at_next_check()


def test_small_growth_freezes_nothing(collector_harness: CollectorHarness) -> None:
    collector_harness.collector.resume()
    collector_harness.members = GROWTH_MEMBERS_MIN - 1
    assert not collector_harness.freezes_at_next_check()
    collector_harness.members = GROWTH_MEMBERS_MIN
    assert collector_harness.freezes_at_next_check()


def test_freezing_waits_while_a_partition_reloads(collector_harness: CollectorHarness) -> None:
    collector_harness.collector.resume()
    collector_harness.collector.pause()
    collector_harness.members = 10 * GROWTH_MEMBERS_MIN
    assert not collector_harness.freezes_at_next_check()


def test_full_collections_wait_while_long_requests_come(collector_harness: CollectorHarness) -> None:
    usual = gc.get_threshold()
    collector_harness.collector.postpone()
    assert gc.get_threshold() == usual, "nothing would end it yet"
    collector_harness.collector.resume()
    collector_harness.loop.pass_ms(CHECK_MS / 2)
    collector_harness.collector.postpone()
    assert gc.get_threshold() == (*usual[:2], NEVER)
    collector_harness.loop.pass_ms(CHECK_MS / 2)
    assert gc.get_threshold() == (*usual[:2], NEVER), "the request may still be answered"
    collector_harness.loop.pass_ms(CHECK_MS)
    assert gc.get_threshold() == usual


def test_long_requests_postpone_full_collections_for_a_limited_time(collector_harness: CollectorHarness) -> None:
    usual = gc.get_threshold()
    collector_harness.collector.resume()
    postponed_ms = 0.0
    collector_harness.collector.postpone()
    while gc.get_threshold() != usual and postponed_ms < 100_000:
        collector_harness.loop.pass_ms(CHECK_MS / 2)
        collector_harness.collector.postpone()
        collector_harness.loop.pass_ms(CHECK_MS / 2)
        postponed_ms += CHECK_MS
    assert postponed_ms == 60_000


def test_closing_ends_the_postponement(collector_harness: CollectorHarness) -> None:
    usual = gc.get_threshold()
    collector_harness.collector.resume()
    collector_harness.collector.postpone()
    collector_harness.collector.close()
    assert gc.get_threshold() == usual


def test_a_closed_collector_checks_no_more(collector_harness: CollectorHarness) -> None:
    collector_harness.collector.resume()
    collector_harness.collector.close()
    collector_harness.members = 10 * GROWTH_MEMBERS_MIN
    assert not collector_harness.freezes_at_next_check()
