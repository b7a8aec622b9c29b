"""History of a group with policies, folded from its notes."""

from __future__ import annotations

from collections.abc import Callable

from cli.groups.history_shown import document, sentence
from coordinator.notes import StandbyStep
from history import AbsenceChanged, Entry, InstanceRefused, Rebalance, StandbyChanged
from history.words import format_duration, title
from tests.coordinator.playbook import Play

ReadStory = Callable[[], list[Entry]]


def only_rebalance(entries: list[Entry]) -> Rebalance:
    (rebalance,) = [entry for entry in entries if isinstance(entry, Rebalance)]
    return rebalance


def test_an_absence_and_a_timely_return_are_shown(play: Play, story: ReadStory) -> None:
    play.two_static()
    play.policy({"registration.timeout.ms": "15000"})
    play.alive("a").at(13_000)
    play.join("b'").expect(generation=1)
    absent, _, returned = story()
    assert isinstance(absent, AbsenceChanged)
    assert isinstance(returned, AbsenceChanged)
    assert (absent.instance_id, absent.back, absent.away_ms) == ("ib", False, 0)
    assert (returned.instance_id, returned.back, returned.away_ms) == ("ib", True, 3_000)


def test_a_refused_instance_is_shown_with_the_instance_list(play: Play, story: ReadStory) -> None:
    play.one_static()
    play.policy({"instance.ids": "ia", "roster.strict": "true"})
    play.join("x", instance="ix")
    (barred,) = story()
    assert isinstance(barred, InstanceRefused)
    assert (barred.instance_id, barred.listed) == ("ix", "ia")


def test_a_take_over_by_a_standby_is_shown(play: Play, story: ReadStory) -> None:
    play.two_static()
    play.policy({"target.group.size": "2"})
    play.alive("a", "b")
    play.join("x", instance="ix")
    play.sync("x", generation=1)
    play.alive("x").silent("b").at(12_000)
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
    play.policy({"target.group.size": "2"})
    play.alive("a", "b")
    for name in "xy":
        play.join(name, instance=f"i{name}")
        play.sync(name, generation=1)
    play.alive("x", "y")
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
