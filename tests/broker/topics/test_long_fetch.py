"""A long fetch reply sent by sendfile equals byte for byte a reply that is read and written in pieces."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from broker.net.long_replies import ReplyLost
from broker.topics.fetch_replies import LongFetch
from storage import Extent, OsDisk


class FileSource:
    """A stand-in for a segment."""

    def __init__(self, path: Path, data: bytes) -> None:
        path.write_bytes(data)
        self.log_path = str(path)
        self.file = OsDisk().open(self.log_path)
        self.readers = 0

    @property
    def descriptor(self) -> int:
        return self.file.descriptor

    def bytes_at(self, at: int, size: int) -> bytes:
        data = self.file.read(at, size)
        if len(data) < size:
            raise OSError("the file is shorter than it was")
        return data

    def pin(self) -> None:
        self.readers += 1

    def unpin(self) -> None:
        self.readers -= 1


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, peer = socket.socketpair()
    ours.setblocking(False)
    with ours, peer:
        yield ours, peer


def received(peer: socket.socket, bytes_max: int) -> bytes:
    peer.setblocking(False)
    try:
        return peer.recv(bytes_max)
    except BlockingIOError:
        return b""


@pytest.mark.parametrize("seed", range(20))
def test_sendfile_sends_the_bytes_of_an_ordinary_read(seed: int, tmp_path: Path, pair: tuple[socket.socket, socket.socket]) -> None:
    random = Random(seed)
    ours, peer = pair
    parts: list[bytes | Extent] = []
    expected = b""
    sources = []
    for number in range(random.randint(1, 5)):
        head, data = random.randbytes(random.randint(1, 300_000 if seed % 5 == 0 else 200)), random.randbytes(random.randint(1, 400_000))
        source = FileSource(tmp_path / f"{number}.log", data)
        at = random.randrange(len(data))
        parts += [head, Extent(source, at, len(data) - at, len(data) - at, False)]
        expected += head + data[at:]
        sources.append(source)
    reply = LongFetch(parts)
    received_bytes = b""
    while not reply.ended:
        sent = reply.send(ours.fileno(), random.choice([1, 1_000, 1 << 20]))
        if not sent:  # the socket is full: fall back to ordinary writes until the peer reads
            if random.random() < 0.3:
                peer.setblocking(True)
                while len(received_bytes) < len(expected) and (more := received(peer, 1 << 20)):
                    received_bytes += more
                for piece in reply.read_piece(random.choice([1, 1_000, 70_000])):
                    received_bytes += piece
            else:
                received_bytes += received(peer, random.randint(1, 1 << 19))
    while more := received(peer, 1 << 20):
        received_bytes += more
    reply.close()
    assert received_bytes == expected
    assert [source.readers for source in sources] == [0] * len(sources)


def test_a_full_socket_skips_no_bytes(tmp_path: Path, pair: tuple[socket.socket, socket.socket]) -> None:
    ours, _ = pair
    source = FileSource(tmp_path / "a.log", bytes(1 << 22))
    reply = LongFetch([b"head", Extent(source, 0, 1 << 22, 1 << 22, False)])
    sent = 0
    while sent_now := reply.send(ours.fileno(), 1 << 20):
        sent += sent_now
    unsent = 0
    while not reply.ended:
        unsent += sum(map(len, reply.read_piece(1 << 20)))
    assert sent + unsent == (1 << 22) + 4
    assert 0 < sent < 1 << 22
    reply.close()


def test_a_lost_peer_and_a_shortened_file_fall_back_to_ordinary_writes(tmp_path: Path, pair: tuple[socket.socket, socket.socket]) -> None:
    ours, peer = pair
    source = FileSource(tmp_path / "a.log", bytes(1000))
    reply = LongFetch([Extent(source, 500, 1000, 1000, False)])
    assert reply.send(ours.fileno(), 1 << 20) == 500
    assert reply.send(ours.fileno(), 1 << 20) == 0
    with pytest.raises(ReplyLost):
        reply.read_piece(1 << 20)
    peer.close()
    resumed = LongFetch([b"head", Extent(source, 0, 1000, 1000, False)])
    assert resumed.send(ours.fileno(), 1 << 20) == 0
    assert b"".join(resumed.read_piece(1 << 20)) == b"head" + bytes(1000)


def test_a_file_without_a_descriptor_is_read_and_written(tmp_path: Path, pair: tuple[socket.socket, socket.socket]) -> None:
    source = FileSource(tmp_path / "a.log", b"x" * 1000)
    os.close(source.file.descriptor)
    source.file.descriptor = -1
    reply = LongFetch([Extent(source, 0, 1000, 1000, False)])
    assert reply.send(pair[0].fileno(), 1 << 20) == 0
    assert not reply.ended
