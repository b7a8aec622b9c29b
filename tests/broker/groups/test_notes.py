"""Writing of notes to __coordinator_notes, over scripted logs."""

from __future__ import annotations

from typing import Any

import pytest

from broker.groups.change_log import LINES_PER_SECOND
from broker.groups.notes import GATHER_MS, NOTES_PER_PASS, NOTES_QUEUED_MAX, RETRY_MS
from coordinator import Note
from coordinator.notes import Coordinator, Kind
from coordinator.states import State
from protocol.messages.coordinator_notes import CoordinatorChange, RoundEnd
from storage import AppendFailed, HeldBy, LogId, Unreadable
from tests.support.notes import NoteDesk, change, ended, loaded_partition


@pytest.fixture
def desk() -> NoteDesk:
    return NoteDesk()


def test_notes_are_written_in_the_background(desk: NoteDesk) -> None:
    desk.tell(change("a"), ended("a"), offset=41)
    desk.tell(change("b"), offset=44)
    desk.passes(GATHER_MS - 1)
    assert (desk.written(), desk.store.acquired) == ([], [])
    desk.passes(1)
    assert len(desk.log().stored) == 1  # one batch
    assert [(group, header.kind, header.seq, header.offsets_log_offset) for group, header, _ in desk.written()] == [
        ("a", Kind.STATE_CHANGE, 0, 41),
        ("a", Kind.ROUND_END, 1, 41),
        ("b", Kind.STATE_CHANGE, 2, 44),
    ]
    _, header, body = desk.written()[0]
    assert (header.ts, header.coordinator_epoch, header.generation, header.state, header.dropped) == (77, 4, 3, State.PREPARING, 0)
    assert (body.from_state, body.to_state, body.reason, body.reason_text, body.members) == (State.STABLE, State.PREPARING, 4, "m-1", 5)


def test_each_partition_has_a_log_of_its_own_from_its_first_note_on(desk: NoteDesk) -> None:
    desk.tell(change(), partition=3)
    desk.passes(partitions=5)
    assert desk.store.acquired == [LogId("__coordinator_notes", 3)]
    desk.tell(change(), partition=4)
    desk.tell(change(), partition=3)
    desk.passes(partitions=5)
    assert [header.seq for _, header, _ in desk.written(3)] == [0, 1]
    assert [header.seq for _, header, _ in desk.written(4)] == [0]


def test_a_log_is_opened_once_for_several_readers(desk: NoteDesk) -> None:
    desk.notes.open(3)
    desk.notes.open(3)
    assert desk.store.acquired == [LogId("__coordinator_notes", 3)]
    desk.tell(change(), partition=3)
    desk.passes(partitions=4)
    assert desk.store.acquired == [LogId("__coordinator_notes", 3)]
    assert len(desk.written(3)) == 1


def test_an_unreadable_notes_log_is_not_reopened_for_each_request(desk: NoteDesk) -> None:
    desk.store.results[LogId("__coordinator_notes", 3)] = Unreadable("damaged", True)
    desk.notes.open(3)
    desk.notes.open(3)
    assert len(desk.store.acquired) == 1
    desk.loop.pass_ms(RETRY_MS)
    desk.notes.open(3)
    assert len(desk.store.acquired) == 2


def test_numbers_restart_with_each_epoch(desk: NoteDesk) -> None:
    desk.tell(change(), change())
    desk.tell(change(), epoch=5)
    desk.passes()
    desk.tell(change(), epoch=5)
    desk.passes()
    assert [(header.coordinator_epoch, header.seq) for _, header, _ in desk.written()] == [(4, 0), (4, 1), (5, 0), (5, 1)]


def test_notes_over_a_groups_budget_are_counted(desk: NoteDesk) -> None:
    desk.tell(change(dropped=9))
    desk.passes()
    assert desk.written()[0][1].dropped == 9


def test_notes_lost_by_a_failed_append_are_counted_and_logged_once(desk: NoteDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    monkeypatch.setattr("broker.groups.notes.log.warning", lambda event, **values: lines.append(event))
    desk.tell(change())
    desk.passes()
    for _ in range(2):
        desk.tell(change(), change(dropped=1))
        desk.loop.pass_ms(GATHER_MS)
        desk.log().pending.pop()[1](AppendFailed("the disk is full"))
    desk.tell(change(dropped=2))
    desk.passes()
    assert lines == ["notes are lost"]
    # Numbers without a gap: lost notes are counted in `dropped`.
    assert [(header.seq, header.dropped) for _, header, _ in desk.written()] == [(0, 0), (1, 4 + 2)]


def test_a_broken_notes_log_is_repaired_and_written_again(desk: NoteDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.tell(change())
    desk.passes()
    usable = False
    desk.log().usable = lambda: usable  # type: ignore[method-assign]
    desk.tell(change())
    desk.loop.pass_ms(GATHER_MS)
    desk.log().recoveries.pop()(AppendFailed("still full"))
    desk.tell(change())
    desk.loop.pass_ms(RETRY_MS - 1_000)
    assert desk.log().recoveries == []
    desk.loop.pass_ms(2_000)
    usable = True
    desk.log().recoveries.pop()(None)
    desk.passes()
    assert [(header.seq, header.dropped) for _, header, _ in desk.written()] == [(0, 0), (1, 1)]


@pytest.mark.parametrize("result", [HeldBy("process 7"), Unreadable("damaged", True)])
def test_a_fenced_notes_log_loses_notes_and_is_acquired_again(desk: NoteDesk, result: HeldBy | Unreadable) -> None:
    id = LogId("__coordinator_notes", 0)
    desk.store.results[id] = result
    desk.tell(change())
    desk.passes()
    assert not desk.loop.timers  # no timer waits for lost notes
    desk.tell(change())
    desk.passes(RETRY_MS // 2)
    assert desk.store.acquired == [id]
    del desk.store.results[id]
    desk.passes(RETRY_MS)
    assert [(header.seq, header.dropped) for _, header, _ in desk.written()] == [(0, 1)]


def test_many_notes_are_written_in_parts(desk: NoteDesk) -> None:
    desk.tell(*[change()] * (3 * NOTES_PER_PASS))
    desk.passes()
    assert len(desk.written()) == NOTES_PER_PASS
    desk.passes()
    assert [header.seq for _, header, _ in desk.written()] == list(range(3 * NOTES_PER_PASS))


def test_large_notes_are_several_batches(desk: NoteDesk) -> None:
    large = Note("g", Kind.ROUND_END, 78, 3, State.STABLE, RoundEnd(0, 1, 2, ["x" * 30_000] * 10))
    desk.tell(*[large] * 8)
    desk.passes(GATHER_MS)
    assert [len(facts) for facts in desk.log().stored] == [4]
    desk.passes(GATHER_MS)
    assert [len(facts) for facts in desk.log().stored] == [4, 4]


def test_waiting_notes_are_limited(desk: NoteDesk) -> None:
    desk.store.waiting = True
    for _ in range(NOTES_QUEUED_MAX // 100):
        desk.tell(*[ended()] * 100)
    desk.tell(ended(), ended())
    desk.loop.pass_ms(3 * GATHER_MS)
    assert len(desk.store.acquired) == 1
    desk.store.open()
    desk.passes(60_000)
    written = desk.written()
    assert len(written) == NOTES_QUEUED_MAX
    assert written[0][1].dropped == 2
    desk.tell(ended())
    desk.passes()
    assert len(desk.written()) == NOTES_QUEUED_MAX + 1


def test_the_last_notes_are_written_at_the_stop(desk: NoteDesk) -> None:
    desk.tell(change())
    desk.passes()
    desk.tell(*[change()] * (NOTES_PER_PASS + 1))
    ended: list[bool] = []
    desk.notes.close(lambda: ended.append(True))
    desk.passes(0)
    assert (len(desk.written()), ended) == (NOTES_PER_PASS + 2, [True])
    desk.tell(change())
    assert not desk.loop.timers


def test_the_stop_waits_for_notes_logs_that_are_opening(desk: NoteDesk) -> None:
    desk.store.waiting = True
    desk.tell(change())
    desk.tell(change(), partition=1)
    ended: list[bool] = []
    desk.notes.close(lambda: ended.append(True))
    assert ended == []
    desk.store.results[LogId("__coordinator_notes", 1)] = Unreadable("damaged", True)
    desk.store.open()
    desk.passes(0)
    assert (len(desk.written()), ended) == (1, [True])


def test_no_empty_batch_is_written_to_a_new_notes_log_at_the_stop(desk: NoteDesk) -> None:
    """The log is acquired at once and writes waiting notes before its requester does."""
    desk.tell(change())
    desk.notes.close(lambda: None)
    assert len(desk.log().pending) == 1
    desk.passes(0)
    assert len(desk.written()) == 1


def test_no_notes_log_is_opened_after_the_stop(desk: NoteDesk) -> None:
    ended: list[bool] = []
    desk.notes.close(lambda: ended.append(True))
    assert ended == [True]
    desk.tell(change())
    desk.notes.check([0, 1])
    assert (desk.store.acquired, desk.loop.timers) == ([], [])


def test_notes_logs_are_opened_one_at_a_time_after_a_crash(desk: NoteDesk) -> None:
    desk.store.waiting = True
    desk.store.results[LogId("__coordinator_notes", 5)] = Unreadable("damaged", True)
    desk.notes.check([3, 5, 7])
    for opened in (3, 5, 7):
        assert desk.store.acquired[-1].partition == opened
        desk.store.open()
    assert len(desk.store.acquired) == 3
    desk.tell(change(), partition=7)
    desk.passes(partitions=8)
    assert len(desk.written(7)) == 1
    assert len(desk.store.acquired) == 3


def test_partition_events_are_notes_without_a_group(desk: NoteDesk) -> None:
    partition = loaded_partition()
    partition.shard.groups["g"].notes_dropped = 7  # these are never reported
    for event in (Coordinator.LOADED, Coordinator.SUSPENDED, Coordinator.RESUMED, Coordinator.UNLOADED):
        desk.notes.write_change(partition, event)
    desk.passes()
    assert {(group, header.kind, header.offsets_log_offset) for group, header, _ in desk.written()} == {("", Kind.COORDINATOR, -1)}
    assert [header.dropped for _, header, _ in desk.written()] == [0, 7, 0, 7]
    bodies = [body for _, _, body in desk.written()]
    assert all(isinstance(body, CoordinatorChange) for body in bodies)
    assert [(body.what, body.epoch, body.load_ms, body.groups, body.replayed) for body in bodies] == [
        (Coordinator.LOADED, 4, 12, 1, 10),
        (Coordinator.SUSPENDED, 4, 0, 1, 0),
        (Coordinator.RESUMED, 4, 12, 1, 10),
        (Coordinator.UNLOADED, 4, 0, 1, 0),
    ]


def test_an_always_empty_partition_is_not_reported(desk: NoteDesk) -> None:
    for event in (Coordinator.LOADED, Coordinator.UNLOADED):
        desk.notes.write_change(loaded_partition(replayed=0), event)
    desk.passes()
    assert desk.store.acquired == []


def test_more_than_fifty_state_changes_a_second_are_counted_in_one_line(desk: NoteDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str | tuple[int, int]] = []
    monkeypatch.setattr(
        "broker.groups.change_log.log.info",
        lambda event, **values: lines.append(event if event == "group" else (values["changes"], values["groups"])),
    )
    for _ in range(LINES_PER_SECOND + 30):
        desk.tell(change())
    assert lines == ["group"] * LINES_PER_SECOND
    desk.passes(1_000)
    assert lines[LINES_PER_SECOND:] == [(30, 1)]
    desk.tell(change())
    desk.passes(1_000)
    assert lines[LINES_PER_SECOND:] == [(30, 1), "group"]


def test_only_state_changes_are_logged_one_line_each(desk: NoteDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[dict[str, Any]] = []
    monkeypatch.setattr("broker.groups.change_log.log.info", lambda event, **values: lines.append({"event": event} | values))
    desk.tell(change(), ended())
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
