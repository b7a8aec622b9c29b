"""Rebalances as rows, from playbooks of the real coordinator: exact with its notes, and within true bounds without."""

from __future__ import annotations

import pytest

from pipeline.rows import Episode, GroupTables
from tests.coordinator.playbook import T0_T1
from tests.history.conftest import NotedPlay
from tests.pipeline.playing import with_notes, without_notes

pytestmark = pytest.mark.once  # no dependence on the Python version


def exact_and_inferred(play: NotedPlay) -> tuple[GroupTables, GroupTables]:
    return with_notes(play), without_notes(play)


def last(play: NotedPlay) -> tuple[Episode, Episode]:
    exact, inferred = exact_and_inferred(play)
    return exact.episodes[-1], inferred.episodes[-1]


def check_against_exact(inferred: Episode, exact: Episode) -> None:
    """Check that the row inferred without notes does not contradict the exact row."""
    assert inferred.start_lo_ms is not None
    assert exact.start_lo_ms is not None
    assert exact.start_lo_ms == exact.start_hi_ms
    assert inferred.start_hi_ms is not None
    assert inferred.start_lo_ms <= exact.start_lo_ms <= inferred.start_hi_ms
    assert (inferred.end, inferred.end_ms, inferred.rounds) == (exact.end, exact.end_ms, exact.rounds)
    assert (inferred.from_generation, inferred.to_generation) == (exact.from_generation, exact.to_generation)
    assert (inferred.members_before, inferred.members_after) == (exact.members_before, exact.members_after)
    assert inferred.moved_partitions == exact.moved_partitions
    assert exact.confidence == "exact"
    assert exact.missing == inferred.missing == 0


def test_a_group_is_formed(play: NotedPlay) -> None:
    play.join("a", version=3)
    play.after(1_000)
    play.join("b", version=3)
    play.after(5_000)
    play.after(1_500).sync("a", {"a": b"", "b": b""})
    exact, inferred = last(play)
    check_against_exact(inferred, exact)
    assert (exact.cause, inferred.cause, inferred.confidence) == ("formation", "formation", "strong")
    assert exact.joined == inferred.joined == ["c-a", "c-b"]
    assert (exact.sync_ms, inferred.sync_ms) == (exact.sync_ms, exact.sync_ms)
    assert exact.join_ms is not None


def test_a_newcomer_is_named_with_and_without_notes(play: NotedPlay) -> None:
    play.two_dynamic()
    play.after(700)
    play.join("c", version=3)
    play.after(2_000)
    play.join("a")
    play.join("b")
    play.after(300)
    play.sync("a", {"a": b""})
    exact, inferred = last(play)
    check_against_exact(inferred, exact)
    assert (exact.cause, exact.trigger_member, exact.trigger_client) == ("new_member", "c-c", "c @ 127.0.0.1")
    assert (inferred.cause, inferred.trigger_member, inferred.confidence) == ("new_member", "c-c", "strong")
    assert (exact.join_ms, exact.sync_ms, inferred.sync_ms) == (2_000, 300, 300)
    assert exact.laggards == ["c-b"]


def test_a_rebalance_that_lasts_until_a_session_ends_waits_for_the_silent_member(play: NotedPlay) -> None:
    play.two_dynamic().keep_alive("a")
    play.after(6_000)
    play.join("c", version=3)
    play.after(1_500)
    play.join("a")
    play.after(4_000)
    play.sync("a", {"a": b"", "c": b""})
    exact = with_notes(play).episodes[-1]
    assert (exact.cause, exact.expired, exact.laggards, exact.join_ms, exact.laggard_ms) == ("new_member", ["c-b"], ["c-b"], exact.laggard_ms, exact.join_ms)
    assert exact.join_ms is not None
    assert exact.join_ms > 1_500


def test_a_newcomer_is_no_certain_cause_with_a_changed_subscription(play: NotedPlay) -> None:
    play.two_dynamic()
    play.after(700)
    play.join("b", metadata=T0_T1)
    play.join("c", version=3)
    play.join("a")
    play.sync("a", {"a": b""})
    exact, inferred = last(play)
    check_against_exact(inferred, exact)
    assert exact.cause == "member_metadata_changed"
    assert (inferred.cause, inferred.confidence, inferred.subscription_change) == ("new_member", "weak", True)


def test_an_aborted_round_is_counted(play: NotedPlay) -> None:
    play.two_dynamic()
    play.after(5)
    play.join("c", version=3)
    play.join("a")
    play.join("b")
    play.after(100)
    play.leave("c")
    play.join("a")
    play.join("b")
    play.sync("a", {"a": b""})
    exact, inferred = last(play)
    check_against_exact(inferred, exact)
    assert (exact.rounds, exact.rounds_aborted, exact.contributing) == (2, 1, ["member_left"])
    assert (inferred.rounds_aborted, inferred.cause, inferred.confidence) == (1, "leader_or_member_rejoin", "weak")
    assert (exact.joined, exact.left) == (["c-c"], ["c-c"])  # c joined and left within the rebalance, which only notes show
    assert [generation.rounds_aborted for generation in without_notes(play).generations] == [None, 0, 1]


def test_a_static_restart_saves_two_rebalances(play: NotedPlay) -> None:
    play.two_static().keep_alive("a", "b")
    play.after(30_000)
    play.stop_heartbeats("b")
    play.after(4_000)
    play.join("b'")
    exact, inferred = exact_and_inferred(play)
    assert len(exact.episodes) == len(inferred.episodes) == 1
    (saved,), (returned,) = exact.replacements, inferred.replacements
    assert (saved.verdict, saved.caused_rebalance, saved.saved_rebalances, saved.confidence) == ("saved", False, 2, "exact")
    assert saved.gap_lo_ms == saved.gap_hi_ms == 4_000
    assert (returned.verdict, returned.instance_id, returned.old_member_id, returned.new_member_id) == ("saved", "ib", "ib-b", "ib-b'")
    assert returned.gap_lo_ms is not None
    assert returned.gap_hi_ms is not None
    assert returned.gap_lo_ms <= 4_000 <= returned.gap_hi_ms
    assert inferred.generations[-1].is_replacement


def test_a_static_member_that_returns_with_other_protocols_saves_nothing(play: NotedPlay) -> None:
    play.one_static()
    play.after(1_000)
    play.join("a'", protocols=[("roundrobin", T0_T1), ("range", T0_T1)])
    play.after(10)
    play.sync("a'", {"a'": b""})
    exact, inferred = exact_and_inferred(play)
    assert [replacement.verdict for replacement in exact.replacements] == [replacement.verdict for replacement in inferred.replacements] == ["not_saved_protocol"]
    assert exact.episodes[-1].cause == "static_protocol_changed"
    assert inferred.episodes[-1].protocol_change
    assert inferred.episodes[-1].rejoined == exact.episodes[-1].rejoined == ["ia"]


def test_an_expired_static_member_that_returns_was_away_longer_than_its_session(play: NotedPlay) -> None:
    play.two_static().keep_alive("a")
    play.after(10_100)
    play.join("a")
    play.sync("a", {"a": b""})
    play.after(3_000)
    play.join("b'")
    play.join("a")
    play.sync("a", {"a": b""})
    exact, _ = exact_and_inferred(play)
    (returned,) = exact.replacements
    assert (returned.verdict, returned.gap_lo_ms, returned.gap_hi_ms, returned.caused_rebalance) == ("not_saved_expired", 13_100, 13_100, True)
    assert [spell.end_kind for spell in exact.spells if spell.instance_id == "ib"] == ["expired", "open"]
    assert exact.episodes[-2].expired == ["ib"]


def test_a_rebalance_that_a_crash_ends_is_marked(play: NotedPlay) -> None:
    play.two_dynamic()
    play.after(10)
    play.join("c", version=3)
    play.crash()
    exact = with_notes(play).episodes[-1]
    assert (exact.end, exact.end_ms, exact.cause) == ("interrupted", None, "new_member")
    assert "coordinator was restarted" in exact.evidence


def test_a_rebalance_that_a_hand_over_of_its_partition_ends_names_the_node(play: NotedPlay) -> None:
    play.two_dynamic()
    play.after(10)
    play.join("c", version=3)
    play.restart(to_node=2, drained=True)
    exact = with_notes(play).episodes[-1]
    assert (exact.end, exact.cause) == ("interrupted", "new_member")
    assert "interrupted: the coordinator handed the partition to node 2" in exact.evidence
    assert "restarted" not in exact.evidence


def test_a_recreated_group_has_a_new_history(play: NotedPlay) -> None:
    play.one_dynamic()
    play.leave("a")
    play.after(50)
    play.delete()
    play.after(1_000)
    play.settled("b")
    for tables in exact_and_inferred(play):
        assert [(episode.from_generation, episode.to_generation, episode.cause) for episode in tables.episodes][-1] == (0, 1, "formation")
        assert [generation.tombstone for generation in tables.generations] == [False, False, False, True, False, False]
