"""The coordinator's clock is set back: the order of the log counts, and what clocks cannot tell is unknown."""

from __future__ import annotations

import copy

import pytest

from pipeline.advice import AdviceTables, advise
from pipeline.avoidable import UNKNOWN, YES
from pipeline.restarts import Restarts
from pipeline.virtual import MemoryRecorder, World
from tests.pipeline.advising import played
from tests.pipeline.playing import CLUSTER, GROUP, fold
from tests.pipeline.scenarios import BEGIN_MS, pod, pods

pytestmark = pytest.mark.once  # no dependence on the Python version

BACK_MS = 90_000
FIRST_MS = BEGIN_MS + 1_200_000  # the first restart


def script(world: World) -> None:
    """A member restarts, and soon leaves for good; another one joins; a third one restarts."""
    running = pods(world, 3, session_ms=45_000)
    world.run_until(FIRST_MS)
    running[1].restart(20_000)
    world.run(30_000)
    running[1].stop()
    world.run(40_000)
    pod(world, 7)
    world.run(60_000)
    running[0].restart(20_000)


def with_clock_set_back(world: World, at_ms: int, notes: bool) -> tuple[Restarts, AdviceTables]:
    memory = world.recorder
    assert isinstance(memory, MemoryRecorder)

    def shown(ms: int) -> int:
        return ms - BACK_MS if ms >= at_ms else ms

    note_records = memory.note_records() if notes else []
    for number, note in enumerate(note_records):
        header = copy.copy(note.header)
        header.ts = shown(header.ts)
        note_records[number] = note._replace(header=header)
    group_records = memory.group_records(GROUP)
    for number, record in enumerate(group_records):
        stored = copy.copy(record.stored)
        if stored is not None:
            stored.current_state_timestamp = shown(stored.current_state_timestamp)
        group_records[number] = record._replace(at_ms=shown(record.at_ms), stored=stored)
    tables = fold(note_records, group_records, now_ms=world.now)
    return Restarts(tables, world.now), advise(CLUSTER, GROUP, tables, world.now)


@pytest.mark.parametrize("notes", [True, False])
@pytest.mark.parametrize("after_ms", range(0, 200_000, 5_000))
def test_no_member_is_its_own_successor_and_no_absence_is_wrong(after_ms: int, notes: bool) -> None:
    world = played(script)
    truth = [restart.gap_ms for restart in world.restarts]
    restarts, advised = with_clock_set_back(world, FIRST_MS + after_ms, notes)
    stays = restarts.stays
    for pair in restarts.pairs:
        old, new = stays[pair.old], stays[pair.new]
        assert old.member_id != new.member_id
        assert old.client_id == new.client_id
    for gap in advised.gaps:
        if gap.returned:
            assert gap.gap_hi_ms is not None
            assert any(gap.gap_lo_ms <= true_ms <= gap.gap_hi_ms for true_ms in truth)
        else:
            assert gap.member_key in (stay.member_id for stay in stays if stay.client_id == "p1")
    *_, left_for_good, newcomer, _, _ = advised.episodes
    assert YES not in (left_for_good.avoidable, newcomer.avoidable)
    assert all(episode.avoidable in (YES, UNKNOWN) for episode in advised.episodes if episode not in (advised.episodes[0], left_for_good, newcomer))
