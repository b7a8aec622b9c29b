"""Two processes with one instance id, recognized in a group's history."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cli.groups.history_shown import summary
from coordinator.notes import Cause, Replacement
from coordinator.states import State
from history import Entry, Rebalance, StaticReturned
from history.shared_ids import WINDOW_MS, SharedId, shared_ids
from tests.coordinator.playbook import Play


def returned(at_ms: int, host: str = "/10.0.0.1", client_id: str = "orders", instance_id: str = "a") -> StaticReturned:
    return StaticReturned(at_ms, instance_id, f"old-{at_ms}", f"new-{at_ms}", client_id, host, 900, Replacement.NO_REBALANCE)


def test_an_id_that_alternates_between_hosts_is_used_by_two_processes() -> None:
    entries: list[Entry] = [returned(0), returned(4_000, "/10.0.0.2"), returned(7_000), returned(8_000, instance_id="b")]
    assert shared_ids(entries) == [SharedId("a", 3, 7_000, ["/10.0.0.1", "/10.0.0.2"])]
    shared, restarts = summary(entries)
    assert shared == "a returned 3 times within 7.0 s, alternately from 10.0.0.1 and 10.0.0.2: two processes use this group.instance.id, and fence each other"
    assert restarts == "1 restart of static members caused no rebalance"  # b: the seat of a moved between two live processes


def test_an_id_that_alternates_between_client_ids_on_one_host_is_used_by_two_processes() -> None:
    assert shared_ids([returned(0), returned(1, client_id="copy"), returned(2)])[0].places == ["copy", "orders"]


def test_similar_returns_may_be_a_restart_loop() -> None:
    (text,) = summary([returned(at) for at in (0, 2_000, 4_000, 6_000)])
    assert text == "a returned 4 times within 6.0 s: two processes use this group.instance.id and fence each other, or its process is restarted in a loop"


def test_a_process_that_moves_from_host_to_host_does_not_alternate() -> None:
    assert shared_ids([returned(at, f"/10.0.0.{at}") for at in range(3)])[0].places == []


@pytest.mark.parametrize("times", [(0, 1), (0, 1, WINDOW_MS + 1), (0, WINDOW_MS, 2 * WINDOW_MS)])
def test_a_few_restarts_indicate_no_second_process(times: tuple[int, ...]) -> None:
    assert not shared_ids([returned(at) for at in times])


def test_returns_during_rebalances_count() -> None:
    rebalances = [Rebalance(at, State.STABLE, 1, Cause.STATIC_DURING_COMPLETING, returns=[returned(at)]) for at in (0, 1)]
    assert shared_ids([*rebalances, returned(WINDOW_MS)])[0].returns == 3


def test_a_fight_of_two_processes_in_a_group(play: Play, story: Callable[[], list[Entry]]) -> None:
    play.two_static()
    for process in ("b'", "b''", "b'''"):
        play.after(500)
        play.join(process).expect(generation=1)
    assert [(shared.instance_id, shared.returns, shared.period_ms) for shared in shared_ids(story())] == [("ib", 3, 1_000)]
