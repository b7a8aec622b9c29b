"""Rebalances caused by policies: their name, their joined and departed members, and whether they were avoidable."""

from __future__ import annotations

import pytest

from pipeline.advice import advise
from pipeline.avoidable import NO, YES
from pipeline.rows import Episode
from tests.history.conftest import NotedPlay
from tests.pipeline.playing import CLUSTER, GROUP, TIME_AFTER_NEWEST_MS, with_notes

pytestmark = pytest.mark.once  # no dependence on the Python version


def with_verdicts(play: NotedPlay) -> list[Episode]:
    return advise(CLUSTER, GROUP, with_notes(play), play.wall + 24 * TIME_AFTER_NEWEST_MS).episodes


def rebalanced(play: NotedPlay, *members: str) -> Episode:
    """Let the members join and `a` assign partitions; returns the row of this rebalance."""
    for name in members:
        play.join(name)
    play.sync("a", {name: at for at, name in enumerate(members, 1)})
    return with_verdicts(play)[-1]


def test_absent_members_count_as_expired(play: NotedPlay) -> None:
    play.three_static()
    play.set_policies({"registration.timeout.ms": "15000"})
    play.keep_alive("a").at(25_000)
    episode = rebalanced(play, "a")
    assert (episode.cause, episode.confidence, episode.avoidable) == ("absences_ended", "exact", NO)
    assert (episode.joined, episode.left, episode.expired) == ([], [], ["ib", "ic"])
    assert episode.evidence == "ib and ic stayed away longer than registration.timeout.ms"


def test_absences_that_an_unset_policy_ends_are_not_called_too_long(play: NotedPlay) -> None:
    play.three_static()
    play.set_policies({"registration.timeout.ms": "60000"})
    play.keep_alive("a").at(25_000)
    play.set_policies()
    play.after(0)
    episode = rebalanced(play, "a")
    assert (episode.cause, episode.confidence, episode.avoidable) == ("registration_unset", "exact", NO)
    assert (episode.joined, episode.left, episode.expired) == ([], [], ["ib", "ic"])
    assert episode.evidence == "registration.timeout.ms was unset while ib and ic were away"


def test_an_absent_static_member_that_returns_shows_the_needed_timeout(play: NotedPlay) -> None:
    play.two_static()
    play.set_policies({"registration.timeout.ms": "15000"})
    play.keep_alive("a").at(25_000)
    rebalanced(play, "a")
    play.keep_alive("a").at(40_000)
    play.join("b'", instance="ib")
    rebalanced(play, "a", "b'")
    departed, returned = with_verdicts(play)[-2:]
    assert (departed.cause, returned.cause) == ("absences_ended", "new_member")
    assert (departed.avoidable, returned.avoidable) == (YES, YES)
    assert departed.avoidable_by_ms == returned.avoidable_by_ms == 46_000  # no note has a heartbeat of the member, so it may have been away since its join, 6 s before time 0


def test_rebalances_for_newcomers_are_necessary(play: NotedPlay) -> None:
    play.one_static()
    play.set_policies({"expansion.timeout.ms": "5000"})
    play.keep_alive("a")
    play.join("b", instance="ib")
    play.join("c", instance="ic")
    play.at(5_000)
    episode = rebalanced(play, "a")
    assert (episode.cause, episode.joined, episode.avoidable) == ("expansion", ["ib", "ic"], NO)
    assert episode.evidence == "ib and ic joined at once"


def test_a_member_taken_off_the_list_was_removed_on_purpose(play: NotedPlay) -> None:
    play.two_static()
    play.set_policies({"instance.ids": "ia", "roster.strict": "true"})
    episode = rebalanced(play, "a")
    assert (episode.cause, episode.left, episode.avoidable) == ("roster_changed", ["ib"], NO)
    assert episode.evidence == "members were removed from the strict list of instances: ib"


def test_a_requested_rebalance_quotes_the_operator(play: NotedPlay) -> None:
    play.one_static()
    assert not play.set_policies({"rebalance.request": "orders has grown"}, "orders has grown")
    play.after(0)
    episode = rebalanced(play, "a")
    assert (episode.cause, episode.avoidable) == ("requested", NO)
    assert episode.evidence == 'an operator requested a rebalance: "orders has grown"'


def test_changed_topics_are_named(play: NotedPlay) -> None:
    play.one_static()
    play.set_policies({"topics.watch": "true"})
    assert play.shard is not None
    play.shard.policies.topics_changed(["t0"], play.now, play.wall)
    play.after(0)
    episode = rebalanced(play, "a")
    assert (episode.cause, episode.avoidable) == ("topics_changed", NO)
    assert episode.evidence.endswith("(topics: t0)")


def test_a_seat_that_moves_to_a_standby_is_no_rebalance(play: NotedPlay) -> None:
    play.two_static()
    play.set_policies({"target.group.size": "2"})
    play.keep_alive("a", "b")
    play.join("x", instance="ix")
    play.sync("x", generation=1)
    before = len(with_verdicts(play))
    play.keep_alive("x").stop_heartbeats("b").at(12_000)
    play.join("x").expect(generation=1)
    play.sync("x", generation=1).expect(assignment=2)
    assert len(with_verdicts(play)) == before


def test_a_rebalance_that_makes_standbys_is_one_row(play: NotedPlay) -> None:
    play.set_policies({"target.group.size": "1"})
    for name in "ab":
        play.join(name, instance=f"i{name}")
    play.after(6_000)
    play.sync("a", {"a": 1}, generation=1)
    (episode,) = with_verdicts(play)
    assert (episode.cause, episode.confidence, episode.from_generation, episode.to_generation) == ("formation", "exact", 0, 1)
    assert (episode.members_after, episode.missing) == (2, 0)


def test_the_last_absent_members_leave_in_one_row(play: NotedPlay) -> None:
    play.two_static()
    play.set_policies({"registration.timeout.ms": "15000"})
    play.at(40_000)
    formed, emptied = with_verdicts(play)
    assert (formed.to_generation, emptied.from_generation, emptied.to_generation) == (1, 1, 2)
    assert (emptied.cause, emptied.confidence, emptied.end, emptied.expired) == ("absences_ended", "exact", "empty", ["ia", "ib"])


def test_a_new_group_after_an_orderly_restart_is_exact(play: NotedPlay) -> None:
    play.restart()
    play.one_static()
    (episode,) = with_verdicts(play)
    assert (episode.cause, episode.confidence) == ("formation", "exact")
    assert "missing" not in episode.evidence
