"""Pairs of removed and returned members: matched by instance id, client id and host, or client id without its random part."""

from __future__ import annotations

import pytest

from history.pairs import AWAY_MAX_MS, Stay, away, pairs_of, stem

POD = "checkout-7d9f8b6c5d-{}"


def stay(
    id: str, joined: int | None, left_ms: int | None = None, *, client: str = "app", host: str = "h1", instance: str | None = None, silent: int | None = None
) -> Stay:
    """The stay of a member that left at `left_ms`. With `silent` it was removed at `left_ms`, and its last sign of life was at `silent`."""
    span = None if left_ms is None else (left_ms, left_ms)
    quiet = span if silent is None else (silent, silent)
    return Stay(id, instance, client, host, None if joined is None else (joined, joined), quiet, span, silent is None)


def pairs_found(*stays: Stay) -> list[tuple[str, str, bool, bool]]:
    return [(stays[pair.old].member_id, stays[pair.new].member_id, pair.strong, pair.unambiguous) for pair in pairs_of(stays)]


def test_the_same_client_on_the_same_host_is_the_same_process() -> None:
    assert pairs_found(stay("a", 0, 100), stay("b", 0), stay("a2", 110)) == [("a", "a2", True, True)]


def test_no_member_returns_before_it_departed() -> None:
    assert pairs_found(stay("a", 0, 100), stay("a2", 99)) == []


def test_no_member_is_its_own_successor_when_the_clock_was_set_back() -> None:
    assert pairs_found(stay("a", 100, 10), stay("b", 50)) == [("a", "b", True, True)]
    assert pairs_found(stay("a", 100, 10), stay("b", 50, client="other")) == []


@pytest.mark.parametrize(("first", "silent", "count"), [(3, None, 1), (2, None, 0), (1, None, 0), (3, 90, 1), (2, 90, 1), (1, 90, 0)])
def test_a_successor_is_in_later_generations_only(first: int, silent: int | None, count: int) -> None:
    """Whatever the clocks say: the order of generations is that of the log. A silent member may still be in its successor's first generation."""
    old = stay("a", 0, 100, silent=silent)._replace(first=1, last=2)
    assert len(pairs_found(old, stay("a2", 110)._replace(first=first, last=3))) == count


def test_a_member_that_cannot_be_the_predecessor_waits_for_its_own_successor() -> None:
    stays = [stay("a", 0, 100)._replace(first=1, last=5), stay("b", 0, 105)._replace(first=1, last=2), stay("x", 110)._replace(first=3), stay("y", 120)._replace(first=6)]
    assert [pair[:2] for pair in pairs_found(*stays)] == [("b", "x"), ("a", "y")]


def test_a_silent_member_may_return_before_its_session_ends() -> None:
    (pair,) = pairs_of(stays := [stay("a", 0, 145, silent=100), stay("a2", 110)])
    assert (pair.old, pair.new) == (0, 1)
    assert away(stays[0], stays[1]) == (10, 10)


def test_a_present_member_is_not_paired_with_a_new_one() -> None:
    assert pairs_found(stay("a", 0, 145, silent=120), stay("a2", 110)) == []


def test_ambiguous_returns_are_paired_in_departure_order_and_marked_as_a_guess() -> None:
    assert pairs_found(stay("a", 0, 100), stay("b", 0, 101), stay("x", 110), stay("y", 111)) == [("a", "x", True, False), ("b", "y", True, True)]


def test_a_lost_member_is_not_paired_with_the_later_return_of_another_member() -> None:
    minute = 60_000
    assert pairs_found(stay("lost", 0, 100), stay("a", 50, 20 * minute), stay("a2", 20 * minute + 10)) == [("a", "a2", True, True)]


@pytest.mark.parametrize(("away_ms", "count"), [(AWAY_MAX_MS, 1), (AWAY_MAX_MS + 1, 0)])
def test_a_member_away_for_longer_than_the_limit_was_not_restarted(away_ms: int, count: int) -> None:
    assert len(pairs_found(stay("a", 0, 100), stay("a2", 100 + away_ms))) == count


def test_a_departed_member_is_paired_once() -> None:
    assert pairs_found(stay("a", 0, 100), stay("x", 110), stay("y", 120)) == [("a", "x", True, True)]


def test_a_more_specific_match_wins_over_an_earlier_one() -> None:
    pairs = pairs_found(stay("a", 0, 100, client="app-1"), stay("x", 110, client="app-1", host="h2"), stay("y", 120, client="app-1"))
    assert pairs == [("a", "y", True, True)]


def test_a_unique_client_id_identifies_a_member_on_any_host() -> None:
    other_members = [stay("b", 0, client="app-2"), stay("c", 0, client="app-3")]
    assert pairs_found(stay("a", 0, 100, client="app-1"), *other_members, stay("a2", 110, client="app-1", host="h9")) == [("a", "a2", True, True)]


def test_a_shared_client_id_is_weaker_evidence() -> None:
    assert pairs_found(stay("a", 0, 100), stay("b", 0, host="h2"), stay("a2", 110, host="h9")) == [("a", "a2", False, True)]


def test_a_silent_member_of_the_same_client_does_not_make_its_id_ambiguous() -> None:
    pairs = pairs_found(stay("a", 0, 145, silent=100, client="app-1"), stay("a2", 110, client="app-1", host="h9"))
    assert pairs == [("a", "a2", True, True)]


def test_client_ids_with_different_numbers_are_different_clients() -> None:
    assert pairs_found(stay("a", 0, 100, client="app-1"), stay("x", 110, client="app-2")) == []


def test_pods_with_new_names_and_addresses_are_paired_if_the_number_of_hosts_is_unchanged() -> None:
    pods = [stay(name, 0, 100 + number, client=POD.format(name), host=name) for number, name in enumerate(["x2c4z", "b5d6f"])]
    restarted = [stay(name, 110 + number, client=POD.format(name), host=name) for number, name in enumerate(["g7h8j", "k9l2m"])]
    assert pairs_found(*pods, stay("z", 0, client=POD.format("zzz22"), host="z"), *restarted) == [("x2c4z", "g7h8j", False, False), ("b5d6f", "k9l2m", False, True)]


def test_a_departure_of_an_old_member_far_from_the_chain_does_not_make_it_a_surge() -> None:
    """Steps of the chain are 30 s; the other member leaves seven minutes after it."""
    second = 1_000
    extra, untouched = stay("e", 900 * second, host="e"), stay("u", 0, 1_580 * second, host="u")
    chain = [stay("a", 0, 1_000 * second), stay("b", 0, 1_080 * second, host="h2"), stay("a2", 1_050 * second, host="h8"), stay("b2", 1_130 * second, host="h9")]
    assert [pair[:2] for pair in pairs_found(extra, untouched, *chain)] == [("a", "a2"), ("b", "b2")]
    near = untouched._replace(last_heartbeat=(1_160 * second,) * 2, ended=(1_160 * second,) * 2)
    assert pairs_found(extra, near, *chain) == []


def test_scaling_down_by_one_pod_is_no_restart() -> None:
    pods = [stay(name, 0, 100 + number, client=POD.format(name), host=name) for number, name in enumerate(["x2c4z", "b5d6f"])]
    assert pairs_found(*pods, stay("g7h8j", 110, client=POD.format("g7h8j"), host="new")) == []


def test_a_static_member_is_identified_by_its_instance_id_alone() -> None:
    assert pairs_found(stay("a", 0, 100, instance="i1"), stay("a2", 110, instance="i1", host="h9")) == [("a", "a2", True, True)]
    assert pairs_found(stay("a", 0, 100, instance="i1"), stay("a2", 110, instance="i2"), stay("x", 120)) == []


def test_a_member_that_is_present_or_was_removed_does_not_return() -> None:
    removed = Stay("a", None, "app", "h1", (0, 0), None, (100, 100), False)
    assert pairs_found(removed, stay("b", 0), stay("x", 110)) == []


def test_a_member_that_joins_and_leaves_at_once_can_return() -> None:
    assert pairs_found(stay("a", 0, 100), stay("b", 110, 110), stay("c", 115)) == [("a", "b", True, True), ("b", "c", True, True)]


def test_two_members_of_one_generation_are_not_paired() -> None:
    """Known from records, without notes: both are in the generation stored at 110, and only `b` is in the next one."""
    old = Stay("a", None, "app", "h1", None, (50, 150), (110, 150), True)
    new = Stay("b", None, "app", "h1", (100, 109), None, None, False)
    assert pairs_of([old, new]) == []


@pytest.mark.parametrize(
    ("client_id", "without"),
    [
        ("app-7d9f8b6c5d-x2x4z", "app"),
        ("app-550e8400-e29b-41d4-a716-446655440000", "app"),
        ("app-deadbee1", "app"),
        ("app-12", "app-12"),
        ("payments-v2", "payments-v2"),
        ("consumer-g-1", "consumer-g-1"),
        ("550e8400-e29b-41d4-a716-446655440000", "550e8400-e29b-41d4-a716-446655440000"),
    ],
)
def test_the_random_part_of_a_client_id_is_removed(client_id: str, without: str) -> None:
    assert stem(client_id) == without


def test_no_member_is_paired_across_the_deletion_of_its_group() -> None:
    stays = [stay("a", 0, 100), stay("a2", 200)]
    assert len(pairs_of(stays, [-5, 250])) == 1
    assert pairs_of(stays, [150]) == []
