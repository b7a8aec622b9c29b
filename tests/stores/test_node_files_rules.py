"""What a node's files say, and which failures of reading, watching and connecting are met; without waiting for other threads."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.stores import node_files as module
from broker.stores import node_sockets
from broker.stores.node_files import NodeFiles, Watch, node_ids, read_node
from broker.stores.node_sockets import ADDRESS_BYTES_MAX, connect_protocol, listen, remove_file, socket_path
from storage import NodeInfo

pytestmark = pytest.mark.plain  # replaces functions of modules

INFO = NodeInfo(2, (("PLAINTEXT", "tenure.example", 9092), ("SSL", "::1", 9093)), "rack-7")
SECONDS = 10


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The threads that were to be started; their targets are not run."""
    started: list[dict[str, Any]] = []

    class Thread:
        def __init__(self, **options: Any) -> None:
            self.options = options

        def start(self) -> None:
            started.append(self.options)

    monkeypatch.setattr(module, "threading", type("threading", (), {"Thread": Thread}))
    return started


class Pair:
    """Node 1, which looks for node 2."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.noticed = 0
        self.first = NodeFiles(str(folder), 1, self._notice)
        self.second = NodeFiles(str(folder), 2, lambda: None)

    def _notice(self) -> None:
        self.noticed += 1

    def start(self) -> None:
        assert self.first.enter()
        assert self.second.enter()
        self.second.publish(INFO)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    pair = Pair(tmp_path)
    yield pair
    pair.first.close()
    pair.second.close()


def test_only_address_files_with_a_number_are_nodes() -> None:
    names = ["1.json", "2.lock", "3.sock", "4.json.new", "x.json", ".json", "17.json", "json", "5"]
    assert list(node_ids(names)) == [1, 17]


def test_a_published_node_is_read_as_it_is(pair: Pair) -> None:
    pair.start()
    path = pair.folder / "2.json"
    stored = json.loads(path.read_text())
    assert (stored["id"], stored["rack"], stored["pid"]) == (2, "rack-7", os.getpid())  # the pid is for operators
    assert read_node(2, path.read_text()) == INFO
    assert not (pair.folder / "2.json.new").exists()


def test_the_process_of_a_live_node_is_watched_by_one_daemon_thread(pair: Pair, threads: list[dict[str, Any]]) -> None:
    """A node must be able to exit while a thread waits for the end of another one."""
    pair.start()
    assert pair.first.changed()
    assert list(pair.first.find_changes()) == [(2, INFO)]
    assert not pair.first.changed()
    assert list(pair.first.find_changes()) == []
    (thread,) = threads
    assert (thread["daemon"], thread["name"]) == (True, "node-2")
    os.close(thread["args"][1])


def test_the_end_of_a_watched_node_is_reported_once(pair: Pair, threads: list[dict[str, Any]]) -> None:
    pair.start()
    list(pair.first.find_changes())
    pair.second.close()
    watch, descriptor = threads[0]["args"]
    before = descriptors()
    threads[0]["target"](watch, descriptor)
    assert (watch.ended, pair.noticed, descriptors()) == (True, 1, before - 1)
    assert pair.first.changed()
    assert list(pair.first.find_changes()) == [(2, None)]
    assert not pair.first.changed()
    assert list(pair.first.find_changes()) == []


def test_a_failure_to_wait_counts_as_the_nodes_end(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next search then locks the file, or watches the node again."""

    def fail(descriptor: int, kind: int) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", fail)
    watch = Watch((0, 0, ""))
    before = descriptors()
    pair.first._wait_for_end(watch, os.open(pair.folder, os.O_RDONLY))
    assert (watch.ended, pair.noticed, descriptors()) == (True, 1, before)


def test_dead_nodes_cost_no_descriptors_and_no_threads(pair: Pair, threads: list[dict[str, Any]]) -> None:
    pair.start()
    pair.second.close()
    (pair.folder / "2.json").write_text(json.dumps({"addresses": [], "rack": None}))
    before = descriptors()
    assert list(pair.first.find_changes()) == []
    assert (threads, descriptors()) == ([], before)


@pytest.mark.parametrize("text", ["", "{", '{"addresses": []}', '{"addresses": [["A", "b", "c"]], "rack": null}', '{"addresses": [["A"]], "rack": null}'])
def test_a_live_node_without_readable_addresses_is_found_later(pair: Pair, threads: list[dict[str, Any]], text: str) -> None:
    """Its process holds the lock before it listens."""
    pair.start()
    (pair.folder / "2.json").write_text(text)
    before = descriptors()
    assert list(pair.first.find_changes()) == []
    assert (threads, descriptors()) == ([], before)
    pair.second.publish(INFO)
    assert pair.first.changed()
    assert list(pair.first.find_changes()) == [(2, INFO)]
    os.close(threads[0]["args"][1])


def test_an_unreadable_file_of_a_watched_node_is_no_new_process(pair: Pair, threads: list[dict[str, Any]]) -> None:
    pair.start()
    list(pair.first.find_changes())
    (pair.folder / "2.json").unlink()
    assert list(pair.first.find_changes()) == []
    os.close(threads[0]["args"][1])


def test_a_node_that_did_not_get_its_file_removes_no_file(pair: Pair) -> None:
    pair.start()
    again = NodeFiles(str(pair.folder), 2, lambda: None)
    assert not again.enter()
    assert not again.enter()
    before = descriptors()
    again.close()
    again.close()
    assert descriptors() == before - 1
    assert (pair.folder / "2.json").exists()
    pair.second.close()
    assert not (pair.folder / "2.json").exists()
    assert pair.second.enter()  # entered again: the lock file is opened anew


def test_a_file_that_cannot_be_removed_does_not_keep_the_lock(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    pair.start()

    def fail(path: str) -> None:
        raise OSError(30, "Read-only file system")

    with monkeypatch.context() as patched:
        patched.setattr(os, "remove", fail)
        pair.second.close()
    again = NodeFiles(str(pair.folder), 2, lambda: None)
    assert again.enter()
    assert not (pair.folder / "2.json").exists()  # the addresses of the previous process
    again.close()


def test_a_failed_search_goes_on_with_the_other_nodes(pair: Pair, threads: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    pair.start()
    (pair.folder / "3.json").write_text("{}")
    (pair.folder / "4.json").write_text("{}")
    changes_of = pair.first._changes_of

    def fail_for_others(id: int) -> Iterator[Any]:
        if id != 2:
            raise OSError(24, f"Too many open files {id}")
        return changes_of(id)

    monkeypatch.setattr(pair.first, "_changes_of", fail_for_others)
    found: list[Any] = []

    def find() -> None:
        found.extend(pair.first.find_changes())

    with pytest.raises(OSError, match="Too many open files"):
        find()
    assert found == [(2, INFO)]
    assert len(threads) == 1
    assert pair.first.changed()
    os.close(threads[0]["args"][1])


# Sockets.


@pytest.mark.parametrize("fails", ["bind", "chmod", "listen"])
def test_a_socket_that_cannot_listen_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str) -> None:
    def fail(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    before = descriptors()
    with monkeypatch.context() as patched:
        patched.setattr(os if fails == "chmod" else node_sockets.NodeSocket, fails, fail)
        with pytest.raises(OSError, match="No space left"):
            listen(str(tmp_path), 1)
    assert descriptors() == before
    assert os.listdir(tmp_path) == []


def test_sockets_of_nodes_never_block_the_loop(tmp_path: Path) -> None:
    with listen(str(tmp_path), 3) as listening, node_sockets.connect(str(tmp_path), 3) as connected:
        assert (listening.getblocking(), connected.getblocking()) == (False, False)
        assert (listening.family, listening.type) == (socket.AF_UNIX, socket.SOCK_STREAM)
        assert os.listdir(tmp_path) == ["3.sock"]


def test_only_a_missing_socket_may_be_removed_twice(tmp_path: Path) -> None:
    remove_file(f"{tmp_path}/1.sock")
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match=r"irectory|permitted"):
        remove_file(f"{tmp_path}/folder")


@pytest.mark.parametrize("bytes_more", [0, 1])
def test_a_path_is_used_as_it_is_if_it_fits_into_an_address(tmp_path: Path, bytes_more: int) -> None:
    base = f"{tmp_path}/"
    folder = base + "x" * (ADDRESS_BYTES_MAX - len(os.fsencode(socket_path(base, 1))) + bytes_more)
    os.mkdir(folder)
    with node_sockets._address(folder, 1) as address:
        assert len(os.fsencode(address)) <= ADDRESS_BYTES_MAX
        assert (address == socket_path(folder, 1)) is not bool(bytes_more)


def test_a_protocol_is_connected_or_its_socket_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Protocol(asyncio.Protocol):
        def __init__(self) -> None:
            self.transport: Any = None

        def connection_made(self, transport: Any) -> None:
            self.transport = transport

    class Failing(Protocol):
        def __init__(self) -> None:
            raise ValueError("no protocol")

    async def run() -> None:
        loop = asyncio.get_running_loop()
        before = descriptors()
        with listen(str(tmp_path), 1) as listening:
            protocol = Protocol()
            await connect_protocol(loop, lambda: protocol, str(tmp_path), 1)
            accepted, _ = listening.accept()
            protocol.transport.write(b"hello")
            accepted.settimeout(SECONDS)
            assert accepted.recv(10) == b"hello"
            protocol.transport.abort()
            accepted.close()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            made = [node_sockets.connect(str(tmp_path), 1)]
            with monkeypatch.context() as patched:
                patched.setattr(node_sockets, "connect", lambda folder, node: made[0])
                with pytest.raises(ValueError, match="no protocol"):
                    await connect_protocol(loop, Failing, str(tmp_path), 1)
            assert made[0].fileno() == -1
            with pytest.raises(FileNotFoundError):
                await connect_protocol(loop, Protocol, str(tmp_path), 2)
        assert descriptors() == before

    threads_before = threading.active_count()
    with asyncio.Runner() as runner:
        runner.run(run())
    assert threading.active_count() == threads_before
