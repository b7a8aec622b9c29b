"""History of a group with policies, folded from its notes."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from cli.groups.history_document import document
from cli.groups.history_shown import sentence
from coordinator.notes import StandbyStep
from history import (
    AbsenceChanged,
    End,
    Entry,
    GroupDeleted,
    InstanceRefused,
    NotesMissing,
    Rebalance,
    RebalancesMissing,
    StandbyChanged,
    story_of,
)
from history.words import describe_removal, format_duration, title
from tests.coordinator.playbook import Play
from tests.history.conftest import NotedPlay
from tests.history.random_histories import PolicyHistory
from tests.history.test_losses import check

ReadStory = Callable[[], list[Entry]]


def whole_story(play: NotedPlay) -> list[Entry]:
    return story_of("g", play.note_records, play.group_records, from_start=True, records_complete=True)


def gaps(entries: list[Entry]) -> list[Entry]:
    """The entries of a history about missing notes and records."""
    return [
        entry
        for entry in entries
        if isinstance(entry, RebalancesMissing | NotesMissing)
        or (isinstance(entry, GroupDeleted) and not entry.recorded)
        or (isinstance(entry, Rebalance) and entry.end is not End.INTERRUPTED and not entry.all_noted)
    ]


def only_rebalance(entries: list[Entry]) -> Rebalance:
    (rebalance,) = [entry for entry in entries if isinstance(entry, Rebalance)]
    return rebalance


def test_an_absence_and_a_timely_return_are_shown(play: Play, story: ReadStory) -> None:
    play.two_static()
    play.set_policies({"registration.timeout.ms": "15000"})
    play.keep_alive("a").at(13_000)
    play.join("b'").expect(generation=1)
    absent, _, returned = story()
    assert isinstance(absent, AbsenceChanged)
    assert isinstance(returned, AbsenceChanged)
    assert (absent.instance_id, absent.back, absent.away_ms) == ("ib", False, 0)
    assert (returned.instance_id, returned.back, returned.away_ms) == ("ib", True, 3_000)


def test_a_refused_instance_is_shown_with_the_instance_list(play: Play, story: ReadStory) -> None:
    play.one_static()
    play.set_policies({"instance.ids": "ia", "roster.strict": "true"})
    play.join("x", instance="ix")
    (refused,) = story()
    assert isinstance(refused, InstanceRefused)
    assert (refused.instance_id, refused.listed) == ("ix", "ia")


def test_a_take_over_by_a_standby_is_shown(play: Play, story: ReadStory) -> None:
    play.two_static()
    play.set_policies({"target.group.size": "2"})
    play.keep_alive("a", "b")
    play.join("x", instance="ix")
    play.sync("x", generation=1)
    play.keep_alive("x").stop_heartbeats("b").at(12_000)
    play.join("x").expect(generation=1)
    play.sync("x", generation=1).expect(assignment=2)
    entries = story()
    standby = [entry for entry in entries if isinstance(entry, StandbyChanged)]
    assert [(entry.instance_id, entry.step, entry.from_instance) for entry in standby] == [
        ("ix", StandbyStep.WAITS, None),
        ("ix", StandbyStep.TAKES_OVER, "ib"),
        ("ix", StandbyStep.TOOK_OVER, "ib"),
    ]
    assert [sentence(entry)[0] for entry in standby] == [
        "ix is a standby",
        "the standby ix took the seat of ib, without a rebalance",
        f"ix reads the partitions of the seat of ib, {format_duration(standby[2].after_ms)} after it became free",
    ]
    assert [document(entry)["step"] for entry in standby] == ["waits", "takes_over", "took_over"]
    assert not [entry for entry in entries if isinstance(entry, Rebalance)]


def test_a_late_standby_is_shown(play: Play, story: ReadStory) -> None:
    play.two_static()
    play.set_policies({"target.group.size": "2"})
    play.keep_alive("a", "b")
    for name in "xy":
        play.join(name, instance=f"i{name}")
        play.sync(name, generation=1)
    play.keep_alive("x", "y")
    play.leave("b")
    play.at(10_000)
    late = [entry for entry in story() if isinstance(entry, StandbyChanged) and entry.step is StandbyStep.TOO_LATE]
    assert sentence(late[0])[0] == "the standby ix did not fetch the assignment of the seat of ib within its session timeout, and waits again"
    play.leave("x")
    play.at(20_000)
    entries = story()
    removals = [entry for entry in entries if isinstance(entry, StandbyChanged) and entry.step is StandbyStep.GONE]
    assert sentence(removals[0])[0] == "the standby ix was removed, without a rebalance"
    rebalance = only_rebalance(entries)
    assert title(rebalance) == "a standby did not take over its seat in time, and no other standby was free"


def test_a_rebalance_that_makes_standbys_is_one_entry(play: NotedPlay) -> None:
    play.set_policies({"target.group.size": "1"})
    for name in "ab":
        play.join(name, instance=f"i{name}")
    play.after(6_000)
    play.sync("a", {"a": 1}, generation=1)
    entries = whole_story(play)
    assert not gaps(entries)
    rebalance = only_rebalance(entries)
    assert (rebalance.from_generation, rebalance.to_generation, rebalance.end) == (0, 1, End.STABLE)
    assert [entry.instance_id for entry in entries if isinstance(entry, StandbyChanged)] == ["ib"]


def test_a_seat_of_an_absent_member_that_is_taken_does_not_split_the_rebalance(play: NotedPlay) -> None:
    play.three_static()
    play.set_policies({"registration.timeout.ms": "60000"})
    play.keep_alive("a", "b").at(12_000)
    play.set_policies({"registration.timeout.ms": "60000", "target.group.size": "2"})
    for name in "ab":
        play.join(name)
    play.sync("a", {"a": 1, "b": 2}, generation=2)
    entries = whole_story(play)
    assert not gaps(entries)
    rebalance = [entry for entry in entries if isinstance(entry, Rebalance)][-1]
    assert [removal.instance_id for removal in rebalance.removals] == ["ic"]
    assert (rebalance.from_generation, rebalance.to_generation) == (1, 2)


def test_the_last_absent_members_leave_in_one_rebalance(play: NotedPlay) -> None:
    play.two_static()
    play.set_policies({"registration.timeout.ms": "15000"})
    play.at(40_000)
    entries = whole_story(play)
    assert not gaps(entries)
    rebalance = [entry for entry in entries if isinstance(entry, Rebalance)][-1]
    assert title(rebalance) == "ia and ib stayed away longer than registration.timeout.ms"
    assert (rebalance.from_generation, rebalance.to_generation, rebalance.end) == (1, 2, End.EMPTY)
    assert rebalance.after is not None


def test_unsetting_the_policy_is_the_cause_if_it_ends_absences(play: NotedPlay) -> None:
    play.three_static()
    play.set_policies({"registration.timeout.ms": "60000"})
    play.keep_alive("a").at(12_000)
    play.set_policies({"registration.timeout.ms": "none"})
    play.after(0)
    play.join("a")
    play.sync("a", {"a": 1}, generation=2)
    entries = whole_story(play)
    assert not gaps(entries)
    rebalance = [entry for entry in entries if isinstance(entry, Rebalance)][-1]
    assert title(rebalance) == "registration.timeout.ms was unset while ib and ic were away"
    assert [describe_removal(removal) for removal in rebalance.removals] == [
        "ib was away when registration.timeout.ms was unset",
        "ic was away when registration.timeout.ms was unset",
    ]
    assert title(replace(rebalance, removals=[])) == "registration.timeout.ms was unset while members were away"


@pytest.mark.parametrize("seed", [*range(30), 48, 68, 72, 78, 88, 128, 206])
def test_policies_leave_no_gaps(play: NotedPlay, seed: int) -> None:
    PolicyHistory(play, seed).play_steps(40)
    entries = whole_story(play)
    assert not gaps(entries)
    check(entries, entries)


@pytest.mark.parametrize("seed", range(8))
def test_policies_leave_no_gaps_after_a_compaction(play: NotedPlay, seed: int) -> None:
    """A policy record follows the group record in its batch, so the notes of that step name another offset than the group record's."""
    play.two_static()
    play.set_policies({"target.group.size": "2", "registration.timeout.ms": "15000"})
    chance = random.Random(seed)
    for name in "xyz":
        play.join(name, instance=f"i{name}")
        play.sync(name, generation=1)
    play.keep_alive("a", "b", "x", "y", "z")
    for name in chance.sample("bxyz", 3):
        play.leave(name)
        play.after(chance.choice((0, 700)))
    play.stop_heartbeats("a", "b", "x", "y", "z").at(60_000)
    kept = play.group_records
    for first in range(len(kept) + 1):
        assert not gaps(story_of("g", play.note_records, kept[first:], from_start=True, records_complete=False)), first
