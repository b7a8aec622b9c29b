"""Servers that are not Kafka brokers."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable

from tests.cli.fake_brokers import Close, Listener, read_frame

Serve = Callable[[socket.socket], None]


class OtherServer(Listener):
    def __init__(self, serve: Serve, host: str = "127.0.0.1") -> None:
        self._serve_connection = serve
        super().__init__(host)

    def serve(self, connection: socket.socket) -> None:
        self._serve_connection(connection)


def answer_with(data: bytes) -> Serve:
    def serve(connection: socket.socket) -> None:
        read_frame(connection)
        connection.sendall(data)

    return serve


def close(connection: socket.socket) -> None:
    raise Close


def reset(connection: socket.socket) -> None:
    connection.recv(1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def answer_half(connection: socket.socket) -> None:
    connection.recv(1000)
    connection.sendall(b"\0\0")


def keep_silent(connection: socket.socket) -> None:
    while connection.recv(1000):
        pass


def answer_slowly(connection: socket.socket) -> None:
    connection.sendall(struct.pack(">ii", 1 << 20, 1))
    while True:
        connection.sendall(b"\0")
        time.sleep(0.005)


def answer_as_web_server(connection: socket.socket) -> None:
    """Waits for an empty line."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(1000)
        if not piece:
            return
        data += piece
    connection.sendall(b"HTTP/1.0 200 OK\r\n\r\n")
