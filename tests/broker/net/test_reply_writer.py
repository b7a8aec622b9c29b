"""Replies written straight to the socket leave as the transport alone would send them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from random import Random
from struct import pack
from typing import Any, cast

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from broker.net.connection import Connection, ConnectionContext
from broker.net.reply_writer import OS_SOCKETS, ReplyWriter, Sockets
from broker.runtime.clock import Clock
from broker.runtime.turn import Turn
from tests.support.transports import BareTransport

UNREAD_MAX = 100_000
ANSWER_SECONDS = 20


class Client(BareTransport):
    """A client's transport and its socket, which accepts `room` more bytes. `received` has the bytes in the order in which the socket got them."""

    def __init__(self) -> None:
        self.room = 0
        self.unsent = b""
        self.received = b""
        self.direct = 0  # bytes written straight to the socket
        self.error: OSError | None = None
        self.aborted = False

    def socket_write(self, descriptor: int, data: bytes) -> int:
        assert not self.unsent, "the write overtakes bytes that the transport has not sent"
        if self.error is not None:
            raise self.error
        if not self.room:
            raise BlockingIOError
        accepted = min(self.room, len(data))
        self._receive(data[:accepted])
        self.direct += accepted
        return accepted

    def write(self, data: bytes, /) -> None:
        self.unsent += data
        self.send()

    def writelines(self, parts: list[bytes], /) -> None:
        self.write(b"".join(parts))

    def send(self) -> None:
        sent, self.unsent = self.unsent[: self.room], self.unsent[self.room :]
        self._receive(sent)

    def _receive(self, data: bytes) -> None:
        self.room -= len(data)
        self.received += data

    def get_write_buffer_size(self) -> int:
        return len(self.unsent)

    def close(self) -> None:
        raise AssertionError

    def abort(self) -> None:
        self.aborted = True


def writer(client: Client, descriptor: int = 7) -> ReplyWriter:
    return ReplyWriter(client, Sockets(lambda transport: descriptor, client.socket_write))


ACTIONS = st.lists(st.tuples(st.sampled_from(["write", "writelines", "room"]), st.integers(0, 20)), max_size=60)


@given(ACTIONS)
def test_bytes_leave_in_order_whatever_the_socket_accepts(actions: list[tuple[str, int]]) -> None:
    client, plain = Client(), Client()
    writers = writer(client), writer(plain, descriptor=-1)
    for number, (action, size) in enumerate(actions):
        data = bytes([number]) * size
        for replies, sender in zip(writers, (client, plain), strict=True):
            if action == "write":
                replies.write(data)
            elif action == "writelines":
                replies.writelines([data, data])
            else:
                sender.room += size
                sender.send()
        assert (client.received, client.unsent) == (plain.received, plain.unsent)
    assert not plain.direct


def test_the_transport_writes_only_what_the_socket_does_not_accept() -> None:
    client = Client()
    replies = writer(client)
    client.room = 5
    replies.write(b"abc")
    replies.write(b"def")
    replies.write(b"ghi")
    assert (client.received, client.unsent, client.direct) == (b"abcde", b"fghi", 5)
    client.room = 100
    replies.write(b"j")  # must go through the transport, behind the bytes that wait there
    client.send()
    replies.write(b"k")
    assert (client.received, client.direct) == (b"abcdefghijk", 6)


@pytest.mark.parametrize("error", [BrokenPipeError(), ConnectionResetError(), OSError(105, "no buffer space")])
def test_an_error_of_the_socket_aborts_the_connection(error: OSError) -> None:
    client = Client()
    client.error = error
    writer(client).write(b"abc")
    assert (client.aborted, client.received, client.unsent) == (True, b"", b"")


def test_a_request_without_a_reply_writes_nothing() -> None:
    client = Client()
    client.error = OSError("the socket was written to")
    writer(client).write(b"")
    assert not client.aborted


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("resets", [False, True], ids=["reads slowly", "resets"])
def test_a_client_that_reads_slowly_gets_every_reply(new_loop: Callable[[], asyncio.AbstractEventLoop], resets: bool) -> None:
    """Replies of up to 30,000 bytes fill the socket again and again. A client that resets its connection meanwhile causes no defect."""
    loop = new_loop()
    random = Random(1)
    replies = [bytes([number % 256]) * random.randrange(1, 30_000) for number in range(300)]
    try:
        assert loop.run_until_complete(asyncio.wait_for(converse(loop, replies, resets), ANSWER_SECONDS))
    finally:
        loop.close()


async def converse(loop: asyncio.AbstractEventLoop, replies: list[bytes], resets: bool) -> bool:
    """Serve a client that reads all replies or, with `resets`, closes its connection midway; returns True at the end."""
    accepted, refused = 0, 0

    def write(descriptor: int, data: bytes) -> int:
        nonlocal accepted, refused
        try:
            count = OS_SOCKETS.write(descriptor, data)
        except BlockingIOError:
            count = 0
        accepted += count > 0
        refused += count < len(data)
        if not count:
            raise BlockingIOError
        return count

    clock = Clock()
    left = iter(replies)
    ended = asyncio.Event()
    context = ConnectionContext(clock, Turn(loop, clock), lambda connection, frame: next(left), lambda connection, reason: ended.set(), 1 << 20, UNREAD_MAX, 1 << 20)
    context.sockets = Sockets(OS_SOCKETS.plain_socket, write)
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 20_000)
    ours.setblocking(False)
    theirs.setblocking(False)
    await loop.create_unix_connection(cast(Any, lambda: Connection(context, None, "client")), sock=ours)
    random = Random(2)
    for at in range(0, len(replies), 10):  # after every ten replies the client reads all, so the broker writes straight to the socket again
        await loop.sock_sendall(theirs, (pack(">i", 100) + bytes(100)) * 10)
        expected = b"".join(replies[at : at + 10])
        received = b""
        while len(received) < len(expected):
            if resets and at > 100 and received:
                theirs.close()
                await ended.wait()
                return True
            received += await loop.sock_recv(theirs, random.randrange(1, 60_000))
            if random.random() < 0.1:
                await asyncio.sleep(0.001)
        assert received == expected
    theirs.close()
    await ended.wait()
    assert accepted > 10
    assert refused > 10
    return True
