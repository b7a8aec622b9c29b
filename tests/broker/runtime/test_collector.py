from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from typing import cast

import pytest

from broker.runtime.collector import CHECK_SECONDS, GROWTH_MEMBERS_MIN, Collector
from tests.support.stepped_loop import SteppedLoop

CHECK_MS = CHECK_SECONDS * 1000


class Harness:
    def __init__(self) -> None:
        self.loop = SteppedLoop()
        self.members = 0
        self.collector = Collector(cast(asyncio.AbstractEventLoop, self.loop), lambda: self.members)

    def passes(self) -> bool:
        """Whether objects were frozen in the meantime."""
        keep = [[] for _ in range(10)]  # type: ignore[var-annotated]
        before = gc.get_freeze_count()
        self.loop.pass_ms(CHECK_MS)
        assert keep
        return gc.get_freeze_count() > before


@pytest.fixture
def bench() -> Iterator[Harness]:
    harness = Harness()
    yield harness
    harness.collector.close()
    gc.enable()


def test_no_garbage_collection_runs_while_partitions_load(bench: Harness) -> None:
    bench.collector.pause()
    assert not gc.isenabled()
    bench.loop.pass_ms(10 * CHECK_MS)
    assert not gc.isenabled()
    bench.collector.resume()
    assert gc.isenabled()
    assert gc.get_freeze_count() > 0


def test_objects_are_frozen_again_after_large_growth(bench: Harness) -> None:
    bench.members = 80_000
    bench.collector.resume()
    assert not bench.passes()
    bench.members = 89_999
    assert not bench.passes()
    bench.members = 90_000
    assert bench.passes()
    assert not bench.passes()


def test_small_growth_freezes_nothing(bench: Harness) -> None:
    bench.collector.resume()
    bench.members = GROWTH_MEMBERS_MIN - 1
    assert not bench.passes()
    bench.members = GROWTH_MEMBERS_MIN
    assert bench.passes()


def test_freezing_waits_while_a_partition_reloads(bench: Harness) -> None:
    bench.collector.resume()
    bench.collector.pause()
    bench.members = 10 * GROWTH_MEMBERS_MIN
    assert not bench.passes()


def test_a_closed_collector_checks_no_more(bench: Harness) -> None:
    bench.collector.resume()
    bench.collector.close()
    bench.members = 10 * GROWTH_MEMBERS_MIN
    assert not bench.passes()
