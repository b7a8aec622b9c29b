"""The socket of a node in the data directory."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from broker.stores.node_sockets import ADDRESS_BYTES_MAX, BACKLOG, connect, listen, socket_path

SYSTEM_BACKLOG = int(Path("/proc/sys/net/core/somaxconn").read_text())


@pytest.fixture(params=["short", "at the limit", "long"])
def folder(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> str:
    base = str(tmp_path_factory.mktemp("f"))
    if request.param == "short":
        return base
    size = ADDRESS_BYTES_MAX - len("/1.sock") + (0 if request.param == "at the limit" else 1)
    missing = size - len(base) - 1
    path = f"{base}/{'ü' * (missing // 2)}{'x' * (missing % 2)}" if request.param == "at the limit" else f"{base}/{'x' * 200}/{'y' * 200}"
    Path(path).mkdir(parents=True)
    return path


def accepted(listening: socket.socket) -> bytes:
    listening.setblocking(True)
    with listening.accept()[0] as other:
        return other.recv(10)


def test_a_node_is_reached_by_its_user_alone(folder: str) -> None:
    with listen(folder, 1) as listening, connect(folder, 1) as connected:
        assert stat.S_IMODE(Path(socket_path(folder, 1)).stat().st_mode) == 0o600
        connected.sendall(b"hello")
        assert accepted(listening) == b"hello"
    assert not Path(socket_path(folder, 1)).exists()


def test_the_socket_of_a_killed_process_is_replaced(folder: str) -> None:
    killed = listen(folder, 1)
    os.close(killed.detach())  # as the system does, which leaves the file
    with pytest.raises(ConnectionRefusedError):
        connect(folder, 1)
    with listen(folder, 1) as listening, connect(folder, 1) as connected:
        connected.sendall(b"again")
        assert accepted(listening) == b"again"


def test_no_descriptor_stays_open(folder: str) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with listen(folder, 1), connect(folder, 1):
        pass
    with pytest.raises(FileNotFoundError):
        connect(folder, 2)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_full_backlog_refuses_at_once(tmp_path: Path) -> None:
    with listen(str(tmp_path), 1) as listening:
        connections = [connect(str(tmp_path), 1) for _ in range(min(BACKLOG, SYSTEM_BACKLOG) + 1)]
        with pytest.raises(BlockingIOError):
            connect(str(tmp_path), 1)
        for connection in connections:
            connection.close()
        assert accepted(listening) == b""
