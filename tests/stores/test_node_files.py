"""How nodes of one directory notice starts and ends of other nodes."""

from __future__ import annotations

import errno
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
        self.noticed: SimpleQueue[None] = SimpleQueue()
        self.files = NodeFiles(str(folder), id, lambda: self.noticed.put(None))
        self.info = NodeInfo(id, (("PLAINTEXT", "tenure.example", 9092 + id),))

    def start(self) -> None:
        deadline = time.monotonic() + SECONDS
        while not self.files.enter():  # threads of earlier watchers may still hold the lock for a moment
            assert time.monotonic() < deadline
        self.files.publish(self.info)

    def found(self) -> list[NodeInfo | int]:
        """The changes since the last call: arrived nodes, and the ids of ended ones."""
        return [id if node is None else node for id, node in self.files.find_changes()]

    def ended(self) -> list[NodeInfo | int]:
        """Wait until the end of a node is noticed."""
        self.noticed.get(timeout=SECONDS)
        return self.found()

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
    assert first.found() == []
    second.start()
    third.start()
    assert first.files.changed()
    assert sorted(first.found(), key=str) == [second.info, third.info]
    assert first.found() == []
    assert sorted(third.found(), key=str) == [first.info, second.info]


def test_the_end_of_a_node_is_noticed_by_all_others_however_it_ends(watchers: list[Watcher]) -> None:
    first, second, third = watchers
    for watcher in watchers:
        watcher.start()
    for watcher in watchers:
        watcher.found()
    third.die()
    assert first.ended() == second.ended() == [3]
    assert first.found() == []
    second.files.close()
    assert first.ended() == [2]


def test_a_node_that_returns_is_found_again(watchers: list[Watcher]) -> None:
    first, second, _ = watchers
    first.start()
    for _ in range(3):
        second.start()
        assert first.found() == [second.info]
        second.die()
        assert first.ended() == [2]


def test_a_node_is_not_found_at_the_address_of_its_previous_process(watchers: list[Watcher]) -> None:
    """Stored addresses may be stale: with port 0 each process has another port, and a copied directory has those of other nodes."""
    first, second, _ = watchers
    first.start()
    second.start()
    second.die()
    assert second.files.enter()
    assert first.found() == []
    moved = NodeInfo(2, (("PLAINTEXT", "localhost", 1),), None)
    second.files.publish(moved)
    assert first.files.changed()
    assert first.found() == [moved]


def test_a_new_process_is_found_whose_predecessor_ended_unnoticed(watchers: list[Watcher]) -> None:
    """A frozen process does not notice an end: its thread waits for the lock of the next process when it continues."""
    first, second, _ = watchers
    first.start()
    second.start()
    assert first.found() == [second.info]
    for port in (1, 2, 2):
        second.info = NodeInfo(2, (("PLAINTEXT", "localhost", port),))
        os.remove(f"{second.files._folder}/2.json")
        second.files.publish(second.info)
        assert first.files.changed()
        assert first.found() == [2, second.info]
        assert first.found() == []


def test_a_search_that_fails_is_repeated(watchers: list[Watcher], monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, _third = watchers
    for watcher in watchers:
        watcher.start()
    is_open = os.open

    def fail(path: str, *arguments: int) -> int:
        if path.endswith("/2.lock"):
            raise OSError(errno.EMFILE, "Too many open files")
        return is_open(path, *arguments)

    monkeypatch.setattr(os, "open", fail)
    found = []
    with pytest.raises(OSError, match="Too many"):
        found += [node for _, node in first.files.find_changes()]
    assert first.files.changed()
    monkeypatch.undo()
    assert [*found, *first.found()].count(second.info) == 1
    assert first.found() == []


def test_the_file_of_an_older_version_is_read() -> None:
    text = '{"addresses": [["PLAINTEXT", "a", 1]], "rack": null, "peer_address": ["127.0.0.1", 2], "network": 3}'
    assert read_node(2, text) == NodeInfo(2, (("PLAINTEXT", "a", 1),))


def test_the_end_of_a_node_is_noticed_at_once(watchers: list[Watcher]) -> None:
    """The limit is on the quickest of several ends, since a busy machine may delay some."""
    first, second, _ = watchers
    first.start()
    seconds = []
    for _ in range(5):
        second.start()
        first.found()
        died = time.monotonic()
        second.die()
        first.noticed.get(timeout=SECONDS)
        seconds.append(time.monotonic() - died)
    assert min(seconds) < NOTICED_SECONDS


def test_a_second_process_with_the_same_id_does_not_get_the_file(watchers: list[Watcher], tmp_path: Path) -> None:
    first, second, _ = watchers
    first.start()
    second.start()
    first.found()
    restarted = Watcher(tmp_path, 2)
    assert not restarted.files.enter()
    restarted.files.close()
    assert (tmp_path / "2.json").exists()
    assert second.found() == [first.info]
    with pytest.raises(Empty):
        first.noticed.get(timeout=0.05)


def test_addresses_of_a_dead_node_or_torn_ones_are_no_node(watchers: list[Watcher], tmp_path: Path) -> None:
    first, second, third = watchers
    first.start()
    second.start()
    second.die()
    third.start()
    (tmp_path / "3.json").write_text('{"id": 3, "addr')
    assert first.found() == []
    third.files.publish(third.info)
    assert first.found() == [third.info]
