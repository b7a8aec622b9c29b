from __future__ import annotations

from collections import Counter

import pytest

from broker.cluster import placement as placement_module
from broker.cluster.placement import Placement, moved, share_max
from storage import LogId

OFFSETS = [LogId("__consumer_offsets", number) for number in range(50)]
ORDERS_PLACED = [[1, 3, 2], [1, 2, 3], [3, 2, 1], [3, 2, 1], [2, 3, 1], [3, 2, 1]]
TOPICS = [LogId(f"topic-{topic}", number) for topic in range(20) for number in range(10)]


def firsts(placed: dict[LogId, list[int]]) -> Counter[int]:
    return Counter(order[0] for order in placed.values())


@pytest.mark.parametrize("nodes", range(1, 9))
@pytest.mark.parametrize("logs", [OFFSETS, TOPICS, OFFSETS[:3], OFFSETS[:1]])
def test_no_node_is_first_for_more_than_its_share(logs: list[LogId], nodes: int) -> None:
    placed = Placement().place(logs, range(nodes))
    assert max(firsts(placed).values()) <= share_max(len(logs), nodes)
    assert all(sorted(order) == list(range(nodes)) for order in placed.values())


def test_the_placement_does_not_depend_on_the_order_of_logs_and_nodes() -> None:
    assert Placement().place(TOPICS, [3, 1, 2]) == Placement().place(TOPICS[::-1], [1, 2, 3])


@pytest.mark.parametrize("nodes", [2, 3, 4, 5, 8])
@pytest.mark.parametrize("logs", [OFFSETS, TOPICS])
def test_a_lost_node_moves_its_own_logs_and_few_others(logs: list[LogId], nodes: int) -> None:
    placement = Placement()
    before = placement.place(logs, range(nodes))
    for lost in range(nodes):
        after = placement.place(logs, [node for node in range(nodes) if node != lost]) if nodes > 1 else before
        moved_without_need = [log for log in moved(before, after) if before[log][0] != lost]
        assert len(moved_without_need) <= len(logs) // 5


def test_a_returning_node_gets_its_logs_back() -> None:
    placement = Placement()
    before = placement.place(TOPICS, [0, 1, 2])
    placement.place(TOPICS, [0, 2])
    assert placement.place(TOPICS, [0, 1, 2]) == before


def test_a_new_topic_moves_few_logs_of_others() -> None:
    placement = Placement()
    before = placement.place(TOPICS, [0, 1, 2])
    after = placement.place(TOPICS + [LogId("new", number) for number in range(6)], [0, 1, 2])
    assert len(moved(before, after)) <= len(TOPICS) // 10


def test_without_nodes_no_log_is_placed() -> None:
    assert Placement().place(OFFSETS[:2], []) == {OFFSETS[0]: [], OFFSETS[1]: []}


@pytest.mark.parametrize(("logs", "nodes", "most"), [(0, 3, 1), (1, 1, 2), (50, 3, 18), (51, 3, 18), (52, 3, 19)])
def test_a_share_is_one_log_more_than_an_equal_one(logs: int, nodes: int, most: int) -> None:
    assert share_max(logs, nodes) == most


def test_a_name_that_is_no_valid_text_is_placed() -> None:
    """Names of topics are decoded so that any bytes are kept."""
    log = LogId("\udcff", 0)
    assert sorted(Placement().place([log], [1, 2])[log]) == [1, 2]


def test_a_placement_is_the_same_in_every_version() -> None:
    """Nodes of two versions must agree while they are restarted one by one."""
    placed = Placement().place([LogId("orders", number) for number in range(6)], [1, 2, 3])
    assert [placed[LogId("orders", number)] for number in range(6)] == ORDERS_PLACED


def test_logs_beyond_the_cache_are_placed_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    before = Placement().place(TOPICS, [1, 2, 3])
    monkeypatch.setattr(placement_module, "HASHES_MAX", 10)
    placement = Placement()
    assert placement.place(TOPICS, [1, 2, 3]) == before
    assert len(placement._hashes) <= 10
    assert placement.place(TOPICS, [1, 2]) == Placement().place(TOPICS, [1, 2])
