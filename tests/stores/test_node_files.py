"""How nodes of one directory notice starts and ends of other nodes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from queue import Empty, SimpleQueue

import pytest

from broker.stores.node_files import NodeFiles, read_node
from storage import NodeInfo

SECONDS = 10.0
NOTICED_SECONDS = 0.2


class Watcher:
    """The `NodeFiles` of one node, and the ends of other nodes that it noticed."""

    def __init__(self, folder: Path, id: int) -> None:
        self.ended_nodes: SimpleQueue[int] = SimpleQueue()
        self.files = NodeFiles(str(folder), id, self.ended_nodes.put)
        self.info = NodeInfo(id, (("PLAINTEXT", "tenure.example", 9092 + id),), None, ("127.0.0.1", 19092 + id))

    def start(self) -> None:
        deadline = time.monotonic() + SECONDS
        while not self.files.enter():  # threads of earlier watchers may still hold the lock for a moment
            assert time.monotonic() < deadline
        self.files.publish(self.info)

    def die(self) -> None:
        """End as by kill -9: the system releases the lock, and the file with the addresses stays."""
        os.close(self.files._own_lock)
        self.files._own_lock = -1


@pytest.fixture
def watchers(tmp_path: Path) -> Iterator[list[Watcher]]:
    all_watchers = [Watcher(tmp_path, id) for id in (1, 2, 3)]
    yield all_watchers
    for watcher in all_watchers:
        watcher.files.close()


def test_each_node_finds_the_others_once(watchers: list[Watcher]) -> None:
    first, second, third = watchers
    first.start()
    assert first.files.find_new() == []
    second.start()
    third.start()
    assert first.files.changed()
    assert sorted(first.files.find_new()) == [second.info, third.info]
    assert first.files.find_new() == []
    assert sorted(third.files.find_new()) == [first.info, second.info]


def test_the_end_of_a_node_is_noticed_by_all_others_however_it_ends(watchers: list[Watcher]) -> None:
    first, second, third = watchers
    for watcher in watchers:
        watcher.start()
    for watcher in watchers:
        watcher.files.find_new()
    third.die()
    assert [first.ended_nodes.get(timeout=SECONDS), second.ended_nodes.get(timeout=SECONDS)] == [3, 3]
    assert first.files.find_new() == []
    second.files.close()
    assert first.ended_nodes.get(timeout=SECONDS) == 2


def test_a_node_that_returns_is_found_again(watchers: list[Watcher]) -> None:
    first, second, _ = watchers
    first.start()
    for _ in range(3):
        second.start()
        assert first.files.find_new() == [second.info]
        second.die()
        assert first.ended_nodes.get(timeout=SECONDS) == 2


def test_a_node_is_not_found_at_the_address_of_its_previous_process(watchers: list[Watcher]) -> None:
    """Stored addresses may be stale: with port 0 each process has another port, and a copied directory has those of other nodes."""
    first, second, _ = watchers
    first.start()
    second.start()
    second.die()
    assert second.files.enter()
    assert first.files.find_new() == []
    moved = NodeInfo(2, (("PLAINTEXT", "localhost", 1),), None)
    second.files.publish(moved)
    assert first.files.changed()
    assert first.files.find_new() == [moved]


def test_a_node_in_another_container_is_reached_at_its_advertised_address(watchers: list[Watcher], monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, _ = watchers
    first.start()
    monkeypatch.setattr("broker.stores.node_files.network", lambda: 1)
    second.start()
    monkeypatch.undo()
    assert first.files.find_new() == [second.info._replace(peer_address=None)]


def test_the_file_of_an_older_version_has_only_advertised_addresses() -> None:
    assert read_node(2, '{"addresses": [["PLAINTEXT", "a", 1]], "rack": null}') == NodeInfo(2, (("PLAINTEXT", "a", 1),))


def test_the_end_of_a_node_is_noticed_at_once(watchers: list[Watcher]) -> None:
    """The limit is on the quickest of several ends, since a busy machine may delay some."""
    first, second, _ = watchers
    first.start()
    seconds = []
    for _ in range(5):
        second.start()
        first.files.find_new()
        died = time.monotonic()
        second.die()
        first.ended_nodes.get(timeout=SECONDS)
        seconds.append(time.monotonic() - died)
    assert min(seconds) < NOTICED_SECONDS


def test_a_second_process_with_the_same_id_does_not_get_the_file(watchers: list[Watcher], tmp_path: Path) -> None:
    first, second, _ = watchers
    first.start()
    second.start()
    first.files.find_new()
    restarted = Watcher(tmp_path, 2)
    assert not restarted.files.enter()
    restarted.files.close()
    assert (tmp_path / "2.json").exists()
    assert second.files.find_new() == [first.info]
    with pytest.raises(Empty):
        first.ended_nodes.get(timeout=0.05)


def test_addresses_of_a_dead_node_or_torn_ones_are_no_node(watchers: list[Watcher], tmp_path: Path) -> None:
    first, second, third = watchers
    first.start()
    second.start()
    second.die()
    third.start()
    (tmp_path / "3.json").write_text('{"id": 3, "addr')
    assert first.files.find_new() == []
    third.files.publish(third.info)
    assert first.files.find_new() == [third.info]


def test_other_addresses_count_as_an_arrival(watchers: list[Watcher]) -> None:
    """A node that was frozen while another one restarted elsewhere has missed the end of that node's earlier process."""
    first, second, _ = watchers
    first.start()
    second.start()
    assert first.files.find_new() == [second.info]
    moved = second.info._replace(addresses=(("PLAINTEXT", "127.0.0.1", 9_999),))
    second.files.publish(moved)
    assert first.files.changed()
    assert first.files.find_new() == [moved]
    assert first.files.find_new() == []


def test_a_failed_search_is_repeated(watchers: list[Watcher], monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, _ = watchers
    first.start()
    second.start()

    def fail(path: str) -> list[str]:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr("broker.stores.node_files.os.listdir", fail)
    with pytest.raises(OSError, match="Too many"):
        first.files.find_new()
    monkeypatch.undo()
    assert first.files.changed()
    assert first.files.find_new() == [second.info]
