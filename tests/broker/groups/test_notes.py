"""Writing of notes to __coordinator_notes, over scripted logs."""

from __future__ import annotations

from typing import Any

import pytest

from broker.groups.change_log import LINES_PER_SECOND
from broker.groups.group_journal import HandOver
from broker.groups.notes import GATHER_MS, NOTES_PER_PASS, NOTES_QUEUED_MAX, RETRY_MS
from coordinator import Note
from coordinator.notes import ShardChange
from coordinator.states import State
from protocol.messages.coordinator_notes import CoordinatorChange, RoundEnd
from protocol.messages.kinds import NoteKind
from storage import AppendFailed, HeldBy, LogId, Unreadable
from tests.support.notes import NoteHarness, change, ended, loaded_partition


@pytest.fixture
def harness() -> NoteHarness:
    return NoteHarness()


def test_notes_are_written_in_the_background(harness: NoteHarness) -> None:
    harness.tell(change("a"), ended("a"), offset=41)
    harness.tell(change("b"), offset=44)
    harness.pass_time(GATHER_MS - 1)
    assert (harness.written(), harness.store.acquired) == ([], [])
    harness.pass_time(1)
    assert len(harness.log().stored) == 1  # one batch
    assert [(group, header.kind, header.seq, header.offsets_log_offset) for group, header, _ in harness.written()] == [
        ("a", NoteKind.STATE_CHANGE, 0, 41),
        ("a", NoteKind.ROUND_END, 1, 41),
        ("b", NoteKind.STATE_CHANGE, 2, 44),
    ]
    _, header, body = harness.written()[0]
    assert (header.ts, header.coordinator_epoch, header.generation, header.state, header.dropped) == (77, 4, 3, State.PREPARING, 0)
    assert (body.from_state, body.to_state, body.reason, body.member, body.members) == (State.STABLE, State.PREPARING, 4, "m-1", 5)


def test_each_partition_has_a_log_of_its_own_from_its_first_note_on(harness: NoteHarness) -> None:
    harness.tell(change(), partition=3)
    harness.pass_time(partitions=5)
    assert harness.store.acquired == [LogId("__coordinator_notes", 3)]
    harness.tell(change(), partition=4)
    harness.tell(change(), partition=3)
    harness.pass_time(partitions=5)
    assert [header.seq for _, header, _ in harness.written(3)] == [0, 1]
    assert [header.seq for _, header, _ in harness.written(4)] == [0]


def test_a_log_is_opened_once_for_several_readers(harness: NoteHarness) -> None:
    harness.notes.open(3)
    harness.notes.open(3)
    assert harness.store.acquired == [LogId("__coordinator_notes", 3)]
    harness.tell(change(), partition=3)
    harness.pass_time(partitions=4)
    assert harness.store.acquired == [LogId("__coordinator_notes", 3)]
    assert len(harness.written(3)) == 1


def test_an_unreadable_notes_log_is_not_reopened_for_each_request(harness: NoteHarness) -> None:
    harness.store.results[LogId("__coordinator_notes", 3)] = Unreadable("damaged", True)
    harness.notes.open(3)
    harness.notes.open(3)
    assert len(harness.store.acquired) == 1
    harness.loop.pass_ms(RETRY_MS)
    harness.notes.open(3)
    assert len(harness.store.acquired) == 2


def test_numbers_restart_with_each_epoch(harness: NoteHarness) -> None:
    harness.tell(change(), change())
    harness.tell(change(), epoch=5)
    harness.pass_time()
    harness.tell(change(), epoch=5)
    harness.pass_time()
    assert [(header.coordinator_epoch, header.seq) for _, header, _ in harness.written()] == [(4, 0), (4, 1), (5, 0), (5, 1)]


def test_notes_over_a_groups_budget_are_counted(harness: NoteHarness) -> None:
    harness.tell(change(dropped=9))
    harness.pass_time()
    assert harness.written()[0][1].dropped == 9


def test_notes_lost_by_a_failed_append_are_counted_and_logged_once(harness: NoteHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    monkeypatch.setattr("broker.groups.notes.log.warning", lambda event, **values: lines.append(event))
    harness.tell(change())
    harness.pass_time()
    for _ in range(2):
        harness.tell(change(), change(dropped=1))
        harness.loop.pass_ms(GATHER_MS)
        harness.log().pending.pop()[1](AppendFailed("the disk is full"))
    harness.tell(change(dropped=2))
    harness.pass_time()
    assert lines == ["notes are lost"]
    # Numbers have no gap, since lost notes are counted in `dropped`.
    assert [(header.seq, header.dropped) for _, header, _ in harness.written()] == [(0, 0), (1, 4 + 2)]


def test_a_broken_notes_log_is_repaired_and_written_again(harness: NoteHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    harness.tell(change())
    harness.pass_time()
    usable = False
    harness.log().usable = lambda: usable  # type: ignore[method-assign]
    harness.tell(change())
    harness.loop.pass_ms(GATHER_MS)
    harness.log().recoveries.pop()(AppendFailed("still full"))
    harness.tell(change())
    harness.loop.pass_ms(RETRY_MS - 1_000)
    assert harness.log().recoveries == []
    harness.loop.pass_ms(2_000)
    usable = True
    harness.log().recoveries.pop()(None)
    harness.pass_time()
    assert [(header.seq, header.dropped) for _, header, _ in harness.written()] == [(0, 0), (1, 1)]


@pytest.mark.parametrize("result", [HeldBy("process 7"), Unreadable("damaged", True)])
def test_a_fenced_notes_log_loses_notes_and_is_acquired_again(harness: NoteHarness, result: HeldBy | Unreadable) -> None:
    id = LogId("__coordinator_notes", 0)
    harness.store.results[id] = result
    harness.tell(change())
    harness.pass_time()
    assert not harness.loop.timers  # no timer waits for lost notes
    harness.tell(change())
    harness.pass_time(RETRY_MS // 2)
    assert harness.store.acquired == [id]
    del harness.store.results[id]
    harness.pass_time(RETRY_MS)
    assert [(header.seq, header.dropped) for _, header, _ in harness.written()] == [(0, 1)]


def test_many_notes_are_written_in_parts(harness: NoteHarness) -> None:
    harness.tell(*[change()] * (3 * NOTES_PER_PASS))
    harness.pass_time()
    assert len(harness.written()) == NOTES_PER_PASS
    harness.pass_time()
    assert [header.seq for _, header, _ in harness.written()] == list(range(3 * NOTES_PER_PASS))


def test_large_notes_are_several_batches(harness: NoteHarness) -> None:
    large = Note("g", 78, 3, State.STABLE, RoundEnd(0, 1, 2, ["x" * 30_000] * 10))
    harness.tell(*[large] * 8)
    harness.pass_time(GATHER_MS)
    assert [len(facts) for facts in harness.log().stored] == [4]
    harness.pass_time(GATHER_MS)
    assert [len(facts) for facts in harness.log().stored] == [4, 4]


def test_waiting_notes_are_limited(harness: NoteHarness) -> None:
    harness.store.waiting = True
    for _ in range(NOTES_QUEUED_MAX // 100):
        harness.tell(*[ended()] * 100)
    harness.tell(ended(), ended())
    harness.loop.pass_ms(3 * GATHER_MS)
    assert len(harness.store.acquired) == 1
    harness.store.open()
    harness.pass_time(60_000)
    written = harness.written()
    assert len(written) == NOTES_QUEUED_MAX
    assert written[0][1].dropped == 2
    harness.tell(ended())
    harness.pass_time()
    assert len(harness.written()) == NOTES_QUEUED_MAX + 1


def test_the_last_notes_are_written_at_the_stop(harness: NoteHarness) -> None:
    harness.tell(change())
    harness.pass_time()
    harness.tell(*[change()] * (NOTES_PER_PASS + 1))
    ended: list[bool] = []
    harness.notes.close(lambda: ended.append(True))
    harness.pass_time(0)
    assert (len(harness.written()), ended) == (NOTES_PER_PASS + 2, [True])
    harness.tell(change())
    assert not harness.loop.timers


def test_the_stop_waits_for_notes_logs_that_are_opening(harness: NoteHarness) -> None:
    harness.store.waiting = True
    harness.tell(change())
    harness.tell(change(), partition=1)
    ended: list[bool] = []
    harness.notes.close(lambda: ended.append(True))
    assert ended == []
    harness.store.results[LogId("__coordinator_notes", 1)] = Unreadable("damaged", True)
    harness.store.open()
    harness.pass_time(0)
    assert (len(harness.written()), ended) == (1, [True])


def test_no_empty_batch_is_written_to_a_new_notes_log_at_the_stop(harness: NoteHarness) -> None:
    """The store acquires the log at once, within the call, and the waiting notes are written then: the stop must not write again."""
    harness.tell(change())
    harness.notes.close(lambda: None)
    assert len(harness.log().pending) == 1
    harness.pass_time(0)
    assert len(harness.written()) == 1


def test_no_notes_log_is_opened_after_the_stop(harness: NoteHarness) -> None:
    ended: list[bool] = []
    harness.notes.close(lambda: ended.append(True))
    assert ended == [True]
    harness.tell(change())
    harness.notes.open_unchecked([0, 1])
    assert (harness.store.acquired, harness.loop.timers) == ([], [])


def test_notes_logs_are_opened_one_at_a_time_after_a_crash(harness: NoteHarness) -> None:
    harness.store.waiting = True
    harness.store.results[LogId("__coordinator_notes", 5)] = Unreadable("damaged", True)
    harness.notes.open_unchecked([3, 5, 7])
    for opened in (3, 5, 7):
        assert harness.store.acquired[-1].partition == opened
        harness.store.open()
    assert len(harness.store.acquired) == 3
    harness.tell(change(), partition=7)
    harness.pass_time(partitions=8)
    assert len(harness.written(7)) == 1
    assert len(harness.store.acquired) == 3


def test_partition_events_are_notes_without_a_group(harness: NoteHarness) -> None:
    partition = loaded_partition()
    partition.shard.groups["g"].notes_dropped = 7  # the next load resets this count, so the notes about the end of serving report it
    for event in (ShardChange.LOADED, ShardChange.SUSPENDED, ShardChange.RESUMED, ShardChange.UNLOADED):
        harness.notes.write_change(partition, event)
    harness.pass_time()
    assert {(group, header.kind, header.offsets_log_offset) for group, header, _ in harness.written()} == {("", NoteKind.COORDINATOR, -1)}
    assert [header.dropped for _, header, _ in harness.written()] == [0, 7, 0, 7]
    bodies = [body for _, _, body in harness.written()]
    assert all(isinstance(body, CoordinatorChange) for body in bodies)
    assert [(body.what, body.epoch, body.load_ms, body.groups, body.replayed) for body in bodies] == [
        (ShardChange.LOADED, 4, 12, 1, 10),
        (ShardChange.SUSPENDED, 4, 0, 1, 0),
        (ShardChange.RESUMED, 4, 12, 1, 10),
        (ShardChange.UNLOADED, 4, 0, 1, 0),
    ]


@pytest.mark.parametrize(("hand_over", "fields"), [(None, (-1, False)), (HandOver(2, True), (2, True)), (HandOver(0, False), (0, False))])
def test_the_note_of_an_unload_has_the_node_that_gets_the_partition(harness: NoteHarness, hand_over: HandOver | None, fields: tuple[int, bool]) -> None:
    harness.notes.write_change(loaded_partition(), ShardChange.UNLOADED, hand_over)
    harness.pass_time()
    ((_, _, body),) = harness.written()
    assert (body.what, body.to_node, body.drained) == (ShardChange.UNLOADED, *fields)


def test_an_always_empty_partition_is_not_reported(harness: NoteHarness) -> None:
    for event in (ShardChange.LOADED, ShardChange.UNLOADED):
        harness.notes.write_change(loaded_partition(replayed=0), event)
    harness.pass_time()
    assert harness.store.acquired == []


def test_a_log_without_notes_stays_empty_though_a_consumer_reads_it(harness: NoteHarness) -> None:
    harness.notes.open(0)
    harness.store.open()
    harness.notes.write_change(loaded_partition(replayed=0), ShardChange.UNLOADED)
    harness.pass_time()
    assert harness.written() == []


def test_more_than_fifty_state_changes_a_second_are_counted_in_one_line(harness: NoteHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str | tuple[int, int]] = []
    monkeypatch.setattr(
        "broker.groups.change_log.log.info",
        lambda event, **values: lines.append(event if event == "group" else (values["changes"], values["groups"])),
    )
    for _ in range(LINES_PER_SECOND + 30):
        harness.tell(change())
    assert lines == ["group"] * LINES_PER_SECOND
    harness.pass_time(1_000)
    assert lines[LINES_PER_SECOND:] == [(30, 1)]
    harness.tell(change())
    harness.pass_time(1_000)
    assert lines[LINES_PER_SECOND:] == [(30, 1), "group"]


def test_only_state_changes_are_logged_one_line_each(harness: NoteHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[dict[str, Any]] = []
    monkeypatch.setattr("broker.groups.change_log.log.info", lambda event, **values: lines.append({"event": event} | values))
    harness.tell(change(), ended())
    assert lines == [
        {
            "event": "group",
            "group": "g",
            "from": "stable",
            "to": "preparing",
            "generation": 3,
            "cause": "session_expired",
            "member": "m-1",
            "members": 5,
        }
    ]
